//! The session manager: the only writer of a store, with three doors to a new session.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use foldhash::fast::RandomState;
use offspring_protocol::{
    AgentType, Envelope, Event, External, NodeName, Outcome, PoolId, ProjectId, RawEvent, RunRecord, RunState, SessionData, SessionId, SessionInfo,
    Usage, event::SpawnSessionStart,
};
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    bus::{Bus, Notice, QueueLimits, Scope, Subscription},
    error::Refused,
    ids,
    live::{Changing, Gate, LiveTree, OpenRun, TreeState, lock},
    project,
    run::{AnnouncedChild, NewChild, NewRoot, RootSession, Stored},
    store::{Batch, DetachedStore, Durability, Fence, SessionRecord, SessionStore, StoreError, Write},
    writer::{self, Line, Op},
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

/// Keeps sessions: stores them, announces them, tells who descends from whom. Cheap to clone.
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
    projects: Mutex<HashMap<PathBuf, ProjectId, RandomState>>,
}

/// The trees this process owns.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) by_root: HashMap<SessionId, Arc<LiveTree>, RandomState>,
    pub(crate) root_of: HashMap<SessionId, SessionId, RandomState>,
    /// Sessions of other processes that were asked for (L9), at most [`MAX_SEEN`].
    pub(crate) seen: HashMap<SessionId, Arc<SessionInfo>, RandomState>,
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

    // ----- door 1: roots ---------------------------------------------------------------------------

    /// Makes the root of a new tree: stored with its pending run, owned by this process.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists: a missing directory, a taken id, a closing manager, the store.
    pub async fn create_root(&self, new: NewRoot) -> Result<RootSession, Refused> {
        let data = self.root_data(new).await?;
        self.new_tree(data, None).await.map(RootSession::new)
    }

    async fn root_data(&self, new: NewRoot) -> Result<SessionData, Refused> {
        self.refuse_when_closing()?;
        if let Some(cwd) = &new.cwd {
            check_directory(cwd)?;
        }
        let id = new.id.clone().unwrap_or_else(ids::session);
        id.check_storable()?;
        new.agent_name.check_storable()?;
        let project_id = match &new.cwd {
            Some(cwd) if !self.inner.detached => Some(self.project_of(Path::new(cwd)).await),
            _ => None,
        };
        let now = ids::now();
        Ok(SessionData {
            id: id.clone(),
            parent_id: None,
            root_id: id,
            depth: 0,
            project_id,
            cwd: new.cwd,
            agent_name: new.agent_name,
            agent_type: new.agent_type,
            source_type: None,
            pool_id: self.inner.options.pool_id.clone(),
            task: None,
            title: new.title,
            model: None,
            settings: None,
            limits: new.limits,
            external: None,
            created_at: now,
            last_active_at: now,
            metadata: new.metadata,
            version: "1".to_owned(),
        })
    }

    /// A new run of a root that is at rest: its tree is read from the store if need be (rule L12).
    ///
    /// # Errors
    /// [`Refused`]: unknown, still running, or owned by another process that lives.
    pub async fn resume_root(&self, id: &SessionId) -> Result<RootSession, Refused> {
        self.reopen(id).await.map(RootSession::new)
    }

    /// A new run of a child that is at rest: no second row, no second spawn (rule L12).
    ///
    /// # Errors
    /// As [`resume_root`](Self::resume_root), or when a session above it is being cancelled.
    pub async fn resume_child(&self, id: &SessionId) -> Result<AnnouncedChild, Refused> {
        self.reopen(id).await.map(AnnouncedChild::new)
    }

    async fn reopen(&self, id: &SessionId) -> Result<Stored, Refused> {
        self.refuse_when_closing()?;
        let tree = self.tree_for_writing(id).await?;
        let (info, data, open) = {
            let mut state = tree.state();
            if let Some(error) = &state.failed {
                return Err(Refused::Store(error.clone()));
            }
            let member = state.members.get_mut(id).ok_or_else(|| Refused::UnknownSession { id: id.clone() })?;
            if let Some(gate) = member.gate {
                return Err(gate.refusal());
            }
            let run = ids::run();
            let opened = member.runs.open(run.clone()).map_err(|_| Refused::StillRunning { id: id.clone() })?;
            let open = open_run(pending(id, run, opened.ordinal));
            member.open = Some(Arc::clone(&open));
            let (info, data) = (Arc::clone(&member.info), Arc::clone(&member.data));
            state.open_runs += 1;
            if let Some(parent) = info.parent.as_ref().and_then(|parent| state.members.get_mut(parent)) {
                parent.live_children += 1;
            }
            (info, data, open)
        };
        let record = lock(&open.changing).record.clone();
        let stored = Stored { manager: self.clone(), tree: Arc::clone(&tree), info, data, open };
        let op = Op { writes: smallvec![Write::Run(Box::new(record))], ..Op::default() };
        match self.commit(&tree, op).await {
            Ok(()) => Ok(stored),
            Err(error) => {
                drop(AnnouncedChild::new(stored));
                Err(error.into())
            }
        }
    }

    /// Stores a row that is the root of a tree of its own, its pending run and, for a child of an unknown
    /// parent, its spawn: together or not at all (L1).
    async fn new_tree(&self, data: SessionData, spawned_by: Option<&NewChild>) -> Result<Stored, Refused> {
        let open = open_run(pending(&data.id, ids::run(), 1));
        let Row { tree, info, data } = self.new_tree_row(data, spawned_by, Some(&open)).await?;
        Ok(Stored { manager: self.clone(), tree, info, data, open })
    }

    async fn new_tree_row(
        &self,
        data: SessionData,
        spawned_by: Option<&NewChild>,
        open: Option<&Arc<OpenRun>>,
    ) -> Result<Row, Refused> {
        let fence = Fence { root: data.id.clone(), owner: self.inner.store.owner(), epoch: 1 };
        let info = Arc::new(info_of(&data, std::slice::from_ref(&data.id)));
        let data = Arc::new(data);
        let mut state = TreeState::default();
        state.admit(Arc::clone(&info), Arc::clone(&data), open.cloned());
        let mut writes = vec![Write::Session(Arc::clone(&data))];
        writes.extend(open.map(|open| Write::Run(Box::new(lock(&open.changing).record.clone()))));
        let spawn = spawned_by.zip(info.parent.as_ref()).map(|(new, parent)| {
            let event = RawEvent::from(&spawn_event(&info, parent, new));
            Arc::new(Envelope { seq: 1, at: ids::now(), run: None, late: false, session: Arc::clone(&info), event })
        });
        writes.extend(spawn.as_deref().map(|envelope| Write::Append(writer::row(envelope))));
        let batch = Batch { fence: Some(fence.clone()), writes, durability: Durability::Process };
        let committed = self.inner.store.commit(batch).await?;
        let tree = self.go_live(fence, committed.last_seq, state)?;
        self.inner.bus.publish(spawn.as_slice());
        self.inner.bus.notice(Notice::Created(Arc::clone(&info)));
        Ok(Row { tree, info, data })
    }

    /// Starts the writer of a tree and makes it known.
    pub(crate) fn go_live(&self, fence: Fence, last_seq: u64, state: TreeState) -> Result<Arc<LiveTree>, Refused> {
        let (sender, ops) = writer::channel();
        let members: Vec<SessionId> = state.members.keys().cloned().collect();
        let tree = Arc::new(LiveTree::new(fence.root.clone(), fence.clone(), sender, state));
        let serve = {
            let mut trees = lock(&self.inner.trees);
            if trees.closing {
                return Err(Refused::Closing);
            }
            for member in members {
                trees.root_of.insert(member, fence.root.clone());
            }
            trees.by_root.insert(fence.root.clone(), Arc::clone(&tree));
            self.forget_resting(&mut trees);
            !std::mem::replace(&mut trees.commands_served, true)
        };
        let (store, bus) = (Arc::clone(&self.inner.store), Arc::clone(&self.inner.bus));
        tokio::spawn(writer::write(Arc::downgrade(&tree), fence, last_seq, ops, store, bus));
        if serve && !self.inner.detached {
            tokio::spawn(crate::commands::serve(Arc::downgrade(&self.inner)));
        }
        Ok(tree)
    }

    fn forget_resting(&self, trees: &mut Trees) {
        let resting: Vec<SessionId> = trees
            .by_root
            .values()
            .filter(|tree| tree.state().open_runs == 0)
            .map(|tree| tree.root.clone())
            .collect();
        let excess = resting.len().saturating_sub(self.inner.options.max_resting_trees);
        for root in resting.into_iter().take(excess) {
            forget(trees, &root);
        }
    }

    // ----- door 2: children we decide on -----------------------------------------------------------

    /// Makes a child of any session: of one this process owns, of one at rest in the store (its tree is
    /// taken over), or, with a warning, of one nobody knows (rule L3): the child is then the root of a tree
    /// of its own with depth 1.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn create_child(&self, parent: &SessionId, new: NewChild) -> Result<AnnouncedChild, Refused> {
        self.refuse_when_closing()?;
        match self.tree_for_writing(parent).await {
            Ok(tree) => self.create_child_in(&tree, parent, new).await,
            Err(Refused::UnknownSession { .. }) => self.create_orphan(parent, new).await,
            Err(refused) => Err(refused),
        }
    }

    async fn create_orphan(&self, parent: &SessionId, new: NewChild) -> Result<AnnouncedChild, Refused> {
        let data = self.orphan_data(parent, &new)?;
        Ok(AnnouncedChild::new(self.new_tree(data, Some(&new)).await?))
    }

    fn orphan_data(&self, parent: &SessionId, new: &NewChild) -> Result<SessionData, Refused> {
        tracing::warn!(%parent, agent = %new.agent_name, "the parent of a new session is not known");
        parent.check_storable()?;
        let mut data = child_data(new, None, self.inner.options.pool_id.clone())?;
        data.parent_id = Some(parent.clone());
        data.root_id = data.id.clone();
        data.depth = 1;
        // Never more than the pool's default policy.
        data.limits = offspring_protocol::SessionLimits::default().narrowed_by(&new.limits);
        Ok(data)
    }

    /// A row without a run, for [`ensure_session`](Self::ensure_session).
    pub(crate) async fn create_idle(
        &self,
        parent: Option<&SessionId>,
        id: &SessionId,
        agent: NodeName,
    ) -> Result<Arc<SessionInfo>, Refused> {
        let Some(parent) = parent else {
            let new = NewRoot { id: Some(id.clone()), ..NewRoot::new(agent, AgentType::Native) };
            let data = self.root_data(new).await?;
            return Ok(self.new_tree_row(data, None, None).await?.info);
        };
        let new = NewChild { id: Some(id.clone()), ..NewChild::new(agent, AgentType::Native) };
        match self.tree_for_writing(parent).await {
            Ok(tree) => Ok(self.new_row(Reserved::take(&tree, parent)?, &new, None).await?.info),
            Err(Refused::UnknownSession { .. }) => {
                let data = self.orphan_data(parent, &new)?;
                Ok(self.new_tree_row(data, Some(&new), None).await?.info)
            }
            Err(refused) => Err(refused),
        }
    }

    pub(crate) async fn create_child_in(
        &self,
        tree: &Arc<LiveTree>,
        parent: &SessionId,
        new: NewChild,
    ) -> Result<AnnouncedChild, Refused> {
        let reserved = Reserved::take(tree, parent)?;
        self.make_child(reserved, new).await
    }

    async fn make_child(&self, reserved: Reserved, new: NewChild) -> Result<AnnouncedChild, Refused> {
        let id = new.id.clone().unwrap_or_else(ids::session);
        let open = open_run(pending(&id, ids::run(), 1));
        let alone = new.id.is_some();
        let new = NewChild { id: Some(id), ..new };
        let parent = reserved.parent.clone();
        let Row { tree, info, data } = self.new_row_alone(reserved, &new, Some(&open), alone).await?;
        let gate = tree.state().members.get(&parent).and_then(|parent| parent.gate);
        let stored = Stored { manager: self.clone(), tree, info, data, open };
        let Some(gate) = gate else { return Ok(AnnouncedChild::new(stored)) };
        // The gate closed while the child was being stored: it ends before it starts.
        if gate == Gate::Cancelled {
            lock(&stored.open.changing).forced = Some(Outcome::Cancelled);
        }
        stored.tree.state().close_gates(&stored.info.id, gate);
        drop(AnnouncedChild::new(stored));
        Err(gate.refusal())
    }

    async fn new_row(
        &self,
        reserved: Reserved,
        new: &NewChild,
        open: Option<&Arc<OpenRun>>,
    ) -> Result<Row, Refused> {
        self.new_row_alone(reserved, new, open, true).await
    }

    /// Row, pending run and spawn in one commit; announced by the tree's writer (L1).
    async fn new_row_alone(
        &self,
        reserved: Reserved,
        new: &NewChild,
        open: Option<&Arc<OpenRun>>,
        alone: bool,
    ) -> Result<Row, Refused> {
        let (parent_info, parent_data) = {
            let state = reserved.tree.state();
            let parent = state.member(&reserved.parent)?;
            (Arc::clone(&parent.info), Arc::clone(&parent.data))
        };
        let data = child_data(new, Some(&parent_data), self.inner.options.pool_id.clone())?;
        let mut path = Vec::with_capacity(parent_info.path.len() + 1);
        path.extend_from_slice(&parent_info.path);
        path.push(data.id.clone());
        let info = Arc::new(info_of(&data, &path));
        let data = Arc::new(data);
        let spawn = spawn_event(&info, &parent_info.id, new);
        let parent_run = {
            let state = reserved.tree.state();
            state.members.get(&parent_info.id).and_then(|parent| parent.open.as_ref().map(|open| open.id.clone()))
        };
        let mut writes: SmallVec<[Write; 2]> = smallvec![Write::Session(Arc::clone(&data))];
        writes.extend(open.map(|open| Write::Run(Box::new(lock(&open.changing).record.clone()))));
        let lines = smallvec![Line::new(&parent_info, parent_run.as_ref(), spawn)];
        self.commit(&reserved.tree, Op { writes, lines, alone, ..Op::default() }).await?;
        let tree = reserved.keep();
        {
            let mut state = tree.state();
            state.admit(Arc::clone(&info), Arc::clone(&data), open.cloned());
            if open.is_none() {
                if let Some(parent) = state.members.get_mut(&parent_info.id) {
                    parent.live_children = parent.live_children.saturating_sub(1);
                }
            }
        }
        lock(&self.inner.trees).root_of.insert(info.id.clone(), tree.root.clone());
        self.inner.bus.notice(Notice::Created(Arc::clone(&info)));
        Ok(Row { tree, info, data })
    }

    // ----- door 3: children a peer decided on ------------------------------------------------------

    /// Takes a session of a peer into our tree: same row, same spawn. The same external id under the same
    /// parent is a new run of its session; under another parent it is a new session, and the old one stays
    /// where it was. A breached limit does not refuse it, for it exists already: it is told in
    /// [`Adopted::breach`], and whoever adopts applies its policy, by default a cancel.
    ///
    /// # Errors
    /// [`Refused`]: an unknown or closed parent, a session still running, the store.
    pub async fn adopt_child(
        &self,
        parent: &SessionId,
        external: External,
        mut new: NewChild,
    ) -> Result<Adopted, Refused> {
        let tree = self.tree_for_writing(parent).await?;
        let known = tree.state().adopted.get(&(parent.clone(), external.clone())).cloned();
        if let Some(id) = known {
            return Ok(Adopted { child: self.resume_child(&id).await?, breach: None, new_session: false });
        }
        new.external = Some(external);
        let (reserved, breach) = match Reserved::take(&tree, parent) {
            Ok(reserved) => (reserved, None),
            Err(
                breach @ (Refused::DelegationDepth { .. } | Refused::LiveChildren { .. } | Refused::Descendants { .. }),
            ) => (Reserved::take_beyond(&tree, parent), Some(breach)),
            Err(refused) => return Err(refused),
        };
        Ok(Adopted { child: self.make_child(reserved, new).await?, breach, new_session: true })
    }

    // ----- what all doors use ----------------------------------------------------------------------

    pub(crate) async fn commit(&self, tree: &LiveTree, mut op: Op) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        op.done = Some(done);
        tree.writer.send(op).await.map_err(|_| StoreError::Closed)?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }

    fn refuse_when_closing(&self) -> Result<(), Refused> {
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
        Ok(SubtreeUsage { own: loaded.rollup.own(session), subtree: loaded.rollup.subtree(&loaded.tree, session) })
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

/// Own and subtree usage of a session (rule L15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubtreeUsage {
    /// Its own provider messages.
    pub own: Usage,
    /// Its own and those of everything below it.
    pub subtree: Usage,
}

