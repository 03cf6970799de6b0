//! Params and results of the requests that a client sends.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::more::Capabilities;
use crate::{MessageId, SessionId};

/// Params of [`initialize`](super::INITIALIZE).
///
/// Absent members are left out: the runtime refuses `"reasoningEffort": null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Where sessions work, absolute.
    pub cwd: String,
    /// Who serves the model, `deepseek-official` for example.
    pub provider: String,
    /// Which model.
    pub model: String,
    /// How much the model thinks; the words are the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// The longest answer, in tokens; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// Result of [`initialize`](super::INITIALIZE).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Who answers. The version that 0.2.1rc2 gives is not that of its package.
    #[serde(default)]
    pub server_info: Option<ServerInfo>,
    /// What it can do beyond the runtimes; a runtime says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
}

/// Who a runtime says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

/// Params of [`session/prompt`](super::SESSION_PROMPT).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptParams {
    /// The session; made if it is new.
    pub session_id: SessionId,
    /// What is said, as the runtime's content blocks.
    pub content_blocks: Vec<Box<RawValue>>,
}

/// A content block that holds text.
#[must_use]
pub fn text_block(text: &str) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Block<'a> {
        r#type: &'a str,
        text: &'a str,
    }
    // A struct of two strings always is JSON.
    serde_json::value::to_raw_value(&Block { r#type: "text", text }).unwrap_or_default()
}

/// Result of [`session/prompt`](super::SESSION_PROMPT).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult {
    /// The message by which its receipt is recognised (rule T13).
    pub message_id: MessageId,
}

/// Params of every request that names a session and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionParams {
    /// The session.
    pub session_id: SessionId,
}

/// Params of [`session/working-directory/set`](super::WORKING_DIRECTORY_SET).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetWorkingDirectoryParams {
    /// The session.
    pub session_id: SessionId,
    /// Absolute, or from where the session works now.
    pub path: String,
}

/// Result of both working-directory requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingDirectoryResult {
    /// Where the session works now, absolute.
    pub cwd: String,
}
