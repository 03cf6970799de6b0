//! A notification of the runtime, kept as the line it came in.

use std::{borrow::Cow, fmt, sync::Arc};

use offspring_protocol::dsh::{Head, Notice, SESSION_EVENT};
use serde::{
    Deserialize, Serialize, Serializer,
    ser::{Error as _, SerializeStruct},
};
use serde_json::value::RawValue;

/// A notification: the frame as it came, and what routing had to find in it. Cheap to clone.
///
/// Payloads stay raw until somebody looks: [`params`](Self::params), [`notice`](Self::notice). It takes the
/// bytes of its frame and about 100 more, however often it is cloned, and 72 per place it stands in.
///
/// Serialises as `{"method": …, "params": …}`.
#[derive(Clone)]
pub struct Notification {
    /// The frame, and behind it those of its strings that were escaped in it.
    text: Arc<str>,
    frame_bytes: u32,
    number: u64,
    method: Span,
    session: Span,
    parent: Span,
    child: Span,
    /// The type of a `session.event`, the `status` of any other.
    word: Span,
}

/// A piece of the text; `NONE` for what is absent.
#[derive(Clone, Copy)]
struct Span {
    at: u32,
    bytes: u32,
}

const NONE: Span = Span { at: u32::MAX, bytes: 0 };

impl Notification {
    /// `None` when the frame is larger than 4 GiB, which no limit of a reader allows.
    pub(crate) fn new(number: u64, frame: &str, head: &Head<'_>) -> Option<Self> {
        let mut escaped = String::new();
        let mut place = |part: &Cow<'_, str>| match part {
            Cow::Borrowed(part) => {
                // A borrowed part lies in the frame it was read from.
                let at = (part.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
                (frame.get(at..at + part.len()) == Some(part)).then(|| span(at, part.len()))?
            }
            Cow::Owned(part) => {
                let at = frame.len() + escaped.len();
                escaped.push_str(part);
                span(at, part.len())
            }
        };
        let mut optional = |part: &Option<Cow<'_, str>>| part.as_ref().map_or(Some(NONE), &mut place);
        let word = if head.method == SESSION_EVENT { &head.event_type } else { &head.status };
        let (session, parent, child) =
            (optional(&head.session)?, optional(&head.parent)?, optional(&head.child)?);
        let word = optional(word)?;
        let method = match &head.method {
            // A default method is borrowed from nowhere.
            Cow::Borrowed("") => span(0, 0)?,
            method => place(method)?,
        };
        let frame_bytes = u32::try_from(frame.len()).ok()?;
        let text = if escaped.is_empty() { frame.into() } else { format!("{frame}{escaped}").into() };
        Some(Self { text, frame_bytes, number, method, session, parent, child, word })
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
        self.at(self.method).unwrap_or_default()
    }

    /// `params.sessionId`: whose event or status it is.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.at(self.session)
    }

    /// `params.parentSessionId` of a start or a finish.
    #[must_use]
    pub fn parent_session_id(&self) -> Option<&str> {
        self.at(self.parent)
    }

    /// `params.childSessionId` of a start or a finish.
    #[must_use]
    pub fn child_session_id(&self) -> Option<&str> {
        self.at(self.child)
    }

    /// `params.event.type` of a `session.event`.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.at(self.word).filter(|_| self.is_event())
    }

    /// `params.status` of anything that is no `session.event`: `idle`, `running`, `ok`, `error`.
    #[must_use]
    pub fn status(&self) -> Option<&str> {
        self.at(self.word).filter(|_| !self.is_event())
    }

    /// The line as it came, without its line end.
    #[must_use]
    pub fn frame(&self) -> &str {
        self.text.get(..self.frame_bytes as usize).unwrap_or_default()
    }

    /// What it takes in a bounded queue, in bytes: its frame and what is kept beside it.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        self.text.len() + size_of::<Self>()
    }

    /// Its params, unparsed. Reads the frame once more.
    #[must_use]
    pub fn params(&self) -> Option<&RawValue> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        serde_json::from_str::<Members<'_>>(self.frame()).ok()?.params
    }

    /// What it says, parsed.
    ///
    /// # Errors
    /// The parser's, when a known notification lacks what it always has.
    pub fn notice(&self) -> Result<Notice, serde_json::Error> {
        Notice::parse(self.method(), self.params())
    }

    /// The data of a `session.event`, unparsed.
    #[must_use]
    pub fn event_data(&self) -> Option<&RawValue> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            params: Params<'a>,
        }
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            event: Event<'a>,
        }
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        serde_json::from_str::<Members<'_>>(self.frame()).ok()?.params.event.data
    }

    fn is_event(&self) -> bool {
        self.method() == SESSION_EVENT
    }

    fn at(&self, span: Span) -> Option<&str> {
        let at = span.at as usize;
        self.text.get(at..at.checked_add(span.bytes as usize)?)
    }
}

fn span(at: usize, bytes: usize) -> Option<Span> {
    Some(Span { at: u32::try_from(at).ok()?, bytes: u32::try_from(bytes).ok()? })
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
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let members: Members<'_> = serde_json::from_str(self.frame()).map_err(S::Error::custom)?;
        let mut object = serializer.serialize_struct("Notification", 2)?;
        object.serialize_field("method", self.method())?;
        object.serialize_field("params", &members.params)?;
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
            Ok(Frame::Notification(head)) => Notification::new(number, line, &head).unwrap(),
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
