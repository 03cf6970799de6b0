//! `offspring check`: what can be said of a manifest without running anything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{fs, os::unix::fs::PermissionsExt};

use offspring_tests::{Finished, Running, World};
use serde_json::{Value, json};

const POOL: &str = "
name: desk
description: Two of everything
entry: lead
agents:
  lead: {type: command, command: [sh, -c, 'touch @TOUCHED@'], workers: [echo]}
  echo: {type: command, command: [cat], limits: {max_depth: 3, max_wall_ms: 5000}}
teams:
  both: {mode: parallel, members: [echo, echo]}
  steps: {mode: sequential, members: [both, echo], require_all: false}
workers: [both]
limits: {max_depth: 10, max_active: 2}
";

fn check(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.bare();
    command.arg("check").args(arguments);
    Running::start(command).finish()
}

fn pool(world: &World, text: &str) -> String {
    let touched = world.path("here/touched").display().to_string();
    world.pool(&text.replace("@TOUCHED@", &touched)).display().to_string()
}

#[test]
fn a_manifest_that_is_right_is_shown_with_its_nodes_and_the_limits_in_force() {
    let world = World::new();
    let path = pool(&world, POOL);
    let done = check(&world, &[&path]).with(0);
    assert_eq!(done.stderr, "");
    let text = done.stdout;
    assert!(text.starts_with(&format!("{path}: nothing is wrong: 2 agents, 2 teams\n")), "{text}");
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let db = world.path("state/offspring/sessions.db");
    for line in [
        "pool desk",
        "entry lead",
        "workers both",
        &format!("sessions {}", db.display()),
        "asks echo",
        "narrower: max_depth 3, max_wall_ms 5000",
        "both parallel echo, echo",
        "steps sequential both, echo (goes on after a failure)",
        // Said by the manifest, although it is the default; said by it; the default; no bound.
        "max_depth 10",
        "max_active 2",
        "max_descendants 1000 default",
        "max_wall_ms none default",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(lines.iter().any(|line| line.starts_with("echo command /") && line.ends_with("/cat")), "{text}");

    let found: Value = serde_json::from_str(&check(&world, &[&path, "--json"]).with(0).stdout).unwrap();
    assert_eq!(
        (&found["valid"], &found["problems"], &found["notes"]),
        (&json!(true), &json!([]), &json!([]))
    );
    assert_eq!(found["limits"]["max_depth"], json!({ "value": 10, "default": false }));
    assert_eq!(found["limits"]["max_wall_ms"], json!({ "value": null, "default": true }));
    assert_eq!(found["agents"][1]["limits"], json!({ "max_depth": 3, "max_wall_ms": 5000 }));
    assert_eq!(found["teams"][1]["require_all"], false);
    assert_eq!(found["sessions"]["path"].as_str(), db.to_str());

    // No agent ran, no store was made, nothing was left anywhere.
    for folder in ["state", "tmp", "here", "home"] {
        assert_eq!(world.picture(&world.path(folder)), [], "{folder}");
    }
}

#[test]
fn every_mistake_is_said_with_its_place_and_code_2() {
    let world = World::new();
    let text = world.write("pool/plain.txt", "no program");
    fs::set_permissions(text, fs::Permissions::from_mode(0o644)).unwrap();
    let agents = "agents: {a: {type: command, command: [cat]}}\n";
    for (manifest, place, said) in [
        (
            "agents: {a: {type: command, command: [no-such-program]}}",
            ":1:29:",
            "`no-such-program` is not on PATH",
        ),
        (
            "agents: {a: {type: command, command: [./plain.txt]}}",
            ":1:29:",
            "is not executable; try: chmod +x",
        ),
        ("agents: {a: {type: command, command: [./]}}", ":1:29:", "is a directory"),
        (
            &format!("{agents}teams: {{t: {{mode: parallel, members: [b]}}}}\nentry: a"),
            ":2:",
            "member `b` is no agent",
        ),
        (
            &format!(
                "{agents}teams:\n  t: {{mode: parallel, members: [u]}}\n  u: {{mode: parallel, members: [t]}}\nentry: a"
            ),
            ":4:",
            "contains itself: t → u → t",
        ),
        (&format!("{agents}entyr: a"), ":2:1:", "did you mean `entry`?"),
        ("agents:\n\ta: 1", ":2:1:", "a tab in the indentation"),
        ("agents: {a: {type: comand, command: [cat]}}", ":1:20:", "unknown node type `comand`"),
    ] {
        let path = pool(&world, manifest);
        let done = check(&world, &[&path]).with(2);
        assert_eq!(done.stdout, "", "{manifest}");
        assert!(done.stderr.starts_with(&format!("error: {path}{place}")), "{manifest}: {}", done.stderr);
        assert!(
            done.stderr.contains(said) && done.stderr.lines().count() <= 6,
            "{manifest}: {}",
            done.stderr
        );

        let done = check(&world, &[&path, "--json"]).with(2);
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(found["valid"], false);
        let problem = &found["problems"][0];
        let words = format!("{} {}", problem["message"], problem["suggestion"]);
        assert!(words.contains(said.split(';').next().unwrap()), "{manifest}: {found}");
        assert!(place.starts_with(&format!(":{}:", problem["line"])), "{found}");
        assert!(done.stderr.contains(said), "people read stderr: {}", done.stderr);
    }
}

#[test]
fn what_is_no_mistake_and_perhaps_not_meant_is_a_note() {
    let world = World::new();
    let path = pool(
        &world,
        "agents:\n  a: {type: command, command: [sh, missing.sh], environment: {KEY: {from: NOT_SET_ANYWHERE}}}\n",
    );
    let done = check(&world, &[&path]).with(0);
    assert!(
        done.stdout.contains(": it can be run, with ") && !done.stdout.contains("nothing is wrong"),
        "{done:?}"
    );
    let note = |text: &str| done.stdout.lines().any(|line| line.starts_with(&path) && line.ends_with(text));
    assert!(
        note(":2:22: note: there is no missing.sh beside the manifest: `a` gets the name as it stands"),
        "{done:?}"
    );
    assert!(note("note: NOT_SET_ANYWHERE is not set here, so `a` will have no KEY"), "{done:?}");
    let mut command = world.bare();
    command.args(["check", &path, "--json"]).env("NOT_SET_ANYWHERE", "x");
    world.write("pool/missing.sh", "");
    let found: Value = serde_json::from_str(&Running::start(command).finish().with(0).stdout).unwrap();
    assert_eq!(found["notes"], json!([]));
}

#[test]
fn it_takes_a_file_and_names_the_store_a_run_would_use() {
    let world = World::new();
    let done = check(&world, &["-"]).with(2);
    assert!(done.stderr.contains("not read from stdin"), "{}", done.stderr);
    let done = check(&world, &["none.yaml"]).with(2);
    assert!(done.stderr.contains("there is no manifest none.yaml"), "{}", done.stderr);

    let path = pool(&world, "agents: {a: {type: command, command: [cat]}}\nstorage: {path: kept.db}\n");
    let store = |arguments: &[&str], db: Option<&str>| -> Value {
        let mut command = world.bare();
        command.args(arguments).args(["check", &path, "--json"]);
        if let Some(db) = db {
            command.env("OFFSPRING_DB", db);
        }
        let found: Value = serde_json::from_str(&Running::start(command).finish().with(0).stdout).unwrap();
        found["sessions"].clone()
    };
    assert_eq!(store(&[], None)["path"].as_str(), world.path("pool/kept.db").to_str());
    assert_eq!(store(&[], Some("/there.db"))["path"], "/there.db");
    assert_eq!(store(&["--db", "memory:"], Some("/there.db"))["kind"], "memory");
    // It is no mistake of the manifest that this user has no place for sessions.
    let path = pool(&world, "agents: {a: {type: command, command: [cat]}}\n");
    let mut command = world.bare();
    command.args(["check", &path]).env_remove("HOME").env_remove("XDG_STATE_HOME");
    let done = Running::start(command).finish().with(0);
    assert!(done.stdout.contains("there is no place for sessions"), "{done:?}");
}

#[test]
fn w11_no_control_character_of_a_manifest_reaches_the_terminal() {
    let world = World::new();
    let path = pool(
        &world,
        "description: \"a\\e[31mb\"\nagents: {a: {type: command, command: [cat, \"\\e]0;x\\a\"]}}\n",
    );
    let done = check(&world, &[&path]).with(0);
    assert!(!done.stdout.contains(['\u{1b}', '\u{7}']), "{done:?}");
    // Programs get it as it is.
    let found: Value = serde_json::from_str(&check(&world, &[&path, "--json"]).with(0).stdout).unwrap();
    assert_eq!(found["description"], "a\u{1b}[31mb");
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let world = World::new();
    let pipe = world.path("pipe.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for arguments in [&["check", pipe][..], &["run", pipe, "x"]] {
        // It would hang here.
        let done = world.offspring(arguments).with(2);
        assert!(done.stderr.contains("pipe.yaml: is no regular file"), "{done:?}");
    }
}
