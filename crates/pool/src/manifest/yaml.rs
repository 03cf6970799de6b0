//! A YAML document as a tree in which every value and every key knows its place.

use std::{collections::HashMap, fmt};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, NonFiniteFloatPolicy, Spanned};

use super::problem::{Place, Problem, shown, shown_up_to};

/// The deepest nesting of lists and mappings; a manifest needs five. An unoptimised build uses up to 48 KiB of stack
/// for each level, and a thread may have 2 MiB.
const MAX_NESTING: usize = 16;

/// The most values of one document, aliases counted once for each use.
const MAX_VALUES: usize = 50_000;

/// One value of the document.
#[derive(Debug)]
pub(super) struct Yaml {
    /// Different for every value of the document.
    pub(super) id: u32,
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a value is. Scalars that are no text keep how they were written, for those who want text.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int { number: i128, written: String },
    Float { number: f64, written: String },
    Text(String),
    List(Vec<Yaml>),
    Table(Vec<(Key, Yaml)>),
}

/// The key of an entry of a mapping.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) place: Place,
}

impl Yaml {
    /// The value in words, for "expected …, found …". Texts are not repeated: they may be secrets (W10).
    pub(super) fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int { written, .. } | Value::Float { written, .. } => format!("`{}`", shown(written)),
            Value::Text(_) => "text".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a mapping".to_owned(),
        }
    }

    /// The entries of a mapping; none for anything else.
    pub(super) fn entries(&self) -> &[(Key, Yaml)] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The entry with this key.
    pub(super) fn entry(&self, key: &str) -> Option<&(Key, Yaml)> {
        self.entries().iter().find(|(known, _)| known.text == key)
    }
}

/// Reads one document. What is wrong with single keys is added to `problems`; text that is no YAML gives `None`.
pub(super) fn parse(text: &str, problems: &mut Vec<Problem>) -> Option<Yaml> {
    // Duplicates are passed through, because we can say where the first one is; what stands for a number that no
    // float can hold is refused by whoever wants a number, at its place.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_NESTING, max_nodes: MAX_VALUES },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_VALUES },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<Loose>>(text, options) {
        Ok(tree) => Some(Builder { text, next_id: 0, problems }.build(tree)),
        Err(error) => {
            problems.push(syntax(text, &error));
            None
        }
    }
}

