//! What a frame is: request, notification, response, or none of them.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{ErrorObject, Id};

/// A classified frame that still borrows its payload from the frame.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Whether the frame says `"jsonrpc": "2.0"`. Without it a message is taken all the same.
    pub strict: bool,
    /// What it says.
    pub message: Message<'a>,
}

/// A JSON-RPC message with raw payloads.
#[derive(Debug)]
pub enum Message<'a> {
    /// A call that wants an answer.
    Request {
        /// To be given back in the answer.
        id: Id,
        /// What to call.
        method: Cow<'a, str>,
        /// Its arguments, unparsed.
        params: Option<&'a RawValue>,
    },
    /// A call that wants none.
    Notification {
        /// What happened.
        method: Cow<'a, str>,
        /// More about it, unparsed.
        params: Option<&'a RawValue>,
    },
    /// The answer to a request.
    Response {
        /// Which request.
        id: Id,
        /// The result, unparsed, or what went wrong.
        outcome: Result<&'a RawValue, ErrorObject>,
    },
}

/// A [`Message`] that owns its payload.
#[derive(Debug, Clone)]
pub enum OwnedMessage {
    /// A call that wants an answer.
    Request {
        /// To be given back in the answer.
        id: Id,
        /// What to call.
        method: String,
        /// Its arguments, unparsed.
        params: Option<Box<RawValue>>,
    },
    /// A call that wants none.
    Notification {
        /// What happened.
        method: String,
        /// More about it, unparsed.
        params: Option<Box<RawValue>>,
    },
    /// The answer to a request.
    Response {
        /// Which request.
        id: Id,
        /// The result, unparsed, or what went wrong.
        outcome: Result<Box<RawValue>, ErrorObject>,
    },
}

/// Why a frame is no JSON-RPC message (rule W3). None of them ends a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRpc {
    /// The bytes are no text.
    #[error("the line is not UTF-8 after byte {valid_up_to}")]
    NotUtf8 {
        /// How many bytes at its start are UTF-8.
        valid_up_to: usize,
    },
    /// The text is no JSON.
    #[error("the line is not JSON: {message} at byte {column}")]
    NotJson {
        /// What the parser did not like.
        message: String,
        /// Where, in bytes from 1.
        column: usize,
    },
    /// The JSON is no message.
    #[error("the line is JSON but no JSON-RPC message: {why}")]
    NotRpc {
        /// What it lacks or has too much of.
        why: &'static str,
    },
}

impl Message<'_> {
    /// Says what a frame is, in one pass over its bytes; payloads are checked to be JSON and stay raw.
    ///
    /// The frame comes without its line feed. The [module](super) says what is tolerated.
    ///
    /// # Errors
    /// [`NotRpc`] with the reason, for a diagnostic; the next frame is as good as any (rule W3).
    ///
    /// ```
    /// use offspring_protocol::rpc::{Message, NotRpc};
    ///
    /// assert!(matches!(Message::classify(b"Server listening"), Err(NotRpc::NotJson { column: 1, .. })));
    /// let incoming = Message::classify(br#"{"id":1,"result":{"n":1e400},"error":null}"#)?;
    /// assert!(matches!(incoming.message, Message::Response { outcome: Ok(raw), .. } if raw.get() == r#"{"n":1e400}"#));
    /// assert!(!incoming.strict);
    /// # Ok::<(), NotRpc>(())
    /// ```
    pub fn classify(frame: &[u8]) -> Result<Incoming<'_>, NotRpc> {
        let text = std::str::from_utf8(frame)
            .map_err(|error| NotRpc::NotUtf8 { valid_up_to: error.valid_up_to() })?;
        let mut parser = serde_json::Deserializer::from_str(text);
        let is_object = text.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(b'{');
        if !is_object {
            let parsed = parser.deserialize_ignored_any(IgnoredAny).and_then(|_| parser.end());
            parsed.map_err(|error| not_json(&error))?;
            return Err(NotRpc::NotRpc { why: "it is no object (batches are not supported)" });
        }
        let members =
            parser.deserialize_map(MembersVisitor).and_then(|members| parser.end().map(|()| members));
        members.map_err(|error| not_json(&error))?.into_incoming().map_err(|why| NotRpc::NotRpc { why })
    }

    /// Copies the payload, so that the message outlives its frame.
    #[must_use]
    pub fn into_owned(self) -> OwnedMessage {
        match self {
            Self::Request { id, method, params } => OwnedMessage::Request {
                id,
                method: method.into_owned(),
                params: params.map(RawValue::to_owned),
            },
            Self::Notification { method, params } => OwnedMessage::Notification {
                method: method.into_owned(),
                params: params.map(RawValue::to_owned),
            },
            Self::Response { id, outcome } => {
                OwnedMessage::Response { id, outcome: outcome.map(RawValue::to_owned) }
            }
        }
    }
}

