//! A program that dies in the middle of a delegation.

use std::{collections::HashSet, time::Duration};

use offspring_tests::{Running, World, processes::SignalName as Signal};
use rusqlite::Connection;
use serde_json::Value;

use crate::{gate, log, of_kind, open, states, until_tree};

const POOL: &str = "
entry: calls
agents:
  calls: {type: command, command: [sh, -c, 'cat \"$OFFSPRING_MANIFEST_DIR/call\"; offspring task \"$(cat)\" x']}
  queued: {type: command, command: [sh, -c, 'cat \"$OFFSPRING_MANIFEST_DIR/call\"; offspring task --detach busy x; offspring task works x']}
  busy: {type: command, command: [sleep, '@SLEEP@']}
  works: {type: command, command: [sh, -c, 'cat \"$OFFSPRING_MANIFEST_DIR/begin\"; echo half; cat \"$OFFSPRING_MANIFEST_DIR/end\"']}
  quick: {type: command, command: [echo, done]}
teams:
  pair: {mode: parallel, members: [quick, works]}
limits: {max_active: 1}
";

struct Call {
    world: World,
    run: Running,
    root: String,
}

impl Call {
    /// A root that is about to make its call; `call` opens the way.
    fn new(node: &str, asks: &str) -> Self {
        let world = World::new();
        // A team works at once: there two may.
        let slots = if asks == "pair" { "max_active: 2" } else { "max_active: 1" };
        world.pool(&POOL.replace("max_active: 1", slots));
        for name in ["call", "begin", "end"] {
            gate(&world, name);
        }
        let mut run = world.start(node, asks, &["--json", "--quiet"]);
        let started = run.until_json(|line| line["event"]["kind"] == "run_started");
        let root = started["root"].as_str().unwrap().to_owned();
        Self { world, run, root }
    }

    fn open(&self, name: &str) {
        open(&self.world.path("pool").join(name));
    }

    /// Keeps everybody from writing.
    fn hold_the_store(&self) -> Connection {
        let store = Connection::open(self.world.db()).unwrap();
        store.busy_timeout(Duration::from_secs(10)).unwrap();
        store.execute_batch("BEGIN IMMEDIATE").unwrap();
        store
    }

    fn until_process(&self, what: &str, there: bool) {
        offspring_tests::until(what, Duration::from_secs(10), || {
            let seen = self.world.processes();
            (seen.iter().any(|seen| !seen.is_guard() && seen.line.contains(what)) == there).then_some(())
        });
    }

