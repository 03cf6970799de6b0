//! One turn of a session, driven: the prompt, the bounds, the end.

use std::{fmt, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use offspring_protocol::{
    MessageId, SessionId,
    dsh::{SESSION_WAIT, SessionParams},
};
use offspring_tree::{SubscriptionKey, turn::Extent};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use crate::{
    client::HarnessClient,
    collector::{Awaits, Collector, Follower, Keep, Rest},
    error::{ClientError, TurnError},
    hub::Hub,
    notification::Notification,
    result::TurnResult,
};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Looks at the notifications of a turn as they come.
type Look = dyn FnMut(&Notification) + Send;

/// A turn that is about to begin: what it keeps, who looks on, how far it goes.
#[must_use = "a turn does nothing until it is run or streamed"]
pub struct Turn {
    client: HarnessClient,
    root: SessionId,
    content_blocks: Vec<Box<RawValue>>,
    keep: Keep,
    holds: Option<Follower>,
    on_notification: Option<Box<Look>>,
}

impl Turn {
    pub(crate) fn new(client: HarnessClient, root: SessionId, content_blocks: Vec<Box<RawValue>>) -> Self {
        Self { client, root, content_blocks, keep: Keep::default(), holds: None, on_notification: None }
    }

    /// What the result keeps (default: everything).
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Called with each notification of the turn, in wire order, on the task that runs the turn. A slow one delays
    /// nobody else; with [`Keep::Nothing`] it must keep up with the queue limits, or the turn ends as
    /// [`Lagged`](ClientError::Lagged) (T11), or holds up the runtime: [`hold_runtime`](Self::hold_runtime).
    pub fn on_notification(mut self, look: impl FnMut(&Notification) + Send + 'static) -> Self {
        self.on_notification = Some(Box::new(look));
        self
    }

    /// Waits for whoever reads this turn instead of ending it as [`Lagged`](ClientError::Lagged), so that with
    /// [`Keep::Nothing`] a slow reader loses nothing and memory stays flat: while
    /// [`queue_items`](crate::Limits::queue_items) or [`queue_bytes`](crate::Limits::queue_bytes) wait to be read,
    /// no line is read from the runtime, until half of them have been. What came before the answer to the prompt
    /// does not count.
    ///
    /// Everybody else on this client waits along: answers to requests, whose bounds go on, and all other
    /// subscriptions. It is for a runtime that serves this turn alone; without it no reader holds up another (T11).
    /// Closing the client ends the waiting, and `turn_within` does not stand still meanwhile.
    pub fn hold_runtime(mut self) -> Self {
        self.holds = Some(Follower::WaitedFor(None));
        self
    }

    /// As [`hold_runtime`](Self::hold_runtime), at most for so long at a time: after that the turn is one that has to
    /// keep up, and ends as [`Lagged`](ClientError::Lagged) where it does not. For a runtime that serves others too.
    pub fn hold_runtime_at_most(mut self, bound: Duration) -> Self {
        self.holds = Some(Follower::WaitedFor(Some(bound)));
        self
    }

    /// Prompts and waits for the root's next idle (T13). Children may still be at work.
    ///
    /// # Errors
    /// [`TurnError`] with what there is.
    pub async fn run(self) -> Result<TurnResult, TurnError> {
        self.drive(Extent::Root).await
    }

    /// Prompts and waits until the root is idle and nothing below it is at work: by `session/wait` where the
    /// runtime knows it, else by what it says of starts, finishes and statuses. No silence decides it.
    ///
    /// # Errors
    /// [`TurnError`] with what there is; [`TreeOpen`](ClientError::TreeOpen) names what never finished.
    pub async fn run_tree(self) -> Result<TurnResult, TurnError> {
        self.drive(Extent::Tree).await
    }

    /// Prompts and gives the notifications of the turn as they come, to the root's next idle.
    ///
    /// # Errors
    /// [`TurnError`] when the prompt is refused.
    pub async fn stream(self) -> Result<TurnStream, TurnError> {
        self.begin(Extent::Root, true).await
    }

    /// As [`stream`](Self::stream), until the whole tree is at rest.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub async fn stream_tree(self) -> Result<TurnStream, TurnError> {
        self.begin(Extent::Tree, true).await
    }

    async fn drive(mut self, extent: Extent) -> Result<TurnResult, TurnError> {
        let mut look = self.on_notification.take();
        let mut stream = self.begin(extent, look.is_some()).await?;
        while let Some(next) = stream.next().await {
            match (next, &mut look) {
                (Ok(notification), Some(look)) => look(&notification),
                (Ok(_), None) => {}
                (Err(error), _) => return Err(error),
            }
        }
        stream.finish()
    }

    async fn begin(self, extent: Extent, followed: bool) -> Result<TurnStream, TurnError> {
        let Self { client, root, content_blocks, keep, holds, .. } = self;
        let follower = if followed { holds.unwrap_or(Follower::LeftBehind) } else { Follower::Nobody };
        let hub = client.hub().clone();
        // T13: subscribed before the prompt is sent, because the receipt comes before the answer.
        let key = hub.begin_turn(&root, extent, keep, follower);
        let now = Instant::now();
        let mut stream = TurnStream {
            guard: Some(Guard { hub, key }),
            root: root.clone(),
            client: client.clone(),
            extent,
            cursor: 0,
            message: None,
            began: now,
            answered: now,
            silent_since: now,
            rest: None,
            told: false,
        };
        match client.prompt(&root, content_blocks).await {
            Ok(message) => stream.attach(message),
            Err(reason) => return Err(stream.fail(reason)),
        }
        Ok(stream)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("root", &self.root).field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// A turn under way: its notifications as they come, from the receipt on. Dropping it unsubscribes; the runtime
/// goes on.
#[must_use = "dropping a stream ends its subscription"]
pub struct TurnStream {
    guard: Option<Guard>,
    client: HarnessClient,
    root: SessionId,
    extent: Extent,
    cursor: usize,
    message: Option<MessageId>,
    began: Instant,
    answered: Instant,
    /// Since when nothing was heard of the tree.
    silent_since: Instant,
    /// `session/wait`, while it is not answered.
    rest: Option<futures_util::future::BoxFuture<'static, Result<Box<RawValue>, ClientError>>>,
    told: bool,
}

/// Ends the subscription of a turn whatever becomes of it.
struct Guard {
    hub: Arc<Hub>,
    key: SubscriptionKey,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.key);
    }
}

