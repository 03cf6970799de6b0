//! A tree that this process owns, as it is in memory: members, open runs, limits, gates.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use foldhash::fast::RandomState;
use offspring_protocol::{External, Outcome, RunId, RunRecord, SessionData, SessionId, SessionInfo};
use offspring_tree::{Rollup, Runs, SessionTree};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Refused,
    silence::Heard,
    store::StoreError,
    writer::{Op, QUEUE_BYTES, Then},
};

/// A tree that this process owns.
#[derive(Debug)]
pub(crate) struct LiveTree {
    pub(crate) root: SessionId,
    /// To the one task that numbers and commits this tree's events.
    pub(crate) writer: mpsc::Sender<Op>,
    /// What waits for the writer in bytes, of lines that are long: whoever has one waits for room.
    pub(crate) room: Arc<Semaphore>,
    /// Also held by the writer, which must not hold the tree: it ends when the tree is dropped.
    state: Arc<Mutex<TreeState>>,
    /// Told whenever a run ends and whenever a child that was being made is there, or will never be.
    pub(crate) changed: Notify,
    /// One at a time looks whether a peer's session is known and adopts it.
    pub(crate) adopting: tokio::sync::Mutex<()>,
    /// Set when the writer has written its last.
    pub(crate) written: CancellationToken,
}

#[derive(Debug, Default)]
pub(crate) struct TreeState {
    pub(crate) members: HashMap<SessionId, Member, RandomState>,
    /// Who descends from whom in this tree; asked by cancel, limits and rest.
    pub(crate) tree: SessionTree,
    /// Sessions of peers, by parent and external id.
    pub(crate) adopted: HashMap<(SessionId, External), SessionId, RandomState>,
    pub(crate) rollup: Rollup,
    pub(crate) open_runs: usize,
    /// Subtrees that are being cancelled, once per cancel.
    cancelling: Vec<SessionId>,
    /// The store refused a write for good: nothing more is accepted.
    pub(crate) failed: Option<StoreError>,
    /// Since when no run is open.
    pub(crate) resting_since: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) info: Arc<SessionInfo>,
    pub(crate) data: Arc<SessionData>,
    pub(crate) runs: Runs,
    /// Its run, while one is open.
    pub(crate) open: Option<Arc<OpenRun>>,
    /// Children with an open run, and those being made.
    pub(crate) live_children: u32,
    /// Sessions below it, and those being made.
    pub(crate) descendants: u32,
    /// Closed from the top: no new child and no new run (rule L14).
    pub(crate) gate: Option<Gate>,
    /// Its last run that ended; kept only where no store keeps it (rule L8).
    pub(crate) last_run: Option<Box<RunRecord>>,
}

/// Why nothing may start below a session any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Cancelled,
    Closing,
    /// Its rows are being deleted.
    Deleting,
}

/// A run that has not ended.
#[derive(Debug)]
pub(crate) struct OpenRun {
    pub(crate) id: RunId,
    /// Asks its agent to stop.
    pub(crate) stop: CancellationToken,
    /// Set once its end is committed.
    pub(crate) ended: CancellationToken,
    pub(crate) changing: Mutex<Changing>,
    pub(crate) heard: Heard,
}

