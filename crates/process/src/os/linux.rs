//! Linux: child subreaper, marks, pidfd.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, prlimit, waitpid,
};

use super::procfs::{Entry, ask, descendants, end, entry, is_marked, ourselves_and_above, snapshot};
use super::{KILL_BOUND, Swept};
use crate::{ProcessIdentity, RunMarker};

pub(crate) const SUPPORTED: bool = true;
pub(crate) const GUARD_SUPPORTED: bool = true;

pub(crate) fn may_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

pub(crate) fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Makes orphans of our descendants our children, once for the life of this process.
pub(crate) fn prepare_host() {
    static DONE: OnceLock<()> = OnceLock::new();
    // Kernels without it (before 3.4) hand orphans to init, which reaps them; the marks still find them.
    DONE.get_or_init(|| _ = rustix::process::set_child_subreaper(Some(getpid())));
}

/// A process group of its own, for a program without a guard.
pub(crate) fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

/// When a process we hold was started (clock ticks since boot), and in which boot.
pub(crate) fn origin(pid: u32) -> Option<(u64, String)> {
    Some((entry(pid.cast_signed())?.started, boot_id()?))
}

pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Puts the lineage number on ourselves, which all we start from now on inherit.
pub(crate) fn mark_self(marker: RunMarker) -> io::Result<()> {
    mark(None, marker)
}

/// Puts the lineage number on a child that was just started, and on what it may have started in the meantime.
pub(crate) fn mark_child(pid: u32, marker: RunMarker) -> io::Result<()> {
    // Twice, because a fork under way copies the limits a moment before its child is listed.
    for _ in 0..2 {
        let mut open = vec![pid.cast_signed()];
        let mut seen = HashSet::new();
        while let Some(pid) = open.pop() {
            if seen.insert(pid) {
                // The mark first, the children afterwards: who was started later has inherited it.
                mark(Pid::from_raw(pid), marker)?;
                open.extend(children(pid));
            }
        }
    }
    Ok(())
}

/// What the kernel lists as children of a process with one thread; nothing where it does not (`PROC_CHILDREN`).
fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|&child| entry(child).is_some_and(|entry| entry.parent == pid)).collect()
}

fn mark(pid: Option<Pid>, marker: RunMarker) -> io::Result<()> {
    // The hard limit stays: a child has inherited ours.
    let hard = rustix::process::getrlimit(Resource::Rttime).maximum;
    match prlimit(pid, Resource::Rttime, Rlimit { current: Some(marker.lineage()), maximum: hard }) {
        // Gone already.
        Ok(_) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn is_alive(identity: &ProcessIdentity) -> io::Result<bool> {
    let Some(boot_id) = boot_id() else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "/proc tells no boot id"));
    };
    let alive = |entry: Entry| entry.started == identity.start_time_ticks() && !entry.dead;
    Ok(boot_id == identity.boot_id() && entry(identity.pid().cast_signed()).is_some_and(alive))
}

/// A process that stays the same one after its pid is used again.
#[derive(Debug)]
pub(crate) struct Handle(Option<OwnedFd>);

impl Handle {
    /// Of a child that has not been reaped.
    pub(crate) fn open(pid: u32) -> Self {
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        Self(Pid::from_raw(pid.cast_signed()).and_then(open))
    }

