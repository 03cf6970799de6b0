//! The second and third door: children we decide on, and children a peer decided on.

use std::sync::Arc;

use offspring_protocol::{AgentType, External, NodeName, Outcome, SessionData, SessionId, SessionInfo};
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use crate::{
    error::Refused,
    ids,
    live::{Gate, LiveTree, OpenRun, lock},
    manager::SessionManager,
    roots::Limits,
    rows::{child_data, info_of, open_run, pending, spawn_event},
    run::{AnnouncedChild, Core, NewChild, NewRoot, Pending},
    store::{StoreError, Write},
    writer::{Line, Op, Then},
};

impl SessionManager {
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
            return Ok(self.new_tree_row(data, None, None, false).await?.0);
        };
        let new = NewChild { id: Some(id.clone()), ..NewChild::new(agent, AgentType::Native) };
        match self.tree_for_writing(parent).await {
            Ok(tree) => Ok(self.new_row(Reserved::take(&tree, parent)?, new, false).await?.info),
            Err(Refused::UnknownSession { .. }) => {
                let data = self.orphan_data(parent, &new)?;
                Ok(self.new_tree_row(data, Some(&new), None, false).await?.0)
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
        self.make_child(Reserved::take(tree, parent)?, new).await
    }

    async fn make_child(&self, reserved: Reserved, new: NewChild) -> Result<AnnouncedChild, Refused> {
        let parent = reserved.parent.clone();
        let Made { pending, gate, .. } = self.new_row(reserved, new, true).await?;
        match (pending, gate) {
            (Some(pending), None) => Ok(AnnouncedChild::new(pending)),
            // The gate closed while the child was being stored: dropped here, it ends before it starts (L14).
            (_, Some(gate)) => Err(gate.refusal(&parent)),
            (None, None) => Err(Refused::Store(StoreError::Closed)),
        }
    }

    /// Row, pending run and spawn in one commit; the tree's writer makes it a member and announces it (L1).
    async fn new_row(&self, reserved: Reserved, new: NewChild, with_run: bool) -> Result<Made, Refused> {
        let (parent_info, parent_data, parent_run) = {
            let state = reserved.tree.state();
            let parent = state.member(&reserved.parent)?;
            let run = parent.open.as_ref().map(|open| open.id.clone());
            (Arc::clone(&parent.info), Arc::clone(&parent.data), run)
        };
        let data = child_data(&new, Some(&parent_data), self.inner.options.pool_id.clone())?;
        let mut path = Vec::with_capacity(parent_info.path.len() + 1);
        path.extend_from_slice(&parent_info.path);
        path.push(data.id.clone());
        let info = Arc::new(info_of(&data, &path));
        let data = Arc::new(data);
        let open = with_run.then(|| open_run(pending(&data.id, ids::run(), 1)));
        let spawn = spawn_event(&info, &parent_info.id, &new);
        let mut writes: SmallVec<[Write; 2]> = smallvec![Write::Session(Arc::clone(&data))];
        writes.extend(open.iter().map(|open| Write::Run(Box::new(lock(&open.changing).record.clone()))));
        let lines = smallvec![Line::new(&parent_info, parent_run.as_ref(), spawn)];
        let (ack, made) = oneshot::channel();
        let tree = Arc::clone(&reserved.tree);
        let making = Making { manager: self.clone(), reserved, info, data, open, ack };
        // An id given from outside may be taken.
        let op = Op {
            writes,
            lines,
            alone: new.id.is_some(),
            then: Then::Child(Box::new(making)),
            ..Op::default()
        };
        tree.writer.send(op).await.map_err(|_| StoreError::Closed)?;
        Ok(made.await.unwrap_or(Err(StoreError::Closed))?)
    }

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
        let _one = tree.adopting.lock().await;
        let known = tree.state().adopted.get(&(parent.clone(), external.clone())).cloned();
        if let Some(id) = known {
            let (pending, breach) = self.reopen(&id, Limits::Tell).await?;
            return Ok(Adopted { child: AnnouncedChild::new(pending), breach, new_session: false });
        }
        new.external = Some(external);
        let (reserved, breach) = match Reserved::take(&tree, parent) {
            Ok(reserved) => (reserved, None),
            Err(
                breach @ (Refused::DelegationDepth { .. }
                | Refused::LiveChildren { .. }
                | Refused::Descendants { .. }),
            ) => (Reserved::take_beyond(&tree, parent), Some(breach)),
            Err(refused) => return Err(refused),
        };
        Ok(Adopted { child: self.make_child(reserved, new).await?, breach, new_session: true })
    }
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

/// A child on its way into the store.
#[derive(Debug)]
pub(crate) struct Making {
    manager: SessionManager,
    reserved: Reserved,
    info: Arc<SessionInfo>,
    data: Arc<SessionData>,
    open: Option<Arc<OpenRun>>,
    ack: oneshot::Sender<Result<Made, StoreError>>,
}

/// A child that is stored and a member of its tree.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) info: Arc<SessionInfo>,
    /// Its run, if it was made with one. Dropped because nobody waits any more, it ends.
    pending: Option<Pending>,
    /// Its parent's gate closed while it was being stored.
    gate: Option<Gate>,
}

impl Making {
    /// It is committed: a member from now on.
    pub(crate) fn admit(self) -> (Made, oneshot::Sender<Result<Made, StoreError>>) {
        let Self { manager, reserved, info, data, open, ack } = self;
        let tree = Arc::clone(&reserved.tree);
        let gate = {
            let mut state = tree.state();
            let gate = state.admit(Arc::clone(&info), Arc::clone(&data), open.clone());
            match &open {
                Some(open) if gate.is_some() => lock(&open.changing).forced = Some(Outcome::Cancelled),
                Some(_) => {}
                None => state.no_longer_live(&reserved.parent),
            }
            gate
        };
        lock(&manager.inner.trees).root_of.insert(info.id.clone(), tree.root.clone());
        reserved.keep();
        let (run_info, run_data) = (Arc::clone(&info), data);
        let pending =
            open.map(|open| Pending::new(Core { manager, tree, info: run_info, data: run_data, open }));
        (Made { info, pending, gate }, ack)
    }

    pub(crate) fn refuse(self, error: &StoreError) {
        // Counts are back before whoever asked hears of it.
        let Self { reserved, ack, .. } = self;
        drop(reserved);
        let _ = ack.send(Err(error.clone()));
    }
}

/// A place below a parent; given back unless it is kept.
#[derive(Debug)]
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

    /// The child is there and has its place.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            self.tree.state().release(&self.parent);
        }
        self.tree.changed.notify_waiters();
    }
}
