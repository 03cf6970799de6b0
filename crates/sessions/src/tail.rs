//! Reading a tree from a cursor for as long as one likes: history from the store, then what this process
//! publishes, no gap and no duplicate (rule L18).

use std::{collections::VecDeque, sync::Arc};

use offspring_protocol::{Envelope, SessionId};

use crate::{
    bus::{Lagged, Scope, Subscription},
    follow::Follow,
    manager::SessionManager,
    store::{StoreError, TreeQuery},
};

/// A reader of one tree of this process that never ends by itself. While it keeps up it costs the store
/// nothing; when it falls behind the bus it reads what it missed from the store, so that its memory is
/// bounded by one queue whatever its own reader does.
///
/// Of a tree that another process owns it hears what [`SessionManager::follow`] hears.
#[derive(Debug)]
pub struct Tail {
    manager: SessionManager,
    root: SessionId,
    cursor: u64,
    live: Subscription,
    waiting: VecDeque<Arc<Envelope>>,
    /// What is in the store beyond the cursor is read before anything of `live`.
    history: Option<Follow>,
}

impl SessionManager {
    /// Reads a tree from number `from` on (1 for its beginning).
    #[must_use]
    pub fn tail(&self, root: &SessionId, from: u64) -> Tail {
        Tail {
            manager: self.clone(),
            root: root.clone(),
            cursor: from.saturating_sub(1),
            // Before the first look into the store, so that nothing falls between the two.
            live: self.subscribe(Scope::Subtree(root.clone())),
            waiting: VecDeque::new(),
            history: Some(self.follow(root, from)),
        }
    }

    /// Whether another process is the owner of a tree.
    async fn is_foreign(&self, root: &SessionId) -> Result<bool, StoreError> {
        let store = self.store();
        let trees = store.trees(TreeQuery::Root(root.clone())).await?;
        Ok(trees.first().is_some_and(|tree| tree.fence.owner != store.owner()))
    }
}

impl Tail {
    /// The next envelope; `None` when this process closes its bus. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the store cannot be read; the cursor stays where it was.
    pub async fn next(&mut self) -> Result<Option<Arc<Envelope>>, StoreError> {
        loop {
            if let Some(history) = &mut self.history {
                if let Some(envelope) = history.stored().await? {
                    self.cursor = envelope.seq;
                    return Ok(Some(envelope));
                }
                if !self.manager.is_foreign(&self.root).await? {
                    self.history = None;
                }
            }
            while let Some(envelope) = self.waiting.pop_front() {
                if envelope.seq > self.cursor {
                    self.cursor = envelope.seq;
                    return Ok(Some(envelope));
                }
            }
            let heard = match &mut self.history {
                None => self.live.recv_many().await,
                // Another process publishes nothing here: what it commits is looked for.
                Some(history) => tokio::select! {
                    heard = self.live.recv_many() => heard,
                    () = history.changed() => continue,
                },
            };
            match heard {
                Ok(Some(envelopes)) => self.waiting = envelopes,
                Ok(None) => return Ok(None),
                Err(Lagged { .. }) => {
                    self.live = self.manager.subscribe(Scope::Subtree(self.root.clone()));
                    self.history = Some(self.manager.follow(&self.root, self.cursor + 1));
                }
            }
        }
    }

    /// The number of the last envelope that was given.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }
}
