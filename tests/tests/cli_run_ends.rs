//! However `offspring run` ends, no process of the run is left (rule L14), on Linux.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use offspring_tests::{
    Running, World,
    processes::{self, Seen, SignalName as Signal},
};

const POOL: &str = "
agents:
  top: {type: command, command: [sh, -c, 'setsid sleep @SLEEP@ & env -i setsid sleep @SLEEP@ & offspring task mid x']}
  mid: {type: command, command: [sh, -c, 'offspring task leaf x']}
  leaf: {type: command, command: [sh, -c, 'sleep @SLEEP@ & setsid sleep @SLEEP@ & env -i setsid sleep @SLEEP@ & exec sleep @SLEEP@']}
  stubborn: {type: command, stop_grace_ms: 8000, command: [sh, -c, 'trap \"\" TERM INT HUP; env -i setsid sleep @SLEEP@ & while :; do sleep @SLEEP@; done']}
  leaves: {type: command, command: [sh, -c, 'setsid sleep @SLEEP@ & env -i setsid sleep @SLEEP@ & echo gone']}
  much: {type: command, command: [seq, '30000']}
  ever: {type: command, command: [sh, -c, 'while :; do seq 3000; done']}
entry: top
";
const SLEEPERS: usize = 6;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

#[test]
fn l14_after_ctrl_c_and_the_other_ways_to_ask_nothing_is_left_and_the_code_says_which() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let world = world();
        let run = world.start("top", "x", &[]);
        world.until_sleepers(SLEEPERS);
        run.send(signal);
        let done = run.finish_within(Duration::from_secs(10)).with(code);
        assert_eq!(world.processes(), [], "after the program's own end");
        assert!(done.stderr.contains("cancelling; once more to force"), "{}", done.stderr);
        assert!(
            done.stderr
                .lines()
                .last()
                .unwrap()
                .starts_with("cancelled: 3 sessions, depth 2, 0 failed, 3 cancelled, "),
            "{}",
            done.stderr
        );
        assert_eq!(done.stdout, "");
        let states: Vec<_> =
            world.tree("latest").iter().map(|session| session["run_state"].clone()).collect();
        assert_eq!(states, ["cancelled", "cancelled", "cancelled"]);
        assert_eq!(world.picture(&world.path("tmp")), []);
    }
}

#[test]
fn l14_ctrl_c_twice_kills_what_is_left_at_once_and_the_run_is_cancelled() {
    let world = world();
    let run = world.start("stubborn", "x", &[]);
    world.until_sleepers(2);
    run.send(Signal::INT);
    // It has been heard; the agent ignores it and has 8 s.
    offspring_tests::until("the cancel", Duration::from_secs(5), || {
        let tree = world.offspring(&["ls"]).stdout;
        // poll: the store, through the program
        std::thread::sleep(Duration::from_millis(100));
        tree.contains("running").then_some(())
    });
    let started = Instant::now();
    run.send(Signal::INT);
    let done = run.finish_within(Duration::from_secs(2)).with(130);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(world.processes(), [], "after the program's own end");
    let last = done.stderr.lines().last().unwrap();
    assert!(last.starts_with("cancelled: 1 session, ") && last.contains("look at it with: "), "{last}");
    assert_eq!(world.tree("latest")[0]["run_state"], "cancelled");
    assert_eq!(world.picture(&world.path("tmp")), []);
}

#[test]
fn l14_five_seconds_after_kill_9_of_the_program_nothing_is_left_though_nobody_looked() {
    for node in ["top", "stubborn"] {
        let world = world();
        let run = world.start(node, "x", &["--quiet"]);
        world.until_sleepers(if node == "top" { SLEEPERS } else { 2 });
        run.send(Signal::KILL);
        world.until_nothing_lives(Duration::from_secs(5));
        assert_eq!(run.finish().signal, Some(9));
    }
}

#[test]
fn l14_what_an_agent_leaves_behind_ends_with_it() {
    let world = world();
    let done = world.run("leaves", "x", &["--quiet"]).with(0);
    assert_eq!(done.stdout, "gone\n");
    assert_eq!(world.processes(), []);
}

