//! `offspring task`: any process inside a run makes children of the session it runs in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::{Duration, Instant};

use offspring_tests::World;
use serde_json::Value;

/// Runs a script as the agent `ask` of a pool with some more nodes.
fn asked(world: &World, script: &str) -> offspring_tests::Finished {
    world.write("pool/ask.sh", script);
    world.pool(
        "
entry: ask
agents:
  ask: {type: command, command: [sh, ask.sh], workers: [echo]}
  echo: {type: command, description: Says it again., command: [cat]}
  where: {type: command, command: [pwd]}
  broken: {type: command, command: [sh, -c, 'echo part; echo no paper >&2; exit 3']}
  slow: {type: command, command: [sleep, '@SLEEP@']}
  deeper: {type: command, command: [sh, -c, 'offspring task deeper x']}
teams:
  both: {mode: parallel, members: [echo, broken]}
  chain: {mode: sequential, members: [echo, echo]}
limits: {max_depth: 3, max_descendants: 12}
",
    );
    world.run("ask", "x", &["--quiet"])
}

#[test]
fn outside_of_a_run_it_says_so() {
    let world = World::new();
    let done = world.offspring(&["task", "echo", "x"]).with(2);
    assert!(
        done.stderr.contains("this is not inside a run") && done.stderr.contains("offspring run"),
        "{done:?}"
    );
    assert_eq!(done.stdout, "");
}

#[test]
fn a_child_of_the_calling_session_is_made_from_any_process_below_it() {
    let world = World::new();
    let done =
        asked(&world, "sh -c '(cd / && offspring task echo hello)'; echo more | offspring task echo -")
            .with(0);
    assert_eq!(done.stdout, "hellomore\n");
    let tree = world.tree("latest");
    assert_eq!(tree.len(), 3);
    for child in &tree[1..] {
        assert_eq!(child["parent_id"], tree[0]["id"]);
        assert_eq!(child["depth"], 1);
        assert_eq!(child["cwd"], tree[0]["cwd"]);
    }
}

#[test]
fn agents_find_offspring_although_nobody_installed_it() {
    let world = World::new();
    let done = asked(&world, "PATH=/usr/bin:/bin; \"$OFFSPRING_BIN\" task echo by-variable; env -i PATH=\"$PATH\" OFFSPRING_SOCKET=\"$OFFSPRING_SOCKET\" OFFSPRING_TOKEN=\"$OFFSPRING_TOKEN\" \"$OFFSPRING_BIN\" task echo -- --by-token").with(0);
    assert_eq!(done.stdout, "by-variable--by-token\n");
}

#[test]
fn a_team_is_asked_like_an_agent_and_its_members_are_children_of_the_caller() {
    let world = World::new();
    let done = asked(&world, "offspring task both hi; echo; offspring task chain there").with(0);
    let expected = "### echo (completed)\nhi\n### broken (failed)\n";
    assert!(done.stdout.starts_with(expected) && done.stdout.ends_with("\nthere\n"), "{}", done.stdout);
    let tree = world.tree("latest");
    assert_eq!(tree.len(), 5);
    assert!(tree[1..].iter().all(|child| child["depth"] == 1), "{tree:?}");
    let sources: Vec<&str> = tree[1..].iter().map(|child| child["source_type"].as_str().unwrap()).collect();
    assert_eq!(sources.len(), 4);
}

