//! One poll loop, no runtime: a guard has to be there within a millisecond or two.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, WaitOptions, getpid, getppid, pidfd_open, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::GUARD_FAILED;
use crate::os::{self, KILL_BOUND, procfs};
use crate::{MARKER_VARIABLE, RunMarker};

/// What a program leaves behind has no claim on a long goodbye: nobody reads its output any more.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// After the death of the host everything is to be gone soon.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// How the program ended.
#[derive(Debug, Clone, Copy)]
enum End {
    Code(u8),
    Signal(i32),
}

/// Why there is nothing to guard, with the exit code that says so.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn new(doing: &str, error: impl std::fmt::Display) -> Self {
        Self { code: GUARD_FAILED, text: format!("failed to {doing}: {error}") }
    }
}

struct Order {
    parent: Pid,
    grace: Duration,
    program: OsString,
    args: Vec<OsString>,
    marker: RunMarker,
}

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let ended = parse(args.into_iter()).and_then(|order| {
        match Guard::start(&order)? {
            Some(guard) => guard.watch(order.grace),
            // The host died first: nothing was started, nobody reads the code.
            None => Ok(End::Code(GUARD_FAILED)),
        }
    });
    match ended {
        Ok(End::Code(code)) => code,
        Ok(End::Signal(signal)) => die_of(signal),
        Err(Failure { code, text }) => {
            say(&text);
            code
        }
    }
}

