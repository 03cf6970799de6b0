//! What other processes ask of the owner of a tree: a row in the store, answered in the row.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use offspring_protocol::SessionId;
use tokio::time::Instant;

use crate::{
    cancel::{CancelScope, Cancelled},
    error::Refused,
    ids,
    live::lock,
    manager::{Inner, SessionManager},
    store::{Batch, CommandKind, CommandRow, Durability, OwnerState, StoreError, TreeQuery, Write},
};

/// How long a command may wait for its owner's answer beyond what the owner itself may take.
const ANSWER_SLACK: Duration = Duration::from_secs(10);
/// How long the answer may come after the end of the last run.
const ANSWER_AFTER_REST: Duration = Duration::from_millis(500);
/// Commands are looked for at most this often.
const LOOK_PAUSE: Duration = Duration::from_millis(25);
/// Looked at again after this long even if no change was announced.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What came of asking for a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelAnswer {
    /// We own the tree and have cancelled it.
    Done(Cancelled),
    /// Its owner has cancelled it and says so in these words.
    Owner(String),
    /// Its owner was dead: its runs are interrupted now. The processes may still live.
    OwnerGone(crate::Recovered),
    /// Nothing of it was running.
    AtRest,
    /// The owner lives but did not answer within the bound; the request stands.
    NoAnswer,
}

impl SessionManager {
    /// Cancels a session and everything below it, whoever owns it (rule L14): returns when the last
    /// process of the subtree is gone, as the owner says.
    ///
    /// # Errors
    /// [`Refused::UnknownSession`], or the store.
    pub async fn request_cancel(&self, session: &SessionId) -> Result<CancelAnswer, Refused> {
        if self.live_tree(session).is_some() {
            return self.cancel(session, CancelScope::Subtree).await.map(CancelAnswer::Done);
        }
        let store = &self.inner.store;
        let unknown = || Refused::UnknownSession { id: session.clone() };
        let record = store.session(session.clone()).await?.ok_or_else(unknown)?;
        let root = record.data.root_id;
        let tree =
            store.trees(TreeQuery::Root(root.clone())).await?.into_iter().next().ok_or_else(unknown)?;
        if tree.open_runs == 0 {
            return Ok(CancelAnswer::AtRest);
        }
        if tree.fence.owner == store.owner()
            || store.owner_state(tree.fence.owner.clone()).await? == OwnerState::Dead
        {
            return Ok(self.sweep_of_dead_owner().await?.unwrap_or(CancelAnswer::AtRest));
        }
        let command = CommandRow {
            id: ids::task().to_string(),
            root: root.clone(),
            session: session.clone(),
            kind: CommandKind::Cancel,
            asked_at: ids::now(),
            answer: None,
        };
        let mut changes = store.changes();
        let id = command.id.clone();
        let writes = vec![Write::Command(command)];
        store.commit(Batch { fence: None, writes, durability: Durability::Process }).await?;
        let bound = self.inner.options.cancel_bound * 2 + ANSWER_SLACK;
        let mut rested = None;
        let answered = async {
            loop {
                if let Some(answer) = store.command(id.clone()).await?.and_then(|command| command.answer) {
                    return Ok(CancelAnswer::Owner(answer));
                }
                let now = store.trees(TreeQuery::Root(root.clone())).await?;
                if now.first().is_none_or(|tree| tree.open_runs == 0) {
                    // It ended by itself, perhaps before its owner looked; or just now, and the answer comes after
                    // the end of the last run.
                    let answer = store.command(id.clone()).await?.and_then(|command| command.answer);
                    let since = *rested.get_or_insert_with(Instant::now);
                    match answer {
                        Some(answer) => return Ok(CancelAnswer::Owner(answer)),
                        None if since.elapsed() >= ANSWER_AFTER_REST => return Ok(CancelAnswer::AtRest),
                        None => {}
                    }
                }
                if store.owner_state(tree.fence.owner.clone()).await? == OwnerState::Dead
                    && let Some(gone) = self.sweep_of_dead_owner().await?
                {
                    return Ok(gone);
                }
                // A change is a hint; the owner's death announces nothing.
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
            }
        };
        match tokio::time::timeout(bound, answered).await {
            Ok(answer) => answer.map_err(|error: StoreError| error.into()),
            Err(_) => Ok(CancelAnswer::NoAnswer),
        }
    }

    /// What an owner that is gone left open; nothing, when it ended its runs first or another process was faster.
    async fn sweep_of_dead_owner(&self) -> Result<Option<CancelAnswer>, StoreError> {
        let recovered = self.recover().await?;
        Ok((!recovered.trees.is_empty()).then_some(CancelAnswer::OwnerGone(recovered)))
    }
}

/// Carries out the commands for the trees this process owns, until the manager is gone.
pub(crate) async fn serve(inner: Weak<Inner>) {
    let Some(mut changes) = inner.upgrade().map(|inner| inner.store.changes()) else { return };
    // Commands that are being carried out, so that a second look does not start them again.
    let started = Arc::new(std::sync::Mutex::new(std::collections::HashSet::<String>::new()));
    loop {
        let Some(manager) = inner.upgrade().map(|inner| SessionManager { inner }) else { return };
        let roots: Vec<SessionId> = {
            let trees = lock(&manager.inner.trees);
            if trees.closing {
                return;
            }
            let open = trees.by_root.values().filter(|tree| tree.state().open_runs > 0);
            open.map(|tree| tree.root.clone()).collect()
        };
        for root in roots {
            match manager.inner.store.open_commands(root).await {
                Ok(commands) => {
                    for command in commands {
                        if lock(&started).insert(command.id.clone()) {
                            let (manager, started) = (manager.clone(), Arc::clone(&started));
                            tokio::spawn(async move {
                                let id = command.id.clone();
                                carry_out(&manager, command).await;
                                lock(&started).remove(&id);
                            });
                        }
                    }
                }
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(%error, "the commands of other processes cannot be read"),
            }
        }
        drop(manager);
        if changes.changed().await.is_err() {
            return;
        }
        // A busy tree commits all the time: looked at once for all that comes in this while.
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

async fn carry_out(manager: &SessionManager, mut command: CommandRow) {
    let CommandKind::Cancel = command.kind;
    command.answer = Some(match manager.cancel(&command.session, CancelScope::Subtree).await {
        Ok(Cancelled { ended, stuck }) => {
            let sessions = if ended.len() == 1 { "session" } else { "sessions" };
            let left = match stuck.len() {
                0 => String::new(),
                stuck => format!("; {stuck} did not stop"),
            };
            format!("cancelled {} {sessions}{left}", ended.len())
        }
        Err(refused) => format!("not cancelled: {refused}"),
    });
    let writes = vec![Write::Command(command)];
    let batch = Batch { fence: None, writes, durability: Durability::Process };
    if let Err(error) = manager.inner.store.commit(batch).await {
        tracing::warn!(%error, "the answer to a command cannot be written");
    }
}
