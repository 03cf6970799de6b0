//! `offspring cancel`: from another terminal; returns when the last process is gone (rule L14).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::{Duration, Instant};

use offspring_tests::World;
use serde_json::Value;

const POOL: &str = "
agents:
  top: {type: command, command: [sh, -c, 'offspring task mid x']}
  mid: {type: command, command: [sh, -c, 'offspring task leaf x']}
  leaf: {type: command, command: [sh, -c, 'sleep @SLEEP@ & setsid sleep @SLEEP@ & env -i setsid sleep @SLEEP@ & exec sleep @SLEEP@']}
  ignores: {type: command, stop_grace_ms: 300, command: [sh, -c, 'trap \"\" TERM INT HUP; setsid sleep @SLEEP@ & while :; do sleep @SLEEP@; done']}
  two: {type: command, command: [sh, -c, 'offspring task --detach leaf x; offspring task --detach leaf y; sleep @SLEEP@']}
  bye: {type: command, command: [sh, -c, 'trap \"echo bye; echo and more; touch cleaned; exit 0\" TERM; sleep @SLEEP@ & wait']}
entry: top
";

#[cfg(target_os = "linux")]
#[test]
fn l14_cancel_from_another_terminal_ends_the_whole_tree_leaf_first_and_leaves_no_process() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("top", "x", &["--json"]);
    world.until_sleepers(4);
    let started = Instant::now();
    let cancelled = world.offspring(&["cancel", "latest"]).with(0);
    // When it returns.
    assert_eq!(world.sleepers(), []);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(cancelled.stdout.contains("cancelled 3 sessions"), "{cancelled:?}");
    let run = run.finish().with(1);
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["event"]["kind"] == "status_changed" && line["event"]["data"]["state"] == "idle")
        .map(|line| (line["agent"].as_str().unwrap(), line["event"]["data"]["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(ended, [("leaf", "cancelled"), ("mid", "cancelled"), ("top", "cancelled")]);
    assert_eq!(lines.last().unwrap()["event"]["data"]["outcome"], "cancelled");
    world.until_nothing_lives(Duration::from_secs(2));
    // A second one finds nothing.
    let again = world.json(&["cancel", "latest", "--json"]);
    assert_eq!(again["result"], "at_rest");
}

#[cfg(target_os = "linux")]
#[test]
fn l14_a_program_that_ignores_signals_is_killed_with_what_left_its_group() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("ignores", "x", &["--quiet"]);
    world.until_sleepers(2);
    let started = Instant::now();
    world.offspring(&["cancel", "latest"]).with(0);
    assert_eq!(world.sleepers(), []);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    let _ = run.finish().with(1);
}

#[test]
fn w7_a_program_that_is_asked_to_stop_can_print_while_it_puts_things_in_order() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("bye", "x", &["--quiet"]);
    world.until_sleepers(1);
    world.offspring(&["cancel", "latest"]).with(0);
    let _ = run.finish().with(1);
    assert!(world.here().join("cleaned").exists(), "its first line ended it");
    let shown = world.offspring(&["show", "latest"]).with(0).stdout;
    assert!(shown.contains("bye"), "{shown}");
}

#[test]
fn a_child_is_cancelled_alone_and_the_rest_goes_on() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("two", "x", &["--quiet"]);
    world.until_sleepers(9);
    let leaf = world.tree("latest")[1]["id"].as_str().unwrap().to_owned();
    world.offspring(&["cancel", &leaf]).with(0);
    assert_eq!(world.sleepers().len(), 5);
    let states: Vec<Value> =
        world.tree("latest").iter().map(|session| session["run_state"].clone()).collect();
    assert_eq!(states, ["running", "cancelled", "running"]);
    world.offspring(&["cancel", "latest"]).with(0);
    let _ = run.finish().with(1);
    assert_eq!(world.sleepers(), []);
    assert_eq!(world.offspring(&["cancel"]).code, Some(2));
    assert_eq!(world.offspring(&["cancel", "ses_none"]).code, Some(2));
}
