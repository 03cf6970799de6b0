//! JSON-RPC 2.0 messages, classified once from borrowed bytes.
//!
//! No I/O and no method is known here. Reading: [`Message::classify`] looks at one frame in one pass and
//! leaves every payload as raw JSON for whoever cares to parse it. Writing: [`request`], [`notification`],
//! [`response`] and [`error_response`] make one line each.
//!
//! Reading is tolerant where peers are known to differ, and never guesses beyond that (rule W3):
//!
//! | the peer sends | what it is |
//! |---|---|
//! | no `"jsonrpc"`, or another version | the message, with [`Incoming::strict`] false |
//! | members nobody defined | ignored |
//! | `"error": null` beside a result | a result |
//! | a result **and** an error | the error: a caller that took the result would miss a failure |
//! | `"result": null` | a result, `null` |
//! | `"params": null` | no params |
//! | `"id": null` on a call | a request with [`Id::Null`] |
//! | `"method"` beside an id and a result or an error that is not null | a response |
//! | any integer as error code | kept as `i64` |
//! | an array (a batch), a scalar, an object that is neither call nor answer, a member twice | [`NotRpc::NotRpc`] |
//!
//! ```
//! use offspring_protocol::rpc::{Id, Message, request};
//!
//! let line = request(&Id::from(7), "task/start", &["scan"])?;
//! assert_eq!(line, r#"{"jsonrpc":"2.0","id":7,"method":"task/start","params":["scan"]}"#);
//!
//! let incoming = Message::classify(line.as_bytes())?;
//! assert!(incoming.strict);
//! let Message::Request { id, method, params } = incoming.message else { return Err("no request".into()) };
//! assert_eq!((id, &*method), (Id::from(7), "task/start"));
//! assert_eq!(params.map(|raw| raw.get()), Some(r#"["scan"]"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod classify;
mod error;
mod id;
mod outgoing;
#[cfg(test)]
mod tests;

pub use classify::{Incoming, Message, NotRpc, OwnedMessage};
pub use error::{ErrorObject, code};
pub use id::{Id, IdNumber};
pub use outgoing::{EncodeError, error_response, notification, request, response};
