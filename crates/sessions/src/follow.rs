//! Reading a tree from a cursor: history, then live, no gap and no duplicate (rule L18).

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;
use offspring_protocol::{Envelope, SessionId, SessionInfo};
use tokio::sync::watch;

use crate::{
    load::{PAGE, infos},
    manager::SessionManager,
    store::{EventQuery, OwnerState, SessionQuery, StoreError, TreeQuery},
};

/// Looked at again after this long even if no change was announced: an owner's death announces nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A reader of one tree. Reads committed lines from the store by cursor, so that it holds at most one page
/// of them and can never lag.
#[derive(Debug)]
pub struct Follow {
    manager: SessionManager,
    root: SessionId,
    cursor: u64,
    page: VecDeque<Arc<Envelope>>,
    infos: HashMap<SessionId, Arc<SessionInfo>, RandomState>,
    changes: watch::Receiver<u64>,
    at_rest: bool,
}

impl SessionManager {
    /// Follows a tree from `from` (1 for its beginning; the first envelope has this number or the next one
    /// there is). Works for trees of any process that shares the store.
    #[must_use]
    pub fn follow(&self, root: &SessionId, from: u64) -> Follow {
        Follow {
            manager: self.clone(),
            root: root.clone(),
            cursor: from.saturating_sub(1),
            page: VecDeque::new(),
            infos: HashMap::default(),
            changes: self.inner.store.changes_of(root),
            at_rest: false,
        }
    }
}

impl Follow {
    /// The next envelope; `None` once the tree is at rest and everything of it was given. Call again later
    /// to go on: a resumed tree has more.
    ///
    /// # Errors
    /// When the store cannot be read; the cursor stays where it was.
    pub async fn next(&mut self) -> Result<Option<Arc<Envelope>>, StoreError> {
        loop {
            if let Some(envelope) = self.page.pop_front() {
                self.cursor = envelope.seq;
                return Ok(Some(envelope));
            }
            // The state of the runs is read before the lines: what ends in between has its lines there.
            self.changes.mark_unchanged();
            let at_rest = self.is_at_rest().await?;
            self.read().await?;
            if !self.page.is_empty() {
                continue;
            }
            if at_rest {
                self.at_rest = true;
                return Ok(None);
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, self.changes.changed()).await;
        }
    }

    /// Returns when the store may have more; a hint, and an owner's death gives none.
    pub(crate) async fn changed(&mut self) {
        let _ = tokio::time::timeout(LOOK_AGAIN, self.changes.changed()).await;
    }

    /// The next envelope that is in the store now; `None` when there is no more. Waits for nothing else.
    pub(crate) async fn stored(&mut self) -> Result<Option<Arc<Envelope>>, StoreError> {
        if self.page.is_empty() {
            self.changes.mark_unchanged();
            self.read().await?;
        }
        let next = self.page.pop_front();
        if let Some(envelope) = &next {
            self.cursor = envelope.seq;
        }
        Ok(next)
    }

    /// The number of the last envelope that was given.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    async fn is_at_rest(&self) -> Result<bool, StoreError> {
        let store = self.manager.store();
        let Some(tree) = store.trees(TreeQuery::Root(self.root.clone())).await?.into_iter().next() else {
            return Err(StoreError::Unknown { id: self.root.clone() });
        };
        let ours = self.manager.live_tree(&self.root).is_some_and(|tree| {
            let state = tree.state();
            state.failed.is_some() && state.open_runs == 0
        });
        if ours {
            // Its end could not be written: nothing of it will come any more.
            return Ok(true);
        }
        if tree.open_runs > 0 && store.owner_state(tree.fence.owner).await? == OwnerState::Dead {
            // Nobody will end these runs but a sweep (L13).
            self.manager.recover().await?;
        }
        Ok(tree.open_runs == 0)
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let query = EventQuery { root: self.root.clone(), session: None, after: self.cursor, limit: PAGE };
        let lines = self.manager.store().events(query).await?;
        if self.infos.is_empty() && !lines.is_empty() {
            let records = self.manager.store().sessions(SessionQuery::Subtree(self.root.clone())).await?;
            self.infos = infos(&records).into_iter().map(|info| (info.id.clone(), info)).collect();
        }
        for line in &lines {
            if !self.infos.contains_key(&line.session) {
                // One made since: one walk up, not the whole tree again.
                let made = self.manager.stored_info(&line.session).await?;
                self.infos.extend(made.map(|info| (info.id.clone(), info)));
            }
        }
        for line in lines {
            // Without a row it was deleted a moment ago, and its lines with it.
            let Some(session) = self.infos.get(&line.session).cloned() else { continue };
            let (seq, at, run, late, event) = (line.seq, line.at, line.run, line.late, line.event);
            self.page.push_back(Arc::new(Envelope { seq, at, run, late, session, event }));
        }
        Ok(())
    }
}
