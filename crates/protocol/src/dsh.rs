//! The wire of DeepSeek Harness runtimes (`dsh`), as measured on 0.2.1rc2: JSON-RPC 2.0, one message a line.
//!
//! | module | what it holds |
//! |---|---|
//! | [`head`] | what routing needs to know of a notification, read in one pass over its frame |
//! | [`calls`] | params and results of the requests a client sends |
//! | [`more`] | what a server of ours answers beyond the runtimes |
//! | [`notice`] | what the notifications say, parsed when somebody looks |
//!
//! A runtime sends four notifications: [`SESSION_EVENT`], [`SESSION_STATUS`], [`SUBAGENT_STARTED`] and
//! [`SUBAGENT_FINISHED`]. Its event types are open-ended; those a client depends on are parsed by
//! [`notice`], every other one stays raw. Nothing here depends on the order of members.

pub mod calls;
pub mod head;
pub mod more;
pub mod notice;

pub use calls::{
    InitializeParams, InitializeResult, PromptParams, PromptResult, ServerInfo, SessionParams,
    SetWorkingDirectoryParams, WorkingDirectoryResult, text_block,
};
pub use head::{Frame, Head};
pub use notice::{Finished, FinishedStatus, Notice, SessionEvent, Started, Status};

/// Request: what the runtime works with; before every other one.
pub const INITIALIZE: &str = "initialize";
/// Request: a message for a session, which is made if it is new.
pub const SESSION_PROMPT: &str = "session/prompt";
/// Request: opens a session that the runtime stored.
pub const SESSION_RESUME: &str = "session/resume";
/// Request: answered when the session is idle and nothing below it runs. Not known to 0.1 runtimes.
pub const SESSION_WAIT: &str = "session/wait";
/// Request: where the tools of a session work.
pub const WORKING_DIRECTORY_GET: &str = "session/working-directory/get";
/// Request: changes where the tools of a session work.
pub const WORKING_DIRECTORY_SET: &str = "session/working-directory/set";
/// Request: stops a session. No runtime up to 0.2.1rc2 knows it.
pub const SESSION_CANCEL: &str = "session/cancel";
/// Request: ends the runtime.
pub const SHUTDOWN: &str = "shutdown";

/// Notification: an event of a session.
pub const SESSION_EVENT: &str = "session.event";
/// Notification: a session became idle or running.
pub const SESSION_STATUS: &str = "session.status";
/// Notification: a session started a child, or re-activated one that had finished.
pub const SUBAGENT_STARTED: &str = "subagent.started";
/// Notification: a child finished.
pub const SUBAGENT_FINISHED: &str = "subagent.finished";

/// Event type: messages came into the session's inbox, which is the durable receipt of a prompt (rule T13).
pub const INBOX_SPLICED: &str = "agent/inbox/spliced";
/// Event type: a message of the user goes into a turn.
pub const USER_MESSAGE: &str = "user/message";
/// Event type: a model turn begins.
pub const TURN_START: &str = "turn/start";
/// Event type: the assistant calls a tool.
pub const TOOL_CALL: &str = "tool/call";
/// Event type: what a tool gave back.
pub const TOOL_RESULT: &str = "tool/result";
/// Event type: a whole message of the assistant.
pub const ASSISTANT_MESSAGE: &str = "assistant/message";
/// Event type: a model turn ended.
pub const TURN_END: &str = "turn/end";

#[cfg(test)]
mod tests;