/// A peer's session in our tree.
#[derive(Debug)]
pub struct Adopted {
    /// Stored and announced, or re-opened.
    pub child: AnnouncedChild,
    /// The limit it breaches.
    pub breach: Option<Refused>,
    /// Whether it is a new session and not a new run of an old one.
    pub new_session: bool,
}

/// A session that is stored.
struct Row {
    tree: Arc<LiveTree>,
    info: Arc<SessionInfo>,
    data: Arc<SessionData>,
}

/// A place below a parent; given back unless it is kept.
struct Reserved {
    tree: Arc<LiveTree>,
    parent: SessionId,
    kept: bool,
}

impl Reserved {
    fn take(tree: &Arc<LiveTree>, parent: &SessionId) -> Result<Self, Refused> {
        tree.state().reserve(parent)?;
        Ok(Self { tree: Arc::clone(tree), parent: parent.clone(), kept: false })
    }

    /// For a child that exists whether there is a place or not.
    fn take_beyond(tree: &Arc<LiveTree>, parent: &SessionId) -> Self {
        tree.state().reserve_beyond(parent);
        Self { tree: Arc::clone(tree), parent: parent.clone(), kept: false }
    }

    fn keep(mut self) -> Arc<LiveTree> {
        self.kept = true;
        Arc::clone(&self.tree)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            self.tree.state().release(&self.parent);
        }
    }
}

