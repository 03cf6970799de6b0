//! The process of a runtime: one for each run, or one for all runs of an agent.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use offspring_client::{
    ClientError, Closed, HarnessClient, Keep, Limits, PeerError, SessionId, TurnStream,
    dsh::{InitializeParams, text_block},
};
use offspring_process::Ladder;
use tokio::sync::OnceCell;

use super::Dsh;

/// How long a runtime may take to say whether it stops a session.
const CANCEL_WITHIN: Duration = Duration::from_secs(2);
/// How long one run may hold up the others of a shared runtime while our log is slow. What it does not take by then is
/// lost, and the run fails.
const OTHERS_WAIT: Duration = Duration::from_secs(10);
/// What waits for our log. The runtime is held up while there is more.
const QUEUE_ITEMS: usize = 1_024;
const QUEUE_BYTES: usize = 4 << 20;
/// What a runtime may say of a session before it answers the prompt.
const BEFORE_ANSWER_BYTES: usize = 64 << 20;

/// A runtime that was started and initialised.
#[derive(Debug)]
pub(super) struct Runtime {
    client: HarnessClient,
    /// Said once, because it holds for the whole process: whoever is there first says it, and everybody hears the answer.
    initialized: OnceCell<Result<(), ClientError>>,
    users: AtomicUsize,
    /// It works on something that it could not be asked to stop: nothing new is given to it.
    retired: AtomicBool,
    cannot_cancel: AtomicBool,
}

/// The processes of an agent with `shared: true`, while a run needs them: one for each working directory, because a
/// process has one.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<HashMap<PathBuf, Arc<Runtime>>>);

impl Shared {
    fn present(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Runtime>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use of a runtime by one run. Dropped without [`end`](Self::end), the last one ends the process at once.
#[derive(Debug)]
pub(super) struct Lease {
    runtime: Arc<Runtime>,
    shared: Option<Arc<Shared>>,
    /// The runtime knows of the session.
    prompted: AtomicBool,
}

fn params(agent: &Dsh, cwd: &Path) -> InitializeParams {
    InitializeParams {
        cwd: cwd.to_string_lossy().into_owned(),
        provider: agent.provider.clone(),
        model: agent.model.clone(),
        reasoning_effort: agent.reasoning_effort.clone(),
        max_tokens: agent.max_tokens,
    }
}

impl Runtime {
    /// Starts the process; nothing is said to it yet.
    fn start(agent: &Dsh, cwd: &Path) -> Result<Arc<Self>, ClientError> {
        let limits = Limits {
            queue_items: QUEUE_ITEMS,
            queue_bytes: QUEUE_BYTES,
            turn_bytes: BEFORE_ANSWER_BYTES,
            ..Limits::default()
        };
        let command = agent.command.clone().cwd(cwd);
        let client = HarnessClient::builder().limits(limits).start(&command)?;
        Ok(Arc::new(Self {
            client,
            initialized: OnceCell::new(),
            users: AtomicUsize::new(1),
            retired: AtomicBool::new(false),
            cannot_cancel: AtomicBool::new(false),
        }))
    }

    /// Kills the process with all it started, whoever uses it.
    pub(super) async fn kill(&self) {
        if let Some(process) = self.client.process() {
            process.stop(Ladder::at_once()).await;
        }
    }

    fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Acquire) && self.client.gone().is_none()
    }
}

impl Lease {
    /// Starts a process, or takes the one that is shared.
    pub(super) fn take(agent: &Dsh, cwd: &Path) -> Result<Self, ClientError> {
        let prompted = AtomicBool::new(false);
        let Some(shared) = agent.shared.clone() else {
            return Ok(Self { runtime: Runtime::start(agent, cwd)?, shared: None, prompted });
        };
        let mut present = shared.present();
        let runtime = match present.get(cwd).filter(|runtime| runtime.is_usable()) {
            Some(runtime) => {
                runtime.users.fetch_add(1, Ordering::AcqRel);
                Arc::clone(runtime)
            }
            None => {
                let runtime = Runtime::start(agent, cwd)?;
                present.insert(cwd.to_owned(), Arc::clone(&runtime));
                runtime
            }
        };
        drop(present);
        Ok(Self { runtime, shared: Some(shared), prompted })
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// What marks its process, for whoever ends what is left of it.
    pub(super) fn identity(&self) -> Option<String> {
        Some(self.runtime.client.process()?.identity()?.to_string())
    }

    /// Prompts a session and follows its whole tree. One that the runtime has stored is opened first.
    pub(super) async fn prompt(
        &self,
        agent: &Dsh,
        cwd: &Path,
        session: &SessionId,
        prompt: &str,
    ) -> Result<TurnStream, ClientError> {
        let Runtime { client, initialized, .. } = &*self.runtime;
        let initialize = async || client.initialize(&params(agent, cwd)).await.map(drop);
        initialized.get_or_init(initialize).await.clone()?;
        self.prompted.store(true, Ordering::Release);
        match self.turn(session, prompt).await {
            Err(error) if is_stored(&error) => {
                client.resume(session).await?;
                self.turn(session, prompt).await
            }
            begun => begun,
        }
    }

    async fn turn(&self, session: &SessionId, prompt: &str) -> Result<TurnStream, ClientError> {
        let blocks = vec![text_block(prompt)];
        let turn = self.runtime.client.session(session.clone()).turn_with(blocks).keep(Keep::Nothing);
        let turn = match self.is_shared() {
            true => turn.hold_runtime_at_most(OTHERS_WAIT),
            false => turn.hold_runtime(),
        };
        turn.stream_tree().await.map_err(|error| error.reason)
    }

    /// Asks the runtime to stop a session.
    ///
    /// # Errors
    /// Why it does not; then nothing new is given to a shared one.
    pub(super) async fn cancel(&self, session: &SessionId) -> Result<(), String> {
        let runtime = &self.runtime;
        if !self.prompted.load(Ordering::Acquire) {
            return Ok(());
        }
        let asked = if runtime.cannot_cancel.load(Ordering::Acquire) {
            Err("it cannot stop a session".to_owned())
        } else {
            match tokio::time::timeout(CANCEL_WITHIN, runtime.client.cancel(session)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(ClientError::Refused { kind: PeerError::UnknownMethod, .. })) => {
                    runtime.cannot_cancel.store(true, Ordering::Release);
                    Err("it cannot stop a session".to_owned())
                }
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {CANCEL_WITHIN:?}")),
            }
        };
        if asked.is_err() {
            runtime.retired.store(true, Ordering::Release);
        }
        asked
    }

    /// The runtime itself.
    pub(super) fn runtime(&self) -> Arc<Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Gives it back. Whoever is last closes the process, step by step (W7); `None` when others use it.
    pub(super) async fn end(mut self) -> Option<Closed> {
        let Some(shared) = self.shared.take() else {
            return Some(self.runtime.client.close().await);
        };
        if !leave(&shared, &self.runtime) {
            return None;
        }
        Some(self.runtime.client.close().await)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What nothing refers to any more is reaped by the client.
        if let Some(shared) = self.shared.take() {
            leave(&shared, &self.runtime);
        }
    }
}

/// One user less; whether that was the last.
fn leave(shared: &Shared, runtime: &Arc<Runtime>) -> bool {
    let mut present = shared.present();
    let is_last = runtime.users.fetch_sub(1, Ordering::AcqRel) == 1;
    if is_last {
        present.retain(|_, present| !Arc::ptr_eq(present, runtime));
    }
    is_last
}

fn is_stored(reason: &ClientError) -> bool {
    matches!(reason, ClientError::Refused { kind: PeerError::SessionExists, .. })
}
