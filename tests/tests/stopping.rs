//! Stopping a run as a person does: keys in a terminal, a window that is closed, and agents that do not want to.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
    time::{Duration, Instant},
};

use offspring_tests::{
    World,
    processes::{self, Seen, SignalName as Signal},
    terminal::Terminal,
    until,
};

/// Four levels that end when they are asked to, and three that never do.
const POOL: &str = "
entry: top
agents:
  top: {type: command, command: [sh, -c, 'setsid sleep @SLEEP@ & offspring task mid x']}
  mid: {type: command, command: [sh, -c, 'offspring task low x']}
  low: {type: command, command: [sh, -c, 'env -i setsid sleep @SLEEP@ & offspring task leaf x']}
  leaf: {type: command, command: [sh, -c, 'echo at work >&2; setsid sleep @SLEEP@ & exec sleep @SLEEP@']}
  stubborn: {type: command, stop_grace_ms: 8000, command: [sh, -c, 'trap \"\" TERM INT HUP; offspring task sullen x & while :; do sleep @SLEEP@; done']}
  sullen: {type: command, stop_grace_ms: 8000, command: [sh, -c, 'trap \"\" TERM INT HUP; offspring task deaf x & env -i setsid sleep @SLEEP@ & while :; do sleep @SLEEP@; done']}
  deaf: {type: command, stop_grace_ms: 8000, command: [sh, -c, 'trap \"\" TERM INT HUP; echo not me >&2; setsid sleep @SLEEP@ & while :; do sleep @SLEEP@; done']}
  tidies: {type: command, command: [sh, -c, 'trap \"touch asked; sleep 0.3; touch tidied; exit 0\" TERM; sleep @SLEEP@ & wait']}
  floods: {type: command, stop_grace_ms: 8000, command: [sh, -c, 'offspring task deaf x & while :; do seq 3000; done']}
";
/// Sleepers of `top` and of `stubborn`.
const DEEP: usize = 4;
const STUBBORN: usize = 5;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// Every run of the newest tree, parents first.
fn states(world: &World) -> Vec<String> {
    let tree = world.tree("latest");
    tree.iter().map(|session| session["run_state"].as_str().unwrap().to_owned()).collect()
}

/// The agents of the newest tree in the order in which they ended.
fn ends(world: &World) -> Vec<String> {
    let log = world.offspring(&["watch", "latest", "--json"]).with(0).stdout;
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .filter(|line| {
            line["event"]["data"]["outcome"].is_string() && line["event"]["kind"] == "status_changed"
        })
        .map(|line| line["agent"].as_str().unwrap().to_owned())
        .collect()
}

/// What lives of a world, but for the shell of a terminal.
fn left(world: &World) -> Vec<Seen> {
    let mut left = world.processes();
    left.retain(|seen| !seen.line.contains("777;ended="));
    left
}

fn is_as_it_was(terminal: &Terminal) {
    assert!(terminal.cursor().visible, "the cursor is back");
    assert!(!terminal.is_alternate() && terminal.wraps() && terminal.is_cooked());
}

#[test]
fn l14_ctrl_c_cancels_from_the_leaves_says_what_a_second_one_does_and_leaves_the_terminal_as_it_was() {
    let world = world();
    let mut terminal = Terminal::start(&world.run_command("top", "x", &[]), 24, 120);
    world.until_sleepers(DEEP);
    terminal.until_text("at work");
    let started = Instant::now();
    terminal.keys("\u{3}");
    assert_eq!(terminal.wait_within(Duration::from_secs(10)), Some(130));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(left(&world), []);
    is_as_it_was(&terminal);
    let shown = terminal.scrolled().join("\n");
    assert!(shown.contains("cancelling; once more to force"), "{shown}");
    assert!(shown.contains("cancelled: 4 sessions, depth 3, 0 failed, 4 cancelled, "), "{shown}");
    assert!(shown.replace('\n', "").contains(" tree ses_"), "{shown}");
    assert_eq!(states(&world), ["cancelled"; 4]);
    assert_eq!(ends(&world), ["leaf", "low", "mid", "top"]);
    assert_eq!(world.picture(&world.path("tmp")), []);
}

#[test]
fn l14_a_second_ctrl_c_kills_a_tree_of_programs_that_ignore_signals_within_a_second() {
    let world = world();
    let mut terminal = Terminal::start(&world.run_command("stubborn", "x", &[]), 24, 120);
    world.until_sleepers(STUBBORN);
    terminal.until_text("not me");
    terminal.keys("\u{3}");
    terminal.until_text("cancelling; once more to force");
    let started = Instant::now();
    terminal.keys("\u{3}");
    assert_eq!(terminal.wait_within(Duration::from_secs(10)), Some(130));
    let took = started.elapsed();
    assert_eq!(left(&world), []);
    assert!(took < Duration::from_secs(1), "{took:?}");
    is_as_it_was(&terminal);
    let shown = terminal.scrolled().join("\n");
    assert!(shown.contains("cancelled: 3 sessions, depth 2, 0 failed, 3 cancelled, "), "{shown}");
    assert!(shown.replace('\n', "").contains(" tree ses_"), "{shown}");
    assert_eq!(states(&world), ["cancelled"; 3]);
    assert_eq!(world.picture(&world.path("tmp")), []);
}

