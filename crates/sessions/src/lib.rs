//! Who remembers: the session manager, the ordered log of a tree, and the stores.
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
