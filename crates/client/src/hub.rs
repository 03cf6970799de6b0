//! Where everything that the runtime says meets everybody who listens. One lock, held for a routing step.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use offspring_protocol::{
    MessageId, SessionId, SessionState,
    dsh::{SESSION_STATUS, SUBAGENT_FINISHED, SUBAGENT_STARTED},
    rpc::Id,
};
use offspring_transport::Pending;
use offspring_tree::{Activity, Notification as Routed, Router, SubscriptionKey, ancestry, turn::Extent};
use tokio::sync::Notify;

use crate::{
    collector::{Collector, Follower, Keep, Rest, Room},
    error::{Gone, GoneHow},
    limits::Limits,
    notification::{Line, Notification},
    queue::{Queue, SubscriptionEnd},
};

/// Whether a subscription wants a notification. It runs on the reader of the wire: it must not wait.
pub(crate) type Filter = dyn Fn(&Notification) -> bool + Send + Sync;

#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    limits: Limits,
    /// Filtered subscriptions, apart from the lock: a filter may call the client.
    filters: Mutex<Vec<Filtered>>,
    next_filter: AtomicU64,
    /// A turn may hold up the reader of the wire. Written under the lock; looked at before each line, which is no
    /// reason to take it.
    is_held: AtomicBool,
    /// A turn holds it up no more.
    let_go: Notify,
}

#[derive(Clone)]
struct Filtered {
    serial: u64,
    filter: Arc<Filter>,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Filtered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filtered").field("serial", &self.serial).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    router: Router,
    targets: HashMap<SubscriptionKey, Target, foldhash::fast::RandomState>,
    activity: Activity,
    /// What matched nothing (T10).
    unmatched: Arc<Queue>,
    unmatched_dropped: u64,
    pending: Pending<Sent>,
    /// The turns that learn of their rest by [`Rest::Bookkeeping`]: the others need not be looked at.
    keeping_books: Vec<SubscriptionKey>,
    /// Something changed that may have brought a tree to rest.
    rest_is_due: bool,
    /// The reader waits for bytes: everything that was written has been routed.
    reader_waits: bool,
    closing: bool,
    gone: Option<Arc<Gone>>,
}

#[derive(Debug)]
enum Target {
    Queue(Arc<Queue>),
    Turn(Box<Collector>),
}

impl Target {
    /// The turn, if it holds up the reader of the wire.
    fn holding(&self) -> Option<&Collector> {
        match self {
            Self::Turn(turn) if turn.is_holding() => Some(turn),
            _ => None,
        }
    }
}

/// A notification that is made when somebody is to have it, once for all of them. A turn keeps its own copy.
struct Shared<'a> {
    line: &'a Line<'a>,
    notification: Option<Notification>,
}

impl Shared<'_> {
    fn notification(&mut self) -> Notification {
        self.notification.get_or_insert_with(|| Notification::alone(self.line)).clone()
    }
}

/// A request on its way.
#[derive(Debug)]
struct Sent {
    /// The turn that asked whether its tree is at rest.
    rest_of: Option<SubscriptionKey>,
}

/// What a client has counted beside what it delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Starts that recorded nothing: an id is missing or empty, or both are the same (T2).
    pub invalid_starts: u64,
    /// Starts that repeated what was known, re-activations among them.
    pub repeated_starts: u64,
    /// Starts that moved their child to another parent (T3).
    pub moves: u64,
    /// Notifications that matched no subscription and had no room to wait (T10).
    pub unmatched_dropped: u64,
    /// Sessions that were named by a valid start or are subscribed to: about 100 bytes and the id each.
    pub sessions: usize,
    /// Open subscriptions and turns.
    pub subscriptions: usize,
    /// Requests without an answer, those that timed out included.
    pub open_requests: usize,
}

