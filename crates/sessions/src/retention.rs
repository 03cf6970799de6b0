//! Deleting: a subtree on request, whole trees by age or number. Never an orphan.

use offspring_protocol::{SessionId, Timestamp};

use crate::{
    error::Refused,
    live::lock,
    manager::{SessionManager, forget},
    store::{Batch, Durability, OwnerState, TreeQuery, Write},
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
        if let Some(running) = subtree.iter().find(|record| record.run_state().is_some_and(|run| run.is_open())) {
            let root = running.data.root_id.clone();
            let trees = self.inner.store.trees(TreeQuery::Root(root)).await?;
            let alive = |owner| self.inner.store.owner_state(owner) == OwnerState::Alive;
            if trees.iter().any(|tree| alive(&tree.fence.owner)) {
                return Err(Refused::StillRunning { id: running.data.id.clone() });
            }
        }
        let tree = self.tree_for_writing(id).await?;
        let fence = Some(tree.fence.clone());
        let batch = Batch { fence, writes: vec![Write::Delete(id.clone())], durability: Durability::Process };
        self.inner.store.commit(batch).await?;
        let deleted: Vec<SessionId> = subtree.into_iter().map(|record| record.data.id).collect();
        let mut trees = lock(&self.inner.trees);
        if *id == tree.root {
            forget(&mut trees, id);
        } else {
            let mut state = tree.state();
            state.forget(id, &deleted);
            for gone in &deleted {
                trees.root_of.remove(gone);
            }
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
                // In use: kept, whatever its age.
                Err(Refused::StillRunning { .. } | Refused::Foreign { .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(deleted)
    }
}
