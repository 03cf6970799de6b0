//! Delegations by name: status, output, cancel (rule L6).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use offspring_protocol::{Outcome, RunState, SessionId, TaskId, TaskKey, control::TaskResult};
use offspring_sessions::{CancelScope, SessionManager};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Ended tasks that are remembered; the oldest goes first. Their sessions stay in the store.
const MAX_ENDED: usize = 10_000;

/// The delegations of a process by their key. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tasks(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    tasks: HashMap<TaskKey, Arc<Task>, RandomState>,
    ended: VecDeque<TaskKey>,
}

/// One delegation.
#[derive(Debug)]
pub(crate) struct Task {
    key: TaskKey,
    /// Who delegated: nobody else may ask about it.
    caller: SessionId,
    sessions: Mutex<Vec<SessionId>>,
    /// Stops a sequence from starting its next member.
    pub(crate) cancelled: CancellationToken,
    result: watch::Sender<Option<TaskResult>>,
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
    pub(crate) fn id(&self) -> TaskId {
        TaskId { task: self.key.clone(), sessions: lock(&self.sessions).clone() }
    }

    pub(crate) fn made(&self, session: SessionId) {
        lock(&self.sessions).push(session);
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
}

impl Tasks {
    pub(crate) fn open(&self, key: TaskKey, caller: &SessionId) -> Arc<Task> {
        let task = Arc::new(Task {
            key: key.clone(),
            caller: caller.clone(),
            sessions: Mutex::default(),
            cancelled: CancellationToken::new(),
            result: watch::Sender::new(None),
        });
        lock(&self.0).tasks.insert(key, Arc::clone(&task));
        task
    }

    /// The task never came into being.
    pub(crate) fn forget(&self, key: &TaskKey) {
        lock(&self.0).tasks.remove(key);
    }

    pub(crate) fn end(&self, task: &Task, result: TaskResult) {
        task.result.send_replace(Some(result));
        let mut table = lock(&self.0);
        table.ended.push_back(task.key.clone());
        while table.ended.len() > MAX_ENDED {
            if let Some(oldest) = table.ended.pop_front() {
                table.tasks.remove(&oldest);
            }
        }
    }

    fn get(&self, key: &TaskKey, caller: &SessionId) -> Result<Arc<Task>, UnknownTask> {
        let found = lock(&self.0).tasks.get(key).filter(|task| task.caller == *caller).cloned();
        found.ok_or_else(|| UnknownTask { task: key.clone() })
    }

    /// How a task of this caller stands.
    ///
    /// # Errors
    /// [`UnknownTask`], also for a task of another session.
    pub fn status(&self, key: &TaskKey, caller: &SessionId) -> Result<TaskResult, UnknownTask> {
        Ok(self.get(key, caller)?.status())
    }

    /// Waits for a task of this caller to end.
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
        task.cancelled.cancel();
        let mut result = task.result.subscribe();
        loop {
            if result.borrow_and_update().is_some() {
                return Ok(task.status());
            }
            for session in task.id().sessions {
                if let Err(refused) = manager.cancel(&session, CancelScope::Subtree).await {
                    tracing::warn!(%session, %refused, "a session of a task was not cancelled");
                }
            }
            // A member that was just being made shows up in the next round.
            let again = std::time::Duration::from_millis(20);
            let _ = tokio::time::timeout(again, result.changed()).await;
        }
    }
}

/// How a finished delegation looks to whoever asks for it.
pub(crate) fn task_state(outcome: Outcome) -> RunState {
    RunState::Ended(outcome)
}