impl Hub {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            router: Router::default(),
            targets: HashMap::default(),
            activity: Activity::default(),
            unmatched: Arc::new(Queue::new(limits.unmatched_items, limits.unmatched_bytes)),
            unmatched_dropped: 0,
            pending: Pending::with_limit(usize::MAX),
            keeping_books: Vec::new(),
            rest_is_due: false,
            reader_waits: true,
            closing: false,
            gone: None,
        };
        Self {
            state: Mutex::new(state),
            limits,
            filters: Mutex::default(),
            next_filter: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            let_go: Notify::new(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    // What the reader of the wire says.

    /// Returns when no turn wants the runtime held up: at once, unless one was made to
    /// ([`hold_runtime`](crate::Turn::hold_runtime)).
    pub(crate) async fn let_read(&self) {
        while self.is_held.load(Ordering::Relaxed) {
            let let_go = self.let_go.notified();
            tokio::pin!(let_go);
            // Before looking, so that nothing that comes between is missed.
            let_go.as_mut().enable();
            let (is_held, at_most) = {
                let state = self.lock();
                let holding = || state.targets.values().filter_map(Target::holding);
                let is_held = holding().next().is_some();
                self.is_held.store(is_held, Ordering::Relaxed);
                (is_held, holding().filter_map(Collector::holds_at_most).min())
            };
            match at_most {
                _ if !is_held => {}
                None => let_go.await,
                Some(at_most) => {
                    if tokio::time::timeout(at_most, let_go).await.is_err() {
                        self.leave_behind(at_most);
                    }
                }
            }
        }
    }

    /// Whoever was waited for as long as was said is waited for no more.
    fn leave_behind(&self, at_most: Duration) {
        let mut state = self.lock();
        for target in state.targets.values_mut() {
            if let Target::Turn(turn) = target
                && turn.is_holding()
                && turn.holds_at_most().is_some_and(|bound| bound <= at_most)
            {
                turn.hold_no_more();
            }
        }
    }

    /// A notification, in wire order (T9). Never waits (T11).
    pub(crate) fn notification(&self, line: &Line<'_>) {
        let mut shared = Shared { line, notification: None };
        let matched = self.route(&mut shared);
        // T2: after the edge is recorded, because a filter may ask for a path.
        let filtered = self.offer_to_filters(&mut shared);
        // T10
        if !matched && !filtered {
            self.lock().unmatched(shared.notification());
        }
    }

    /// Records what it says and gives it to whoever subscribed to its tree; whether anybody did.
    fn route(&self, shared: &mut Shared<'_>) -> bool {
        let line = shared.line;
        let mut state = self.lock();
        let State { router, targets, activity, .. } = &mut *state;
        let (session, parent, child) = (
            line.session_id().unwrap_or_default(),
            line.parent_session_id().unwrap_or_default(),
            line.child_session_id().unwrap_or_default(),
        );
        let mut rest_is_due = false;
        let route = match line.method() {
            SUBAGENT_STARTED => router.route(Routed::Started { parent, child }),
            SUBAGENT_FINISHED => router.route(Routed::Finished { parent, child }),
            _ if line.session_id().is_some() => router.route(Routed::Session { session }),
            _ => router.route(Routed::Unrouted),
        };
        match line.method() {
            SUBAGENT_STARTED if matches!(route.edge(), Some(Ok(_))) => {
                if let (Ok(parent), Ok(child)) = (SessionId::new(parent), SessionId::new(child)) {
                    activity.started(&parent, &child);
                    // It may have moved away the last that was at work.
                    rest_is_due = true;
                }
            }
            SUBAGENT_FINISHED => {
                if let (Ok(parent), Ok(child)) = (SessionId::new(parent), SessionId::new(child)) {
                    activity.finished(&parent, &child);
                    rest_is_due = true;
                }
            }
            SESSION_STATUS => {
                if let Ok(session) = SessionId::new(session) {
                    let idle = line.status() == Some("idle");
                    activity.status(&session, if idle { SessionState::Idle } else { SessionState::Running });
                    rest_is_due = idle;
                }
            }
            _ => {}
        }
        let matched = !route.is_unmatched();
        let mut is_held = false;
        for key in route.matched() {
            match targets.get_mut(key) {
                Some(Target::Queue(queue)) => queue.push(shared.notification()),
                Some(Target::Turn(turn)) => {
                    turn.take(line);
                    is_held |= turn.is_holding();
                }
                None => {}
            }
        }
        if is_held {
            self.is_held.store(true, Ordering::Relaxed);
        }
        state.reader_waits = false;
        state.rest_is_due |= rest_is_due;
        matched
    }

    /// An answer to one of our requests; `false` when nobody waits for it (W5).
    pub(crate) fn answered(&self, id: &Id, succeeded: bool) -> bool {
        let mut state = self.lock();
        state.reader_waits = false;
        let Ok(sent) = state.pending.take(id) else { return false };
        if let Some(key) = sent.rest_of {
            let State { router, targets, activity, closing, .. } = &mut *state;
            if let Some(Target::Turn(turn)) = targets.get_mut(&key) {
                // What a runtime says that is being shut down is no success unless its tree really is at rest.
                let believed =
                    succeeded && (!*closing || activity.is_at_rest(turn.root(), router.ancestry_mut()));
                if !believed || !turn.tree_at_rest() {
                    state.keep_books(key);
                }
            }
        }
        true
    }

    /// Everything that was written so far has been routed; the reader waits for more. The moment to see
    /// whether a tree is at rest: a start in the same read as the last finish counts.
    pub(crate) fn reader_waits(&self) {
        let mut state = self.lock();
        state.reader_waits = true;
        state.settle();
    }

    /// The runtime is no more: whatever is open ends, told to everybody.
    pub(crate) fn gone(&self, gone: Gone) -> Arc<Gone> {
        let mut state = self.lock();
        let how = if state.closing { GoneHow::Closed } else { gone.how };
        let gone = Arc::new(Gone { how, ..gone });
        if let Some(before) = &state.gone {
            return before.clone();
        }
        state.gone = Some(gone.clone());
        state.settle();
        let State { router, targets, activity, unmatched, .. } = &mut *state;
        let mut interrupted: HashMap<SubscriptionKey, Vec<SessionId>> = HashMap::new();
        for session in activity.open() {
            for key in router.route(Routed::Session { session: session.as_str() }).matched() {
                interrupted.entry(*key).or_default().push(session.clone());
            }
        }
        for (key, target) in targets.iter_mut() {
            match target {
                Target::Queue(queue) => queue.end(SubscriptionEnd::RuntimeGone {
                    gone: gone.clone(),
                    interrupted: interrupted.remove(key).unwrap_or_default(),
                }),
                Target::Turn(turn) => turn.gone(&gone),
            }
        }
        let end = SubscriptionEnd::RuntimeGone { gone: gone.clone(), interrupted: activity.open() };
        unmatched.end(end.clone());
        drop(state);
        for filtered in self.lock_filters().iter() {
            filtered.queue.end(end.clone());
        }
        gone
    }

    // What the writer of the wire says.

    /// A request is about to be written; `false` when its id is pending already (W5).
    pub(crate) fn sending(&self, id: Id, waits_for: Option<&SessionId>) -> bool {
        let mut state = self.lock();
        let rest_of = waits_for.and_then(|session| {
            let mut turns = state.targets.iter_mut();
            turns.find_map(|(key, target)| match target {
                Target::Turn(turn) if turn.root() == session && turn.rest == Rest::Asking => {
                    turn.rest = Rest::Asked;
                    Some(*key)
                }
                _ => None,
            })
        });
        state.pending.insert(id, Sent { rest_of }).is_ok()
    }

    /// `shutdown` is about to be written.
    pub(crate) fn closing(&self) {
        let mut state = self.lock();
        state.closing = true;
        for target in state.targets.values_mut() {
            if let Target::Turn(turn) = target {
                turn.hold_no_more();
            }
        }
        drop(state);
        self.let_go.notify_waiters();
    }

    // What callers say.

    pub(crate) fn subscribe(&self, root: &SessionId) -> (SubscriptionKey, Arc<Queue>) {
        let queue = Arc::new(Queue::new(self.limits.queue_items, self.limits.queue_bytes));
        let mut state = self.lock();
        let key = state.router.subscribe(root);
        state.targets.insert(key, Target::Queue(queue.clone()));
        if let Some(gone) = &state.gone {
            queue.end(SubscriptionEnd::RuntimeGone { gone: gone.clone(), interrupted: Vec::new() });
        }
        (key, queue)
    }

    pub(crate) fn subscribe_filtered(&self, filter: Arc<Filter>) -> (u64, Arc<Queue>) {
        let queue = Arc::new(Queue::new(self.limits.queue_items, self.limits.queue_bytes));
        let serial = self.next_filter.fetch_add(1, Ordering::Relaxed);
        self.lock_filters().push(Filtered { serial, filter, queue: queue.clone() });
        if let Some(gone) = &self.lock().gone {
            queue.end(SubscriptionEnd::RuntimeGone { gone: gone.clone(), interrupted: Vec::new() });
        }
        (serial, queue)
    }

    pub(crate) fn unsubscribe(&self, key: SubscriptionKey) {
        self.take_target(key);
    }

    pub(crate) fn unsubscribe_filtered(&self, serial: u64) {
        let ended = {
            let mut filters = self.lock_filters();
            let at = filters.iter().position(|filtered| filtered.serial == serial);
            at.map(|at| filters.remove(at))
        };
        // Without the lock: what a filter holds may unsubscribe in turn when it is dropped.
        drop(ended);
    }

    pub(crate) fn begin_turn(
        &self,
        root: &SessionId,
        extent: Extent,
        keep: Keep,
        follower: Follower,
    ) -> SubscriptionKey {
        let room = Room {
            turn_bytes: self.limits.turn_bytes,
            queue_items: self.limits.queue_items,
            queue_bytes: self.limits.queue_bytes,
        };
        let mut turn = Collector::new(root.clone(), extent, keep, follower, room);
        let mut state = self.lock();
        if state.closing {
            turn.hold_no_more();
        }
        if let Some(gone) = &state.gone {
            turn.gone(gone);
        }
        let key = state.router.subscribe(root);
        state.targets.insert(key, Target::Turn(Box::new(turn)));
        key
    }

    pub(crate) fn attach(&self, key: SubscriptionKey, message: MessageId) {
        self.with_turn(key, |turn| turn.attach(message));
    }

    /// From now on the turn's rest is told by what the wire says.
    pub(crate) fn keep_books(&self, key: SubscriptionKey) {
        let mut state = self.lock();
        state.keep_books(key);
        if state.reader_waits {
            state.settle();
        }
    }

    pub(crate) fn with_turn<T>(
        &self,
        key: SubscriptionKey,
        look: impl FnOnce(&mut Collector) -> T,
    ) -> Option<T> {
        let mut state = self.lock();
        let Some(Target::Turn(turn)) = state.targets.get_mut(&key) else { return None };
        let held = turn.is_holding();
        let seen = look(turn);
        match (held, turn.is_holding()) {
            (false, true) => self.is_held.store(true, Ordering::Relaxed),
            (true, false) => self.let_go.notify_waiters(),
            _ => {}
        }
        Some(seen)
    }

    pub(crate) fn end_turn(&self, key: SubscriptionKey) -> Option<Collector> {
        match self.take_target(key) {
            Some(Target::Turn(turn)) => Some(*turn),
            _ => None,
        }
    }

    /// The sessions at work that are `root` or below it.
    pub(crate) fn open_within(&self, root: &SessionId) -> Vec<SessionId> {
        let mut state = self.lock();
        let State { router, activity, .. } = &mut *state;
        activity.open_within(root, router.ancestry_mut())
    }

    pub(crate) fn path(&self, session: &str) -> Vec<SessionId> {
        self.lock().router.path(session)
    }

    pub(crate) fn unmatched_queue(&self) -> Arc<Queue> {
        self.lock().unmatched.clone()
    }

    pub(crate) fn is_gone(&self) -> Option<Arc<Gone>> {
        self.lock().gone.clone()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let ancestry::Diagnostics { invalid_starts, repeated_starts, moves } =
            state.router.ancestry().diagnostics();
        Counts {
            invalid_starts,
            repeated_starts,
            moves,
            unmatched_dropped: state.unmatched_dropped,
            sessions: state.router.ancestry().len(),
            subscriptions: state.targets.len() + self.lock_filters().len(),
            open_requests: state.pending.len(),
        }
    }

    fn take_target(&self, key: SubscriptionKey) -> Option<Target> {
        let mut state = self.lock();
        state.router.unsubscribe(key);
        let target = state.targets.remove(&key);
        drop(state);
        if target.as_ref().and_then(Target::holding).is_some() {
            self.let_go.notify_waiters();
        }
        target
    }

    /// Asks every filter, without any lock: it may call the client. One that panics ends its subscription.
    fn offer_to_filters(&self, shared: &mut Shared<'_>) -> bool {
        let filters = {
            let filters = self.lock_filters();
            if filters.is_empty() {
                return false;
            }
            filters.clone()
        };
        let notification = shared.notification();
        let mut matched = false;
        for Filtered { serial, filter, queue } in filters {
            match catch_unwind(AssertUnwindSafe(|| filter(&notification))) {
                Ok(true) => {
                    matched = true;
                    queue.push(notification.clone());
                }
                Ok(false) => {}
                Err(_) => {
                    queue.end(SubscriptionEnd::FilterFailed);
                    self.unsubscribe_filtered(serial);
                }
            }
        }
        matched
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Routing does not panic; if it did, a later notification is still better delivered than not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_filters(&self) -> MutexGuard<'_, Vec<Filtered>> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep_books(&mut self, key: SubscriptionKey) {
        if let Some(Target::Turn(turn)) = self.targets.get_mut(&key)
            && turn.rest != Rest::Bookkeeping
        {
            turn.rest = Rest::Bookkeeping;
            self.keeping_books.push(key);
        }
        self.rest_is_due = true;
    }

    /// Ends the turns whose tree is at rest by what the wire has said.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.rest_is_due) {
            return;
        }
        let Self { keeping_books, targets, activity, router, .. } = self;
        keeping_books.retain(|key| match targets.get_mut(key) {
            Some(Target::Turn(turn)) if !turn.is_ended() => {
                !(activity.is_at_rest(turn.root(), router.ancestry_mut()) && turn.tree_at_rest())
            }
            _ => false,
        });
    }

    fn unmatched(&mut self, notification: Notification) {
        if self.unmatched.has_room_for(&notification) {
            self.unmatched.push(notification);
        } else {
            self.unmatched_dropped += 1;
            if self.unmatched_dropped.is_power_of_two() {
                tracing::warn!(
                    dropped = self.unmatched_dropped,
                    "notifications that match no subscription had no room"
                );
            }
        }
    }
}
