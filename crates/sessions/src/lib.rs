//! Who remembers: the session manager, the ordered log of a tree, and the stores.
//!
//! A [`SessionManager`] has three doors to a new session: [`create_root`](SessionManager::create_root),
//! [`create_child`](RunContext::create_child) for children we decide on, and
//! [`adopt_child`](SessionManager::adopt_child) for children a peer decided on. Each stores, then announces
//! (rule L1): the row, its pending run and its spawn are one commit, and only a token of that commit can
//! start a run.
//!
//! ```text
//! NewRoot  ──create_root──▶ RootSession ────┐           ┌─▶ RunContext  emits events, makes children
//!                                           ├──start──▶ ┤
//! NewChild ──create_child─▶ AnnouncedChild ─┘           └─▶ RunEnd      ends the run, once
//! ```
//!
//! Each tree has one writer task. It numbers the events of the whole tree 1, 2, 3 … and announces nothing
//! before its commit (rule L16). Readers subscribe to the [`Bus`] of this process, or
//! [`follow`](SessionManager::follow) the log from any number, in any process that shares the store.
//!
//! ```
//! use std::sync::Arc;
//! use offspring_protocol::{AgentType, Event, NodeName, event::TextDelta};
//! use offspring_sessions::{ManagerOptions, MemoryStore, NewChild, NewRoot, SessionManager};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
//!
//! let root = NewRoot::new(NodeName::new("coordinator")?, AgentType::Native);
//! let root = manager.create_root(root).await?.start("survey this directory").await?;
//!
//! let child = NewChild::new(NodeName::new("historian")?, AgentType::Command);
//! let child = root.context.create_child(child).await?.start("read the history").await?;
//! child.context.emit(Event::TextDelta(TextDelta { text: "30 commits".into() })).await?;
//! child.end.finish(Ok("30 commits".into())).await?;
//!
//! // A root ends when its whole tree is at rest (rule L19).
//! root.end.tree_at_rest().await;
//! let root_id = root.context.session().id.clone();
//! root.end.finish(Ok("done".into())).await?;
//!
//! // The whole tree is there afterwards, and so is every word of it.
//! assert_eq!(manager.subtree(&root_id).await?.len(), 2);
//! let mut follow = manager.follow(&root_id, 1);
//! let mut numbers = Vec::new();
//! while let Some(envelope) = follow.next().await? {
//!     numbers.push(envelope.seq);
//! }
//! assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

pub mod bus;
mod cancel;
mod children;
mod commands;
#[cfg(feature = "contract")]
pub mod contract;
mod ensure;
pub mod error;
mod follow;
pub mod ids;
mod import;
mod live;
mod load;
pub mod manager;
mod project;
mod prompts;
mod query;
pub mod retention;
mod roots;
mod rows;
pub mod run;
pub mod silence;
pub mod store;
mod tail;
mod writer;

pub use bus::{Bus, Lagged, Notice, QueueLimits, RoutingCost, Scope, Subscription};
pub use cancel::{CancelScope, Cancelled};
pub use children::Adopted;
pub use commands::CancelAnswer;
pub use ensure::{Binding, EnsuredSession, How};
pub use error::{Refused, RunError};
pub use follow::Follow;
pub use import::{Import, Imported, TreeCopy};
pub use load::{CHILD_INTERRUPTED, ChildInterrupted, Recovered};
pub use manager::{ManagerOptions, SessionManager, SubtreeUsage};
pub use retention::{OldTree, Retained, Retention};
pub use run::{
    AnnouncedChild, Answer, Emitter, MAX_REPEATED_BYTES, NewChild, NewRoot, REPORTED, RootSession,
    RunContext, RunEnd, StartedRun,
};
pub use silence::{Silence, Waiting};
pub use store::{MemoryStore, SessionRecord, SessionStore, StoreError};
pub use tail::Tail;
