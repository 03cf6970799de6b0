//! Values that are shown to nobody (rule W10), also when a stream cuts them in two.

use std::sync::{Arc, Mutex, PoisonError};

/// What stands where a secret was.
const REDACTED: &str = "[redacted]";
/// Shorter values are not looked for: replacing every `1` would destroy the text and hide nothing.
const SHORTEST_BYTES: usize = 4;
/// The lines of a secret of several lines are looked for one by one from this length on.
const SHORTEST_LINE_BYTES: usize = 8;

/// The secrets of all agents of a pool: what one is given, another may be told and print.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld(Arc<Mutex<Values>>);

/// Longest first, so that a secret that contains another one is replaced whole.
#[derive(Default, Clone)]
struct Values(Arc<[String]>);

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.0.len())
    }
}

impl Withheld {
    /// One more value that is not to be shown.
    pub(crate) fn add(&self, secret: &str) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE_BYTES);
        let mut all = values.0.to_vec();
        for value in [secret, secret.trim()].into_iter().chain(lines) {
            if value.len() >= SHORTEST_BYTES && !all.iter().any(|known| known == value) {
                all.push(value.to_owned());
            }
        }
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.0 = all.into();
    }

    fn values(&self) -> Values {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For a stream of text.
    pub(crate) fn stream(&self) -> Redactor {
        Redactor { values: self.values(), held: String::new() }
    }

    /// A line that may have been cut at either end, inside a secret too: what begins with the end of a
    /// secret, or ends with its beginning, loses that piece.
    pub(crate) fn line(&self, line: &str) -> String {
        let mut redactor = self.stream();
        let mut text = redactor.push(line);
        let held = std::mem::take(&mut redactor.held);
        text.push_str(if held.len() >= SHORTEST_BYTES { REDACTED } else { &held });
        let ends = redactor.values.0.iter().flat_map(|value| ends_of(value));
        match ends.filter(|end| text.starts_with(end)).max_by_key(|end| end.len()) {
            Some(end) => format!("{REDACTED}{}", &text[end.len()..]),
            None => text,
        }
    }
}

/// The proper ends of a value that are long enough to tell something.
fn ends_of(value: &str) -> impl Iterator<Item = &str> {
    value.char_indices().skip(1).map(|(at, _)| &value[at..]).filter(|end| end.len() >= SHORTEST_BYTES)
}

/// Takes secrets out of a text that comes in pieces. What may be the beginning of one is held back until
/// the next piece decides it: never more than the longest secret.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    values: Values,
    held: String,
}

impl Redactor {
    /// What can be shown now.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.values.0.is_empty() {
            return text.to_owned();
        }
        self.held.push_str(text);
        let (shown, from) = self.scan(true);
        self.held.drain(..from);
        shown
    }

    /// The rest, at the end of the text.
    pub(crate) fn finish(&mut self) -> String {
        let (shown, _) = self.scan(false);
        self.held.clear();
        shown
    }

    /// The text without secrets, and where what has to wait begins.
    fn scan(&self, more_to_come: bool) -> (String, usize) {
        let mut shown = String::with_capacity(self.held.len());
        let mut at = 0;
        while let Some(next) = self.held[at..].chars().next() {
            let rest = &self.held[at..];
            let begins = |value: &&String| value.len() > rest.len() && value.starts_with(rest);
            if more_to_come && self.values.0.iter().any(|value| begins(&value)) {
                return (shown, at);
            }
            match self.values.0.iter().find(|value| rest.starts_with(value.as_str())) {
                Some(value) => {
                    shown.push_str(REDACTED);
                    at += value.len();
                }
                None => {
                    shown.push(next);
                    at += next.len_utf8();
                }
            }
        }
        (shown, at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn withheld(secrets: &[&str]) -> Withheld {
        let withheld = Withheld::default();
        secrets.iter().for_each(|secret| withheld.add(secret));
        withheld
    }

    fn streamed(withheld: &Withheld, pieces: &[&str]) -> String {
        let mut redactor = withheld.stream();
        let mut shown: String = pieces.iter().map(|piece| redactor.push(piece)).collect();
        shown.push_str(&redactor.finish());
        shown
    }

    #[test]
    fn w10_a_secret_cut_in_two_by_a_stream_is_not_shown() {
        let withheld = withheld(&["hunter2-secret", "hunter2"]);
        let mut redactor = withheld.stream();
        assert_eq!(redactor.push("key=hunter2-se"), "key=");
        assert_eq!(redactor.push("cret, hunt"), "[redacted], ");
        assert_eq!(redactor.push("ing"), "hunting");
        assert_eq!(redactor.push(" hunter2"), " ");
        assert_eq!(redactor.finish(), "[redacted]");
        assert!(!format!("{withheld:?}").contains("hunter"));
    }

    #[test]
    fn w10_a_line_that_was_cut_inside_a_secret_shows_no_piece_of_it() {
        let withheld = withheld(&["hunter2-secret"]);
        assert_eq!(withheld.line("the key is hunter2-se"), "the key is [redacted]");
        assert_eq!(withheld.line("er2-secret is the key"), "[redacted] is the key");
        assert_eq!(withheld.line("hunter2-secret"), "[redacted]");
        assert_eq!(withheld.line("a hun"), "a hun");
    }

    #[test]
    fn w10_the_lines_of_a_long_secret_are_secrets_too() {
        let withheld = withheld(&["-----BEGIN-----\nMIIEvQIBADANBg\n"]);
        assert_eq!(withheld.line("bad key MIIEvQIBADANBg!"), "bad key [redacted]!");
        assert_eq!(streamed(&withheld, &["x-----BEGIN-----\nMIIEvQIBADANBg\ny"]), "x[redacted]y");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn w10_any_cut_of_a_stream_shows_the_same_and_no_secret(
            text in "[ab€x]{0,40}",
            secrets in prop::collection::vec("[ab€]{3,6}", 0..3),
            cuts in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
            let withheld = withheld(&secrets);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let shown = streamed(&withheld, &pieces);
            prop_assert_eq!(&shown, &streamed(&withheld, &[&text]));
            for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
                prop_assert!(!shown.replace(REDACTED, "-").contains(secret), "{} in {}", secret, shown);
            }
        }
    }
}
