//! The words of one line, taken one after another.

use std::time::Duration;

use super::ScriptError;
use super::words::{self, Word};

/// What to read about the statements.
pub(super) const PAGE: &str = "docs/formats/runtime-script.md lists the statements";

/// The words of one line that are not used yet.
pub(super) struct Line {
    pub(super) number: u32,
    pub(super) statement: String,
    pub(super) words: std::vec::IntoIter<Word>,
}

impl Line {
    pub(super) fn error(&self, what: String) -> ScriptError {
        ScriptError::new(self.number, what, PAGE)
    }

    pub(super) fn wrong(&self, what: &str, advice: &str) -> ScriptError {
        ScriptError::new(self.number, format!("`{}` {what}", self.statement), advice)
    }

    pub(super) fn missing(&self, what: &str, found: Option<&Word>) -> ScriptError {
        let found = found.map(|word| format!(", not `{}`", word.shown())).unwrap_or_default();
        self.wrong(&format!("needs {what}{found}"), PAGE)
    }

    pub(super) fn bare(&mut self, what: &str) -> Result<String, ScriptError> {
        match self.words.next() {
            Some(Word::Bare(word)) => Ok(word),
            other => Err(self.missing(what, other.as_ref())),
        }
    }

    pub(super) fn one_of(&mut self, choices: &[&str]) -> Result<String, ScriptError> {
        let word = self.bare(&format!("one of {}", choices.join(", ")))?;
        if choices.contains(&word.as_str()) {
            return Ok(word);
        }
        Err(self.wrong(&format!("knows no `{word}`"), &format!("write one of {}", choices.join(", "))))
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u64, ScriptError> {
        let word = self.bare(what)?;
        word.replace('_', "").parse().map_err(|_| self.wrong(&format!("needs {what}, not `{word}`"), PAGE))
    }

    pub(super) fn integer(&mut self, what: &str) -> Result<i64, ScriptError> {
        let word = self.bare(what)?;
        word.parse().map_err(|_| self.wrong(&format!("needs {what}, not `{word}`"), PAGE))
    }

    pub(super) fn optional_code(&mut self) -> Result<u8, ScriptError> {
        if self.words.len() == 0 {
            return Ok(0);
        }
        let word = self.bare("an exit code")?;
        word.parse().map_err(|_| self.wrong(&format!("needs an exit code, not `{word}`"), "write 0 to 255"))
    }

    pub(super) fn size(&mut self) -> Result<u64, ScriptError> {
        let word = self.bare("a size")?;
        words::size(&word).map_err(|what| self.error(what))
    }

    pub(super) fn duration(&mut self) -> Result<Duration, ScriptError> {
        let word = self.bare("a duration")?;
        words::duration(&word).map_err(|what| self.error(what))
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, ScriptError> {
        match self.words.next() {
            Some(Word::Quoted(raw)) => words::bytes(&raw).map_err(|what| self.error(what)),
            other => Err(self.missing("bytes in quotes", other.as_ref())),
        }
    }

    pub(super) fn quoted(&mut self, what: &str) -> Result<String, ScriptError> {
        match self.words.next() {
            Some(Word::Quoted(raw)) => words::text(&raw).map_err(|what| self.error(what)),
            other => Err(self.missing(what, other.as_ref())),
        }
    }

    /// A word without names in it.
    pub(super) fn id(&mut self) -> Result<String, ScriptError> {
        match self.words.next() {
            Some(Word::Bare(word)) => Ok(word.trim_start_matches('$').to_owned()),
            Some(Word::Quoted(raw)) => words::text(&raw).map_err(|what| self.error(what)),
            other => Err(self.missing("a session", other.as_ref())),
        }
    }

    pub(super) fn next_is_bare(&self, word: &str) -> bool {
        matches!(self.words.as_slice().first(), Some(Word::Bare(next)) if next == word)
    }

    pub(super) fn next_is_number(&self) -> bool {
        matches!(self.words.as_slice().first(), Some(Word::Bare(next)) if next.parse::<i64>().is_ok())
    }

    pub(super) fn takes(&mut self, word: &str) -> bool {
        let takes = self.next_is_bare(word);
        if takes {
            self.words.next();
        }
        takes
    }

    /// Refuses what is left over.
    pub(super) fn done(&mut self) -> Result<(), ScriptError> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(self.wrong(&format!("does not take `{}`", word.shown()), PAGE)),
        }
    }
}
