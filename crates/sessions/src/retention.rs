//! Deleting: a subtree on request, whole trees by age or number. Never an orphan.

use offspring_protocol::{SessionId, Timestamp};
use smallvec::smallvec;
use tokio::sync::oneshot;

use crate::{
    error::Refused,
    live::{Gate, LiveTree, lock},
    manager::SessionManager,
    store::{OwnerState, StoreError, TreeQuery, Write},
    writer::{Op, Then},
};

/// Which trees to delete. Both unset: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those whose root was created before this.
    pub created_before: Option<Timestamp>,
    /// All but the newest so many.
    pub keep: Option<usize>,
}

impl SessionManager {
    /// Deletes a session and everything below it: rows, runs and log lines. Gives the deleted ids.
    ///
    /// # Errors
    /// [`Refused::StillRunning`] while anything of it is open, [`Refused::Foreign`] while another process
    /// owns the tree, [`Refused::UnknownSession`], or the store.
    pub async fn delete(&self, id: &SessionId) -> Result<Vec<SessionId>, Refused> {
        let subtree = self.inner.store.sessions(crate::store::SessionQuery::Subtree(id.clone())).await?;
        if subtree.is_empty() {
            return Err(Refused::UnknownSession { id: id.clone() });
        }
        if let Some(running) =
            subtree.iter().find(|record| record.run_state().is_some_and(|run| run.is_open()))
        {
            let root = running.data.root_id.clone();
            let trees = self.inner.store.trees(TreeQuery::Root(root)).await?;
            let alive = |owner| self.inner.store.owner_state(owner) == OwnerState::Alive;
            if trees.iter().any(|tree| alive(&tree.fence.owner)) {
                return Err(Refused::StillRunning { id: running.data.id.clone() });
            }
        }
        let tree = self.tree_for_writing(id).await?;
        {
            let mut state = tree.state();
            if let Some((_, running, _)) = state.open_below(id).into_iter().next() {
                return Err(Refused::StillRunning { id: running });
            }
            if state.being_made(id) > 0 {
                return Err(Refused::StillRunning { id: id.clone() });
            }
            state.member(id)?;
            // Nothing starts there any more, so that no line of it comes after its rows are gone.
            state.close_gates(id, Gate::Deleting);
        }
        // In a task of its own: what the store forgets is forgotten here too, whoever asked.
        let (manager, id) = (self.clone(), id.clone());
        let deleted = tokio::spawn(async move { manager.delete_at_rest(&tree, &id).await });
        deleted.await.unwrap_or(Err(Refused::Closing))
    }

    async fn delete_at_rest(&self, tree: &LiveTree, id: &SessionId) -> Result<Vec<SessionId>, Refused> {
        let (ack, committed) = oneshot::channel();
        let op = Op {
            writes: smallvec![Write::Delete(id.clone())],
            alone: true,
            then: Then::Tell(ack),
            ..Op::default()
        };
        let sent = tree.writer.send(op).await.map_err(|_| StoreError::Closed);
        let done = match sent {
            Ok(()) => committed.await.unwrap_or(Err(StoreError::Closed)),
            Err(error) => Err(error),
        };
        let mut trees = lock(&self.inner.trees);
        let mut state = tree.state();
        if let Err(error) = done {
            state.reopen_gates(id, Gate::Deleting);
            return Err(error.into());
        }
        let mut deleted: Vec<SessionId> = state.tree.leaves_first(id);
        deleted.reverse();
        if *id == tree.root {
            // Whoever still holds the tree may write nothing more.
            state.failed.get_or_insert_with(|| StoreError::Unknown { id: id.clone() });
            drop(state);
            trees.forget(id);
        } else {
            state.forget(id, &deleted);
        }
        for gone in &deleted {
            trees.root_of.remove(gone);
            trees.seen.remove(gone);
        }
        Ok(deleted)
    }

    /// Deletes whole trees at rest, so that no child is ever left without its parent. Gives the roots.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn retain(&self, policy: Retention) -> Result<Vec<SessionId>, Refused> {
        let mut deleted = Vec::new();
        for (newer, root) in self.roots(usize::MAX).await?.into_iter().enumerate() {
            let old = policy.created_before.is_some_and(|before| root.data.created_at < before);
            let surplus = policy.keep.is_some_and(|keep| newer >= keep);
            if !(old || surplus) {
                continue;
            }
            match self.delete(&root.data.id).await {
                Ok(_) => deleted.push(root.data.id),
                // In use: kept, whatever its age. Unknown: another process was faster.
                Err(
                    Refused::StillRunning { .. } | Refused::Foreign { .. } | Refused::UnknownSession { .. },
                ) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(deleted)
    }
}
