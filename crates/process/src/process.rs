//! A running program.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::sync::watch;

use crate::os::{self, Handle, Reach};
use crate::stderr::StderrCollector;
use crate::stdin::SharedStdin;
use crate::supervisor::Supervisor;
use crate::{
    Ladder, MARKER_VARIABLE, ProcessIdentity, ProcessSpec, RunMarker, StderrTail, Stdin, StdinPipe, Stdout,
};

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// It exited with this code. Under a guard 125, 126 and 127 may be the guard's: see [`guard`](crate::guard).
    Code(i32),
    /// It was ended by this signal. `Signal(9)` is also what a killed guard looks like.
    Signal(i32),
    /// It ended, but its status was taken by somebody else (`SIGCHLD` ignored, a `wait` for any child elsewhere in
    /// the embedding program, the runtime shut down) or could not be had in time. Never a success.
    Unknown,
}

/// The end of a program: when it is known, nothing the program started is alive but the `survivors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// How it ended.
    pub status: ExitKind,
    /// The end of its stderr (W4).
    pub stderr_tail: Arc<StderrTail>,
    /// Pids that could not be ended: another user's processes, or ones stuck in the kernel. Empty as a rule.
    pub survivors: Vec<u32>,
}

impl Exit {
    /// Exit code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == ExitKind::Code(0)
    }
}

