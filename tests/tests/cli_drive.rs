//! `offspring drive`: one turn of a runtime, through the program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{os::unix::fs::PermissionsExt, process::Command, time::Duration};

use offspring_tests::{
    Running, World,
    dsh::{RealRuntime, fixture},
    fake_runtime,
    processes::SignalName as Signal,
};
use serde_json::Value;

/// `drive` of a script of the kit, or of a trace.
fn drive(world: &World, runtime: &str, more: &[&str]) -> Command {
    let runtime = format!("{} {runtime}", fake_runtime().display());
    let mut command = world.command(&["drive", "--runtime", &runtime]);
    command.args(more);
    command
}

fn trace(name: &str) -> String {
    format!("--trace {}", fixture(name).display())
}

#[test]
fn the_answer_is_on_stdout_and_who_was_started_on_stderr() {
    let world = World::new();
    let done = Running::start(drive(&world, &trace("b_nested.jsonl"), &["--session", "root", "--tree", "x"]));
    let done = done.finish().with(0);
    assert_eq!(done.stdout, "noted\n");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("+ ")).count(), 2, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with(" finished: ok")).count(), 2, "{lines:?}");
    assert!(lines.last().unwrap().starts_with("completed: 3 sessions, 0 failed or open, 88 notifications"));
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn without_tree_it_ends_at_the_session_s_own_idle() {
    let world = World::new();
    let done = Running::start(drive(&world, &trace("b_nested.jsonl"), &["--session", "root", "--json", "x"]));
    let done = done.finish().with(0);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, notifications) = lines.split_last().unwrap();
    let result = &result["result"];
    assert_eq!((&result["end"], &result["session_id"]), (&"idle".into(), &"root".into()));
    assert_eq!(result["notifications"], notifications.len());
    // T13: from the receipt to the idle.
    assert_eq!(notifications[0]["params"]["event"]["type"], "agent/inbox/spliced");
    assert_eq!(notifications.last().unwrap()["params"]["status"], "idle");
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}

#[test]
fn t9_every_notification_is_a_line_as_it_came_and_the_result_is_the_last() {
    let world = World::new();
    let file = world.path("wire.jsonl");
    let arguments = [
        "--session",
        "root",
        "--tree",
        "--json",
        "--trace",
        file.to_str().unwrap(),
        "--pass",
        "SECRET_NAME",
        "x",
    ];
    let mut command = drive(&world, &trace("c_parallel3.jsonl"), &arguments);
    command.env("SECRET_NAME", "root");
    let done = Running::start(command).finish().with(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let result: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let tree = result["result"]["tree"].as_array().unwrap();
    assert_eq!(tree.len(), 3);
    assert!(tree.iter().all(|child| child["runs"][0]["status"] == "ok" && child["parent"] == "root"));
    let recorded = std::fs::read_to_string(fixture("c_parallel3.jsonl")).unwrap();
    let payloads = lines[..lines.len() - 1].iter().filter(|line| {
        let (_, params) = line.split_once("\"params\":").unwrap();
        recorded.contains(&params[..params.len() - 1])
    });
    assert_eq!(payloads.count(), lines.len() - 1, "a payload was changed on the way");

    // W10: what was passed on stands nowhere in the trace.
    let wire = std::fs::read_to_string(&file).unwrap();
    assert!(wire.contains("[redacted]") && !wire.contains("\"root\""));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for line in wire.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(matches!(line["dir"].as_str(), Some("c2s" | "s2c")), "{line}");
    }
    Running::start(command_again(&world, &file)).finish().with(2);
}

fn command_again(world: &World, file: &std::path::Path) -> Command {
    drive(world, &trace("a_single.jsonl"), &["--session", "root", "--trace", file.to_str().unwrap(), "x"])
}

