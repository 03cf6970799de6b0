//! What a server of ours does beyond the runtimes of this wire. It says so in
//! [`InitializeResult`](super::InitializeResult)'s `capabilities`; a client that does not look sees a runtime
//! like any other.

use serde::{Deserialize, Serialize};

use crate::{Envelope, NodeName, RunRecord, SessionData, SessionId, SessionState};

/// Request: roots, newest first.
pub const SESSION_LIST: &str = "session/list";
/// Request: one session with its last run.
pub const SESSION_GET: &str = "session/get";
/// Request: a session and everything below it.
pub const TREE_GET: &str = "tree/get";
/// Request: every event of a tree from a number on, as [`TREE_EVENT`] notifications (rule L18).
pub const TREE_SUBSCRIBE: &str = "tree/subscribe";
/// Request: ends a subscription.
pub const TREE_UNSUBSCRIBE: &str = "tree/unsubscribe";
/// Request: the nodes that can be prompted.
pub const NODE_LIST: &str = "node/list";
/// Notification: an event of a subscribed tree, with its place in it.
pub const TREE_EVENT: &str = "tree.event";

/// What a server can do beyond the runtimes of this wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Requests that it answers beyond those of the runtimes.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Notifications that it sends when asked to.
    #[serde(default)]
    pub notifications: Vec<String>,
}

/// Params of [`SESSION_LIST`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionListParams {
    /// At most so many; 100 by default, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// A session as [`SESSION_LIST`], [`SESSION_GET`] and [`TREE_GET`] show it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its row.
    pub session: SessionData,
    /// Whether a run of it is open.
    pub state: SessionState,
    /// Its last run, if it ever had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunRecord>,
}

/// Result of [`SESSION_LIST`] and [`TREE_GET`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionListResult {
    /// Roots newest first; of a tree parents before children, siblings in the order they were created.
    pub sessions: Vec<SessionView>,
    /// Of a tree: the number of its last event, from which [`TREE_SUBSCRIBE`] goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
}

/// Params of [`TREE_SUBSCRIBE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeParams {
    /// Any session of the tree. Of one that is no root its own subtree is sent.
    pub session_id: SessionId,
    /// The first event wanted; 1, the beginning, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
}

/// Result of [`TREE_SUBSCRIBE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeResult {
    /// Names the subscription on this connection.
    pub subscription: u64,
}

/// Params of [`TREE_UNSUBSCRIBE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsubscribeParams {
    /// Which one.
    pub subscription: u64,
}

/// Params of [`TREE_EVENT`].
#[derive(Debug, Clone, Serialize)]
pub struct TreeEvent<'a> {
    /// Which subscription it belongs to.
    pub subscription: u64,
    /// The event and its place in the tree: path, depth, number.
    pub envelope: &'a Envelope,
}

/// Result of [`SESSION_CANCEL`](super::SESSION_CANCEL).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelResult {
    /// The sessions whose runs ended as cancelled; empty when nothing of it was at work.
    pub ended: Vec<SessionId>,
    /// Sessions that did not stop within the bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<SessionId>,
}

/// A node as [`NODE_LIST`] shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// What it is.
    pub agent_type: crate::AgentType,
    /// What it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether a prompt goes to it when nobody names a node.
    #[serde(default)]
    pub entry: bool,
}

/// Result of [`NODE_LIST`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeListResult {
    /// By name.
    pub nodes: Vec<NodeView>,
}