/// Why nothing was started. Whenever this is returned no process exists.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// A path that would depend on somebody's current directory.
    #[error("failed to start {}: the path has to be absolute", .path.display())]
    NotAbsolute {
        /// The path of the program or of the guard.
        path: PathBuf,
    },
    /// The working directory does not exist or is no directory.
    #[error("failed to start a program in {}: {reason}", .cwd.display())]
    WorkingDirectory {
        /// The directory.
        cwd: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A variable no process can be given (W10: its value is not in the text).
    #[error(
        "failed to start a program: environment variable {name:?} has an empty name, or holds '=' or NUL where it must not"
    )]
    Environment {
        /// The name of the variable.
        name: std::ffi::OsString,
    },
    /// The system gave no random bytes.
    #[error("failed to make a run marker: {0}")]
    Marker(#[source] io::Error),
    /// The program (under a guard: the guard) could not be executed.
    #[error("failed to start {}: {source}", .path.display())]
    Execute {
        /// What was executed.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A guard was asked for where there is none; see [`GuardProgram::SUPPORTED`](crate::GuardProgram::SUPPORTED).
    #[error("failed to start a guard: it needs Linux")]
    GuardUnsupported,
    /// This system is none of those the crate knows.
    #[error("failed to start a program: only Unix is supported")]
    Unsupported,
    /// Called outside a tokio runtime.
    #[error("failed to start a program: no tokio runtime on this thread")]
    NoRuntime,
}

/// Starts a program.
///
/// To be called on a tokio runtime with I/O and time enabled: a task of it drains stderr and sees the end. Dropping
/// the [`Process`] ends the program and everything it started.
///
/// # Errors
/// [`SpawnError`]; then no process exists. A program the *guard* fails to execute is no error here: it exits with
/// 126 or 127 and a line on stderr, which is why [`resolve_program`](crate::resolve_program) is asked first.
pub fn spawn(spec: &ProcessSpec) -> Result<Process, SpawnError> {
    if !os::SUPPORTED {
        return Err(SpawnError::Unsupported);
    }
    if spec.guard.is_some() && !os::GUARD_SUPPORTED {
        return Err(SpawnError::GuardUnsupported);
    }
    tokio::runtime::Handle::try_current().map_err(|_| SpawnError::NoRuntime)?;
    let marker = match spec.marker {
        Some(marker) => marker,
        None => RunMarker::generate().map_err(SpawnError::Marker)?,
    };
    let guarded = spec.guard.is_some();
    let (path, command) = command(spec, marker)?;
    os::prepare_host();
    let mut child = tokio::process::Command::from(with_pipes(command, spec))
        .spawn()
        .map_err(|source| SpawnError::Execute { path, source })?;
    // The child is not reaped before its supervisor runs, so its pid is its own.
    let pid = child.id().unwrap_or_default();
    if !guarded {
        // Later than a guard would: what was started and orphaned before this line has the variable only. Where there
        // is no such mark the variable and the group remain.
        let _ = os::mark_child(pid, marker);
    }
    let identity = ProcessIdentity::of_child(pid, marker);
    let handle = Handle::open(pid);
    let stdout = child.stdout.take();
    let stdin = SharedStdin::new(child.stdin.take());
    let stderr = StderrCollector::new(spec.stderr_tail_bytes);
    let drain = child.stderr.take().map(|pipe| tokio::spawn(stderr.clone().drain(pipe)));
    let (exit_sender, exit) = watch::channel(None);
    let (stop, requests) = watch::channel(None);
    let reach = Reach::of_child(pid, marker, guarded);
    let supervisor =
        Supervisor::new(child, pid, guarded, reach, stdin.clone(), (stderr.clone(), drain), exit_sender);
    tokio::spawn(supervisor.run(requests));
    let writer = (spec.stdin == Stdin::Pipe).then(|| stdin.writer());
    Ok(Process { pid, marker, guarded, identity, handle, writer, stdout, stderr, exit, stop })
}

/// The guard with the program as its argument, or the program itself.
fn command(spec: &ProcessSpec, marker: RunMarker) -> Result<(PathBuf, Command), SpawnError> {
    let first = spec.guard.as_ref().map_or(&spec.program, |guard| &guard.program);
    for path in [&spec.program, first] {
        if !path.is_absolute() {
            return Err(SpawnError::NotAbsolute { path: path.clone() });
        }
    }
    // Said here, because what a failed `chdir` looks like is "no such file", and that would name the program.
    let reason = match std::fs::metadata(&spec.cwd) {
        Ok(data) if data.is_dir() => None,
        Ok(_) => Some("it is not a directory".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(reason) = reason {
        return Err(SpawnError::WorkingDirectory { cwd: spec.cwd.clone(), reason });
    }
    if let Some(name) = spec.environment.first_unusable() {
        return Err(SpawnError::Environment { name: name.to_owned() });
    }
    let mut command = Command::new(first);
    if let Some(guard) = &spec.guard {
        let grace = u32::try_from(spec.grace.as_millis()).unwrap_or(u32::MAX);
        command.args(&guard.args);
        command.arg(std::process::id().to_string()).arg(grace.to_string()).arg(&spec.program);
    } else {
        os::own_group(&mut command);
    }
    command.args(&spec.args).current_dir(&spec.cwd);
    command.env_clear().envs(spec.environment.iter()).env(MARKER_VARIABLE, marker.to_string());
    Ok((first.clone(), command))
}

fn with_pipes(mut command: Command, spec: &ProcessSpec) -> Command {
    command.stdin(match spec.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::Pipe => Stdio::piped(),
    });
    command.stdout(match spec.stdout {
        Stdout::Pipe => Stdio::piped(),
        Stdout::Null => Stdio::null(),
    });
    command.stderr(Stdio::piped());
    command
}

/// A running program and everything it starts.
///
/// Dropping it ends them all at once (SIGKILL) in the background, reaped by the runtime, or, when that is shutting
/// down, by a thread.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    marker: RunMarker,
    guarded: bool,
    identity: Option<ProcessIdentity>,
    handle: Handle,
    writer: Option<StdinPipe>,
    stdout: Option<ChildStdout>,
    stderr: StderrCollector,
    exit: watch::Receiver<Option<Exit>>,
    /// Dropping this is the order to end at once.
    stop: watch::Sender<Option<Ladder>>,
}

impl Process {
    /// The pid of the guard, or of the program without one. Only good to be shown: signal through
    /// [`Process::stop`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The marker all processes of this run carry.
    #[must_use]
    pub fn marker(&self) -> RunMarker {
        self.marker
    }

    /// What to store for the next start (see [`ProcessIdentity::kill_leftovers`]); `None` where the system has no
    /// such name (not Linux).
    #[must_use]
    pub fn identity(&self) -> Option<&ProcessIdentity> {
        self.identity.as_ref()
    }

    /// The writing end of stdin, once, if it is a pipe. Until it is taken and dropped, or the process is stopped,
    /// the program does not see the end of its input.
    pub fn take_stdin(&mut self) -> Option<StdinPipe> {
        self.writer.take()
    }

    /// The reading end of stdout, once, if it is a pipe. It ends when nothing that could write to it is left, at the
    /// latest just before [`Process::wait`] returns.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The end of stderr as of now.
    #[must_use]
    pub fn stderr_tail(&self) -> StderrTail {
        self.stderr.tail()
    }

    /// The last line of stderr that is not blank, as of now, cut to its last 512 bytes. Untrusted (W11).
    #[must_use]
    pub fn stderr_last_line(&self) -> String {
        self.stderr.last_line()
    }

    /// How many bytes the program has written to stderr, as they come. A watch holds one value: a reader that is slow
    /// costs nothing.
    #[must_use]
    pub fn watch_stderr_bytes(&self) -> watch::Receiver<u64> {
        self.stderr.watch_total()
    }

    /// How the program ended, if it has.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Waits for the program's own end, and for the end of everything it started. Has no bound: how long a program
    /// may work is its caller's business (W8). May be called any number of times, dropped and called again.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone(),
            Err(_) => None,
        }
        // The supervisor publishes before it is dropped, whatever happens to it.
        .unwrap_or_else(|| Exit::unknown(self.stderr.tail()))
    }

    /// Climbs the ladder (W7) and returns when nothing is left: bounded by the sum of its steps and about 10 s for
    /// the last one, which takes milliseconds unless the kernel refuses.
    ///
    /// Calling it twice, at once or later, is harmless: the more urgent of each step holds. Once begun the ladder is
    /// climbed to its end, also when this future is dropped.
    pub async fn stop(&self, ladder: Ladder) -> Exit {
        self.stop.send_modify(|asked| *asked = Some(asked.map_or(ladder, |asked| asked.hastened(ladder))));
        self.wait().await
    }

    /// As [`Process::stop`], after the first step of W7: a `shutdown` message to a runtime that knows one. The
    /// program may take until `within` (1 s by the rule) to end because of it; how the future ends does not matter.
    pub async fn stop_after(
        &self,
        shutdown: impl Future<Output = ()>,
        within: Duration,
        ladder: Ladder,
    ) -> Exit {
        let ended = async { tokio::join!(shutdown, self.wait()).1 };
        match tokio::time::timeout(within, ended).await {
            Ok(exit) => exit,
            Err(_) => self.stop(ladder).await,
        }
    }
}

impl Exit {
    pub(crate) fn unknown(tail: StderrTail) -> Self {
        Self { status: ExitKind::Unknown, stderr_tail: Arc::new(tail), survivors: Vec::new() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The first blow is struck here, for a runtime that never runs again; the rest is the supervisor's.
        if self.exit.borrow().is_none() {
            self.handle.strike(self.guarded);
        }
    }
}
