//! A notification while the line it came in lies where it was read.

use std::borrow::Cow;

use offspring_protocol::dsh::{Head, Notice, SESSION_EVENT};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Notification;

/// A line and what routing found in it.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(super) number: u64,
    /// The frame, and behind it those of its strings that were escaped in it.
    pub(super) text: &'a str,
    pub(super) parts: Parts,
}

/// Where in its text a line has what.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    frame_bytes: u32,
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

impl<'a> Line<'a> {
    /// `None` when the frame is larger than 4 GiB, which no limit of a reader allows. `room` takes a copy of a frame
    /// with escaped strings.
    pub(crate) fn new(number: u64, frame: &'a str, head: &Head<'_>, room: &'a mut String) -> Option<Self> {
        room.clear();
        let mut place = |part: &str| {
            // A part without escapes was read where it lies.
            let at = (part.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
            if at < frame.len() && frame.get(at..at + part.len()) == Some(part) {
                return span(at, part.len());
            }
            if room.is_empty() {
                room.push_str(frame);
            }
            let at = room.len();
            room.push_str(part);
            span(at, part.len())
        };
        let mut optional = |part: &Option<Cow<'_, str>>| part.as_ref().map_or(Some(NONE), |part| place(part));
        let word = if head.method == SESSION_EVENT { &head.event_type } else { &head.status };
        let (session, parent, child) =
            (optional(&head.session)?, optional(&head.parent)?, optional(&head.child)?);
        let word = optional(word)?;
        let method = if head.method.is_empty() { span(0, 0)? } else { place(&head.method)? };
        let frame_bytes = u32::try_from(frame.len()).ok()?;
        let text = if room.is_empty() { frame } else { room };
        Some(Self { number, text, parts: Parts { frame_bytes, method, session, parent, child, word } })
    }

    pub(crate) fn method(&self) -> &'a str {
        self.at(self.parts.method).unwrap_or_default()
    }

    pub(crate) fn session_id(&self) -> Option<&'a str> {
        self.at(self.parts.session)
    }

    pub(crate) fn parent_session_id(&self) -> Option<&'a str> {
        self.at(self.parts.parent)
    }

    pub(crate) fn child_session_id(&self) -> Option<&'a str> {
        self.at(self.parts.child)
    }

    pub(crate) fn event_type(&self) -> Option<&'a str> {
        self.at(self.parts.word).filter(|_| self.is_event())
    }

    pub(crate) fn status(&self) -> Option<&'a str> {
        self.at(self.parts.word).filter(|_| !self.is_event())
    }

    pub(crate) fn frame(&self) -> &'a str {
        self.text.get(..self.parts.frame_bytes as usize).unwrap_or_default()
    }

    /// As [`Notification::cost_bytes`].
    pub(crate) fn cost_bytes(&self) -> usize {
        self.text.len() + size_of::<Notification>()
    }

    pub(crate) fn params(&self) -> Option<&'a RawValue> {
        self.read_params().ok().flatten()
    }

    pub(super) fn read_params(&self) -> Result<Option<&'a RawValue>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        serde_json::from_str(self.frame()).map(|members: Members<'a>| members.params)
    }

    pub(crate) fn notice(&self) -> Result<Notice, serde_json::Error> {
        Notice::parse(self.method(), self.params())
    }

    pub(crate) fn event_data(&self) -> Option<&'a RawValue> {
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

    fn at(&self, span: Span) -> Option<&'a str> {
        let at = span.at as usize;
        self.text.get(at..at.checked_add(span.bytes as usize)?)
    }
}

fn span(at: usize, bytes: usize) -> Option<Span> {
    Some(Span { at: u32::try_from(at).ok()?, bytes: u32::try_from(bytes).ok()? })
}
