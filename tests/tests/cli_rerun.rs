//! `offspring rerun`: a root once more as it was, or only what did not complete of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{fs, time::Duration};

use offspring_tests::{Finished, World, processes::SignalName as Signal};
use serde_json::Value;

/// Each agent leaves a line with its name in `work` of its directory; `needs` works only where `mended` is.
const POOL: &str = "
agents:
  one: {type: command, command: [sh, -c, 'echo one >>work; printf \"1 \"; cat']}
  two: {type: command, command: [sh, -c, 'echo two >>work; printf \"2 \"; cat']}
  needs: {type: command, command: [sh, -c, 'echo needs >>work; test -e mended || { echo not mended >&2; exit 3; }; echo mended']}
  ask: {type: command, command: [sh, -c, 'echo ask >>work; offspring task one p; offspring task two p; offspring task needs p']}
teams:
  all: {mode: parallel, members: [one, two, needs]}
  row: {mode: sequential, members: [one, two, needs]}
  nest: {mode: parallel, members: [row, ask, one]}
entry: all
";

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// The agents that were at work since the last look, sorted.
fn worked(world: &World) -> String {
    let file = world.path("here/work");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_file(file);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join(" ")
}

fn mend(world: &World) {
    world.write("here/mended", "");
}

/// The id of the newest root.
fn latest(world: &World) -> String {
    world.json(&["ls", "--json", "-n", "1"])[0]["id"].as_str().unwrap().to_owned()
}

/// Runs a node that fails, mends what is broken, and gives the root.
fn failed(world: &World, node: &str) -> String {
    let _: Finished = world.run(node, "x", &["--quiet"]);
    mend(world);
    let _ = worked(world);
    latest(world)
}

#[test]
fn only_what_failed_is_run_again_and_the_answer_is_that_of_a_whole_run() {
    for (node, again) in
        [("all", "needs"), ("row", "needs"), ("ask", "ask needs"), ("nest", "ask needs needs")]
    {
        let world = world();
        let old = failed(&world, node);
        let done = world.offspring(&["rerun", &old, "--failed"]).with(0);
        assert_eq!(worked(&world), again, "{node}: {done:?}");
        let new = latest(&world);
        let whole = world.run(node, "x", &["--quiet"]).with(0);
        assert_eq!(done.stdout, whole.stdout, "{node}");
        // In the tree, too, everything is there and completed.
        let tree = world.json(&["tree", &new, "--json"]);
        let sessions = tree["sessions"].as_array().unwrap();
        assert!(sessions.iter().all(|session| session["outcome"] == "completed"), "{tree}");
        assert_eq!(sessions[0]["rerun_of"], *old);
        assert_ne!(new, old);
    }
}

#[test]
fn a_root_is_run_again_as_it_was_then_and_what_became_of_its_manifest_is_said() {
    let world = world();
    let manifest = world.path("pool/pool.yaml");
    world.write("pool/text", "of the pool");
    world.pool(
        "agents: {a: {type: command, command: [sh, -c, 'cat \"$OFFSPRING_MANIFEST_DIR/text\" -; pwd']}}\n",
    );
    let first = world.run("a", " asked\n", &["--quiet"]).with(0);
    assert!(first.stdout.starts_with("of the pool asked\n"), "{first:?}");
    let old = latest(&world);
    // As it was: nothing to say.
    let mut command = world.command(&["rerun", "latest", "--quiet"]);
    command.current_dir(world.path("home"));
    let done = offspring_tests::Running::start(command).finish().with(0);
    assert_eq!(done.stdout, first.stdout);
    assert!(!done.stderr.contains("note: "), "{}", done.stderr);

    world.pool("agents: {a: {type: command, command: [echo, changed]}}\n");
    let done = world.offspring(&["rerun", &old, "--quiet"]).with(0);
    assert_eq!(done.stdout, first.stdout);
    let note =
        format!("note: {} has changed since; its text as it was run in {old} is used", manifest.display());
    assert!(done.stderr.contains(&note), "{}", done.stderr);
    let done = world.offspring(&["rerun", &old, "--current", "--quiet"]).with(0);
    assert_eq!((done.stdout.as_str(), done.stderr.contains("note: ")), ("changed\n", false));

    fs::remove_file(&manifest).unwrap();
    let done = world.offspring(&["rerun", &old, "--quiet"]).with(0);
    assert_eq!(done.stdout, first.stdout);
    assert!(done.stderr.contains("pool.yaml is gone; "), "{}", done.stderr);
    let other = world.write("pool/other.yaml", "agents: {a: {type: command, command: [echo, other]}}\n");
    let done = world.offspring(&["rerun", &old, "--manifest", other.to_str().unwrap(), "--quiet"]).with(0);
    assert_eq!((done.stdout.as_str(), done.stderr.contains("note: ")), ("other\n", false));
    // A run of a run repeats what that one ran.
    assert_eq!(world.offspring(&["rerun", "latest", "--quiet"]).with(0).stdout, "other\n");
}

