//! What the kernel lets a test do: mounts and networks of its own.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// A command line that runs what is appended to it in namespaces of its own; `unshare` and these flags.
///
/// Where the kernel or the machine refuses, it says so on stderr and gives `None`: the caller checks what it can
/// without, and its reader sees that it did.
#[must_use]
pub fn unshared(flags: &str) -> Option<Command> {
    // As root, and else as a user who is root in a namespace of its own.
    for flags in [format!("-{flags}"), format!("-r{flags}")] {
        let tried = Command::new("unshare")
            .args([&flags, "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            let mut command = Command::new("unshare");
            command.arg(flags);
            return Some(command);
        }
    }
    not_checked(&format!("`unshare -{flags}` is refused on this machine"));
    None
}

/// Says what a test could not look at here.
pub fn not_checked(why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "NOT CHECKED HERE: {why}");
}

/// Appends one command to another, with the environment and the directory of the one that is appended.
#[must_use]
pub fn inside(mut outer: Command, inner: &Command) -> Command {
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.env_clear();
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = inner.get_current_dir() {
        outer.current_dir(directory);
    }
    outer.stdin(Stdio::null());
    outer
}
