//! The store in one SQLite file.
//!
//! One thread writes: it commits whatever is queued at once, each batch in a savepoint of its own. A few
//! connections read. Processes may share the file: they take turns, wait for each other up to a bound, and
//! know from locked files beside it who lives.
//!
//! | file | what it is |
//! |---|---|
//! | `<db>` | the tables; readable by its user only, like everything below |
//! | `<db>-wal`, `<db>-shm` | SQLite's log and index; there while the store is open |
//! | `<db>.owners/<owner>.lock` | locked while that process lives |
//! | `<db>.owners/.next`, `.turn`, `.make` | who writes next, who writes, who makes or upgrades the file |
//! | `<db>.v1-backup` | the store as it was before it was brought from schema 1 to a later one |
//!
//! What was deleted is overwritten with zeros, in the file and in the log. The file does not shrink by
//! itself: freed pages are used again; [`reclaim`](SessionStore::reclaim) gives them back. Network file systems (NFS, SMB and CIFS,
//! 9p, AFS, Ceph, Coda, Lustre, GPFS, BeeGFS, NCP) are refused on Linux; elsewhere, and behind FUSE, whoever
//! names such a file is on their own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, ready};
use offspring_protocol::{Origin, OwnerId, RunRecord, SessionId};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::{
    Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, Reclaimed, SessionQuery,
    SessionRecord, SessionStore, Space, StoreError, StoreInfo, TreeQuery, TreeRecord, TreeSize,
};

mod apply;
mod changes;
mod code;
mod fault;
mod file;
mod kind;
mod long;
#[cfg(unix)]
mod look;
mod owners;
mod private;
mod read;
mod readers;
mod reclaim;
mod schema;
mod turnstile;
mod upgrade;
mod writer;

use changes::Changes;
use fault::{Fault, Place};
#[cfg(unix)]
pub use look::{FileLook, StoreLook, look};
use readers::Readers;
pub use schema::VERSION as SCHEMA_VERSION;
pub use upgrade::Upgraded;
use writer::{Ask, Work, Writer};

/// How a [`SqliteStore`] behaves.
#[derive(Debug, Clone, Copy)]
pub struct SqliteOptions {
    /// How long a write waits for other programs before [`StoreError::Busy`]; 30 s by default.
    pub busy_timeout: Duration,
    /// Batches in one transaction at most; 512 by default. 1 commits each alone, which is slower.
    pub max_group: usize,
    /// Batches that may wait for the writing thread; 1,024 by default. More callers wait for a place.
    pub queue: usize,
    /// Connections that read, opened when they are needed; 4 by default.
    pub readers: usize,
    /// How often [`changes`](SessionStore::changes) looks for commits of other processes while somebody
    /// listens; 25 ms by default.
    pub poll: Duration,
    /// Bytes the file may have; beyond, writes are refused with [`StoreError::Full`]. Unbounded by default.
    pub max_bytes: Option<u64>,
    /// Bytes of a page of a new file, a power of two from 512 to 65,536; 4,096 by default.
    pub page_bytes: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(30),
            max_group: 512,
            queue: 1_024,
            readers: 4,
            poll: Duration::from_millis(25),
            max_bytes: None,
            page_bytes: 4_096,
        }
    }
}

/// The store in one SQLite file. Used inside a tokio runtime.
///
/// Dropping it writes what is queued and waits up to 2 s for that; [`close`](SessionStore::close) waits
/// until it is done.
#[derive(Debug)]
pub struct SqliteStore {
    place: Place,
    owners: PathBuf,
    owner: OwnerId,
    closed: AtomicBool,
    upgraded: Option<Upgraded>,
    readers: Arc<Readers>,
    changes: Arc<Changes>,
    // Last: what reads and listens goes first.
    writer: Writer,
}

impl SqliteStore {
    /// Opens the file; makes it, and the directories above it, where they are missing.
    ///
    /// A store of an older version is brought to ours, after a copy of it was kept beside it
    /// ([`upgraded`](Self::upgraded)). Blocks while it does that, or waits for another process that does.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for a place that cannot hold a store, or a file of another program;
    /// [`StoreError::Corrupt`] for a damaged or empty file; [`StoreError::Newer`] for one of a later
    /// version; [`StoreError::InUse`] for one of an older version in which another program is at work;
    /// [`StoreError::Full`] when there is no room for the copy; [`StoreError::Busy`] when others keep it locked.
    /// Then the file is as it was.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let (place, owners) = file::prepare(path.as_ref(), &options)?;
        let (conn, upgraded) = file::open_writer(&place, &owners, &options)?;
        let owner = crate::ids::owner();
        let lock = owners::OwnerLock::take(&place, &owners, &owner)?;
        let turnstile = turnstile::Turnstile::open(&place, &owners)?;
        let changes = Changes::new(&place, options.poll);
        let readers = Readers::new(&place, options.readers);
        let work = Work {
            place: place.clone(),
            conn,
            turnstile,
            owner: owner.clone(),
            owners: owners.clone(),
            lock,
            changes: Arc::clone(&changes),
            max_group: options.max_group,
        };
        let writer = Writer::start(work, options.queue)?;
        Ok(Self { place, owners, owner, closed: AtomicBool::new(false), upgraded, readers, changes, writer })
    }

    /// What opening it did to a store of an older version; for people, who should know of the copy.
    #[must_use]
    pub const fn upgraded(&self) -> Option<&Upgraded> {
        self.upgraded.as_ref()
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Ask,
    ) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let (answer, answered) = oneshot::channel();
        self.writer.ask(ask(answer)).await?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        Box::pin(Arc::clone(&self.readers).read(read))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close();
        self.changes.close();
    }
}

impl SessionStore for SqliteStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(self.ask(|answer| Ask::Commit(batch, answer)))
    }

    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        Box::pin(self.ask(move |answer| Ask::Claim { root, from_epoch, answer }))
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.read(move |conn| read::session(conn, &id))
    }

    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.read(move |conn| read::sessions(conn, &query))
    }

    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.read(move |conn| read::origin(conn, &root))
    }

    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.read(move |conn| read::runs(conn, &session))
    }

    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.read(move |conn| read::trees(conn, &query))
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.read(move |conn| read::events(conn, &query))
    }

    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.read(move |conn| read::open_commands(conn, &root))
    }

    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.read(move |conn| read::command(conn, &id))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn owner(&self) -> OwnerId {
        self.owner.clone()
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        Box::pin(ready(Ok(owners::state(&self.owners, &owner))))
    }

    fn info(&self) -> StoreInfo {
        StoreInfo { kind: "sqlite", path: Some(self.place.path.clone()), server: None }
    }

    fn space(&self) -> BoxFuture<'_, Result<Space, StoreError>> {
        let place = self.place.clone();
        self.read(move |conn| reclaim::space(conn, &place))
    }

    fn tree_size(&self, root: SessionId) -> BoxFuture<'_, Result<TreeSize, StoreError>> {
        self.read(move |conn| read::tree_size(conn, &root))
    }

    fn reclaim(&self) -> BoxFuture<'_, Result<Reclaimed, StoreError>> {
        Box::pin(self.ask(Ask::Reclaim))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.closed.store(true, Ordering::Release);
        Box::pin(async {
            self.readers.close();
            self.changes.close();
            let (answer, answered) = oneshot::channel();
            // An error means it was closed before, and has ended or is ending.
            if self.writer.ask(Ask::Close(answer)).await.is_ok() {
                let _ = answered.await;
            }
            Ok(())
        })
    }
}
