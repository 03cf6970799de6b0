//! The session manager: the only writer of a store, with three doors to a new session.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use offspring_protocol::{Envelope, NodeName, Origin, PoolId, ProjectId, SessionId, SessionInfo, Usage};
use tokio_util::sync::CancellationToken;

use crate::{
    bus::{Bus, QueueLimits, Scope, Subscription},
    error::Refused,
    live::{LiveTree, TreeState, lock},
    project,
    store::{DetachedStore, Durability, Fence, SessionRecord, SessionStore, StoreError},
    writer,
};

/// Sessions of other processes that are remembered.
const MAX_SEEN: usize = 10_000;

/// What a manager is told at its start.
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// The pool's name, kept in every row.
    pub pool_id: Option<PoolId>,
    /// The node of a root that [`ensure_session`](SessionManager::ensure_session) makes; `default` if unset.
    pub default_agent: Option<NodeName>,
    /// What must have happened before a root's end is acknowledged; [`Durability::Power`] by default, so
    /// that an answer which was shown survives a power cut. Everything else is [`Durability::Process`].
    pub root_durability: Durability,
    /// How long [`cancel`](SessionManager::cancel) waits for an agent before it says who did not stop;
    /// 20 s by default.
    pub cancel_bound: Duration,
    /// Trees at rest that stay in memory, 256 by default; beyond, the one that rested longest is
    /// forgotten and read from the store when it is asked for.
    pub max_resting_trees: usize,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            pool_id: None,
            default_agent: None,
            root_durability: Durability::Power,
            cancel_bound: Duration::from_secs(20),
            max_resting_trees: 256,
        }
    }
}

/// Keeps sessions: stores them, announces them, tells who descends from whom. Cheap to clone. Used inside
/// a tokio runtime.
///
/// It owns the trees it made or took over: no other process writes to them while this one lives. Trees at
/// rest leave memory after a while and are read again when somebody asks.
///
/// ```
/// use offspring_protocol::{AgentType, NodeName, Outcome};
/// use offspring_sessions::{CancelScope, NewRoot, Refused, RunError, SessionManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Outside a pool there is no store: ids are made, events are emitted, nothing is kept (rule L8).
/// let manager = SessionManager::detached();
/// let new = NewRoot::new(NodeName::new("worker")?, AgentType::Native);
/// let run = manager.create_root(new.clone()).await?.start("work").await?;
/// let id = run.context.session().id.clone();
///
/// // The agent works until it is asked to stop …
/// let agent = tokio::spawn(async move {
///     run.context.stop_requested().cancelled().await;
///     run.end.finish(Err(RunError::interrupted("cancelled", "stopped"))).await
/// });
/// // … and a cancel returns when it has stopped (rule L14).
/// let cancelled = manager.cancel(&id, CancelScope::Subtree).await?;
/// assert_eq!(cancelled.ended, [id]);
/// assert_eq!(agent.await??, Outcome::Cancelled);
///
/// manager.close().await?;
/// assert!(matches!(manager.create_root(new).await, Err(Refused::Closing)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SessionManager {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for SessionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionManager").field("store", &self.inner.store.info()).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) detached: bool,
    pub(crate) bus: Arc<Bus>,
    pub(crate) options: ManagerOptions,
    pub(crate) trees: Mutex<Trees>,
    /// One look-up at a time decides whether an unknown id becomes a session (L9).
    pub(crate) ensuring: tokio::sync::Mutex<()>,
    /// One at a time reads a tree from the store to own it.
    pub(crate) taking_over: tokio::sync::Mutex<()>,
    /// Held for reading while a tree is made or taken over; closing waits for those.
    pub(crate) opening: tokio::sync::RwLock<()>,
    projects: Mutex<HashMap<PathBuf, ProjectId, RandomState>>,
}

