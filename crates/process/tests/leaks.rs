//! L14: many starts leave neither zombies nor file descriptors. One test, so that it has a process to itself.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod world;

use std::time::{Duration, Instant};

use offspring_process::{Ladder, Stdin, spawn};
use world::both;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Zombies included.
fn children() -> Vec<String> {
    let us = std::process::id().to_string();
    let stat = |name: &str| std::fs::read_to_string(format!("/proc/{name}/stat")).ok();
    let ours =
        |stat: &String| stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1) == Some(&us);
    let names =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|file| file.file_name().into_string().ok());
    names.filter(|name| name.parse::<u32>().is_ok()).filter_map(|name| stat(&name)).filter(ours).collect()
}

#[tokio::test]
async fn l14_two_hundred_starts_and_stops_leave_no_zombie_and_no_descriptor() {
    let cycle = async |number: usize| {
        for (_, spec) in both("setsid sleep 600 & read line; exit 0") {
            let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
            match number % 4 {
                0 => drop(process.stop(Ladder::at_once()).await),
                1 => drop(process.stop(Ladder::terminate()).await),
                2 => {
                    drop(process.take_stdin());
                    process.wait().await;
                }
                _ => drop(process),
            }
        }
    };
    cycle(0).await;
    let before = descriptors();
    for number in 0..100 {
        cycle(number).await;
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while descriptors() > before || !children().is_empty() {
        assert!(Instant::now() < deadline, "{} fds of {before}, {:?}", descriptors(), children());
        // poll: descriptors and children of this process
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