#[test]
fn the_answer_of_json_and_the_exit_code_are_those_of_a_run() {
    let world = world();
    let old = failed(&world, "row");
    let done = world.offspring(&["rerun", &old, "--failed", "--json", "--quiet"]).with(0);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["event"]["data"]["text"], "mended\n");
    assert!(
        lines
            .iter()
            .enumerate()
            .all(|(index, line)| index + 1 == lines.len() || line["seq"] == index as u64 + 1)
    );
    fs::remove_file(world.path("here/mended")).unwrap();
    let _ = worked(&world);
    let done = world.offspring(&["rerun", "latest", "--quiet"]).with(1);
    assert_eq!(worked(&world), "needs one two", "without --failed all of it");
    assert!(!done.stderr.contains("taken"), "{}", done.stderr);
    // What failed again says how to run it once more.
    let line = again(&done.stderr);
    assert!(line.ends_with(&format!(" rerun {} --failed", latest(&world))), "{line}");
    let _ = typed(&world, &line).with(1);
    assert_eq!(worked(&world), "needs");
}

#[test]
fn what_was_taken_is_marked_and_names_its_first_owner() {
    let world = world();
    let _ = world.run("all", "x", &["--quiet"]).with(0);
    let first = world.tree("latest");
    let _ = world.offspring(&["rerun", "latest", "--failed", "--quiet"]).with(0);
    mend(&world);
    let newest = latest(&world);
    let done = world.offspring(&["rerun", "latest", "--failed"]).with(0);
    let line = format!("completed: 4 sessions, depth 1, 0 failed, 2 taken from {newest}, ");
    assert!(done.stderr.lines().last().unwrap().starts_with(&line), "{}", done.stderr);
    let tree = world.tree("latest");
    for member in [1, 2] {
        assert_eq!(tree[member]["taken_from"], first[member]["id"]);
        let live = format!("ms  taken from {}\n", first[member]["id"].as_str().unwrap());
        assert!(done.stderr.contains(&live), "{}", done.stderr);
        let mark = format!(
            "completed {} ms  taken from {}",
            tree[member]["duration_ms"],
            first[member]["id"].as_str().unwrap()
        );
        assert!(world.offspring(&["tree"]).stdout.contains(&mark), "{mark}");
        let shown = world.offspring(&["show", tree[member]["id"].as_str().unwrap()]).with(0).stdout;
        assert!(shown.contains("> x\n") && shown.ends_with(&format!("{member} x\n")), "{shown}");
    }
    assert_eq!(tree[3]["taken_from"], Value::Null);
    let watched = world.offspring(&["watch", "latest"]).with(0).stdout;
    assert!(watched.contains("one │ 1 x\n"), "{watched}");
}

/// The command that is said to run again what failed.
fn again(stderr: &str) -> String {
    let line = stderr.lines().find_map(|line| line.trim().strip_prefix("run again what failed with: "));
    line.unwrap_or_else(|| panic!("{stderr}")).to_owned()
}

/// What a line does when somebody types it.
fn typed(world: &World, line: &str) -> Finished {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line]).current_dir(world.here()).env("TMPDIR", world.path("tmp"));
    offspring_tests::Running::start(command).finish()
}

