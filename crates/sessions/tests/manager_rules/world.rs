//! A manager over a store that can be watched, held and broken.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::{BoxFuture, ready};
use offspring_protocol::{
    AgentType, Event, MessageId, NodeName, Origin, OwnerId, RunRecord, SessionId, Usage,
    event::{TextDelta, UsageReport},
};
use offspring_sessions::{
    AnnouncedChild, ManagerOptions, MemoryStore, NewChild, NewRoot, SessionManager, SessionRecord,
    SessionStore, StartedRun, StoreError,
    store::{
        Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, SessionQuery, StoreInfo,
        TreeQuery, TreeRecord, Write,
    },
};
use tokio::sync::watch;

/// Runs each test on every store there is.
macro_rules! on_stores {
    ($($(#[$attribute:meta])* async fn $name:ident($world:ident) $body:block)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(crate::world::World::memory()).await; })*
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(crate::world::World::sqlite()).await; })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test] async fn $name() {
                let Some(world) = crate::world::World::postgres(stringify!($name)).await else { return };
                super::$name(world).await;
            })*
        }
        $($(#[$attribute])* async fn $name($world: crate::world::World) $body)*
    };
}
pub(crate) use on_stores;

pub(crate) struct World {
    pub(crate) manager: SessionManager,
    pub(crate) store: Arc<Watched>,
    _dir: Option<tempfile::TempDir>,
}

impl World {
    fn over(inner: Arc<dyn SessionStore>, dir: Option<tempfile::TempDir>) -> Self {
        let store = Arc::new(Watched::new(inner));
        let options = ManagerOptions { pool_id: Some("pool".parse().unwrap()), ..ManagerOptions::default() };
        Self { manager: SessionManager::new(Arc::clone(&store) as _, options), store, _dir: dir }
    }

    pub(crate) fn memory() -> Self {
        Self::over(Arc::new(MemoryStore::new()), None)
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite() -> Self {
        use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("store.db"), SqliteOptions::default()).unwrap();
        Self::over(Arc::new(store), Some(dir))
    }

    /// In a schema of its own; `None` where there is no server.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(test: &str) -> Option<Self> {
        use offspring_sessions::store::postgres::{PostgresOptions, PostgresStore};
        let address = crate::place::fresh(&crate::place::server(test)?);
        let options = PostgresOptions { connections: 3, ..PostgresOptions::default() };
        Some(Self::over(Arc::new(PostgresStore::open(&address, options).await.unwrap()), None))
    }

    /// Another manager of the same owner: nothing of the first one's memory.
    pub(crate) fn reloaded(&self) -> SessionManager {
        SessionManager::new(Arc::clone(&self.store) as _, ManagerOptions::default())
    }

    pub(crate) async fn root(&self) -> StartedRun {
        self.manager.create_root(root()).await.unwrap().start("do it").await.unwrap()
    }

    /// A finished tree: r > a, r > b > c.
    pub(crate) async fn family(&self) -> [SessionId; 4] {
        let r = self.root().await;
        let a = child_of(&r, "a").await;
        let b = child_of(&r, "b").await;
        let c = child_of(&b, "c").await;
        let ids = [&r, &a, &b, &c].map(|run| run.context.session().id.clone());
        for run in [c, b, a, r] {
            run.end.finish(Ok("done".into())).await.unwrap();
        }
        ids
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

pub(crate) fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

pub(crate) fn root() -> NewRoot {
    NewRoot::new(name("root"), AgentType::Native)
}

pub(crate) fn child(node: &str) -> NewChild {
    NewChild::new(name(node), AgentType::Native)
}

pub(crate) async fn child_of(parent: &StartedRun, node: &str) -> StartedRun {
    announced(parent, node).await.start("part of it").await.unwrap()
}

pub(crate) async fn announced(parent: &StartedRun, node: &str) -> AnnouncedChild {
    parent.context.create_child(child(node)).await.unwrap()
}

pub(crate) fn text(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned() })
}

pub(crate) fn tokens(message: &str, input: u64) -> Event {
    let usage = Usage { input_tokens: input, ..Usage::default() };
    Event::Usage(UsageReport { message_id: MessageId::new(message).unwrap(), usage })
}

pub(crate) async fn log(manager: &SessionManager, root: &SessionId) -> Vec<LogRow> {
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: usize::from(u16::MAX) };
    manager.events(query).await.unwrap()
}

pub(crate) async fn kinds(manager: &SessionManager, root: &SessionId, session: &SessionId) -> Vec<String> {
    let lines = log(manager, root).await.into_iter().filter(|line| line.session == *session);
    lines.map(|line| line.event.kind().to_owned()).collect()
}

pub(crate) async fn count(manager: &SessionManager, root: &SessionId, kind: &str) -> usize {
    log(manager, root).await.iter().filter(|line| line.event.kind() == kind).count()
}