#[test]
fn l13_l14_when_program_and_guards_are_killed_at_once_the_next_command_ends_what_is_left() {
    let world = world();
    let run = world.start("top", "x", &["--quiet"]);
    world.until_sleepers(SLEEPERS);
    let program = run.pid();
    let guards: Vec<Seen> = world.processes().into_iter().filter(Seen::is_guard).collect();
    assert_eq!(guards.len(), 3, "{guards:?}");
    // Stopped first, so that none can act on the death of another.
    let all: Vec<u32> = guards.iter().map(|guard| guard.pid).chain([program]).collect();
    all.iter().for_each(|pid| processes::send(*pid, Signal::STOP));
    all.iter().for_each(|pid| processes::send(*pid, Signal::KILL));
    assert_eq!(run.finish().signal, Some(9));
    let left = world.sleepers();
    assert_eq!(left.len(), SLEEPERS, "nobody is there to end them: {left:?}");
    // A process of the same command line that is none of the run's.
    let mut stranger = std::process::Command::new("sleep").arg(world.token()).spawn().unwrap();

    let listed = world.offspring(&["ls"]).with(0).stdout;
    assert!(listed.starts_with("! interrupted "), "{listed}");
    let left: Vec<u32> = world.processes().into_iter().map(|seen| seen.pid).collect();
    assert_eq!(left, [stranger.id()]);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let states: Vec<_> = world.tree("latest").iter().map(|session| session["run_state"].clone()).collect();
    assert_eq!(states, ["interrupted", "interrupted", "interrupted"]);
}

#[test]
fn ctrl_c_is_heard_while_the_store_keeps_a_run_waiting() {
    let world = world();
    world.run("leaves", "x", &["--quiet"]).with(0);
    let holder = rusqlite::Connection::open(world.db()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let run = world.start("leaves", "x", &["--quiet"]);
    // Its signals are its own before it opens the store.
    let opened = world.db().with_extension("db-shm");
    offspring_tests::until("the open store", Duration::from_secs(10), || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", run.pid())).ok()?;
        files
            .flatten()
            .find(|file| std::fs::read_link(file.path()).is_ok_and(|path| path == opened))
            .map(drop)
    });
    run.send(Signal::INT);
    let _ = run.finish_within(Duration::from_secs(5)).with(130);
    drop(holder);
    let states: Vec<_> = world
        .json(&["ls", "--json"])
        .as_array()
        .unwrap()
        .iter()
        .map(|root| root["run_state"].clone())
        .collect();
    assert!(states.iter().all(|state| state != "running" && state != "pending"), "{states:?}");
    assert_eq!(world.processes(), []);
}

#[test]
fn l14_under_nohup_a_hang_up_is_not_heard() {
    let world = world();
    let line = world.run_command("top", "x", &["--quiet"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(line.get_program()).args(line.get_args());
    command.current_dir(world.here()).env("TMPDIR", world.path("tmp")).env("HOME", world.path("home"));
    let run = Running::start(command);
    world.until_sleepers(SLEEPERS);
    run.send(Signal::HUP);
    run.send(Signal::INT);
    let _ = run.finish().with(130);
    assert_eq!(world.processes(), []);
}

/// Starts a command whose output nobody reads, and waits until it can write no more.
fn unread(mut command: std::process::Command) -> std::process::Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let full = child.stdout.as_ref().unwrap();
    offspring_tests::until("a pipe that is full", Duration::from_secs(20), || {
        // It has 16 pages, and a line that does not fit into the rest of one begins the next: half of it may stay empty.
        (rustix::io::ioctl_fionread(full).unwrap() > 30 << 10).then_some(())
    });
    assert!(child.try_wait().unwrap().is_none());
    child
}

fn end_of(child: &mut std::process::Child) -> Option<i32> {
    let ended = offspring_tests::until("its end", Duration::from_secs(10), || child.try_wait().unwrap());
    ended.code()
}

#[test]
fn a_signal_is_heard_while_nobody_reads_the_answer() {
    let world = world();
    for (more, signal, code) in [(&[][..], Signal::INT, 130), (&["--json"], Signal::TERM, 143)] {
        let mut run = unread(world.run_command("much", "x", more));
        offspring_tests::until("the end of the run", Duration::from_secs(20), || {
            world.offspring(&["ls", "-n", "1"]).stdout.contains("completed").then_some(())
        });
        processes::send(run.id(), signal);
        assert_eq!(end_of(&mut run), Some(code), "{more:?}");
    }
    let mut watch = unread(world.command(&["watch", "latest", "--json"]));
    processes::send(watch.id(), Signal::INT);
    assert_eq!(end_of(&mut watch), Some(130));
    assert_eq!(world.processes(), []);
}

#[test]
fn l14_a_run_is_cancelled_while_nobody_reads_what_is_printed() {
    let world = world();
    let mut run = unread(world.run_command("ever", "x", &["--json"]));
    processes::send(run.id(), Signal::INT);
    offspring_tests::until("the cancel", Duration::from_secs(20), || {
        world.offspring(&["ls"]).stdout.contains("cancelled").then_some(())
    });
    // What is left to print is printed, or not, as whoever asked wants.
    processes::send(run.id(), Signal::INT);
    assert_eq!(end_of(&mut run), Some(130));
    world.until_nothing_lives(Duration::from_secs(5));
}
