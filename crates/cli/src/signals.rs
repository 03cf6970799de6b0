//! SIGINT, SIGTERM, SIGHUP.

use std::{io, process, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::exit;

/// What is said at a sudden end gets this long: perhaps nobody reads it any more.
const LAST_WORDS: Duration = Duration::from_millis(200);

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
            Self::Interrupt => exit::INTERRUPTED,
            Self::Terminate => exit::TERMINATED,
            Self::HangUp => exit::HUNG_UP,
        }
    }
}

/// Hears them from now on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Unless it was ignored from the start, as under `nohup`.
    hang_up: Option<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: (!hang_up_is_ignored()).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    pub(crate) async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.interrupt.recv() => Ending::Interrupt,
            _ = self.terminate.recv() => Ending::Terminate,
            () = heard(self.hang_up.as_mut()) => Ending::HangUp,
        }
    }
}

/// Has a write beyond the largest size of a file (`ulimit -f`) fail instead of ending the program: the store
/// says then that it cannot grow. Programs we start are not concerned: a handler does not outlive an exec.
pub(crate) fn survive_limit_of_file_size() {
    let number = rustix::process::Signal::XFSZ.as_raw();
    if let Err(error) = signal(SignalKind::from_raw(number)) {
        tracing::warn!(%error, "a write beyond the largest size of a file will end the program");
    }
}

/// Signals that are heard whatever the program itself is waiting for: a reader of stdout that has stopped
/// reading must not make it deaf.
pub(crate) struct Watched {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The first one.
    heard: Option<Ending>,
    /// What they could interrupt has ended.
    over: bool,
}

impl Signals {
    /// The first signal is whoever's who waits for it. The second ends the program at once, and so does the
    /// first once there is nothing left to interrupt. `last_words` is told whether something was.
    pub(crate) fn watched(mut self, last_words: impl FnOnce(bool) + Send + 'static) -> Watched {
        let state = Arc::new(watch::Sender::new(State::default()));
        let watched = Watched { state: Arc::clone(&state) };
        tokio::spawn(async move {
            let mut ending = self.next().await;
            let first = state.send_if_modified(|state| {
                state.heard = Some(ending);
                !state.over
            });
            if first {
                ending = self.next().await;
            }
            let (said, done) = std::sync::mpsc::channel();
            let interrupts = !state.borrow().over;
            std::thread::spawn(move || {
                last_words(interrupts);
                said.send(())
            });
            let _ = done.recv_timeout(LAST_WORDS);
            process::exit(i32::from(ending.exit_code()))
        });
        watched
    }
}

impl Watched {
    /// Waits for the first signal.
    pub(crate) async fn first(&self) -> Ending {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| state.heard.is_some()).await.map(|state| state.heard) {
            Ok(Some(ending)) => ending,
            _ => std::future::pending().await,
        }
    }

    /// Nothing is left to interrupt: from now on every signal ends the program. Gives the one that came
    /// before.
    pub(crate) fn over(&self) -> Option<Ending> {
        self.state.send_modify(|state| state.over = true);
        self.state.borrow().heard
    }
}

async fn heard(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether whoever started us has SIGHUP ignored. Where the system does not tell, it is heard.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Signal n is bit n - 1, and SIGHUP is 1.
    ignored & 1 == 1
}
