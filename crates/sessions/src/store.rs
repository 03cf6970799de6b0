//! What a store is: one write, all or nothing, and a few reads.
//!
//! A store keeps rows and logs; it decides nothing. Only the [`SessionManager`](crate::SessionManager)
//! writes through it. Every store passes the public suite in `contract` (the
//! feature of that name).

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_protocol::{
    BadId, Origin, OwnerId, RawEvent, RunId, RunRecord, RunState, SessionData, SessionId, SessionState,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

mod detached;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod prefix;
mod room;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub(crate) use detached::DetachedStore;
pub use memory::MemoryStore;
pub use room::{Reclaimed, Space, TreeSize, Unreclaimed};

/// The right to write to one tree: who owns it, and the how-manieth owner that is.
///
/// A batch whose fence is not the tree's present one is refused with [`StoreError::Fenced`], so that an
/// owner which was taken for dead can write nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The root of the tree.
    pub root: SessionId,
    /// The owner.
    pub owner: OwnerId,
    /// Counts the owners of the tree, from 1.
    pub epoch: u64,
}

/// What must have happened before a commit is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the death of our process (`kill -9`), not a power cut. The default.
    #[default]
    Process,
    /// It also survives a power cut: the log is synced to the disk first.
    Power,
}

/// One line of a tree's log, as it is written and read.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRow {
    /// 1, 2, 3 … within the tree (rule L16).
    pub seq: u64,
    /// Whose event it is.
    pub session: SessionId,
    /// The run it belongs to, if any.
    pub run: Option<RunId>,
    /// When it was numbered.
    pub at: Timestamp,
    /// Whether it came after the end of its run (rule L12).
    pub late: bool,
    /// What happened.
    pub event: RawEvent,
}

/// What another process asks of a tree's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Cancel this session and everything below it (rule L14).
    Cancel,
}

/// A request to the owner of a tree, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRow {
    /// Names the command; the asker makes it.
    pub id: String,
    /// The tree it is about.
    pub root: SessionId,
    /// The session it is about.
    pub session: SessionId,
    /// What is asked.
    pub kind: CommandKind,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// The owner's answer, for people; `None` until it is done.
    pub answer: Option<String>,
}

/// One change of a batch.
#[derive(Debug, Clone)]
pub enum Write {
    /// A new row. Its id must be free ([`StoreError::Taken`]); a root's row makes its tree, owned by the
    /// batch's fence. Its `parent_id` may name a session that is not stored (rule L3).
    Session(Arc<SessionData>),
    /// A changed row: everything but id, parent, root and depth, which are set once.
    Update(Arc<SessionData>),
    /// What a root was started with, after its row; a second one takes the place of the first. For a root
    /// only: of a child there is no tree ([`StoreError::Unknown`]).
    Origin {
        /// The root.
        root: SessionId,
        /// What it was started with.
        origin: Arc<Origin>,
    },
    /// A run's record, new or changed (by its id).
    Run(Box<RunRecord>),
    /// The next line of the log (rule L16: [`StoreError::NotNext`] for any other number).
    Append(LogRow),
    /// The numbers up to this one stay without a line: a copied log keeps the gaps that deleting left in it.
    /// A number that was given already is [`StoreError::NotNext`].
    Skip {
        /// The tree.
        root: SessionId,
        /// The last number without a line.
        to: u64,
    },
    /// A command of another process, or its answer (by its id). Needs no fence.
    Command(CommandRow),
    /// This session and all below it: rows, runs, log lines and commands. With the root goes the tree.
    Delete(SessionId),
}

/// Writes that are committed together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The right to write; only batches of nothing but commands may have none.
    pub fence: Option<Fence>,
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// What must have happened before the answer.
    pub durability: Durability,
}

/// A batch is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The number of the tree's last line; 0 without a tree.
    pub last_seq: u64,
}

/// A session's row with its last run.
#[derive(Debug, Clone)]
pub struct SessionRecord {
    /// The row.
    pub data: SessionData,
    /// Its last run, if it ever had one.
    pub last_run: Option<RunRecord>,
    /// The root that this root repeats ([`Origin::rerun_of`]).
    pub rerun_of: Option<SessionId>,
}

impl SessionRecord {
    /// Running while its last run is open (rule L12).
    #[must_use]
    pub fn state(&self) -> SessionState {
        match &self.last_run {
            Some(run) if run.state.is_open() => SessionState::Running,
            _ => SessionState::Idle,
        }
    }

    /// Where its last run stands.
    #[must_use]
    pub fn run_state(&self) -> Option<RunState> {
        self.last_run.as_ref().map(|run| run.state)
    }
}

/// A tree: its owner and how far its log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRecord {
    /// Who may write, and since which take-over.
    pub fence: Fence,
    /// The number of its last line; 0 when it has none.
    pub last_seq: u64,
    /// Runs of it that have not ended.
    pub open_runs: u64,
}

