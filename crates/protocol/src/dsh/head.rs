//! What routing needs to know of a frame, read in one pass over its bytes.

mod scan;

use std::{borrow::Cow, collections::HashMap};

use serde_json::value::RawValue;

use super::{SESSION_EVENT, SESSION_STATUS, SUBAGENT_FINISHED, SUBAGENT_STARTED};
use crate::rpc::{Incoming, Message, NotRpc};

/// A frame: a notification by its head, or any other message classified.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A notification.
    Notification(Head<'a>),
    /// A request or a response.
    Other(Incoming<'a>),
}

/// Whose a notification is. What is absent, or is no string, is `None`; nothing is checked but that the
/// frame is JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// Whether the frame says `"jsonrpc": "2.0"`.
    pub strict: bool,
    /// `session.event`, …
    pub method: Cow<'a, str>,
    /// `params.sessionId`
    pub session: Option<Cow<'a, str>>,
    /// `params.parentSessionId`
    pub parent: Option<Cow<'a, str>>,
    /// `params.childSessionId`
    pub child: Option<Cow<'a, str>>,
    /// `params.status`: `idle` or `running` of a session, `ok` or `error` of a finish.
    pub status: Option<Cow<'a, str>>,
    /// `params.event.type`
    pub event_type: Option<Cow<'a, str>>,
}

impl<'a> Frame<'a> {
    /// Reads a frame, given without its line feed.
    ///
    /// A notification costs one pass over its bytes: members that mean nothing to routing are checked to be
    /// JSON and passed over. Where a member of `params` is given twice the last one counts, as in every
    /// JSON library a peer is likely to use.
    ///
    /// # Errors
    /// [`NotRpc`] as [`Message::classify`] has it.
    ///
    /// ```
    /// use offspring_protocol::dsh::Frame;
    ///
    /// let frame = br#"{"jsonrpc":"2.0","method":"session.status","params":{"sessionId":"r","status":"idle"}}"#;
    /// let Frame::Notification(head) = Frame::read(frame)? else { unreachable!() };
    /// assert_eq!((&*head.method, head.session.as_deref()), ("session.status", Some("r")));
    /// assert!(matches!(Frame::read(br#"{"id":1,"result":{}}"#)?, Frame::Other(_)));
    /// # Ok::<(), offspring_protocol::rpc::NotRpc>(())
    /// ```
    pub fn read(frame: &'a [u8]) -> Result<Self, NotRpc> {
        match std::str::from_utf8(frame) {
            Ok(text) => Self::of_text(text),
            Err(_) => Self::with_care(frame),
        }
    }

    /// As [`read`](Self::read), for a frame that is known to be text.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_text(frame: &'a str) -> Result<Self, NotRpc> {
        match scan::notification(frame) {
            Some(head) => Ok(Self::Notification(head)),
            // The quick way knows plain notifications only; whatever is odd in any way is read with all care.
            None => Self::with_care(frame.as_bytes()),
        }
    }

    fn with_care(frame: &'a [u8]) -> Result<Self, NotRpc> {
        let incoming = Message::classify(frame)?;
        Ok(match incoming.message {
            Message::Notification { method, params } => {
                let head = Head { strict: incoming.strict, method, ..Head::default() };
                Self::Notification(params.map_or(head.clone(), |params| head.with_params(params)))
            }
            message @ (Message::Request { .. } | Message::Response { .. }) => {
                Self::Other(Incoming { strict: incoming.strict, message })
            }
        })
    }
}

impl<'a> Head<'a> {
    /// Whether it is one of the four notifications of this wire.
    #[must_use]
    pub fn is_known(&self) -> bool {
        [SESSION_EVENT, SESSION_STATUS, SUBAGENT_STARTED, SUBAGENT_FINISHED].contains(&&*self.method)
    }

    /// Takes from params what a careful reading finds; what is odd in them stays absent.
    fn with_params(mut self, params: &'a RawValue) -> Self {
        // Of a member that is given twice the last one counts.
        type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;
        let members = |raw: &'a RawValue| serde_json::from_str::<Members<'a>>(raw.get()).unwrap_or_default();
        let text = |raw: &'a RawValue| serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned);
        let params = members(params);
        let member = |name: &str| params.get(name).copied().and_then(text);
        self.session = member("sessionId");
        self.parent = member("parentSessionId");
        self.child = member("childSessionId");
        self.status = member("status");
        self.event_type =
            params.get("event").and_then(|event| members(event).get("type").copied().and_then(text));
        self
    }
}
