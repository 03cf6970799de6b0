//! What is wrong with a script.

/// A line of a script, a trace or a stream that cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; {advice}")]
pub struct ScriptError {
    line: u32,
    what: String,
    advice: String,
}

impl ScriptError {
    pub(crate) fn new(line: u32, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { line, what: what.into(), advice: advice.into() }
    }

    /// The line, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// What is wrong in it.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }
}
