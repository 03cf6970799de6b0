//! A pool driven by the Python SDK of DeepSeek Harness, unmodified, through the program that `offspring serve` writes for
//! it (`dsh_bin`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{collections::HashSet, fs, path::Path, process::Command, time::Duration};

use offspring_tests::{Running, World, dsh::peer, serve::POOL};
use serde_json::{Value, json};

/// Runs a scenario of `tests/python/serve_sdk.py`; `None` without the SDK.
fn sdk(world: &World, scenario: &str) -> Option<Value> {
    let python = peer("OFFSPRING_DSH_PYTHON", &format!("serve_python_sdk::{scenario}"))?;
    let done = Running::start(command(world, &python, scenario)).finish().with(0);
    Some(serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("no JSON: {done:?}")))
}

fn command(world: &World, python: &Path, scenario: &str) -> Command {
    let more = "  where: {type: command, command: [pwd]}\n";
    world.pool(&format!("{POOL}{more}"));
    let program = world.path("pool-runtime");
    let mut made = world.command(&["serve", "--stdio"]);
    made.arg(world.path("pool/pool.yaml")).arg("--as-program").arg(&program);
    let made = Running::start(made).finish().with(0);
    assert!(made.stderr.contains("wrote "), "{}", made.stderr);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/serve_sdk.py");
    let bare = world.bare();
    let mut run = Command::new(python);
    run.arg("-B").arg(script).arg(scenario).arg(program).arg(world.here());
    run.current_dir(world.here()).env_clear();
    run.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run
}

