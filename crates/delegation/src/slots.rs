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
    returning: VecDeque<RunId>,
    /// The lines of each parent's children, taken in turn.
    families: VecDeque<(Option<SessionId>, VecDeque<oneshot::Sender<()>>)>,
    /// Places in those lines.
    queued: usize,
    /// Places in them whose run has left.
    left: usize,
    /// Runs that got a slot and have not ended.
    runs: HashMap<RunId, Holder, RandomState>,
}

/// A run that got a slot. It holds one only while it waits for nothing, and stands in line only while it
/// holds none.
#[derive(Debug, Default)]
struct Holder {
    holds: bool,
    /// Children it waits for.
    waits: usize,
    /// Whether it stands among the returning.
    in_line: bool,
    /// Those of its waits that are over and go on once it has its slot again.
    back: Vec<oneshot::Sender<()>>,
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
            left: 0,
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

    /// Waits for a slot for this run, once in its life. Siblings, the children of one parent, wait in one
    /// line, and the lines take turns: a team of 500 does not hold up the one child of another session.
    ///
    /// Dropped while it waits, it leaves the line.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub async fn acquire(&self, run: &RunId, parent: Option<&SessionId>) -> Result<Slot, QueueFull> {
        let turn = {
            let mut queue = self.lock();
            if queue.active < queue.limits.max_active {
                queue.take();
                None
            } else if queue.queued - queue.left >= queue.limits.max_queued {
                return Err(QueueFull { max: queue.limits.max_queued });
            } else {
                Some(queue.stand_in_line(parent))
            }
        };
        if let Some(turn) = turn {
            Turn { slots: self, turn: Some(turn) }.come().await;
        }
        self.lock().runs.insert(run.clone(), Holder { holds: true, ..Holder::default() });
        Ok(Slot { slots: self.clone(), run: run.clone() })
    }

    /// Gives the run's slot to others while `child` is awaited. A run that holds none just waits.
    ///
    /// The slot is taken again when the last of several such waits of the run is over, before anybody new.
    /// When the wait is dropped the run gets its slot back too, as soon as one is free: it cannot be held up
    /// any more, but what starts after it can.
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

    /// A slot is free.
    fn give(&mut self) {
        self.active -= 1;
        self.hand_out();
    }

    /// Free slots go to whoever is next and still there. Afterwards a slot is free only if nobody waits.
    fn hand_out(&mut self) {
        while self.active < self.limits.max_active {
            if self.one_returns() {
                continue;
            }
            let Some(next) = self.next_in_line() else { return };
            // Whoever leaves does so under the lock, so it is there.
            if next.send(()).is_ok() {
                self.take();
            }
        }
    }

    /// Gives a slot to the first run that has come back.
    fn one_returns(&mut self) -> bool {
        while let Some(run) = self.returning.pop_front() {
            // It may have ended meanwhile.
            let Some(holder) = self.runs.get_mut(&run) else { continue };
            holder.in_line = false;
            // One that waits again needs no slot now; those of its waits that are over need not stand still.
            holder.holds = holder.waits == 0;
            let holds = holder.holds;
            for back in std::mem::take(&mut holder.back) {
                let _ = back.send(());
            }
            if holds {
                self.take();
                return true;
            }
        }
        false
    }

    fn stand_in_line(&mut self, parent: Option<&SessionId>) -> oneshot::Receiver<()> {
        let (given, turn) = oneshot::channel();
        self.queued += 1;
        match self.families.iter_mut().find(|(family, _)| family.as_ref() == parent) {
            Some((_, line)) => line.push_back(given),
            None => self.families.push_back((parent.cloned(), VecDeque::from([given]))),
        }
        turn
    }

    /// The first who is still there of the family whose turn it is.
    fn next_in_line(&mut self) -> Option<oneshot::Sender<()>> {
        while let Some((family, mut line)) = self.families.pop_front() {
            let next = loop {
                let Some(first) = line.pop_front() else { break None };
                self.queued -= 1;
                if !first.is_closed() {
                    break Some(first);
                }
                self.left -= 1;
            };
            if !line.is_empty() {
                self.families.push_back((family, line));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Somebody left its line. The places of those who left are taken away when they are the greater part.
    fn one_left(&mut self) {
        self.left += 1;
        if self.left * 2 > self.queued {
            self.families.retain_mut(|(_, line)| {
                line.retain(|place| !place.is_closed());
                !line.is_empty()
            });
            self.queued -= self.left;
            self.left = 0;
        }
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
        let mut queue = self.slots.lock();
        turn.close();
        match turn.try_recv() {
            Ok(()) => queue.give(),
            Err(_) => queue.one_left(),
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
        if let Some(turn) = turn {
            // The sender goes when the run ends: then no slot is needed.
            let _ = turn.await;
        }
    }

    fn leave(&mut self) -> Option<oneshot::Receiver<()>> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let mut queue = self.slots.lock();
        let holder = queue.runs.get_mut(&self.run)?;
        holder.waits -= 1;
        if holder.waits > 0 {
            return None;
        }
        let (given, turn) = oneshot::channel();
        holder.back.push(given);
        if !std::mem::replace(&mut holder.in_line, true) {
            queue.returning.push_back(self.run.clone());
        }
        queue.hand_out();
        Some(turn)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Whoever waited was dropped: the run is at work again all the same.
        let _ = self.leave();
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
