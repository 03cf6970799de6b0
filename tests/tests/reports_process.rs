//! Public reports (O numbers) whose fault shows between processes: through the program, or through the public API of
//! `pool` in processes of their own.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "reports_process/held.rs"]
mod held;
#[path = "reports_process/one_id.rs"]
mod one_id;
#[path = "reports_process/places.rs"]
mod places;
#[path = "reports_process/sharing.rs"]
mod sharing;
#[path = "reports_process/torn.rs"]
mod torn;

use std::{path::PathBuf, process::Command, time::Duration};

use offspring_tests::World;
use serde_json::Value;

/// A FIFO beside the manifest: whoever reads it waits until the test opens it.
fn gate(world: &World, name: &str) -> PathBuf {
    let path = world.path("pool").join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Lets everybody at a gate go.
fn open(gate: &std::path::Path) {
    std::fs::write(gate, "open\n").unwrap();
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

/// The whole log of a tree, from another process.
fn log(world: &World, session: &str) -> Vec<Value> {
    lines(&world.offspring(&["watch", session, "--json"]).with(0).stdout)
}

fn of_kind<'a>(log: &'a [Value], kind: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["event"]["kind"] == kind).collect()
}

fn states(tree: &[Value]) -> Vec<&str> {
    tree.iter().map(|session| session["run_state"].as_str().unwrap_or("none")).collect()
}

/// Waits until the tree of the newest root looks like this, and gives it.
fn until_tree(world: &World, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    offspring_tests::until(what, Duration::from_secs(20), || {
        let done = world.offspring(&["tree", "latest", "--json"]);
        let tree: Value = serde_json::from_str(&done.stdout).ok()?;
        let tree = tree["sessions"].as_array()?.clone();
        wanted(&tree).then_some(tree)
    })
}
