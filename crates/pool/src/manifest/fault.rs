//! Why a value of a manifest cannot be read, in words that name no type.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::{
    problem::{Place, Problem, shown, suggestion},
    yaml::Yaml,
};

/// Why a value cannot be read.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) what: What,
    suggestion: Option<String>,
    pub(super) place: Option<Place>,
    /// Where in the document, innermost step first.
    steps: Vec<Step>,
    /// The value to leave out before the next attempt.
    pub(super) blamed: Option<u32>,
    /// A consequence of a problem that was reported already.
    pub(super) silent: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Expected { expected: String, found: String },
    Missing(&'static str),
    UnknownKey(String),
    Other(String),
}

#[derive(Debug)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

impl Fault {
    fn new(what: What) -> Self {
        Self { what, suggestion: None, place: None, steps: Vec::new(), blamed: None, silent: false }
    }

    pub(super) fn expected(expected: impl Into<String>, yaml: &Yaml) -> Self {
        Self::new(What::Expected { expected: expected.into(), found: yaml.found() })
    }

    pub(super) fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }

    pub(super) fn at(mut self, place: Place) -> Self {
        self.place.get_or_insert(place);
        self
    }

    /// On the way out of an entry or an item.
    pub(super) fn inside(mut self, step: Step, id: u32) -> Self {
        self.steps.push(step);
        self.blamed.get_or_insert(id);
        self
    }

    pub(super) fn into_problem(self, base: &str, root: Place) -> Problem {
        let wants_type = matches!(self.what, What::Missing("type"));
        let mut path = base.to_owned();
        let mut unit = "";
        for step in self.steps.iter().rev() {
            match step {
                Step::Key(key) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                    unit = unit_of(key);
                }
                Step::Item(index) => path.push_str(&format!("[{index}]")),
            }
        }
        let message = match self.what {
            What::Missing(field) if path.is_empty() => format!("`{field}` is missing"),
            What::Missing(field) => format!("`{}.{field}` is missing", shown(&path)),
            What::UnknownKey(key) => format!("unknown key `{}`", shown(&key)),
            What::Expected { expected, found } => {
                let unit = if expected.starts_with(WHOLE_NUMBER) { unit } else { "" };
                let expected = match expected.strip_prefix(WHOLE_NUMBER) {
                    Some(range) => format!("{WHOLE_NUMBER}{unit}{range}"),
                    None => expected,
                };
                match path.as_str() {
                    "" => format!("expected {expected}, found {found}"),
                    path => format!("`{}`: expected {expected}, found {found}", shown(path)),
                }
            }
            What::Other(message) if path.is_empty() => message,
            What::Other(message) => format!("`{}`: {message}", shown(&path)),
        };
        let suggestion = self.suggestion.or_else(|| wants_type.then(|| TYPE_IS_MISSING.to_owned()));
        Problem::at(self.place.unwrap_or(root), message).maybe_suggest(suggestion)
    }
}

/// Said of an agent that does not say what it is.
const TYPE_IS_MISSING: &str = "say what runs it; for a local program: `type: command`";

pub(super) const WHOLE_NUMBER: &str = "a whole number";

/// The unit that the name of a key says.
fn unit_of(key: &str) -> &'static str {
    if key.ends_with("_ms") {
        " of milliseconds"
    } else if key.ends_with("_bytes") {
        " of bytes"
    } else {
        ""
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Expected { expected, found } => write!(f, "expected {expected}, found {found}"),
            What::Missing(field) => write!(f, "`{field}` is missing"),
            What::UnknownKey(key) => write!(f, "unknown key `{}`", shown(key)),
            What::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(What::Other(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(What::Expected { expected: in_words(&expected.to_string()), found: found_in_words(&found) })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let found = if length == 1 { "1 item".to_owned() } else { format!("{length} items") };
        Self::new(What::Expected { expected: in_words(&expected.to_string()), found })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(What::Other(format!("`{}` is none of its values", shown(variant)))).suggest(suggestion(
            variant,
            "its values",
            expected.iter().copied(),
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(What::UnknownKey(field.to_owned())).suggest(suggestion(
            field,
            "known keys",
            expected.iter().copied(),
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(What::Missing(field))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(What::Other(format!("`{field}` stands here twice")))
    }
}

/// What serde says a type wants, without the names of types.
fn in_words(expected: &str) -> String {
    match expected {
        "a string" | "string" | "a character" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        other if other.starts_with("a nonzero") => format!("{WHOLE_NUMBER} from 1"),
        other if other.starts_with("struct ") => "a mapping".to_owned(),
        other if other.starts_with("tuple ") || other.starts_with("a tuple") => "a list".to_owned(),
        other if other.starts_with("enum ") || other.starts_with("variant ") => {
            "one of its values".to_owned()
        }
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" | "u128" | "i128" => {
            WHOLE_NUMBER.to_owned()
        }
        "f32" | "f64" => "a number".to_owned(),
        other => other.to_owned(),
    }
}

fn found_in_words(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{number}`"),
        // Not repeated: it may be a secret (W10).
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "text".to_owned(),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq | Unexpected::TupleVariant => "a list".to_owned(),
        Unexpected::Other(what) => (*what).to_owned(),
        _ => "a mapping".to_owned(),
    }
}