#[test]
fn after_kill_9_what_was_done_is_not_done_again() {
    let world = World::new();
    world.pool(
        &POOL.replace("echo needs >>work;", "echo needs >>work; test -e mended || exec sleep @SLEEP@;"),
    );
    for node in ["row", "nest"] {
        let _ = fs::remove_file(world.path("here/mended"));
        let run = world.start(node, "x", &["--quiet"]);
        world.until_sleepers(if node == "row" { 1 } else { 2 });
        run.send(Signal::KILL);
        assert_eq!(run.finish().signal, Some(9));
        world.until_nothing_lives(Duration::from_secs(5));
        mend(&world);
        let _ = worked(&world);
        // Whoever looks at it is told how; a program that looks is not.
        let line = again(&world.offspring(&["tree"]).with(0).stderr);
        assert_eq!(again(&world.offspring(&["show"]).with(0).stderr), line);
        assert_eq!(world.offspring(&["tree", "--json"]).with(0).stderr, "");
        let done = typed(&world, &line).with(0);
        assert_eq!(world.offspring(&["tree"]).with(0).stderr, "", "all of it completed");
        assert_eq!(worked(&world), if node == "row" { "needs" } else { "ask needs needs" }, "{done:?}");
    }
}

#[test]
fn what_cannot_be_run_again_says_why_and_what_to_do() {
    let world = world();
    let program = format!("{} --db {}", offspring_tests::offspring().display(), world.db().display());
    let old = failed(&world, "ask");
    let said = |more: &[&str], code: i32| {
        let mut command = world.command(&["rerun"]);
        command.args(more);
        let done = offspring_tests::Running::start(command).finish().with(code);
        assert!(done.stderr.lines().count() <= 6, "{}", done.stderr);
        assert_eq!(done.stdout, "");
        done.stderr
    };
    let child = world.tree(&old)[1]["id"].as_str().unwrap().to_owned();
    let stderr = said(&[&child, "--failed"], 2);
    assert_eq!(
        stderr,
        format!(
            "error: {child} is a child, and only a root can be run again\nits root: {program} rerun {old}\n"
        )
    );
    assert!(said(&["ses_none"], 2).contains("no session `ses_none`"));
    assert!(said(&[&old, "--dir", "nowhere"], 2).contains("--dir nowhere"));
    assert!(said(&[&old, "--current", "--manifest", "x"], 2).contains("cannot be used with"));

    let roots = || world.json(&["ls", "--json"]).as_array().unwrap().len();
    let before = roots();
    let moved = |from: &str, to: &str| fs::rename(world.path(from), world.path(to)).unwrap();
    moved("pool", "pool2");
    let stderr = said(&[&old], 1);
    assert!(
        stderr.contains("the directory of the manifest of") && stderr.contains("--manifest FILE"),
        "{stderr}"
    );
    moved("pool2", "pool");
    moved("here", "there");
    fs::create_dir(world.path("empty")).unwrap();
    let mut command = world.command(&["rerun", &old]);
    command.current_dir(world.path("empty"));
    let stderr = offspring_tests::Running::start(command).finish().with(1).stderr;
    assert!(stderr.contains("worked in is gone: ") && stderr.contains("--dir DIR"), "{stderr}");
    assert_eq!(roots_in(&world), before, "nothing was made");
    // A directory that was moved as a whole is the same to what was done in it.
    let mut command = world.command(&["rerun", &old, "--failed", "--dir", "there"]);
    command.current_dir(world.path(""));
    let _ = offspring_tests::Running::start(command).finish().with(0);
    moved("there", "here");
    assert_eq!(worked(&world), "ask needs");
    let stderr = said(&["latest", "--failed"], 2);
    assert!(stderr.starts_with("error: nothing failed in ses_"), "{stderr}");
}

fn roots_in(world: &World) -> usize {
    let mut command = world.command(&["ls", "--json"]);
    command.current_dir(world.path("empty"));
    let done = offspring_tests::Running::start(command).finish().with(0);
    serde_json::from_str::<Value>(&done.stdout).unwrap().as_array().unwrap().len()
}