/// The trees this process owns.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) by_root: HashMap<SessionId, Arc<LiveTree>, RandomState>,
    pub(crate) root_of: HashMap<SessionId, SessionId, RandomState>,
    /// Sessions of other processes that were asked for (L9), at most [`MAX_SEEN`].
    pub(crate) seen: HashMap<SessionId, Arc<SessionInfo>, RandomState>,
    /// Writers of forgotten trees that may still have something to write; the tree is not read before that.
    pub(crate) retiring: HashMap<SessionId, CancellationToken, RandomState>,
    /// Trees that were taken over from a dead owner while the end of its runs could not be written.
    pub(crate) unswept: HashSet<SessionId, RandomState>,
    pub(crate) closing: bool,
    pub(crate) commands_served: bool,
}

impl SessionManager {
    /// A manager over this store.
    #[must_use]
    pub fn new(store: Arc<dyn SessionStore>, options: ManagerOptions) -> Self {
        Self::over(store, options, false)
    }

    /// A manager without a store: ids are made, events are emitted, nothing is kept (rule L8).
    #[must_use]
    pub fn detached() -> Self {
        Self::over(Arc::new(DetachedStore::default()), ManagerOptions::default(), true)
    }

    fn over(store: Arc<dyn SessionStore>, options: ManagerOptions, detached: bool) -> Self {
        let inner = Inner {
            store,
            detached,
            bus: Arc::new(Bus::default()),
            options,
            trees: Mutex::default(),
            ensuring: tokio::sync::Mutex::new(()),
            taking_over: tokio::sync::Mutex::new(()),
            opening: tokio::sync::RwLock::new(()),
            projects: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store it writes to, to read from; only the manager writes.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.inner.store
    }

    /// The bus of this process.
    #[must_use]
    pub fn bus(&self) -> &Arc<Bus> {
        &self.inner.bus
    }

    /// Hears what is committed from now on.
    #[must_use]
    pub fn subscribe(&self, scope: Scope) -> Subscription {
        self.inner.bus.subscribe(scope, QueueLimits::default())
    }

    pub(crate) fn root_durability(&self) -> Durability {
        self.inner.options.root_durability
    }

    /// Starts the writer of a tree and makes it known; `first` is announced before anything the writer says.
    pub(crate) fn go_live(
        &self,
        fence: Fence,
        last_seq: u64,
        state: TreeState,
        first: &[Arc<Envelope>],
    ) -> Arc<LiveTree> {
        let (sender, ops) = writer::channel();
        let members: Vec<SessionId> = state.members.keys().cloned().collect();
        let tree = Arc::new(LiveTree::new(fence.root.clone(), sender, state));
        let serve = {
            let mut trees = lock(&self.inner.trees);
            for member in members {
                trees.seen.remove(&member);
                trees.root_of.insert(member, fence.root.clone());
            }
            trees.by_root.insert(fence.root.clone(), Arc::clone(&tree));
            trees.forget_resting(self.inner.options.max_resting_trees);
            !std::mem::replace(&mut trees.commands_served, true)
        };
        self.inner.bus.publish(first);
        let (store, bus) = (Arc::clone(&self.inner.store), Arc::clone(&self.inner.bus));
        let written = tree.written.clone().drop_guard();
        tokio::spawn(writer::write(tree.shared_state(), fence, last_seq, ops, store, bus, written));
        if serve && !self.inner.detached {
            tokio::spawn(crate::commands::serve(Arc::downgrade(&self.inner)));
        }
        tree
    }

    pub(crate) fn refuse_when_closing(&self) -> Result<(), Refused> {
        if lock(&self.inner.trees).closing { Err(Refused::Closing) } else { Ok(()) }
    }

    /// The tree of a session, if this process owns it.
    pub(crate) fn live_tree(&self, session: &SessionId) -> Option<Arc<LiveTree>> {
        let trees = lock(&self.inner.trees);
        trees.by_root.get(trees.root_of.get(session)?).cloned()
    }

    /// What this process remembers of a session.
    pub(crate) fn known(&self, id: &SessionId) -> Option<Arc<SessionInfo>> {
        if let Some(tree) = self.live_tree(id) {
            return tree.state().members.get(id).map(|member| Arc::clone(&member.info));
        }
        lock(&self.inner.trees).seen.get(id).cloned()
    }

    /// Remembers a session of a tree that this process does not own.
    pub(crate) fn remember(&self, info: &Arc<SessionInfo>) {
        let mut trees = lock(&self.inner.trees);
        if trees.seen.len() >= MAX_SEEN {
            // Forgetting costs a look into the store, no more.
            trees.seen.clear();
        }
        trees.seen.insert(info.id.clone(), Arc::clone(info));
    }

    /// What a session and its subtree have cost so far, each provider message once (rule L15).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn usage(&self, session: &SessionId) -> Result<SubtreeUsage, StoreError> {
        if let Some(tree) = self.live_tree(session) {
            let state = tree.state();
            return Ok(SubtreeUsage {
                own: state.rollup.own(session),
                subtree: state.rollup.subtree(&state.tree, session),
            });
        }
        let Some(record) = self.inner.store.session(session.clone()).await? else {
            return Ok(SubtreeUsage::default());
        };
        let loaded = self.load(&record.data.root_id).await?;
        Ok(SubtreeUsage {
            own: loaded.rollup.own(session),
            subtree: loaded.rollup.subtree(&loaded.tree, session),
        })
    }

