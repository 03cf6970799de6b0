//! Who hears what was committed: bounded subscriptions to a whole session tree, a subtree or everything.
//!
//! Publishing walks the path of an event's session once and looks up the subscriptions at each step, so
//! that it costs the depth of the session and never the number of sessions or subscriptions (rule T15).
//! A subscriber that stalls harms only itself (rule T11).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use foldhash::fast::RandomState;
use offspring_protocol::{Envelope, SessionId, SessionInfo};
use smallvec::SmallVec;
use tokio::sync::{Notify, broadcast};

/// How much a subscription holds before it lags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Envelopes; 8,192 by default.
    pub items: usize,
    /// Bytes of their data; 16 MiB by default.
    pub bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { items: 8_192, bytes: 16 << 20 }
    }
}

/// What a subscription hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every tree this process owns.
    All,
    /// A session and all below it; with a root, its whole tree.
    Subtree(SessionId),
    /// One session alone.
    Session(SessionId),
}

/// Sessions that came into being or changed for this process (rule L9). No log events.
#[derive(Debug, Clone)]
pub enum Notice {
    /// This process knows the session from now on.
    Created(Arc<SessionInfo>),
    /// Somebody asked for the session again.
    Updated(Arc<SessionInfo>),
}

/// What routing has cost so far, counted (rule T15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoutingCost {
    /// Look-ups in the table of subscriptions.
    pub lookups: u64,
    /// Steps on paths from a session to its root.
    pub hops: u64,
    /// Envelopes put into queues.
    pub deliveries: u64,
}

/// The bus of one process.
#[derive(Debug)]
pub struct Bus {
    routes: Mutex<Routes>,
    notices: broadcast::Sender<Notice>,
}

#[derive(Debug, Default)]
struct Routes {
    next: u64,
    all: Vec<Entry>,
    subtree: HashMap<SessionId, SmallVec<[Entry; 1]>, RandomState>,
    session: HashMap<SessionId, SmallVec<[Entry; 1]>, RandomState>,
    cost: RoutingCost,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    key: u64,
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    limits: QueueLimits,
    held: Mutex<Held>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Held {
    envelopes: VecDeque<Arc<Envelope>>,
    bytes: usize,
    missed: u64,
    closed: bool,
}

/// Ends a subscription: the queue was full, and what came after is not in it.
///
/// Read on from the store with [`SessionManager::follow`](crate::SessionManager::follow) from the last
/// `seq` you saw: nothing is lost there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the subscription was too slow and missed {missed} events")]
pub struct Lagged {
    /// Events that came while the queue was full, up to now.
    pub missed: u64,
}

/// Hears envelopes in the order of their commit. Dropping it ends it.
///
/// ```
/// use offspring_protocol::{AgentType, NodeName};
/// use offspring_sessions::{NewRoot, Scope, SessionManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let manager = SessionManager::detached();
/// let mut all = manager.subscribe(Scope::All);
/// let new = NewRoot::new(NodeName::new("worker")?, AgentType::Native);
/// let run = manager.create_root(new).await?.start("work").await?;
/// let first = all.recv().await?.expect("the bus is open");
/// assert_eq!((first.seq, first.event.kind()), (1, "run_started"));
/// assert_eq!(first.session.id, run.context.session().id);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Subscription {
    key: u64,
    scope: Scope,
    queue: Arc<Queue>,
    bus: Weak<Bus>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Bus {
    fn default() -> Self {
        Self { routes: Mutex::default(), notices: broadcast::Sender::new(1_024) }
    }
}

impl Bus {
    /// Subscribes from now on.
    pub fn subscribe(self: &Arc<Self>, scope: Scope, limits: QueueLimits) -> Subscription {
        let queue = Arc::new(Queue { limits, held: Mutex::default(), arrived: Notify::new() });
        let mut routes = lock(&self.routes);
        routes.next += 1;
        let entry = Entry { key: routes.next, queue: Arc::clone(&queue) };
        let key = entry.key;
        if routes.closed {
            // Nothing will come: the first `recv` says so.
            lock(&queue.held).closed = true;
            return Subscription { key, scope, queue, bus: Weak::new() };
        }
        match &scope {
            Scope::All => routes.all.push(entry),
            Scope::Subtree(id) => routes.subtree.entry(id.clone()).or_default().push(entry),
            Scope::Session(id) => routes.session.entry(id.clone()).or_default().push(entry),
        }
        Subscription { key, scope, queue, bus: Arc::downgrade(self) }
    }

    /// Notices about sessions from now on; a receiver 1,024 notices behind is told how many it missed.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }

    /// What routing has cost so far.
    #[must_use]
    pub fn cost(&self) -> RoutingCost {
        lock(&self.routes).cost
    }

