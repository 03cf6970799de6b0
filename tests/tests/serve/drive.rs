//! Our own client in front of our own server: `offspring drive`.

use std::process::Command;

use offspring_tests::{Running, World, offspring, serve::POOL};
use serde_json::Value;

/// `drive` of a server of the world's pool.
fn drive(world: &World, more: &[&str]) -> Command {
    let runtime = format!(
        "'{}' --db '{}' serve --stdio '{}'",
        offspring().display(),
        world.db().display(),
        world.path("pool/pool.yaml").display()
    );
    let mut command = world.bare();
    command.args(["drive", "--runtime", &runtime, "--dir"]).arg(world.here());
    command.args(more);
    command
}

fn json(world: &World, more: &[&str]) -> (Vec<Value>, Value) {
    let done = Running::start(drive(world, &[&["--json", "--tree"], more].concat())).finish().with(0);
    let mut lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = lines.pop().unwrap()["result"].clone();
    (lines, result)
}

#[test]
fn t12_our_own_client_sees_the_whole_tree_and_its_answer() {
    let world = World::new();
    world.pool(POOL);
    let named = ["--provider", "offspring", "--model", "top", "--session", "s"];
    let (lines, result) = json(&world, &[&named[..], &["deep"]].concat());
    assert_eq!(result["final_response"], "deep");
    assert_eq!(result["finish_reason"], "completed");
    let tree = result["tree"].as_array().unwrap();
    assert_eq!(tree.len(), 2);
    assert!(tree.iter().all(|child| child["runs"][0]["status"] == "ok"), "{tree:?}");
    let parents: Vec<&Value> = tree.iter().map(|child| &child["parent"]).collect();
    assert_eq!(parents, [&Value::from("s"), &tree[0]["session"]]);
    assert_eq!(lines.last().unwrap()["params"]["status"], "idle");

    // In a new process: refused without a word about resuming, and resumed with one.
    let done = Running::start(drive(&world, &["--session", "s", "again"])).finish().with(1);
    assert!(done.stderr.contains("session \"s\" already exists"), "{}", done.stderr);
    let (_, result) = json(&world, &[&named[..], &["--resume", "again"]].concat());
    assert_eq!((&result["final_response"], &result["session_id"]), (&"again".into(), &"s".into()));
    let done = Running::start(drive(&world, &["--session", "never", "--resume", "x"])).finish().with(1);
    assert!(done.stderr.contains("session \"never\" not found"), "{}", done.stderr);
}

#[test]
fn a_session_of_the_pool_is_in_its_store_as_any_other() {
    let world = World::new();
    world.pool(POOL);
    let done = Running::start(drive(&world, &["--session", "s", "--quiet", "hello"])).finish().with(0);
    assert_eq!(done.stdout.trim_end(), "hello");
    let tree = world.tree("s");
    assert_eq!((tree.len(), &tree[0]["outcome"]), (1, &"completed".into()));
}
