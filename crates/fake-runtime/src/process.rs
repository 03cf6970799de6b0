//! The process that a play is.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use offspring_fake_runtime::{Signal, Stage};
use rustix::process::{Signal as SystemSignal, getpid, kill_process};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

/// What a script does to the process it runs in.
pub(crate) struct OwnProcess;

impl Stage for OwnProcess {
    fn stderr(&mut self, bytes: &[u8]) {
        // Waits until somebody reads, as a runtime does; a stderr that nobody has any more takes nothing.
        let _ = io::stderr().write_all(bytes);
    }

    fn leave_behind(&mut self, how_long: Duration) -> io::Result<()> {
        let mut sleep = Command::new("sleep");
        sleep.arg(how_long.as_secs_f64().to_string()).stdin(Stdio::null());
        sleep.spawn().map(drop)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn variables(&self) -> Vec<String> {
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }
}

/// Listens for SIGTERM, which thereby ends nothing by itself.
pub(crate) fn terminated() -> io::Result<Listener> {
    signal(SignalKind::terminate())
}

/// Dies by a signal. The code is for a system that does not let it.
pub(crate) fn die(how: Signal) -> u8 {
    match how {
        Signal::Abort => std::process::abort(),
        Signal::Kill => {
            let _ = kill_process(getpid(), SystemSignal::KILL);
            1
        }
    }
}

/// Stdin; a pipe is read without a thread, so that dropping it closes it.
pub(crate) enum Input {
    Pipe(pipe::Receiver),
    Other(Stdin),
}

impl Input {
    pub(crate) fn new() -> Self {
        let pipe = rustix::stdio::stdin().try_clone_to_owned().map(File::from);
        match pipe.and_then(pipe::Receiver::from_file) {
            Ok(pipe) => Self::Pipe(pipe),
            Err(_) => Self::Other(tokio::io::stdin()),
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Ok(null) = File::open("/dev/null") {
            // What stays open is closed at the end at the latest.
            let _ = rustix::stdio::dup2_stdin(null.as_fd());
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buffer),
            Self::Other(stdin) => Pin::new(stdin).poll_read(cx, buffer),
        }
    }
}

/// Stdout; shutting it down puts nothing in its place, so that the client reads its end.
pub(crate) struct Output(Stdout);

impl Output {
    pub(crate) fn new() -> Self {
        Self(tokio::io::stdout())
    }
}

impl AsyncWrite for Output {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                let null = File::options().write(true).open("/dev/null")?;
                Poll::Ready(rustix::stdio::dup2_stdout(null.as_fd()).map_err(io::Error::from))
            }
            other => other,
        }
    }
}
