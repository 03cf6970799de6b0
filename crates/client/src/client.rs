//! The low level: one connection to one runtime, every call of its wire.

use std::{fmt, sync::Arc, time::Duration};

use jsonrpsee::core::{
    client::{Client as RpcClient, ClientT, Error as RpcError},
    traits::ToRpcParams,
};
use offspring_process::{Exit, Process};
use offspring_protocol::{
    MessageId, SessionId,
    dsh::{
        self, InitializeParams, InitializeResult, PromptParams, PromptResult, SessionParams,
        SetWorkingDirectoryParams, WorkingDirectoryResult,
    },
    rpc::{self, ErrorObject},
};
use offspring_transport::{Diagnostics as WireDiagnostics, SharedDiagnostics};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    builder::ClientBuilder,
    command::{RuntimeCommand, ladder},
    error::{ClientError, RuntimeState, escaped},
    hub::{Counts, Hub},
    limits::Limits,
    link::{self, Writer},
    notification::Notification,
    peer_texts::{self, PeerError},
    queue::SubscriptionEnd,
    subscription::Subscription,
};

/// How long a failed write waits for the end of the output, which says more.
const END_AFTER_BROKEN_WRITE: Duration = Duration::from_secs(2);

/// A connection to a runtime. Cheap to clone, usable from many tasks at once; dropping the last clone ends the
/// runtime at once and reaps it. [`close`](Self::close) is the polite way.
///
/// One client is one runtime process: a new process is a new client, whose ancestry knows no edge of an older
/// one (T8).
#[derive(Clone)]
pub struct HarnessClient {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) rpc: RpcClient,
    pub(crate) hub: Arc<Hub>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) junk: SharedDiagnostics,
    pub(crate) process: Option<Arc<Process>>,
    pub(crate) closed: tokio::sync::OnceCell<Closed>,
    pub(crate) allow_inactive: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What still listens is told that we let go of it.
        self.hub.closing();
    }
}

/// How a client was closed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Closed {
    /// How the process ended, where there was one: nothing of it is left.
    pub exit: Option<Exit>,
}

/// What a client knows of its runtime beside what it delivered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientDiagnostics {
    /// What was counted.
    pub counts: Counts,
    /// What the runtime wrote that was no message (W3, W5).
    pub junk: WireDiagnostics,
    /// The process, where it is one: its exit and the end of its stderr (W4).
    pub runtime: RuntimeState,
}

impl HarnessClient {
    /// Limits and hooks, then [`start`](ClientBuilder::start) or [`connect`](ClientBuilder::connect).
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Starts a runtime with the default limits.
    ///
    /// # Errors
    /// As [`ClientBuilder::start`].
    pub fn start(command: &RuntimeCommand) -> Result<Self, ClientError> {
        Self::builder().start(command)
    }

    /// Says what the runtime works with. It may be said again; the last one counts for new sessions.
    ///
    /// When it fails the runtime is closed and reaped (W7).
    ///
    /// # Errors
    /// [`ClientError::Refused`], [`ClientError::Timeout`], [`ClientError::RuntimeGone`]; and
    /// [`ClientError::NotActivated`] when the runtime says that it did not load what it was told to.
    pub async fn initialize(&self, params: &InitializeParams) -> Result<InitializeResult, ClientError> {
        let within = self.limits().initialize_within;
        let answered = match self.call(dsh::INITIALIZE, params, within).await {
            Ok(result) => self.check_activated().map(|()| result),
            Err(error) => Err(error),
        };
        if answered.is_err() {
            self.close().await;
        }
        answered
    }

