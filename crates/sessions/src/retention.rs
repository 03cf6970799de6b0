//! Deleting: a subtree on request, whole trees by age, number or size. Never an orphan.

use offspring_protocol::{OwnerId, SessionId, Timestamp};
use smallvec::smallvec;
use tokio::sync::oneshot;

use crate::{
    error::Refused,
    live::{Gate, LiveTree, lock},
    manager::SessionManager,
    store::{OwnerState, SessionRecord, StoreError, TreeQuery, TreeSize, Write},
    writer::{Op, Then},
};

/// Which trees to delete, whole: those that any of these names. All unset: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those at rest since before this: their root's last run ended earlier, or without one it was created earlier.
    pub rested_before: Option<Timestamp>,
    /// All but the newest so many, in the order of their creation.
    pub keep: Option<usize>,
    /// The oldest, until the store holds no more bytes than this; see [`Space::used_bytes`].
    ///
    /// [`Space::used_bytes`]: crate::store::Space::used_bytes
    pub max_bytes: Option<u64>,
}

/// A tree that was deleted, or would be.
#[derive(Debug, Clone)]
pub struct OldTree {
    /// Its root.
    pub root: SessionRecord,
    /// How much it is.
    pub size: TreeSize,
}

/// What a [`Retention`] came to.
#[derive(Debug, Clone, Default)]
pub struct Retained {
    /// The trees that are gone, or would be, oldest first.
    pub deleted: Vec<OldTree>,
    /// Roots that would be too but are kept, because their tree is in use.
    pub in_use: Vec<SessionId>,
}

impl SessionManager {
    /// What [`delete`](Self::delete) of this session would delete, itself first: its row and those below it.
    ///
    /// # Errors
    /// As `delete` would refuse it.
    pub async fn deletable(&self, id: &SessionId) -> Result<Vec<SessionRecord>, Refused> {
        let subtree = self.inner.store.sessions(crate::store::SessionQuery::Subtree(id.clone())).await?;
        let Some(top) = subtree.first() else { return Err(Refused::UnknownSession { id: id.clone() }) };
        let trees = self.inner.store.trees(TreeQuery::Root(top.data.root_id.clone())).await?;
        let store = &self.inner.store;
        let mut alive: Vec<&OwnerId> = Vec::new();
        for tree in &trees {
            if store.owner_state(tree.fence.owner.clone()).await? == OwnerState::Alive {
                alive.push(&tree.fence.owner);
            }
        }
        let running = subtree.iter().find(|record| record.run_state().is_some_and(|run| run.is_open()));
        match running {
            Some(running) if !alive.is_empty() => Err(Refused::StillRunning { id: running.data.id.clone() }),
            _ if alive.iter().any(|owner| **owner != store.owner()) => {
                Err(Refused::Foreign { id: id.clone() })
            }
            _ => Ok(subtree),
        }
    }

    /// Deletes a session and everything below it: rows, runs and log lines. Gives the deleted ids.
    ///
    /// # Errors
    /// [`Refused::StillRunning`] while anything of it is open, [`Refused::Foreign`] while another process
    /// owns the tree, [`Refused::UnknownSession`], or the store.
    pub async fn delete(&self, id: &SessionId) -> Result<Vec<SessionId>, Refused> {
        self.deletable(id).await?;
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

    /// Deletes whole trees at rest, oldest first, so that no child is ever left without its parent. Their room is
    /// given back by [`SessionStore::reclaim`](crate::SessionStore::reclaim).
    ///
    /// # Errors
    /// When the store cannot be read or written; what was deleted before that is gone.
    pub async fn retain(&self, policy: Retention) -> Result<Retained, Refused> {
        self.outdated(policy, true).await
    }

    /// What [`retain`](Self::retain) would delete now. How much that is, is an estimate.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn would_delete(&self, policy: Retention) -> Result<Retained, Refused> {
        self.outdated(policy, false).await
    }

    async fn outdated(&self, policy: Retention, delete: bool) -> Result<Retained, Refused> {
        let store = &self.inner.store;
        let mut retained = Retained::default();
        let mut used = store.space().await?.used_bytes;
        let roots = self.roots(usize::MAX).await?;
        for (newer, root) in roots.into_iter().enumerate().rev() {
            let old = policy.rested_before.is_some_and(|before| rests_since(&root) < before);
            let surplus = policy.keep.is_some_and(|keep| newer >= keep);
            let too_much = policy.max_bytes.is_some_and(|max| used > max);
            if !(old || surplus || too_much) {
                continue;
            }
            let id = root.data.id.clone();
            let size = store.tree_size(id.clone()).await?;
            let gone =
                if delete { self.delete(&id).await.map(drop) } else { self.deletable(&id).await.map(drop) };
            match gone {
                Ok(()) => retained.deleted.push(OldTree { root, size }),
                // Taken over between the look and the write: somebody else is at it.
                Err(
                    Refused::StillRunning { .. }
                    | Refused::Foreign { .. }
                    | Refused::Store(StoreError::Fenced { .. }),
                ) => {
                    retained.in_use.push(id);
                    continue;
                }
                // Another process was faster.
                Err(Refused::UnknownSession { .. }) => {}
                Err(refused) => return Err(refused),
            }
            used = if delete { store.space().await?.used_bytes } else { used.saturating_sub(size.bytes) };
        }
        Ok(retained)
    }
}

/// When a tree came to rest: the run of a root ends when everything below it has (rule L19).
fn rests_since(root: &SessionRecord) -> Timestamp {
    match &root.last_run {
        Some(run) => run.ended_at.unwrap_or(run.opened_at),
        None => root.data.created_at,
    }
}
