//! Statements that are sent one behind the other without waiting for answers in between.

use std::{future::poll_fn, pin::Pin, task::Poll};

use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use tokio_postgres::Error;

/// A statement that is sent when it is first polled.
pub(super) type Sent<'a> = BoxFuture<'a, Result<u64, Error>>;

/// Sends them in this order, then waits for all answers; the first error is the one that counts, as the server answers
/// what comes after it with errors too.
pub(super) async fn all(statements: Vec<Sent<'_>>) -> Result<(), Error> {
    let mut waiting: Vec<Pin<Box<MaybeDone<Sent<'_>>>>> =
        statements.into_iter().map(|statement| Box::pin(maybe_done(statement))).collect();
    let mut first = 0;
    poll_fn(|cx| {
        // Answers come in the order of the statements, so what is before `first` has been answered.
        for statement in &mut waiting[first..] {
            let _ = statement.as_mut().poll(cx);
        }
        while let Some(statement) = waiting.get_mut(first) {
            match statement.as_mut().take_output() {
                Some(Ok(_)) => first += 1,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}
