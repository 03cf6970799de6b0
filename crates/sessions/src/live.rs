//! A tree that this process owns, as it is in memory: members, open runs, limits, gates.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use offspring_protocol::{External, Outcome, RunId, RunRecord, SessionData, SessionId, SessionInfo};
use offspring_tree::{Rollup, Runs, SessionTree};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Refused,
    store::{Fence, StoreError},
    writer::Op,
};

/// A tree that this process owns.
#[derive(Debug)]
pub(crate) struct LiveTree {
    pub(crate) root: SessionId,
    pub(crate) fence: Fence,
    /// To the one task that numbers and commits this tree's events.
    pub(crate) writer: mpsc::Sender<Op>,
    state: Mutex<TreeState>,
    /// Told whenever a run ends.
    pub(crate) run_ended: Notify,
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
    /// The store refused a write for good: nothing more is accepted.
    pub(crate) failed: Option<StoreError>,
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
}

/// Why nothing may start below a session any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Cancelled,
    Closing,
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
    pub(crate) fn new(root: SessionId, fence: Fence, writer: mpsc::Sender<Op>, state: TreeState) -> Self {
        Self { root, fence, writer, state: Mutex::new(state), run_ended: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TreeState> {
        lock(&self.state)
    }

    /// Waits until no run but `own` is open in the tree (rule L19).
    pub(crate) async fn at_rest_but_for(&self, own: usize) {
        loop {
            let ended = self.run_ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that an end in between is not missed.
            ended.as_mut().enable();
            if self.state().open_runs <= own {
                return;
            }
            ended.await;
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
            return Err(gate.refusal());
        }
        let limits = &member.data.limits;
        let depth = member.info.depth + 1;
        if let Some(max) = limits.max_depth.filter(|max| depth > *max) {
            return Err(Refused::DelegationDepth { depth, max });
        }
        if let Some(max) = limits.max_live_children.filter(|max| member.live_children >= *max) {
            return Err(Refused::LiveChildren { max });
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

    /// Puts a stored session and its pending run into memory.
    pub(crate) fn admit(&mut self, info: Arc<SessionInfo>, data: Arc<SessionData>, open: Option<Arc<OpenRun>>) {
        let mut runs = Runs::default();
        if let Some(open) = &open {
            // A new session has no other run.
            let _ = runs.open(open.id.clone());
            self.open_runs += 1;
        }
        // A tree is loaded or made parents first, so the parent is there; a second insert changes nothing.
        let _ = self.tree.insert(info.id.clone(), info.parent.as_ref());
        if let (Some(external), Some(parent)) = (&data.external, &data.parent_id) {
            self.adopted.insert((parent.clone(), external.clone()), info.id.clone());
        }
        let member =
            Member { info: Arc::clone(&info), data, runs, open, live_children: 0, descendants: 0, gate: None };
        self.members.insert(info.id.clone(), member);
    }

    /// Closes the gates of a session and everything below it, from the top (rule L14).
    pub(crate) fn close_gates(&mut self, top: &SessionId, gate: Gate) {
        let below: Vec<SessionId> = self.tree.descendants(top).cloned().collect();
        for id in std::iter::once(top).chain(&below) {
            if let Some(member) = self.members.get_mut(id) {
                member.gate = Some(gate);
            }
        }
    }
}

impl TreeState {
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

    /// Opens the gates that a cancel closed; those of a closing manager stay closed.
    pub(crate) fn open_gates(&mut self, top: &SessionId) {
        let below: Vec<SessionId> = self.tree.descendants(top).cloned().collect();
        for id in std::iter::once(top).chain(&below) {
            if let Some(member) = self.members.get_mut(id).filter(|member| member.gate == Some(Gate::Cancelled)) {
                member.gate = None;
            }
        }
    }
}

impl Gate {
    pub(crate) fn refusal(self) -> Refused {
        match self {
            Self::Cancelled => Refused::Cancelled,
            Self::Closing => Refused::Closing,
        }
    }
}
