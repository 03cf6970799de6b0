//! What the notifications say.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{SESSION_EVENT, SESSION_STATUS, SUBAGENT_FINISHED, SUBAGENT_STARTED};
use crate::{MessageId, SessionId, SessionState};

/// A notification, parsed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// [`SESSION_EVENT`]
    Event(SessionEvent),
    /// [`SESSION_STATUS`]
    Status(Status),
    /// [`SUBAGENT_STARTED`]
    Started(Started),
    /// [`SUBAGENT_FINISHED`]
    Finished(Finished),
    /// One that this wire does not have: a later runtime's. Its params are kept as they came.
    Other {
        /// Its method.
        method: String,
        /// Its params.
        params: Option<Box<RawValue>>,
    },
}

impl Notice {
    /// Parses a notification by its method.
    ///
    /// # Errors
    /// The parser's, when a known notification lacks what it always has.
    pub fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, serde_json::Error> {
        let text = params.map_or("null", RawValue::get);
        Ok(match method {
            SESSION_EVENT => Self::Event(serde_json::from_str(text)?),
            SESSION_STATUS => Self::Status(serde_json::from_str(text)?),
            SUBAGENT_STARTED => Self::Started(serde_json::from_str(text)?),
            SUBAGENT_FINISHED => Self::Finished(serde_json::from_str(text)?),
            _ => Self::Other { method: method.to_owned(), params: params.map(ToOwned::to_owned) },
        })
    }
}

/// An event of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEvent {
    /// Whose.
    pub session_id: SessionId,
    /// What happened.
    pub event: EventBody,
}

/// What happened in a session. Members beyond these are in the frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventBody {
    /// `assistant/message`, `tool/call`, …: an open-ended list.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its number within the session. It starts at 0, 3, 4 or 21 and has gaps: order is that of the wire.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Milliseconds since 1970, by the runtime's clock. For people.
    #[serde(default)]
    pub time: Option<f64>,
    /// More about it, by its type.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

/// A session became idle or running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whose.
    pub session_id: SessionId,
    /// What it is now.
    pub status: SessionState,
}

/// A session started a child, or re-activated one (rules T2, T3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// Who started it.
    pub parent_session_id: SessionId,
    /// What was started.
    pub child_session_id: SessionId,
}

/// A child finished (rule T4).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finished {
    /// Who had started it; not necessarily who is its parent by now.
    pub parent_session_id: SessionId,
    /// What finished.
    pub child_session_id: SessionId,
    /// How it was made: `spawn`, `fork`, …
    #[serde(default)]
    pub provider: Option<String>,
    /// The runtime's name for it; the child id on 0.2.1rc2.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// `ok` or `error`.
    #[serde(default)]
    pub status: Option<FinishedStatus>,
    /// `completed`, `max-tokens`, `error`, `aborted`, …
    #[serde(default)]
    pub stop_reason: Option<String>,
    /// The content blocks of its last message; absent when it wrote none.
    #[serde(default)]
    pub last_assistant_message: Option<Vec<Box<RawValue>>>,
}

impl Finished {
    /// The text of its last message, `None` when it wrote none.
    #[must_use]
    pub fn last_text(&self) -> Option<String> {
        let blocks = self.last_assistant_message.as_ref()?;
        Some(blocks.iter().filter_map(|block| block_text(block)).collect())
    }
}

/// How a child finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FinishedStatus {
    /// It did what it was asked, or as much as the runtime counts as that.
    Ok,
    /// It did not.
    Error,
    /// A word of a later runtime.
    #[serde(untagged)]
    Other(String),
}

/// The ids of the messages that came into an inbox, from the data of
/// [`agent/inbox/spliced`](super::INBOX_SPLICED).
#[must_use]
pub fn inbox_message_ids(data: &RawValue) -> Vec<MessageId> {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        inserted: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Message {
        id: MessageId,
    }
    let Ok(data) = serde_json::from_str::<Data<'_>>(data.get()) else { return Vec::new() };
    let id = |raw: &&RawValue| serde_json::from_str::<Message>(raw.get()).ok().map(|message| message.id);
    data.inserted.iter().filter_map(id).collect()
}

/// The text of a whole message, from the data of [`assistant/message`](super::ASSISTANT_MESSAGE); empty
/// when it holds other blocks only, `None` when it has no list of blocks.
#[must_use]
pub fn assistant_text(data: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let data: Data<'_> = serde_json::from_str(data.get()).ok()?;
    // A runtime of 0.1 has the content in the data itself.
    let content = match data.message.map(|message| serde_json::from_str::<Data<'_>>(message.get())) {
        Some(Ok(message)) => message.content?,
        Some(Err(_)) | None => data.content?,
    };
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    Some(blocks.into_iter().filter_map(block_text).collect())
}

/// Why a model turn ended, from the data of [`turn/end`](super::TURN_END): `completed`, `error`,
/// `max-tokens`, …; `None` when it gives no such word.
#[must_use]
pub fn turn_end_kind(data: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        reason: Reason,
    }
    #[derive(Deserialize)]
    struct Reason {
        kind: String,
    }
    serde_json::from_str::<Data>(data.get()).ok().map(|data| data.reason.kind)
}

/// The text of a content block of type `text`.
fn block_text(block: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow)]
        text: Option<Cow<'a, str>>,
    }
    let block: Block<'_> = serde_json::from_str(block.get()).ok()?;
    (block.kind == "text").then(|| block.text.unwrap_or_default().into_owned())
}