#[test]
fn a_program_that_is_gone_is_named_with_its_place_in_the_stored_manifest() {
    let world = World::new();
    let program = world.write("pool/tool", "#!/bin/sh\necho works\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    world.pool("agents: {a: {type: command, command: [./tool]}}\n");
    let _ = world.run("a", "x", &["--quiet"]).with(0);
    assert_eq!(world.offspring(&["rerun", "latest", "--quiet"]).with(0).stdout, "works\n");
    fs::remove_file(&program).unwrap();
    let stderr = world.offspring(&["rerun", "latest"]).with(2).stderr;
    assert!(stderr.contains("pool.yaml:1:") && stderr.contains("tool"), "{stderr}");
    assert!(stderr.contains("this is the manifest as it was stored with ses_"), "{stderr}");
}

#[test]
fn a_root_without_an_origin_cannot_be_run_again() {
    let world = world();
    let _ = world.run("one", "x", &["--quiet"]).with(0);
    let store = rusqlite::Connection::open(world.db()).unwrap();
    assert_eq!(store.execute("DELETE FROM origins", []).unwrap(), 1);
    drop(store);
    let stderr = world.offspring(&["rerun", "latest"]).with(1).stderr;
    assert!(stderr.contains("has no record of what it was started with"), "{stderr}");
    assert!(stderr.contains("offspring run MANIFEST PROMPT"), "{stderr}");
}

#[test]
fn another_version_is_said() {
    let world = world();
    let _ = world.run("one", "x", &["--quiet"]).with(0);
    let store = rusqlite::Connection::open(world.db()).unwrap();
    assert_eq!(store.execute("UPDATE origins SET program_version = '0.0.1'", []).unwrap(), 1);
    drop(store);
    let done = world.offspring(&["rerun", "latest", "--quiet"]).with(0);
    assert!(done.stderr.contains("was run by version 0.0.1, and this is "), "{}", done.stderr);
    assert_eq!(done.stdout, "1 x\n");
}

#[test]
fn what_still_runs_has_not_failed_yet() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [sh, -c, 'exec sleep @SLEEP@']}}\n");
    let run = world.start("a", "x", &["--quiet"]);
    world.until_sleepers(1);
    let stderr = world.offspring(&["rerun", "latest", "--failed"]).with(1).stderr;
    assert!(stderr.contains(" is still running: "), "{stderr}");
    run.send(Signal::INT);
    let _ = run.finish().with(130);
}

#[test]
fn w10_the_stored_manifest_holds_what_the_file_says_and_no_secret() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [sh, -c, 'test \"$KEY\" = hidden-4711 && echo had it'], environment: {KEY: {from: SECRET}}}}\n");
    let mut command = world.run_command("a", "x", &["--quiet"]);
    command.env("SECRET", "hidden-4711");
    assert_eq!(offspring_tests::Running::start(command).finish().with(0).stdout, "had it\n");
    let mut command = world.command(&["rerun", "latest", "--quiet"]);
    command.env("SECRET", "hidden-4711");
    assert_eq!(offspring_tests::Running::start(command).finish().with(0).stdout, "had it\n");
    let store = rusqlite::Connection::open(world.db()).unwrap();
    let kept: Vec<String> = store
        .prepare("SELECT manifest FROM origins")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let file = fs::read_to_string(world.path("pool/pool.yaml")).unwrap();
    assert_eq!(kept, [file.clone(), file]);
}

#[test]
fn inside_a_session_it_is_refused() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [sh, -c, 'offspring rerun latest || echo $?']}}\n");
    let done = world.run("a", "x", &["--quiet"]).with(0);
    assert_eq!(done.stdout, "2\n");
}

#[test]
fn of_a_root_that_was_cancelled_it_is_not_said_that_something_failed() {
    let world = World::new();
    world.pool("agents:\n  slow: {type: command, command: [sh, -c, 'sleep @SLEEP@; true']}\n");
    let run = world.start("slow", "x", &["--quiet"]);
    world.until_sleepers(1);
    run.send(Signal::INT);
    let done = run.finish().with(130);
    let looked = world.offspring(&["tree"]).with(0);
    for stderr in [done.stderr, looked.stderr] {
        assert!(stderr.contains("run what did not complete with: "), "{stderr}");
        assert!(!stderr.contains("what failed"), "{stderr}");
    }
}
