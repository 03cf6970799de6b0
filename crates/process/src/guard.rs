//! The guard: a process between a host and a program, which ends what the program started when the program ends,
//! when it is asked to, and when the host dies.
//!
//! A program that wants to be its own guard calls [`main`] first thing, before it parses a command line or starts a
//! runtime, because every agent process waits for it:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     let mut args = std::env::args_os().skip(1);
//!     if args.next().is_some_and(|first| first == "__guard") {
//!         return offspring_process::guard::main(args);
//!     }
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! # What it promises
//!
//! - It leaves the terminal (its own session), is a child subreaper, and starts the program in a process group of
//!   its own, with the stdin, stdout and stderr it was given. It keeps only stderr, so that ends of file arrive.
//! - SIGTERM, SIGINT, SIGHUP: everything gets SIGTERM, then the grace, then SIGKILL. SIGQUIT: SIGKILL at once.
//! - The host died, by whatever cause: as SIGTERM, with 1 s of grace at most.
//! - The program ended: what it left behind gets SIGTERM, 200 ms, SIGKILL.
//! - It ends when it has no descendant left, which the kernel tells (`ECHILD`), with the exit code of the program, or
//!   dies of the same signal (without a core file of its own).
//!
//! Exit codes of its own: 127 the program was not found, 126 it could not be executed, 125 the guard itself failed
//! or something survived it; each with one line on stderr.

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod linux;

/// Exit code for a failure of the guard itself.
pub(crate) const GUARD_FAILED: u8 = 125;

/// Runs as the guard of a program until nothing of it is left. `args` are what [`spawn`](crate::spawn) put behind
/// the guard's own arguments: the pid of the host, the grace in milliseconds, the program, its arguments.
///
/// Returns the exit code to end with; it does not return when the program died of a signal.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(run(args))
}

#[cfg(target_os = "linux")]
fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    linux::run(args)
}

#[cfg(not(target_os = "linux"))]
fn run(_: impl IntoIterator<Item = OsString>) -> u8 {
    use std::io::Write;
    let _ = std::io::stderr().write_all(b"offspring guard: works on Linux only\n");
    GUARD_FAILED
}
