//! The shapes of the runtimes' events, as measured on 0.2.1rc2.

use offspring_protocol::{SessionId, SessionState};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionEvent<'a, D> {
    pub(super) session_id: &'a SessionId,
    pub(super) event: EventBody<'a, D>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventBody<'a, D> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    pub(super) seq: u64,
    pub(super) time: i64,
    pub(super) data: &'a D,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) surface_op: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusParams<'a> {
    pub(super) session_id: &'a SessionId,
    pub(super) status: SessionState,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartedParams<'a> {
    parent_session_id: &'a SessionId,
    child_session_id: &'a SessionId,
}

impl<'a> StartedParams<'a> {
    pub(super) fn new(parent: &'a SessionId, child: &'a SessionId) -> Self {
        Self { parent_session_id: parent, child_session_id: child }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FinishedParams<'a> {
    pub(super) provider: &'static str,
    pub(super) agent_id: &'a SessionId,
    pub(super) parent_session_id: &'a SessionId,
    pub(super) child_session_id: &'a SessionId,
    pub(super) status: &'static str,
    pub(super) stop_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_assistant_message: Option<[Content<'a>; 1]>,
}

#[derive(Serialize)]
pub(super) struct Content<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> Content<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self { kind: "text", text }
    }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(super) enum Source<'a> {
    User,
    Model { provider: &'a str, model: &'a str },
    Tool { call_id: &'a str },
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) content: [Content<'a>; 1],
    pub(super) source: Source<'a>,
    pub(super) role: &'static str,
    pub(super) id: &'a str,
}

/// What came into an inbox, or went out of it into a turn.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inbox<'a> {
    target: &'static str,
    start: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_count: Option<u32>,
    inserted: &'a [&'a Message<'a>],
}

/// One message that came in.
#[derive(Serialize)]
pub(super) struct Inserted<'a> {
    target: &'static str,
    start: u32,
    inserted: [&'a Message<'a>; 1],
}

impl<'a> Inbox<'a> {
    pub(super) fn inserted(message: &'a Message<'a>) -> Inserted<'a> {
        Inserted { target: "next-turn", start: 0, inserted: [message] }
    }

    pub(super) fn removed() -> Self {
        Self { target: "next-turn", start: 0, removed_count: Some(1), inserted: &[] }
    }
}

#[derive(Serialize)]
pub(super) struct Turn {
    pub(super) turn: u64,
}

#[derive(Serialize)]
pub(super) struct TurnEnded<'a> {
    pub(super) turn: u64,
    pub(super) reason: Reason<'a>,
}

#[derive(Serialize)]
pub(super) struct Reason<'a> {
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<&'a ReasonError>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReasonError {
    pub(super) message: String,
    pub(super) code: String,
}

#[derive(Serialize)]
pub(super) struct AssistantMessage<'a> {
    pub(super) turn: u64,
    pub(super) step: u32,
    pub(super) message: Message<'a>,
    /// The runtimes pack the pieces in which a message came; ours were events of their own.
    pub(super) stream: &'a [()],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall<'a> {
    pub(super) turn: u64,
    pub(super) step: u32,
    pub(super) call_id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

#[derive(Serialize)]
pub(super) struct ToolResult<'a> {
    pub(super) turn: u64,
    pub(super) step: u32,
    pub(super) message: ToolMessage<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolMessage<'a> {
    pub(super) role: &'static str,
    pub(super) source: Source<'a>,
    pub(super) tool_call_id: &'a str,
    pub(super) content: [Content<'a>; 1],
    pub(super) is_error: bool,
    /// Ours: the sessions the call made.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) sessions: &'a [SessionId],
}
