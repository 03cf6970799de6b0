//! The subagent provider: the `task` tool (RFC-0028 component 2).

use std::{collections::BTreeMap, sync::Arc};

use offspring_protocol::{
    Event, NodeName, Outcome, TaskId, TaskKey, ToolCallId,
    control::{NodeDescription, TaskResult},
    event::{ToolCallComplete, ToolCallStart},
};
use offspring_sessions::{Refused, RunContext, StoreError, ids};
use serde_json::value::to_raw_value;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    delegator::{Delegator, UnknownNode},
    node::{Node, Prompt, RefusedPrompt},
    tasks::{OpenTask, Task, lost, task_state},
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
    /// The node cannot be asked this.
    #[error(transparent)]
    Prompt(#[from] RefusedPrompt),
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
    pub async fn task(
        &self,
        caller: &Arc<RunContext>,
        request: TaskRequest,
    ) -> Result<TaskResult, TaskError> {
        self.ask("task", caller, request).await
    }

    /// Delegates and returns at once with the task's id (RFC-0028 `async_mode`): for an agent its session is
    /// in it, for a team the members that exist by then.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn task_async(
        &self,
        caller: &Arc<RunContext>,
        request: TaskRequest,
    ) -> Result<TaskId, TaskError> {
        Ok(self.begin("task", caller, request).await?.task.id())
    }

    pub(crate) async fn ask(
        &self,
        tool: &str,
        caller: &Arc<RunContext>,
        request: TaskRequest,
    ) -> Result<TaskResult, TaskError> {
        let _waits = caller.waits();
        let begun = self.begin(tool, caller, request).await?;
        let waited = self.delegator.slots().while_waiting(caller.run_id(), begun.result).await;
        if caller.is_cancelled() {
            // Leaves end first; a caller whose end is decided does not go on with what they left (L14).
            caller.stop_requested().cancelled().await;
        }
        Ok(waited.unwrap_or_else(|_| lost(&begun.task)))
    }

    async fn begin(
        &self,
        tool: &str,
        caller: &Arc<RunContext>,
        request: TaskRequest,
    ) -> Result<Begun, TaskError> {
        let node = self.delegator.node(&request.node)?;
        node.takes(&request.prompt)?;
        let key = ids::task();
        let call = match request.tool_call {
            Some(call) => call,
            None => ToolCallId::new(key.as_str()).map_err(Refused::from)?,
        };
        let open = self.delegator.tasks().open(key, caller.session());
        let task = Arc::clone(open.task());
        let started = ToolCallStart {
            tool_call_id: call.clone(),
            tool_name: tool.to_owned(),
            title: request.description.clone(),
            input: to_raw_value(&BTreeMap::from([("node", request.node.as_str())])).ok(),
        };
        let how = How {
            task: Some(Arc::clone(&task)),
            tool_call: Some(call.clone()),
            description: request.description,
            cwd: request.cwd,
            metadata: request.metadata,
        };
        let work = Work {
            delegator: self.delegator.clone(),
            caller: Arc::clone(caller),
            open,
            started,
            tool: tool.to_owned(),
            call,
        };
        let (refused, refusal) = oneshot::channel();
        // In a task of its own from its first word on: what was begun is ended and told, whoever stops waiting for
        // it, and whenever.
        let result = tokio::spawn(work.run(node, request.prompt, how, refused));
        tokio::select! {
            biased;
            refused = refusal => match refused {
                Ok(refused) => Err(refused),
                // It ended, or there was nothing to start.
                Err(_) => Ok(Begun { task, result }),
            },
            () = task.begun() => Ok(Begun { task, result }),
        }
    }
}

struct Work {
    delegator: Delegator,
    caller: Arc<RunContext>,
    open: OpenTask,
    started: ToolCallStart,
    tool: String,
    call: ToolCallId,
}

/// A delegation that never came into being.
fn refused_task(task: TaskKey, error: String) -> TaskResult {
    let task = TaskId { task, sessions: Vec::new() };
    let state = task_state(Outcome::Failed);
    TaskResult { task, state, output: String::new(), error: Some(error), members: Vec::new() }
}

impl Work {
    /// Runs the delegation to its end and says so in the caller's log, with the sessions it made (O9).
    async fn run(
        self,
        node: Node,
        prompt: Prompt,
        how: How,
        refusal: oneshot::Sender<TaskError>,
    ) -> TaskResult {
        let task = self.open.task().id().task;
        if let Err(error) = self.caller.emit(Event::ToolCallStart(self.started.clone())).await {
            let result = refused_task(task, error.to_string());
            self.open.forget();
            let _ = refusal.send(error.into());
            return result;
        }
        match team::run(&self.delegator, &self.caller, &node, prompt, &how).await {
            Ok(TeamResult { members, output, outcome, error }) => {
                let sessions = members.iter().filter_map(|member| member.session.clone()).collect();
                let task = TaskId { task, sessions };
                let result = TaskResult { task, state: task_state(outcome), output, error, members };
                self.tell(&result).await;
                self.open.end(result.clone());
                result
            }
            Err(refused) => {
                let result = refused_task(task, refused.to_string());
                self.tell(&result).await;
                self.open.forget();
                // Told last, so that the caller's log has the end of its call before the caller goes on.
                let _ = refusal.send(refused.into());
                result
            }
        }
    }

    async fn tell(&self, result: &TaskResult) {
        let complete = ToolCallComplete {
            tool_call_id: self.call.clone(),
            tool_name: self.tool.clone(),
            // The text stands in the children's own logs.
            output: result.error.clone().unwrap_or_default(),
            is_error: result.error.is_some(),
            sessions: result.task.sessions.clone(),
        };
        if let Err(error) = self.caller.emit(Event::ToolCallComplete(complete)).await {
            tracing::warn!(%error, "the end of a delegation cannot be stored");
        }
    }
}