#[test]
fn l14_a_window_that_is_closed_cancels_the_run() {
    for as_leader in [true, false] {
        let world = world();
        let command = world.run_command("top", "x", &[]);
        let mut terminal = if as_leader {
            Terminal::start_as_leader(&command, 24, 120)
        } else {
            Terminal::start(&command, 24, 120)
        };
        world.until_sleepers(DEEP);
        terminal.until_text("at work");
        let started = Instant::now();
        terminal.close_window();
        if as_leader {
            assert_eq!(terminal.wait_within(Duration::from_secs(10)), Some(129));
        }
        world.until_nothing_lives(Duration::from_secs(10));
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!(states(&world), ["cancelled"; 4]);
        assert_eq!(ends(&world), ["leaf", "low", "mid", "top"], "asked, not killed");
    }
}

#[test]
fn l14_every_signal_can_be_repeated_to_force() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let world = world();
        let mut command = world.run_command("stubborn", "x", &["--quiet"]);
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(run.stderr.take().unwrap());
        world.until_sleepers(STUBBORN);
        processes::send(run.id(), signal);
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert_eq!(line, "cancelling; once more to force\n");
        let started = Instant::now();
        // A second hang-up so soon would be the same one.
        processes::send(run.id(), if signal == Signal::HUP { Signal::TERM } else { signal });
        let ended = until("its end", Duration::from_secs(5), || run.try_wait().unwrap());
        let took = started.elapsed();
        assert_eq!(ended.code(), Some(code));
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(left(&world), []);
        assert_eq!(states(&world), ["cancelled"; 3]);
        stderr.read_to_string(&mut line).unwrap();
        assert!(line.contains("look at it with: "), "{line}");
    }
}

#[test]
fn l14_a_closed_terminal_that_is_told_twice_forces_nothing() {
    let world = world();
    let run = world.start("tidies", "x", &["--quiet"]);
    world.until_sleepers(1);
    // By the system and by the shell; an agent has its grace all the same.
    run.send(Signal::HUP);
    run.send(Signal::HUP);
    until("the agent's last words", Duration::from_secs(5), || {
        world.here().join("asked").exists().then_some(())
    });
    run.send(Signal::HUP);
    let _ = run.finish_within(Duration::from_secs(10)).with(129);
    assert!(world.here().join("tidied").exists(), "it was killed before it had put things in order");
    assert_eq!(states(&world), ["cancelled"]);
    assert_eq!(left(&world), []);
}

/// Takes as long as a program may take that never ends by itself and whose reader has stopped reading.
#[test]
fn l14_one_signal_ends_a_run_within_ten_seconds_whatever_its_agents_and_its_reader_do() {
    let world = world();
    let mut command = world.run_command("floods", "x", &["--json"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    world.until_sleepers(2);
    let stdout = run.stdout.as_ref().unwrap();
    until("a pipe that is full", Duration::from_secs(20), || {
        (rustix::io::ioctl_fionread(stdout).unwrap() > 30 << 10).then_some(())
    });
    let started = Instant::now();
    processes::send(run.id(), Signal::TERM);
    let ended = until("its end", Duration::from_secs(20), || run.try_wait().unwrap());
    let took = started.elapsed();
    assert_eq!(ended.code(), Some(143));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(left(&world), []);
    assert_eq!(states(&world), ["cancelled"; 2]);
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("look at it with: ") && said.contains(" tree ses_"), "{said}");
}

#[test]
fn ctrl_c_before_anything_runs_leaves_nothing() {
    // The prompt is still being typed.
    let world = world();
    let mut command = world.command(&["run"]);
    command.arg(world.path("pool/pool.yaml")).arg("-");
    let mut terminal = Terminal::start(&command, 24, 120);
    terminal.until_text("type the prompt; Ctrl-D on a line of its own ends it");
    terminal.keys("What is\r\u{3}");
    assert_eq!(terminal.wait(), Some(130));
    is_as_it_was(&terminal);
    assert!(!world.db().exists());
    assert_eq!(world.picture(&world.path("tmp")), []);

    // And Ctrl-D sends it.
    let mut command = world.command(&["run"]);
    command
        .args(["--node", "echo", "--quiet"])
        .arg(world.write("pool/echo.yaml", "agents: {echo: {type: command, command: [cat]}}"))
        .arg("-");
    let mut terminal = Terminal::start(&command, 24, 120);
    terminal.until_text("type the prompt");
    terminal.keys("over and out\r\u{4}");
    assert_eq!(terminal.wait(), Some(0));
    assert_eq!(terminal.text().matches("over and out").count(), 2, "{}", terminal.text());
}
