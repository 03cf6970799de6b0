//! SIGINT, SIGTERM, SIGHUP.

use std::{io, process, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::exit;

/// What is said at a sudden end gets this long: perhaps nobody reads it any more.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Agents that have not ended so long after the first signal are killed: none has a longer grace of its own.
const FORCED_AFTER: Duration = Duration::from_millis(8_200);
/// The first signal ends the program within 10 s, whatever keeps it: agents, the store, a reader of stdout.
const ENDED_WITHIN: Duration = Duration::from_millis(9_600);
/// The second ends it within 1 s.
const FORCED_WITHIN: Duration = Duration::from_millis(800);
/// A second hang-up that comes so soon is the same one.
const HANG_UP_TWICE: Duration = Duration::from_millis(500);

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
    /// The first signal is whoever's who waits for it. `force` is called at the second, or when the first has
    /// had its time; what does not end then either is left, after `last_words`. Once there is nothing left to
    /// interrupt, a signal ends the program at once.
    pub(crate) fn watched(
        mut self,
        force: impl FnOnce() + Send + 'static,
        last_words: impl FnOnce() + Send + 'static,
    ) -> Watched {
        let state = Arc::new(watch::Sender::new(State::default()));
        let watched = Watched { state: Arc::clone(&state) };
        tokio::spawn(async move {
            let first = self.next().await;
            let came = Instant::now();
            let interrupts = state.send_if_modified(|state| {
                state.heard = Some(first);
                !state.over
            });
            if interrupts {
                let second = tokio::select! {
                    () = self.again(first, came) => true,
                    () = sleep_until(came + FORCED_AFTER) => false,
                };
                if !state.borrow().over {
                    force();
                    let until = if second { Instant::now() + FORCED_WITHIN } else { came + ENDED_WITHIN };
                    // Whoever insists once more does not wait for that either.
                    tokio::select! {
                        () = sleep_until(until) => {}
                        _ = self.next() => {}
                    }
                } else if !second {
                    sleep_until(came + ENDED_WITHIN).await;
                }
            }
            let (said, done) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                last_words();
                said.send(())
            });
            let _ = done.recv_timeout(LAST_WORDS);
            process::exit(i32::from(first.exit_code()))
        });
        watched
    }

    /// The end has begun, because of this signal or because it was asked for: the next signal insists, and what
    /// has not ended by itself then, or in its time, is forced and soon left.
    pub(crate) fn insisting(mut self, first: Option<Ending>, force: impl FnOnce() + Send + 'static) {
        let came = Instant::now();
        tokio::spawn(async move {
            let again = tokio::select! {
                again = self.next() => Some(again),
                () = sleep_until(came + FORCED_AFTER) => None,
            };
            force();
            let until = again.map_or(came + ENDED_WITHIN, |_| Instant::now() + FORCED_WITHIN);
            tokio::select! {
                () = sleep_until(until) => {}
                _ = self.next() => {}
            }
            let code = first.or(again).map_or(exit::FAILED, Ending::exit_code);
            process::exit(i32::from(code))
        });
    }

    /// Waits for a second signal. That a terminal was closed is told twice, by the system and by the shell.
    async fn again(&mut self, first: Ending, came: Instant) {
        loop {
            let second = self.next().await;
            if second != Ending::HangUp || first != Ending::HangUp || came.elapsed() > HANG_UP_TWICE {
                return;
            }
        }
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
