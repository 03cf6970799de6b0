//! Runs a local program so that **no process of it survives**: not its end, not a cancel, not `kill -9` of the
//! program that started it, and not `setsid sleep 600 &` either.
//!
//! A child gets an explicit environment (W10), its stderr is always drained into a bounded tail (W4), it is closed
//! by a ladder of bounded steps (W7), and when [`Process::wait`] or [`Process::stop`] returns, nothing it started is
//! left (L14).
//!
//! # How nothing is left
//!
//! Three nets, the later ones for when an earlier one was itself killed:
//!
//! 1. **The guard.** With a [`GuardProgram`] every program runs under a small process of its own that is a *child
//!    subreaper*: whatever the program starts, in whatever session or group, stays a descendant of the guard. It
//!    ends them when the program ends, when it is asked to, and when the process that started it dies, however that
//!    happened.
//! 2. **The host.** If the guard dies, its orphans fall to the host, a subreaper too. They are found by two marks
//!    (see [`RunMarker`]), ended, and reaped by pid. The host never waits for "any child": other children of the
//!    embedding program keep their exit status.
//! 3. **The next start.** If host and guard were killed at once, [`ProcessIdentity::kill_leftovers`] finds what is
//!    left from a line of text that was stored when the program started.
//!
//! # Where it holds
//!
//! | | with a guard | without a guard |
//! |---|---|---|
//! | Linux | all three nets | nets 2 and 3: `kill -9` of the host leaves its programs running until the next start |
//! | other Unix | not available: [`SpawnError::GuardUnsupported`] | process group, and the tree as it was before the first signal; what left both is not found |
//! | elsewhere | not available | not available: [`SpawnError::Unsupported`] |
//!
//! Without a guard the second mark is put on a program just after its start: what it orphans before that, with an
//! empty environment, is not found. Under a guard the mark is there before the program is.
//!
//! A process that runs as another user (through `sudo`, say) cannot be signalled; it is listed in
//! [`Exit::survivors`], never passed over in silence. None of this holds back a program that *wants* to escape: it
//! stops mistakes, it is no sandbox.
//!
//! # Effects on the embedding program
//!
//! The first [`spawn`] makes the calling process a child subreaper for the rest of its life (Linux). Orphans of
//! programs that were started by other means then become its children as well; a long-running embedder that starts
//! such programs has to reap them.
//!
//! # Example
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use offspring_process::{Environment, ExitKind, ProcessSpec, resolve_program, spawn};
//! use tokio::io::AsyncReadExt;
//!
//! let environment = Environment::empty().small_set().set("GREETING", "hello");
//! let here = std::env::current_dir()?;
//! let program = resolve_program("sh".as_ref(), &here, environment.get("PATH"))?;
//! let spec = ProcessSpec::new(program, &here).args(["-c", "echo $GREETING; sleep 600 &"]).environment(environment);
//!
//! let mut process = spawn(&spec)?;
//! let mut stdout = process.take_stdout().ok_or("stdout is piped by default")?;
//! let mut answer = String::new();
//! stdout.read_to_string(&mut answer).await?; // ends although `sleep` still holds the pipe
//! assert_eq!(answer, "hello\n");
//! assert_eq!(process.wait().await.status, ExitKind::Code(0));
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

mod environment;
pub mod guard;
mod identity;
mod ladder;
mod look;
mod marker;
mod os;
mod process;
mod program;
mod secrets;
mod spec;
mod stderr;
mod stdin;
mod supervisor;

pub use environment::{Environment, SMALL_SET};
pub use identity::{IdentityError, Leftovers, ProcessIdentity, sweep};
pub use ladder::Ladder;
pub use look::{Facilities, LeftOver, left_over};
pub use marker::{MARKER_VARIABLE, MarkerError, RunMarker};
pub use process::{Exit, ExitKind, Process, SpawnError, spawn};
pub use program::{ProgramError, resolve_program};
pub use secrets::{REDACTED, Secrets, spellings};
pub use spec::{GuardProgram, ProcessSpec, Stdin, Stdout};
pub use stderr::StderrTail;
pub use stdin::StdinPipe;