#[test]
fn a_failure_and_a_refusal_are_errors_of_the_call_and_not_of_the_run() {
    let world = World::new();
    let done = asked(
        &world,
        "e=$OFFSPRING_SCRATCH/e
offspring task broken x 2>$e; echo \"$? $(cat $e)\"
offspring task ecko x 2>$e; echo \"$? $(cat $e)\"
offspring task echo 2>$e; echo \"$? $(cat $e)\"
offspring task status task_none 2>$e; echo \"$? $(cat $e)\"
offspring task echo x --cwd nowhere 2>$e; echo \"$? $(cat $e)\"
",
    )
    .with(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let said = ["part", "1 error: broken exited with status 3: no paper"];
    assert_eq!(lines[..2], said, "what there was of an answer, then why");
    assert!(
        lines.iter().any(|line| line.starts_with("1 error: there is no node `ecko`; did you mean `echo`?")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("2 error: there is no prompt: what should echo be asked?")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("1 error: this session has no task task_none")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("1 error: the working directory") && line.contains("nowhere")),
        "{lines:?}"
    );
    // The refused left nothing behind.
    assert_eq!(world.tree("latest").len(), 2);
}

#[test]
fn l5_beyond_the_depth_a_delegation_is_refused_and_says_to_do_the_work() {
    let world = World::new();
    let done = asked(&world, "offspring task deeper x 2>&1; offspring task echo still-works").with(0);
    assert!(
        done.stdout.contains("delegation depth 4 exceeds the maximum of 3: do this work yourself"),
        "{done:?}"
    );
    assert!(done.stdout.ends_with("still-works\n"), "{done:?}");
    let depths: Vec<u64> =
        world.tree("latest").iter().map(|child| child["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths.iter().max(), Some(&3));
    assert_eq!(depths.len(), 5);
}

#[test]
fn l5_a_root_has_no_more_descendants_than_its_limit() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 14 ]; do offspring task echo x 2>&1 >/dev/null; i=$((i+1)); done";
    let done = asked(&world, script).with(0);
    assert_eq!(done.stdout.matches("has 12 descendants, which is the limit").count(), 2, "{done:?}");
    assert_eq!(world.tree("latest").len(), 13);
}

#[test]
fn a_detached_task_has_an_id_and_is_asked_about_and_cancelled_by_it() {
    let world = World::new();
    let done = asked(
        &world,
        "id=$(offspring task --detach slow x); offspring task status $id
offspring task cancel $id; offspring task status $id
id=$(offspring task --detach echo 'in the background'); offspring task output $id; echo; offspring task output $id --json
",
    )
    .with(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[..4], ["running", "cancelled", "cancelled", "in the background"]);
    let json: Value = serde_json::from_str(lines[4]).unwrap();
    assert_eq!(json["task"]["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(json["state"], "completed");
    assert_eq!(world.sleepers(), [], "cancel returns when the last process is gone");
}

#[test]
fn l19_a_run_ends_when_what_it_left_in_the_background_has_ended() {
    let world = World::new();
    world.pool(
        "
agents:
  waits: {type: command, command: [sh, -c, 'offspring task --detach short x >/dev/null; echo done']}
  cancels: {type: command, on_exit: cancel, command: [sh, -c, 'offspring task --detach long x >/dev/null; echo done']}
  short: {type: command, command: [sleep, '0.4']}
  long: {type: command, command: [sleep, '@SLEEP@']}
entry: waits
",
    );
    assert_eq!(world.run("waits", "x", &["--quiet"]).with(0).stdout, "done\n");
    assert_eq!(world.tree("latest")[1]["run_state"], "completed");
    let started = Instant::now();
    assert_eq!(world.run("cancels", "x", &["--quiet"]).with(0).stdout, "done\n");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(world.tree("latest")[1]["run_state"], "cancelled");
    assert_eq!(world.sleepers(), []);
}

#[test]
fn the_nodes_are_listed_and_a_worker_is_asked_by_its_tool_name() {
    let world = World::new();
    let done = asked(&world, "offspring task nodes; offspring task ask_echo question").with(0);
    assert!(done.stdout.contains("echo\tagent\tSays it again.\n"), "{}", done.stdout);
    assert!(
        done.stdout.contains("both\tteam_parallel\t\n") && done.stdout.contains("chain\tteam_sequential\t\n")
    );
    assert!(done.stdout.ends_with("question\n"), "{}", done.stdout);
}

#[test]
fn o23_a_child_works_in_its_parents_directory_or_in_one_relative_to_it() {
    let world = World::new();
    std::fs::create_dir(world.here().join("sub")).unwrap();
    let script = "cd /; offspring task where x; offspring task where x --cwd sub";
    let done = asked(&world, script).with(0);
    let here = world.here().canonicalize().unwrap();
    assert_eq!(done.stdout, format!("{0}\n{0}/sub\n", here.display()));
}

#[test]
fn a_token_of_a_run_that_has_ended_opens_nothing() {
    let world = World::new();
    let kept = world.path("kept");
    world.pool(&format!(
        "
agents:
  top: {{type: command, command: [sh, -c, 'offspring task gives x; . {kept}; offspring task echo x']}}
  gives: {{type: command, command: [sh, -c, 'echo \"OFFSPRING_TOKEN=$OFFSPRING_TOKEN\" >{kept}']}}
  echo: {{type: command, command: [cat]}}
entry: top
",
        kept = kept.display()
    ));
    let done = world.run("top", "x", &["--quiet"]).with(1);
    assert!(done.stderr.contains("no run has this token, or it has ended"), "{}", done.stderr);
}

#[test]
fn w3_the_endpoint_answers_what_it_cannot_read_and_does_nothing_without_a_token() {
    use std::io::{BufRead, BufReader, Write};
    let world = World::new();
    world.pool(
        "
agents:
  top: {type: command, command: [sh, -c, 'echo \"$OFFSPRING_SOCKET\"; until [ -e \"$OFFSPRING_MANIFEST_DIR/gate\" ]; do sleep 0.05; done; offspring task echo x']}
  echo: {type: command, command: [cat]}
entry: top
",
    );
    let mut run = world.start("top", "x", &["--json", "--quiet"]);
    let socket = run.until_json(|line| line["event"]["kind"] == "text_delta");
    let socket = socket["event"]["data"]["text"].as_str().unwrap().trim().to_owned();
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
    };
    assert_eq!(mode(std::path::Path::new(&socket).parent().unwrap()), 0o700);
    assert!(socket.len() < 100);
    let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut to, mut from) = (stream.try_clone().unwrap(), BufReader::new(stream));
    let mut ask = |line: &str| -> Value {
        to.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    let task = r#"{"jsonrpc":"2.0","id":7,"method":"task/start","params":{"node":"echo","prompt":"x"}}"#;
    assert!(ask("this is no JSON")["error"]["code"].is_i64());
    assert!(ask("{\"hello\":1}")["error"]["code"].is_i64());
    let refused = ask(task);
    assert_eq!(refused["id"], 7);
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("say hello with the token of a run first")
    );
    let wrong = ask(r#"{"jsonrpc":"2.0","id":8,"method":"hello","params":{"token":"00"}}"#);
    assert!(wrong["error"]["message"].as_str().unwrap().contains("no run has this token"));
    assert!(ask(task)["error"].is_object());
    assert_eq!(ask(r#"{"jsonrpc":"2.0","id":9,"method":"no/such"}"#)["error"]["code"], -32601);
    world.write("pool/gate", "");
    let _ = run.finish().with(0);
    assert_eq!(world.tree("latest").len(), 2);
}
