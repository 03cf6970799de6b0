//! Values that are shown to nobody (rule W10), also when a stream cuts them in two.

use std::sync::{Arc, Mutex, PoisonError};

use offspring_process::{REDACTED, spellings};

/// Shorter values are not looked for: replacing every `1` would destroy the text and hide nothing.
const SHORTEST_BYTES: usize = 4;
/// The lines of a secret of several lines are looked for one by one from this length on.
const SHORTEST_LINE_BYTES: usize = 8;

/// The secrets of all agents of a pool: what one is given, another may be told and print.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld(Arc<Mutex<Values>>);

#[derive(Clone)]
struct Values {
    /// Longest first, so that a secret that contains another one is replaced whole.
    sorted: Arc<[String]>,
    /// The bytes that begin one: the first of a character, as a secret is text.
    first: Arc<[bool; 256]>,
}

impl Default for Values {
    fn default() -> Self {
        Self { sorted: Arc::default(), first: Arc::new([false; 256]) }
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.sorted.len())
    }
}

impl Withheld {
    /// One more value that is not to be shown, however it is quoted.
    pub(crate) fn add(&self, secret: &str) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE_BYTES);
        let mut all = values.sorted.to_vec();
        for value in [secret, secret.trim()].into_iter().chain(lines).flat_map(spellings) {
            if value.len() >= SHORTEST_BYTES && !all.contains(&value) {
                all.push(value);
            }
        }
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let mut first = [false; 256];
        all.iter().filter_map(|value| value.bytes().next()).for_each(|byte| first[usize::from(byte)] = true);
        *values = Values { sorted: all.into(), first: Arc::new(first) };
    }

    fn values(&self) -> Values {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For a stream of text.
    pub(crate) fn stream(&self) -> Redactor {
        Redactor { values: self.values(), held: String::new() }
    }

    /// A text that is whole.
    #[cfg(feature = "dsh")]
    pub(crate) fn text(&self, text: &str) -> String {
        let mut redactor = self.stream();
        let mut shown = String::with_capacity(text.len());
        redactor.push(text, &mut shown);
        redactor.finish(&mut shown);
        shown
    }

    /// A text that quotes lines, each of which may have been cut as one that is given to [`line`](Self::line).
    #[cfg(feature = "dsh")]
    pub(crate) fn quoting(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for quoted in text.split_inclusive(['\n', '…']) {
            let line = quoted.trim_start();
            shown.push_str(&quoted[..quoted.len() - line.len()]);
            let end = line.trim_end_matches(['\n', '…', '"']);
            shown.push_str(&self.line(end));
            shown.push_str(&line[end.len()..]);
        }
        shown
    }

    /// Whether nothing is withheld.
    #[cfg(feature = "dsh")]
    pub(crate) fn is_empty(&self) -> bool {
        self.values().sorted.is_empty()
    }

    /// A line that may have been cut at either end, inside a secret too: what begins with the end of a
    /// secret, or ends with its beginning, loses that piece.
    pub(crate) fn line(&self, line: &str) -> String {
        let mut redactor = self.stream();
        let mut text = String::new();
        redactor.push(line, &mut text);
        redactor.cut(&mut text);
        let ends = redactor.values.sorted.iter().flat_map(|value| ends_of(value));
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
    /// Bytes of the longest secret.
    pub(crate) fn longest_bytes(&self) -> usize {
        self.values.sorted.first().map_or(0, String::len)
    }

    /// Bytes that wait for what comes next.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Appends what can be shown now.
    pub(crate) fn push(&mut self, text: &str, to: &mut String) {
        if self.values.sorted.is_empty() {
            return to.push_str(text);
        }
        if self.held.is_empty() {
            let from = self.values.scan(text, true, to);
            self.held.push_str(&text[from..]);
        } else {
            self.held.push_str(text);
            let from = self.values.scan(&self.held, true, to);
            self.held.drain(..from);
        }
    }

    /// Appends the rest, at the end of the text.
    pub(crate) fn finish(&mut self, to: &mut String) {
        self.values.scan(&self.held, false, to);
        self.held.clear();
    }

    /// Appends the rest where the text is cut: what may be the beginning of a secret is taken for one, unless it is
    /// too short to tell anything.
    pub(crate) fn cut(&mut self, to: &mut String) {
        to.push_str(if self.held.len() >= SHORTEST_BYTES { REDACTED } else { &self.held });
        self.held.clear();
    }
}

impl Values {
    /// Appends the text without secrets; gives where what has to wait begins.
    fn scan(&self, text: &str, more_to_come: bool, to: &mut String) -> usize {
        let mut at = 0;
        loop {
            let next = text.as_bytes()[at..].iter().position(|byte| self.first[usize::from(*byte)]);
            let Some(next) = next.map(|next| at + next) else {
                to.push_str(&text[at..]);
                return text.len();
            };
            to.push_str(&text[at..next]);
            let rest = &text[next..];
            let begins = |value: &String| value.len() > rest.len() && value.starts_with(rest);
            if more_to_come && self.sorted.iter().any(begins) {
                return next;
            }
            at = match self.sorted.iter().find(|value| rest.starts_with(value.as_str())) {
                Some(value) => {
                    to.push_str(REDACTED);
                    next + value.len()
                }
                None => {
                    let after = rest.chars().next().map_or(rest.len(), char::len_utf8);
                    to.push_str(&rest[..after]);
                    next + after
                }
            };
        }
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
        let mut shown = String::new();
        pieces.iter().for_each(|piece| redactor.push(piece, &mut shown));
        redactor.finish(&mut shown);
        shown
    }

    #[test]
    fn w10_a_secret_cut_in_two_by_a_stream_is_not_shown() {
        let withheld = withheld(&["hunter2-secret", "hunter2"]);
        let mut redactor = withheld.stream();
        let mut push = |text: &str| {
            let mut shown = String::new();
            redactor.push(text, &mut shown);
            shown
        };
        assert_eq!(push("key=hunter2-se"), "key=");
        assert_eq!(push("cret, hunt"), "[redacted], ");
        assert_eq!(push("ing"), "hunting");
        assert_eq!(push(" hunter2"), " ");
        let mut shown = String::new();
        redactor.finish(&mut shown);
        assert_eq!(shown, "[redacted]");
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

    #[cfg(feature = "dsh")]
    #[test]
    fn w10_no_line_that_an_error_quotes_shows_a_piece_of_a_secret() {
        let withheld = withheld(&["hunter2\"secret\\key"]);
        let junk = format!("{:?}…; line 3: {:?}", "x hunter2\"secr", "hunter2\"secret\\key");
        let text =
            format!("no JSON: {junk}\nthe end of its stderr:\n  2\"secret\\key y\n  hunter2\"se…\n  z");
        assert_eq!(
            withheld.quoting(&text),
            "no JSON: \"x [redacted]\"…; line 3: \"[redacted]\"\nthe end of its stderr:\n  [redacted] y\n  \
             [redacted]…\n  z"
        );
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
