//! The writing end of a program's stdin, which a stop can close under its writer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;

/// The writing end of a program's stdin. Dropping it is end of file for the program.
///
/// Stopping the process closes it too (W7): a write that is waiting then, and every later one, fails with
/// [`io::ErrorKind::BrokenPipe`], as it does when the program has closed its end.
#[derive(Debug)]
pub struct StdinPipe {
    shared: SharedStdin,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SharedStdin(Arc<Mutex<Slot>>);

#[derive(Debug, Default)]
struct Slot {
    pipe: Option<ChildStdin>,
    writer: Option<Waker>,
}

impl SharedStdin {
    pub(crate) fn new(pipe: Option<ChildStdin>) -> Self {
        Self(Arc::new(Mutex::new(Slot { pipe, writer: None })))
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.slot().pipe.is_some()
    }

    /// Ends the program's input; a writer that waits wakes up and fails.
    pub(crate) fn close(&self) {
        let (pipe, writer) = {
            let mut slot = self.slot();
            (slot.pipe.take(), slot.writer.take())
        };
        drop(pipe);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    pub(crate) fn writer(&self) -> StdinPipe {
        StdinPipe { shared: self.clone() }
    }
}

impl StdinPipe {
    fn poll_pipe<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut slot = self.shared.slot();
        let Some(pipe) = slot.pipe.as_mut() else {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "stdin was closed")));
        };
        let polled = poll(Pin::new(pipe), cx);
        slot.writer = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

impl AsyncWrite for StdinPipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_pipe(cx, |pipe, cx| pipe.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_pipe(cx, |pipe, cx| pipe.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        self.shared.close();
    }
}