/// Which sessions a reader wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionQuery {
    /// Roots, newest first.
    Roots {
        /// At most so many.
        limit: usize,
    },
    /// The direct children of a session, in the order they were created.
    Children(SessionId),
    /// A session and all below it, parents before children, siblings in the order they were created.
    Subtree(SessionId),
    /// Sessions whose id starts with this, at most 20, roots first.
    Prefix(String),
}

/// Which trees a reader wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeQuery {
    /// The tree of this root.
    Root(SessionId),
    /// Every tree with a run that has not ended.
    Open,
}

/// Bytes of data after which a store ends a page of a log, so that a reader's memory does not depend on how
/// long the lines are: a page holds these and its last line.
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// A part of a tree's log. A page may be shorter than asked ([`MAX_PAGE_BYTES`]); only an empty one says that
/// there is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// The tree.
    pub root: SessionId,
    /// Only lines of this session, if given.
    pub session: Option<SessionId>,
    /// Only lines with a greater number.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
}

/// Whether the process behind an owner id lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// It holds its lock or its lease (or it is we).
    Alive,
    /// Its lock can be taken, or its lease is over by the database's clock.
    Dead,
}

/// What a store says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// `memory`, `sqlite` …
    pub kind: &'static str,
    /// Where it is, when it is a file.
    pub path: Option<PathBuf>,
    /// Where it is, when it is a server: an address without a password.
    pub server: Option<String>,
}

impl fmt::Display for StoreInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.server) {
            (Some(path), _) => write!(f, "{}", path.display()),
            (None, Some(server)) => f.write_str(server),
            (None, None) => f.write_str("memory only"),
        }
    }
}

