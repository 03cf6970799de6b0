//! Where it was measured.

use std::{fs, process::Command, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::Size;

/// The line that belongs to every figure below it.
pub(crate) fn print(what: &str, size: Size) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let said = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
        output.map_or_else(
            || "unknown".to_owned(),
            |output| first_line(&String::from_utf8_lossy(&output.stdout)),
        )
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = value(&read("/proc/cpuinfo"), "model name");
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kernel = first_line(&read("/proc/sys/kernel/osrelease"));
    let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
    println!(
        "offspring, {what} benchmark ({})",
        if size == Size::Smoke { "smoke: times say little" } else { "full" }
    );
    println!("machine: {cpu}, {cores} cores, memory {memory}, {} {kernel}", std::env::consts::OS);
    println!(
        "compiler: {}; commit: {}; load before: {load}",
        said("rustc", &["--version"]),
        said("git", &["describe", "--always", "--dirty"])
    );
}

fn value(table: &str, key: &str) -> String {
    let line = table.lines().find(|line| line.starts_with(key));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// CPU time of all threads of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes of memory this process holds at present; `None` where the system does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}
