//! Values that must not be shown, and their removal from a text (W10).

use std::borrow::Cow;
use std::fmt;

/// What stands in a text where a secret was.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not looked for: replacing every `1` would destroy the text and hide nothing.
const SHORTEST_BYTES: usize = 4;

/// The values that must not reach a log, an error or an export (W10). `Debug` prints how many there are.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Longest first, so that a secret that contains another one is replaced whole.
    values: Vec<String>,
}

impl Secrets {
    /// No secret.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a value, in all its [`spellings`]. One shorter than 4 bytes is ignored: it would be found everywhere.
    #[must_use]
    pub fn with(mut self, value: impl Into<String>) -> Self {
        for value in spellings(&value.into()) {
            if value.len() >= SHORTEST_BYTES && !self.values.contains(&value) {
                self.values.push(value);
            }
        }
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        self
    }

    /// The text with every secret replaced by `[redacted]`; borrowed when there is none in it.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in &self.values {
            if text.contains(value) {
                text = Cow::Owned(text.replace(value, REDACTED));
            }
        }
        text
    }
}

/// How often a value may have been quoted on its way to us: arguments of a tool are JSON within the JSON of a line,
/// which an error quotes.
const QUOTED_AT_MOST: usize = 3;

/// A value as it is, and as it is spelled within a string of JSON (with and without the escapes that some writers
/// use for what is not ASCII), of Rust's `Debug` or of a shown line, once, twice and three times. For most values these
/// are all the same.
#[must_use]
pub fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    let mut from = 0;
    for _ in 0..QUOTED_AT_MOST {
        let to = all.len();
        for at in from..to {
            let value = &all[at];
            let debug = value.escape_debug().to_string();
            let quoted = [in_json(value, false), in_json(value, true), debug, without_controls(value)];
            for quoted in quoted {
                if !all.contains(&quoted) {
                    all.push(quoted);
                }
            }
        }
        from = to;
    }
    all
}

/// As one shows a line of a stranger (W11).
fn without_controls(value: &str) -> String {
    let mut shown = String::with_capacity(value.len());
    for character in value.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// As it stands between the quotes of a string of JSON.
fn in_json(value: &str, is_ascii: bool) -> String {
    let mut quoted = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            _ if character < ' ' || is_ascii && !character.is_ascii() => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => quoted.push(character),
        }
    }
    quoted
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_secrets_are_replaced_longest_first_and_never_printed() {
        let secrets = Secrets::none().with("token").with("token-long").with("abc");
        assert_eq!(secrets.redact("a token-long, a token, an abc"), "a [redacted], a [redacted], an abc");
        assert!(matches!(secrets.redact("nothing here"), Cow::Borrowed(_)));
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
    }

    #[test]
    fn w10_a_secret_is_found_however_often_it_was_quoted() {
        let secrets = Secrets::none().with("p\"a \\s\ns\u{1}\r\t\u{8}\u{c}é");
        let json = r#"p\"a \\s\ns\u0001\r\t\b\fé"#;
        let ascii = r#"p\"a \\s\ns\u0001\r\t\b\f\u00e9"#;
        for once in ["p\"a \\s\ns\u{1}\r\t\u{8}\u{c}é", json, ascii] {
            for text in [once.to_owned(), format!("{once:?}"), format!("{:?}", format!("{once:?}"))] {
                let shown = secrets.redact(&text);
                assert_eq!(shown.replace(['"', '\\'], ""), "[redacted]", "{text} is {shown}");
            }
        }
        assert_eq!(spellings("token-long"), ["token-long"]);
    }
}
