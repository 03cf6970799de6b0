//! The processes of the machine, found by a text in their command line or environment.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

/// One living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its pid.
    pub pid: u32,
    /// Its command line, arguments separated by spaces.
    pub line: String,
}

impl Seen {
    /// Whether it is the guard of another.
    #[must_use]
    pub fn is_guard(&self) -> bool {
        self.line.contains(" __guard ")
    }

    /// Whether it is `sleep`.
    #[must_use]
    pub fn is_sleeper(&self) -> bool {
        self.line.starts_with("sleep ")
    }
}

/// Those whose command line or environment holds one of these texts; no zombies, not ourselves.
///
/// # Panics
/// Without `/proc`.
#[must_use]
pub fn living(texts: &[&str]) -> Vec<Seen> {
    let mut found = Vec::new();
    for file in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = file.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let read = |name: &str| fs::read(file.path().join(name)).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        let holds = |bytes: &[u8]| {
            texts.iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
        };
        if (holds(&line) || holds(&environment)) && !is_dead(pid) {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.push(Seen { pid, line });
        }
    }
    found
}

/// Whether there is no such process, or a zombie.
#[must_use]
pub fn is_dead(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Whether it is stopped by a SIGSTOP.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Sends a signal; a process that is gone is fine.
///
/// # Panics
/// For a pid that is none.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
    let _ = kill_process(pid, signal);
}

pub use rustix::process::Signal as SignalName;
