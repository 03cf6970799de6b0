//! What a peer wrote that was no message: counted, and the last of it kept (rule W3).

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use offspring_protocol::rpc::NotRpc;

/// How much [`Diagnostics`] keeps. Counting goes on beyond both limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnosticLimits {
    /// The last how many lines are kept; default 32. More of them show longer outbursts and cost up to
    /// `line_bytes` each; with 0 there are counts only.
    pub lines: usize,
    /// How many bytes of a line are kept; default 2,048. The rest of a longer line is gone.
    pub line_bytes: usize,
}

impl Default for DiagnosticLimits {
    fn default() -> Self {
        Self { lines: 32, line_bytes: 2048 }
    }
}

/// Why a line was set aside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Junk {
    /// It is no message.
    #[error("{0}")]
    NotRpc(NotRpc),
    /// It is over the limit and was skipped (rule W2).
    #[error("the line has {bytes} bytes, more than the limit, and was skipped")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The stream ended before it did.
    #[error("the stream ended inside the line, after {bytes} bytes")]
    Unterminated {
        /// Its size so far.
        bytes: u64,
    },
    /// It answers a request nobody waits for (rule W5).
    #[error("the line answers a request that nobody waits for")]
    UnknownId,
    /// It is a message without `"jsonrpc": "2.0"`; set aside by strict reading only.
    #[error("the message does not say \"jsonrpc\": \"2.0\"")]
    Unversioned,
}

/// How many lines were set aside, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JunkCounts {
    /// Lines that are no text.
    pub not_utf8: u64,
    /// Text that is no JSON.
    pub not_json: u64,
    /// JSON that is no message.
    pub not_rpc: u64,
    /// Lines over the limit (rule W2).
    pub too_large: u64,
    /// Lines without an end: at most one per stream.
    pub unterminated: u64,
    /// Responses nobody waits for (rule W5).
    pub unknown_id: u64,
    /// Messages without a version that strict reading refused.
    pub unversioned: u64,
}

impl JunkCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { not_utf8, not_json, not_rpc, too_large, unterminated, unknown_id, unversioned } = self;
        not_utf8 + not_json + not_rpc + too_large + unterminated + unknown_id + unversioned
    }
}

/// A line that was set aside.
///
/// It is what a peer wrote, byte for byte: it may hold anything, secrets included (rule W10). Its
/// [`Display`](fmt::Display) quotes it in one line with every control character escaped (rule W11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLine {
    /// Which line of the stream, from 1.
    pub line: u64,
    /// Why it was set aside.
    pub why: Junk,
    /// Its first bytes, cut between two characters where it is text.
    pub head: Box<[u8]>,
    /// Whether more of it followed.
    pub cut: bool,
}

impl KeptLine {
    pub(crate) fn new(line: u64, why: Junk, text: &[u8], line_bytes: usize) -> Self {
        let head = truncated(text, line_bytes);
        let cut = match why {
            Junk::TooLarge { bytes } | Junk::Unterminated { bytes } => bytes > head.len() as u64,
            _ => head.len() < text.len(),
        };
        Self { line, why, head: head.into(), cut }
    }
}

impl fmt::Display for KeptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)?;
        if !self.head.is_empty() {
            write!(f, ": {:?}{}", String::from_utf8_lossy(&self.head), if self.cut { "…" } else { "" })?;
        }
        Ok(())
    }
}

/// At most `limit` bytes of the begin of `text`, not inside a character.
fn truncated(text: &[u8], limit: usize) -> &[u8] {
    let Some(head) = text.get(..limit) else { return text };
    // A character has at most three continuation bytes; what has more is no text and may be cut anywhere.
    let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let end = (limit.saturating_sub(3)..=limit).rev().find(is_start).unwrap_or(limit);
    head.get(..end).unwrap_or(head)
}

