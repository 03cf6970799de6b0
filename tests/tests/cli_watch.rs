//! `offspring watch`: history, then live, from another process; ends by itself with the run (rule L18).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{Running, World};
use serde_json::Value;

const POOL: &str = "
agents:
  four: {type: command, command: [sh, -c, 'cat >/dev/null; for i in 1 2 3 4; do offspring task --detach streams $i; done >/dev/null']}
  streams: {type: command, command: [sh, -c, 'n=$(cat); i=0; while [ $i -lt 100 ]; do echo \"$n:$i\"; sleep 0.01; i=$((i+1)); done']}
  waits: {type: command, command: [sh, -c, 'echo begun; offspring task child x; cat \"$OFFSPRING_MANIFEST_DIR/gate\"; echo over']}
  child: {type: command, command: [echo, hello]}
entry: four
";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn l18_watchers_in_other_processes_see_history_and_live_without_gap_or_duplicate_while_four_runs_stream() {
    let world = World::new();
    world.pool(POOL);
    let mut run = world.start("four", "x", &["--json"]);
    run.until_json(|line| line["event"]["kind"] == "text_delta");
    // One joins early, one in the middle, one from the middle on.
    let watch = |more: &[&str]| {
        let mut command = world.command(&["watch", "latest", "--json"]);
        command.args(more);
        Running::start(command)
    };
    let early = watch(&[]);
    let mut last = 0;
    run.until_json(|line| {
        last = line["seq"].as_u64().unwrap();
        last > 150
    });
    let middle = watch(&[]);
    let tail = watch(&["--from", "100"]);
    let run = run.finish().with(0);
    let mut all = lines(&run.stdout);
    assert_eq!(all.pop().unwrap()["event"]["kind"], "answer");
    assert!(all.len() > 200, "{} events are no stream", all.len());
    for (watched, from) in [(early, 0), (middle, 0), (tail, 99)] {
        // They end by themselves.
        let watched = watched.finish().with(0);
        assert_eq!(lines(&watched.stdout), all[from..], "from {from}: {}", watched.stderr);
    }
    let spoken: usize = all
        .iter()
        .filter(|line| line["event"]["kind"] == "text_delta" && line["depth"] == 1)
        .map(|line| line["event"]["data"]["text"].as_str().unwrap().lines().count())
        .sum();
    assert_eq!(spoken, 400, "no line of the four is lost");
}

#[test]
fn a_child_is_watched_alone_and_its_watch_ends_with_it() {
    let world = World::new();
    world.pool(POOL);
    assert!(std::process::Command::new("mkfifo").arg(world.path("pool/gate")).status().unwrap().success());
    let run = world.start("waits", "x", &["--quiet"]);
    offspring_tests::until("the child's end", std::time::Duration::from_secs(20), || {
        let sessions: Value =
            serde_json::from_str(&world.offspring(&["tree", "latest", "--json"]).stdout).ok()?;
        (sessions["sessions"][1]["run_state"] == "completed").then_some(())
    });
    // The root still runs, and waits for us.
    let child = world.tree("latest")[1]["id"].as_str().unwrap().to_owned();
    let watched = world.offspring(&["watch", &child, "--json"]).with(0);
    let seen = lines(&watched.stdout);
    assert!(seen.iter().all(|line| line["session"] == child.as_str()) && seen.len() >= 4, "{seen:?}");
    std::fs::write(world.path("pool/gate"), "opened\n").unwrap();
    assert!(run.finish().with(0).stdout.ends_with("opened\nover\n"));
}

#[test]
fn for_people_every_line_says_whose_it_is() {
    let world = World::new();
    world.pool("agents:\n  a: {type: command, command: [sh, -c, 'offspring task b x']}\n  b: {type: command, command: [echo, \"one\"]}\nentry: a\n");
    world.run("a", "go", &["--quiet"]).with(0);
    let watched = world.offspring(&["watch"]).with(0).stdout;
    assert!(watched.contains("a │ > go\n") && watched.contains("  b │ one\n"), "{watched}");
    assert!(watched.lines().last().unwrap().ends_with("a │ = completed"), "{watched}");
    let later = world.offspring(&["watch", "latest", "--from", "4"]).with(0).stdout;
    assert!(!later.contains("> go") && watched.ends_with(&later), "{later}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_watch_and_not_the_run() {
    let world = World::new();
    world.pool(POOL);
    world.run("four", "x", &["--quiet"]).with(0);
    let mut command = world.command(&["watch", "latest", "--json"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
