//! Why a call failed: the code of JSON-RPC, a sentence that says what to do, and, where clients of the
//! runtimes depend on their words, those words first.

use jsonrpsee::types::ErrorObjectOwned;
use offspring_pool::PromptError;
use offspring_protocol::{SessionId, rpc::code};
use offspring_sessions::{Refused, StoreError};
use serde::Serialize;

/// More about an error, for programs.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a SessionId>,
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
}

pub(crate) fn error(number: i64, message: impl Into<String>) -> ErrorObjectOwned {
    // The codes are those of `rpc::code`, and all of them fit.
    ErrorObjectOwned::owned(i32::try_from(number).unwrap_or(i32::MIN), message, None::<()>)
}

fn about(number: i64, message: String, session_id: Option<&SessionId>, hint: &str) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(
        i32::try_from(number).unwrap_or(i32::MIN),
        message,
        Some(Data { session_id, hint }),
    )
}

pub(crate) fn invalid(message: impl Into<String>) -> ErrorObjectOwned {
    error(code::INVALID_PARAMS, message)
}

pub(crate) fn not_initialized() -> ErrorObjectOwned {
    let message = "SDK server is not initialized".to_owned();
    about(code::NOT_INITIALIZED, message, None, "call `initialize` first")
}

pub(crate) fn shutting_down() -> ErrorObjectOwned {
    about(code::CLOSING, "SDK server is shutting down".to_owned(), None, "nothing new is started any more")
}

pub(crate) fn exists(id: &SessionId) -> ErrorObjectOwned {
    let message = format!("session {} already exists", quoted(id));
    about(
        code::SESSION_EXISTS,
        message,
        Some(id),
        "call `session/resume` on this connection first, or use another id",
    )
}

pub(crate) fn open_already(id: &SessionId) -> ErrorObjectOwned {
    let message = format!("SDK session is already open or opening: {id}");
    about(code::SESSION_EXISTS, message, Some(id), "prompt it: it is open on this connection")
}

/// What `session/resume` says of a session that nobody stored.
pub(crate) fn not_found(id: &SessionId) -> ErrorObjectOwned {
    let message = format!("session {} not found", quoted(id));
    about(code::UNKNOWN_SESSION, message, Some(id), "`session/list` names the roots that are stored")
}

/// What every other request says of a session that is not open here.
pub(crate) fn unknown(id: &SessionId) -> ErrorObjectOwned {
    let message = format!("unknown SDK session: {id}");
    about(
        code::UNKNOWN_SESSION,
        message,
        Some(id),
        "open it on this connection by a prompt or by `session/resume`",
    )
}

pub(crate) fn is_child(id: &SessionId, root: &SessionId) -> ErrorObjectOwned {
    let message = format!("session {} already exists: it is a child in the tree of {root}", quoted(id));
    about(code::SESSION_EXISTS, message, Some(id), "open the root of its tree; its children are sent with it")
}

/// Its log cannot be read: what happens in it is not known here any more.
pub(crate) fn unreadable() -> ErrorObjectOwned {
    error(code::INTERNAL_ERROR, "the log of this session cannot be read")
}

pub(crate) fn unknown_method(method: &str) -> ErrorObjectOwned {
    let message = format!("unknown DeepSeek Harness SDK runtime method: {method}");
    about(
        code::METHOD_NOT_FOUND,
        message,
        None,
        "`initialize` lists what this server answers beyond the runtimes",
    )
}

pub(crate) fn limit(what: &str, max: usize, knob: &str) -> ErrorObjectOwned {
    error(code::LIMIT_REACHED, format!("{what}: the limit is {max} ({knob})"))
}

pub(crate) fn store(failed: &StoreError) -> ErrorObjectOwned {
    let number = match failed {
        StoreError::Busy { .. } => code::STORE_BUSY,
        StoreError::Unknown { .. } => code::UNKNOWN_SESSION,
        StoreError::Closed => code::CLOSING,
        StoreError::BadId(_) => code::INVALID_PARAMS,
        _ => code::INTERNAL_ERROR,
    };
    error(number, failed.to_string())
}

pub(crate) fn refused(id: &SessionId, refused: &Refused) -> ErrorObjectOwned {
    let number = match refused {
        Refused::Store(StoreError::Taken { .. }) => return exists(id),
        Refused::Store(failed) => return store(failed),
        Refused::Foreign { .. } => {
            let message = format!("session {} is already owned by an active write handle", quoted(id));
            let hint = "another process runs its tree; it can be opened here when that process has ended";
            return about(code::FOREIGN, message, Some(id), hint);
        }
        Refused::UnknownSession { .. } => return not_found(id),
        Refused::Closing => return shutting_down(),
        Refused::Cancelled => code::CANCELLED,
        Refused::BadId(_) | Refused::Cwd { .. } => code::INVALID_PARAMS,
        _ => code::LIMIT_REACHED,
    };
    error(number, refused.to_string())
}

pub(crate) fn prompt(id: &SessionId, failed: &PromptError) -> ErrorObjectOwned {
    match failed {
        PromptError::Refused(failed) => refused(id, failed),
        PromptError::UnknownNode(unknown) => error(code::UNKNOWN_NODE, unknown.to_string()),
        PromptError::TooLong { .. } => error(code::LIMIT_REACHED, failed.to_string()),
        _ => invalid(failed.to_string()),
    }
}

/// An id as the runtimes quote it.
fn quoted(id: &SessionId) -> String {
    serde_json::to_string(id.as_str()).unwrap_or_else(|_| id.to_string())
}