pub(crate) fn record_in(tree: &LiveTree, id: &SessionId) -> Option<SessionRecord> {
    let state = tree.state();
    let member = state.members.get(id)?;
    let last_run = member.open.as_ref().map(|open| lock(&open.changing).record.clone());
    Some(SessionRecord { data: (*member.data).clone(), last_run })
}

pub(crate) fn forget(trees: &mut Trees, root: &SessionId) {
    if let Some(tree) = trees.by_root.remove(root) {
        for member in tree.state().members.keys() {
            trees.root_of.remove(member);
        }
    }
}

fn pending(session: &SessionId, run: offspring_protocol::RunId, ordinal: u32) -> RunRecord {
    RunRecord {
        id: run,
        session_id: session.clone(),
        ordinal,
        state: RunState::Pending,
        error: None,
        usage: Usage::default(),
        process: None,
        opened_at: ids::now(),
        ended_at: None,
    }
}

fn open_run(record: RunRecord) -> Arc<OpenRun> {
    Arc::new(OpenRun {
        id: record.id.clone(),
        stop: CancellationToken::new(),
        ended: CancellationToken::new(),
        changing: Mutex::new(Changing { record, forced: None }),
    })
}

pub(crate) fn info_of(data: &SessionData, path: &[SessionId]) -> SessionInfo {
    SessionInfo {
        id: data.id.clone(),
        root: data.root_id.clone(),
        parent: data.parent_id.clone(),
        path: path.into(),
        depth: data.depth,
        agent_name: data.agent_name.clone(),
        agent_type: data.agent_type.clone(),
        source_type: data.source_type.clone(),
    }
}