fn say(text: &str) {
    // One write, so that the line stays whole beside what others write; if nobody reads, nobody reads.
    let _ = io::stderr().write_all(format!("offspring guard: {text}\n").as_bytes());
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Order, Failure> {
    let mut number = |name: &str| {
        let text = args.next().unwrap_or_default();
        let number = text.to_str().and_then(|text| text.parse::<u32>().ok());
        number.ok_or_else(|| Failure::new("start", format!("{name} is no number: {text:?}")))
    };
    let parent = number("the pid of the host")?;
    let grace = number("the grace in milliseconds")?;
    let parent = Pid::from_raw(parent.cast_signed()).filter(|pid| pid.as_raw_pid() > 0);
    let parent = parent.ok_or_else(|| Failure::new("start", "the pid of the host is no pid"))?;
    let program = args.next().ok_or_else(|| Failure::new("start", "no program is named"))?;
    let marker = std::env::var(MARKER_VARIABLE).unwrap_or_default();
    let marker = marker.parse().map_err(|error| Failure::new(&format!("read {MARKER_VARIABLE}"), error))?;
    let grace = Duration::from_millis(grace.into());
    Ok(Order { parent, grace, program, args: args.collect(), marker })
}

struct Guard {
    host: OwnedFd,
    host_died: bool,
    /// A byte for each signal that arrived.
    wake: UnixStream,
    ask: Arc<AtomicBool>,
    kill: Arc<AtomicBool>,
    program: i32,
    end: Option<End>,
}

impl Guard {
    /// Starts the program; `None` when the host is dead already.
    fn start(order: &Order) -> Result<Option<Self>, Failure> {
        // First the signals: from here on none ends the guard and leaves the program.
        let (ask, kill) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let wake = listen(&ask, &kill).map_err(|error| Failure::new("listen to signals", error))?;

        let host = match pidfd_open(order.parent, PidfdFlags::empty()) {
            Ok(host) => host,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(Failure::new("watch the host (Linux 5.3 or later is needed)", error)),
        };
        // The pidfd could be of a stranger who got the pid of a host that died before it was opened. While the host
        // lives it is our parent.
        if getppid() != Some(order.parent) {
            return Ok(None);
        }
        // Refused when somebody made us a group leader; then we already are in a group of our own.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(|error| Failure::new("become a subreaper", error))?;
        os::mark_self(order.marker).map_err(|error| Failure::new("mark the run", error))?;

        let program = Command::new(&order.program).args(&order.args).process_group(0).spawn();
        let program = program.map_err(|error| {
            let (code, hint) = match error.kind() {
                io::ErrorKind::NotFound => (127, " (or the interpreter in its #! line)"),
                _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                    (126, " (a script needs a #! line)")
                }
                _ => (126, ""),
            };
            Failure { code, text: format!("failed to start {}: {error}{hint}", order.program.display()) }
        })?;
        let program = program.id().cast_signed();
        let mut guard = Self { host, host_died: false, wake, ask, kill, program, end: None };
        if let Err(error) = let_go_of_pipes() {
            guard.finish(Duration::ZERO)?;
            return Err(Failure::new("open /dev/null", error));
        }
        Ok(Some(guard))
    }

    fn watch(mut self, grace: Duration) -> Result<End, Failure> {
        loop {
            let alone = self.reap()?;
            if let (true, Some(end)) = (alone, self.end) {
                return Ok(end);
            }
            let grace = if self.kill.load(Ordering::Relaxed) {
                Duration::ZERO
            } else if self.end.is_some() {
                LEFTOVER_GRACE
            } else if self.host_died {
                grace.min(ORPHAN_GRACE)
            } else if self.ask.load(Ordering::Relaxed) {
                grace
            } else {
                self.wait(None)?;
                continue;
            };
            return self.finish(grace);
        }
    }

    /// Ends all descendants, politely first if there is a grace.
    fn finish(&mut self, grace: Duration) -> Result<End, Failure> {
        let us = [getpid().as_raw_pid()];
        if !grace.is_zero() {
            if let Ok(entries) = procfs::snapshot() {
                procfs::ask(&procfs::descendants(&entries, &us));
            }
            let mut deadline = Instant::now() + grace;
            let (mut ended, mut host_died) = (self.end.is_some(), self.host_died);
            while !self.reap()? && !self.kill.load(Ordering::Relaxed) && Instant::now() < deadline {
                // What happens meanwhile only ever shortens the wait.
                if !ended && self.end.is_some() {
                    ended = true;
                    deadline = deadline.min(Instant::now() + LEFTOVER_GRACE);
                }
                if !host_died && self.host_died {
                    host_died = true;
                    deadline = deadline.min(Instant::now() + ORPHAN_GRACE);
                }
                self.wait(Some(deadline.saturating_duration_since(Instant::now())))?;
            }
        }
        if !self.reap()? {
            let mut failure = Ok(());
            let swept = procfs::end(
                KILL_BOUND,
                |entries| procfs::descendants(entries, &us),
                |_| {
                    if let Err(error) = self.reap() {
                        failure = Err(error);
                    }
                },
            );
            failure?;
            let swept = swept.map_err(|error| Failure::new("list processes", error))?;
            if !swept.survivors.is_empty() {
                let text = format!("could not end the processes {:?}", swept.survivors);
                return Err(Failure { code: GUARD_FAILED, text });
            }
            // They are dead; the last ones may still have to become ours before they can be reaped.
            let deadline = Instant::now() + KILL_BOUND;
            while !self.reap()? && Instant::now() < deadline {
                self.wait(Some(Duration::from_millis(10)))?;
            }
        }
        self.end.ok_or_else(|| Failure::new("see the end of the program", "it was not reported"))
    }

    /// Reaps whatever is dead. `true`: no child is left, hence no descendant, as every orphan below becomes a child.
    fn reap(&mut self) -> Result<bool, Failure> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.program => {
                    self.end = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Some(End::Code(u8::try_from(code).unwrap_or(u8::MAX))),
                        (None, Some(signal)) => Some(End::Signal(signal)),
                        (None, None) => self.end,
                    };
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(false),
                Err(Errno::CHILD) => return Ok(true),
                Err(error) => return Err(Failure::new("wait for processes", error)),
            }
        }
    }

    /// Waits for a signal, the death of the host or the end of the time.
    fn wait(&mut self, bound: Option<Duration>) -> Result<(), Failure> {
        let bound = bound.and_then(|bound| Timespec::try_from(bound).ok());
        let (host, woken) = {
            let mut fds = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::from_borrowed_fd(self.host.as_fd(), PollFlags::IN),
            ];
            // A dead host stays readable: then it is not watched any more.
            let watched = if self.host_died { 1 } else { 2 };
            match poll(&mut fds[..watched], bound.as_ref()) {
                Ok(_) => (watched == 2 && !fds[1].revents().is_empty(), !fds[0].revents().is_empty()),
                Err(Errno::INTR) => (false, true),
                Err(error) => return Err(Failure::new("wait for events", error)),
            }
        };
        self.host_died |= host;
        if woken {
            // Emptied before the flags and the children are looked at, so that nothing is missed.
            while matches!(io::Read::read(&mut self.wake, &mut [0; 64]), Ok(1..)) {}
        }
        Ok(())
    }
}

fn listen(ask: &Arc<AtomicBool>, kill: &Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (wake, sender) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        // The flag before the byte: who is woken by the byte finds the flag.
        match signal {
            SIGCHLD => {}
            SIGQUIT => _ = signal_hook::flag::register(signal, Arc::clone(kill))?,
            _ => _ = signal_hook::flag::register(signal, Arc::clone(ask))?,
        }
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    Ok(wake)
}

/// Our copies of the program's stdin and stdout would keep the other ends from seeing their end.
fn let_go_of_pipes() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Dies of the signal the program died of. For one that does not end us, the convention of the shells.
fn die_of(signal: i32) -> u8 {
    let hard = rustix::process::getrlimit(Resource::Core).maximum;
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: hard });
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
