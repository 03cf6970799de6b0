//! The workers provider: one tool per worker, `ask_<worker>` (RFC-0028 component 3).

use std::sync::Arc;

use offspring_protocol::{NodeName, control::TaskResult};
use offspring_sessions::RunContext;

use crate::{
    delegator::{Delegator, UnknownNode},
    node::{Node, Prompt},
    subagent::{Subagent, TaskError, TaskRequest},
};

/// The prefix of a worker's tool.
pub const PREFIX: &str = "ask_";

/// A worker of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The node.
    pub node: NodeName,
}

/// The workers of one agent as tools.
#[derive(Debug, Clone)]
pub struct Workers<'a> {
    delegator: &'a Delegator,
    workers: &'a [Worker],
}

/// A tool that asks a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerTool {
    /// `ask_<worker>`.
    pub name: String,
    /// What the model reads.
    pub description: String,
}

impl<'a> Workers<'a> {
    /// These workers over this delegator.
    #[must_use]
    pub const fn new(delegator: &'a Delegator, workers: &'a [Worker]) -> Self {
        Self { delegator, workers }
    }

    /// One tool per worker. A worker that is no node is left out; a manifest with one is refused earlier.
    #[must_use]
    pub fn tools(&self) -> Vec<WorkerTool> {
        let tool = |node: &Node| {
            let what = match node {
                Node::Agent(_) => "Get expert answer from specialized agent",
                Node::Team(_) | Node::TeamRun(_) => "Delegate task to worker",
            };
            let more = node.description();
            let description =
                if more.is_empty() { format!("{what}: {}", node.name()) } else { format!("{what}: {more}") };
            WorkerTool { name: format!("{PREFIX}{}", node.name()), description }
        };
        self.workers
            .iter()
            .filter_map(|worker| self.delegator.node(&worker.node).ok())
            .map(|node| tool(&node))
            .collect()
    }

    /// Calls the tool of this name (with or without its prefix) and waits for the answer.
    ///
    /// # Errors
    /// [`TaskError::UnknownNode`] with the workers there are, or a refusal.
    pub async fn ask(
        &self,
        caller: &Arc<RunContext>,
        tool: &str,
        prompt: Prompt,
    ) -> Result<TaskResult, TaskError> {
        let named = |name: &str| self.workers.iter().find(|worker| worker.node.as_str() == name);
        // A worker may itself be called `ask_…`.
        let worker = tool.strip_prefix(PREFIX).and_then(named).or_else(|| named(tool));
        let Some(worker) = worker else {
            return Err(TaskError::UnknownNode(UnknownNode {
                name: NodeName::new(tool).map_err(offspring_sessions::Refused::from)?,
                suggestion: None,
                available: self.workers.iter().map(|worker| worker.node.clone()).collect(),
            }));
        };
        let tool = format!("{PREFIX}{}", worker.node);
        Subagent::new(self.delegator).ask(&tool, caller, TaskRequest::new(worker.node.clone(), prompt)).await
    }
}
