//! stderr is always read, and only its end is kept (W4).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::watch;

/// The longest last line that is shown, in bytes.
const LINE_BYTES: usize = 512;

/// The end of what a program wrote to stderr (W4).
///
/// Untrusted bytes of a program: whoever shows them on a terminal removes control sequences first (W11).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StderrTail {
    bytes: Vec<u8>,
    total_bytes: u64,
}

impl StderrTail {
    /// The kept bytes: the last [`stderr_tail_bytes`](crate::ProcessSpec::stderr_tail_bytes) at most.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes the program wrote in all.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether the beginning was dropped.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }

    /// The kept bytes as text; what is no UTF-8, a character cut at the start too, becomes U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The last line that is not blank, finished or not, cut to its last 512 bytes; empty if there is none.
    #[must_use]
    pub fn last_line(&self) -> String {
        last_line(&self.bytes)
    }
}

impl fmt::Debug for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may be 64 KiB and may quote a secret (W10).
        let (kept, total) = (self.bytes.len(), self.total_bytes);
        write!(f, "StderrTail({kept} of {total} bytes)")
    }
}

fn last_line(bytes: &[u8]) -> String {
    let line = bytes
        .rsplit(|&byte| byte == b'\n' || byte == b'\r')
        .find(|line| !line.trim_ascii().is_empty())
        .unwrap_or_default()
        .trim_ascii();
    String::from_utf8_lossy(&line[line.len().saturating_sub(LINE_BYTES)..]).into_owned()
}

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    total_bytes: u64,
}

/// Collects the tail; shared by the task that reads and those who ask.
#[derive(Debug, Clone)]
pub(crate) struct StderrCollector {
    limit: usize,
    kept: Arc<Mutex<Kept>>,
    total: watch::Sender<u64>,
}

impl StderrCollector {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, kept: Arc::default(), total: watch::Sender::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, chunk: &[u8]) {
        let total = {
            let mut kept = self.kept();
            kept.total_bytes += chunk.len() as u64;
            let chunk = &chunk[chunk.len().saturating_sub(self.limit)..];
            let excess = (kept.bytes.len() + chunk.len()).saturating_sub(self.limit);
            kept.bytes.drain(..excess);
            kept.bytes.extend(chunk);
            kept.total_bytes
        };
        self.total.send_replace(total);
    }

    pub(crate) fn tail(&self) -> StderrTail {
        let mut kept = self.kept();
        let total_bytes = kept.total_bytes;
        StderrTail { bytes: kept.bytes.make_contiguous().to_vec(), total_bytes }
    }

    /// The last line as of now.
    pub(crate) fn last_line(&self) -> String {
        last_line(&end_of(&self.kept().bytes))
    }

    /// How many bytes were written: a watch holds one value, so a slow reader costs nothing.
    pub(crate) fn watch_total(&self) -> watch::Receiver<u64> {
        self.total.subscribe()
    }

    /// Reads to the end. W4: no matter whether anybody asks for it.
    pub(crate) async fn drain(self, mut stderr: ChildStderr) {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            self.push(&chunk[..count]);
        }
    }
}

/// Enough of the end to find the last line in, without moving a whole ring buffer.
fn end_of(bytes: &VecDeque<u8>) -> Vec<u8> {
    bytes.range(bytes.len().saturating_sub(4 * LINE_BYTES)..).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w4_the_tail_keeps_the_end_and_counts_the_whole() {
        let collector = StderrCollector::new(10);
        for chunk in ["first\n", "second\n", "a line that is longer than the limit", "\n\n"] {
            collector.push(chunk.as_bytes());
        }
        let tail = collector.tail();
        assert_eq!(tail.bytes(), b"he limit\n\n");
        assert_eq!(tail.total_bytes(), 6 + 7 + 36 + 2);
        assert!(tail.is_truncated());
        assert_eq!(tail.last_line(), "he limit");
    }

    #[test]
    fn w4_the_last_line_as_of_now_is_one_that_is_not_blank_and_stays_short() {
        let collector = StderrCollector::new(64 * 1024);
        let mut total = collector.watch_total();
        collector.push(b"before\n");
        assert_eq!(collector.last_line(), "before");
        collector.push(b"half");
        assert_eq!(collector.last_line(), "half");
        collector.push(b" a line\n  \r\n");
        assert_eq!(collector.last_line(), "half a line");
        assert_eq!(*total.borrow_and_update(), 23);
        // Also of what is the same or blank somebody who watches is told.
        collector.push(b"\n");
        assert!(total.has_changed().unwrap());
        collector.push("\n".repeat(2 * LINE_BYTES).as_bytes());
        assert_eq!(collector.last_line(), "half a line");
        collector.push(&vec![b'x'; 100_000]);
        assert_eq!(collector.last_line().len(), LINE_BYTES);
        assert_eq!(collector.tail().bytes().len(), 64 * 1024);
    }

    #[test]
    fn w4_a_tail_of_zero_bytes_is_allowed() {
        let collector = StderrCollector::new(0);
        collector.push(b"abc");
        assert_eq!(collector.tail().bytes(), b"");
        assert_eq!(collector.tail().total_bytes(), 3);
    }
}