    /// Sends a message to a session, which is made if it is new, and gives the message's id. The turn it starts
    /// is not waited for: see [`Session`](crate::Session).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn prompt(
        &self,
        session: &SessionId,
        content_blocks: Vec<Box<RawValue>>,
    ) -> Result<MessageId, ClientError> {
        self.check_activated()?;
        let params = PromptParams { session_id: session.clone(), content_blocks };
        let result: PromptResult =
            self.call(dsh::SESSION_PROMPT, &params, self.limits().request_within).await?;
        Ok(result.message_id)
    }

    /// Opens a session that the runtime stored. Its history is not sent again.
    ///
    /// # Errors
    /// [`ClientError`]; [`PeerError::UnknownSession`] and [`PeerError::SessionInUse`] among the refusals.
    pub async fn resume(&self, session: &SessionId) -> Result<(), ClientError> {
        self.of_session(dsh::SESSION_RESUME, session).await
    }

    /// Waits until a root is idle and nothing below it is at work, by the runtime's own word. Has no bound of its
    /// own, because an agent's work has no natural length (W8): wrap it, or use
    /// [`run_tree`](crate::Session::run_tree).
    ///
    /// # Errors
    /// [`ClientError`]; [`PeerError::UnknownMethod`] from a runtime of 0.1. A `{}` that a runtime answers because
    /// it is being shut down is [`ClientError::Closed`].
    pub async fn wait(&self, session: &SessionId) -> Result<(), ClientError> {
        let params = SessionParams { session_id: session.clone() };
        let answer = self.call_unbounded(dsh::SESSION_WAIT, &params).await;
        if answer.is_ok() && self.inner.hub.is_closing() && !self.inner.hub.open_within(session).is_empty() {
            return Err(ClientError::Closed { method: dsh::SESSION_WAIT.to_owned() });
        }
        answer.map(|_| ())
    }

    /// Where the tools of a session work.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn working_directory(&self, session: &SessionId) -> Result<String, ClientError> {
        let params = SessionParams { session_id: session.clone() };
        let within = self.limits().request_within;
        let result: WorkingDirectoryResult = self.call(dsh::WORKING_DIRECTORY_GET, &params, within).await?;
        Ok(result.cwd)
    }

    /// Changes where the tools of a session work; gives the absolute path.
    ///
    /// # Errors
    /// [`ClientError`]; [`PeerError::BadDirectory`] among the refusals.
    pub async fn set_working_directory(
        &self,
        session: &SessionId,
        path: &str,
    ) -> Result<String, ClientError> {
        let params = SetWorkingDirectoryParams { session_id: session.clone(), path: path.to_owned() };
        let within = self.limits().request_within;
        let result: WorkingDirectoryResult = self.call(dsh::WORKING_DIRECTORY_SET, &params, within).await?;
        Ok(result.cwd)
    }

    /// Asks the runtime to stop a session. No runtime up to 0.2.1rc2 can.
    ///
    /// # Errors
    /// [`ClientError`]; [`PeerError::UnknownMethod`] where the runtime cannot.
    pub async fn cancel(&self, session: &SessionId) -> Result<(), ClientError> {
        self.of_session(dsh::SESSION_CANCEL, session).await
    }

    /// Calls any method and gives its result unparsed.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn request<P: Serialize + ?Sized + Sync>(
        &self,
        method: &str,
        params: &P,
        within: Duration,
    ) -> Result<Box<RawValue>, ClientError> {
        tokio::time::timeout(within, self.call_unbounded(method, params))
            .await
            .unwrap_or_else(|_| Err(self.timeout(method, within)))
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// [`ClientError::Write`], [`ClientError::RuntimeGone`], [`ClientError::Timeout`].
    pub async fn notify<P: Serialize + ?Sized>(&self, method: &str, params: &P) -> Result<(), ClientError> {
        if let Some(gone) = self.inner.hub.is_gone() {
            return Err(ClientError::RuntimeGone(gone));
        }
        let write = |reason: String| ClientError::Write { method: method.to_owned(), reason };
        let frame = rpc::notification(method, params).map_err(|error| write(error.to_string()))?;
        let within = self.limits().request_within;
        match tokio::time::timeout(within, self.inner.writer.send(&frame)).await {
            Ok(sent) => sent.map_err(write),
            Err(_) => Err(self.timeout(method, within)),
        }
    }

    /// Subscribes to a session and everything below it, now and later (T6).
    pub fn subscribe(&self, session: &SessionId) -> Subscription {
        let (key, queue) = self.inner.hub.subscribe(session);
        Subscription::of_tree(self.inner.hub.clone(), key, queue)
    }

    /// Subscribes to every notification that the filter wants. The filter runs on the reader of the wire and must
    /// not wait; one that panics ends its own subscription only (T11).
    pub fn subscribe_filtered(
        &self,
        filter: impl Fn(&Notification) -> bool + Send + Sync + 'static,
    ) -> Subscription {
        let (serial, queue) = self.inner.hub.subscribe_filtered(Arc::new(filter));
        Subscription::filtered(self.inner.hub.clone(), serial, queue)
    }

    /// The next notification that matched no subscription when it came (T10). Of two callers each gets every
    /// other one. `None` after the end was told.
    ///
    /// # Errors
    /// [`SubscriptionEnd::RuntimeGone`], once.
    pub async fn next_unmatched(&self) -> Option<Result<Notification, SubscriptionEnd>> {
        let queue = self.inner.hub.unmatched_queue();
        queue.next_of_many().await
    }

    /// As [`next_unmatched`](Self::next_unmatched), without waiting: `None` when there is none now.
    ///
    /// # Errors
    /// As [`next_unmatched`](Self::next_unmatched).
    pub fn try_next_unmatched(&self) -> Option<Result<Notification, SubscriptionEnd>> {
        self.inner.hub.unmatched_queue().try_next()
    }

    /// Root … self of a session, as the wire has told it (T14).
    #[must_use]
    pub fn path(&self, session: &str) -> Vec<SessionId> {
        self.inner.hub.path(session)
    }

    /// The sessions at work that are `root` or below it, as the wire has told it.
    #[must_use]
    pub fn at_work(&self, root: &SessionId) -> Vec<SessionId> {
        self.inner.hub.open_within(root)
    }

    /// What is known beside what was delivered.
    #[must_use]
    pub fn diagnostics(&self) -> ClientDiagnostics {
        let runtime = self.state();
        ClientDiagnostics { counts: self.inner.hub.counts(), junk: self.inner.junk.snapshot(), runtime }
    }

    /// The limits it was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.inner.hub.limits()
    }

    /// The process, where it is one.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.inner.process.as_deref()
    }

    /// Whether the runtime is gone; how, if it is.
    #[must_use]
    pub fn gone(&self) -> Option<Arc<crate::Gone>> {
        self.inner.hub.is_gone()
    }

    /// Ends the runtime: `shutdown`, end of its input, SIGTERM, SIGKILL, each step bounded (W7). Nothing it
    /// started is left when this returns. Closing twice, at once or later, is harmless and gives the same.
    pub async fn close(&self) -> Closed {
        self.inner.closed.get_or_init(|| self.climb()).await.clone()
    }

    async fn climb(&self) -> Closed {
        // Nobody is left to answer a `shutdown` once the output has ended: what still lives is a process only.
        let is_gone = self.inner.hub.is_gone().is_some();
        let within = if is_gone { Duration::ZERO } else { self.limits().shutdown_within };
        self.inner.hub.closing();
        let shutdown = async {
            // Whatever comes of it: the next steps do not depend on it.
            let _ = tokio::time::timeout(within, self.call_unbounded(dsh::SHUTDOWN, &())).await;
        };
        let Some(process) = &self.inner.process else {
            shutdown.await;
            let _ = tokio::time::timeout(self.limits().shutdown_within, self.inner.writer.close()).await;
            return Closed { exit: None };
        };
        let exit = process.stop_after(shutdown, within, ladder(self.limits())).await;
        // The reader has seen the end by now, or sees it at once.
        let _ = tokio::time::timeout(self.limits().shutdown_within, self.inner.rpc.on_disconnect()).await;
        Closed { exit: Some(exit) }
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }

    pub(crate) fn state(&self) -> RuntimeState {
        let junk = self.inner.junk.snapshot();
        let Some(process) = &self.inner.process else {
            return RuntimeState { exit: None, stderr_tail: Arc::default(), junk };
        };
        match process.exit() {
            Some(exit) => RuntimeState { exit: Some(exit.status), stderr_tail: exit.stderr_tail, junk },
            None => RuntimeState { exit: None, stderr_tail: Arc::new(process.stderr_tail()), junk },
        }
    }

    /// What a runtime did not load is said on its stderr and nowhere else.
    fn check_activated(&self) -> Result<(), ClientError> {
        let Some(process) = self.inner.process.as_ref().filter(|_| !self.inner.allow_inactive) else {
            return Ok(());
        };
        match peer_texts::not_activated(&process.stderr_tail().text()) {
            Some(said) => Err(ClientError::NotActivated { said: escaped(&said) }),
            None => Ok(()),
        }
    }

    async fn of_session(&self, method: &str, session: &SessionId) -> Result<(), ClientError> {
        let params = SessionParams { session_id: session.clone() };
        self.request(method, &params, self.limits().request_within).await.map(|_| ())
    }

    async fn call<P: Serialize + Sync, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
        within: Duration,
    ) -> Result<R, ClientError> {
        let result = self.request(method, params, within).await?;
        serde_json::from_str(result.get())
            .map_err(|error| ClientError::BadAnswer { method: method.to_owned(), reason: error.to_string() })
    }

    pub(crate) async fn call_unbounded<P: Serialize + ?Sized>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<Box<RawValue>, ClientError> {
        let hub = &self.inner.hub;
        if let Some(gone) = hub.is_gone() {
            return Err(ClientError::RuntimeGone(gone));
        }
        let limit = hub.limits().open_requests;
        if method != dsh::SHUTDOWN && hub.counts().open_requests >= limit {
            return Err(ClientError::TooManyRequests { method: method.to_owned(), limit });
        }
        let bad = |reason: String| ClientError::BadAnswer { method: method.to_owned(), reason };
        let params = to_raw_value(params).map_err(|error| bad(error.to_string()))?;
        let mut broken = self.inner.writer.broken();
        let answer = tokio::select! {
            biased;
            answer = self.inner.rpc.request::<Box<RawValue>, Params>(method, Params(params)) => answer,
            reason = broken_write(&mut broken) => {
                // The end of its output says why (W4), when it comes.
                let _ = tokio::time::timeout(END_AFTER_BROKEN_WRITE, self.inner.rpc.on_disconnect()).await;
                return Err(match hub.is_gone() {
                    Some(gone) => ClientError::RuntimeGone(gone),
                    None => ClientError::Write { method: method.to_owned(), reason },
                });
            }
        };
        answer.map_err(|error| match error {
            RpcError::Call(error) => {
                let error = error
                    .data()
                    .and_then(link::from_data)
                    .unwrap_or_else(|| ErrorObject::new(i64::from(error.code()), error.message()));
                let kind = peer_texts::classify(&error);
                ClientError::Refused { method: method.to_owned(), error, kind }
            }
            error => match hub.is_gone() {
                Some(gone) => ClientError::RuntimeGone(gone),
                None => bad(error.to_string()),
            },
        })
    }

    fn timeout(&self, method: &str, after: Duration) -> ClientError {
        ClientError::Timeout { method: method.to_owned(), after, state: Box::new(self.state()) }
    }
}

impl fmt::Debug for HarnessClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessClient").field("counts", &self.inner.hub.counts()).finish_non_exhaustive()
    }
}

impl ClientError {
    /// What the runtime refused, when it did.
    #[must_use]
    pub fn peer_error(&self) -> Option<PeerError> {
        match self {
            Self::Refused { kind, .. } => Some(*kind),
            _ => None,
        }
    }
}

/// Params that are JSON already; `null` is left out.
struct Params(Box<RawValue>);

impl ToRpcParams for Params {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        Ok(Some(self.0).filter(|params| params.get() != "null"))
    }
}

async fn broken_write(broken: &mut tokio::sync::watch::Receiver<Option<String>>) -> String {
    let reason = broken.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    match reason {
        Some(reason) => reason,
        // The writer is part of the client that asks.
        None => std::future::pending().await,
    }
}
