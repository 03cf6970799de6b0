//! What is wrong with a manifest, where, and what to do about it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// How many lines the message of a [`ManifestError`] has at most.
const MAX_LINES: usize = 6;

/// How much of a text of the manifest a message repeats, in characters.
const MAX_SHOWN: usize = 60;

/// A place in a manifest; both numbers count from 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// One thing that is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; 0 when the problem is the file as a whole (it cannot be read).
    pub line: u32,
    /// The column, from 1, counted in characters; 0 when the problem is the file as a whole.
    pub column: u32,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it, in the same line, where there is more to say than the message does.
    pub suggestion: Option<String>,
}

impl Problem {
    /// A problem at a place.
    #[must_use]
    pub fn at(place: Place, message: impl Into<String>) -> Self {
        Self { line: place.line, column: place.column, message: message.into(), suggestion: None }
    }

    /// A problem of the file as a whole.
    #[must_use]
    pub fn of_file(message: impl Into<String>) -> Self {
        Self { line: 0, column: 0, message: message.into(), suggestion: None }
    }

    /// The same problem with a suggestion.
    #[must_use]
    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }

    /// The same problem with a suggestion, if there is one.
    pub(super) fn maybe_suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// Why a manifest cannot be used: every problem that was found, in the order of the file.
///
/// Its text has one line per problem, as compilers write them, and at most six lines:
/// ``survey.yaml:12:5: unknown key `agentz`; did you mean `agents`?``
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    path: PathBuf,
    problems: Vec<Problem>,
}

impl ManifestError {
    /// An error about the manifest at `path`. The problems are put in the order of the file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Self { path: path.into(), problems }
    }

    /// The manifest, as its path was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything that was found, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = visible(&self.path.to_string_lossy());
        let whole = self.problems.len() <= MAX_LINES;
        let listed = if whole { self.problems.len() } else { MAX_LINES - 1 };
        for (index, problem) in self.problems.iter().take(listed).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match problem.line {
                0 => write!(f, "{path}: {problem}")?,
                line => write!(f, "{path}:{line}:{}: {problem}", problem.column)?,
            }
        }
        if whole { Ok(()) } else { write!(f, "\n{path}: and {} more problems", self.problems.len() - listed) }
    }
}

impl std::error::Error for ManifestError {}

/// A text of the manifest inside a message: short, on one line, without control characters (W11).
pub(super) fn shown(text: &str) -> String {
    shown_up_to(MAX_SHOWN, text)
}

/// The same with another number of characters.
pub(super) fn shown_up_to(most: usize, text: &str) -> String {
    let mut out = visible(&text.chars().take(most).collect::<String>());
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// The text with every control character escaped, so that none of them reaches a terminal (W11).
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Line separators and characters that change the direction of a text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// "did you mean …?" when one of the candidates is close, else the candidates themselves.
pub(super) fn suggestion<'c>(
    word: &str,
    what: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(close) = closest(word, &candidates) {
        return Some(format!("did you mean `{}`?", shown(close)));
    }
    const MAX_LISTED: usize = 12;
    let mut listed: Vec<String> =
        candidates.iter().take(MAX_LISTED).map(|known| format!("`{}`", shown(known))).collect();
    if candidates.len() > MAX_LISTED {
        listed.push(format!("{} more", candidates.len() - MAX_LISTED));
    }
    (!listed.is_empty()).then(|| format!("{what}: {}", listed.join(", ")))
}

/// Whether a word is likely to be meant as this one.
pub(super) fn is_close(word: &str, known: &str) -> bool {
    closest(word, &[known]).is_some()
}

/// The candidate with the smallest edit distance, when that is small for the length of the word.
fn closest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let word: String = word.to_lowercase().chars().take(2 * MAX_SHOWN).collect();
    let length = word.chars().count();
    candidates
        .iter()
        .map(|&known| (strsim::osa_distance(&word, &known.to_lowercase()), known))
        // A word of which nothing is left is no misspelling.
        .filter(|&(distance, known)| {
            distance < length && distance <= (length.max(known.chars().count()) / 3).max(1)
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_neighbours_is_one_misspelling() {
        assert_eq!(closest("etnry", &["entry", "teams"]), Some("entry"));
        assert_eq!(closest("agentz", &["agents"]), Some("agents"));
        assert_eq!(closest("x", &["y"]), None);
    }

    #[test]
    fn w11_no_control_character_of_a_manifest_reaches_a_message() {
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
        assert_eq!(shown(&"x".repeat(100)), format!("{}…", "x".repeat(60)));
        let error = ManifestError::new("a\u{7}.yaml", vec![Problem::of_file("cannot be read")]);
        assert_eq!(error.to_string(), "a\\u{7}.yaml: cannot be read");
    }

    #[test]
    fn the_text_of_an_error_has_at_most_six_lines() {
        let problems = |n| (1..=n).map(|line| Problem::at(Place { line, column: 1 }, "wrong")).collect();
        assert_eq!(ManifestError::new("p", problems(6)).to_string().lines().count(), 6);
        let seven = ManifestError::new("p", problems(9)).to_string();
        assert_eq!(seven.lines().count(), 6);
        assert!(seven.ends_with("p: and 4 more problems"), "{seven}");
    }
}
