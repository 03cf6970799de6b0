//! The subagent provider: the `task` tool (RFC-0028 component 2).

use std::{collections::BTreeMap, sync::Arc};

use offspring_protocol::{
    Event, NodeName, Outcome, TaskId, ToolCallId,
    control::{NodeDescription, TaskResult},
    event::{ToolCallComplete, ToolCallStart},
};
use offspring_sessions::{Refused, RunContext, StoreError, ids};
use serde_json::value::to_raw_value;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    delegator::{Delegator, UnknownNode},
    node::{Node, Prompt},
    tasks::{Task, task_state},
    team::{self, How, TeamResult},
};

/// What the `task` tool is called with.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// The node to delegate to.
    pub node: NodeName,
    /// What it is asked.
    pub prompt: Prompt,
    /// What for, in a few words.
    pub description: String,
    /// Working directory of the child; relative to the caller's (rule L3).
    pub cwd: Option<String>,
    /// Notes that the child's row keeps.
    pub metadata: BTreeMap<String, String>,
    /// The caller's own name for the call, if it has one.
    pub tool_call: Option<ToolCallId>,
}

impl TaskRequest {
    /// A request without extras.
    pub fn new(node: NodeName, prompt: impl Into<Prompt>) -> Self {
        Self {
            node,
            prompt: prompt.into(),
            description: String::new(),
            cwd: None,
            metadata: BTreeMap::new(),
            tool_call: None,
        }
    }
}

/// Why a delegation did not come about: an error for the tool that asked, not the end of its run (rule L5).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// No such node.
    #[error(transparent)]
    UnknownNode(#[from] UnknownNode),
    /// Refused before anything existed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The caller's own events cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Delegates as tool calls of one run.
#[derive(Debug, Clone, Copy)]
pub struct Subagent<'a> {
    delegator: &'a Delegator,
}

/// A delegation that has begun: named, and with its sessions stored.
struct Begun {
    task: Arc<Task>,
    result: JoinHandle<TaskResult>,
}

impl<'a> Subagent<'a> {
    /// The provider over this delegator.
    #[must_use]
    pub const fn new(delegator: &'a Delegator) -> Self {
        Self { delegator }
    }

    /// The nodes that can be delegated to.
    #[must_use]
    pub fn list_available_nodes(&self) -> Vec<NodeDescription> {
        let nodes = self.delegator.nodes();
        let description = |node: &Node| NodeDescription {
            name: node.name().clone(),
            source_type: node.source_type(),
            agent_type: node.agent_type(),
            description: node.description().to_owned(),
        };
        nodes.iter().map(description).collect()
    }

    /// Delegates and waits for the result. Other runs may use the caller's slot meanwhile.
    ///
    /// # Errors
    /// [`TaskError`], and then no session exists. A node that failed is no error here: see
    /// [`TaskResult::state`].
    pub async fn task(&self, caller: &Arc<RunContext>, request: TaskRequest) -> Result<TaskResult, TaskError> {
        let begun = self.begin("task", caller, request).await?;
        let waited = self.delegator.slots().while_waiting(caller.run_id(), begun.result).await;
        Ok(waited.unwrap_or_else(|error| lost(&begun.task, &error)))
    }