pub(crate) fn ids(records: &[SessionRecord]) -> Vec<SessionId> {
    records.iter().map(|record| record.data.id.clone()).collect()
}

type Fault = Box<dyn Fn(&Batch) -> Option<StoreError> + Send + Sync>;

/// Passes everything on; counts commits, can hold them, refuse them, and say who owns and lives.
pub(crate) struct Watched {
    inner: Arc<dyn SessionStore>,
    commits: AtomicUsize,
    /// While true, commits wait.
    held: watch::Sender<bool>,
    /// Only those of this tree, if given.
    held_tree: Mutex<Option<SessionId>>,
    waiting: watch::Sender<usize>,
    /// While true, what was read of a log is not given yet.
    reads_held: watch::Sender<bool>,
    reads_waiting: watch::Sender<usize>,
    fault: Mutex<Option<Fault>>,
    pub(crate) own_name: Mutex<Option<OwnerId>>,
    pub(crate) alive: Mutex<Vec<OwnerId>>,
    pub(crate) closed_at: Mutex<Option<usize>>,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn SessionStore>) -> Self {
        Self {
            inner,
            commits: AtomicUsize::new(0),
            held: watch::Sender::new(false),
            held_tree: Mutex::default(),
            waiting: watch::Sender::new(0),
            reads_held: watch::Sender::new(false),
            reads_waiting: watch::Sender::new(0),
            fault: Mutex::default(),
            own_name: Mutex::default(),
            alive: Mutex::default(),
            closed_at: Mutex::default(),
        }
    }

    pub(crate) fn inner(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.inner)
    }

    pub(crate) fn owner_name(&self) -> OwnerId {
        self.owner()
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// As [`hold`](Self::hold), for the commits of one tree.
    pub(crate) fn hold_tree(&self, root: &SessionId) {
        *self.held_tree.lock().unwrap() = Some(root.clone());
        self.hold();
    }

    pub(crate) fn let_go(&self) {
        self.held.send_replace(false);
        *self.held_tree.lock().unwrap() = None;
    }

    /// Holds up what is read of logs from now on; returns once somebody waits for it.
    pub(crate) async fn hold_a_read(&self) {
        self.reads_held.send_replace(true);
        self.reads_waiting.subscribe().wait_for(|waiting| *waiting > 0).await.unwrap();
    }

    pub(crate) fn let_reads_go(&self) {
        self.reads_held.send_replace(false);
    }

    /// Returns once so many commits wait.
    pub(crate) async fn held_up(&self, so_many: usize) {
        self.waiting.subscribe().wait_for(|waiting| *waiting >= so_many).await.unwrap();
    }

    pub(crate) fn fail(&self, fault: impl Fn(&Batch) -> Option<StoreError> + Send + Sync + 'static) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub(crate) fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }
}

/// Refuses batches that write a row.
pub(crate) fn no_rows(batch: &Batch) -> Option<StoreError> {
    let row = batch.writes.iter().any(|write| matches!(write, Write::Session(_)));
    row.then(|| StoreError::Full { store: "here".to_owned(), free_bytes: Some(0), detail: String::new() })
}

impl SessionStore for Watched {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            let only = self.held_tree.lock().unwrap().clone();
            if only.is_none_or(|root| batch.fence.as_ref().is_some_and(|fence| fence.root == root)) {
                self.waiting.send_modify(|waiting| *waiting += 1);
                self.held.subscribe().wait_for(|held| !held).await.unwrap();
                self.waiting.send_modify(|waiting| *waiting -= 1);
            }
            let fault = self.fault.lock().unwrap().as_ref().and_then(|fault| fault(&batch));
            if let Some(error) = fault {
                return Err(error);
            }
            self.commits.fetch_add(1, Ordering::SeqCst);
            self.inner.commit(batch).await
        })
    }

    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        self.inner.claim(root, from_epoch)
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.inner.session(id)
    }

    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.inner.sessions(query)
    }

    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.inner.origin(root)
    }

    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.inner.runs(session)
    }

    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.inner.trees(query)
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        Box::pin(async move {
            let lines = self.inner.events(query).await;
            if *self.reads_held.borrow() {
                self.reads_waiting.send_modify(|waiting| *waiting += 1);
                self.reads_held.subscribe().wait_for(|held| !held).await.unwrap();
                self.reads_waiting.send_modify(|waiting| *waiting -= 1);
            }
            lines
        })
    }

    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.inner.open_commands(root)
    }

    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.inner.command(id)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn owner(&self) -> OwnerId {
        self.own_name.lock().unwrap().clone().unwrap_or_else(|| self.inner.owner())
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        if owner == self.owner() || self.alive.lock().unwrap().contains(&owner) {
            return Box::pin(ready(Ok(OwnerState::Alive)));
        }
        self.inner.owner_state(owner)
    }

    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        *self.closed_at.lock().unwrap() = Some(self.commits());
        self.inner.close()
    }
}