/// What a turn wakes up for.
enum Step {
    Notification(Notification),
    Ended,
    Moved,
}

impl TurnStream {
    /// The message whose receipt began the turn.
    #[must_use]
    pub fn message_id(&self) -> Option<&MessageId> {
        self.message.as_ref()
    }

    /// The next notification of the turn; `None` when it has ended.
    ///
    /// # Errors
    /// [`TurnError`], once: then the turn is over.
    pub async fn next(&mut self) -> Option<Result<Notification, TurnError>> {
        if self.told {
            return None;
        }
        match self.step().await {
            Ok(Some(notification)) => Some(Ok(notification)),
            Ok(None) => {
                let reason = self.look(|turn| turn.failure())?;
                Some(Err(self.fail(reason)))
            }
            Err(reason) => Some(Err(self.fail(reason))),
        }
    }

    /// The result, after [`next`](Self::next) gave `None`; before that, the turn as it stands.
    ///
    /// # Errors
    /// [`TurnError`] when the turn did not end as it should, or an error was given before.
    pub fn finish(mut self) -> Result<TurnResult, TurnError> {
        match self.look(|turn| turn.failure()) {
            Some(reason) => Err(self.fail(reason)),
            None if self.told => {
                Err(self
                    .fail(ClientError::Closed { method: "a turn whose error was given before".to_owned() }))
            }
            None => Ok(self.take()),
        }
    }

    fn attach(&mut self, message: MessageId) {
        self.answered = Instant::now();
        self.silent_since = self.answered;
        if let Some(Guard { hub, key }) = &self.guard {
            if self.extent == Extent::Tree {
                // Marked before it is sent, so that the request finds its turn; `session/wait` comes after the
                // receipt, because the answer to the prompt does.
                hub.with_turn(*key, |turn| turn.rest = Rest::Asking);
            }
            hub.attach(*key, message.clone());
        }
        self.message = Some(message);
        if self.extent == Extent::Tree {
            let (client, params) = (self.client.clone(), SessionParams { session_id: self.root.clone() });
            self.rest = Some(Box::pin(async move { client.call_unbounded(SESSION_WAIT, &params).await }));
        }
    }

