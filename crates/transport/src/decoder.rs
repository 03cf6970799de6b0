//! Bytes to frames, without I/O (rules W1 and W2).

#[cfg(test)]
mod tests;

/// The limit of a frame unless another is asked for: 16 MiB (rule W2).
pub const DEFAULT_FRAME_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// A buffer that a large frame left behind is given back when it is larger than this.
const KEPT_CAPACITY_BYTES: usize = 64 * 1024;

/// What a stretch of bytes turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A whole line, without its line feed and without one carriage return before it (rule W1). It may
    /// be empty; what to make of a blank line is for the reader of frames to say.
    Frame(&'a [u8]),
    /// A line over the limit was skipped up to and including its line feed (rule W2).
    FrameTooLarge {
        /// Its size, counted like that of a frame.
        bytes: u64,
    },
    /// The stream ended inside a line. A peer that died while writing leaves this; it is no frame, even
    /// where it looks whole.
    Unterminated {
        /// Its size so far.
        bytes: u64,
        /// The bytes themselves; empty when they are over the limit.
        head: &'a [u8],
    },
}

/// Cuts a stream of bytes into frames, at 0x0A and nowhere else (rule W1).
///
/// Any split of the stream into pieces gives the same frames. A frame that lies whole in one piece is
/// given out where it lies; only one that spans pieces is copied, into a buffer that never grows beyond
/// the limit, however long the line (rule W2).
///
/// ```
/// use offspring_transport::{FrameDecoder, FrameEvent};
///
/// let mut decoder = FrameDecoder::with_limit(5);
/// let mut frames = Vec::new();
/// for mut piece in [&b"one\r\ntw"[..], b"o\ntoo long\nth"] {
///     while let Some(event) = decoder.decode(&mut piece) {
///         match event {
///             FrameEvent::Frame(frame) => frames.push(String::from_utf8_lossy(frame).into_owned()),
///             other => frames.push(format!("{other:?}")),
///         }
///     }
/// }
/// assert_eq!(frames, ["one", "two", "FrameTooLarge { bytes: 8 }"]);
/// assert_eq!(decoder.finish(), Some(FrameEvent::Unterminated { bytes: 2, head: b"th" }));
/// ```
#[derive(Debug)]
pub struct FrameDecoder {
    limit_bytes: usize,
    /// The begin of a line that spans pieces, without `held_cr`.
    partial: Vec<u8>,
    /// The line so far ends in a carriage return; whether it is content the next byte tells.
    held_cr: bool,
    /// The line is over the limit: its bytes so far, without `held_cr`.
    skipped: Option<u64>,
    /// `partial` was given out and is to be cleared.
    delivered: bool,
}

/// Where the frame of a step lies. Positions, so that a caller can loop without holding a borrow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// In the first `len` bytes of the input of the step.
    InInput { len: usize },
    /// In the decoder's buffer.
    Buffered,
    /// Nowhere any more.
    TooLarge { bytes: u64 },
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameDecoder {
    /// A decoder with the default limit.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_FRAME_LIMIT_BYTES)
    }

    /// A decoder whose frames have at most `limit_bytes` bytes, line end not counted.
    ///
    /// Longer lines become [`FrameEvent::FrameTooLarge`]. The limit bounds the memory of the decoder.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self { limit_bytes, partial: Vec::new(), held_cr: false, skipped: None, delivered: false }
    }

    /// Takes bytes off the front of `input` up to the end of a line and says what they are; `None` when
    /// `input` is used up and the line is still open. Call it until it gives `None`.
    pub fn decode<'d, 'i: 'd>(&'d mut self, input: &mut &'i [u8]) -> Option<FrameEvent<'d>> {
        let given = *input;
        let (used, step) = self.step(given);
        *input = given.get(used..).unwrap_or_default();
        step.map(|step| self.event(step, given))
    }

    /// Says that the stream has ended: what is left of a line without an end, if anything. Afterwards the
    /// decoder is as new.
    pub fn finish(&mut self) -> Option<FrameEvent<'_>> {
        self.clear_delivered();
        if std::mem::take(&mut self.held_cr) {
            self.append(b"\r");
        }
        let bytes = match self.skipped.take() {
            Some(bytes) => bytes,
            None if self.partial.is_empty() => return None,
            None => self.partial.len() as u64,
        };
        self.delivered = true;
        Some(FrameEvent::Unterminated { bytes, head: &self.partial })
    }

    /// How many bytes its buffer can hold right now; never more than the limit.
    #[must_use]
    pub fn buffer_capacity(&self) -> usize {
        self.partial.capacity()
    }

    /// One step: how many bytes of `input` were used, and what ended with them.
    pub(crate) fn step(&mut self, input: &[u8]) -> (usize, Option<Step>) {
        self.clear_delivered();
        let Some(end) = memchr::memchr(b'\n', input) else {
            self.absorb(input);
            return (input.len(), None);
        };
        let line = &input[..end];
        if self.partial.is_empty() && !self.held_cr && self.skipped.is_none() {
            let len = without_cr(line).len();
            let step = if len > self.limit_bytes {
                Step::TooLarge { bytes: len as u64 }
            } else {
                Step::InInput { len }
            };
            return (end + 1, Some(step));
        }
        self.absorb(line);
        self.held_cr = false; // W1: the line feed follows it
        let step = match self.skipped.take() {
            Some(bytes) => Step::TooLarge { bytes },
            None => {
                self.delivered = true;
                Step::Buffered
            }
        };
        (end + 1, Some(step))
    }

    /// What a step found, where it lies. `input` is what the step was given.
    pub(crate) fn event<'a>(&'a self, step: Step, input: &'a [u8]) -> FrameEvent<'a> {
        match step {
            Step::InInput { len } => FrameEvent::Frame(input.get(..len).unwrap_or_default()),
            Step::Buffered => FrameEvent::Frame(&self.partial),
            Step::TooLarge { bytes } => FrameEvent::FrameTooLarge { bytes },
        }
    }

    fn clear_delivered(&mut self) {
        if std::mem::take(&mut self.delivered) {
            if self.partial.capacity() > KEPT_CAPACITY_BYTES {
                self.partial = Vec::new();
            } else {
                self.partial.clear();
            }
        }
    }

    /// Takes bytes of the open line, none of them a line feed.
    fn absorb(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.held_cr) {
            self.append(b"\r");
        }
        let content = without_cr(bytes);
        self.held_cr = content.len() < bytes.len();
        self.append(content);
    }

    /// Takes content of the open line: buffered up to the limit, only counted beyond it (rule W2).
    fn append(&mut self, content: &[u8]) {
        if let Some(skipped) = &mut self.skipped {
            *skipped += content.len() as u64;
            return;
        }
        let needed = self.partial.len() + content.len();
        if needed > self.limit_bytes {
            self.skipped = Some(needed as u64);
            self.partial = Vec::new();
            return;
        }
        if needed > self.partial.capacity() {
            let capacity = needed.max((2 * self.partial.capacity()).min(self.limit_bytes));
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(content);
    }
}

/// The line without the one carriage return that may stand before its end.
fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