/// Counts of everything that was set aside, and the last lines of it.
///
/// Bounded by its [`DiagnosticLimits`]: 64 KiB of lines with the default ones.
///
/// ```
/// use offspring_transport::{DiagnosticLimits, Diagnostics, Junk};
///
/// let mut diagnostics = Diagnostics::new(DiagnosticLimits { lines: 1, line_bytes: 5 });
/// diagnostics.note(4, Junk::UnknownId, b"{}");
/// diagnostics.note(9, Junk::UnknownId, b"{\"id\": 7}");
/// assert_eq!(diagnostics.counts().unknown_id, 2);
/// assert_eq!(
///     diagnostics.to_string(),
///     "2 lines set aside; line 9: the line answers a request that nobody waits for: \"{\\\"id\\\"\"…"
/// );
/// ```
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    limits: DiagnosticLimits,
    counts: JunkCounts,
    blank: u64,
    unversioned: u64,
    last: VecDeque<KeptLine>,
}

impl Diagnostics {
    /// Nothing yet.
    #[must_use]
    pub fn new(limits: DiagnosticLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts and keeps a line. `text` is what there is of it, of any length.
    pub fn note(&mut self, line: u64, why: Junk, text: &[u8]) {
        self.keep(KeptLine::new(line, why, text, self.limits.line_bytes));
    }

    pub(crate) fn keep(&mut self, kept: KeptLine) {
        let counts = &mut self.counts;
        let count = match &kept.why {
            Junk::NotRpc(NotRpc::NotUtf8 { .. }) => &mut counts.not_utf8,
            Junk::NotRpc(NotRpc::NotJson { .. }) => &mut counts.not_json,
            Junk::NotRpc(_) => &mut counts.not_rpc,
            Junk::TooLarge { .. } => &mut counts.too_large,
            Junk::Unterminated { .. } => &mut counts.unterminated,
            Junk::UnknownId => &mut counts.unknown_id,
            Junk::Unversioned => &mut counts.unversioned,
        };
        *count += 1;
        self.last.push_back(kept);
        if self.last.len() > self.limits.lines {
            self.last.pop_front();
        }
    }

    pub(crate) fn note_blank(&mut self) {
        self.blank += 1;
    }

    pub(crate) fn note_unversioned(&mut self) {
        self.unversioned += 1;
    }

    /// How much was set aside, by reason.
    #[must_use]
    pub fn counts(&self) -> JunkCounts {
        self.counts
    }

    /// How many blank lines were passed over. They are no junk.
    #[must_use]
    pub fn blank_lines(&self) -> u64 {
        self.blank
    }

    /// How many messages were taken although they did not say `"jsonrpc": "2.0"`.
    #[must_use]
    pub fn tolerated_unversioned(&self) -> u64 {
        self.unversioned
    }

    /// The last lines set aside, oldest first.
    #[must_use]
    pub fn last_lines(&self) -> impl ExactSizeIterator<Item = &KeptLine> + DoubleEndedIterator {
        self.last.iter()
    }

    /// What it keeps at most.
    #[must_use]
    pub fn limits(&self) -> DiagnosticLimits {
        self.limits
    }
}

/// One line: how many, and the last of them. For the text of an error.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.counts.total() {
            0 => return f.write_str("no line set aside"),
            1 => f.write_str("1 line set aside")?,
            total => write!(f, "{total} lines set aside")?,
        }
        self.last.back().map_or(Ok(()), |line| write!(f, "; {line}"))
    }
}

/// [`Diagnostics`] that a reading task fills while others look at them, for a timeout's error say.
#[derive(Debug, Clone, Default)]
pub struct SharedDiagnostics(Arc<Mutex<Diagnostics>>);

impl SharedDiagnostics {
    /// Nothing yet.
    #[must_use]
    pub fn new(limits: DiagnosticLimits) -> Self {
        Self(Arc::new(Mutex::new(Diagnostics::new(limits))))
    }

    /// Counts and keeps a line, as [`Diagnostics::note`].
    pub fn note(&self, line: u64, why: Junk, text: &[u8]) {
        self.lock().note(line, why, text);
    }

    /// Counts a line of white space alone, which is no junk.
    pub fn note_blank(&self) {
        self.lock().note_blank();
    }

    /// How things stand.
    #[must_use]
    pub fn snapshot(&self) -> Diagnostics {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Diagnostics> {
        // Counters and a list: whoever panicked while holding it left nothing half-done that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
