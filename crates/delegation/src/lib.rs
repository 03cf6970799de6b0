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
//!
//! ```
//! use std::sync::Arc;
//! use futures_util::future::BoxFuture;
//! use offspring_delegation::{Agent, Delegator, Node, Prompt, RootOptions};
//! use offspring_protocol::{NodeName, Outcome};
//! use offspring_sessions::{Answer, RunContext, RunError};
//!
//! /// Says its name after what it was asked.
//! struct Signs(NodeName);
//!
//! impl Agent for Signs {
//!     fn name(&self) -> &NodeName {
//!         &self.0
//!     }
//!     fn run(self: Arc<Self>, prompt: Prompt, _cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
//!         Box::pin(async move { Ok(format!("{} {}", prompt.text, self.0).into()) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let delegator = Delegator::detached();
//! let [a, b, c] = ["a", "b", "c"].map(NodeName::new);
//! let (a, b, c) = (Node::agent(Signs(a?)), Node::agent(Signs(b?)), Node::agent(Signs(c?)));
//!
//! let run = delegator.run_root((a | b) & c, "signed:".into(), RootOptions::default()).await?;
//! let root = run.session.id.clone();
//! let result = run.result.await?;
//! assert_eq!(result.outcome, Outcome::Completed);
//! assert_eq!(result.answer, "### a | b (completed)\nsigned: a b\n### c (completed)\nsigned: c\n");
//! // The root, the sequence that is a member, and the three agents.
//! assert_eq!(delegator.manager().descendants(&root).await?.len(), 4);
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod context;
pub mod delegator;
mod drive;
pub mod factory;
pub mod node;
pub mod recall;
pub mod slots;
pub mod subagent;
pub mod tasks;
pub mod team;
pub mod view;
pub mod workers;

pub use context::AgentContext;
pub use delegator::{Delegator, DelegatorOptions, RootOptions, RootResult, RootRun, UnknownNode, title};
pub use factory::{BuildError, NodeFactory, NodeSpec, Variable};
pub use node::{Agent, Node, OnExit, Prompt, RefusedPrompt, Team, TeamRun};
pub use recall::Recall;
pub use slots::{SlotLimits, Slots};
pub use subagent::{Subagent, TaskError, TaskRequest};
pub use tasks::Tasks;
pub use view::SubAgentEvent;
pub use workers::{Worker, Workers};
