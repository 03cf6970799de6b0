//! `max_active`: how much works at once (rule L5). A queue and no refusal: bounded, fair between siblings.
//!
//! A slot counts a process or a model request that does work, never a session that waits for a child: a
//! run that waits gives its slot back until the child has ended, so that a chain of depth 10 finishes with
//! one slot.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use offspring_protocol::{RunId, SessionId};
use tokio::sync::oneshot;

/// Bounds of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// Slots; twice the number of CPUs and at least 4 by default.
    pub max_active: usize,
    /// Runs that may wait for one; 10,000 by default. Beyond it a run is refused.
    pub max_queued: usize,
}

impl Default for SlotLimits {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        Self { max_active: (2 * cpus).max(4), max_queued: 10_000 }
    }
}

/// More runs wait than the limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{max} runs wait already, which is the limit (max_queued): try again later")]
pub struct QueueFull {
    /// The limit.
    pub max: usize,
}

/// The slots of a pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    limits: SlotLimits,
    active: usize,
    most_active: usize,
    /// Runs that come back from waiting for a child: before everybody else.
    returning: VecDeque<oneshot::Sender<()>>,
    /// The queues of each parent's children, taken in turn.
    families: VecDeque<(Option<SessionId>, VecDeque<oneshot::Sender<()>>)>,
    queued: usize,
    /// Which runs hold a slot, and how many children each waits for.
    runs: HashMap<RunId, Holder, RandomState>,
}

#[derive(Debug, Default)]
struct Holder {
    waits: usize,
    holds: bool,
}

/// A slot that is held by a run until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    run: RunId,
}

impl Slots {
    /// All slots free.
    #[must_use]
    pub fn new(limits: SlotLimits) -> Self {
        let limits = SlotLimits { max_active: limits.max_active.max(1), ..limits };
        Self(Arc::new(Mutex::new(Queue {
            limits,
            active: 0,
            most_active: 0,
            returning: VecDeque::new(),
            families: VecDeque::new(),
            queued: 0,
            runs: HashMap::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots in use now.
    #[must_use]
    pub fn active(&self) -> usize {
        self.lock().active
    }

    /// The most slots that were in use at once.
    #[must_use]
    pub fn most_active(&self) -> usize {
        self.lock().most_active
    }

    /// Waits for a slot for this run. Siblings, the children of one parent, wait in one line, and the
    /// lines take turns: a team of 500 does not hold up the one child of another session.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub async fn acquire(&self, run: &RunId, parent: Option<&SessionId>) -> Result<Slot, QueueFull> {
        let turn = {
            let mut queue = self.lock();
            if queue.active < queue.limits.max_active {
                queue.take();
                None
            } else if queue.queued >= queue.limits.max_queued {
                return Err(QueueFull { max: queue.limits.max_queued });
            } else {
                let (given, turn) = oneshot::channel();
                queue.queued += 1;
                match queue.families.iter_mut().find(|(family, _)| family.as_ref() == parent) {
                    Some((_, line)) => line.push_back(given),
                    None => queue.families.push_back((parent.cloned(), VecDeque::from([given]))),
                }
                Some(turn)
            }
        };
        if let Some(turn) = turn {
            Turn { slots: self, turn: Some(turn) }.come().await;
        }
        self.lock().runs.insert(run.clone(), Holder { waits: 0, holds: true });
        Ok(Slot { slots: self.clone(), run: run.clone() })
    }

    /// Gives the run's slot to others while `child` is awaited. A run that holds none just waits.
    ///
    /// The slot is taken again when the last of several such waits of the run is over, before anybody new.
    pub async fn while_waiting<T>(&self, run: &RunId, child: impl Future<Output = T>) -> T {
        let waiting = Waiting::begin(self, run);
        let output = child.await;
        if let Some(waiting) = waiting {
            waiting.end().await;
        }
        output
    }
}

impl Queue {
    fn take(&mut self) {
        self.active += 1;
        self.most_active = self.most_active.max(self.active);
    }

    /// A slot is free: to whoever is next and still there.
    fn give(&mut self) {
        self.active -= 1;
        while let Some(next) = self.next() {
            self.take();
            if next.send(()).is_ok() {
                return;
            }
            self.active -= 1;
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<()>> {
        if let Some(next) = self.returning.pop_front() {
            return Some(next);
        }
        let (family, mut line) = self.families.pop_front()?;
        let next = line.pop_front();
        if !line.is_empty() {
            self.families.push_back((family, line));
        }
        if next.is_some() {
            self.queued -= 1;
        }
        next
    }
}

/// A place in a line; a slot that was given to somebody who left is passed on.
struct Turn<'a> {
    slots: &'a Slots,
    turn: Option<oneshot::Receiver<()>>,
}

impl Turn<'_> {
    async fn come(mut self) {
        if let Some(turn) = &mut self.turn {
            // The sender is dropped only with the queue itself.
            let _ = turn.await;
        }
        self.turn = None;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        turn.close();
        if turn.try_recv().is_ok() {
            self.slots.lock().give();
        }
    }
}

/// A run that waits for a child without its slot.
struct Waiting<'a> {
    slots: &'a Slots,
    run: RunId,
    over: bool,
}

impl<'a> Waiting<'a> {
    fn begin(slots: &'a Slots, run: &RunId) -> Option<Self> {
        let mut queue = slots.lock();
        let holder = queue.runs.get_mut(run)?;
        holder.waits += 1;
        if std::mem::take(&mut holder.holds) {
            queue.give();
        }
        Some(Self { slots, run: run.clone(), over: false })
    }

    /// Takes the slot again if this was the last wait of the run.
    async fn end(mut self) {
        let turn = self.leave();
        self.over = true;
        if let Some(turn) = turn {
            Turn { slots: self.slots, turn: Some(turn) }.come().await;
            let mut queue = self.slots.lock();
            match queue.runs.get_mut(&self.run) {
                Some(holder) if !holder.holds && holder.waits == 0 => holder.holds = true,
                // The run ended, waits again, or has a slot: this one is not needed.
                _ => queue.give(),
            }
        }
    }

    fn leave(&self) -> Option<oneshot::Receiver<()>> {
        let mut queue = self.slots.lock();
        let holder = queue.runs.get_mut(&self.run)?;
        holder.waits -= 1;
        if holder.waits > 0 || holder.holds {
            return None;
        }
        if queue.active < queue.limits.max_active {
            queue.take();
            if let Some(holder) = queue.runs.get_mut(&self.run) {
                holder.holds = true;
            }
            return None;
        }
        let (given, turn) = oneshot::channel();
        queue.returning.push_back(given);
        Some(turn)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Whoever waited was dropped: the run goes on without a slot until it ends.
        if !self.over {
            if let Some(holder) = self.slots.lock().runs.get_mut(&self.run) {
                holder.waits = holder.waits.saturating_sub(1);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut queue = self.slots.lock();
        if queue.runs.remove(&self.run).is_some_and(|holder| holder.holds) {
            queue.give();
        }
    }
}
