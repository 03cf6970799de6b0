//! The methods of a pool's private endpoint: how any process inside a run delegates.
//!
//! JSON-RPC 2.0 over newline-delimited frames on a Unix socket. The first call of a connection is
//! [`HELLO`] with the token of a run; everything after it is done in the name of that run's session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    id::{NodeName, SessionId, TaskKey},
    session::{Outcome, RunState, TaskId},
};

/// Presents the token: [`HelloParams`] → [`HelloResult`].
pub const HELLO: &str = "hello";
/// Starts a delegation and, unless detached, waits for it: [`TaskStartParams`] → [`TaskResult`].
pub const TASK_START: &str = "task/start";
/// How a delegation stands: [`TaskParams`] → [`TaskResult`].
pub const TASK_STATUS: &str = "task/status";
/// Waits for a delegation and gives its output: [`TaskParams`] → [`TaskResult`].
pub const TASK_OUTPUT: &str = "task/output";
/// Cancels a delegation (rule L14): [`TaskParams`] → [`TaskResult`].
pub const TASK_CANCEL: &str = "task/cancel";
/// The nodes that can be delegated to: no params → [`NodeListResult`].
pub const NODE_LIST: &str = "node/list";

/// Params of [`HELLO`].
#[derive(Clone, Serialize, Deserialize)]
pub struct HelloParams {
    /// The token from the run's environment.
    pub token: String,
}

/// Result of [`HELLO`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HelloResult {
    /// The session that the token stands for.
    pub session: SessionId,
    /// Its depth.
    pub depth: u32,
}

/// Params of [`TASK_START`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskStartParams {
    /// The node to delegate to.
    pub node: NodeName,
    /// What it is asked.
    pub prompt: String,
    /// What it is for, in a few words.
    #[serde(default)]
    pub description: String,
    /// Whether to answer at once with the task id (RFC-0028 `async_mode`).
    #[serde(default)]
    pub detach: bool,
    /// Working directory of the child; relative to the parent's (rule L3).
    #[serde(default)]
    pub cwd: Option<String>,
    /// Notes that the child's row keeps.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Params of the other task methods.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskParams {
    /// Which task.
    pub task: TaskKey,
}

/// How a delegation stands, with its output once it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskResult {
    /// The delegation and its sessions.
    pub task: TaskId,
    /// Where it stands.
    pub state: RunState,
    /// What the caller's tool gets: the answer, or the members' answers one after another.
    #[serde(default)]
    pub output: String,
    /// What went wrong, if it did.
    #[serde(default)]
    pub error: Option<String>,
    /// One entry per member, in member order.
    #[serde(default)]
    pub members: Vec<MemberResult>,
}

/// What one member of a delegation gave (rule L11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberResult {
    /// The member.
    pub node: NodeName,
    /// Its session; `None` when it was refused before one existed.
    pub session: Option<SessionId>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its output; when it failed, what there was of one.
    pub output: String,
    /// What went wrong, if it did.
    pub error: Option<String>,
}

/// Result of [`NODE_LIST`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeListResult {
    /// The nodes, by name.
    pub nodes: Vec<NodeDescription>,
}

/// A node that can be delegated to (RFC-0028 `list_available_nodes`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Its name.
    pub name: NodeName,
    /// `agent`, `team_parallel` or `team_sequential`.
    pub source_type: crate::session::SourceType,
    /// What it is (rule L7).
    pub agent_type: crate::session::AgentType,
    /// What it does, in the manifest's words.
    pub description: String,
}