/// The row of a child: inherits project and directory; unset stays unset (L3).
fn child_data(new: &NewChild, parent: Option<&SessionData>, pool_id: Option<PoolId>) -> Result<SessionData, Refused> {
    let id = new.id.clone().unwrap_or_else(ids::session);
    id.check_storable()?;
    new.agent_name.check_storable()?;
    let inherited = parent.and_then(|parent| parent.cwd.as_deref());
    let cwd = match (&new.cwd, inherited) {
        (Some(own), Some(base)) => Some(Path::new(base).join(own)),
        (Some(own), None) => Some(PathBuf::from(own)),
        (None, base) => base.map(PathBuf::from),
    };
    let cwd = match cwd {
        Some(cwd) => Some(cwd.into_os_string().into_string().map_err(|path| Refused::Cwd {
            cwd: path.to_string_lossy().into_owned(),
            problem: "is not valid UTF-8",
        })?),
        None => None,
    };
    if let (Some(_), Some(cwd)) = (&new.cwd, &cwd) {
        check_directory(cwd)?;
    }
    let now = ids::now();
    Ok(SessionData {
        root_id: parent.map_or_else(|| id.clone(), |parent| parent.root_id.clone()),
        parent_id: parent.map(|parent| parent.id.clone()),
        depth: parent.map_or(0, |parent| parent.depth + 1),
        id,
        project_id: parent.and_then(|parent| parent.project_id.clone()),
        cwd,
        agent_name: new.agent_name.clone(),
        agent_type: new.agent_type.clone(),
        source_type: Some(new.source_type.clone()),
        pool_id: pool_id.or_else(|| parent.and_then(|parent| parent.pool_id.clone())),
        task: new.task.clone(),
        title: (!new.description.is_empty()).then(|| new.description.clone()),
        model: new.model.clone(),
        settings: None,
        // Narrower, never wider (L17).
        limits: parent.map_or_else(|| new.limits.clone(), |parent| parent.limits.narrowed_by(&new.limits)),
        external: new.external.clone(),
        created_at: now,
        last_active_at: now,
        metadata: new.metadata.clone(),
        version: "1".to_owned(),
    })
}

fn spawn_event(child: &SessionInfo, parent: &SessionId, new: &NewChild) -> Event {
    Event::SpawnSessionStart(SpawnSessionStart {
        child_session_id: child.id.clone(),
        parent_session_id: parent.clone(),
        tool_call_id: new.tool_call.clone(),
        spawn_mechanism: new.mechanism,
        source_name: new.agent_name.clone(),
        source_type: new.source_type.clone(),
        agent_type: new.agent_type.clone(),
        depth: child.depth,
        path: child.path.to_vec(),
        description: new.description.clone(),
        task: new.task.clone(),
        model_id: new.model.clone(),
        metadata: new.metadata.clone(),
    })
}

pub(crate) fn check_directory(cwd: &str) -> Result<(), Refused> {
    let problem = match std::fs::metadata(cwd) {
        Ok(found) if !found.is_dir() => "is not a directory",
        Ok(_) if !Path::new(cwd).is_absolute() => "is not absolute",
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
        Err(_) => "cannot be read",
    };
    Err(Refused::Cwd { cwd: cwd.to_owned(), problem })
}
