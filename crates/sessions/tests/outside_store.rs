//! The guide *write a store*, followed by a stranger: its snippets are lines of this file, which the tests of the pages
//! check.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use futures_util::future::BoxFuture;
use offspring_protocol::{Origin, OwnerId, RunRecord, SessionId};
use offspring_sessions::contract::Fixture;
use offspring_sessions::{
    ManagerOptions, SessionManager, SessionRecord, SessionStore, StoreError,
    store::{
        Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, SessionQuery, StoreInfo,
        TreeQuery, TreeRecord,
        sqlite::{SqliteOptions, SqliteStore},
    },
};
use tokio::sync::watch;

/// A store of somebody else. It keeps its data in one of ours, which a real one would not.
struct YourStore(SqliteStore);

impl YourStore {
    fn open(directory: &Path) -> Self {
        Self(SqliteStore::open(directory.join("yours"), SqliteOptions::default()).unwrap())
    }
}

impl SessionStore for YourStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        self.0.commit(batch)
    }
    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        self.0.claim(root, from_epoch)
    }
    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.0.session(id)
    }
    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.0.sessions(query)
    }
    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.0.origin(root)
    }
    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.0.runs(session)
    }
    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.0.trees(query)
    }
    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.0.events(query)
    }
    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.0.open_commands(root)
    }
    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.0.command(id)
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
    fn owner(&self) -> OwnerId {
        self.0.owner()
    }
    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        self.0.owner_state(owner)
    }
    fn info(&self) -> StoreInfo {
        StoreInfo { kind: "yours", path: None, server: None }
    }
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.close()
    }
}

offspring_sessions::store_contract!(|| async {
    let place = tempfile::tempdir().unwrap();
    let open = || YourStore::open(place.path());
    Fixture::new(open()).with_other(open()).keeping(place)
});

#[tokio::test]
async fn a_manager_works_on_it() {
    let place = tempfile::tempdir().unwrap();
    let your_store = YourStore::open(place.path());
    let manager = SessionManager::new(Arc::new(your_store), ManagerOptions::default());
    drop(manager);
}