/// Turns what the parser says into a problem in our words.
fn syntax(text: &str, error: &Error) -> Problem {
    let place = error.location().map_or(Place { line: 1, column: 1 }, place);
    if let Some(tab) = tab_in_indentation(text, place.line) {
        return Problem::at(tab, "a tab in the indentation").suggest("YAML wants spaces");
    }
    match error {
        Error::MultipleDocuments { .. } => {
            Problem::at(place, "a second document starts here").suggest("one file holds one manifest")
        }
        Error::UnknownAnchor { .. } => {
            Problem::at(place, "`*` names an anchor that nothing before it defines")
                .suggest("write `&name` at the value that is meant, or put the text in quotes")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            Problem::at(place, "this value contains itself").suggest("take the `*` out")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_large(place),
        Error::InvalidScalar { .. } => {
            Problem::at(place, "the value does not fit its tag").suggest("take the `!!` in front of it out")
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => Problem::at(place, "`<<` takes a mapping")
            .suggest("write `<<: *name` with the anchor of a mapping"),
        other => {
            let said = other.to_string();
            // The place is in front already.
            let said = said.find(" at line ").map_or(said.as_str(), |end| &said[..end]);
            if said.contains("recursion limit") {
                return too_large(place);
            }
            let problem = Problem::at(place, format!("no valid YAML: {}", shown_up_to(160, said)));
            let hint =
                said.contains("mapping values").then(|| "put text that contains `: ` in quotes".to_owned());
            problem.maybe_suggest(hint)
        }
    }
}

fn too_large(place: Place) -> Problem {
    let message =
        format!("the document is nested deeper than {MAX_NESTING} or has more than {MAX_VALUES} values");
    Problem::at(place, message)
}

/// The first tab that indents something in the line of an error or the one after it: the parser reports it late.
fn tab_in_indentation(text: &str, line: u32) -> Option<Place> {
    let first = usize::try_from(line).unwrap_or(1).saturating_sub(1);
    text.lines().enumerate().skip(first).take(2).find_map(|(index, line)| {
        let blank: &str = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        let column = blank.find('\t')?;
        Some(Place { line: u32::try_from(index + 1).ok()?, column: u32::try_from(column + 1).ok()? })
    })
}

fn place(location: Location) -> Place {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Place { line: number(location.line()), column: number(location.column()) }
}

/// What serde gives us, before keys are texts and scalars know how they were written.
enum Loose {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Loose>>),
    Table(Vec<(Spanned<Loose>, Spanned<Loose>)>),
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LooseVisitor;
        impl<'de> Visitor<'de> for LooseVisitor {
            type Value = Loose;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Loose, E> {
                Ok(Loose::Null)
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Loose, E> {
                Ok(Loose::Bool(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Loose, E> {
                Ok(Loose::Int(value.into()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Loose, E> {
                Ok(Loose::Int(value.into()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Loose, E> {
                Ok(Loose::Float(value))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Loose, E> {
                Ok(Loose::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Loose, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Loose::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Loose, A::Error> {
                let mut table = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    table.push(entry);
                }
                Ok(Loose::Table(table))
            }
        }
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct Builder<'a> {
    text: &'a str,
    next_id: u32,
    problems: &'a mut Vec<Problem>,
}

impl Builder<'_> {
    fn build(&mut self, loose: Spanned<Loose>) -> Yaml {
        let id = self.next_id;
        self.next_id += 1;
        let written = |fallback: &dyn fmt::Display| self.written(loose.defined, fallback);
        let value = match loose.value {
            Loose::Null => Value::Null,
            Loose::Bool(value) => Value::Bool(value),
            Loose::Int(number) => Value::Int { number, written: written(&number) },
            Loose::Float(number) => Value::Float { number, written: written(&number) },
            Loose::Text(text) => Value::Text(text),
            Loose::List(items) => Value::List(items.into_iter().map(|item| self.build(item)).collect()),
            Loose::Table(entries) => Value::Table(self.table(entries)),
        };
        Yaml { id, place: place(loose.referenced), value }
    }

    fn table(&mut self, entries: Vec<(Spanned<Loose>, Spanned<Loose>)>) -> Vec<(Key, Yaml)> {
        let mut first: HashMap<String, Place> = HashMap::new();
        let mut table = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key_place = place(key.referenced);
            let text = match key.value {
                Loose::Text(text) => text,
                Loose::Bool(value) => value.to_string(),
                Loose::Int(number) => self.written(key.defined, &number),
                Loose::Float(number) => self.written(key.defined, &number),
                Loose::Null | Loose::List(_) | Loose::Table(_) => {
                    self.problems.push(
                        Problem::at(key_place, "this key is no text").suggest("a key is a single word"),
                    );
                    continue;
                }
            };
            if let Some(before) = first.get(&text) {
                self.problems.push(
                    Problem::at(key_place, format!("`{}` stands here for the second time", shown(&text)))
                        .suggest(format!("the first is in line {}", before.line)),
                );
                continue;
            }
            first.insert(text.clone(), key_place);
            let value = self.build(value);
            table.push((Key { text, place: key_place }, value));
        }
        table
    }

    /// A number as it was written: `1.10` is a version for somebody who wants text.
    fn written(&self, at: Location, fallback: &dyn fmt::Display) -> String {
        let span = at.span();
        let text = span.byte_offset().zip(span.byte_len()).and_then(|(start, length)| {
            let start = usize::try_from(start).ok()?;
            self.text.get(start..start.checked_add(usize::try_from(length).ok()?)?)
        });
        match text {
            Some(text) if !text.is_empty() => text.to_owned(),
            _ => fallback.to_string(),
        }
    }
}
