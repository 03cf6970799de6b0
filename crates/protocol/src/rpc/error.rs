//! The error member of a response, and the codes in use.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Error codes: those of JSON-RPC 2.0, and ours from the range it leaves to servers (−32000 … −32099).
///
/// A code, once published, keeps its meaning.
pub mod code {
    /// The frame is no JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The frame is JSON and no request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody handles this method (rule W6).
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method does not take these params.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The handler failed for a reason of its own.
    pub const INTERNAL_ERROR: i64 = -32603;

    /// Ours: the connection has not said who it is, or the token it gave stands for no open run.
    pub const UNAUTHORIZED: i64 = -32000;
    /// Ours: a limit of the session or its tree refuses this; nothing was made (rule L5).
    pub const LIMIT_REACHED: i64 = -32001;
    /// Ours: no node of this name.
    pub const UNKNOWN_NODE: i64 = -32002;
    /// Ours: no task of this id, or not one of this session.
    pub const UNKNOWN_TASK: i64 = -32003;
    /// Ours: no session of this id.
    pub const UNKNOWN_SESSION: i64 = -32004;
    /// Ours: the pool or the session is being closed and starts nothing new (rule L14).
    pub const CLOSING: i64 = -32005;
    /// Ours: the store did not answer in time; asking again may help.
    pub const STORE_BUSY: i64 = -32006;
    /// Ours: the connection has to call `initialize` first.
    pub const NOT_INITIALIZED: i64 = -32007;
    /// Ours: the session exists and was not opened on this connection, or is open on it already.
    pub const SESSION_EXISTS: i64 = -32008;
    /// Ours: another process that lives owns the session's tree.
    pub const FOREIGN: i64 = -32009;
    /// Ours: the session was cancelled while this was asked, and asking again is of no use.
    pub const CANCELLED: i64 = -32010;
}

/// Why a call failed, as its peer says.
///
/// The message is the peer's: escape it before it reaches a terminal (rule W11).
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("the peer answered with error {code}: {message}")]
pub struct ErrorObject {
    /// What kind of failure; [`code`] has the known ones, a peer may send any.
    pub code: i64,
    /// One sentence for people.
    pub message: String,
    /// More of it, unparsed; `null` counts as nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Adds data.
    ///
    /// # Errors
    /// When `data` cannot be written as JSON (a map whose keys are no strings).
    pub fn with_data<T: Serialize + ?Sized>(mut self, data: &T) -> Result<Self, serde_json::Error> {
        self.data = Some(to_raw_value(data)?);
        Ok(self)
    }

    /// What a request gets that nobody handles (rule W6).
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("no handler for method {method:?}"))
    }
}
