//! JSON as a peer may write it: the same value in many spellings.

use crate::streams::random::Random;

/// A value to be written.
#[derive(Debug, Clone)]
pub enum Json {
    /// Written as it stands: a number, `true`, `null`, or whatever is to be wrong.
    Raw(String),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, its members in this order.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A whole number.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self::Raw(number.to_string())
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::Raw("null".to_owned())
    }

    /// The shortest spelling, members in their order.
    #[must_use]
    pub fn plain(&self) -> String {
        let mut out = String::new();
        self.write_plain(&mut out);
        out
    }

    fn write_plain(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw),
            Self::Text(text) => quote(text, out),
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    item.write_plain(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    quote(name, out);
                    out.push(':');
                    value.write_plain(out);
                }
                out.push('}');
            }
        }
    }

    /// A spelling of the same value with spaces, members in any order and needless escapes.
    #[must_use]
    pub fn odd(&self, random: &mut Random) -> String {
        let mut out = String::new();
        self.write_odd(random, &mut out);
        out
    }

    fn write_odd(&self, random: &mut Random, out: &mut String) {
        space(random, out);
        match self {
            Self::Raw(raw) => out.push_str(raw),
            Self::Text(text) => quote_oddly(text, random, out),
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    item.write_odd(random, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut order: Vec<usize> = (0..members.len()).collect();
                for place in (1..order.len()).rev() {
                    order.swap(place, random.below(place + 1));
                }
                out.push('{');
                for (place, member) in order.into_iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    space(random, out);
                    quote_oddly(members[member].0, random, out);
                    space(random, out);
                    out.push(':');
                    members[member].1.write_odd(random, out);
                }
                out.push('}');
            }
        }
        space(random, out);
    }
}

fn space(random: &mut Random, out: &mut String) {
    if random.one_in(6) {
        out.push_str(random.pick(&[" ", "\t", "  "]));
    }
}

/// A JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(text, &mut out);
    out
}

pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn quote_oddly(text: &str, random: &mut Random, out: &mut String) {
    out.push('"');
    let mut units = [0; 2];
    for character in text.chars() {
        match character {
            '/' if random.one_in(2) => out.push_str("\\/"),
            _ if random.one_in(5) || character < ' ' || character == '"' || character == '\\' => {
                for unit in character.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
