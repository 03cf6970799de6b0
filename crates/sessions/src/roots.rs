//! The first door: roots, and new runs of sessions that are at rest.

use std::{path::Path, sync::Arc};

use offspring_protocol::{Envelope, Origin, RawEvent, SessionData, SessionId, SessionInfo};
use smallvec::smallvec;
use tokio::sync::{RwLockReadGuard, oneshot};

use crate::{
    bus::Notice,
    error::Refused,
    ids,
    live::{LiveTree, TreeState, lock},
    manager::SessionManager,
    rows::{check_directory, info_of, open_run, pending, spawn_event},
    run::{AnnouncedChild, Core, NewChild, NewRoot, Pending, RootSession},
    store::{Batch, Durability, Fence, StoreError, Write},
    writer::{self, Op, Then},
};

/// What a limit says to a new run of a session that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limits {
    /// Beyond it there is no run.
    Refuse,
    /// A peer has started it already: it is told.
    Tell,
}

impl SessionManager {
    /// Makes the root of a new tree: stored with its pending run, owned by this process.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists: a missing directory, a taken id, a closing manager, the store.
    pub async fn create_root(&self, mut new: NewRoot) -> Result<RootSession, Refused> {
        let origin = new.origin.take();
        let data = self.root_data(new).await?;
        let (_, pending) = self.new_tree_row(data, None, origin, true).await?;
        pending.map(RootSession::new).ok_or(Refused::Closing)
    }

    /// Makes the root of a new tree without a run: it waits for its first prompt.
    ///
    /// # Errors
    /// As [`create_root`](Self::create_root).
    pub async fn create_resting_root(&self, mut new: NewRoot) -> Result<Arc<SessionInfo>, Refused> {
        let origin = new.origin.take();
        let data = self.root_data(new).await?;
        Ok(self.new_tree_row(data, None, origin, false).await?.0)
    }

    pub(crate) async fn root_data(&self, new: NewRoot) -> Result<SessionData, Refused> {
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
            model: new.model,
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
        self.reopen(id, Limits::Refuse).await.map(|(pending, _)| RootSession::new(pending))
    }

    /// A new run of a child that is at rest: no second row, no second spawn (rule L12).
    ///
    /// # Errors
    /// As [`resume_root`](Self::resume_root), when a session above it is being cancelled, or when its parent
    /// has too many children at work (rule L5).
    pub async fn resume_child(&self, id: &SessionId) -> Result<AnnouncedChild, Refused> {
        self.reopen(id, Limits::Refuse).await.map(|(pending, _)| AnnouncedChild::new(pending))
    }

    pub(crate) async fn reopen(
        &self,
        id: &SessionId,
        limits: Limits,
    ) -> Result<(Pending, Option<Refused>), Refused> {
        self.refuse_when_closing()?;
        let tree = self.tree_for_writing(id).await?;
        let (pending, breach) = self.open_again(&tree, id, limits)?;
        let record = lock(&pending.core().open.changing).record.clone();
        let (ack, committed) = oneshot::channel();
        let op =
            Op { writes: smallvec![Write::Run(Box::new(record))], then: Then::Tell(ack), ..Op::default() };
        // From here on a drop of this future drops `pending`, which ends the run.
        tree.writer.send(op).await.map_err(|_| StoreError::Closed)?;
        committed.await.unwrap_or(Err(StoreError::Closed))?;
        Ok((pending, breach))
    }

    fn open_again(
        &self,
        tree: &Arc<LiveTree>,
        id: &SessionId,
        limits: Limits,
    ) -> Result<(Pending, Option<Refused>), Refused> {
        let mut state = tree.state();
        if let Some(error) = &state.failed {
            return Err(Refused::Store(error.clone()));
        }
        let member = state.member(id)?;
        if let Some(gate) = member.gate {
            return Err(gate.refusal(id));
        }
        if member.open.is_some() {
            return Err(Refused::StillRunning { id: id.clone() });
        }
        let parent = member.info.parent.clone().filter(|parent| state.members.contains_key(parent));
        let breach = parent.as_ref().and_then(|parent| state.too_many_live(parent));
        if let Some(breach) = breach.as_ref().filter(|_| limits == Limits::Refuse) {
            return Err(breach.clone());
        }
        let Some(member) = state.members.get_mut(id) else {
            return Err(Refused::UnknownSession { id: id.clone() });
        };
        let run = ids::run();
        let opened = member.runs.open(run.clone()).map_err(|_| Refused::StillRunning { id: id.clone() })?;
        let open = open_run(pending(id, run, opened.ordinal));
        member.open = Some(Arc::clone(&open));
        let (info, data) = (Arc::clone(&member.info), Arc::clone(&member.data));
        state.open_runs += 1;
        state.resting_since = None;
        if let Some(parent) = parent.and_then(|parent| state.members.get_mut(&parent)) {
            parent.live_children += 1;
        }
        drop(state);
        let core = Core { manager: self.clone(), tree: Arc::clone(tree), info, data, open };
        Ok((Pending::new(core), breach))
    }