/// Why a store did not do what it was asked. Nothing of a refused batch is written, but for what
/// [`Undecided`](StoreError::Undecided) says.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Others held the store for longer than the bound.
    #[error("the store {store} was busy for {} s; another program is writing to it", waited.as_secs())]
    Busy {
        /// Which store.
        store: String,
        /// How long we waited.
        waited: Duration,
    },
    /// It is not what we wrote.
    #[error("the store {store} is damaged: {detail}")]
    Corrupt {
        /// Which store.
        store: String,
        /// What was found.
        detail: String,
    },
    /// A newer version of the program wrote it.
    #[error(
        "the store {store} was written by a newer version (schema {found}, this program knows up to {supported}); \
         use that version, or another file with --db"
    )]
    Newer {
        /// Which store.
        store: String,
        /// Its schema.
        found: u32,
        /// The newest schema we know.
        supported: u32,
    },
    /// It is of an older version and another program is at work in it, so it cannot be brought to ours now.
    #[error(
        "the store {store} is of an older version (schema {found}, this program needs {supported}) and another \
         program works in it (tree {root}): wait until that has ended, or cancel it with the version that runs it \
         (offspring cancel {root}), then try again"
    )]
    InUse {
        /// Which store.
        store: String,
        /// Its schema.
        found: u32,
        /// The newest schema we know.
        supported: u32,
        /// The root of a tree that is at work.
        root: SessionId,
    },
    /// The id of a new session is in use.
    #[error("the session id {id} is taken by a session of owner {owner}")]
    Taken {
        /// The id.
        id: SessionId,
        /// Who owns the tree of the session that has it.
        owner: OwnerId,
    },
    /// The tree has another owner now.
    #[error("the tree {root} was taken over by another process; this one may write to it no more")]
    Fenced {
        /// The root of the tree.
        root: SessionId,
    },
    /// A log line has not the next number (rule L16).
    #[error("the log of {root} expects number {expected}, not {got}")]
    NotNext {
        /// The root of the tree.
        root: SessionId,
        /// The next number.
        expected: u64,
        /// The number that was offered.
        got: u64,
    },
    /// No such session, tree or run.
    #[error("no session {id} is stored")]
    Unknown {
        /// The id.
        id: SessionId,
    },
    /// An id that cannot be stored (rule T1).
    #[error(transparent)]
    BadId(#[from] BadId),
    /// It cannot grow: the disk is full, or the system refuses to write more. What was committed stays.
    #[error("no room for the store {store}, nothing of this write was kept: {}", room::no_room(*.free_bytes, .detail))]
    Full {
        /// Which store.
        store: String,
        /// Free on its file system, in bytes; `None` where that is not known.
        free_bytes: Option<u64>,
        /// What the system or the database said.
        detail: String,
    },
    /// Its place cannot hold a store.
    #[error("the store {store} cannot be used: {detail}")]
    Unusable {
        /// Which store.
        store: String,
        /// Why.
        detail: String,
    },
    /// Its server could not be reached for longer than the bound. What was acknowledged before is in it.
    #[error("the store {store} cannot be reached (for {} s), nothing of this was written: {detail}", waited.as_secs())]
    Unreachable {
        /// Which store.
        store: String,
        /// How long we tried.
        waited: Duration,
        /// What the system or the server said last.
        detail: String,
    },
    /// The connection was lost while a batch was being committed, and the server could not be asked in time what became
    /// of it: all of it is written or nothing. Reading what it wrote tells.
    #[error(
        "the connection to the store {store} was lost during a write, and whether it is written could not be found out \
         in {} s: {detail}", waited.as_secs()
    )]
    Undecided {
        /// Which store.
        store: String,
        /// How long we tried.
        waited: Duration,
        /// What the system or the server said last.
        detail: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// One place where sessions are kept.
///
/// All methods may be called from many tasks. No method holds a read transaction across an await.
pub trait SessionStore: Send + Sync + 'static {
    /// Writes all of the batch or nothing. Checks, in this order, per batch: the fence, then each write.
    ///
    /// # Errors
    /// Any [`StoreError`]; then nothing of the batch is stored, but for what [`StoreError::Undecided`] says.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>>;

    /// Makes us the owner of a tree whose present epoch is `from_epoch` and gives the new fence.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when the epoch has moved on, [`StoreError::Unknown`] for no such tree.
    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>>;

    /// One session.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>>;

    /// Many sessions.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>>;

    /// What a root was started with; `None` where nobody wrote it, for a child, and for no session.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>>;

    /// The runs of a session, first to last.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>>;

    /// Trees.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>>;

    /// A part of a log, in the order of its numbers.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>>;

    /// The commands for a tree that have no answer yet, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>>;

    /// One command.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>>;

    /// Changes whenever something was committed, by us or by another process (then within 100 ms). A
    /// hint to look again: several commits may be one change.
    fn changes(&self) -> watch::Receiver<u64>;

    /// The same for one tree, where the store can tell trees apart; by default every commit counts.
    fn changes_of(&self, root: &SessionId) -> watch::Receiver<u64> {
        let _ = root;
        self.changes()
    }

    /// Who we are among the processes that share this store.
    fn owner(&self) -> OwnerId;

    /// Whether that owner lives (rule L13). Never guesses from a clock of ours: it asks what ends with a process
    /// (a lock), or the clock of the database that holds a lease. A future, because that may be on another machine.
    ///
    /// # Errors
    /// When that cannot be asked; not knowing must not look like death.
    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>>;

    /// What and where it is.
    fn info(&self) -> StoreInfo;

    /// How much room it takes. By default nothing is known.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn space(&self) -> BoxFuture<'_, Result<Space, StoreError>> {
        Box::pin(async { Ok(Space::default()) })
    }

    /// How much of it one tree is; zeros for a tree that is not stored. By default nothing is known.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn tree_size(&self, root: SessionId) -> BoxFuture<'_, Result<TreeSize, StoreError>> {
        drop(root);
        Box::pin(async { Ok(TreeSize::default()) })
    }

    /// Gives back the room of what was deleted and leaves no byte of it. By default there is nothing to do.
    ///
    /// # Errors
    /// When the store cannot be written. What was deleted stays deleted.
    fn reclaim(&self) -> BoxFuture<'_, Result<Reclaimed, StoreError>> {
        Box::pin(async { Ok(Reclaimed::default()) })
    }

    /// Ends it: what was acknowledged is stored, everything later is [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// What must hold for any stored row, whatever the store (rule T1).
pub(crate) fn check_row(data: &SessionData) -> Result<(), StoreError> {
    for id in [Some(&data.id), Some(&data.root_id), data.parent_id.as_ref()].into_iter().flatten() {
        id.check_storable()?;
    }
    data.agent_name.check_storable()?;
    Ok(())
}

/// The same for what a root was started with.
pub(crate) fn check_origin(origin: &Origin) -> Result<(), StoreError> {
    origin.node.check_storable()?;
    origin.rerun_of.as_ref().map_or(Ok(()), SessionId::check_storable)?;
    Ok(())
}

/// The tree a batch writes to; rows, runs and lines need one.
pub(crate) fn fence_root<'a>(fence: Option<&'a Fence>, id: &SessionId) -> Result<&'a SessionId, StoreError> {
    fence.map(|fence| &fence.root).ok_or_else(|| StoreError::Fenced { root: id.clone() })
}

/// Why a batch with another fence than the tree's is refused: who makes a root that exists already did not
/// lose a tree, its id is taken.
pub(crate) fn wrong_fence(batch: &Batch, fence: &Fence, owner: &OwnerId) -> StoreError {
    let makes_root = |write: &Write| matches!(write, Write::Session(data) if data.id == fence.root);
    if batch.writes.iter().any(makes_root) {
        StoreError::Taken { id: fence.root.clone(), owner: owner.clone() }
    } else {
        StoreError::Fenced { root: fence.root.clone() }
    }
}
