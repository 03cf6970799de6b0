//! The queue of one subscription: bounded, never silent about what it lost (T11).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use offspring_protocol::SessionId;
use tokio::sync::Notify;

use crate::{error::Gone, notification::Notification};

/// Why a subscription gives no more notifications. Said once, after everything that was queued.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionEnd {
    /// Its reader was too slow (T11). Subscribe again to go on; what was missed is gone.
    #[error("failed to keep up with the runtime: {missed} notifications were not queued")]
    Lagged {
        /// How many were not queued, up to the moment this is read.
        missed: u64,
    },
    /// The runtime is gone, and with it what was at work.
    #[error("failed to read more notifications: {gone}")]
    RuntimeGone {
        /// How it went.
        gone: Arc<Gone>,
        /// The sessions this subscription covers whose runs were open: each is interrupted.
        interrupted: Vec<SessionId>,
    },
    /// The filter of this subscription panicked; nobody else is concerned.
    #[error("failed to filter notifications: the filter panicked")]
    FilterFailed,
}

/// Shared by the reader of the wire and one subscriber.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// For those who wait beside the one reader that has its waker in `state`.
    changed: Notify,
    items: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    queued: VecDeque<Notification>,
    bytes: usize,
    missed: u64,
    end: Option<SubscriptionEnd>,
    told: bool,
    waker: Option<Waker>,
}

impl Queue {
    pub(crate) fn new(items: usize, bytes: usize) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), items, bytes }
    }

    /// Queues one more, or counts it as missed: once full, always full.
    pub(crate) fn push(&self, notification: Notification) {
        let mut state = self.lock();
        let cost = notification.cost_bytes();
        // One that alone is too large is taken when there is nothing else: a limit must not stop a stream for good.
        let fits = state.queued.len() < self.items && state.bytes + cost <= self.bytes.max(cost);
        if state.missed > 0 || !fits {
            state.missed += 1;
            return;
        }
        state.bytes += cost;
        state.queued.push_back(notification);
        wake(&mut state);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether [`push`](Self::push) would take this one.
    pub(crate) fn has_room_for(&self, notification: &Notification) -> bool {
        let state = self.lock();
        let cost = notification.cost_bytes();
        state.queued.len() < self.items && state.bytes + cost <= self.bytes.max(cost)
    }

    pub(crate) fn end(&self, end: SubscriptionEnd) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        wake(&mut state);
        drop(state);
        self.changed.notify_waiters();
    }

    /// What comes next, `None` after the end was told.
    pub(crate) fn poll_next(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Notification, SubscriptionEnd>>> {
        let mut state = self.lock();
        if let Some(next) = take(&mut state) {
            return Poll::Ready(next);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// As [`poll_next`](Self::poll_next), for any number of callers at once: each notification goes to one of them,
    /// and all of them see the end.
    pub(crate) async fn next_of_many(&self) -> Option<Result<Notification, SubscriptionEnd>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before looking, so that nothing that comes between is missed.
            changed.as_mut().enable();
            let taken = take(&mut self.lock());
            match taken {
                Some(next) => return next,
                None => changed.await,
            }
        }
    }

    /// What is there without waiting: `None` when nothing is queued now.
    pub(crate) fn try_next(&self) -> Option<Result<Notification, SubscriptionEnd>> {
        take(&mut self.lock()).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` when one has to wait, `Some(None)` after the end.
fn take(state: &mut State) -> Option<Option<Result<Notification, SubscriptionEnd>>> {
    if let Some(notification) = state.queued.pop_front() {
        state.bytes -= notification.cost_bytes();
        return Some(Some(Ok(notification)));
    }
    if state.told {
        return Some(None);
    }
    let end = match (&state.end, state.missed) {
        (_, missed) if missed > 0 => SubscriptionEnd::Lagged { missed },
        (Some(end), _) => end.clone(),
        (None, _) => return None,
    };
    state.told = true;
    Some(Some(Err(end)))
}

fn wake(state: &mut State) {
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::tests::notification;

    fn numbered(number: u64) -> Notification {
        notification(number, r#"{"method":"m"}"#)
    }

    #[test]
    fn t11_a_full_queue_gives_what_it_holds_then_says_how_much_it_missed_and_ends() {
        let queue = Queue::new(2, 1 << 20);
        for number in 1..=5 {
            queue.push(numbered(number));
        }
        assert_eq!(queue.try_next().unwrap().unwrap().number(), 1);
        // There is room again, but what comes now would follow a gap.
        queue.push(numbered(6));
        assert_eq!(queue.try_next().unwrap().unwrap().number(), 2);
        assert!(matches!(queue.try_next(), Some(Err(SubscriptionEnd::Lagged { missed: 4 }))));
        queue.push(numbered(7));
        assert!(queue.try_next().is_none());
    }

    #[test]
    fn t11_the_bytes_of_a_queue_are_bounded_and_one_large_line_still_passes() {
        let queue = Queue::new(100, 10);
        queue.push(numbered(1));
        queue.push(numbered(2));
        assert_eq!(queue.try_next().unwrap().unwrap().number(), 1);
        assert!(matches!(queue.try_next(), Some(Err(SubscriptionEnd::Lagged { missed: 1 }))));
    }

    #[test]
    fn an_end_is_told_once_after_what_was_queued() {
        let queue = Queue::new(2, 1 << 20);
        queue.push(numbered(1));
        queue.end(SubscriptionEnd::FilterFailed);
        queue.end(SubscriptionEnd::Lagged { missed: 1 });
        assert!(queue.try_next().unwrap().is_ok());
        assert!(matches!(queue.try_next(), Some(Err(SubscriptionEnd::FilterFailed))));
        assert!(queue.try_next().is_none());
    }
}
