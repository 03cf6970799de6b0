//! Unix without Linux's means: process groups, and the tree as `ps` shows it before the first signal. What left both
//! by then is not found, and who is a process is told by its start time as far as `ps` prints it (whole seconds).

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use super::{KILL_BOUND, Swept};
use crate::{Facilities, LeftOver, ProcessIdentity, RunMarker};

pub(crate) const SUPPORTED: bool = true;
pub(crate) const GUARD_SUPPORTED: bool = false;

pub(crate) fn may_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

pub(crate) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// There is no subreaper: orphans go to init, which reaps them.
pub(crate) fn prepare_host() {}

pub(crate) fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

/// No system-wide name of a process that outlives it.
pub(crate) fn origin(_: u32) -> Option<(u64, String)> {
    None
}

pub(crate) fn boot_id() -> Option<String> {
    None
}

pub(crate) fn mark_child(_: u32, _: RunMarker) -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn is_alive(_: &ProcessIdentity) -> io::Result<bool> {
    Err(unsupported())
}

pub(crate) fn facilities() -> Facilities {
    Facilities { subreaper: false, pidfd: false, processes: false }
}

pub(crate) fn left_over() -> io::Result<Vec<LeftOver>> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "processes are told apart over time on Linux only")
}

/// No pidfd: a process is only signalled by whoever holds it unreaped.
#[derive(Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn open(_: u32) -> Self {
        Self
    }

    pub(crate) fn strike(&self, _: bool) {}
}

#[derive(Debug)]
pub(crate) struct Reach {
    root: Option<Pid>,
    /// Descendants as they were before the first signal: pid and start time.
    known: Mutex<HashMap<i32, String>>,
}

impl Reach {
    pub(crate) fn of_child(pid: u32, _: RunMarker, _: bool) -> Self {
        Self { root: Pid::from_raw(pid.cast_signed()), known: Mutex::default() }
    }

    pub(crate) fn of_leftovers(_: RunMarker, _: Option<(u32, u64)>) -> Self {
        Self { root: None, known: Mutex::default() }
    }

    pub(crate) fn ask(&self) {
        self.signal_all(Signal::TERM);
        self.signal_all(Signal::CONT);
    }

    pub(crate) fn hurry_guard(&self) {}

    pub(crate) fn end(&self, _: Option<u32>) -> io::Result<Swept> {
        if self.root.is_none() {
            return Err(unsupported());
        }
        let killed = self.signal_all(Signal::KILL);
        self.wait_until_gone(KILL_BOUND);
        let survivors = self.living().into_keys().map(i32::unsigned_abs).collect();
        Ok(Swept { killed, survivors })
    }

    pub(crate) fn wait_until_gone(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        let group = || self.root.is_some_and(|pid| test_kill_process_group(pid).is_ok());
        while Instant::now() < deadline && (group() || !self.living().is_empty()) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Signals the group and those who were below the root, and remembers these.
    fn signal_all(&self, signal: Signal) -> usize {
        let Some(root) = self.root else { return 0 };
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.extend(below(root.as_raw_pid(), &processes()));
        }
        let _ = kill_process_group(root, signal);
        let living = self.living();
        for pid in living.keys().filter_map(|&pid| Pid::from_raw(pid)) {
            let _ = kill_process(pid, signal);
        }
        living.len()
    }

    fn living(&self) -> HashMap<i32, String> {
        let now = processes();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |pid: &i32, started: &String| now.get(pid).is_some_and(|(_, now)| now == started);
        known.iter().filter(|(pid, started)| same(pid, started)).map(|(pid, at)| (*pid, at.clone())).collect()
    }
}

/// Parent and start time of every process that is no zombie.
fn processes() -> HashMap<i32, (i32, String)> {
    let output = Command::new("/bin/ps").args(["-A", "-o", "pid=,ppid=,state=,lstart="]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let pid = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        let state = fields.next()?;
        let started = fields.collect::<Vec<_>>().join(" ");
        (!state.starts_with('Z')).then_some((pid, (parent, started)))
    };
    text.lines().filter_map(parse).collect()
}

fn below(root: i32, processes: &HashMap<i32, (i32, String)>) -> Vec<(i32, String)> {
    let mut seen = HashSet::from([root]);
    loop {
        let fresh: Vec<i32> = processes
            .iter()
            .filter(|(pid, (parent, _))| seen.contains(parent) && !seen.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if fresh.is_empty() {
            break;
        }
        seen.extend(fresh);
    }
    seen.remove(&root);
    seen.into_iter().filter_map(|pid| Some((pid, processes.get(&pid)?.1.clone()))).collect()
}
