//! The task that sees a program end: by itself, by the ladder, or because nobody holds it any more.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::guard::GUARD_FAILED;
use crate::os::{KILL_BOUND, Reach, Swept, signal_of};
use crate::stderr::StderrCollector;
use crate::stdin::SharedStdin;
use crate::{Exit, ExitKind, Ladder};

/// What the guard gets to kill everything before we do it ourselves. It is that long only when the guard cannot act:
/// stopped by a SIGSTOP, say.
const GUARD_BOUND: Duration = Duration::from_secs(2);
/// What a program without a guard leaves behind gets this long after SIGTERM, as under one.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// stderr ends with its last writer. Longer than this only a survivor holds it.
const DRAIN_BOUND: Duration = Duration::from_secs(1);

/// Where on the ladder we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Running,
    EndOfInput,
    Terminate,
    /// The guard was told to kill.
    GuardKills,
    /// Everything was sent SIGKILL by us.
    Killed,
}

pub(crate) struct Supervisor {
    /// `None` once its status is known or it was given to the thread that ends it.
    child: Option<Child>,
    pid: u32,
    guarded: bool,
    reach: Arc<Reach>,
    stdin: SharedStdin,
    stderr: StderrCollector,
    drain: Option<JoinHandle<()>>,
    exit: watch::Sender<Option<Exit>>,
}

impl Supervisor {
    pub(crate) fn new(
        child: Child,
        pid: u32,
        guarded: bool,
        reach: Reach,
        stdin: SharedStdin,
        (stderr, drain): (StderrCollector, Option<JoinHandle<()>>),
        exit: watch::Sender<Option<Exit>>,
    ) -> Self {
        Self { child: Some(child), pid, guarded, reach: Arc::new(reach), stdin, stderr, drain, exit }
    }

    pub(crate) async fn run(mut self, requests: watch::Receiver<Option<Ladder>>) {
        let (status, asked) = self.until_end(requests).await;
        self.child = None;
        self.stdin.close();
        let swept = self.clear(status, asked).await;
        if let Some(mut drain) = self.drain.take()
            && tokio::time::timeout(DRAIN_BOUND, &mut drain).await.is_err()
        {
            drain.abort();
        }
        let stderr_tail = Arc::new(self.stderr.tail());
        self.exit.send_replace(Some(Exit { status, stderr_tail, survivors: swept.survivors }));
    }

    /// Until the child has a status, climbing the ladder once it is asked for. The flag says whether it was.
    async fn until_end(&mut self, mut requests: watch::Receiver<Option<Ladder>>) -> (ExitKind, bool) {
        let mut step = Step::Running;
        let mut since = Instant::now();
        let mut held = true;
        loop {
            let ladder = if held { *requests.borrow_and_update() } else { Some(Ladder::at_once()) };
            let bound = ladder.map(|ladder| self.bound(step, ladder));
            let Some(child) = self.child.as_mut() else { return (ExitKind::Unknown, true) };
            tokio::select! {
                biased;
                status = child.wait() => {
                    return (status.map_or(ExitKind::Unknown, kind_of), step != Step::Running);
                }
                // A dropped `Process` is a request to end at once.
                changed = requests.changed(), if held => held = changed.is_ok(),
                () = tokio::time::sleep_until(since + bound.unwrap_or_default()), if bound.is_some() => {
                    step = match self.climb(step, ladder.unwrap_or_default()).await {
                        Some(next) => next,
                        None => return (ExitKind::Unknown, true),
                    };
                    since = Instant::now();
                }
            }
        }
    }

    fn bound(&self, step: Step, ladder: Ladder) -> Duration {
        match step {
            Step::Running => Duration::ZERO,
            Step::EndOfInput => ladder.end_of_input,
            Step::Terminate => ladder.terminate,
            Step::GuardKills => GUARD_BOUND,
            Step::Killed => KILL_BOUND,
        }
    }

    /// The next step after one whose time is over; `None` when there is none.
    async fn climb(&mut self, from: Step, ladder: Ladder) -> Option<Step> {
        match from {
            Step::Running => {
                let was_open = self.stdin.is_open();
                self.stdin.close();
                // Without an end of input to see there is nothing to wait for.
                if was_open { Some(Step::EndOfInput) } else { self.ask(ladder).await }
            }
            Step::EndOfInput => self.ask(ladder).await,
            Step::Terminate if self.guarded => {
                self.reach.hurry_guard();
                Some(Step::GuardKills)
            }
            Step::Terminate | Step::GuardKills => {
                self.sweep(Some(self.pid), Duration::ZERO).await;
                Some(Step::Killed)
            }
            Step::Killed => None,
        }
    }

    async fn ask(&self, ladder: Ladder) -> Option<Step> {
        if !ladder.terminate.is_zero() {
            let reach = Arc::clone(&self.reach);
            let _ = tokio::task::spawn_blocking(move || reach.ask()).await;
        }
        Some(Step::Terminate)
    }

    /// After the child's end: whatever is left of it. A guard that ended by itself has left nothing; that is its one
    /// purpose, and the kernel told it so.
    async fn clear(&self, status: ExitKind, asked: bool) -> Swept {
        let guard_did_it = matches!(status, ExitKind::Code(code) if code != i32::from(GUARD_FAILED));
        if self.guarded && guard_did_it {
            return Swept::default();
        }
        let grace = if asked || self.guarded { Duration::ZERO } else { LEFTOVER_GRACE };
        self.sweep(None, grace).await
    }

    async fn sweep(&self, held: Option<u32>, grace: Duration) -> Swept {
        let reach = Arc::clone(&self.reach);
        let sweep = move || {
            if !grace.is_zero() {
                reach.ask();
                reach.wait_until_gone(grace);
            }
            reach.end(held).unwrap_or_default()
        };
        tokio::task::spawn_blocking(sweep).await.unwrap_or_default()
    }
}

fn kind_of(status: ExitStatus) -> ExitKind {
    match (status.code(), signal_of(status)) {
        (Some(code), _) => ExitKind::Code(code),
        (None, Some(signal)) => ExitKind::Signal(signal),
        (None, None) => ExitKind::Unknown,
    }
}

/// The runtime went away under the task: the program is ended all the same, by a thread, as a `drop` must not block.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stdin.close();
        let Some(mut child) = self.child.take() else { return };
        self.exit.send_if_modified(|exit| {
            let missing = exit.is_none();
            if missing {
                *exit = Some(Exit::unknown(self.stderr.tail()));
            }
            missing
        });
        let (reach, pid, guarded) = (Arc::clone(&self.reach), self.pid, self.guarded);
        if guarded {
            reach.hurry_guard();
        }
        let finish = move || {
            let deadline = std::time::Instant::now() + GUARD_BOUND;
            let mut over = !guarded;
            while !over && std::time::Instant::now() < deadline {
                over = matches!(child.try_wait(), Ok(Some(_)));
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = reach.end((!over || !guarded).then_some(pid));
            let _ = child.try_wait();
        };
        // Without a thread to be had the guard, told above, is on its own.
        let _ = std::thread::Builder::new().name("offspring-reaper".to_owned()).spawn(finish);
    }
}
