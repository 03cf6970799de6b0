//! What the tests of this crate look at: the processes of the machine, found by a token in their command line.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::time::{Duration, Instant};

use offspring_process::{Environment, GuardProgram, ProcessSpec, RunMarker};

pub(crate) const GUARD: &str = env!("CARGO_BIN_EXE_offspring-guard");

/// A number of seconds for `sleep` that no other process of the machine sleeps.
pub(crate) fn token() -> String {
    let marker = RunMarker::generate().unwrap().to_string();
    let digits: String = marker.bytes().map(|byte| char::from(b'0' + byte % 10)).take(16).collect();
    format!("600.{digits}")
}

pub(crate) fn environment() -> Environment {
    Environment::empty().small_set()
}

pub(crate) fn shell(script: &str) -> ProcessSpec {
    ProcessSpec::new("/bin/sh", "/").args(["-c", script]).environment(environment())
}

pub(crate) fn guarded(script: &str) -> ProcessSpec {
    shell(script).guard(GuardProgram::new(GUARD))
}

/// With and without a guard: the same script.
pub(crate) fn both(script: &str) -> [(&'static str, ProcessSpec); 2] {
    [("guarded", guarded(script)), ("unguarded", shell(script))]
}

/// The command lines of living processes (no zombies) that hold a text.
pub(crate) fn living(text: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = file.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(file.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) && pid != std::process::id() && !is_dead(pid) {
            found.push((pid, line));
        }
    }
    found
}

/// Those of them that are the sleeper itself.
pub(crate) fn sleepers(token: &str) -> Vec<u32> {
    living(token).into_iter().filter(|(_, line)| line.starts_with("sleep ")).map(|(pid, _)| pid).collect()
}

pub(crate) fn guards(token: &str) -> Vec<u32> {
    living(token).into_iter().filter(|(_, line)| line.starts_with(GUARD)).map(|(pid, _)| pid).collect()
}

pub(crate) fn is_dead(pid: u32) -> bool {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']) || rest.is_empty())
}

/// A bounded wait for something the system has no event for.
pub(crate) fn until<T>(what: &str, bound: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        // poll: what the caller looks at
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn until_sleepers(token: &str, count: usize) -> Vec<u32> {
    until(&format!("{count} sleepers"), Duration::from_secs(10), || {
        Some(sleepers(token)).filter(|found| found.len() >= count)
    })
}

/// `kill -9` by the system's own tool, of all at once: stopped first, so that none acts on the death of another.
pub(crate) fn kill_9(pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "kill -STOP \"$@\" && kill -9 \"$@\"", "sh"])
        .args(pids)
        .status();
    assert!(status.unwrap().success());
}
