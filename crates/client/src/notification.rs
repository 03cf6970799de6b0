//! A notification of the runtime, kept as the line it came in.

mod block;
mod line;

use std::{fmt, sync::Arc};

use offspring_protocol::dsh::Notice;
use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeStruct},
};
use serde_json::value::RawValue;

use block::Block;
pub(crate) use block::Blocks;
pub(crate) use line::Line;
use line::Parts;

/// A notification: the frame as it came, and what routing had to find in it. Cheap to clone.
///
/// Payloads stay raw until somebody looks: [`params`](Self::params), [`notice`](Self::notice). It takes the
/// bytes of its frame, however often it is cloned, and 64 more per place it stands in. Those of one
/// [`TurnResult`](crate::TurnResult) share memory in pieces of at most 64 KiB: who keeps one of them for long, and not
/// the others, keeps its piece, or a copy of its [`frame`](Self::frame).
///
/// Serialises as `{"method": …, "params": …}`.
#[derive(Clone)]
pub struct Notification {
    block: Arc<Block>,
    /// Where in the block its text begins.
    at: u32,
    bytes: u32,
    number: u64,
    parts: Parts,
}

impl Notification {
    /// One with memory of its own.
    pub(crate) fn alone(line: &Line<'_>) -> Self {
        Self::in_block(line, Arc::new(Block::of_one(line.text)), 0)
    }

    /// One whose text stands in this block.
    fn in_block(line: &Line<'_>, block: Arc<Block>, at: u32) -> Self {
        let bytes = u32::try_from(line.text.len()).unwrap_or(u32::MAX);
        Self { block, at, bytes, number: line.number, parts: line.parts }
    }

    pub(crate) fn line(&self) -> Line<'_> {
        let at = self.at as usize;
        let text = self.block.text().get(at..at + self.bytes as usize).unwrap_or_default();
        Line { number: self.number, text, parts: self.parts }
    }

    /// Which line of the wire it was, from 1, every line counted. Grows in wire order (T9).
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// `session.event`, `session.status`, `subagent.started`, `subagent.finished`, or what a later runtime
    /// sends.
    #[must_use]
    pub fn method(&self) -> &str {
        self.line().method()
    }

    /// `params.sessionId`: whose event or status it is.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.line().session_id()
    }

    /// `params.parentSessionId` of a start or a finish.
    #[must_use]
    pub fn parent_session_id(&self) -> Option<&str> {
        self.line().parent_session_id()
    }

    /// `params.childSessionId` of a start or a finish.
    #[must_use]
    pub fn child_session_id(&self) -> Option<&str> {
        self.line().child_session_id()
    }

    /// `params.event.type` of a `session.event`.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.line().event_type()
    }

    /// `params.status` of anything that is no `session.event`: `idle`, `running`, `ok`, `error`.
    #[must_use]
    pub fn status(&self) -> Option<&str> {
        self.line().status()
    }

    /// The line as it came, without its line end.
    #[must_use]
    pub fn frame(&self) -> &str {
        self.line().frame()
    }

    /// What it takes in a bounded queue, in bytes: its frame and what is kept beside it.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        self.bytes as usize + size_of::<Self>()
    }

    /// Its params, unparsed. Reads the frame once more.
    #[must_use]
    pub fn params(&self) -> Option<&RawValue> {
        self.line().params()
    }

    /// What it says, parsed.
    ///
    /// # Errors
    /// The parser's, when a known notification lacks what it always has.
    pub fn notice(&self) -> Result<Notice, serde_json::Error> {
        self.line().notice()
    }

    /// The data of a `session.event`, unparsed.
    #[must_use]
    pub fn event_data(&self) -> Option<&RawValue> {
        self.line().event_data()
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The frame may be megabytes and may quote a secret (W10).
        let mut debug = f.debug_struct("Notification");
        debug.field("number", &self.number).field("method", &self.method());
        let ids = [
            ("session", self.session_id()),
            ("parent", self.parent_session_id()),
            ("child", self.child_session_id()),
            ("event", self.event_type()),
            ("status", self.status()),
        ];
        for (name, value) in ids {
            if let Some(value) = value {
                debug.field(name, &value);
            }
        }
        debug.finish()
    }
}

