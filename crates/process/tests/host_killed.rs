//! L14: `kill -9` of the program that started everything, and of its guard as well.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod world;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use offspring_process::{ProcessIdentity, Stdin, left_over, spawn, sweep};
use tokio::io::AsyncWriteExt;
use world::{guarded, guards, kill_9, living, shell, token, until, until_sleepers};

const SCRIPT: &str = "OFFSPRING_TEST_SCRIPT";

/// Not a test of its own: the program that is killed. It is this file's binary, started again with a script to run.
#[test]
fn host_program() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let spec = if std::env::var_os("OFFSPRING_TEST_UNGUARDED").is_some() {
        shell(&script)
    } else {
        guarded(&script)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        process.take_stdin().unwrap().write_all(b"go\n").await.unwrap();
        println!("\nidentity {}", process.identity().unwrap());
        process.wait().await;
    });
}

/// The host and what it says about the process it runs.
fn host(script: &str, unguarded: bool) -> (Child, ProcessIdentity) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "host_program", "--nocapture"]).env(SCRIPT, script).stdout(Stdio::piped());
    if unguarded {
        command.env("OFFSPRING_TEST_UNGUARDED", "1");
    }
    let mut host = command.spawn().unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines().map_while(Result::ok);
    let identity = lines.filter_map(|line| line.strip_prefix("identity ")?.parse().ok()).next();
    (host, identity.unwrap())
}

/// The processes of this token that are found as left over.
fn left_behind(token: &str) -> Vec<(u32, String)> {
    let mut found = living(token);
    let left: Vec<u32> = left_over().unwrap().into_iter().map(|left| left.pid).collect();
    found.retain(|(pid, _)| left.contains(pid));
    found
}

/// It begins when the host says so. Without a guard a process is marked when it runs already, and what it has orphaned
/// before, with an empty environment, is not found.
const HIDING: &str =
    "read go; setsid sleep @ & env -i /usr/bin/setsid sleep @ & (env -i /usr/bin/setsid sh -c '(sleep @ &) &' &) &
    (trap '' TERM; exec setsid sleep @) & sleep @";

#[test]
fn l14_kill_9_of_the_host_leaves_no_process_after_five_seconds() {
    let token = token();
    let (mut host, identity) = host(&HIDING.replace('@', &token), false);
    until_sleepers(&token, 5);
    assert!(identity.is_alive().unwrap());
    host.kill().unwrap();
    host.wait().unwrap();
    // The guard is the last to go.
    let gone = || living(&token).is_empty() && !identity.is_alive().unwrap();
    until("nothing of the run lives", Duration::from_secs(5), || gone().then_some(()));
}

#[test]
fn l14_kill_9_of_host_and_guard_at_once_is_cleaned_up_by_the_next_start() {
    let token = token();
    let (mut host, identity) = host(&HIDING.replace('@', &token), false);
    until_sleepers(&token, 5);
    assert_eq!(left_behind(&token), [], "its program lives");
    let guard = guards(&token);
    assert_eq!(guard, [identity.pid()]);
    kill_9(&[host.id(), guard[0]]);
    host.wait().unwrap();
    until("the guard is dead", Duration::from_secs(5), || guards(&token).is_empty().then_some(()));
    assert!(!identity.is_alive().unwrap());
    // Nobody is there to end them; else this test would show nothing about the second net.
    assert!(living(&token).len() >= 5);
    assert_eq!(left_behind(&token), living(&token), "whoever looks sees all of it");
    // As a store would keep it.
    let identity: ProcessIdentity = identity.to_string().parse().unwrap();
    let left = identity.kill_leftovers().unwrap();
    assert_eq!(living(&token), []);
    assert!(left.killed >= 5, "{left:?}");
    assert_eq!(left.survivors, []);
    assert_eq!(left_behind(&token), []);
    // A second sweep finds nothing.
    assert_eq!(identity.kill_leftovers().unwrap().killed, 0);
}

#[test]
fn l14_without_a_guard_the_next_start_finds_everything_by_the_marker_alone() {
    let token = token();
    let (mut host, identity) = host(&HIDING.replace('@', &token), true);
    until_sleepers(&token, 5);
    assert_eq!(left_behind(&token), [], "its program lives");
    host.kill().unwrap();
    host.wait().unwrap();
    assert!(identity.is_alive().unwrap(), "the documented limit of a run without a guard");
    assert!(!left_behind(&token).is_empty());
    let left = sweep(identity.marker()).unwrap();
    assert!(left.killed >= 6, "{left:?}");
    assert_eq!(living(&token), []);
}

#[test]
fn l14_kill_9_at_any_moment_of_a_start_leaves_no_process() {
    // The moments of a start cannot be waited for; they are hit by many tries at growing distances, until enough of
    // them had something to clean up.
    let token = token();
    let (mut hits, mut microseconds) = (0, 0);
    while hits < 10 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "host_program", "--nocapture"]).stdout(Stdio::null());
        let script = format!("env -i /usr/bin/setsid sleep {token} & trap '' TERM; read go; sleep {token}");
        let mut host = command.env(SCRIPT, script).spawn().unwrap();
        let started = Instant::now();
        while started.elapsed() < Duration::from_micros(microseconds) {
            std::hint::spin_loop();
        }
        host.kill().unwrap();
        host.wait().unwrap();
        hits += usize::from(!living(&token).is_empty());
        microseconds += 250;
        assert!(microseconds < 500_000, "only {hits} tries hit a start");
    }
    until("nothing of any run lives", Duration::from_secs(5), || living(&token).is_empty().then_some(()));
}
