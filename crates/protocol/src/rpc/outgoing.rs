//! Messages on their way out: one line each.

use serde::Serialize;

use super::{ErrorObject, Id};

/// Why a message could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {what} as JSON: {source}")]
pub struct EncodeError {
    what: String,
    source: serde_json::Error,
}

/// A request. Params that serialise to `null` (`&()`, `&None::<T>`) are left out, as JSON-RPC wants.
///
/// # Errors
/// [`EncodeError`] when `params` cannot be written as JSON.
pub fn request<P: Serialize + ?Sized>(id: &Id, method: &str, params: &P) -> Result<String, EncodeError> {
    call(Some(id), method, params)
}

/// A notification. Params that serialise to `null` are left out.
///
/// # Errors
/// [`EncodeError`] when `params` cannot be written as JSON.
pub fn notification<P: Serialize + ?Sized>(method: &str, params: &P) -> Result<String, EncodeError> {
    call(None, method, params)
}

/// The answer to the request `id`: it succeeded.
///
/// # Errors
/// [`EncodeError`] when `result` cannot be written as JSON.
pub fn response<R: Serialize + ?Sized>(id: &Id, result: &R) -> Result<String, EncodeError> {
    answer(id, ",\"result\":", result)
}

/// The answer to the request `id`: it failed. [`Id::Null`] when the request had no readable id.
///
/// # Errors
/// [`EncodeError`] when the error cannot be written as JSON.
pub fn error_response(id: &Id, error: &ErrorObject) -> Result<String, EncodeError> {
    answer(id, ",\"error\":", error)
}

fn call<P: Serialize + ?Sized>(id: Option<&Id>, method: &str, params: &P) -> Result<String, EncodeError> {
    let what = || match id {
        Some(id) => format!("request {id} ({method})"),
        None => format!("notification {method}"),
    };
    let mut line = Line::new(what);
    if let Some(id) = id {
        line.member(",\"id\":", id)?;
    }
    line.member(",\"method\":", method)?;
    let without_params = line.bytes.len();
    line.member(",\"params\":", params)?;
    if line.bytes[without_params..] == *b",\"params\":null" {
        line.bytes.truncate(without_params);
    }
    line.finish()
}

fn answer<T: Serialize + ?Sized>(id: &Id, member: &str, value: &T) -> Result<String, EncodeError> {
    let mut line = Line::new(|| format!("the answer to request {id}"));
    line.member(",\"id\":", id)?;
    line.member(member, value)?;
    line.finish()
}

/// A JSON object under construction.
struct Line<W> {
    bytes: Vec<u8>,
    what: W,
}

impl<W: Fn() -> String> Line<W> {
    fn new(what: W) -> Self {
        Self { bytes: b"{\"jsonrpc\":\"2.0\"".to_vec(), what }
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), EncodeError> {
        self.bytes.extend_from_slice(name.as_bytes());
        serde_json::to_writer(&mut self.bytes, value).map_err(|source| self.error(source))
    }

    fn finish(mut self) -> Result<String, EncodeError> {
        self.bytes.push(b'}');
        // W1: serde_json writes no line feed of its own, but a raw payload is passed through as its author
        // laid it out. A line feed in valid JSON can only be white space between two tokens.
        for byte in &mut self.bytes {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        String::from_utf8(self.bytes).map_err(|source| EncodeError {
            what: (self.what)(),
            source: <serde_json::Error as serde::ser::Error>::custom(source),
        })
    }

    fn error(&self, source: serde_json::Error) -> EncodeError {
        EncodeError { what: (self.what)(), source }
    }
}