    /// Ends a guard with all it guards, or a program without guard. Its end is not waited for.
    pub(crate) fn strike(&self, guarded: bool) {
        let signal = if guarded { Signal::QUIT } else { Signal::KILL };
        if let Some(pidfd) = &self.0 {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

/// What belongs to one run, and the signals to it.
#[derive(Debug)]
pub(crate) struct Reach {
    marker: RunMarker,
    /// The guard, or the program without one: pid and start time.
    root: Option<(i32, u64)>,
    guarded: bool,
    /// Pid and start time of all that was ever found: a zombie has lost its environment and its place in the tree.
    known: Mutex<HashSet<(i32, u64)>>,
}

impl Reach {
    /// Of a child that has not been reaped.
    pub(crate) fn of_child(pid: u32, marker: RunMarker, guarded: bool) -> Self {
        let pid = pid.cast_signed();
        Self { marker, root: entry(pid).map(|entry| (pid, entry.started)), guarded, known: Mutex::default() }
    }

    /// What an earlier process left behind.
    pub(crate) fn of_leftovers(marker: RunMarker, root: Option<(u32, u64)>) -> Self {
        let root = root.map(|(pid, started)| (pid.cast_signed(), started));
        // A guard leads its group as a program without one does; its own group is empty.
        Self { marker, root, guarded: false, known: Mutex::default() }
    }

    /// Asks for an end: the guard, which asks all others, or every process there is. With a guard it is to be
    /// called before the guard was reaped, so that its pid is its own.
    pub(crate) fn ask(&self) {
        if self.guarded {
            self.signal_guard(Signal::TERM);
        } else if let Ok(entries) = snapshot() {
            ask(&self.find(&entries));
        }
    }

    /// Tells the guard to kill everything now. As [`Reach::ask`], before it was reaped.
    pub(crate) fn hurry_guard(&self) {
        self.signal_guard(Signal::QUIT);
    }

    fn signal_guard(&self, signal: Signal) {
        if let Some(pid) = self.root.and_then(|(pid, _)| Pid::from_raw(pid)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends everything that is found and reaps what is a child of ours by then, but for `held`, whose status
    /// somebody waits for.
    pub(crate) fn end(&self, held: Option<u32>) -> io::Result<Swept> {
        let held = held.map(u32::cast_signed);
        let us = getpid().as_raw_pid();
        end(
            KILL_BOUND,
            |entries| {
                self.find(entries)
                    .into_iter()
                    .filter(|found| !(found.dead && held == Some(found.pid)))
                    .collect()
            },
            |found| {
                for known in found.iter().filter(|found| held != Some(found.pid)) {
                    // By pid only, and only what is still this process and an orphan that fell to us: an embedder's
                    // other children are not ours to wait for.
                    let ours =
                        entry(known.pid).is_some_and(|now| now.started == known.started && now.parent == us);
                    if let Some(pid) = Pid::from_raw(known.pid).filter(|_| ours) {
                        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                    }
                }
            },
        )
    }

    /// Waits until nothing that is found lives, or the bound is over.
    pub(crate) fn wait_until_gone(&self, bound: std::time::Duration) {
        let deadline = std::time::Instant::now() + bound;
        while std::time::Instant::now() < deadline
            && snapshot().is_ok_and(|entries| self.find(&entries).iter().any(|entry| !entry.dead))
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// By mark, by root, by the root's group, and whatever descends from these.
    fn find(&self, entries: &[Entry]) -> Vec<Entry> {
        let spared = ourselves_and_above(entries);
        let root = self.root;
        let recycled = entries.iter().any(|e| root.is_some_and(|(pid, at)| e.pid == pid && e.started != at));
        let group = root.map(|(pid, _)| pid).filter(|_| !self.guarded && !recycled);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let belongs = |entry: &&Entry| {
            // Nothing of a run is older than its root.
            root.is_none_or(|(_, started)| entry.started >= started)
                && !spared.contains(&entry.pid)
                && (root == Some((entry.pid, entry.started))
                    || group == Some(entry.group)
                    || known.contains(&(entry.pid, entry.started))
                    || is_marked(entry.pid, self.marker))
        };
        let mut found: Vec<Entry> = entries.iter().filter(belongs).copied().collect();
        let roots: Vec<i32> = found.iter().map(|entry| entry.pid).collect();
        found.extend(descendants(entries, &roots).into_iter().filter(|entry| !spared.contains(&entry.pid)));
        known.extend(found.iter().map(|entry| (entry.pid, entry.started)));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Of nobody who lives: no pid is as high.
    fn one(pid: i32, parent: i32, group: i32, started: u64) -> Entry {
        let at = |pid: i32| if pid == 1 { 1 } else { pid + 2_000_000_000 };
        Entry { pid: at(pid), parent: at(parent), group: at(group), session: 0, started, dead: false }
    }

    #[test]
    fn l14_of_a_run_is_its_root_and_its_group_and_what_was_found_and_what_descends_and_nobody_older() {
        let marker = RunMarker::generate().unwrap();
        let reach = |guarded| Reach {
            marker,
            root: Some((one(1_000, 1, 0, 0).pid, 50)),
            guarded,
            known: Mutex::default(),
        };
        let found = |reach: &Reach, entries: &[Entry]| {
            let mut pids: Vec<i32> = reach.find(entries).iter().map(|one| one.pid - 2_000_000_000).collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        };
        // A root, what is left in its group, a child of that in a group of its own, a stranger, and one who was in
        // a group of this number before there was a run.
        let root = one(1_000, 1, 1_000, 50);
        let left = one(1_001, 1, 1_000, 51);
        let below = one(1_002, 1_001, 1_002, 52);
        let others = [one(1_003, 1, 1_003, 53), one(1_004, 1, 1_000, 49)];
        let with = |run: &[Entry]| [run, &others].concat();

        let free = reach(false);
        assert_eq!(found(&free, &with(&[root, left, below])), [1_000, 1_001, 1_002]);
        // Who was found once is known after it left the group and lost its parent.
        let moved = one(1_002, 1, 1_009, 52);
        assert_eq!(found(&free, &with(&[moved])), [1_002]);
        assert_eq!(found(&reach(false), &with(&[moved])), [0; 0]);
        // The root may lead no group of its own.
        assert_eq!(found(&reach(false), &with(&[one(1_000, 1, 7, 50)])), [1_000]);
        // The group of a guard is its own, and one whose number somebody else has now is not the run's.
        assert_eq!(found(&reach(true), &with(&[root, left])), [1_000]);
        assert_eq!(found(&reach(false), &with(&[one(1_000, 1, 1_000, 60), left])), [0; 0]);
    }

    #[test]
    fn l14_what_was_asked_to_end_is_waited_for_as_long_as_it_lives_and_no_longer() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "trap 'sleep 0.2; exit 3' TERM; echo; while :; do sleep 0.01; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut [0]).unwrap();
        let reach = Reach::of_child(child.id(), RunMarker::generate().unwrap(), false);
        let began = Instant::now();
        ask(&snapshot()
            .unwrap()
            .into_iter()
            .filter(|entry| entry.pid == child.id().cast_signed())
            .collect::<Vec<_>>());
        reach.wait_until_gone(Duration::from_secs(60));
        let ended = child.try_wait().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(ended.and_then(|status| status.code()), Some(3));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn l14_what_a_program_started_before_it_was_marked_is_marked_with_it() {
        let marker = RunMarker::generate().unwrap();
        let mut child =
            Command::new("/bin/sh").args(["-c", "sleep 600 & (sleep 600; true) & wait"]).spawn().unwrap();
        let pid = child.id().cast_signed();
        let deadline = Instant::now() + Duration::from_secs(10);
        let below = || descendants(&snapshot().unwrap(), &[pid]);
        while below().len() < 3 {
            assert!(Instant::now() < deadline, "{:?}", below());
            // poll: the process table
            std::thread::sleep(Duration::from_millis(5));
        }
        mark_child(child.id(), marker).unwrap();
        let marked: Vec<bool> = below().iter().map(|entry| is_marked(entry.pid, marker)).collect();
        let listed = children(pid);
        // Before anything is asserted: a failure must leave no process behind.
        let reach = Reach::of_child(child.id(), marker, false);
        let swept = reach.end(None).unwrap();
        let _ = child.wait();
        assert_eq!((marked.as_slice(), listed.len()), (&[true; 3][..], 2));
        assert_eq!((swept.survivors.len(), swept.killed), (0, 4));
    }
}
