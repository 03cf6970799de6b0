//! SIGINT, SIGTERM, SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks the program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Interrupt,
    Terminate,
    HangUp,
}

impl Ending {
    /// 128 and the signal's number.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::HangUp => 129,
        }
    }
}

/// Hears them from now on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.interrupt.recv() => Ending::Interrupt,
            _ = self.terminate.recv() => Ending::Terminate,
            _ = self.hang_up.recv() => Ending::HangUp,
        }
    }
}
