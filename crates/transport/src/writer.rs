//! Whole frames to a stream.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::decoder::DEFAULT_FRAME_LIMIT_BYTES;

/// [`FrameWriter::feed`] writes out once this much is waiting.
const HIGH_WATER_BYTES: usize = 64 * 1024;

/// Why a frame was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The frame would be read as two, or lose a byte. Nothing was written.
    #[error("refused to write a frame with a line end at byte {at}")]
    LineEnd {
        /// Where the line feed, or the carriage return at the very end, stands.
        at: usize,
    },
    /// The frame is over the limit. Nothing was written.
    #[error("refused to write a frame of {bytes} bytes; the limit is {limit_bytes}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit of this writer.
        limit_bytes: usize,
    },
    /// The stream failed; part of a frame may have got out. Every later call gives [`Self::Broken`].
    #[error("failed to write to the peer: {0}")]
    Io(#[from] io::Error),
    /// The stream failed before.
    #[error("failed to write to the peer: the stream broke earlier")]
    Broken,
}

/// Writes frames, each whole and followed by a line feed, to any byte stream.
///
/// It owns the stream, and every call borrows it mutably: frames of two callers cannot mix. Callers that
/// share it put it behind an async mutex or one task with a bounded channel. A future that is dropped
/// half-way leaves the rest of its frame queued, and the next call writes that first; so no frame is ever
/// cut. A caller can thus put a timeout around any call, and go on or close.
///
/// At most 64 KiB and one frame are queued.
#[derive(Debug)]
pub struct FrameWriter<W> {
    sink: W,
    queue: Vec<u8>,
    /// How much of `queue` has been written.
    written: usize,
    limit_bytes: usize,
    broken: bool,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes frames of at most [`DEFAULT_FRAME_LIMIT_BYTES`].
    #[must_use]
    pub fn new(sink: W) -> Self {
        Self::with_limit(sink, DEFAULT_FRAME_LIMIT_BYTES)
    }

    /// Writes frames of at most `limit_bytes`, line feed not counted; longer ones are refused.
    #[must_use]
    pub fn with_limit(sink: W, limit_bytes: usize) -> Self {
        Self { sink, queue: Vec::new(), written: 0, limit_bytes, broken: false }
    }

    /// Writes a frame and flushes the stream: when it returns, the peer can read it.
    ///
    /// # Errors
    /// [`WriteError`]; a refused frame harms no other.
    ///
    /// ```
    /// use offspring_transport::{FrameWriter, WriteError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), WriteError> {
    /// let mut writer = FrameWriter::new(Vec::new());
    /// writer.send(b"{}").await?;
    /// assert!(matches!(writer.send(b"{\n}").await, Err(WriteError::LineEnd { at: 1 })));
    /// writer.send(b"[]").await?;
    /// assert_eq!(writer.get_ref(), b"{}\n[]\n");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), WriteError> {
        self.feed(frame).await?;
        self.flush().await
    }

    /// Queues a frame, for a burst that ends with [`flush`](Self::flush). Writes out what is queued when
    /// that is 64 KiB or more. Dropped before it returns, it has not queued the frame.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn feed(&mut self, frame: &[u8]) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        if frame.len() > self.limit_bytes {
            return Err(WriteError::TooLarge { bytes: frame.len(), limit_bytes: self.limit_bytes });
        }
        // W1: the reader takes a carriage return before the line feed for part of the line end.
        let last_cr = frame.len().checked_sub(1).filter(|&last| frame[last] == b'\r');
        if let Some(at) = memchr::memchr(b'\n', frame).or(last_cr) {
            return Err(WriteError::LineEnd { at });
        }
        if self.queued_bytes() >= HIGH_WATER_BYTES {
            self.write_queue().await?;
        }
        self.queue.reserve(frame.len() + 1);
        self.queue.extend_from_slice(frame);
        self.queue.push(b'\n');
        Ok(())
    }

    /// Writes out what is queued and flushes the stream.
    ///
    /// # Errors
    /// [`WriteError::Io`] and [`WriteError::Broken`].
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        self.write_queue().await?;
        let flushed = self.sink.flush().await;
        self.note_failure(flushed)
    }

    /// Writes out what is queued and closes the stream's sending side: the peer reads its end.
    ///
    /// # Errors
    /// [`WriteError::Io`] and [`WriteError::Broken`].
    pub async fn shutdown(&mut self) -> Result<(), WriteError> {
        self.flush().await?;
        let closed = self.sink.shutdown().await;
        self.note_failure(closed)
    }

    /// How many bytes wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queue.len() - self.written
    }

    /// The stream.
    #[must_use]
    pub fn get_ref(&self) -> &W {
        &self.sink
    }

    async fn write_queue(&mut self) -> Result<(), WriteError> {
        while self.written < self.queue.len() {
            // A write that is dropped has written nothing; what it wrote is noted before the next await.
            match self.sink.write(&self.queue[self.written..]).await {
                Ok(0) => return self.note_failure(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.note_failure(Err(error)),
            }
        }
        self.written = 0;
        if self.queue.capacity() > 2 * HIGH_WATER_BYTES {
            self.queue = Vec::new();
        } else {
            self.queue.clear();
        }
        Ok(())
    }

    fn note_failure(&mut self, outcome: io::Result<()>) -> Result<(), WriteError> {
        self.broken |= outcome.is_err();
        Ok(outcome?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_frame_is_queued_once_and_its_memory_given_back_a_usual_one_is_kept() {
        let kept = 2 * HIGH_WATER_BYTES;
        for (queued, after) in [(1000, 1000), (kept, kept), (kept + 1, 0)] {
            let mut writer = FrameWriter::new(tokio::io::sink());
            writer.feed(&vec![b'x'; queued - 1]).await.unwrap();
            assert_eq!((writer.queued_bytes(), writer.queue.capacity()), (queued, queued));
            writer.flush().await.unwrap();
            assert_eq!((writer.queued_bytes(), writer.queue.capacity()), (0, after));
        }
    }
}
