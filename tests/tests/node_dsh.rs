//! `type: dsh` through the program: what a runtime starts is part of our tree, and nothing of it outlives its run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    time::{Duration, Instant},
};

use offspring_tests::{Running, World, dsh::RealRuntime, fake_runtime, processes::SignalName as Signal};
use serde_json::{Value, json};

/// A pool whose entry is a runtime that plays this script; `more` are further keys of the agent, or of the pool.
fn world(script: &str, more: &str) -> World {
    let world = World::new();
    world.write("pool/play.script", script);
    fs::create_dir(world.path("gates")).unwrap();
    let (runtime, gates) = (fake_runtime(), world.path("gates"));
    world.pool(&format!(
        "entry: lead\nagents:\n  lead:\n    type: dsh\n    command: [{}, --gates, {}, play.script]\n    model: m\n{more}",
        runtime.display(),
        gates.display()
    ));
    world
}

/// Each session of the newest tree, parents first: depth, how its last run ended, with what error.
fn states(world: &World) -> Vec<String> {
    let one = |session: &Value| {
        let error = session["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
        format!("{} {}{error}", session["depth"], session["run_state"].as_str().unwrap())
    };
    world.tree("latest").iter().map(one).collect()
}

/// The runs of a session of the newest tree.
fn runs(world: &World, at: usize) -> Vec<Value> {
    let tree = world.tree("latest");
    let shown = world.json(&["show", tree[at]["id"].as_str().unwrap(), "--json"]);
    shown["runs"].as_array().unwrap().clone()
}

/// Every line of the newest tree's log.
fn log(world: &World) -> Vec<Value> {
    let log = world.offspring(&["watch", "latest", "--json"]).with(0).stdout;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const TREE: &str = r#"
# Two levels, a child that is started again, a finish of an old parent, an event after the end.
prompt $who
started ${who} a
event a assistant/message {"message":{"id":"m1","content":[{"type":"text","text":"from a"}]},"usage":{"inputTokens":100,"outputTokens":10,"cacheReadTokens":50,"totalTokens":160}}
event a assistant/message {"message":{"id":"m1","content":[]},"usage":{"inputTokens":100,"outputTokens":10,"cacheReadTokens":50,"totalTokens":160}}
started a b
turn-end b error INVALID_REQUEST "it broke"
started ${who} b
finished a b error error "partial"
message b "at its new place"
finished ${who} b error aborted
finished ${who} a ok completed "from a"
event a todo/write {"late":1}
started ${who} a
finished ${who} a ok completed "again"
message ${who} "asked two"
message ${who} "the answer"
turn-end ${who}
status ${who} idle
"#;

#[test]
fn t4_l4_l12_what_a_runtime_starts_is_one_tree_with_ours() {
    let world = world(TREE, "");
    // Below an agent of another type.
    let mut pool =
        fs::read_to_string(world.path("pool/pool.yaml")).unwrap().replace("entry: lead", "entry: top");
    pool.push_str("  top: {type: command, command: [sh, -c, 'offspring task lead \"$(cat)\"']}\n");
    world.pool(&pool);
    let done = world.run("top", "hello", &["--quiet"]).with(0);
    assert_eq!(done.stdout, "the answer\n");
    assert_eq!(
        states(&world),
        [
            "0 completed",
            "1 completed",
            "2 completed",
            "3 failed: it broke",
            "2 cancelled: the runtime stopped it",
        ]
    );
    let kinds: Vec<Value> = world.tree("latest").iter().map(|one| one["agent_type"].clone()).collect();
    assert_eq!(kinds, ["command", "dsh", "dsh", "dsh", "dsh"]);

    // L12: two runs of one session, one spawn; L15: one message counted once, though it was sent twice.
    let again = runs(&world, 2);
    let ended: Vec<&Value> = again.iter().map(|run| &run["state"]).collect();
    assert_eq!(ended, ["completed", "completed"]);
    let usage = &again[0]["usage"];
    let numbers = ["input_tokens", "cached_tokens", "output_tokens", "messages"]
        .map(|name| usage[name].as_u64().unwrap());
    assert_eq!(numbers, [150, 50, 10, 1]);
    let log = log(&world);
    let of_kind = |kind: &str| log.iter().filter(|line| line["event"]["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of_kind("spawn_session_start").len(), 4);
    assert_eq!(of_kind("run_started").len(), 6);
    let late: Vec<&Value> = log.iter().filter(|line| line["late"] == true).collect();
    assert_eq!((late.len(), &late[0]["event"]["data"]["name"]), (1, &json!("dsh.todo/write")));
    // T3: after it was moved it speaks from where it is now.
    let moved = world.tree("latest")[4]["id"].clone();
    let said =
        of_kind("text_delta").into_iter().find(|line| line["event"]["data"]["text"] == "at its new place");
    assert_eq!(said.unwrap()["session"], moved);
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn l12_when_the_runtime_dies_everything_that_is_open_is_interrupted() {
    let script = "# dies\nprompt $who\nstarted ${who} a\nstarted a b\nstarted ${who} c\nfinished ${who} c\n\
                  stderr \"out of luck\"\nkill\n";
    let world = world(script, "");
    let done = world.run("lead", "x", &["--quiet"]);
    assert_ne!(done.code, Some(0));
    let states = states(&world);
    let outcomes: Vec<&str> = states.iter().map(|state| state.split(':').next().unwrap()).collect();
    assert_eq!(outcomes, ["0 interrupted", "1 interrupted", "2 interrupted", "1 completed"]);
    // W4: why, as far as it is known.
    assert!(
        states[0].contains("was ended by signal 9") && states[0].contains("out of luck"),
        "{}",
        states[0]
    );
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn an_error_of_the_root_is_a_failed_run_with_what_the_model_s_server_said() {
    let script = "# error\nprompt $who\nmessage ${who} \"so far\"\nturn-end ${who} error RATE_LIMIT \"slow down\"\n\
                  status ${who} idle\n";
    let world = world(script, "");
    let done = world.run("lead", "x", &["--quiet"]).with(1);
    assert_eq!(states(&world), ["0 failed: slow down"]);
    assert!(done.stderr.contains("slow down"), "{}", done.stderr);
}

#[test]
fn a_session_that_the_runtime_has_stored_is_resumed_and_prompted_again() {
    let script = "# resumed\ntake session/prompt\nerror -32603 \"session \\\"x\\\" already exists\"\n\
                  take session/resume\nreply {}\nprompt $who\nmessage ${who} \"as before\"\nturn-end ${who}\n\
                  status ${who} idle\n";
    let world = world(script, "");
    assert_eq!(world.run("lead", "x", &["--quiet"]).with(0).stdout, "as before\n");
}

#[test]
fn l5_a_runtime_that_delegates_beyond_our_limits_and_cannot_be_asked_to_stop_is_closed() {
    let script =
        "# too deep\nprompt $who\nstarted ${who} a\nstarted a b\nmessage b \"dropped\"\ngate never\n";
    let world = world(script, "limits: {max_depth: 1}\n");
    world.run("lead", "x", &["--quiet"]).with(1);
    let states = states(&world);
    let too_deep = "delegation depth 2 exceeds the maximum of 1";
    assert!(states[0].starts_with(&format!("0 failed: {too_deep}")), "{states:?}");
    assert!(states[1].starts_with("1 interrupted"), "{states:?}");
    assert!(states[2].starts_with(&format!("2 failed: {too_deep}")), "{states:?}");
    assert!(!log(&world).iter().any(|line| line.to_string().contains("dropped")));
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn w10_the_runtime_gets_what_is_listed_for_it_and_no_secret_is_kept() {
    let script = "# secret\nprompt $who\nenvironment ${who}\nmessage ${who} \"key ${env:API_KEY}\"\n\
                  turn-end ${who}\nstatus ${who} idle\n";
    let world = world(script, "    home: kept\n    environment: {API_KEY: {from: TEST_SECRET}}\n");
    let mut command = world.run_command("lead", "x", &["--quiet"]);
    command.env("TEST_SECRET", "hunter2-hunter2").env("NOT_LISTED", "x");
    let done = Running::start(command).finish().with(0);
    assert_eq!(done.stdout, "key [redacted]\n");
    let text = log(&world).iter().map(Value::to_string).collect::<String>();
    assert!(!text.contains("hunter2"));
    assert!(text.contains("DSH_HOME") && text.contains("API_KEY") && !text.contains("NOT_LISTED"), "{text}");
}

const STUBBORN: &str = "# stubborn\non shutdown ignore\non stdin-end ignore\non sigterm ignore\nprompt $who\n\
                        leave-behind 600s\nstarted ${who} a\nmessage a \"at work\"\ngate never\n";

/// Takes four seconds: the steps of a close, each of which it ignores.
#[test]
fn l14_a_cancelled_run_leaves_no_process_of_a_runtime_that_ignores_everything() {
    let world = world(STUBBORN, "");
    let mut running = world.start("lead", "x", &["--json"]);
    running.until_json(|line| line["event"]["data"]["text"] == "at work");
    running.send(Signal::INT);
    assert_eq!(running.finish_within(Duration::from_secs(20)).code, Some(130));
    assert_eq!(states(&world), ["0 cancelled: cancelled", "1 cancelled: cancelled"]);
    world.until_nothing_lives(Duration::from_secs(1));
}

#[test]
fn l14_a_second_signal_waits_for_no_step_of_a_close() {
    let world = world(STUBBORN, "");
    let mut running = world.start("lead", "x", &["--json"]);
    running.until_json(|line| line["event"]["data"]["text"] == "at work");
    running.send(Signal::INT);
    // Its cancel has begun: the run of the child is over.
    running.until_json(|line| line["depth"] == 1 && line["event"]["data"]["outcome"] == "cancelled");
    // The polite way takes four seconds.
    let second = Instant::now();
    running.send(Signal::INT);
    assert_ne!(running.finish_within(Duration::from_secs(20)).code, Some(0));
    assert!(second.elapsed() < Duration::from_secs(3), "{:?}", second.elapsed());
    world.until_nothing_lives(Duration::from_secs(5));
}

/// Two runs in one process, of which one is cancelled.
const SHARED: &str = r#"
# shared
prompt $a
prompt $b
started ${a} x
message ${a} "stop me"
gate go
message ${a} "late of a"
message x "late of x"
finished ${a} x ok completed "late too"
message ${b} "still here"
turn-end ${b}
status ${b} idle
"#;

#[test]
fn l14_a_run_of_a_shared_runtime_that_cannot_stop_it_is_cancelled_unheard_and_the_others_go_on() {
    let more = "    shared: true\nteams:\n  both: {mode: parallel, members: [lead, lead]}\n";
    let world = world(SHARED, more);
    let mut running = world.start("both", "x", &["--json"]);
    let said = running.until_json(|line| line["event"]["data"]["text"] == "stop me");
    let session = said["session"].as_str().unwrap().to_owned();
    world.offspring(&["cancel", &session]).with(0);
    fs::write(world.path("gates/go"), "").unwrap();
    let done = running.finish();
    assert!(done.stdout.contains("still here"), "{done:?}");

    let tree = world.tree("latest");
    let of = |id: &Value| tree.iter().find(|one| one["id"] == *id).unwrap()["run_state"].clone();
    assert_eq!(of(&said["session"]), "cancelled");
    let below = tree.iter().find(|one| one["parent_id"] == said["session"]).unwrap();
    assert_eq!(below["run_state"], "cancelled");
    let other = tree.iter().find(|one| one["depth"] == 1 && one["id"] != said["session"]).unwrap();
    assert_eq!(other["run_state"], "completed");
    let log = log(&world);
    let text = log.iter().map(Value::to_string).collect::<String>();
    assert!(!text.contains("late of") && !text.contains("late too") && text.contains("still here"), "{text}");
    let said_so =
        log.iter().filter(|line| line["event"]["data"]["name"] == "dsh.not_stopped").collect::<Vec<_>>();
    assert!(said_so.iter().any(|line| line["session"] == session.as_str()), "{said_so:?}");
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn l12_a_child_that_is_cancelled_alone_is_not_heard_any_more_and_its_parent_goes_on() {
    let script = "# alone\nprompt $who\nstarted ${who} a\nmessage a \"at work\"\ngate go\nmessage a \"late\"\n\
                  started a b\nfinished a b\nfinished ${who} a\nmessage ${who} \"done\"\nturn-end ${who}\n\
                  status ${who} idle\n";
    let world = world(script, "");
    let mut running = world.start("lead", "x", &["--json"]);
    let said = running.until_json(|line| line["event"]["data"]["text"] == "at work");
    world.offspring(&["cancel", said["session"].as_str().unwrap()]).with(0);
    fs::write(world.path("gates/go"), "").unwrap();
    running.finish().with(0);
    assert_eq!(states(&world), ["0 completed", "1 cancelled: cancelled"]);
    let log = log(&world);
    assert!(!log.iter().any(|line| line["event"]["data"]["text"] == "late"));
    assert!(log.iter().any(|line| line["depth"] == 0 && line["event"]["data"]["name"] == "dsh.not_stopped"));
}

#[test]
fn check_finds_a_runtime_or_a_patch_that_is_not_there() {
    let world = World::new();
    let check = |keys: &str| {
        let path = world.pool(&format!("entry: lead\nagents:\n  lead: {{type: dsh, {keys}}}\n"));
        world.offspring(&["check", path.to_str().unwrap()])
    };
    let done = check("model: m, command: [no-such-runtime]").with(2);
    assert!(done.stderr.contains("the program `no-such-runtime` is not on PATH"), "{}", done.stderr);
    let done = check("model: m, command: [sh], patches: [gone.yml]").with(2);
    assert!(done.stderr.contains("there is no file `gone.yml`"), "{}", done.stderr);
    let done = check("command: [sh]").with(2);
    assert!(done.stderr.contains("model"), "{}", done.stderr);
    world.write("pool/a.yml", "");
    let done = check("model: m, command: [sh], patches: [a.yml]").with(0);
    assert!(done.stdout.contains("--profile sdk --patch a.yml"), "{}", done.stdout);
}

#[test]
fn l4_l12_two_levels_of_delegation_in_the_real_runtime_are_one_tree_with_outcomes_and_usage() {
    let Some(real) = RealRuntime::for_test("node_dsh::two_levels") else { return };
    let world = World::new();
    let environment: serde_json::Map<String, Value> = real
        .environment()
        .into_iter()
        .filter(|(name, _)| *name != "DSH_HOME")
        .map(|(name, value)| (name.to_owned(), value.into_string().unwrap().into()))
        .collect();
    let lead = json!({
        "type": "dsh", "command": [real.program()], "profile": real.profile.name, "patches": real.profile.patches,
        "home": "runtime", "model": "deepseek-v4-flash", "environment": environment,
    });
    // JSON is YAML.
    world.pool(&json!({ "entry": "lead", "agents": { "lead": lead } }).to_string());
    fs::create_dir(world.path("pool/runtime")).unwrap();
    world.run("lead", "DELEGATE 2", &["--quiet"]).with(0);
    assert_eq!(states(&world), ["0 completed", "1 completed", "2 completed"]);
    for at in 0..3 {
        let runs = runs(&world, at);
        assert_eq!(runs.len(), 1);
        let messages = runs[0]["usage"]["messages"].as_u64().unwrap();
        let input = runs[0]["usage"]["input_tokens"].as_u64().unwrap();
        // Who waited for a child spoke again when it was done.
        assert!(messages >= if at == 2 { 1 } else { 2 } && input > 0, "{at}: {runs:?}");
    }
    let calls = log(&world).iter().filter(|line| line["event"]["data"]["tool_name"] == "subagent").count();
    assert_eq!(calls, 4, "two calls, each with a start and an end");
    assert_eq!(real.model().unknown(), Vec::<String>::new());
    world.until_nothing_lives(Duration::from_secs(5));
}