fn kinds(result: &Value) -> Vec<&str> {
    result["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn methods<'a>(result: &'a Value, method: &str) -> Vec<&'a Value> {
    let all = result["notifications"].as_array().unwrap();
    all.iter().filter(|one| one["method"] == method).map(|one| &one["params"]).collect()
}

/// The events of a turn of an agent that calls nobody, from its receipt on.
const TURN: [&str; 6] = [
    "agent/inbox/spliced",
    "turn/start",
    "agent/inbox/spliced",
    "user/message",
    "assistant/message",
    "turn/end",
];

#[test]
fn t13_a_run_gives_the_answer_and_a_session_can_be_used_again() {
    let world = World::new();
    let Some(said) = sdk(&world, "run") else { return };
    for (name, answer) in [("one", "one"), ("two", "two"), ("lone", "three")] {
        let result = &said[name];
        assert_eq!(result["final_response"], answer);
        assert_eq!(result["finish_reason"], "completed");
        assert_eq!(kinds(result), TURN);
        let statuses: Vec<_> =
            methods(result, "session.status").iter().map(|it| it["status"].clone()).collect();
        assert_eq!(statuses, ["running", "idle"]);
    }
    assert_eq!((&said["one"]["session"], &said["two"]["session"]), (&"first".into(), &"first".into()));
    assert!(said["lone"]["session"].as_str().unwrap().starts_with("session-"));
    assert_eq!(said["heard"], said["one"]["notifications"]);
    // Numbered within the session, over its turns.
    let numbers = |name: &str| -> Vec<u64> {
        said[name]["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!([numbers("one"), numbers("two")].concat(), (0..12).collect::<Vec<u64>>());
    assert_eq!(world.json(&["ls", "--json"]).as_array().unwrap().len(), 2);
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn t12_children_are_in_the_notifications_and_only_the_root_in_the_events() {
    let world = World::new();
    let Some(said) = sdk(&world, "tree") else { return };
    assert_eq!((&said["final_response"], &said["finish_reason"]), (&"deep".into(), &"completed".into()));
    assert_eq!(kinds(&said).iter().filter(|kind| **kind == "tool/call").count(), 1);
    let started = methods(&said, "subagent.started");
    let finished = methods(&said, "subagent.finished");
    assert_eq!((started.len(), finished.len()), (2, 2));
    let (lead, echo) = (&started[0]["childSessionId"], &started[1]["childSessionId"]);
    assert_eq!((&started[0]["parentSessionId"], &started[1]["parentSessionId"]), (&"nested".into(), lead));
    // Leaves first.
    assert_eq!((&finished[0]["childSessionId"], &finished[1]["childSessionId"]), (echo, lead));
    for one in &finished {
        assert_eq!((&one["status"], &one["stopReason"]), (&"ok".into(), &"completed".into()));
        assert_eq!(one["lastAssistantMessage"], json!([{"type": "text", "text": "deep"}]));
    }
    let sessions: HashSet<&str> =
        methods(&said, "session.event").iter().map(|it| it["sessionId"].as_str().unwrap()).collect();
    assert_eq!(sessions.len(), 3, "the events of both descendants belong to the turn");
    let own = methods(&said, "session.event");
    let own: Vec<_> =
        own.iter().filter(|it| it["sessionId"] == "nested").map(|it| it["event"].clone()).collect();
    assert_eq!(said["events"], json!(own));
}

#[test]
fn a_run_that_fails_says_why() {
    let world = World::new();
    let Some(said) = sdk(&world, "ends") else { return };
    assert_eq!((&said["finish_reason"], &said["final_response"]), (&"error".into(), &"".into()));
    let end = said["events"].as_array().unwrap().last().unwrap();
    let error = &end["data"]["reason"]["error"];
    assert!(error["message"].as_str().unwrap().contains("no paper"), "{error}");
}

#[test]
fn l12_a_session_is_resumed_in_a_new_process() {
    let world = World::new();
    let Some(said) = sdk(&world, "resume") else { return };
    assert_eq!(
        (&said["before"]["final_response"], &said["after"]["final_response"]),
        (&"before".into(), &"after".into())
    );
    assert_eq!(kinds(&said["after"]), TURN);
    assert_eq!(said["after"]["events"][0]["seq"], 6, "numbers go on");
    assert_eq!(said["directory"], world.here().canonicalize().unwrap().to_str().unwrap());
    let errors = said["errors"].as_array().unwrap();
    assert_eq!(errors[0]["message"], "session \"kept\" already exists");
    assert_eq!(errors[1]["message"], "session \"missing\" not found");
    assert!(errors.iter().all(|error| error["data"]["hint"].as_str().is_some_and(|hint| !hint.is_empty())));
}

#[test]
fn a_session_works_where_it_was_told_to() {
    let world = World::new();
    fs::create_dir(world.here().join("below")).unwrap();
    let Some(said) = sdk(&world, "directory") else { return };
    let here = world.here().canonicalize().unwrap();
    let (here, below) = (here.to_str().unwrap().to_owned(), here.join("below").to_str().unwrap().to_owned());
    assert_eq!((&said["at_first"], &said["first"]), (&json!(here), &json!(format!("{here}\n"))));
    assert_eq!((&said["changed"], &said["second"]), (&json!(below), &json!(format!("{below}\n"))));
    assert_eq!(said["again"], json!(below));
    assert_eq!(said["error"], "working-directory: directory does not exist: \"nowhere\"");
}

#[test]
fn t6_two_sessions_in_two_threads_do_not_hear_each_other() {
    let world = World::new();
    let Some(said) = sdk(&world, "threads") else { return };
    for name in ["left", "right"] {
        let results = said[name].as_array().unwrap();
        assert_eq!(results.len(), 5);
        for (turn, result) in results.iter().enumerate() {
            assert_eq!(result["final_response"], format!("{name} {turn}"));
            let started = methods(result, "subagent.started");
            assert_eq!((started.len(), methods(result, "subagent.finished").len()), (1, 1));
            let child = started[0]["childSessionId"].as_str().unwrap();
            for event in methods(result, "session.event") {
                let session = event["sessionId"].as_str().unwrap();
                assert!(session == name || session == child, "{session} is in a turn of {name}");
            }
        }
    }
}

#[test]
fn l14_a_harness_that_is_closed_leaves_nothing_behind() {
    let world = World::new();
    let Some(said) = sdk(&world, "close") else { return };
    assert_eq!(said["failed"], json!(["TransportClosedError"]));
    assert!(said["exit"].as_i64().is_some_and(|code| code >= 0), "it had to be killed: {said}");
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn the_python_of_the_guide_prints_what_the_guide_says() {
    let Some(python) = peer("OFFSPRING_DSH_PYTHON", "serve_python_sdk::guide") else { return };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/drive-a-pool-from-python.md");
    let guide = fs::read_to_string(guide).unwrap();
    let world = World::new();
    let mut printed = None;
    for block in guide.split("\n```").skip(1).step_by(2) {
        let (head, text) = block.split_once('\n').unwrap();
        if let Some((_, name)) = head.split_once("title=\"") {
            world.write(&format!("here/{}", name.trim_end_matches('"')), &format!("{text}\n"));
        } else if head == "text" {
            printed = Some(format!("{text}\n"));
        }
    }
    world.offspring(&["serve", "--stdio", "pool.yaml", "--as-program", "./pool-runtime"]).with(0);
    let mut run = Command::new(python);
    run.args(["-B", "drive.py"]).current_dir(world.here()).env_clear();
    run.envs(world.bare().get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_eq!(Running::start(run).finish().with(0).stdout, printed.unwrap());
}
