//! What happens in a session.
//!
//! On the wire and in the store an event is [`RawEvent`]: `{ kind, data }` with raw `data`. A reader that
//! cares parses it into an [`Event`]; an unknown kind becomes [`Event::Other`] and is written back byte
//! for byte. No event is ever wrapped in an event: whose it is stands in its [`Envelope`](crate::Envelope).

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Usage,
    id::{MessageId, NodeName, RunId, SessionId, TaskKey, ToolCallId},
    session::{AgentType, Outcome, SessionState, SourceType},
};

/// An event as it travels and is stored: its kind and its unparsed data, which all clones share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Read")]
pub struct RawEvent {
    kind: Cow<'static, str>,
    #[serde(serialize_with = "write_shared")]
    data: Arc<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Read {
    kind: Cow<'static, str>,
    data: Box<RawValue>,
}

impl From<Read> for RawEvent {
    fn from(read: Read) -> Self {
        Self { kind: read.kind, data: Arc::new(read.data) }
    }
}

fn write_shared<S: Serializer>(data: &Arc<Box<RawValue>>, serializer: S) -> Result<S::Ok, S::Error> {
    data.serialize(serializer)
}

/// Why the data of a known kind could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the data of a `{kind}` event cannot be read: {source}")]
pub struct EventError {
    kind: String,
    source: serde_json::Error,
}

impl RawEvent {
    /// An event of any kind, as it was received.
    #[must_use]
    pub fn new(kind: impl Into<Cow<'static, str>>, data: Box<RawValue>) -> Self {
        let kind = match kind.into() {
            Cow::Owned(kind) => known_kind(&kind).map_or(Cow::Owned(kind), Cow::Borrowed),
            borrowed @ Cow::Borrowed(_) => borrowed,
        };
        Self { kind, data: Arc::new(data) }
    }

    /// A [`MessageComplete`] of a text that is borrowed: a long one is not copied to be written.
    #[must_use]
    pub fn message_complete(message_id: &MessageId, text: &str) -> Self {
        #[derive(Serialize)]
        struct Message<'a> {
            message_id: &'a MessageId,
            text: &'a str,
        }
        Self::new("message_complete", written_around(&Message { message_id, text }, text))
    }

    /// A [`RunStarted`] without its prompt, and that prompt, borrowed for the same reason.
    #[must_use]
    pub fn run_started(started: &RunStarted, prompt: &str) -> Self {
        #[derive(Serialize)]
        struct Started<'a> {
            session_id: &'a SessionId,
            run_id: &'a RunId,
            agent_name: &'a NodeName,
            #[serde(skip_serializing_if = "Option::is_none")]
            parent_session_id: Option<&'a SessionId>,
            #[serde(skip_serializing_if = "str::is_empty")]
            prompt: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            prompt_id: Option<&'a MessageId>,
        }
        let RunStarted { session_id, run_id, agent_name, parent_session_id, prompt_id, .. } = started;
        let (parent_session_id, prompt_id) = (parent_session_id.as_ref(), prompt_id.as_ref());
        let started = Started { session_id, run_id, agent_name, parent_session_id, prompt, prompt_id };
        Self::new("run_started", written_around(&started, prompt))
    }

    /// Its kind, `text_delta` for example.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its data, unparsed JSON.
    #[must_use]
    pub fn data(&self) -> &RawValue {
        &self.data
    }

    /// Parses the data by its kind.
    ///
    /// # Errors
    /// [`EventError`] when a known kind carries data of another shape.
    pub fn parse(&self) -> Result<Event, EventError> {
        Event::parse(&self.kind, &self.data)
    }
}

