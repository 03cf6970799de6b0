//! The private endpoint of a pool: how any process inside a run delegates.
//!
//! A Unix socket in a directory of mode 0700, JSON-RPC in newline-delimited frames. A token per run
//! authorises only that run's session. It stops mistakes, not a hostile process of the same user, who can
//! read the token from the environment of a process.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    future::Future,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use jsonrpsee::{
    RpcModule,
    core::RpcResult,
    types::{ErrorObjectOwned, Params},
};
use offspring_delegation::{Delegator, Subagent, TaskError, TaskRequest, Worker, Workers, workers};
use offspring_protocol::{
    RunState,
    control::{
        HELLO, HelloParams, HelloResult, NODE_LIST, NodeListResult, TASK_CANCEL, TASK_OUTPUT, TASK_START,
        TASK_STATUS, TaskParams, TaskResult, TaskStartParams,
    },
    rpc::{self, ErrorObject, Id, Message, NotRpc},
};
use offspring_sessions::RunContext;
use offspring_transport::{FrameEvent, FrameReader, FrameWriter};
use serde::de::DeserializeOwned;
use tokio::{
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

mod client;

pub use client::{Client, ClientError};

/// Connections at the same time; one more waits until another ends.
const MAX_CONNECTIONS: usize = 1_024;
/// Calls of one connection that are worked on at the same time; the next is read when one is answered.
const MAX_CALLS: usize = 64;
/// A frame may carry a prompt of 16 MiB in which every byte needs an escape.
pub(crate) const FRAME_LIMIT_BYTES: usize = 128 << 20;
/// Who connects has to present a token within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Who says nothing more and still waits for answers is looked after this often: nothing tells that it goes.
const LOOK_AFTER: Duration = Duration::from_millis(250);

/// Listens while it lives.
#[derive(Debug)]
pub struct Endpoint {
    inner: Arc<Inner>,
    path: PathBuf,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Inner {
    delegator: Delegator,
    grants: Mutex<HashMap<String, Arc<Granted>>>,
}

/// What a token stands for.
#[derive(Debug)]
struct Granted {
    run: Arc<RunContext>,
    workers: Vec<Worker>,
    /// The longest prompt, in bytes.
    max_prompt_bytes: u64,
    withdrawn: CancellationToken,
}

/// The right of one run to delegate; withdrawn when it is dropped.
#[derive(Debug)]
pub struct Grant {
    inner: Arc<Inner>,
    token: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grant {
    /// The secret to put into the run's environment.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // Also for connections that have said hello: a process that escaped delegates no more.
        if let Some(granted) = lock(&self.inner.grants).remove(&self.token) {
            granted.withdrawn.cancel();
        }
    }
}

impl Endpoint {
    /// Listens on a socket at this path.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(path: &Path, delegator: Delegator) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        // Nobody else gets as far as here; whoever moves the directory or looks at it need not know that.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let inner = Arc::new(Inner { delegator, grants: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&inner)));
        Ok(Self { inner, path: path.to_owned(), accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the processes of a run delegate in its name, with prompts of at most `max_prompt_bytes`.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn grant(
        &self,
        run: Arc<RunContext>,
        workers: Vec<Worker>,
        max_prompt_bytes: u64,
    ) -> io::Result<Grant> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let granted = Granted { run, workers, max_prompt_bytes, withdrawn: CancellationToken::new() };
        lock(&self.inner.grants).insert(token.clone(), Arc::new(granted));
        Ok(Grant { inner: Arc::clone(&self.inner), token })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: UnixListener, inner: Arc<Inner>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let inner = Arc::clone(&inner);
                tokio::spawn(async move {
                    serve(stream, inner).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the endpoint was not accepted");
                // Out of descriptors, most likely: others have to end first.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// One connection: who it speaks for, once it has said so.
struct Connection {
    inner: Arc<Inner>,
    granted: Arc<OnceLock<Arc<Granted>>>,
    /// Nobody is at its other end any more.
    gone: CancellationToken,
}

impl Connection {
    fn granted(&self) -> RpcResult<&Arc<Granted>> {
        let unknown = || error(rpc::code::UNAUTHORIZED, "say hello with the token of a run first");
        let granted = self.granted.get().ok_or_else(unknown)?;
        if granted.withdrawn.is_cancelled() {
            return Err(error(rpc::code::UNAUTHORIZED, "the run of this connection has ended"));
        }
        Ok(granted)
    }

    /// Waits for a child only as long as somebody can hear of it: a run whose `offspring task` was killed is at work
    /// again and wants its slot back (L5). The child goes on.
    async fn while_heard<T>(&self, answer: impl Future<Output = RpcResult<T>>) -> RpcResult<T> {
        let unheard = || Err(error(rpc::code::INTERNAL_ERROR, "nobody waits for this answer any more"));
        self.gone.run_until_cancelled(answer).await.unwrap_or_else(unheard)
    }
}

fn error(code: i64, message: impl Into<String>) -> ErrorObjectOwned {
    // Our codes are those of `rpc::code`, and all of them fit.
    ErrorObjectOwned::owned(i32::try_from(code).unwrap_or(i32::MIN), message, None::<()>)
}

fn task_error(failed: &TaskError) -> ErrorObjectOwned {
    let code = match failed {
        TaskError::UnknownNode(_) => rpc::code::UNKNOWN_NODE,
        _ => rpc::code::LIMIT_REACHED,
    };
    error(code, failed.to_string())
}

fn parse<T: DeserializeOwned>(params: &Params<'_>) -> RpcResult<T> {
    params.parse()
}

type Methods = RpcModule<Connection>;

fn methods(connection: Connection) -> Result<Methods, jsonrpsee::core::RegisterMethodError> {
    let mut module = RpcModule::new(connection);
    module.register_async_method(HELLO, |params, connection, _| async move {
        let HelloParams { token } = parse(&params)?;
        let granted = lock(&connection.inner.grants).get(&token).cloned();
        let granted = granted
            .ok_or_else(|| error(rpc::code::UNAUTHORIZED, "no run has this token, or it has ended"))?;
        let session = granted.run.session();
        let result = HelloResult { session: session.id.clone(), depth: session.depth };
        // A second hello does not change who a connection speaks for.
        connection.granted.get_or_init(|| granted);
        RpcResult::Ok(result)
    })?;
    module.register_async_method(TASK_START, |params, connection, _| async move {
        let params = parse(&params)?;
        let answer = async {
            let answer = start(&connection, params).await;
            unless_cancelled(connection.granted()?, answer).await
        };
        connection.while_heard(answer).await
    })?;
    module.register_async_method(TASK_STATUS, |params, connection, _| async move {
        let TaskParams { task } = parse(&params)?;
        let caller = &connection.granted()?.run.session().id;
        let tasks = connection.inner.delegator.tasks();
        tasks.status(&task, caller).map_err(|unknown| error(rpc::code::UNKNOWN_TASK, unknown.to_string()))
    })?;
    module.register_async_method(TASK_OUTPUT, |params, connection, _| async move {
        let TaskParams { task } = parse(&params)?;
        let granted = connection.granted()?;
        let (run, delegator) = (&granted.run, &connection.inner.delegator);
        let output = async {
            let _waits = run.waits();
            let output = delegator.tasks().output(&task, &run.session().id);
            let output = delegator.slots().while_waiting(run.run_id(), output).await;
            let output = output.map_err(|unknown| error(rpc::code::UNKNOWN_TASK, unknown.to_string()));
            unless_cancelled(granted, output).await
        };
        connection.while_heard(output).await
    })?;
    module.register_async_method(TASK_CANCEL, |params, connection, _| async move {
        let TaskParams { task } = parse(&params)?;
        let caller = &connection.granted()?.run.session().id;
        let delegator = &connection.inner.delegator;
        let cancelled = delegator.tasks().cancel(&task, caller, delegator.manager()).await;
        cancelled.map_err(|unknown| error(rpc::code::UNKNOWN_TASK, unknown.to_string()))
    })?;
    module.register_async_method(NODE_LIST, |_, connection, _| async move {
        connection.granted()?;
        RpcResult::Ok(NodeListResult {
            nodes: Subagent::new(&connection.inner.delegator).list_available_nodes(),
        })
    })?;
    Ok(module)
}

/// Gives the answer, unless it is decided that the caller ends as cancelled: leaves end first, and the caller
/// must not go on with what they left (L14). It hears nothing more until its own end.
async fn unless_cancelled<T>(granted: &Granted, answer: RpcResult<T>) -> RpcResult<T> {
    if granted.run.is_cancelled() {
        granted.withdrawn.cancelled().await;
    }
    answer
}

async fn start(connection: &Connection, params: TaskStartParams) -> RpcResult<TaskResult> {
    let granted = connection.granted()?;
    let delegator = &connection.inner.delegator;
    let TaskStartParams { node, prompt, description, detach, cwd, metadata } = params;
    let (bytes, max) = (prompt.len(), granted.max_prompt_bytes);
    if bytes as u64 > max {
        let message =
            format!("the prompt has {bytes} bytes and the limit is {max} (limits.max_prompt_bytes)");
        return Err(error(rpc::code::LIMIT_REACHED, message));
    }
    if node.as_str().starts_with(workers::PREFIX) && delegator.node(&node).is_err() {
        let workers = Workers::new(delegator, &granted.workers);
        return workers
            .ask(&granted.run, node.as_str(), prompt.into())
            .await
            .map_err(|failed| task_error(&failed));
    }
    let request = TaskRequest { description, cwd, metadata, ..TaskRequest::new(node, prompt) };
    let subagent = Subagent::new(delegator);
    if detach {
        let task = subagent.task_async(&granted.run, request).await.map_err(|failed| task_error(&failed))?;
        let (state, output) = (RunState::Running, String::new());
        return Ok(TaskResult { task, state, output, error: None, members: Vec::new() });
    }
    subagent.task(&granted.run, request).await.map_err(|failed| task_error(&failed))
}

async fn serve(stream: UnixStream, inner: Arc<Inner>) {
    let (read, write) = stream.into_split();
    let mut frames = FrameReader::with_limit(read, FRAME_LIMIT_BYTES);
    let (answers, to_write) = mpsc::channel(MAX_CALLS);
    let mut writing = tokio::spawn(write_answers(write, to_write));
    let (granted, gone) = (Arc::new(OnceLock::new()), CancellationToken::new());
    let connection = Connection { inner, granted: Arc::clone(&granted), gone: gone.clone() };
    let methods = match methods(connection) {
        Ok(methods) => Arc::new(methods),
        Err(error) => return tracing::error!(%error, "the endpoint has a method twice"),
    };
    let room = Arc::new(Semaphore::new(MAX_CALLS));
    let deadline = Instant::now() + HELLO_WITHIN;
    loop {
        let next = frames.next();
        let next = if granted.get().is_some() {
            next.await
        } else if Instant::now() >= deadline {
            break;
        } else {
            match timeout_at(deadline, next).await {
                Ok(next) => next,
                // Granted meanwhile, or nobody we know.
                Err(_) => continue,
            }
        };
        let answer = match next {
            Ok(Some(FrameEvent::Frame([]))) => continue,
            Ok(Some(FrameEvent::Frame(frame))) => match std::str::from_utf8(frame) {
                Ok(text) => {
                    let Ok(place) = Arc::clone(&room).acquire_owned().await else { break };
                    let (text, methods, answers) = (text.to_owned(), Arc::clone(&methods), answers.clone());
                    tokio::spawn(async move {
                        let answer = call(&methods, &text).await;
                        // Whoever asked may be gone.
                        let _ = answers.send(answer).await;
                        drop(place);
                    });
                    continue;
                }
                Err(_) => refusal(rpc::code::PARSE_ERROR, "a frame is not UTF-8"),
            },
            Ok(Some(FrameEvent::FrameTooLarge { .. })) => refusal(
                rpc::code::INVALID_REQUEST,
                format!("a frame is longer than {FRAME_LIMIT_BYTES} bytes"),
            ),
            Ok(Some(FrameEvent::Unterminated { .. }) | None) | Err(_) => break,
        };
        if answers.send(answer).await.is_err() {
            break;
        }
    }
    drop(answers);
    let mut look = tokio::time::interval(LOOK_AFTER);
    loop {
        tokio::select! {
            biased;
            _ = &mut writing => return,
            _ = look.tick() => {
                if is_gone(frames.get_ref().as_ref()) {
                    gone.cancel();
                }
            }
        }
    }
}

/// Whether nobody is at the other end of a connection any more. Who has only said all that it will say still reads,
/// and a write of nothing tells the two apart.
fn is_gone(stream: &UnixStream) -> bool {
    stream.try_write(&[]).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
}

async fn call(methods: &Methods, request: &str) -> String {
    match methods.raw_json_request(request, 1).await {
        Ok((answer, _)) => answer.get().to_owned(),
        Err(_) => no_request(request),
    }
}

/// What is wrong with a line that is no request, in our words.
fn no_request(line: &str) -> String {
    match Message::classify(line.as_bytes()) {
        Err(not_json @ (NotRpc::NotJson { .. } | NotRpc::NotUtf8 { .. })) => {
            refusal(rpc::code::PARSE_ERROR, not_json.to_string())
        }
        Err(other) => refusal(rpc::code::INVALID_REQUEST, other.to_string()),
        Ok(incoming) if !incoming.strict => {
            refusal(rpc::code::INVALID_REQUEST, "the line does not say \"jsonrpc\": \"2.0\"")
        }
        Ok(_) => refusal(
            rpc::code::INVALID_REQUEST,
            "a request is expected, with an id, a method and perhaps params, and nothing else",
        ),
    }
}

fn refusal(code: i64, message: impl Into<String>) -> String {
    rpc::error_response(&Id::Null, &ErrorObject::new(code, message)).unwrap_or_default()
}

async fn write_answers(write: OwnedWriteHalf, mut answers: mpsc::Receiver<String>) {
    let mut frames = FrameWriter::with_limit(write, usize::MAX);
    while let Some(answer) = answers.recv().await {
        if frames.send(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
