//! Delegations by name: status, output, cancel (rule L6).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use foldhash::fast::RandomState;
use futures_util::future::join_all;
use offspring_protocol::{Outcome, RunState, SessionId, SessionInfo, TaskId, TaskKey, control::TaskResult};
use offspring_sessions::{CancelScope, SessionManager};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Ended tasks that are remembered; the oldest goes first. Their sessions stay in the store.
const MAX_ENDED: usize = 10_000;
/// What the outputs of ended tasks may take together, in bytes; the newest is kept whatever its size.
const MAX_ENDED_BYTES: usize = 64 << 20;
/// A member that was just being made shows up in the next round of a cancel.
const NEXT_ROUND: Duration = Duration::from_millis(20);

/// The delegations of a process by their key. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tasks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Told whenever a task ends.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    tasks: HashMap<TaskKey, Arc<Task>, RandomState>,
    /// Those that have not ended, by the root of their tree.
    open: HashMap<SessionId, HashMap<TaskKey, Arc<Task>, RandomState>, RandomState>,
    /// Those that have, oldest first, with the bytes of their result.
    ended: VecDeque<(TaskKey, usize)>,
    ended_bytes: usize,
}

/// One delegation.
#[derive(Debug)]
pub(crate) struct Task {
    key: TaskKey,
    /// Who delegated: nobody else may ask about it.
    caller: Arc<SessionInfo>,
    sessions: Mutex<Vec<SessionId>>,
    /// Told of each session that was made.
    begun: Notify,
    /// Stops a sequence from starting its next member.
    pub(crate) cancelled: CancellationToken,
    result: watch::Sender<Option<TaskResult>>,
}

/// The duty to end a task. Dropped, the task ends as interrupted.
#[derive(Debug)]
pub(crate) struct OpenTask {
    tasks: Tasks,
    task: Arc<Task>,
    done: bool,
}

/// The caller has no such task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this session has no task {task}; `offspring task` prints the id when it starts one with --detach")]
pub struct UnknownTask {
    /// The key that was asked for.
    pub task: TaskKey,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    pub(crate) fn key(&self) -> &TaskKey {
        &self.key
    }

    pub(crate) fn id(&self) -> TaskId {
        TaskId { task: self.key.clone(), sessions: lock(&self.sessions).clone() }
    }

    pub(crate) fn made(&self, session: SessionId) {
        lock(&self.sessions).push(session);
        self.begun.notify_one();
    }

    /// Waits for its first session.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    fn status(&self) -> TaskResult {
        let ended = self.result.borrow().clone();
        ended.unwrap_or_else(|| TaskResult {
            task: self.id(),
            state: RunState::Running,
            output: String::new(),
            error: None,
            members: Vec::new(),
        })
    }

    /// Stops it and everything its sessions started; returns when it has ended.
    async fn stop(&self, manager: &SessionManager) {
        self.cancelled.cancel();
        let mut result = self.result.subscribe();
        while result.borrow_and_update().is_none() {
            for session in self.id().sessions {
                if let Err(refused) = manager.cancel(&session, CancelScope::Subtree).await {
                    tracing::warn!(%session, %refused, "a session of a task was not cancelled");
                }
            }
            let _ = tokio::time::timeout(NEXT_ROUND, result.changed()).await;
        }
    }
}

/// A delegation that was lost with the task of the runtime that drove it.
pub(crate) fn lost(task: &Task) -> TaskResult {
    TaskResult {
        task: task.id(),
        state: RunState::Ended(Outcome::Interrupted),
        output: String::new(),
        error: Some("the delegation was lost".to_owned()),
        members: Vec::new(),
    }
}

impl OpenTask {
    pub(crate) fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// It ended like this.
    pub(crate) fn end(mut self, result: TaskResult) {
        self.close(Some(result));
    }

    /// It never came into being.
    pub(crate) fn forget(mut self) {
        self.close(None);
    }

    fn close(&mut self, result: Option<TaskResult>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let Shared { table, ended } = &*self.tasks.0;
        let bytes = result.as_ref().map(weight);
        if result.is_some() {
            self.task.result.send_replace(result);
        }
        lock(table).close(&self.task, bytes);
        ended.notify_waiters();
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        // A panic, or the runtime shuts down: whoever waits for it must not wait for ever.
        let result = lost(&self.task);
        self.close(Some(result));
    }
}

/// What a result takes in memory, roughly: its text stands in the members too.
fn weight(result: &TaskResult) -> usize {
    result.output.len() + result.members.iter().map(|member| member.output.len() + 256).sum::<usize>()
}

