//! Linux: the processes there are, and signals that reach exactly the one that was meant.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::Swept;
use crate::{MARKER_VARIABLE, RunMarker};

/// Environments larger than this are read in part; the marker stands near the start of ours.
const ENVIRON_BYTES: u64 = 4 * 1024 * 1024;

/// How often everything is stopped and looked for again before the first SIGKILL: a loop that forks is frozen
/// within two or three rounds, as each round stops every process that could still fork.
const FREEZE_ROUNDS: usize = 16;

/// One process as `/proc` shows it. Pid and start time together name it for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// 0 when its leader is outside of our pid namespace.
    pub(crate) session: i32,
    /// Clock ticks since boot.
    pub(crate) started: u64,
    /// A zombie: nothing to signal, only to reap.
    pub(crate) dead: bool,
}

/// Reads `/proc/PID/stat`; `None` when there is no such process.
pub(crate) fn entry(pid: i32) -> Option<Entry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any byte, parentheses too.
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Entry { pid, parent, group, session, started, dead: matches!(state, "Z" | "X" | "x") })
}

/// Every process of the machine (of our pid namespace).
pub(crate) fn snapshot() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir("/proc")? {
        let pid = file?.file_name().to_str().and_then(|name| name.parse().ok());
        entries.extend(pid.and_then(entry));
    }
    Ok(entries)
}

/// The processes below `roots`, these not included.
pub(crate) fn descendants(entries: &[Entry], roots: &[i32]) -> Vec<Entry> {
    let mut children: HashMap<i32, Vec<&Entry>> = HashMap::new();
    for entry in entries {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut open = roots.to_vec();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                found.push(**child);
                open.push(child.pid);
            }
        }
    }
    found
}

/// Ourselves and what we descend from: never to be signalled, whatever marks they carry.
pub(crate) fn ourselves_and_above(entries: &[Entry]) -> HashSet<i32> {
    let parents: HashMap<i32, i32> = entries.iter().map(|entry| (entry.pid, entry.parent)).collect();
    let mut pid = rustix::process::getpid().as_raw_pid();
    let mut above = HashSet::new();
    while above.insert(pid) {
        match parents.get(&pid) {
            Some(&parent) if parent > 0 => pid = parent,
            _ => break,
        }
    }
    above
}

/// Whether a process carries the mark of a run, by its limits or by its environment.
pub(crate) fn is_marked(pid: i32, marker: RunMarker) -> bool {
    has_lineage(pid, marker.lineage()).unwrap_or(false) || has_variable(pid, marker).unwrap_or(false)
}

fn has_lineage(pid: i32, lineage: u64) -> Option<bool> {
    Some(realtime_limit(pid)? == lineage)
}

fn realtime_limit(pid: i32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn has_variable(pid: i32, marker: RunMarker) -> Option<bool> {
    let wanted = format!("{MARKER_VARIABLE}={marker}");
    Some(environ(pid)?.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()))
}

fn environ(pid: i32) -> Option<Vec<u8>> {
    let path = PathBuf::from(format!("/proc/{pid}/environ"));
    let mut environ = Vec::new();
    std::fs::File::open(path).ok()?.take(ENVIRON_BYTES).read_to_end(&mut environ).ok()?;
    Some(environ)
}

/// The lineage number of whatever run a process belongs to, by its limits or by its environment.
pub(crate) fn lineage(pid: i32) -> Option<u64> {
    let by_variable = || {
        let environ = environ(pid)?;
        let prefix = format!("{MARKER_VARIABLE}=");
        let value =
            environ.split(|&byte| byte == 0).find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
        Some(std::str::from_utf8(value).ok()?.parse::<RunMarker>().ok()?.lineage())
    };
    realtime_limit(pid).filter(|&number| RunMarker::is_lineage(number)).or_else(by_variable)
}

/// Sends a signal to exactly this process; one that is gone, its pid perhaps somebody else's by now, is fine.
///
/// # Errors
/// `EPERM`: another user's process.
pub(crate) fn send(entry: Entry, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(entry.pid) else { return Ok(()) };
    // The pidfd is opened first and the start time read afterwards: if it is the one we know, the pidfd is the
    // process we know, and stays so however often the pid is used again.
    let same = || self::entry(entry.pid).is_some_and(|now| now.started == entry.started);
    let sent = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) if same() => pidfd_send_signal(&pidfd, signal),
        // No pidfd before Linux 5.3 and under old container filters; the window is then between two lines.
        Err(Errno::NOSYS | Errno::PERM) if same() => kill_process(pid, signal),
        Ok(_) | Err(Errno::NOSYS | Errno::PERM | Errno::SRCH) => return Ok(()),
        Err(error) => Err(error),
    };
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Asks processes to end. SIGCONT follows, because a stopped process would not hear it.
pub(crate) fn ask(entries: &[Entry]) {
    for entry in entries.iter().filter(|entry| !entry.dead) {
        // Another user's process refuses; whoever ends everything reports it.
        let _ = send(*entry, Signal::TERM).and_then(|()| send(*entry, Signal::CONT));
    }
}

