//! Frames from a stream.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    decoder::{DEFAULT_FRAME_LIMIT_BYTES, FrameDecoder, FrameEvent, Step},
    diagnostics::KeptLine,
};

/// How much is read at once.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The stream failed. What was read of an open line is still reported by the next call; then it ends.
    #[error("failed to read from the peer: {0}")]
    Io(#[from] io::Error),
    /// Strict reading was asked for and the peer wrote something else than a message. The next call goes
    /// on with the next line.
    #[error("the peer broke the protocol on {0}")]
    NotStrict(Box<KeptLine>),
}

/// Reads frames from any byte stream.
///
/// It owns a read buffer of 64 KiB and, while a frame spans reads, the decoder's buffer up to the limit.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    decoder: FrameDecoder,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames of at most [`DEFAULT_FRAME_LIMIT_BYTES`].
    #[must_use]
    pub fn new(source: R) -> Self {
        Self::with_limit(source, DEFAULT_FRAME_LIMIT_BYTES)
    }

    /// Reads frames of at most `limit_bytes`; longer ones are skipped and reported (rule W2).
    #[must_use]
    pub fn with_limit(source: R, limit_bytes: usize) -> Self {
        Self {
            source,
            decoder: FrameDecoder::with_limit(limit_bytes),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            ended: false,
        }
    }

    /// What it reads from. Whoever reads past it takes bytes out of a frame.
    #[must_use]
    pub const fn get_ref(&self) -> &R {
        &self.source
    }

    /// The next line, or `None` after the end of the stream.
    ///
    /// Waits as long as the peer is silent; bound it from outside if silence means something. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// [`ReadError::Io`] when the stream fails.
    ///
    /// ```
    /// use offspring_transport::{FrameEvent, FrameReader};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut reader = FrameReader::new(&b"{}\r\n{"[..]);
    /// assert_eq!(reader.next().await?, Some(FrameEvent::Frame(b"{}")));
    /// assert_eq!(reader.next().await?, Some(FrameEvent::Unterminated { bytes: 1, head: b"{" }));
    /// assert_eq!(reader.next().await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Result<Option<FrameEvent<'_>>, ReadError> {
        let (from, step) = loop {
            if let Some(found) = self.step() {
                break found;
            }
            if self.ended {
                return Ok(self.decoder.finish());
            }
            self.fill().await?;
        };
        Ok(Some(self.decoder.event(step, &self.buffer[from..])))
    }

    /// The next line of what has been read already, without waiting: `None` when more bytes are needed, or
    /// when the stream has ended.
    ///
    /// For a reader that has something to do before it waits: alternate with [`fill`](Self::fill), and give
    /// what an ended stream leaves with [`next`](Self::next).
    pub fn next_buffered(&mut self) -> Option<FrameEvent<'_>> {
        let (from, step) = self.step()?;
        Some(self.decoder.event(step, &self.buffer[from..]))
    }

    /// Reads more bytes, once everything read so far was taken by [`next_buffered`](Self::next_buffered).
    /// `false` at the end of the stream.
    ///
    /// Waits as long as the peer is silent. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ReadError::Io`] when the stream fails.
    pub async fn fill(&mut self) -> Result<bool, ReadError> {
        while !self.ended && self.start == self.end {
            // Everything read so far is in the decoder, so this future may be dropped here.
            match self.source.read(&mut self.buffer).await {
                Ok(read) => {
                    self.ended = read == 0;
                    (self.start, self.end) = (0, read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error.into());
                }
            }
        }
        Ok(!self.ended)
    }

    /// One step of the decoder over what is buffered, and where the buffer stood before it.
    fn step(&mut self) -> Option<(usize, Step)> {
        let from = self.start;
        let (used, step) = self.decoder.step(&self.buffer[from..self.end]);
        self.start += used;
        step.map(|step| (from, step))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::ReadBuf;

    use super::*;

    /// Says how much it is asked for, and gives nothing.
    struct Asked(usize);

    impl AsyncRead for Asked {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.0 = into.remaining();
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn as_much_is_read_at_once_as_a_pipe_holds() {
        let mut reader = FrameReader::new(Asked(0));
        assert_eq!(reader.next().await.unwrap(), None);
        assert_eq!(reader.get_ref().0, 65_536);
    }

    #[tokio::test]
    async fn w1_what_was_read_is_given_before_anything_is_waited_for() {
        let mut reader = FrameReader::new(&b"a\nb\r\nc"[..]);
        assert_eq!(reader.next_buffered(), None);
        assert!(reader.fill().await.unwrap());
        assert_eq!(reader.next_buffered(), Some(FrameEvent::Frame(b"a")));
        assert!(reader.fill().await.unwrap(), "there is something left of the first read");
        assert_eq!(reader.next_buffered(), Some(FrameEvent::Frame(b"b")));
        assert_eq!(reader.next_buffered(), None, "the third line has no end yet");
        assert!(!reader.fill().await.unwrap() && !reader.fill().await.unwrap());
        assert_eq!(reader.next_buffered(), None);
        assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Unterminated { bytes: 1, head: b"c" }));
        assert_eq!(reader.next().await.unwrap(), None);
    }
}
