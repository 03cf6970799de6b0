//! Linux: what of the kernel is there, and which processes of runs were left behind.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{PidfdFlags, child_subreaper, geteuid, getpid, pidfd_open};

use super::procfs::{Entry, lineage, ourselves_and_above, snapshot};
use crate::{Facilities, LeftOver};

/// How every program that starts guards for agents is called.
const PROGRAM: &str = "offspring";

pub(crate) fn facilities() -> Facilities {
    Facilities {
        subreaper: child_subreaper().is_ok(),
        pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
        processes: snapshot()
            .is_ok_and(|entries| entries.iter().any(|entry| entry.pid == getpid().as_raw_pid())),
    }
}

pub(crate) fn left_over() -> io::Result<Vec<LeftOver>> {
    let entries = snapshot()?;
    let spared = ourselves_and_above(&entries);
    let ours = geteuid().as_raw();
    let is_ours = |pid: i32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|found| found.uid() == ours);
    let marked: HashMap<i32, u64> = entries
        .iter()
        .filter(|entry| !entry.dead && !spared.contains(&entry.pid) && is_ours(entry.pid))
        .filter_map(|entry| Some((entry.pid, lineage(entry.pid)?)))
        .collect();
    let by_pid: HashMap<i32, &Entry> = entries.iter().map(|entry| (entry.pid, entry)).collect();
    let places: Vec<(i32, u64, (i32, i32))> =
        marked.iter().map(|(&pid, &run)| (pid, run, above(pid, run, &marked, &by_pid))).collect();
    // Who holds one process of a run holds those that fell to it as well.
    let held: HashSet<(u64, i32)> = places
        .iter()
        .filter(|(_, _, (top, above))| is_held(*top, *above, &by_pid))
        .map(|&(_, run, (_, above))| (run, above))
        .collect();
    let mut found: Vec<LeftOver> = places
        .into_iter()
        .filter(|&(_, run, (_, above))| !held.contains(&(run, above)))
        // Whoever has ended meanwhile was not left behind.
        .filter_map(|(pid, ..)| Some(LeftOver { pid: pid.unsigned_abs(), name: name(pid)? }))
        .collect();
    found.sort_by_key(|left| left.pid);
    Ok(found)
}

/// The topmost process of the run, and the one above it that does not belong to it.
fn above(pid: i32, run: u64, marked: &HashMap<i32, u64>, entries: &HashMap<i32, &Entry>) -> (i32, i32) {
    let (mut top, mut above) = (pid, 0);
    // No longer than there are processes: what is read one after another may contain a cycle.
    for _ in 0..entries.len() {
        above = entries.get(&top).map_or(0, |entry| entry.parent);
        if marked.get(&above) != Some(&run) {
            break;
        }
        top = above;
    }
    (top, above)
}

/// Whether what is above a run is the program that started it. A guard is told who that is; orphans of a dead guard
/// fall to that program, which ends them in a moment; what has no guard stays in the session of the program.
fn is_held(top: i32, above: i32, entries: &HashMap<i32, &Entry>) -> bool {
    let session = |pid: i32| entries.get(&pid).map(|entry| entry.session);
    is_guard_of(top, above) || is_program(above) || (above > 1 && session(top) == session(above))
}

/// Whether a process is a guard that this one started: its pid, the grace and the program, one after another.
fn is_guard_of(pid: i32, above: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).take(16).collect();
    arguments.windows(3).any(|three| {
        three[0] == above.to_string().as_bytes()
            && !three[1].is_empty()
            && three[1].iter().all(u8::is_ascii_digit)
            && three[2].starts_with(b"/")
    })
}

fn is_program(pid: i32) -> bool {
    let file = std::fs::read_link(format!("/proc/{pid}/exe"));
    // After an update it is called `offspring (deleted)`.
    let name = file.as_deref().ok().and_then(Path::file_name).map(OsStr::as_bytes);
    name.is_some_and(|name| name.starts_with(PROGRAM.as_bytes()))
}

fn name(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunMarker;

    #[test]
    fn l14_every_lineage_number_is_known_as_one() {
        for _ in 0..100 {
            assert!(RunMarker::is_lineage(RunMarker::generate().unwrap().lineage()));
        }
        // Unlimited, none, and what somebody may have set.
        for other in [u64::MAX, 0, 200_000, 1 << 60, 1 << 62] {
            assert!(!RunMarker::is_lineage(other), "{other}");
        }
    }

    #[test]
    fn l14_a_guard_is_known_by_who_started_it_its_grace_and_its_program_and_by_nothing_less() {
        let line = |arguments: &[&str]| {
            let mut child = std::process::Command::new("/bin/sh")
                .args(["-c", "echo; read end", "guard"])
                .args(arguments)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            // It has been executed once it has said so.
            io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut [0]).unwrap();
            let is_guard = is_guard_of(child.id().cast_signed(), 77);
            child.wait().unwrap();
            is_guard
        };
        assert!(line(&["77", "500", "/bin/true", "more"]));
        let others: [&[&str]; 6] = [
            &["78", "500", "/bin/true"],
            &["77", "", "/bin/true"],
            &["77", "5s", "/bin/true"],
            &["77", "500", "true"],
            &["500", "77", "/bin/true"],
            &["77", "500"],
        ];
        for other in others {
            assert!(!line(other), "{other:?}");
        }
    }

    #[test]
    fn this_kernel_has_what_the_tests_of_this_crate_need() {
        let here = facilities();
        assert!(here.subreaper && here.pidfd && here.processes, "{here:?}");
    }
}