    /// Stores a row that is the root of a tree of its own, its pending run and, for a child of an unknown
    /// parent, its spawn: together or not at all (L1).
    pub(crate) async fn new_tree(
        &self,
        data: SessionData,
        spawned_by: Option<&NewChild>,
    ) -> Result<Pending, Refused> {
        let (_, pending) = self.new_tree_row(data, spawned_by, None, true).await?;
        pending.ok_or(Refused::Closing)
    }

    /// As [`new_tree`](Self::new_tree), with or without a run.
    ///
    /// In a task of its own: when whoever asks is dropped meanwhile, the tree still gets its owner, and its
    /// run ends as interrupted.
    pub(crate) async fn new_tree_row(
        &self,
        data: SessionData,
        spawned_by: Option<&NewChild>,
        origin: Option<Origin>,
        with_run: bool,
    ) -> Result<(Arc<SessionInfo>, Option<Pending>), Refused> {
        let info = Arc::new(info_of(&data, std::slice::from_ref(&data.id)));
        let spawn = spawned_by.zip(info.parent.as_ref()).map(|(new, parent)| {
            let event = RawEvent::from(&spawn_event(&info, parent, new));
            Arc::new(Envelope {
                seq: 1,
                at: ids::now(),
                run: None,
                late: false,
                session: Arc::clone(&info),
                event,
            })
        });
        let manager = self.clone();
        let made = tokio::spawn(async move { manager.store_tree(info, data, spawn, origin, with_run).await });
        made.await.unwrap_or(Err(Refused::Closing))
    }

    async fn store_tree(
        self,
        info: Arc<SessionInfo>,
        data: SessionData,
        spawn: Option<Arc<Envelope>>,
        origin: Option<Origin>,
        with_run: bool,
    ) -> Result<(Arc<SessionInfo>, Option<Pending>), Refused> {
        let _opening = self.may_open().await?;
        let fence = Fence { root: data.id.clone(), owner: self.inner.store.owner(), epoch: 1 };
        let data = Arc::new(data);
        let open = with_run.then(|| open_run(pending(&data.id, ids::run(), 1)));
        let mut state = TreeState::default();
        state.admit(Arc::clone(&info), Arc::clone(&data), open.clone());
        let mut writes = vec![Write::Session(Arc::clone(&data))];
        writes.extend(origin.map(|origin| Write::Origin { root: data.id.clone(), origin: Arc::new(origin) }));
        writes.extend(open.iter().map(|open| Write::Run(Box::new(lock(&open.changing).record.clone()))));
        writes.extend(spawn.as_deref().map(|envelope| Write::Append(writer::row(envelope))));
        let batch = Batch { fence: Some(fence.clone()), writes, durability: Durability::Process };
        let committed = self.inner.store.commit(batch).await?;
        let tree = self.go_live(fence, committed.last_seq, state, spawn.as_slice());
        self.inner.bus.notice(Notice::Created(Arc::clone(&info)));
        let manager = self.clone();
        let pending = open.map(|open| {
            Pending::new(Core { manager, tree, info: Arc::clone(&info), data: Arc::clone(&data), open })
        });
        Ok((info, pending))
    }

    /// While it is held, a manager that closes waits; refused once it closes.
    pub(crate) async fn may_open(&self) -> Result<RwLockReadGuard<'_, ()>, Refused> {
        let opening = self.inner.opening.read().await;
        self.refuse_when_closing()?;
        Ok(opening)
    }
}