#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) record: RunRecord,
    /// Decided from outside: whatever the agent returns, this is how the run ends.
    pub(crate) forced: Option<Outcome>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveTree {
    pub(crate) fn new(root: SessionId, writer: mpsc::Sender<Op>, mut state: TreeState) -> Self {
        if state.open_runs == 0 {
            state.resting_since = Some(Instant::now());
        }
        Self {
            root,
            writer,
            room: Arc::new(Semaphore::new(QUEUE_BYTES as usize)),
            state: Arc::new(Mutex::new(state)),
            changed: Notify::new(),
            adopting: tokio::sync::Mutex::new(()),
            written: CancellationToken::new(),
        }
    }

    pub(crate) fn shared_state(&self) -> Arc<Mutex<TreeState>> {
        Arc::clone(&self.state)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TreeState> {
        lock(&self.state)
    }

    /// Waits until no run but `own` is open in the tree and no child is being made (rule L19).
    pub(crate) async fn at_rest_but_for(&self, own: usize) {
        self.until(|state| state.open_runs <= own && state.being_made(&self.root) == 0).await;
    }

    /// Waits until what is queued for the writer now is written, or refused by a store that failed.
    pub(crate) async fn flush(&self) {
        let (ack, written) = oneshot::channel();
        if self.writer.send(Op { then: Then::Tell(ack), ..Op::default() }).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Waits until this holds.
    pub(crate) async fn until(&self, holds: impl Fn(&TreeState) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            if holds(&self.state()) {
                return;
            }
            changed.await;
        }
    }
}

impl TreeState {
    pub(crate) fn member(&self, id: &SessionId) -> Result<&Member, Refused> {
        self.members.get(id).ok_or_else(|| Refused::UnknownSession { id: id.clone() })
    }

    /// Takes a place for one more child below `parent`, or says why there is none (rule L5). Give it back
    /// with [`release`](Self::release) when the child does not come into being.
    pub(crate) fn reserve(&mut self, parent: &SessionId) -> Result<(), Refused> {
        if let Some(error) = &self.failed {
            return Err(Refused::Store(error.clone()));
        }
        let member = self.member(parent)?;
        if let Some(gate) = member.gate {
            return Err(gate.refusal(parent));
        }
        let limits = &member.data.limits;
        let depth = member.info.depth + 1;
        if let Some(max) = limits.max_depth.filter(|max| depth > *max) {
            return Err(Refused::DelegationDepth { depth, max });
        }
        if let Some(breach) = self.too_many_live(parent) {
            return Err(breach);
        }
        let path = Arc::clone(&member.info.path);
        for id in path.iter() {
            let Some(above) = self.members.get(id) else { continue };
            if let Some(max) = above.data.limits.max_descendants.filter(|max| above.descendants >= *max) {
                return Err(Refused::Descendants { session: id.clone(), max });
            }
        }
        self.count(&path, 1);
        if let Some(member) = self.members.get_mut(parent) {
            member.live_children += 1;
        }
        Ok(())
    }

    /// Whether one more child at work would be one too many.
    pub(crate) fn too_many_live(&self, parent: &SessionId) -> Option<Refused> {
        let member = self.members.get(parent)?;
        let max = member.data.limits.max_live_children.filter(|max| member.live_children >= *max)?;
        Some(Refused::LiveChildren { max })
    }

    /// A child was made without a run.
    pub(crate) fn no_longer_live(&mut self, parent: &SessionId) {
        if let Some(member) = self.members.get_mut(parent) {
            member.live_children = member.live_children.saturating_sub(1);
        }
    }

    /// As [`reserve`](Self::reserve), for a child that exists whatever the limits say.
    pub(crate) fn reserve_beyond(&mut self, parent: &SessionId) {
        if let Some(member) = self.members.get_mut(parent) {
            member.live_children += 1;
            let path = Arc::clone(&member.info.path);
            self.count(&path, 1);
        }
    }

    /// Gives back what [`reserve`](Self::reserve) took.
    pub(crate) fn release(&mut self, parent: &SessionId) {
        if let Some(member) = self.members.get_mut(parent) {
            member.live_children = member.live_children.saturating_sub(1);
            let path = Arc::clone(&member.info.path);
            self.count(&path, -1);
        }
    }

    fn count(&mut self, path: &[SessionId], change: i32) {
        for id in path {
            if let Some(member) = self.members.get_mut(id) {
                member.descendants = member.descendants.saturating_add_signed(change);
            }
        }
    }

    /// How many children below a session are being made: counted, but not there yet.
    pub(crate) fn being_made(&self, top: &SessionId) -> usize {
        let counted = self.members.get(top).map_or(0, |member| member.descendants);
        (counted as usize).saturating_sub(self.tree.descendants(top).count())
    }

    /// Puts a stored session and its pending run into memory. The gate of its parent holds for it too.
    pub(crate) fn admit(
        &mut self,
        info: Arc<SessionInfo>,
        data: Arc<SessionData>,
        open: Option<Arc<OpenRun>>,
    ) -> Option<Gate> {
        let mut runs = Runs::default();
        if let Some(open) = &open {
            // A new session has no other run.
            let _ = runs.open(open.id.clone());
            self.open_runs += 1;
            self.resting_since = None;
        }
        // A tree is loaded or made parents first, so the parent is there; a second insert changes nothing.
        let _ = self.tree.insert(info.id.clone(), info.parent.as_ref());
        if let (Some(external), Some(parent)) = (&data.external, &data.parent_id) {
            self.adopted.insert((parent.clone(), external.clone()), info.id.clone());
        }
        let gate =
            info.parent.as_ref().and_then(|parent| self.members.get(parent)).and_then(|parent| parent.gate);
        let id = info.id.clone();
        let member =
            Member { info, data, runs, open, live_children: 0, descendants: 0, gate, last_run: None };
        self.members.insert(id, member);
        gate
    }

    /// Closes the gates of a session and everything below it, from the top (rule L14).
    pub(crate) fn close_gates(&mut self, top: &SessionId, gate: Gate) {
        if gate == Gate::Cancelled {
            self.cancelling.push(top.clone());
        }
        self.set_gates(top, |open| *open = Some(open.filter(|gate| *gate == Gate::Closing).unwrap_or(gate)));
    }

    /// Opens the gates that one cancel closed; those of other cancels and of a closing manager stay closed.
    pub(crate) fn open_gates(&mut self, top: &SessionId) {
        if let Some(done) = self.cancelling.iter().position(|cancelling| cancelling == top) {
            self.cancelling.swap_remove(done);
        }
        self.reopen_gates(top, Gate::Cancelled);
        for other in self.cancelling.clone() {
            self.set_gates(&other, |open| *open = Some(open.unwrap_or(Gate::Cancelled)));
        }
    }

    /// Opens the gates that are closed for this reason.
    pub(crate) fn reopen_gates(&mut self, top: &SessionId, gate: Gate) {
        self.set_gates(top, |open| *open = open.filter(|closed| *closed != gate));
    }

    fn set_gates(&mut self, top: &SessionId, set: impl Fn(&mut Option<Gate>)) {
        for id in std::iter::once(top).chain(self.tree.descendants(top)) {
            if let Some(member) = self.members.get_mut(id) {
                set(&mut member.gate);
            }
        }
    }

    /// The open runs of a subtree, leaves first, each parent after its children.
    pub(crate) fn open_below(&self, top: &SessionId) -> Vec<(u32, SessionId, Arc<OpenRun>)> {
        let member = |id: SessionId| {
            let member = self.members.get(&id)?;
            Some((member.info.depth, id, Arc::clone(member.open.as_ref()?)))
        };
        self.tree.leaves_first(top).into_iter().filter_map(member).collect()
    }

    /// Forgets a deleted subtree.
    pub(crate) fn forget(&mut self, top: &SessionId, deleted: &[SessionId]) {
        let path = self.members.get(top).map(|member| Arc::clone(&member.info.path));
        for id in path.iter().flat_map(|path| path.iter()).filter(|id| *id != top) {
            if let Some(member) = self.members.get_mut(id) {
                let gone = u32::try_from(deleted.len()).unwrap_or(u32::MAX);
                member.descendants = member.descendants.saturating_sub(gone);
            }
        }
        self.tree.remove_subtree(top);
        for id in deleted {
            self.members.remove(id);
            self.rollup.forget(id);
        }
        self.adopted.retain(|_, id| self.members.contains_key(id));
    }
}

impl Gate {
    pub(crate) fn refusal(self, id: &SessionId) -> Refused {
        match self {
            Self::Cancelled => Refused::Cancelled,
            Self::Closing => Refused::Closing,
            Self::Deleting => Refused::UnknownSession { id: id.clone() },
        }
    }
}