/// Equal when kind and the bytes of the data are.
impl PartialEq for RawEvent {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.data.get() == other.data.get()
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($body:ty) = $kind:literal,)*) => {
        /// An event with its data read.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $variant($body),)*
            /// A kind this version does not know; kept byte for byte.
            Other(RawEvent),
        }

        impl Event {
            /// The kinds this version knows.
            pub const KINDS: &[&'static str] = &[$($kind),*];

            /// Its kind on the wire and in the store.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self { $(Self::$variant(_) => $kind,)* Self::Other(raw) => raw.kind() }
            }

            /// Reads `data` as the kind says.
            ///
            /// # Errors
            /// [`EventError`] when a known kind carries data of another shape.
            pub fn parse(kind: &str, data: &RawValue) -> Result<Self, EventError> {
                match kind {
                    $($kind => serde_json::from_str(data.get()).map(Self::$variant),)*
                    _ => Ok(Self::Other(RawEvent::new(kind.to_owned(), data.to_owned()))),
                }
                .map_err(|source| EventError { kind: kind.to_owned(), source })
            }
        }

        impl From<&Event> for RawEvent {
            fn from(event: &Event) -> Self {
                match event {
                    $(Event::$variant(body) => Self { kind: Cow::Borrowed($kind), data: Arc::new(written(body)) },)*
                    Event::Other(raw) => raw.clone(),
                }
            }
        }

        fn known_kind(kind: &str) -> Option<&'static str> {
            match kind { $($kind => Some($kind),)* _ => None }
        }
    };
}

/// Our own bodies hold strings, numbers and raw JSON only, so writing one cannot fail; were it to, the
/// reader sees `null` and not a panic.
fn written(body: &impl Serialize) -> Box<RawValue> {
    to_raw_value(body).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// From this length on a text is written into room that was made for it.
const LONG_BYTES: usize = 1 << 20;

/// As [`written`], of a body that is a text and little else: a long one does not grow into its room, which takes twice
/// as much on the way.
fn written_around(body: &impl Serialize, text: &str) -> Box<RawValue> {
    if text.len() < LONG_BYTES {
        return written(body);
    }
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    let mut json = Vec::with_capacity(text.len() + text.bytes().map(more).sum::<usize>() + LONG_BYTES / 64);
    let json = serde_json::to_writer(&mut json, body).ok().and_then(|()| String::from_utf8(json).ok());
    json.and_then(|json| RawValue::from_string(json).ok()).unwrap_or_else(|| RawValue::NULL.to_owned())
}

events! {
    /// A prompt was taken in and waits for its run.
    PromptReceived(PromptReceived) = "prompt_received",
    /// A prompt that was taken in gets no run.
    PromptDropped(PromptDropped) = "prompt_dropped",
    /// A run of this session begins (rules L10, L12).
    RunStarted(RunStarted) = "run_started",
    /// This session delegates: a child session exists and is stored (rules L1, L2).
    SpawnSessionStart(SpawnSessionStart) = "spawn_session_start",
    /// More text of the answer.
    TextDelta(TextDelta) = "text_delta",
    /// More reasoning.
    ThinkingDelta(TextDelta) = "thinking_delta",
    /// A tool is called.
    ToolCallStart(ToolCallStart) = "tool_call_start",
    /// A running tool call says how far it is.
    ToolCallProgress(ToolCallProgress) = "tool_call_progress",
    /// A tool call ended.
    ToolCallComplete(ToolCallComplete) = "tool_call_complete",
    /// The agent asks for leave to do something (rule L17).
    PermissionRequested(PermissionRequested) = "permission_requested",
    /// A permission request got its one answer.
    PermissionResolved(PermissionResolved) = "permission_resolved",
    /// Tokens and cost of one provider message (rule L15).
    Usage(UsageReport) = "usage",
    /// A whole message of the agent.
    MessageComplete(MessageComplete) = "message_complete",
    /// Terminal: the run completed or was cancelled (rule L12).
    StreamComplete(StreamComplete) = "stream_complete",
    /// Terminal: the run failed or was interrupted (rule L12).
    RunError(RunFailed) = "run_error",
    /// The session became idle or running.
    StatusChanged(StatusChanged) = "status_changed",
    /// The numbers `from..=to` of this tree were replaced by this one event (rule L16).
    Compacted(Compacted) = "compacted",
    /// Anything a node wants to say beyond these.
    Custom(Custom) = "custom",
}

impl Event {
    /// How this event ends its run, if it is a terminal one (rule L12).
    #[must_use]
    pub const fn terminal(&self) -> Option<Outcome> {
        match self {
            Self::StreamComplete(end) if end.cancelled => Some(Outcome::Cancelled),
            Self::StreamComplete(_) => Some(Outcome::Completed),
            Self::RunError(end) if end.interrupted => Some(Outcome::Interrupted),
            Self::RunError(_) => Some(Outcome::Failed),
            _ => None,
        }
    }
}

/// A run of this session begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Equals the `child_session_id` of the spawn that caused it (rule L10).
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The node that runs.
    pub agent_name: NodeName,
    /// Who delegated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<SessionId>,
    /// What was asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Which [`PromptReceived`] this run answers, if one was stored before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<MessageId>,
}