    async fn step(&mut self) -> Result<Option<Notification>, ClientError> {
        loop {
            let awaits = self.look(|turn| turn.awaits());
            let Some(bound) = self.bound(awaits) else {
                return Ok(self.next_left());
            };
            let moved = {
                let Self { guard, cursor, rest, .. } = &mut *self;
                let step = poll_fn(|context| {
                    let Some(Guard { hub, key }) = guard else { return Poll::Ready(Step::Ended) };
                    hub.with_turn(*key, |turn| {
                        if let Some(next) = turn.follow_if_wanted(cursor) {
                            return Poll::Ready(Step::Notification(next));
                        }
                        if turn.is_ended() {
                            return Poll::Ready(Step::Ended);
                        }
                        if turn.awaits() != awaits {
                            return Poll::Ready(Step::Moved);
                        }
                        turn.wake_with(context.waker());
                        Poll::Pending
                    })
                    .unwrap_or(Poll::Ready(Step::Ended))
                });
                let answered = async {
                    match rest.as_mut() {
                        Some(rest) => rest.await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    step = step => Ok(step),
                    answer = answered => {
                        *rest = None;
                        Err(Some(answer))
                    }
                    () = sleep_until(bound) => Err(None),
                }
            };
            match moved {
                Ok(Step::Notification(notification)) => return Ok(Some(notification)),
                Ok(Step::Ended) => return Ok(self.next_left()),
                Ok(Step::Moved) => self.silent_since = Instant::now(),
                Err(Some(answer)) => self.rest_answered(answer)?,
                Err(None) => self.overdue(awaits)?,
            }
        }
    }

    /// What a follower has not been given yet of a turn that ended.
    fn next_left(&mut self) -> Option<Notification> {
        let Some(Guard { hub, key }) = &self.guard else { return None };
        hub.with_turn(*key, |turn| turn.follow_if_wanted(&mut self.cursor)).flatten()
    }

    /// Until when what is awaited may take; `None` when nothing is.
    fn bound(&self, awaits: Awaits) -> Option<Instant> {
        let limits = self.client.limits();
        // A bound beyond what a clock can count is none; a year is as good.
        let after = |begin: Instant, bound| begin.checked_add(bound).unwrap_or(begin + A_YEAR);
        match awaits {
            Awaits::Receipt => Some(after(self.answered, limits.receipt_within)),
            Awaits::RootIdle => Some(after(self.began, limits.turn_within)),
            Awaits::TreeRest => Some(after(self.silent_since, limits.tree_silence)),
            Awaits::Nothing => None,
        }
    }

    /// The bound is reached: an error, unless the tree was heard of meanwhile.
    fn overdue(&mut self, awaits: Awaits) -> Result<(), ClientError> {
        let limits = *self.client.limits();
        let state = Box::new(self.client.state());
        match awaits {
            Awaits::Receipt => Err(ClientError::MissingReceipt { after: limits.receipt_within, state }),
            Awaits::RootIdle => Err(ClientError::Timeout {
                method: "the root's idle".to_owned(),
                after: limits.turn_within,
                state,
            }),
            Awaits::TreeRest => {
                // The bound is one of silence, counted from what was heard last.
                if let Some(heard) =
                    self.look(|turn| turn.heard_at()).filter(|heard| *heard > self.silent_since)
                {
                    self.silent_since = heard;
                    return Ok(());
                }
                let open = self.client.hub().open_within(&self.root);
                Err(ClientError::TreeOpen { after: limits.tree_silence, open, state })
            }
            Awaits::Nothing => Ok(()),
        }
    }

    /// The runtime answered `session/wait`. Where it ended the turn the hub has done so, in wire order.
    fn rest_answered(&mut self, answer: Result<Box<RawValue>, ClientError>) -> Result<(), ClientError> {
        let Some(Guard { hub, key }) = &self.guard else { return Ok(()) };
        match answer {
            // It does not know the method, or does not know of the session what we know: keep our own books.
            Ok(_) | Err(ClientError::Refused { .. } | ClientError::RuntimeGone(_)) => {
                hub.keep_books(*key);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn look<T: Default>(&self, look: impl FnOnce(&mut Collector) -> T) -> T {
        let Some(Guard { hub, key }) = &self.guard else { return T::default() };
        hub.with_turn(*key, look).unwrap_or_default()
    }

    fn fail(&mut self, reason: ClientError) -> TurnError {
        self.told = true;
        TurnError { reason, partial: Box::new(self.take()) }
    }

    fn take(&mut self) -> TurnResult {
        let turn = self.guard.take().and_then(|guard| guard.hub.end_turn(guard.key));
        turn.map_or_else(|| TurnResult::empty(self.root.clone()), Collector::into_result)
    }
}

impl fmt::Debug for TurnStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnStream")
            .field("root", &self.root)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