    /// Kills the program and gives the states of the children there are after a restart, having checked that none is
    /// without an edge and no edge without a child.
    fn killed(self, held: Option<Connection>) -> Vec<String> {
        let Self { world, run, root } = self;
        run.send(Signal::KILL);
        assert_eq!(run.finish().signal, Some(9));
        drop(held);
        let tree = world.tree(&root);
        assert_eq!(tree[0]["run_state"], "interrupted");
        let log = log(&world, &root);
        let calls: HashSet<&Value> = of_kind(&log, "tool_call_start")
            .iter()
            .map(|line| &line["event"]["data"]["tool_call_id"])
            .collect();
        let mut listed = Vec::new();
        for spawn in of_kind(&log, "spawn_session_start") {
            assert_eq!(spawn["session"], root.as_str(), "in the log of the parent");
            assert!(calls.contains(&spawn["event"]["data"]["tool_call_id"]), "a child of no call: {spawn}");
            listed.push(&spawn["event"]["data"]["child_session_id"]);
        }
        let children: Vec<&Value> = tree[1..].iter().map(|session| &session["id"]).collect();
        assert_eq!(listed, children);
        let told: Vec<&Value> = of_kind(&log, "custom")
            .into_iter()
            .filter(|line| {
                line["event"]["data"]["name"] == "child_interrupted" && line["session"] == root.as_str()
            })
            .map(|line| &line["event"]["data"]["data"]["session"])
            .collect();
        let interrupted: Vec<&Value> = tree[1..]
            .iter()
            .rev()
            .filter(|session| session["run_state"] == "interrupted")
            .map(|session| &session["id"])
            .collect();
        assert_eq!(told, interrupted, "the parent is told of each, once");
        world.until_nothing_lives(Duration::from_secs(5));
        states(&tree[1..]).into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn o9_killed_when_the_call_is_accepted_and_not_stored_there_is_no_child() {
    let call = Call::new("calls", "works");
    let held = call.hold_the_store();
    call.open("call");
    call.until_process("task works", true);
    assert_eq!(call.killed(Some(held)), [""; 0]);
}

#[test]
fn o9_killed_while_the_child_is_stored_and_waits_for_its_turn() {
    let call = Call::new("queued", "x");
    call.open("call");
    until_tree(&call.world, "a child in the queue", |tree| states(tree) == ["running", "running", "pending"]);
    assert_eq!(call.killed(None), ["interrupted", "interrupted"]);
}

#[test]
fn o9_killed_when_the_child_has_started_and_said_nothing() {
    let call = Call::new("calls", "works");
    call.open("call");
    call.until_process("begin", true);
    assert_eq!(call.killed(None), ["interrupted"]);
}

#[test]
fn o9_killed_when_the_child_has_said_half() {
    let mut call = Call::new("calls", "works");
    call.open("call");
    call.open("begin");
    call.run.until_json(|line| line["event"]["kind"] == "text_delta" && line["depth"] == 1);
    assert_eq!(call.killed(None), ["interrupted"]);
}

#[test]
fn o9_killed_when_the_child_is_done_and_its_end_is_not_stored() {
    let mut call = Call::new("calls", "works");
    call.open("call");
    call.open("begin");
    call.run.until_json(|line| line["event"]["kind"] == "text_delta" && line["depth"] == 1);
    let held = call.hold_the_store();
    call.open("end");
    call.until_process("begin", false);
    assert_eq!(call.killed(Some(held)), ["interrupted"]);
}

#[test]
fn o9_killed_when_one_of_two_has_ended_and_the_result_is_not_stored() {
    let mut call = Call::new("calls", "pair");
    call.open("call");
    call.run.until_json(|line| line["agent"] == "quick" && line["event"]["data"]["outcome"] == "completed");
    call.until_process("begin", true);
    let mut states = call.killed(None);
    states.sort();
    assert_eq!(states, ["completed", "interrupted"]);
}

#[test]
fn o12_after_kill_9_nothing_shows_as_running_and_a_second_look_changes_nothing() {
    let call = Call::new("calls", "works");
    call.open("call");
    call.until_process("begin", true);
    call.run.send(Signal::KILL);
    let Call { world, run, root } = call;
    let _ = run.finish();
    let listed = world.offspring(&["ls"]).with(0).stdout;
    assert!(listed.starts_with("! interrupted "), "{listed}");
    let (tree, first) = (world.tree(&root), log(&world, &root));
    for session in &tree {
        let own: Vec<&Value> = first.iter().filter(|line| line["session"] == session["id"]).collect();
        let ends = own.iter().filter(|line| line["event"]["kind"] == "run_error").count();
        assert_eq!(ends, 1, "one end each");
        // The wall time ends with the last sign of life.
        let last = own.iter().rposition(|line| line["event"]["kind"] == "run_started").unwrap();
        assert!(session["ended_at"].as_i64() >= own[last]["at"].as_i64());
        let looked = own.iter().find(|line| line["event"]["kind"] == "run_error").unwrap()["at"].as_i64();
        assert!(session["ended_at"].as_i64() <= looked);
    }
    for command in [&["ls"][..], &["tree"], &["show"], &["cancel", "latest"]] {
        world.offspring(command).with(0);
    }
    world.run("quick", "x", &["--quiet"]).with(0);
    assert_eq!((world.tree(&root), log(&world, &root)), (tree, first));
}