/// A prompt was taken in and is stored: a run will answer it, or a [`PromptDropped`] says why none does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptReceived {
    /// Names the prompt.
    pub prompt_id: MessageId,
    /// What is asked.
    pub text: String,
}

/// A prompt that was taken in gets no run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDropped {
    /// Which one.
    pub prompt_id: MessageId,
    /// Why, for people.
    pub message: String,
    /// Why, for programs: `cancelled`, `owner_lost`, `refused`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
}

/// Which kind of call made a child (RFC-0028).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpawnMechanism {
    /// A tool call: subagent or worker.
    Task,
    /// A member of a team, or a peer's own decision.
    Spawn,
}

/// A child session exists and is stored (rules L1, L2; RFC-0028).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnSessionStart {
    /// The child.
    pub child_session_id: SessionId,
    /// Its parent: the session this event belongs to.
    pub parent_session_id: SessionId,
    /// The tool call that delegated, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<ToolCallId>,
    /// Tool call or team.
    pub spawn_mechanism: SpawnMechanism,
    /// The node that was delegated to.
    pub source_name: NodeName,
    /// How it was delegated to (rule L7).
    pub source_type: SourceType,
    /// What the node is (rule L7).
    pub agent_type: AgentType,
    /// Parent edges above the child (rule L4).
    pub depth: u32,
    /// Root … child, so that a reader who comes late knows the whole path (rule T14).
    pub path: Vec<SessionId>,
    /// What the delegation is for, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The delegation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskKey>,
    /// The model the child uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// Notes of the caller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// More text or reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDelta {
    /// The new text.
    pub text: String,
}

/// A tool is called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCallStart {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool_name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Its arguments as the agent gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
}

/// How far a running tool call is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallProgress {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// For people.
    pub message: String,
}

/// A tool call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallComplete {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool_name: String,
    /// What it gave back.
    pub output: String,
    /// Whether that is an error.
    #[serde(default)]
    pub is_error: bool,
    /// The sessions the call made, so that a parent names its children after a crash (report O9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
}

/// The agent asks for leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionRequested {
    /// Names the request.
    pub request_id: String,
    /// What it wants to do, for people.
    pub title: String,
}

/// A permission request got its one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionResolved {
    /// Names the request.
    pub request_id: String,
    /// Whether it may.
    pub allowed: bool,
    /// Who or what decided.
    pub reason: String,
}

/// Tokens and cost of one provider message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The provider's message; the same id is counted once per session (rule L15).
    pub message_id: MessageId,
    /// What it cost.
    pub usage: Usage,
}

/// A whole message of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageComplete {
    /// The message.
    pub message_id: MessageId,
    /// Its text; empty where `streamed_bytes` says that it stands elsewhere.
    pub text: String,
    /// The length of a text that is not repeated here because the text deltas of the same run hold all of it; 0 where
    /// `text` holds it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub streamed_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The run completed, or was cancelled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamComplete {
    /// Whether it was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// The message that is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}

/// The run failed, or was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailed {
    /// What went wrong, for people.
    pub message: String,
    /// Which kind of failure: `exit_status`, `signal`, `owner_lost` … stable words for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Whether it was interrupted from outside and not by an error of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// The session became idle or running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusChanged {
    /// What it is now.
    pub state: SessionState,
    /// How its last run ended, when it became idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// A range of the log was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The first number it stands for.
    pub from: u64,
    /// The last number it stands for.
    pub to: u64,
}

/// Anything else a node says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Custom {
    /// Which kind of thing.
    pub name: String,
    /// What about it.
    pub data: Box<RawValue>,
}

#[cfg(test)]
mod tests;