#[test]
fn w4_a_runtime_that_dies_is_an_error_with_its_exit_and_its_last_words() {
    let world = World::new();
    let done = Running::start(drive(&world, "t13-the-runtime-dies-in-a-turn", &["--session", "root", "x"]));
    let done = done.finish().with(1);
    assert!(
        done.stderr.contains("the runtime is gone") && done.stderr.contains("signal 9"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("out of cheese"), "{}", done.stderr);

    let done =
        Running::start(world.command(&["drive", "--runtime", "sh -c 'echo oops >&2; exit 3'", "x"])).finish();
    let done = done.with(1);
    assert!(done.stderr.contains("exited with code 3") && done.stderr.contains("oops"), "{}", done.stderr);
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn w10_what_a_runtime_was_given_is_in_no_error_and_in_no_trace() {
    let world = World::new();
    let file = world.path("wire.jsonl");
    let script = "head -n 1; echo \"key: $ODD_KEY\" >&2; exit 3";
    let mut command =
        world.command(&["drive", "--runtime", &format!("sh -c '{script}'"), "--pass", "ODD_KEY"]);
    // It goes out with the prompt's session, so that it is in a string of JSON.
    let secret = "se\"cret\\word";
    command.env("ODD_KEY", secret).args(["--trace", file.to_str().unwrap(), "--model", secret, "x"]);
    let done = Running::start(command).finish().with(1);
    assert!(done.stderr.contains("key: [redacted]") && !done.stderr.contains("cret"), "{}", done.stderr);
    let wire = std::fs::read_to_string(&file).unwrap();
    assert!(wire.contains("[redacted]") && !wire.contains("cret"), "{wire}");
}

#[test]
fn w8_a_timeout_bounds_the_turn_wherever_it_hangs() {
    let world = World::new();
    for (script, more) in [
        ("w08-a-prompt-that-is-not-answered", &["x"][..]),
        ("end-a-finish-that-never-comes", &["--tree", "x"]),
    ] {
        let mut command = drive(&world, script, &["--session", "root", "--timeout", "1"]);
        command.args(more);
        Running::start(command).finish_within(Duration::from_secs(10)).with(1);
    }
}

#[test]
fn w11_nothing_that_a_runtime_says_steers_a_terminal_through_stderr() {
    let world = World::new();
    let script = "w11-control-sequences";
    let done = Running::start(drive(&world, script, &["--session", "root", "x"])).finish();
    assert!(!done.stderr.contains('\u{1b}') && !done.stderr.contains('\u{9b}'), "{:?}", done.stderr);
    // A pipe loses nothing.
    assert!(done.stdout.contains("four\u{1b}[2J"), "{:?}", done.stdout);
}

#[test]
fn w7_a_signal_ends_the_runtime_and_leaves_no_process() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let world = World::new();
        let mut running = Running::start(drive(
            &world,
            "w08-a-prompt-that-is-not-answered",
            &["--session", "root", "--json", "x"],
        ));
        offspring_tests::until("the runtime is there", Duration::from_secs(10), || {
            (world.processes().len() >= 2).then_some(())
        });
        assert!(!running.has_ended(), "it waits for its turn");
        running.send(signal);
        running.finish_within(Duration::from_secs(10)).with(code);
        world.until_nothing_lives(Duration::from_secs(5));
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_is_started() {
    let world = World::new();
    let wrong: [(&[&str], &str); 6] = [
        (&["drive", "--runtime", "x"], "there is no prompt"),
        (&["drive", "--runtime", "", "x"], "is no command line"),
        (&["drive", "--runtime", "sh 'open", "x"], "is no command line"),
        (&["drive", "--runtime", "no-such-program-anywhere", "x"], "not found"),
        (&["drive", "--runtime", "sh", "--session", "", "x"], "--session"),
        (&["drive", "--runtime", "sh", "--patch", "missing.yml", "x"], "--patch missing.yml"),
    ];
    for (words, said) in wrong {
        let done = world.offspring(words).with(2);
        assert!(done.stderr.contains(said) && done.stderr.lines().count() <= 6, "{words:?}: {}", done.stderr);
    }
}

#[test]
fn a_real_runtime_is_driven_and_what_it_did_not_load_is_an_error() {
    let Some(real) = RealRuntime::for_test("a_real_runtime_is_driven_and_what_it_did_not_load_is_an_error")
    else {
        return;
    };
    let world = World::new();
    let drive = |patch: &std::path::Path| {
        let program = real.program().display().to_string();
        let mut command = world.command(&["drive", "--runtime", &program, "--profile", real.profile.name]);
        command.arg("--patch").arg(patch).args(["--tree", "DELEGATE 2"]);
        command.envs(real.environment());
        Running::start(command).finish()
    };
    let done = drive(&real.profile.patches[0]).with(0);
    assert!(done.stderr.contains("completed: 3 sessions, 0 failed"), "{}", done.stderr);

    let missing = "- insert:\n    - id: subagent\n      name: '@deepseek-ai/dsh-no-such-plugin'\n";
    let broken = world.write("broken.patch.yml", missing);
    let done = drive(&broken).with(1);
    assert!(
        done.stderr.contains("did not activate") && done.stderr.contains("dsh-no-such-plugin"),
        "{}",
        done.stderr
    );
}
