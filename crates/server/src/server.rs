//! The pool and the queues of the sessions that are open, shared by all connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use futures_util::future::join_all;
use jsonrpsee::Methods;
use offspring_pool::Pool;
use offspring_protocol::SessionId;
use offspring_sessions::{Cancelled, StoreError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{connection, limits::ServerLimits, methods, prompts::Queue};

/// Serves one pool to any number of connections. Cheap to clone.
///
/// ```
/// use offspring_pool::Pool;
/// use offspring_server::{Ended, Server, ServerLimits};
/// use offspring_sessions::SessionManager;
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::new(Pool::new(SessionManager::detached()), ServerLimits::default())?;
/// let (client, ours) = duplex(4096);
/// let (read, write) = tokio::io::split(ours);
/// let serving = tokio::spawn({
///     let server = server.clone();
///     async move { server.serve(read, write).await }
/// });
///
/// let (answers, mut calls) = tokio::io::split(client);
/// calls.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nosuch\"}\n").await?;
/// let mut line = String::new();
/// BufReader::new(answers).read_line(&mut line).await?;
/// assert!(line.contains("-32601"));
/// drop(calls);
/// # serving.abort();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client asked for it (`shutdown`).
    Shutdown,
    /// The client said nothing more.
    Eof,
    /// The stream failed, or the client does not read any more.
    Broken,
}

/// What all connections share.
pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) limits: ServerLimits,
    pub(crate) methods: Methods,
    queues: Mutex<HashMap<SessionId, Weak<Queue>>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("pool", &self.pool)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Two methods have the same name: a mistake in this crate.
#[derive(Debug, thiserror::Error)]
#[error("failed to register the methods of the server: {0}")]
pub struct MethodTwice(#[from] jsonrpsee::core::RegisterMethodError);

impl Server {
    /// A server over a pool.
    ///
    /// # Errors
    /// [`MethodTwice`], which no caller can cause.
    pub fn new(pool: Pool, limits: ServerLimits) -> Result<Self, MethodTwice> {
        let methods = methods::all()?;
        Ok(Self { inner: Arc::new(Inner { pool, limits, methods, queues: Mutex::default() }) })
    }

    /// The pool it serves.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Serves one connection until it ends. What it started goes on: other connections may have it open.
    pub async fn serve<R, W>(&self, read: R, write: W) -> Ended
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        connection::serve(Arc::clone(&self.inner), read, write).await
    }

    /// Refuses what is new, cancels what runs, children first, and closes the store last (rule L14).
    ///
    /// # Errors
    /// When the store cannot be closed well.
    pub async fn close(&self) -> Result<Cancelled, StoreError> {
        // What waits never begins, and its log says why.
        join_all(self.inner.open_queues().iter().map(|queue| queue.close(&self.inner))).await;
        let cancelled = self.inner.pool.manager().close().await;
        self.inner.pool.delegator().clear();
        cancelled
    }
}

impl Inner {
    /// The queue of a root: one per process, whoever has it open.
    pub(crate) fn queue(&self, root: &SessionId) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(root).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= 2 * self.limits.open_sessions {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Queue::new(root.clone()));
        queues.insert(root.clone(), Arc::downgrade(&queue));
        queue
    }

    fn open_queues(&self) -> Vec<Arc<Queue>> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().filter_map(Weak::upgrade).collect()
    }

    /// The queue of a root, if it is open anywhere in this process.
    pub(crate) fn open_queue(&self, root: &SessionId) -> Option<Arc<Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(root).and_then(Weak::upgrade)
    }
}
