//! Cancelling a subtree and closing the manager (rule L14).

use std::sync::Arc;

use offspring_protocol::{Outcome, SessionId};
use tokio::time::timeout;

use crate::{
    error::Refused,
    live::{Gate, LiveTree, OpenRun, lock},
    manager::SessionManager,
    store::StoreError,
};

/// How far a cancel reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CancelScope {
    /// The session and everything below it; nothing new starts there again until the session is resumed.
    #[default]
    Subtree,
    /// Only the session's present run; its children go on.
    Run,
}

/// What a cancel ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Sessions whose run was open and is over now, leaves first.
    pub ended: Vec<SessionId>,
    /// Sessions whose agent did not stop within the bound.
    pub stuck: Vec<SessionId>,
}

impl SessionManager {
    /// Cancels what this process runs of a session: closes the gate from the top, then stops from the
    /// leaves. When it returns, no task of the subtree runs, but for those it names as stuck.
    ///
    /// Cancelling twice is harmless: the second finds nothing open.
    ///
    /// # Errors
    /// [`Refused::UnknownSession`] when this process does not own the session; see
    /// [`request_cancel`](Self::request_cancel) for any process.
    pub async fn cancel(&self, session: &SessionId, scope: CancelScope) -> Result<Cancelled, Refused> {
        let tree = self.live_tree(session).ok_or_else(|| Refused::UnknownSession { id: session.clone() })?;
        let cancelled = match scope {
            CancelScope::Subtree => {
                tree.state().close_gates(session, Gate::Cancelled);
                let cancelled = self.stop(&tree, session, Outcome::Cancelled).await;
                // Everything below has ended, so that a later prompt may start anew.
                tree.state().open_gates(session);
                cancelled
            }
            CancelScope::Run => {
                let open = tree.state().member(session)?.open.clone();
                match open {
                    Some(open) => {
                        lock(&open.changing).forced.get_or_insert(Outcome::Cancelled);
                        open.stop.cancel();
                        Cancelled { ended: vec![session.clone()], stuck: Vec::new() }
                    }
                    None => Cancelled::default(),
                }
            }
        };
        Ok(cancelled)
    }

    /// Stops the open runs of a subtree, the deepest level first, each level at once.
    async fn stop(&self, tree: &Arc<LiveTree>, top: &SessionId, outcome: Outcome) -> Cancelled {
        let mut levels: Vec<Vec<(SessionId, Arc<OpenRun>)>> = Vec::new();
        {
            let state = tree.state();
            for id in state.tree.leaves_first(top) {
                let Some(member) = state.members.get(&id) else { continue };
                let Some(open) = &member.open else { continue };
                // However its agent ends now, it ends like this.
                lock(&open.changing).forced.get_or_insert(outcome);
                let depth = usize::try_from(member.info.depth).unwrap_or(usize::MAX);
                if levels.len() <= depth {
                    levels.resize_with(depth + 1, Vec::new);
                }
                levels[depth].push((id, Arc::clone(open)));
            }
        }
        let mut cancelled = Cancelled::default();
        for level in levels.into_iter().rev() {
            for (_, open) in &level {
                open.stop.cancel();
            }
            for (id, open) in level {
                match timeout(self.inner.options.cancel_bound, open.ended.cancelled()).await {
                    Ok(()) => cancelled.ended.push(id),
                    Err(_) => {
                        tracing::warn!(session = %id, "an agent did not stop within the bound");
                        cancelled.stuck.push(id);
                    }
                }
            }
        }
        cancelled
    }

    /// Refuses new sessions and runs with [`Refused::Closing`], cancels what runs, children first, ends the
    /// subscriptions and closes the store last. Harmless when repeated.
    ///
    /// # Errors
    /// When the store cannot be closed well.
    pub async fn close(&self) -> Result<Cancelled, StoreError> {
        let trees: Vec<Arc<LiveTree>> = {
            let mut trees = lock(&self.inner.trees);
            trees.closing = true;
            trees.by_root.values().cloned().collect()
        };
        let mut all = Cancelled::default();
        for tree in &trees {
            tree.state().close_gates(&tree.root, Gate::Closing);
        }
        for tree in &trees {
            let Cancelled { ended, stuck } = self.stop(tree, &tree.root, Outcome::Cancelled).await;
            all.ended.extend(ended);
            all.stuck.extend(stuck);
        }
        self.inner.bus.close();
        self.inner.store.close().await?;
        Ok(all)
    }
}
