//! The words of a session tree: ids, events, session data and wire types, without any I/O.
//!
//! Everything in this crate is data. It knows no clock, no randomness, no file and no socket, so that
//! a program which only wants to *read* what Offspring writes depends on serde, `serde_json` and
//! thiserror and nothing else.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | newtypes for every id, compared by bytes (rule T1) |
//! | [`event`] | what happens in a session: `{ kind, data }`, unknown kinds kept byte for byte |
//! | [`session`] | the stored row of a session, its runs and their states |
//! | [`envelope`] | an event with its place in a tree: `seq`, run, session, path, depth |
//! | [`usage`] | tokens and cost of provider messages |
//! | [`rpc`] | JSON-RPC 2.0 messages, classified once from borrowed bytes |
//! | [`control`] | the methods of a pool's private endpoint (`task/start` …) |
//! | [`dsh`] | the wire of DeepSeek Harness runtimes |
//!
//! ```
//! use offspring_protocol::{Event, RawEvent, event::TextDelta};
//!
//! let raw = RawEvent::from(&Event::TextDelta(TextDelta { text: "hello".into() }));
//! assert_eq!(raw.kind(), "text_delta");
//! assert!(matches!(raw.parse()?, Event::TextDelta(delta) if delta.text == "hello"));
//! # Ok::<(), offspring_protocol::EventError>(())
//! ```
#![deny(missing_docs)]

pub mod control;
pub mod dsh;
pub mod envelope;
pub mod event;
pub mod id;
pub mod rpc;
pub mod session;
mod texts;
pub mod usage;

pub use envelope::{Envelope, SessionInfo};
pub use event::{Event, EventError, RawEvent};
pub use id::{
    BadId, MessageId, NodeName, OwnerId, PeerId, PoolId, ProjectId, RunId, SessionId, TaskKey, ToolCallId,
};
pub use session::{
    AgentType, External, Origin, Outcome, RunRecord, RunState, SessionData, SessionLimits, SessionState,
    SourceType, TaskId, Timestamp,
};
pub use texts::{Text, TextKind, rewrite_texts};
pub use usage::Usage;
