//! What to start, and how.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Environment, RunMarker};

/// The stdin of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// `/dev/null`: the program reads end of file (default).
    #[default]
    Null,
    /// A pipe, written through [`Process::take_stdin`](crate::Process::take_stdin).
    Pipe,
}

/// The stdout of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdout {
    /// A pipe, read through [`Process::take_stdout`](crate::Process::take_stdout) (default). Somebody has to read
    /// it: a program that fills the pipe (64 KiB) waits.
    #[default]
    Pipe,
    /// `/dev/null`.
    Null,
}

/// The program that becomes the guard of each process: `offspring-guard`, or any program that calls
/// [`guard::main`](crate::guard::main) with the arguments after `args`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardProgram {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments that come before ours, such as a hidden subcommand.
    pub args: Vec<OsString>,
}

impl GuardProgram {
    /// Whether this system has what a guard needs (Linux). Elsewhere [`spawn`](crate::spawn) refuses a
    /// specification with a guard, so that nobody believes to be protected.
    pub const SUPPORTED: bool = crate::os::GUARD_SUPPORTED;

    /// A guard program without arguments of its own.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new() }
    }

    /// Adds an argument that comes before ours.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }
}

/// What to start: every setting with its default and its consequence.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) environment: Environment,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Stdout,
    pub(crate) stderr_tail_bytes: usize,
    pub(crate) grace: Duration,
    pub(crate) guard: Option<GuardProgram>,
    pub(crate) marker: Option<RunMarker>,
}

impl ProcessSpec {
    /// A program by absolute path (see [`resolve_program`](crate::resolve_program)) and the directory it works in.
    pub fn new(program: impl Into<PathBuf>, cwd: impl AsRef<Path>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.as_ref().to_owned(),
            environment: Environment::empty(),
            stdin: Stdin::default(),
            stdout: Stdout::default(),
            stderr_tail_bytes: 64 * 1024,
            grace: Duration::from_secs(2),
            guard: None,
            marker: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The whole environment (default: empty). The marker of the run is added to it.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Where stdin comes from (default: [`Stdin::Null`]).
    #[must_use]
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Where stdout goes (default: [`Stdout::Pipe`]).
    #[must_use]
    pub fn stdout(mut self, stdout: Stdout) -> Self {
        self.stdout = stdout;
        self
    }

    /// How many bytes of the end of stderr are kept (default 64 KiB). All of stderr is read whatever this says; a
    /// smaller number only shortens what an error can show.
    #[must_use]
    pub fn stderr_tail_bytes(mut self, bytes: usize) -> Self {
        self.stderr_tail_bytes = bytes;
        self
    }

    /// How long the guard lets everything end by itself after SIGTERM before it kills (default 2 s); whole
    /// milliseconds. When the host dies at most 1 s of it is given, so that nothing is left soon after.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The guard that ends everything even when this process is killed (default: none; see the table of the crate
    /// for what then is not covered).
    #[must_use]
    pub fn guard(mut self, guard: GuardProgram) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The marker of the run (default: a new one). Give one when it has to be stored *before* the program starts,
    /// so that a crash in between leaves nothing unknown. Two live processes must not share one: ending either ends
    /// both.
    #[must_use]
    pub fn marker(mut self, marker: RunMarker) -> Self {
        self.marker = Some(marker);
        self
    }
}
