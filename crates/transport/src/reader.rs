//! Frames from a stream.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    decoder::{DEFAULT_FRAME_LIMIT_BYTES, FrameDecoder, FrameEvent},
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
            let from = self.start;
            let (used, step) = self.decoder.step(&self.buffer[from..self.end]);
            self.start += used;
            if let Some(step) = step {
                break (from, step);
            }
            if self.ended {
                return Ok(self.decoder.finish());
            }
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
        };
        Ok(Some(self.decoder.event(step, &self.buffer[from..])))
    }
}