impl Table {
    /// `bytes` of its result, if it has one.
    fn close(&mut self, task: &Task, bytes: Option<usize>) {
        let root = &task.caller.root;
        if let Some(open) = self.open.get_mut(root) {
            open.remove(&task.key);
            if open.is_empty() {
                self.open.remove(root);
            }
        }
        let Some(bytes) = bytes else {
            self.tasks.remove(&task.key);
            return;
        };
        self.ended.push_back((task.key.clone(), bytes));
        self.ended_bytes += bytes;
        while self.ended.len() > MAX_ENDED || (self.ended_bytes > MAX_ENDED_BYTES && self.ended.len() > 1) {
            if let Some((oldest, bytes)) = self.ended.pop_front() {
                self.tasks.remove(&oldest);
                self.ended_bytes -= bytes;
            }
        }
    }
}

impl Tasks {
    pub(crate) fn open(&self, key: TaskKey, caller: &Arc<SessionInfo>) -> OpenTask {
        let task = Arc::new(Task {
            key: key.clone(),
            caller: Arc::clone(caller),
            sessions: Mutex::default(),
            begun: Notify::new(),
            cancelled: CancellationToken::new(),
            result: watch::Sender::new(None),
        });
        let mut table = lock(&self.0.table);
        table.tasks.insert(key.clone(), Arc::clone(&task));
        table.open.entry(caller.root.clone()).or_default().insert(key, Arc::clone(&task));
        drop(table);
        OpenTask { tasks: self.clone(), task, done: false }
    }

    /// Whether a task of this tree has not ended: between two members of a sequence no run is open.
    pub(crate) fn any_open(&self, root: &SessionId) -> bool {
        lock(&self.0.table).open.contains_key(root)
    }

    /// Waits until no task of this tree is open.
    pub(crate) async fn none_open(&self, root: &SessionId) {
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that an end in between is not missed.
            ended.as_mut().enable();
            if !self.any_open(root) {
                return;
            }
            ended.await;
        }
    }

    /// Cancels what a session delegated and what has not ended.
    pub(crate) async fn cancel_of(&self, caller: &SessionInfo, manager: &SessionManager) {
        let open: Vec<Arc<Task>> = {
            let table = lock(&self.0.table);
            let of_tree = table.open.get(&caller.root).into_iter().flat_map(HashMap::values);
            of_tree.filter(|task| task.caller.id == caller.id).cloned().collect()
        };
        join_all(open.iter().map(|task| task.stop(manager))).await;
    }

    fn get(&self, key: &TaskKey, caller: &SessionId) -> Result<Arc<Task>, UnknownTask> {
        let found = lock(&self.0.table).tasks.get(key).filter(|task| task.caller.id == *caller).cloned();
        found.ok_or_else(|| UnknownTask { task: key.clone() })
    }

    /// How a task of this caller stands.
    ///
    /// # Errors
    /// [`UnknownTask`], also for a task of another session.
    pub fn status(&self, key: &TaskKey, caller: &SessionId) -> Result<TaskResult, UnknownTask> {
        Ok(self.get(key, caller)?.status())
    }

    /// Waits for a task of this caller to end. A run that holds a slot gives it to others meanwhile with
    /// [`Slots::while_waiting`](crate::Slots::while_waiting).
    ///
    /// # Errors
    /// [`UnknownTask`], also for a task of another session.
    pub async fn output(&self, key: &TaskKey, caller: &SessionId) -> Result<TaskResult, UnknownTask> {
        let task = self.get(key, caller)?;
        let mut result = task.result.subscribe();
        // The sender lives in the task, which we hold.
        let _ = result.wait_for(Option::is_some).await;
        Ok(task.status())
    }

    /// Cancels a task of this caller and everything its sessions started (rule L14); a cancelled sequence
    /// starts no further member. Returns when it has ended; one that had ended before is left as it is.
    ///
    /// # Errors
    /// [`UnknownTask`], also for a task of another session.
    pub async fn cancel(
        &self,
        key: &TaskKey,
        caller: &SessionId,
        manager: &SessionManager,
    ) -> Result<TaskResult, UnknownTask> {
        let task = self.get(key, caller)?;
        task.stop(manager).await;
        Ok(task.status())
    }
}

/// How a finished delegation looks to whoever asks for it.
pub(crate) fn task_state(outcome: Outcome) -> RunState {
    RunState::Ended(outcome)
}

#[cfg(test)]
mod tests;
