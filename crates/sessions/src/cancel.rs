//! Cancelling a subtree and closing the manager (rule L14).

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use offspring_protocol::{Outcome, SessionId};
use tokio::time::{Instant, timeout_at};

use crate::{
    error::Refused,
    live::{Gate, LiveTree, OpenRun, lock},
    manager::SessionManager,
    store::StoreError,
};

/// How long a cancel waits for children that are being stored before it stops what is there.
const STORING: Duration = Duration::from_secs(1);

/// How far a cancel reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CancelScope {
    /// The session and everything below it; nothing new starts there until the cancel is done.
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
    /// leaves. When it returns, no task of the subtree runs, but for those it names as stuck; that takes at
    /// most twice [`ManagerOptions::cancel_bound`](crate::ManagerOptions::cancel_bound). The gate is open
    /// again then: a later prompt starts anew. A run must not wait for the cancel of itself.
    ///
    /// Cancelling twice is harmless: the second finds nothing open.
    ///
    /// # Errors
    /// [`Refused::UnknownSession`] when this process does not own the session; see
    /// [`request_cancel`](Self::request_cancel) for any process.
    pub async fn cancel(&self, session: &SessionId, scope: CancelScope) -> Result<Cancelled, Refused> {
        let tree = self.live_tree(session).ok_or_else(|| Refused::UnknownSession { id: session.clone() })?;
        match scope {
            CancelScope::Subtree => {
                tree.state().close_gates(session, Gate::Cancelled);
                // Opened again also when this future is dropped: a gate must not stay closed for ever.
                let opens = Opens { tree: &tree, top: session };
                let cancelled = self.stop(&tree, session).await;
                drop(opens);
                Ok(cancelled)
            }
            CancelScope::Run => {
                let open = {
                    let state = tree.state();
                    let Some(open) = state.member(session)?.open.clone() else {
                        return Ok(Cancelled::default());
                    };
                    lock(&open.changing).forced.get_or_insert(Outcome::Cancelled);
                    open
                };
                open.stop.cancel();
                let mut cancelled = Cancelled::default();
                cancelled
                    .wait(session.clone(), &open, Instant::now() + self.inner.options.cancel_bound)
                    .await;
                Ok(cancelled)
            }
        }
    }

    /// Stops the open runs of a subtree whose gates are closed, the deepest level first, each level at once.
    /// A child that was being made when the gates closed is waited for: it ends before it starts.
    async fn stop(&self, tree: &LiveTree, top: &SessionId) -> Cancelled {
        let bound = self.inner.options.cancel_bound;
        // One bound for all that stop from the leaves. Once it has passed the levels above are stopped
        // together, with one more bound for all of them.
        let first = Instant::now() + bound;
        let last = first + bound;
        let mut cancelled = Cancelled::default();
        loop {
            // A child on its way into the store is a leaf too: it ends before what is above it. Behind the
            // closed gates there are no new ones. A slow store must not keep programs running: after a
            // moment the agents are asked to stop all the same.
            let moment = first.min(Instant::now() + STORING);
            let _ = timeout_at(moment, tree.until(|state| state.being_made(top) == 0)).await;
            let open = {
                let state = tree.state();
                let mut open = state.open_below(top);
                open.retain(|(_, id, _)| !cancelled.stuck.contains(id));
                for (_, _, run) in &open {
                    // However its agent ends now, it ends like this.
                    lock(&run.changing).forced.get_or_insert(Outcome::Cancelled);
                }
                open.sort_by_key(|(depth, ..)| std::cmp::Reverse(*depth));
                open
            };
            for level in open.chunk_by(|(one, ..), (other, ..)| one == other) {
                if Instant::now() >= first {
                    open.iter().for_each(|(_, _, run)| run.stop.cancel());
                }
                level.iter().for_each(|(_, _, run)| run.stop.cancel());
                let until = if Instant::now() < first { first } else { last };
                for (_, id, run) in level {
                    cancelled.wait(id.clone(), run, until).await;
                }
            }
            let settled = tree.until(|state| {
                state.being_made(top) == 0
                    || state.open_below(top).iter().any(|(_, id, _)| !cancelled.stuck.contains(id))
            });
            let in_time = timeout_at(last, settled).await.is_ok();
            let state = tree.state();
            let more = state.open_below(top).iter().any(|(_, id, _)| !cancelled.stuck.contains(id));
            if !more && (state.being_made(top) == 0 || !in_time) {
                return cancelled;
            }
        }
    }

    /// Refuses new sessions and runs with [`Refused::Closing`], cancels what runs, children first, ends the
    /// subscriptions and closes the store last. Harmless when repeated.
    ///
    /// # Errors
    /// When the store cannot be closed well.
    pub async fn close(&self) -> Result<Cancelled, StoreError> {
        lock(&self.inner.trees).closing = true;
        // Trees that are being made or taken over are there before this goes on; later ones are refused.
        drop(self.inner.opening.write().await);
        let trees: Vec<Arc<LiveTree>> = lock(&self.inner.trees).by_root.values().cloned().collect();
        for tree in &trees {
            tree.state().close_gates(&tree.root, Gate::Closing);
        }
        let mut all = Cancelled::default();
        for Cancelled { ended, stuck } in join_all(trees.iter().map(|tree| self.stop(tree, &tree.root))).await
        {
            all.ended.extend(ended);
            all.stuck.extend(stuck);
        }
        // What was emitted and is queued, late events too, is written and heard before that ends.
        join_all(trees.iter().map(|tree| tree.flush())).await;
        self.inner.bus.close();
        self.inner.store.close().await?;
        Ok(all)
    }
}

impl Cancelled {
    async fn wait(&mut self, id: SessionId, run: &OpenRun, until: Instant) {
        if timeout_at(until, run.ended.cancelled()).await.is_ok() {
            self.ended.push(id);
        } else {
            tracing::warn!(session = %id, "an agent did not stop within the bound");
            self.stuck.push(id);
        }
    }
}

/// Opens the gates of a cancelled subtree, so that a later prompt may start anew.
struct Opens<'a> {
    tree: &'a LiveTree,
    top: &'a SessionId,
}

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.tree.state().open_gates(self.top);
    }
}
