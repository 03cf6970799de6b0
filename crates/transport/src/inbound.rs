//! Messages from a stream, with the junk between them set aside.

use offspring_protocol::rpc::{Message, OwnedMessage};
use tokio::io::AsyncRead;

use crate::{
    decoder::{DEFAULT_FRAME_LIMIT_BYTES, FrameEvent},
    diagnostics::{Junk, KeptLine, SharedDiagnostics},
    reader::{FrameReader, ReadError},
};

/// A message as it came in.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// Which line of the stream it was, from 1, every line counted. Grows in wire order.
    pub line: u64,
    /// The size of its frame, for whoever bounds a queue by bytes.
    pub frame_bytes: usize,
    /// Whether it says `"jsonrpc": "2.0"`.
    pub strict: bool,
    /// What it says.
    pub message: OwnedMessage,
}

/// Reads messages; what is none is counted, kept and passed over (rule W3).
///
/// A line of white space alone is passed over and counted apart: several runtimes write them, none means
/// anything by it.
#[derive(Debug)]
pub struct MessageReader<R> {
    frames: FrameReader<R>,
    diagnostics: SharedDiagnostics,
    strict: bool,
    line: u64,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// Reads messages of at most [`DEFAULT_FRAME_LIMIT_BYTES`] into diagnostics of its own.
    #[must_use]
    pub fn new(source: R) -> Self {
        Self::with_limit(source, DEFAULT_FRAME_LIMIT_BYTES)
    }

    /// Reads messages of at most `limit_bytes`; longer ones are skipped and noted (rule W2).
    #[must_use]
    pub fn with_limit(source: R, limit_bytes: usize) -> Self {
        Self {
            frames: FrameReader::with_limit(source, limit_bytes),
            diagnostics: SharedDiagnostics::default(),
            strict: false,
            line: 0,
        }
    }

    /// Notes into these diagnostics instead, to share them or to set their limits.
    #[must_use]
    pub fn with_diagnostics(mut self, diagnostics: SharedDiagnostics) -> Self {
        self.diagnostics = diagnostics;
        self
    }

    /// Whether everything that is no strict message is an error (default: no). It is noted either way.
    /// For tests of a peer, and for finding out who writes to a stdout that is a protocol.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// What was set aside so far. Clones share it.
    #[must_use]
    pub fn diagnostics(&self) -> &SharedDiagnostics {
        &self.diagnostics
    }

    /// The next message, or `None` after the end of the stream.
    ///
    /// Waits as long as the peer is silent. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ReadError::Io`] when the stream fails; [`ReadError::NotStrict`], quoting the line, when strict
    /// reading was asked for.
    pub async fn next(&mut self) -> Result<Option<Inbound>, ReadError> {
        while let Some(event) = self.frames.next().await? {
            self.line += 1;
            let (why, text) = match event {
                FrameEvent::Frame(frame) if frame.trim_ascii().is_empty() => {
                    self.diagnostics.lock().note_blank();
                    continue;
                }
                FrameEvent::Frame(frame) => match Message::classify(frame) {
                    Ok(incoming) if incoming.strict || !self.strict => {
                        if !incoming.strict {
                            self.diagnostics.lock().note_unversioned();
                        }
                        return Ok(Some(Inbound {
                            line: self.line,
                            frame_bytes: frame.len(),
                            strict: incoming.strict,
                            message: incoming.message.into_owned(),
                        }));
                    }
                    Ok(_) => (Junk::Unversioned, frame),
                    Err(why) => (Junk::NotRpc(why), frame),
                },
                FrameEvent::FrameTooLarge { bytes } => (Junk::TooLarge { bytes }, &[][..]),
                FrameEvent::Unterminated { bytes, head } => (Junk::Unterminated { bytes }, head),
            };
            let mut diagnostics = self.diagnostics.lock();
            let kept = KeptLine::new(self.line, why, text, diagnostics.limits().line_bytes);
            if self.strict {
                diagnostics.keep(kept.clone());
                return Err(ReadError::NotStrict(Box::new(kept)));
            }
            diagnostics.keep(kept);
        }
        Ok(None)
    }
}
