//! Newline-delimited JSON-RPC frames over any byte stream.
//!
//! Bytes in, messages out, and back. One message is one line; a line ends at 0x0A and nowhere else (rule
//! W1). Nothing a peer writes ends the connection: an oversized line fails alone (rule W2), and what is no
//! message is counted and kept, bounded, for whoever has to find out (rule W3).
//!
//! | module | what it holds |
//! |---|---|
//! | [`decoder`] | [`FrameDecoder`]: bytes to frames, no I/O |
//! | [`reader`] | [`FrameReader`]: the decoder over an [`AsyncRead`](tokio::io::AsyncRead) |
//! | [`writer`] | [`FrameWriter`]: whole frames to an [`AsyncWrite`](tokio::io::AsyncWrite) |
//! | [`inbound`] | [`MessageReader`]: frames classified once, junk set aside |
//! | [`diagnostics`] | [`Diagnostics`]: how much junk there was, and the last of it |
//! | [`pending`] | [`Pending`]: who waits for which id (rule W5) |
//!
//! # What this crate must not know
//! - No domain type: no session, run, event or node; of the protocol crate it uses [`rpc`] alone.
//! - No method name, no handler, no routing: it does not even answer an unknown request (rule W6 is kept
//!   by who owns the handlers).
//! - No process, socket or file: it is given streams.
//! - No clock and no task of its own: it never times out and never spawns. A caller that wants a bound on a
//!   read or a write wraps the future; reads and writes are safe to drop.
//!
//! # Example
//! ```
//! use offspring_protocol::rpc::{self, Id, OwnedMessage};
//! use offspring_transport::{FrameWriter, MessageReader};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (ours, theirs) = tokio::io::duplex(1024);
//! let mut writer = FrameWriter::new(theirs);
//! writer.send(b"Welcome to the runtime!").await?;
//! writer.send(rpc::request(&Id::from(1), "ping", &())?.as_bytes()).await?;
//! drop(writer);
//!
//! let mut reader = MessageReader::new(ours);
//! let inbound = reader.next().await?.ok_or("no message")?;
//! assert!(matches!(inbound.message, OwnedMessage::Request { method, .. } if method == "ping"));
//! assert_eq!(inbound.line, 2);
//! assert!(reader.next().await?.is_none());
//!
//! let diagnostics = reader.diagnostics().snapshot();
//! assert_eq!(diagnostics.counts().not_json, 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`rpc`]: offspring_protocol::rpc
#![deny(missing_docs)]

pub mod decoder;
pub mod diagnostics;
pub mod inbound;
pub mod pending;
pub mod reader;
pub mod writer;

pub use decoder::{DEFAULT_FRAME_LIMIT_BYTES, FrameDecoder, FrameEvent};
pub use diagnostics::{DiagnosticLimits, Diagnostics, Junk, JunkCounts, KeptLine, SharedDiagnostics};
pub use inbound::{Inbound, MessageReader};
pub use pending::{InsertError, Pending, UnknownId};
pub use reader::{FrameReader, ReadError};
pub use writer::{FrameWriter, WriteError};
