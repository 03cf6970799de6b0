//! Who delegates: subagent, workers, parallel team and sequential team run over the session manager.
//!
//! A [`Node`] is an agent, a team or a team run. Four providers delegate to one, and all of them make
//! their children through the same door of the session manager: stored, then announced (rule L1).
//!
//! | provider | module | children of |
//! |---|---|---|
//! | subagent tool (`task`) | [`subagent`] | the calling session, also for a team (rule L6) |
//! | workers as tools (`ask_<worker>`) | [`workers`] | the calling session |
//! | parallel team, `a & b` | [`team`] | the session that runs the team |
//! | sequential team run, `a \| b` | [`team`] | the session that runs it |
//!
//! This crate knows the session manager and the [`Agent`] trait, and no concrete agent, store or server.
#![deny(missing_docs)]

pub mod context;
pub mod delegator;
mod drive;
pub mod factory;
pub mod node;
pub mod slots;
pub mod subagent;
pub mod tasks;
pub mod team;
pub mod view;
pub mod workers;

pub use context::AgentContext;
pub use delegator::{Delegator, DelegatorOptions, RootOptions, RootResult, RootRun, UnknownNode};
pub use factory::{BuildError, NodeFactory, NodeSpec, Variable};
pub use node::{Agent, Node, OnExit, Prompt, Team, TeamRun};
pub use slots::{SlotLimits, Slots};
pub use subagent::{Subagent, TaskError, TaskRequest};
pub use tasks::Tasks;
pub use view::SubAgentEvent;
pub use workers::{Worker, Workers};
