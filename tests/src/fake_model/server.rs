//! The server: requests in, answers out, on a thread of its own, so that a test of any kind can use it.

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Handle, sync::oneshot};

use super::{
    answer::{Answer, Failures, Message, reply},
    gates::Gates,
    messages,
    script::Fault,
};

/// So many requests are remembered, the newest.
const REMEMBERED: usize = 4096;
/// A session's log may go along with a request.
const LARGEST_BODY: usize = 64 * 1024 * 1024;

/// A request for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The session that asked, where the runtime says so.
    pub session: String,
    /// The model it asked for.
    pub model: String,
    /// The tools it offered.
    pub tools: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    gates: Gates,
    failures: Mutex<Failures>,
    asked: Mutex<VecDeque<Asked>>,
    unknown: Mutex<VecDeque<String>>,
    count: AtomicU64,
}

/// A running model. Dropped, it stops and breaks its connections off.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeModel {
    /// On a port of the loopback that is free.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn start() -> Self {
        Self::start_on(0).expect("a free port of the loopback")
    }

    /// On this port of the loopback.
    ///
    /// # Errors
    /// When it cannot be listened on.
    pub fn start_on(port: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Not by the runtime: the caller may be inside of another one.
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::clone(&shared));
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("fake-model".to_owned()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                let serving = axum::serve(listener, router);
                tokio::select! {
                    _ = serving => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, shared, handle, stop: Some(stop), thread: Some(thread) })
    }

    /// What a runtime is told as the base of its provider.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens a gate, for those who stand at it and for those who come later.
    pub fn open(&self, gate: &str) {
        self.shared.gates.open(gate);
    }

    /// Closes a gate again.
    pub fn close(&self, gate: &str) {
        self.shared.gates.close(gate);
    }

    /// Waits until so many requests have come to a gate, counted from the beginning.
    ///
    /// # Panics
    /// When they do not come within [`GATE_BOUND`](super::GATE_BOUND).
    pub async fn arrived(&self, gate: &str, count: u64) {
        assert!(
            self.shared.gates.arrived(gate, count).await,
            "{count} requests did not come to gate `{gate}`"
        );
    }

    /// The same, for a test that is not async.
    ///
    /// # Panics
    /// When they do not come in time, and inside of an async runtime.
    pub fn wait_at(&self, gate: &str, count: u64) {
        self.handle.block_on(self.arrived(gate, count));
    }

    /// What was asked, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        locked(&self.shared.asked).iter().cloned().collect()
    }

    /// Requests for anything else, which got a 404.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        locked(&self.shared.unknown).iter().cloned().collect()
    }

    /// Serves until the process ends.
    pub fn serve(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember<T>(list: &Mutex<VecDeque<T>>, item: T) {
    let mut list = locked(list);
    if list.len() == REMEMBERED {
        list.pop_front();
    }
    list.push_back(item);
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/messages", post(message))
        .route("/gate/{name}", post(open))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(shared)
}

async fn open(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> StatusCode {
    shared.gates.open(&name);
    StatusCode::NO_CONTENT
}

async fn unknown(State(shared): State<Arc<Shared>>, method: Method, uri: Uri) -> Response {
    remember(&shared.unknown, format!("{method} {uri}"));
    error(StatusCode::NOT_FOUND, None, &format!("nothing is at {method} {uri}"))
}

async fn message(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return error(StatusCode::BAD_REQUEST, None, "the body is no JSON");
    };
    let session = headers.get("x-deepseek-harness-session-id").and_then(|value| value.to_str().ok());
    let session = session.unwrap_or_default().to_owned();
    let entries = messages::read(&body);
    let reply = reply(&session, &entries, &mut locked(&shared.failures));
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    remember(&shared.asked, Asked { session, model, tools: messages::tools(&body) });
    // moment: the script says how long
    tokio::time::sleep(reply.step.wait).await;
    if let Some(gate) = &reply.step.gate {
        shared.gates.pass(gate).await;
    }
    match reply.answer {
        Answer::Error { status, retry_after, message } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
            error(status, retry_after, &message)
        }
        Answer::Message(message) => {
            let number = shared.count.fetch_add(1, Ordering::Relaxed);
            streamed(messages::events(&body, &entries, &message, number), &message)
        }
    }
}

fn error(status: StatusCode, retry_after: Option<u32>, message: &str) -> Response {
    let body = messages::error(message).to_string();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn streamed(events: Vec<String>, message: &Message) -> Response {
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CONNECTION, "close")];
    let whole = stream::iter(events.into_iter().map(|event| Ok(Bytes::from(event))));
    let is_dropped = message.fault == Some(Fault::Drop);
    // An error amid the body is how the connection is broken off; a pause before it, because what was not sent until
    // then would be lost.
    let end = stream::iter(is_dropped.then_some(())).then(|()| async {
        tokio::task::yield_now().await;
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    });
    (head, Body::from_stream(whole.chain(end))).into_response()
}
