//! Requests of the runtime, and whoever answers them (W6).

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use offspring_protocol::rpc::{self, ErrorObject, Id, code};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};

/// Answers that wait to be written; a runtime that asks on and never reads loses its answers beyond them.
pub(crate) const QUEUED_REPLIES: usize = 1_024;

/// What answers the requests of a runtime: see [`on_request`](crate::ClientBuilder::on_request).
pub(crate) type Handler = dyn Fn(IncomingRequest) -> BoxFuture<'static, ()> + Send + Sync;

/// What a request of a runtime is about. No runtime up to 0.2.1rc2 sends any; the hook is for later ones, and
/// for servers of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// May an agent do something? (`permission/request`, `approval/request`)
    Approval,
    /// An agent asks its user something. (`user-question/request`, `question/request`)
    UserQuestion,
    /// Something else.
    Other,
}

/// A request of the runtime, to be answered once. Dropped without an answer it is refused, so that no side
/// hangs.
#[must_use = "a request that is dropped is refused"]
pub struct IncomingRequest {
    id: Option<Id>,
    method: String,
    params: Option<Box<RawValue>>,
    replies: mpsc::Sender<String>,
}

/// An answer was not given.
#[derive(Debug, Clone, thiserror::Error)]
#[error("failed to answer the runtime's request {method}: {reason}")]
pub struct ReplyError {
    /// What was asked.
    pub method: String,
    /// Why it was not answered.
    pub reason: String,
}

impl IncomingRequest {
    /// What is asked for.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self.method.as_str() {
            "permission/request" | "approval/request" => RequestKind::Approval,
            "user-question/request" | "question/request" => RequestKind::UserQuestion,
            _ => RequestKind::Other,
        }
    }

    /// Its params, unparsed.
    #[must_use]
    pub fn params(&self) -> Option<&RawValue> {
        self.params.as_deref()
    }

    /// Answers it.
    ///
    /// # Errors
    /// [`ReplyError`] when the result is no JSON or the runtime is gone.
    pub async fn respond<T: Serialize + ?Sized + Sync>(mut self, result: &T) -> Result<(), ReplyError> {
        let Some(id) = self.id.take() else { return Ok(()) };
        let reply = rpc::response(&id, result).map_err(|error| self.failed(error.to_string()))?;
        self.send(reply).await
    }

    /// Refuses it.
    ///
    /// # Errors
    /// [`ReplyError`] when the runtime is gone.
    pub async fn refuse(mut self, error: ErrorObject) -> Result<(), ReplyError> {
        let Some(id) = self.id.take() else { return Ok(()) };
        let reply = rpc::error_response(&id, &error).map_err(|error| self.failed(error.to_string()))?;
        self.send(reply).await
    }

    async fn send(&self, reply: String) -> Result<(), ReplyError> {
        self.replies.send(reply).await.map_err(|_| self.failed("the runtime is gone".to_owned()))
    }

    fn failed(&self, reason: String) -> ReplyError {
        ReplyError { method: self.method.clone(), reason }
    }
}

impl Drop for IncomingRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let error = ErrorObject::new(code::INTERNAL_ERROR, "the client did not answer this request");
            reply_now(&self.replies, &id, &error);
        }
    }
}

impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Gives requests to the handler, or refuses them at once.
pub(crate) struct Requests {
    handler: Option<Arc<Handler>>,
    replies: mpsc::Sender<String>,
    room: Arc<Semaphore>,
}

impl Requests {
    pub(crate) fn new(handler: Option<Arc<Handler>>, replies: mpsc::Sender<String>, at_once: usize) -> Self {
        Self { handler, replies, room: Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS))) }
    }

    /// Never waits: the reader of the wire calls it.
    pub(crate) fn take(&self, id: Id, method: String, params: Option<Box<RawValue>>) {
        let Some(handler) = &self.handler else {
            let error =
                ErrorObject::new(code::METHOD_NOT_FOUND, format!("this client does not handle {method}"));
            return reply_now(&self.replies, &id, &error);
        };
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            let error =
                ErrorObject::new(code::LIMIT_REACHED, "this client works on too many requests already");
            return reply_now(&self.replies, &id, &error);
        };
        let request = IncomingRequest { id: Some(id), method, params, replies: self.replies.clone() };
        let handler = handler.clone();
        // T11: a handler that panics, at once or later, fails on its own task; its request is refused by being
        // dropped.
        tokio::spawn(async move {
            handler(request).await;
            drop(permit);
        });
    }
}

fn reply_now(replies: &mpsc::Sender<String>, id: &Id, error: &ErrorObject) {
    let sent = rpc::error_response(id, error).map(|reply| replies.try_send(reply));
    if !matches!(sent, Ok(Ok(()))) {
        tracing::warn!(%id, "a request of the runtime was not answered: it does not read its answers");
    }
}