    /// The project of a directory, asked from git once per directory.
    pub async fn project_of(&self, directory: &Path) -> ProjectId {
        if let Some(known) = lock(&self.inner.projects).get(directory) {
            return known.clone();
        }
        let found = project::project_id(directory.to_owned()).await;
        lock(&self.inner.projects).entry(directory.to_owned()).or_insert(found).clone()
    }

    /// The stored row and last run of a session.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn session(&self, id: &SessionId) -> Result<Option<SessionRecord>, StoreError> {
        if self.inner.detached {
            return Ok(self.live_tree(id).and_then(|tree| record_in(&tree, id)));
        }
        self.inner.store.session(id.clone()).await
    }
}

impl SessionManager {
    /// What a root was started with; `None` where nobody said it, for a child and for no session.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn origin(&self, id: &SessionId) -> Result<Option<Origin>, StoreError> {
        self.inner.store.origin(id.clone()).await
    }
}

/// Own and subtree usage of a session (rule L15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubtreeUsage {
    /// Its own provider messages.
    pub own: Usage,
    /// Its own and those of everything below it.
    pub subtree: Usage,
}

pub(crate) fn record_in(tree: &LiveTree, id: &SessionId) -> Option<SessionRecord> {
    let state = tree.state();
    let member = state.members.get(id)?;
    let open = member.open.as_ref().map(|open| lock(&open.changing).record.clone());
    let last_run = open.or_else(|| member.last_run.as_deref().cloned());
    // Only without a store, where nobody can start a root again.
    Some(SessionRecord { data: (*member.data).clone(), last_run, rerun_of: None })
}

impl Trees {
    pub(crate) fn forget(&mut self, root: &SessionId) {
        if let Some(tree) = self.by_root.remove(root) {
            for member in tree.state().members.keys() {
                self.root_of.remove(member);
            }
        }
    }

    /// Forgets the trees that rested longest beyond so many.
    fn forget_resting(&mut self, max: usize) {
        if self.by_root.len() <= max {
            return;
        }
        self.retiring.retain(|_, written| !written.is_cancelled());
        let mut resting: Vec<(Instant, SessionId)> = Vec::new();
        for tree in self.by_root.values() {
            // Held by nobody else, so that none can be about to open a run in it, and while these trees are
            // locked nobody can get hold of it.
            if Arc::strong_count(tree) == 1 {
                resting.extend(tree.state().resting_since.map(|since| (since, tree.root.clone())));
            }
        }
        resting.sort_unstable();
        let excess = resting.len().saturating_sub(max);
        for (_, root) in resting.into_iter().take(excess) {
            if let Some(tree) = self.by_root.get(&root) {
                self.retiring.insert(root.clone(), tree.written.clone());
            }
            self.forget(&root);
        }
    }
}
