//! The loop of one connection: calls start in the order they came, answers leave as they are ready.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use jsonrpsee::{
    ConnectionId, Extensions, MethodCallback, MethodResponse,
    core::server::MethodResponseNotifyTx,
    types::{ErrorObjectOwned, Id as RpcId, Params},
};
use offspring_protocol::{
    SessionId,
    dsh::InitializeParams,
    rpc::{self, ErrorObject, Id, Message, NotRpc, code},
};
use offspring_transport::{FrameEvent, FrameReader};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    task::{
        AbortHandle,
        coop::{consume_budget, unconstrained},
    },
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    feed::Feed,
    outbox::{self, Gone, Outbox},
    prompts::Queue,
    refusal,
    server::{Ended, Inner},
};

/// What was queued before the end is written within this time, or not at all.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) server: Arc<Inner>,
    pub(crate) outbox: Outbox,
    state: Mutex<State>,
    /// The client said `shutdown`: nothing new is started.
    pub(crate) closing: AtomicBool,
    /// The connection is over.
    pub(crate) gone: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    initialized: Option<Arc<InitializeParams>>,
    sessions: HashMap<SessionId, Arc<tokio::sync::Mutex<Slot>>>,
    subscriptions: HashMap<u64, AbortHandle>,
    last_subscription: u64,
}

/// A session as this connection knows it. Its lock is fair, so that the calls of one session take effect in
/// the order they came.
#[derive(Debug, Default)]
pub(crate) struct Slot(pub(crate) Option<Open>);

/// A session that is open on this connection.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) queue: Arc<Queue>,
    pub(crate) feed: Feed,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client said it works with.
    pub(crate) fn initialized(&self) -> Result<Arc<InitializeParams>, ErrorObjectOwned> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(refusal::shutting_down());
        }
        self.state().initialized.clone().ok_or_else(refusal::not_initialized)
    }

    pub(crate) fn initialize(&self, params: InitializeParams) {
        self.state().initialized = Some(Arc::new(params));
    }

    /// The place of a session on this connection.
    pub(crate) fn slot(&self, id: &SessionId) -> Result<Arc<tokio::sync::Mutex<Slot>>, ErrorObjectOwned> {
        let mut state = self.state();
        if let Some(slot) = state.sessions.get(id) {
            return Ok(Arc::clone(slot));
        }
        let max = self.server.limits.open_sessions;
        if state.sessions.len() >= max {
            return Err(refusal::limit("this connection has too many sessions open", max, "open_sessions"));
        }
        Ok(Arc::clone(state.sessions.entry(id.clone()).or_default()))
    }

    /// Waits until the calls on this session that came before had their effect.
    pub(crate) async fn in_turn(&self, id: &SessionId) {
        let slot = self.state().sessions.get(id).cloned();
        if let Some(slot) = slot {
            drop(slot.lock().await);
        }
    }

    /// Forgets the place of a session that was not opened.
    pub(crate) fn forget(&self, id: &SessionId) {
        let mut state = self.state();
        // The map's own and the caller's: nobody else waits for it.
        if state.sessions.get(id).is_some_and(|slot| Arc::strong_count(slot) <= 2) {
            state.sessions.remove(id);
        }
    }

    /// Keeps a subscription, made from its number, until the connection ends or the client ends it.
    pub(crate) fn subscribe(&self, start: impl FnOnce(u64) -> AbortHandle) -> Result<u64, ErrorObjectOwned> {
        let mut state = self.state();
        state.subscriptions.retain(|_, task| !task.is_finished());
        let max = self.server.limits.subscriptions;
        if state.subscriptions.len() >= max {
            return Err(refusal::limit("this connection has too many subscriptions", max, "subscriptions"));
        }
        state.last_subscription += 1;
        let number = state.last_subscription;
        state.subscriptions.insert(number, start(number));
        Ok(number)
    }

    /// Ends a subscription; `false` when there is none of this number.
    pub(crate) fn unsubscribe(&self, number: u64) -> bool {
        self.state().subscriptions.remove(&number).inspect(AbortHandle::abort).is_some()
    }

    fn end(&self) {
        self.gone.cancel();
        let mut state = self.state();
        // Dropped, a feed ends.
        state.sessions.clear();
        state.subscriptions.drain().for_each(|(_, task)| task.abort());
    }
}

