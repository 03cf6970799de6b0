//! What readers ask about sessions: the store answers, so that the answer outlives this process.

use offspring_protocol::{Event, Outcome, RunState, SessionId};

use crate::{
    live::LiveTree,
    load::PAGE,
    manager::{SessionManager, record_in},
    store::{EventQuery, LogRow, SessionQuery, SessionRecord, StoreError},
};

impl SessionManager {
    /// The direct children of a session, in the order they were created.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn children(&self, id: &SessionId) -> Result<Vec<SessionRecord>, StoreError> {
        if self.inner.detached {
            return Ok(self.in_memory(id, |tree| tree.state().tree.children(id).cloned().collect()));
        }
        self.inner.store.sessions(SessionQuery::Children(id.clone())).await
    }

    /// Everything below a session, parents before children, siblings in the order they were created.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn descendants(&self, id: &SessionId) -> Result<Vec<SessionRecord>, StoreError> {
        let mut subtree = self.subtree(id).await?;
        if !subtree.is_empty() {
            subtree.remove(0);
        }
        Ok(subtree)
    }

    /// A session and everything below it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn subtree(&self, id: &SessionId) -> Result<Vec<SessionRecord>, StoreError> {
        if self.inner.detached {
            let ids = |tree: &LiveTree| {
                let state = tree.state();
                std::iter::once(id).chain(state.tree.descendants(id)).cloned().collect()
            };
            return Ok(self.in_memory(id, ids));
        }
        self.inner.store.sessions(SessionQuery::Subtree(id.clone())).await
    }

    fn in_memory(&self, id: &SessionId, ids: impl FnOnce(&LiveTree) -> Vec<SessionId>) -> Vec<SessionRecord> {
        let Some(tree) = self.live_tree(id) else { return Vec::new() };
        let ids = ids(&tree);
        ids.iter().filter_map(|id| record_in(&tree, id)).collect()
    }

    /// The sessions above a session, its parent first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn ancestors(&self, id: &SessionId) -> Result<Vec<SessionRecord>, StoreError> {
        let mut found = Vec::new();
        let mut above = self.session(id).await?.and_then(|record| record.data.parent_id);
        // A stored parent is set once, so the walk ends; an unknown one ends it too (L3).
        while let Some(id) = above {
            let Some(record) = self.session(&id).await? else { break };
            above = record.data.parent_id.clone();
            found.push(record);
        }
        Ok(found)
    }

    /// Root … self; empty for a session nobody knows (rule T14).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn path(&self, id: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        if let Some(info) = self.known(id) {
            return Ok(info.path.to_vec());
        }
        if self.session(id).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut path: Vec<SessionId> =
            self.ancestors(id).await?.into_iter().map(|record| record.data.id).collect();
        path.reverse();
        path.push(id.clone());
        Ok(path)
    }

    /// Roots, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn roots(&self, limit: usize) -> Result<Vec<SessionRecord>, StoreError> {
        if self.inner.detached {
            let trees: Vec<_> = crate::live::lock(&self.inner.trees).by_root.values().cloned().collect();
            return Ok(trees.iter().filter_map(|tree| record_in(tree, &tree.root)).take(limit).collect());
        }
        self.inner.store.sessions(SessionQuery::Roots { limit }).await
    }

    /// What the last run of a session gave, when it completed: its whole message, or, where that is not repeated
    /// ([`streamed_bytes`](offspring_protocol::event::MessageComplete::streamed_bytes)), the pieces of it. `None` for a
    /// session nobody knows and for a run that is open or did not complete.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn answer(&self, id: &SessionId) -> Result<Option<String>, StoreError> {
        let Some(record) = self.session(id).await? else { return Ok(None) };
        let completed = record.last_run.filter(|run| run.state == RunState::Ended(Outcome::Completed));
        let Some(run) = completed else { return Ok(None) };
        let (mut streamed, mut whole, mut after) = (String::new(), None, 0);
        loop {
            let (root, session) = (record.data.root_id.clone(), Some(id.clone()));
            let page = self.events(EventQuery { root, session, after, limit: PAGE }).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for line in page.iter().filter(|line| line.run.as_ref() == Some(&run.id) && !line.late) {
                match line.event.parse() {
                    Ok(Event::TextDelta(delta)) => streamed.push_str(&delta.text),
                    Ok(Event::MessageComplete(message)) => {
                        whole = (message.streamed_bytes == 0).then_some(message.text);
                    }
                    _ => {}
                }
            }
        }
        Ok(Some(whole.unwrap_or(streamed)))
    }

    /// A part of a tree's log.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn events(&self, query: EventQuery) -> Result<Vec<LogRow>, StoreError> {
        self.inner.store.events(query).await
    }
}
