//! Notifications as they come, for one subscriber (T10, T11).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use offspring_tree::SubscriptionKey;

use crate::{
    hub::Hub,
    notification::Notification,
    queue::{Queue, SubscriptionEnd},
};

/// A subscription: dropping it unsubscribes. Also a [`Stream`], which ends after its
/// [`SubscriptionEnd`].
#[derive(Debug)]
#[must_use = "dropping a subscription ends it"]
pub struct Subscription {
    hub: Arc<Hub>,
    queue: Arc<Queue>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tree(SubscriptionKey),
    Filtered(u64),
}

impl Subscription {
    pub(crate) fn of_tree(hub: Arc<Hub>, key: SubscriptionKey, queue: Arc<Queue>) -> Self {
        Self { hub, queue, kind: Kind::Tree(key) }
    }

    pub(crate) fn filtered(hub: Arc<Hub>, serial: u64, queue: Arc<Queue>) -> Self {
        Self { hub, queue, kind: Kind::Filtered(serial) }
    }

    /// The next notification, in wire order (T9). `None` after the end was told.
    ///
    /// Waits as long as the runtime is silent; it ends with the runtime.
    ///
    /// # Errors
    /// [`SubscriptionEnd`], once: after it there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Notification, SubscriptionEnd>> {
        std::future::poll_fn(|context| self.queue.poll_next(context)).await
    }

    /// What is there already, without waiting; `None` when nothing is.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Option<Result<Notification, SubscriptionEnd>> {
        self.queue.try_next()
    }
}

impl Stream for Subscription {
    type Item = Result<Notification, SubscriptionEnd>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_next(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        match self.kind {
            Kind::Tree(key) => self.hub.unsubscribe(key),
            Kind::Filtered(serial) => self.hub.unsubscribe_filtered(serial),
        }
    }
}