pub(crate) async fn serve<R, W>(server: Arc<Inner>, read: R, write: W) -> Ended
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outbox, lines) = Outbox::new(server.limits.outbox_bytes);
    let mut writing = tokio::spawn(outbox::write(write, lines));
    let mut frames = FrameReader::with_limit(read, server.limits.frame_bytes);
    let calls = Arc::new(Semaphore::new(server.limits.calls));
    let working = TaskTracker::new();
    let connection = Arc::new(Connection {
        server,
        outbox,
        state: Mutex::default(),
        closing: AtomicBool::new(false),
        gone: CancellationToken::new(),
    });
    let ended = loop {
        let event = tokio::select! {
            biased;
            _ = &mut writing => break Ended::Broken,
            event = frames.next() => event,
        };
        // Many lines may be here already: what else this thread does goes on between them.
        consume_budget().await;
        let reply = match event {
            Ok(Some(FrameEvent::Frame(frame))) if frame.trim_ascii().is_empty() => None,
            Ok(Some(FrameEvent::Frame(frame))) => match Message::classify(frame) {
                Ok(incoming) => match incoming.message {
                    Message::Request { id, method, params } => {
                        start(&connection, &calls, &working, id, &method, params).await
                    }
                    Message::Notification { method, .. } => {
                        tracing::debug!(%method, "a notification that nobody handles");
                        None
                    }
                    Message::Response { id, .. } => {
                        tracing::debug!(%id, "an answer that nobody waits for");
                        None
                    }
                },
                Err(why @ (NotRpc::NotJson { .. } | NotRpc::NotUtf8 { .. })) => {
                    Some(Reply::new(refused(&Id::Null, code::PARSE_ERROR, why.to_string())))
                }
                Err(why) => Some(Reply::new(refused(&Id::Null, code::INVALID_REQUEST, why.to_string()))),
            },
            Ok(Some(FrameEvent::FrameTooLarge { bytes })) => {
                let max = connection.server.limits.frame_bytes;
                let why = format!("the line has {bytes} bytes and the limit is {max} (frame_bytes)");
                Some(Reply::new(refused(&Id::Null, code::INVALID_REQUEST, why)))
            }
            Ok(Some(FrameEvent::Unterminated { .. }) | None) => break Ended::Eof,
            Err(error) => {
                tracing::debug!(%error, "a connection failed");
                break Ended::Broken;
            }
        };
        if let Some(reply) = reply {
            // While the client does not read, nothing more of it is read.
            let sent = tokio::select! {
                biased;
                _ = &mut writing => break Ended::Broken,
                sent = reply.send(&connection.outbox) => sent,
            };
            if sent.is_err() {
                break Ended::Broken;
            }
        }
        if connection.closing.load(Ordering::Relaxed) {
            break Ended::Shutdown;
        }
    };
    connection.end();
    if ended == Ended::Broken {
        connection.outbox.close();
        return ended;
    }
    let last_words = async {
        // Each call gets its answer: of those that wait still, that there will be none.
        working.close();
        working.wait().await;
        drop(connection);
        let _ = writing.await;
    };
    let _ = timeout(LAST_WORDS, last_words).await;
    ended
}

/// Starts a call: it is polled once here, so that what it changes at once is changed in the order of the
/// wire; what it waits for, it waits for on its own. Gives the answer if there is one already.
async fn start(
    connection: &Arc<Connection>,
    calls: &Arc<Semaphore>,
    working: &TaskTracker,
    id: Id,
    method: &str,
    params: Option<&RawValue>,
) -> Option<Reply> {
    let Some(MethodCallback::Async(handler)) = connection.server.methods.method(method) else {
        return Some(Reply::new(rpc_error(&id, &refusal::unknown_method(method))));
    };
    let Ok(place) = Arc::clone(calls).try_acquire_owned() else {
        let max = connection.server.limits.calls;
        let refusal = refusal::limit("too many calls wait for their answers", max, "calls");
        return Some(Reply::new(rpc_error(&id, &refusal)));
    };
    let mut extensions = Extensions::new();
    extensions.insert(Arc::clone(connection));
    let params = Params::new(params.map(RawValue::get)).into_owned();
    // The library takes fewer kinds of ids than JSON has; the client gets its own back (W5).
    let mut call = handler(RpcId::Null, params, ConnectionId(0), usize::MAX, extensions);
    // Without tokio's budget: a lock that is polled beyond it is not queued for, and a later call passes.
    let first = unconstrained(poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)))).await;
    match first {
        Poll::Ready(response) => Some(Reply::answer(&id, response)),
        Poll::Pending => {
            let connection = Arc::clone(connection);
            working.spawn(async move {
                let response = connection.gone.run_until_cancelled(call).await;
                let reply = match response {
                    Some(response) => Reply::answer(&id, response),
                    None => Reply::new(rpc_error(&id, &refusal::shutting_down())),
                };
                // Whoever asked may be gone.
                let _ = reply.send(&connection.outbox).await;
                drop(place);
            });
            None
        }
    }
}

/// What a call is answered, and who waits until that is queued.
struct Reply {
    line: String,
    queued: Option<MethodResponseNotifyTx>,
}

impl Reply {
    const fn new(line: String) -> Self {
        Self { line, queued: None }
    }

    fn answer(id: &Id, response: MethodResponse) -> Self {
        let line = answer(id, &response);
        let (_, queued, _) = response.into_parts();
        Self { line, queued }
    }

    async fn send(self, outbox: &Outbox) -> Result<(), Gone> {
        let sent = outbox.send(self.line).await;
        if let Some(queued) = self.queued {
            queued.notify(sent.is_ok());
        }
        sent
    }
}

/// The answer with the id that the client gave.
fn answer(id: &Id, response: &MethodResponse) -> String {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
        #[serde(default)]
        error: Option<ErrorObject>,
    }
    let written = match serde_json::from_str(response.as_json().get()) {
        Ok(Answer { error: Some(error), .. }) => rpc::error_response(id, &error),
        Ok(Answer { result: Some(result), .. }) => rpc::response(id, result),
        Ok(Answer { .. }) => rpc::response(id, &()),
        Err(error) => return refused(id, code::INTERNAL_ERROR, error.to_string()),
    };
    written.unwrap_or_else(|error| refused(id, code::INTERNAL_ERROR, error.to_string()))
}

fn rpc_error(id: &Id, error: &ErrorObjectOwned) -> String {
    let data = error.data().map(ToOwned::to_owned);
    let error = ErrorObject { code: error.code().into(), message: error.message().to_owned(), data };
    rpc::error_response(id, &error).unwrap_or_default()
}

fn refused(id: &Id, number: i64, message: String) -> String {
    rpc::error_response(id, &ErrorObject::new(number, message)).unwrap_or_default()
}
