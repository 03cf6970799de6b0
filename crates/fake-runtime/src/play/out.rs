//! What waits to be written.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

/// A fill is written in pieces of this size.
const FILL_BYTES: usize = 64 * 1024;

/// Each part is one write, followed by a flush.
#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    OfFile { file: Arc<Vec<u8>>, from: usize, to: usize },
    Fill { byte: u8, bytes: u64 },
    Pause(Duration),
}

/// The queue of a play, cut where the play is to die.
#[derive(Debug, Default)]
pub(super) struct Out {
    parts: VecDeque<Part>,
    /// How much of the first part is written.
    written: u64,
    unflushed: bool,
    pause_until: Option<Instant>,
    frames_left: Option<u64>,
    bytes_left: Option<u64>,
    is_cut: bool,
    total_bytes: u64,
}

impl Out {
    pub(super) fn new(frames: Option<u64>, bytes: Option<u64>) -> Self {
        let is_cut = frames == Some(0) || bytes == Some(0);
        Self { frames_left: frames, bytes_left: bytes, is_cut, ..Self::default() }
    }

    /// Whether everything that may be written is.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.unflushed && self.pause_until.is_none()
    }

    /// Whether the place where the play is to die was reached.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        let bytes = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::OfFile { .. } | Part::Fill { .. } | Part::Pause(_) => 0,
        };
        self.parts.iter().map(bytes).sum()
    }

    pub(super) fn push(&mut self, mut bytes: Vec<u8>) {
        let allowed = self.allow(&bytes);
        bytes.truncate(allowed);
        if !bytes.is_empty() {
            self.parts.push_back(Part::Bytes(bytes));
        }
    }

    pub(super) fn push_file(&mut self, file: &Arc<Vec<u8>>, from: usize, to: usize) {
        let allowed = self.allow(file.get(from..to).unwrap_or_default());
        if allowed > 0 {
            self.parts.push_back(Part::OfFile { file: Arc::clone(file), from, to: from + allowed });
        }
    }

    pub(super) fn push_fill(&mut self, byte: u8, bytes: u64) {
        if self.is_cut {
            return;
        }
        let allowed = self.bytes_left.map_or(bytes, |left| left.min(bytes));
        if let Some(left) = &mut self.bytes_left {
            *left -= allowed;
            self.is_cut = *left == 0;
        }
        if allowed > 0 {
            self.parts.push_back(Part::Fill { byte, bytes: allowed });
        }
    }

    pub(super) fn push_pause(&mut self, pause: Duration) {
        if !pause.is_zero() && !self.is_cut {
            self.parts.push_back(Part::Pause(pause));
        }
    }

    /// Forgets what is not begun, because nobody can read it any more.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.unflushed = false;
        self.pause_until = None;
        self.written = 0;
    }

    /// How many of these bytes may be written, and notes when that is the last.
    fn allow(&mut self, bytes: &[u8]) -> usize {
        if self.is_cut {
            return 0;
        }
        let mut allowed = bytes.len();
        if let Some(left) = &mut self.frames_left {
            let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
            match ends.nth(usize::try_from(*left).unwrap_or(usize::MAX).saturating_sub(1)) {
                Some(end) => {
                    allowed = end;
                    *left = 0;
                }
                None => *left -= bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
            }
        }
        if let Some(left) = &mut self.bytes_left {
            allowed = allowed.min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= allowed as u64;
        }
        self.is_cut = self.frames_left == Some(0) || self.bytes_left == Some(0);
        allowed
    }

    /// Does one thing: a wait, a write or a flush. May be dropped at any time.
    pub(super) async fn advance<W: AsyncWrite + Unpin>(&mut self, sink: &mut W) -> io::Result<()> {
        if let Some(until) = self.pause_until {
            sleep_until(until).await;
            self.pause_until = None;
            return Ok(());
        }
        if self.unflushed {
            sink.flush().await?;
            self.unflushed = false;
            return Ok(());
        }
        let at = usize::try_from(self.written).unwrap_or(usize::MAX);
        let (count, end) = match self.parts.front() {
            None => return Ok(()),
            Some(Part::Pause(pause)) => {
                self.pause_until = Some(Instant::now() + *pause);
                self.parts.pop_front();
                return Ok(());
            }
            Some(Part::Bytes(bytes)) => {
                (sink.write(bytes.get(at..).unwrap_or_default()).await?, bytes.len() as u64)
            }
            Some(Part::OfFile { file, from, to }) => {
                let rest = file.get(from.saturating_add(at)..*to).unwrap_or_default();
                (sink.write(rest).await?, (to - from) as u64)
            }
            Some(Part::Fill { byte, bytes }) => {
                let piece = usize::try_from(bytes - self.written).unwrap_or(usize::MAX).min(FILL_BYTES);
                (sink.write(&vec![*byte; piece]).await?, *bytes)
            }
        };
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += count as u64;
        self.total_bytes += count as u64;
        if self.written >= end {
            self.parts.pop_front();
            self.written = 0;
            self.unflushed = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(out: &mut Out) -> Vec<u8> {
        let mut sink = Vec::new();
        while !out.is_empty() {
            out.advance(&mut sink).await.unwrap();
        }
        sink
    }

    #[tokio::test]
    async fn what_is_pushed_is_written_in_order() {
        let mut out = Out::new(None, None);
        out.push(b"a\n".to_vec());
        out.push_fill(b'x', 70_000);
        out.push_file(&Arc::new(b"0123456".to_vec()), 2, 5);
        let all = written(&mut out).await;
        assert_eq!((all.len(), out.total_bytes()), (70_005, 70_005));
        assert!(all.starts_with(b"a\nxx") && all.ends_with(b"xx234"));
    }

    #[tokio::test]
    async fn a_cut_lets_just_so_many_frames_or_bytes_through() {
        for (frames, bytes, expected) in [
            (Some(0), None, &b""[..]),
            (Some(1), None, b"one\n"),
            (Some(2), None, b"one\ntwo\n"),
            (Some(3), None, b"one\ntwo\nthree\n"),
            (None, Some(5), b"one\nt"),
            (None, Some(8), b"one\ntwo\n"),
        ] {
            let mut out = Out::new(frames, bytes);
            out.push(b"one\ntwo\n".to_vec());
            out.push(b"three\n".to_vec());
            out.push_fill(b'x', 0);
            assert_eq!(written(&mut out).await, expected, "{frames:?} {bytes:?}");
            assert!(out.is_cut());
        }
        let mut out = Out::new(Some(4), Some(100));
        out.push(b"one\ntwo\n".to_vec());
        assert_eq!(written(&mut out).await, b"one\ntwo\n");
        assert!(!out.is_cut());
    }
}
