//! What routing needs to know of a frame, read in one pass over its bytes.

mod scan;

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
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
        match scan::notification(frame).or_else(|| plain_notification(frame)) {
            Some(head) => Ok(Self::Notification(head)),
            // The quick ways know plain notifications only; whatever is odd in any way is read with all care.
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
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            session_id: Option<&'a RawValue>,
            #[serde(borrow)]
            parent_session_id: Option<&'a RawValue>,
            #[serde(borrow)]
            child_session_id: Option<&'a RawValue>,
            #[serde(borrow)]
            status: Option<&'a RawValue>,
            #[serde(borrow)]
            event: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<&'a RawValue>,
        }
        let text =
            |raw: Option<&'a RawValue>| serde_json::from_str::<String>(raw?.get()).ok().map(Cow::Owned);
        if let Ok(params) = serde_json::from_str::<Params<'a>>(params.get()) {
            self.session = text(params.session_id);
            self.parent = text(params.parent_session_id);
            self.child = text(params.child_session_id);
            self.status = text(params.status);
            let event = params.event.and_then(|event| serde_json::from_str::<Event<'a>>(event.get()).ok());
            self.event_type = text(event.and_then(|event| event.kind));
        }
        self
    }
}

fn plain_notification(text: &str) -> Option<Head<'_>> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let head = parser.deserialize_map(EnvelopeVisitor).ok()??;
    parser.end().ok()?;
    Some(head)
}

/// The head, or `None` for whatever is no plain notification; what follows is then still read.
struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Option<Head<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut head = Head::default();
        let (mut versions, mut methods, mut params, mut other) = (0, 0, 0, 0);
        while let Some(name) = map.next_key_seed(Key)? {
            match name {
                Name::Jsonrpc => {
                    versions += 1;
                    head.strict = map.next_value::<Text<'de>>()?.0.as_deref() == Some("2.0");
                }
                Name::Method => {
                    methods += 1;
                    match map.next_value::<Text<'de>>()?.0 {
                        Some(method) => head.method = method,
                        None => other += 1,
                    }
                }
                Name::Params => {
                    params += 1;
                    map.next_value_seed(Params(&mut head))?;
                }
                Name::Answer => {
                    other += 1;
                    map.next_value::<IgnoredAny>()?;
                }
                Name::Session | Name::Parent | Name::Child | Name::Status | Name::Event | Name::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let is_plain = methods == 1 && other == 0 && versions <= 1 && params <= 1;
        Ok(is_plain.then_some(head))
    }
}

/// `params`: its members where it is an object, nothing where it is not.
struct Params<'s, 'de>(&'s mut Head<'de>);

impl<'de> DeserializeSeed<'de> for Params<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Params<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("params")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Key)? {
            match name {
                Name::Session => self.0.session = map.next_value::<Text<'de>>()?.0,
                Name::Parent => self.0.parent = map.next_value::<Text<'de>>()?.0,
                Name::Child => self.0.child = map.next_value::<Text<'de>>()?.0,
                Name::Status => self.0.status = map.next_value::<Text<'de>>()?.0,
                Name::Event => self.0.event_type = map.next_value::<EventType<'de>>()?.0,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A string, or nothing where there is something else.
#[derive(Default)]
struct Text<'de>(Option<Cow<'de, str>>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }
}

/// The `type` of an event, or nothing where there is none.
struct EventType<'de>(Option<Cow<'de, str>>);

impl<'de> Deserialize<'de> for EventType<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut head = Head::default();
        deserializer.deserialize_any(EventVisitor(&mut head))?;
        Ok(Self(head.event_type))
    }
}

struct EventVisitor<'s, 'de>(&'s mut Head<'de>);

impl<'de> Visitor<'de> for EventVisitor<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(is_type) = map.next_key_seed(IsType)? {
            if is_type {
                self.0.event_type = map.next_value::<Text<'de>>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_borrowed_str<E>(self, _: &'de str) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Name {
    Jsonrpc,
    Method,
    Params,
    /// `id`, `result` or `error`: no plain notification has one.
    Answer,
    Session,
    Parent,
    Child,
    Status,
    Event,
    Other,
}

struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Name, E> {
        Ok(match name {
            b"jsonrpc" => Name::Jsonrpc,
            b"method" => Name::Method,
            b"params" => Name::Params,
            b"id" | b"result" | b"error" => Name::Answer,
            b"sessionId" => Name::Session,
            b"parentSessionId" => Name::Parent,
            b"childSessionId" => Name::Child,
            b"status" => Name::Status,
            b"event" => Name::Event,
            _ => Name::Other,
        })
    }
}

/// Whether a member of an event is its type.
struct IsType;

impl<'de> DeserializeSeed<'de> for IsType {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for IsType {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == b"type")
    }
}