    /// Delegates and returns at once with the task's id (RFC-0028 `async_mode`): for an agent its session is
    /// in it, for a team the members that exist by then.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn task_async(&self, caller: &Arc<RunContext>, request: TaskRequest) -> Result<TaskId, TaskError> {
        Ok(self.begin("task", caller, request).await?.task.id())
    }

    pub(crate) async fn ask(
        &self,
        tool: &str,
        caller: &Arc<RunContext>,
        request: TaskRequest,
    ) -> Result<TaskResult, TaskError> {
        let begun = self.begin(tool, caller, request).await?;
        let waited = self.delegator.slots().while_waiting(caller.run_id(), begun.result).await;
        Ok(waited.unwrap_or_else(|error| lost(&begun.task, &error)))
    }

    async fn begin(&self, tool: &str, caller: &Arc<RunContext>, request: TaskRequest) -> Result<Begun, TaskError> {
        let node = self.delegator.node(&request.node)?;
        let key = ids::task();
        let call = match request.tool_call {
            Some(call) => call,
            None => ToolCallId::new(key.as_str()).map_err(Refused::from)?,
        };
        let task = self.delegator.tasks().open(key.clone(), &caller.session().id);
        let started = ToolCallStart {
            tool_call_id: call.clone(),
            tool_name: tool.to_owned(),
            title: request.description.clone(),
            input: to_raw_value(&BTreeMap::from([("node", request.node.as_str())])).ok(),
        };
        if let Err(error) = caller.emit(Event::ToolCallStart(started)).await {
            self.delegator.tasks().forget(&key);
            return Err(error.into());
        }
        // Room for one: the member that waits here is stored already.
        let (made, mut stored) = mpsc::channel(1);
        let how = How {
            task: Some(key.clone()),
            tool_call: Some(call.clone()),
            description: request.description,
            cwd: request.cwd,
            metadata: request.metadata,
            cancelled: task.cancelled.clone(),
            made: Some(made),
        };
        let tool = tool.to_owned();
        let work = Work { delegator: self.delegator.clone(), caller: Arc::clone(caller), task: Arc::clone(&task), tool, call };
        let (first, begun) = tokio::sync::oneshot::channel();
        let listening = Arc::clone(&task);
        tokio::spawn(async move {
            let mut first = Some(first);
            while let Some(session) = stored.recv().await {
                listening.made(session);
                if let Some(first) = first.take() {
                    let _ = first.send(());
                }
            }
        });
        let (refused, refusal) = tokio::sync::oneshot::channel();
        let result = tokio::spawn(work.run(node, request.prompt, how, refused));
        tokio::select! {
            biased;
            refused = refusal => match refused {
                Ok(refused) => {
                    self.delegator.tasks().forget(&key);
                    Err(refused.into())
                }
                // It ended, or there was nothing to start.
                Err(_) => Ok(Begun { task, result }),
            },
            Ok(()) = begun => Ok(Begun { task, result }),
        }
    }
}

struct Work {
    delegator: Delegator,
    caller: Arc<RunContext>,
    task: Arc<Task>,
    tool: String,
    call: ToolCallId,
}

impl Work {
    /// Runs the delegation to its end and says so in the caller's log, with the sessions it made (O9).
    async fn run(
        self,
        node: Node,
        prompt: Prompt,
        how: How,
        refusal: tokio::sync::oneshot::Sender<Refused>,
    ) -> TaskResult {
        let ran = team::run(&self.delegator, &self.caller, &node, prompt, &how).await;
        drop(how);
        let result = match ran {
            Ok(TeamResult { members, output, outcome, error }) => {
                let sessions = members.iter().filter_map(|member| member.session.clone()).collect();
                let task = TaskId { task: self.task.id().task, sessions };
                TaskResult { task, state: task_state(outcome), output, error, members }
            }
            Err(refused) => {
                let error = Some(refused.to_string());
                let _ = refusal.send(refused);
                let (task, state) = (self.task.id(), task_state(Outcome::Failed));
                TaskResult { task, state, output: String::new(), error, members: Vec::new() }
            }
        };
        let complete = ToolCallComplete {
            tool_call_id: self.call,
            tool_name: self.tool,
            // The text stands in the children's own logs.
            output: result.error.clone().unwrap_or_default(),
            is_error: result.error.is_some(),
            sessions: result.task.sessions.clone(),
        };
        if let Err(error) = self.caller.emit(Event::ToolCallComplete(complete)).await {
            tracing::warn!(%error, "the end of a delegation cannot be stored");
        }
        self.delegator.tasks().end(&self.task, result.clone());
        result
    }
}

fn lost(task: &Task, error: &tokio::task::JoinError) -> TaskResult {
    let error = Some(format!("the delegation was lost: {error}"));
    let (task, state) = (task.id(), task_state(Outcome::Interrupted));
    TaskResult { task, state, output: String::new(), error, members: Vec::new() }
}
