//! Who remembers: the session manager, the ordered log of a tree, and the stores.
//!
//! A [`SessionManager`] is the only writer of a [`SessionStore`]. A child is stored and announced in one commit
//! (rule L1), and the tokens of a run make anything else impossible: [`AnnouncedChild`] → [`RunContext`] and
//! [`RunEnd`], each by value. What was committed is heard on the [`Bus`] and read, by number and for as long as it
//! is stored, with [`SessionManager::follow`].
//!
//! ```
//! use std::sync::Arc;
//! use offspring_protocol::{AgentType, NodeName};
//! use offspring_sessions::{ManagerOptions, MemoryStore, NewChild, NewRoot, SessionManager, StartedRun};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
//! let root = manager.create_root(NewRoot::new(NodeName::new("boss")?, AgentType::Native)).await?;
//! let id = root.session().id.clone();
//! let StartedRun { context, end } = root.start("How many words?").await?;
//!
//! let child = context.create_child(NewChild::new(NodeName::new("count")?, AgentType::Native)).await?;
//! let work = child.start("one two three").await?;
//! work.end.finish(Ok("3".into())).await?;
//! end.finish(Ok("There are 3.".into())).await?;
//!
//! let children = manager.children(&id).await?;
//! assert_eq!((children.len(), children[0].data.depth), (1, 1));
//!
//! let mut log = manager.follow(&id, 1);
//! let mut kinds = Vec::new();
//! while let Some(envelope) = log.next().await? {
//!     kinds.push(envelope.event.kind().to_owned());
//! }
//! assert_eq!(kinds.first().map(String::as_str), Some("run_started"));
//! assert_eq!(kinds.iter().filter(|kind| *kind == "spawn_session_start").count(), 1);
//! # Ok(()) }
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
mod live;
mod load;
pub mod manager;
mod project;
mod query;
pub mod retention;
mod roots;
mod rows;
pub mod run;
pub mod store;
mod writer;

pub use bus::{Bus, Lagged, Notice, QueueLimits, RoutingCost, Scope, Subscription};
pub use cancel::{CancelScope, Cancelled};
pub use children::Adopted;
pub use commands::CancelAnswer;
pub use ensure::{Binding, EnsuredSession, How};
pub use error::{Refused, RunError};
pub use follow::Follow;
pub use load::{CHILD_INTERRUPTED, ChildInterrupted, Recovered};
pub use manager::{ManagerOptions, SessionManager, SubtreeUsage};
pub use retention::Retention;
pub use run::{
    AnnouncedChild, Answer, Emitter, NewChild, NewRoot, REPORTED, RootSession, RunContext, RunEnd, StartedRun,
};
pub use store::{MemoryStore, SessionRecord, SessionStore, StoreError};
