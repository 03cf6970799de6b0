//! No store at all (rule L8): takes every batch and keeps nothing.

use futures_util::future::{BoxFuture, ready};
use offspring_protocol::{Origin, OwnerId, RunRecord, SessionId};
use tokio::sync::watch;

use super::{
    Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, SessionQuery, SessionRecord,
    SessionStore, StoreError, StoreInfo, TreeQuery, TreeRecord, Write,
};

/// Takes every batch and keeps nothing.
#[derive(Debug)]
pub(crate) struct DetachedStore {
    owner: OwnerId,
    changes: watch::Sender<u64>,
}

impl Default for DetachedStore {
    fn default() -> Self {
        Self { owner: crate::ids::owner(), changes: watch::Sender::new(0) }
    }
}

fn nothing<T: Default + Send + 'static>() -> BoxFuture<'static, Result<T, StoreError>> {
    Box::pin(ready(Ok(T::default())))
}

impl SessionStore for DetachedStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let last = batch.writes.iter().rev().find_map(|write| match write {
            Write::Append(row) => Some(row.seq),
            _ => None,
        });
        Box::pin(ready(Ok(Committed { last_seq: last.unwrap_or(0) })))
    }

    fn claim(&self, root: SessionId, _: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        Box::pin(ready(Err(StoreError::Unknown { id: root })))
    }

    fn session(&self, _: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        nothing()
    }

    fn sessions(&self, _: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        nothing()
    }

    fn origin(&self, _: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        nothing()
    }

    fn runs(&self, _: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        nothing()
    }

    fn trees(&self, _: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        nothing()
    }

    fn events(&self, _: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        nothing()
    }

    fn open_commands(&self, _: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        nothing()
    }

    fn command(&self, _: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        nothing()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn owner(&self) -> OwnerId {
        self.owner.clone()
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        let state = if owner == self.owner { OwnerState::Alive } else { OwnerState::Dead };
        Box::pin(ready(Ok(state)))
    }

    fn info(&self) -> StoreInfo {
        StoreInfo { kind: "none", path: None, server: None }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        nothing()
    }
}
