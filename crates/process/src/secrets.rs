//! Values that must not be shown, and their removal from a text (W10).

use std::borrow::Cow;
use std::fmt;

/// What stands in a text where a secret was.
const REDACTED: &str = "[redacted]";

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

    /// Adds a value. One shorter than 4 bytes is ignored: it would be found everywhere.
    #[must_use]
    pub fn with(mut self, value: impl Into<String>) -> Self {
        let value = value.into();
        if value.len() >= SHORTEST_BYTES && !self.values.contains(&value) {
            self.values.push(value);
            self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        }
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
}