    pub(crate) fn notice(&self, notice: Notice) {
        // Without a receiver there is nobody to tell.
        let _ = self.notices.send(notice);
    }

    /// Hands committed envelopes to whoever listens. Never waits.
    pub(crate) fn publish(&self, envelopes: &[Arc<Envelope>]) {
        let mut routes = lock(&self.routes);
        let Routes { all, subtree, session, cost, .. } = &mut *routes;
        if all.is_empty() && subtree.is_empty() && session.is_empty() {
            return;
        }
        for entry in all.iter() {
            cost.deliveries += envelopes.len() as u64;
            entry.queue.push(envelopes);
        }
        for envelope in envelopes {
            let one = std::slice::from_ref(envelope);
            if !session.is_empty() {
                cost.lookups += 1;
                for entry in session.get(&envelope.session.id).into_iter().flatten() {
                    cost.deliveries += 1;
                    entry.queue.push(one);
                }
            }
            if !subtree.is_empty() {
                // One walk up, meeting every subscription on the way (T6, T15).
                for id in envelope.session.path.iter().rev() {
                    cost.hops += 1;
                    cost.lookups += 1;
                    for entry in subtree.get(id).into_iter().flatten() {
                        cost.deliveries += 1;
                        entry.queue.push(one);
                    }
                }
            }
        }
    }

    /// Ends every subscription: each still gives what it holds.
    pub(crate) fn close(&self) {
        let mut routes = lock(&self.routes);
        routes.closed = true;
        let Routes { all, subtree, session, .. } = &mut *routes;
        let entries =
            all.drain(..).chain(subtree.drain().chain(session.drain()).flat_map(|(_, entries)| entries));
        for entry in entries {
            lock(&entry.queue.held).closed = true;
            entry.queue.arrived.notify_one();
        }
    }

    fn remove(&self, key: u64, scope: &Scope) {
        let mut routes = lock(&self.routes);
        let Routes { all, subtree, session, .. } = &mut *routes;
        let (map, id) = match scope {
            Scope::All => return all.retain(|entry| entry.key != key),
            Scope::Subtree(id) => (subtree, id),
            Scope::Session(id) => (session, id),
        };
        if let Some(entries) = map.get_mut(id) {
            entries.retain(|entry| entry.key != key);
            if entries.is_empty() {
                map.remove(id);
            }
        }
    }
}

/// What an envelope takes in a queue, roughly: its data and the words around it.
fn weight(envelope: &Envelope) -> usize {
    envelope.event.data().get().len() + 128
}

impl Queue {
    fn push(&self, envelopes: &[Arc<Envelope>]) {
        let mut held = lock(&self.held);
        for envelope in envelopes {
            let bytes = weight(envelope);
            let room = held.envelopes.len() < self.limits.items && held.bytes + bytes <= self.limits.bytes;
            // Once it lags it takes no more: a gap in the middle would look like a whole stream (T11).
            if held.missed == 0 && (room || held.envelopes.is_empty()) {
                held.bytes += bytes;
                held.envelopes.push_back(Arc::clone(envelope));
            } else {
                held.missed += 1;
            }
        }
        drop(held);
        self.arrived.notify_one();
    }
}

impl Subscription {
    /// The next envelope; `None` when the bus is closed.
    ///
    /// # Errors
    /// [`Lagged`] once the queue was full, after what it held; then again at each call.
    pub async fn recv(&mut self) -> Result<Option<Arc<Envelope>>, Lagged> {
        loop {
            if let Some(result) =
                self.try_take(|held| held.envelopes.pop_front().inspect(|e| held.bytes -= weight(e)))
            {
                return result;
            }
            self.queue.arrived.notified().await;
        }
    }

    /// All that is there, at least one; `None` when the bus is closed.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_many(&mut self) -> Result<Option<VecDeque<Arc<Envelope>>>, Lagged> {
        loop {
            let all = |held: &mut Held| {
                held.bytes = 0;
                (!held.envelopes.is_empty()).then(|| std::mem::take(&mut held.envelopes))
            };
            if let Some(result) = self.try_take(all) {
                return result;
            }
            self.queue.arrived.notified().await;
        }
    }

    fn try_take<T>(&self, take: impl FnOnce(&mut Held) -> Option<T>) -> Option<Result<Option<T>, Lagged>> {
        let mut held = lock(&self.queue.held);
        match take(&mut held) {
            Some(taken) => Some(Ok(Some(taken))),
            None if held.missed > 0 => Some(Err(Lagged { missed: held.missed })),
            None => held.closed.then_some(Ok(None)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(bus) = self.bus.upgrade() {
            bus.remove(self.key, &self.scope);
        }
    }
}

#[cfg(test)]
mod tests;