impl Serialize for Notification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let params = self.line().read_params().map_err(S::Error::custom)?;
        let mut object = serializer.serialize_struct("Notification", 2)?;
        object.serialize_field("method", self.method())?;
        object.serialize_field("params", &params)?;
        object.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use offspring_protocol::dsh::Frame;

    use super::*;

    /// The notification that a line holds.
    pub(crate) fn notification(number: u64, line: &str) -> Notification {
        match Frame::read(line.as_bytes()) {
            Ok(Frame::Notification(head)) => {
                let mut room = String::new();
                Notification::alone(&Line::new(number, line, &head, &mut room).unwrap())
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    pub(crate) fn event(session: &str, kind: &str, data: &str) -> Notification {
        let line = format!(
            r#"{{"method":"session.event","params":{{"sessionId":"{session}","event":{{"type":"{kind}","data":{data}}}}}}}"#
        );
        notification(1, &line)
    }

    /// The receipt of the message `m` in the session `r`.
    pub(crate) fn receipt() -> Notification {
        event("r", "agent/inbox/spliced", r#"{"inserted":[{"id":"m","role":"user"}]}"#)
    }

    /// A message of an agent; all of one letter cost the same.
    pub(crate) fn text(session: &str, text: &str) -> Notification {
        let data = format!(r#"{{"message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#);
        event(session, "assistant/message", &data)
    }

    pub(crate) fn status(session: &str, word: &str) -> Notification {
        let params = format!(r#"{{"sessionId":"{session}","status":"{word}"}}"#);
        notification(1, &format!(r#"{{"method":"session.status","params":{params}}}"#))
    }

    pub(crate) fn started(parent: &str, child: &str) -> Notification {
        let params = format!(r#"{{"parentSessionId":"{parent}","childSessionId":"{child}"}}"#);
        notification(1, &format!(r#"{{"method":"subagent.started","params":{params}}}"#))
    }

    pub(crate) fn finished(parent: &str, child: &str) -> Notification {
        let params = format!(r#"{{"parentSessionId":"{parent}","childSessionId":"{child}","status":"ok"}}"#);
        notification(1, &format!(r#"{{"method":"subagent.finished","params":{params}}}"#))
    }

    #[test]
    fn t1_ids_are_found_in_the_frame_and_escaped_ones_beside_it() {
        let line =
            r#"{"method":"subagent.started","params":{"parentSessionId":"p","childSessionId":"c\u0041\n"}}"#;
        let started = notification(7, line);
        assert_eq!(started.method(), "subagent.started");
        assert_eq!((started.parent_session_id(), started.child_session_id()), (Some("p"), Some("cA\n")));
        assert_eq!((started.session_id(), started.event_type(), started.status()), (None, None, None));
        assert_eq!((started.frame(), started.number()), (line, 7));
        assert!(matches!(started.notice(), Ok(Notice::Started(_))));
    }

    #[test]
    fn an_event_and_a_status_keep_their_word_and_their_data() {
        let line = r#"{"params":{"event":{"data":{"a":[1.50]},"type":"x/y"},"sessionId":"s","status":"odd"},"method":"session.event"}"#;
        let event = notification(1, line);
        assert_eq!((event.event_type(), event.status()), (Some("x/y"), None));
        assert_eq!(event.event_data().map(RawValue::get), Some(r#"{"a":[1.50]}"#));
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"method":"session.event","params":{"event":{"data":{"a":[1.50]},"type":"x/y"},"sessionId":"s","status":"odd"}}"#
        );
        let status =
            notification(2, r#"{"method":"session.status","params":{"sessionId":"s","status":"idle"}}"#);
        assert_eq!((status.event_type(), status.status()), (None, Some("idle")));
        let bare = notification(3, r#"{"method":""}"#);
        assert_eq!((bare.method(), bare.params().is_none()), ("", true));
    }
}