/// Ends what `find` finds, again and again until it finds nothing that lives: stop all, look again, kill all. A
/// stopped process cannot fork, so that a fork loop does not outrun us.
///
/// `reap` is called after each round with all that was found.
pub(crate) fn end(
    bound: Duration,
    find: impl Fn(&[Entry]) -> Vec<Entry>,
    mut reap: impl FnMut(&[Entry]),
) -> io::Result<Swept> {
    let deadline = Instant::now() + bound;
    let mut killed = HashSet::new();
    let mut pause = Duration::from_millis(1);
    loop {
        let found = freeze(&find)?;
        let living = found.iter().filter(|entry| !entry.dead);
        let (mut tried, mut refused) = (0, 0);
        for entry in living.clone() {
            tried += 1;
            match send(*entry, Signal::KILL) {
                Ok(()) => _ = killed.insert((entry.pid, entry.started)),
                Err(_) => refused += 1,
            }
        }
        if tried == 0 {
            reap(&found);
            return Ok(Swept { killed: killed.len(), survivors: Vec::new() });
        }
        if tried == refused || Instant::now() >= deadline {
            reap(&found);
            let survivors = living.map(|entry| entry.pid.unsigned_abs()).collect();
            return Ok(Swept { killed: killed.len(), survivors });
        }
        // Death by SIGKILL is asynchronous, and there is one event per process and none for all of them.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
        reap(&found);
    }
}

/// Stops whatever is found until nothing new turns up.
fn freeze(find: &impl Fn(&[Entry]) -> Vec<Entry>) -> io::Result<Vec<Entry>> {
    let mut stopped = HashSet::new();
    let mut found = find(&snapshot()?);
    for _ in 0..FREEZE_ROUNDS {
        let mut fresh = false;
        for entry in found.iter().filter(|entry| !entry.dead) {
            if stopped.insert((entry.pid, entry.started)) {
                fresh = true;
                let _ = send(*entry, Signal::STOP);
            }
        }
        if !fresh {
            break;
        }
        found = find(&snapshot()?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn is_stopped(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    fn names(entries: &[Entry]) -> HashSet<i32> {
        entries.iter().map(|entry| entry.pid).collect()
    }

    #[test]
    fn l14_a_loop_that_forks_is_frozen_before_anything_is_killed() {
        let script = "n=0; while [ $n -lt 3000 ]; do sleep 600 & n=$((n+1)); done; wait";
        let mut child = std::process::Command::new("/bin/sh");
        let mut child =
            child.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let root = child.id().cast_signed();
        let find = |entries: &[Entry]| {
            let mut found = descendants(entries, &[root]);
            found.extend(entries.iter().filter(|entry| entry.pid == root));
            found.retain(|entry| !entry.dead);
            found
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while find(&snapshot().unwrap()).len() < 20 {
            assert!(Instant::now() < deadline, "the loop does not fork");
        }

        let frozen = freeze(&find).unwrap();
        // SIGSTOP takes effect a moment later.
        let running = || frozen.iter().find(|entry| !is_stopped(entry.pid));
        while running().is_some() && Instant::now() < deadline {}
        let (running, now) = (running(), names(&find(&snapshot().unwrap())));
        // Before anything is asserted: a failure must leave no fork loop behind.
        let swept = end(Duration::from_secs(5), find, |_| _ = child.try_wait()).unwrap();
        assert!(frozen.len() >= 20);
        assert_eq!(running, None);
        assert_eq!(now, names(&frozen), "something forked on");
        assert_eq!((swept.survivors.len(), swept.killed), (0, now.len()));
    }

    #[test]
    fn the_session_of_a_process_is_read_and_one_that_is_not_seen_is_no_fault() {
        let ours = rustix::process::getpid().as_raw_pid();
        let known = std::process::Command::new("ps").args(["-o", "sid=", "-p", &ours.to_string()]).output();
        let known = String::from_utf8(known.unwrap().stdout).unwrap();
        assert_eq!(entry(ours).map(|entry| entry.session), known.trim().parse().ok());
        // In a pid namespace whoever was not started in it has the session 0, which `getsid` of rustix refuses.
        assert!(entry(1).is_some_and(|init| init.session >= 0));
    }

    #[test]
    fn l14_a_process_of_another_start_time_is_not_signalled() {
        let start = || {
            let mut child = std::process::Command::new("/bin/sh");
            let child = child.args(["-c", "read end; exit 3"]).stdin(Stdio::piped()).spawn().unwrap();
            let known = entry(child.id().cast_signed()).unwrap();
            (child, known)
        };
        // Who had the pid before is gone, and who has it now is a stranger. Its end is awaited, because a signal
        // that it was sent acts a moment later.
        let (mut child, known) = start();
        send(Entry { started: known.started + 1, ..known }, Signal::KILL).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        let (mut child, known) = start();
        send(known, Signal::KILL).unwrap();
        let _stdin = child.stdin.take();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
    }

    #[test]
    fn l14_neither_ourselves_nor_what_we_descend_from_is_ever_signalled() {
        let us = rustix::process::getpid().as_raw_pid();
        let above = ourselves_and_above(&snapshot().unwrap());
        assert!(above.contains(&us) && above.contains(&entry(us).unwrap().parent), "{above:?}");
        assert!(!above.contains(&0), "nobody's parent");
    }

    #[test]
    fn l14_a_process_is_known_by_its_environment_where_its_limits_say_nothing() {
        let [ours, other] = [(); 2].map(|()| RunMarker::generate().unwrap());
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("600")
            .env(MARKER_VARIABLE, ours.to_string())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let deadline = Instant::now() + Duration::from_secs(10);
        // A program that was just executed has no environment to be read for a moment.
        while environ(pid).is_none_or(|environ| environ.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1)); // poll: /proc
        }
        let seen = (is_marked(pid, ours), is_marked(pid, other), lineage(pid) == Some(ours.lineage()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, (true, false, true));
    }
}