fn not_json(error: &serde_json::Error) -> NotRpc {
    // The position is kept apart from the text: a frame is one line, so "line 1" says nothing.
    let mut message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    if message.ends_with(&position) {
        message.truncate(message.len() - position.len());
    }
    NotRpc::NotJson { message, column: error.column() }
}

/// The members that mean something, each raw and at most once.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    repeated: bool,
}

impl<'a> Members<'a> {
    fn into_incoming(self) -> Result<Incoming<'a>, &'static str> {
        if self.repeated {
            // Parsers disagree on which of the two counts.
            return Err("a member appears twice");
        }
        let strict = self.jsonrpc.is_some_and(|version| version.get() == "\"2.0\"");
        let id = match self.id {
            Some(raw) => Some(Id::from_raw(raw).ok_or("its id is neither number, string nor null")?),
            None => None,
        };
        let answers = self.result.is_some_and(is_not_null) || self.error.is_some_and(is_not_null);
        let message = match (self.method, id) {
            (Some(method), None) => Message::Notification {
                method: text(method)?,
                params: self.params.filter(|raw| is_not_null(raw)),
            },
            (Some(method), Some(id)) if !answers => Message::Request {
                id,
                method: text(method)?,
                params: self.params.filter(|raw| is_not_null(raw)),
            },
            (_, Some(id)) => {
                let outcome = match (self.error.filter(|raw| is_not_null(raw)), self.result) {
                    (Some(error), _) => Err(serde_json::from_str(error.get())
                        .map_err(|_| "its error has no integer code and message text")?),
                    (None, Some(result)) => Ok(result),
                    (None, None) => return Err("it has neither a method nor a result nor an error"),
                };
                Message::Response { id, outcome }
            }
            (None, None) if answers => return Err("it answers no id"),
            (None, None) => return Err("it has neither a method nor an id"),
        };
        Ok(Incoming { strict, message })
    }
}

fn is_not_null(raw: &RawValue) -> bool {
    raw.get() != "null"
}

/// The text of a JSON string, borrowed when nothing in it is escaped.
fn text(raw: &RawValue) -> Result<Cow<'_, str>, &'static str> {
    const WHY: &str = "its method is no text";
    let inner = raw.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(WHY)?;
    if inner.contains('\\') {
        // A lone surrogate is grammatical JSON and still no text.
        return serde_json::from_str(raw.get()).map(Cow::Owned).map_err(|_| WHY);
    }
    Ok(Cow::Borrowed(inner))
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let slot = match name {
                Name::Jsonrpc => &mut members.jsonrpc,
                Name::Id => &mut members.id,
                Name::Method => &mut members.method,
                Name::Params => &mut members.params,
                Name::Result => &mut members.result,
                Name::Error => &mut members.error,
                Name::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            members.repeated |= slot.is_some();
            *slot = Some(map.next_value()?);
        }
        Ok(members)
    }
}

enum Name {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Other,
}

struct NameSeed;

impl<'de> serde::de::DeserializeSeed<'de> for NameSeed {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        // As bytes: the name of a member that is ignored anyway need not be text.
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Name, E> {
        Ok(match name {
            b"jsonrpc" => Name::Jsonrpc,
            b"id" => Name::Id,
            b"method" => Name::Method,
            b"params" => Name::Params,
            b"result" => Name::Result,
            b"error" => Name::Error,
            _ => Name::Other,
        })
    }
}
