//! Limits and hooks of a client, and the ways to a runtime.

use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jsonrpsee::core::client::ClientBuilder as RpcBuilder;
use offspring_process::{Process, spawn};
use offspring_transport::{FrameReader, FrameWriter, SharedDiagnostics};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use crate::{
    client::{HarnessClient, Inner},
    command::RuntimeCommand,
    error::ClientError,
    hub::Hub,
    limits::Limits,
    link::{Demultiplexer, Direction, Outbox, Sink, Source, Tap, Writer},
    requests::{Handler, IncomingRequest, QUEUED_REPLIES, Requests},
};

/// Makes a [`HarnessClient`]: every limit and hook.
#[derive(Default)]
pub struct ClientBuilder {
    limits: Limits,
    handler: Option<Arc<Handler>>,
    tap: Option<Arc<Tap>>,
    allow_inactive: bool,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Every limit (default: [`Limits::default`]).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Who answers requests of the runtime (default: nobody, and each is answered `-32601` at once, W6). Runs on
    /// a task of its own per request, [`Limits::incoming_requests`] at a time.
    ///
    /// ```
    /// use offspring_client::{HarnessClient, RequestKind};
    ///
    /// let builder = HarnessClient::builder().on_request(|request| async move {
    ///     let answered = match request.kind() {
    ///         RequestKind::Approval => request.respond(&serde_json::json!({ "outcome": "approved" })).await,
    ///         _ => return, // dropped: refused
    ///     };
    ///     if let Err(error) = answered {
    ///         eprintln!("{error}");
    ///     }
    /// });
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn on_request<F, W>(mut self, handler: F) -> Self
    where
        F: Fn(IncomingRequest) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.handler = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Sees every frame that is sent or received, for a recording. It runs on the reader and the writer of the
    /// wire: it must not wait, and one that panics sees no more frames. Frames hold whatever prompts and answers hold, secrets included (W10).
    #[must_use]
    pub fn on_frame(mut self, tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static) -> Self {
        let failed = AtomicBool::new(false);
        self.tap = Some(Arc::new(move |direction, frame| {
            // T11: it harms only itself.
            if !failed.load(Ordering::Relaxed)
                && catch_unwind(AssertUnwindSafe(|| tap(direction, frame))).is_err()
            {
                failed.store(true, Ordering::Relaxed);
            }
        }));
        self
    }

    /// Whether a runtime that did not load all it was told to is used all the same (default: no, and
    /// [`ClientError::NotActivated`] says so).
    #[must_use]
    pub fn allow_inactive_plugins(mut self, allow: bool) -> Self {
        self.allow_inactive = allow;
        self
    }

    /// Starts a runtime; [`initialize`](HarnessClient::initialize) comes next.
    ///
    /// To be called on a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`ClientError::Program`] and [`ClientError::Spawn`]: then there is no process.
    pub fn start(self, command: &RuntimeCommand) -> Result<HarnessClient, ClientError> {
        let spec = command.spec(&self.limits)?;
        let mut process = spawn(&spec).map_err(|error| ClientError::Spawn(Arc::new(error)))?;
        let missing = || ClientError::BadAnswer { method: "start".into(), reason: "no pipe".into() };
        let output = process.take_stdout().ok_or_else(missing)?;
        let input = process.take_stdin().ok_or_else(missing)?;
        Ok(self.over(Box::new(output), Box::new(input), Some(Arc::new(process))))
    }

    /// Talks to a runtime over streams that are there already: what it writes, and what it reads.
    ///
    /// To be called on a tokio runtime with time.
    #[must_use]
    pub fn connect(
        self,
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
    ) -> HarnessClient {
        self.over(Box::new(output), Box::new(input), None)
    }

    /// Talks to a runtime behind a WebSocket, `ws://127.0.0.1:4000/` for example; `token` goes with it as a bearer
    /// token.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    #[cfg(feature = "websocket")]
    pub async fn connect_websocket(
        self,
        url: &str,
        token: Option<&str>,
    ) -> Result<HarnessClient, ClientError> {
        let connecting = crate::websocket::connect(url, token, self.limits.frame_bytes);
        let (source, sink) = match tokio::time::timeout(self.limits.initialize_within, connecting).await {
            Ok(connected) => connected?,
            Err(_) => {
                let reason = format!("no connection within {:?}", self.limits.initialize_within);
                return Err(ClientError::Connect { url: url.to_owned(), reason });
            }
        };
        Ok(self.link(Source::WebSocket(source), Sink::WebSocket(sink), None))
    }

    fn over(
        self,
        output: Box<dyn AsyncRead + Send + Unpin>,
        input: Box<dyn AsyncWrite + Send + Unpin>,
        process: Option<Arc<Process>>,
    ) -> HarnessClient {
        let limit = self.limits.frame_bytes;
        // What *we* write has no limit but memory: a prompt of any size is the caller's wish.
        let sink = FrameWriter::with_limit(input, usize::MAX);
        self.link(Source::Bytes(FrameReader::with_limit(output, limit)), Sink::Bytes(sink), process)
    }

    fn link(self, source: Source, sink: Sink, process: Option<Arc<Process>>) -> HarnessClient {
        let hub = Arc::new(Hub::new(self.limits));
        let junk = SharedDiagnostics::new(self.limits.diagnostics);
        let writer = Arc::new(Writer::new(sink, self.tap.clone()));
        let (replies, mut queued) = mpsc::channel::<String>(QUEUED_REPLIES);
        // Ends when nobody can reply any more: with the reader and the last request.
        let answering = Arc::downgrade(&writer);
        tokio::spawn(async move {
            while let Some(reply) = queued.recv().await {
                let Some(writer) = Weak::upgrade(&answering) else { return };
                let _ = writer.send(&reply).await;
            }
        });
        let receiver = Demultiplexer {
            source,
            hub: hub.clone(),
            requests: Requests::new(self.handler, replies, self.limits.incoming_requests),
            junk: junk.clone(),
            tap: self.tap,
            process: process.as_ref().map_or_else(Weak::new, Arc::downgrade),
            line: 0,
        };
        let outbox = Outbox { hub: hub.clone(), writer: writer.clone() };
        let rpc = RpcBuilder::default()
            // Each call has its own bound; jsonrpsee's would be one for all.
            .request_timeout(Duration::MAX)
            .max_concurrent_requests(self.limits.open_requests.max(1))
            .disable_ws_ping()
            .build_with_tokio(outbox, receiver);
        let allow_inactive = self.allow_inactive;
        let closed = tokio::sync::OnceCell::new();
        HarnessClient { inner: Arc::new(Inner { rpc, hub, writer, junk, process, closed, allow_inactive }) }
    }
}
