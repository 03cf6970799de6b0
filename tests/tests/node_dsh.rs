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

fn tree_id(world: &World, at: usize) -> String {
    world.tree("latest")[at]["id"].as_str().unwrap().to_owned()
}

/// The runs of a session of the newest tree.
fn runs(world: &World, at: usize) -> Vec<Value> {
    let shown = world.json(&["show", &tree_id(world, at), "--json"]);
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
event a agent/inbox/spliced {"inserted":[{"content":[{"type":"text","text":"do it"},{"type":"text","text":"Your parent is …"}],"source":{"kind":"user"}}]}
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

    // The row is there before the runtime says what it is for; the run begins when it does.
    let shown = world.offspring(&["show", tree_id(&world, 2).as_str()]).with(0).stdout;
    assert!(shown.contains("> do it\n") && shown.contains("model     m\n"), "{shown}");
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
    assert_eq!(world.json(&["show", &tree_id(&world, 0), "--json"])["session"]["model"], "m");
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

/// Where a runtime can put what it was given.
const LEAKS: &str = r#"
# leaks
prompt $who
started ${who} "child-${env:API_KEY}"
started ${who} "child-${env:API_KEY}-2"
started "child-${env:API_KEY}" ${env:API_KEY}
message ${env:API_KEY} "I am ${env:API_KEY}"
event "child-${env:API_KEY}-2" agent/inbox/spliced {"inserted":[{"content":[{"type":"text","text":"use ${env:API_KEY}"}]}]}
event ${who} "type/${env:API_KEY}" {"${env:API_KEY}":["${env:API_KEY}"]}
notify "method/${env:API_KEY}" {"sessionId":"${who}"}
event ${who} tool/call {"callId":"call-${env:API_KEY}","name":"tool-${env:API_KEY}","arguments":["${env:API_KEY}"]}
event ${who} tool/result {"message":{"toolCallId":"call-${env:API_KEY}","content":[{"type":"text","text":"${env:API_KEY}"}]}}
event ${who} assistant/message {"message":{"id":"m-${env:API_KEY}","content":[{"type":"text","text":"say ${env:API_KEY}"}]},"usage":{"inputTokens":1}}
event ${env:API_KEY} turn/end {"reason":{"kind":"error","error":{"code":"E-${env:API_KEY}","message":"bad ${env:API_KEY}"}}}
finished "child-${env:API_KEY}" ${env:API_KEY} error error "partial ${env:API_KEY}"
finished ${who} "child-${env:API_KEY}" ok completed "last ${env:API_KEY}"
finished ${who} "child-${env:API_KEY}-2"
line {"no":"JSON ${env:API_KEY}"
line "${env:API_KEY}
stderr "bad key ${env:API_KEY}"
kill
"#;

#[test]
fn w10_a_key_that_a_runtime_gives_back_anywhere_is_nowhere_in_the_store() {
    let world = world(LEAKS, "    environment: {API_KEY: {from: TEST_SECRET}}\n");
    let mut command = world.run_command("lead", "x", &["--quiet"]);
    command.env("TEST_SECRET", "hunter2\"a\\b-hunter3");
    let done = Running::start(command).finish();
    assert_ne!(done.code, Some(0));
    let mut states = states(&world);
    // Siblings of one moment have no order.
    states.sort();
    let outcomes: Vec<&str> = states.iter().map(|state| state.split(':').next().unwrap()).collect();
    assert_eq!(outcomes, ["0 interrupted", "1 completed", "1 completed", "2 failed"]);
    assert!(states[0].contains("[redacted]") && states[3].contains("bad [redacted]"), "{states:?}");
    let externals: Vec<Value> = (1..4)
        .map(|at| world.json(&["show", &tree_id(&world, at), "--json"])["session"]["external"]["id"].clone())
        .collect();
    assert!(externals.iter().all(|id| id.as_str().unwrap().contains("[redacted]")), "{externals:?}");
    assert!(externals[0] != externals[1] && externals[0] != externals[2], "{externals:?}");
    let calls: Vec<Value> = log(&world)
        .iter()
        .map(|line| line["event"]["data"]["tool_call_id"].clone())
        .filter(Value::is_string)
        .collect();
    assert!(calls.len() == 2 && calls[0] == calls[1], "{calls:?}");
    let mut looked_at = 0;
    for file in fs::read_dir(world.db().parent().unwrap()).unwrap() {
        let Ok(bytes) = fs::read(file.unwrap().path()) else { continue };
        looked_at += bytes.len();
        assert!(!bytes.windows(7).any(|piece| piece == b"hunter2" || piece == b"hunter3"));
    }
    assert!(looked_at > 10_000 && !done.stderr.contains("hunter"), "{looked_at} {}", done.stderr);
}

#[test]
fn what_a_runtime_gives_is_stored_as_far_as_it_is_kept() {
    let long = "x".repeat(1 << 20);
    let script = format!(
        "# too long\nprompt $who\nevent ${{who}} \"long/{long}\"\nevent ${{who}} tool/call \
         {{\"callId\":\"k{long}\",\"name\":\"{long}\",\"arguments\":\"{long}\"}}\nstarted ${{who}} \"{long}\"\n\
         event \"{long}\" turn/end \
         {{\"reason\":{{\"kind\":\"error\",\"error\":{{\"code\":\"{long}\",\"message\":\"{long}\"}}}}}}\nfinished ${{who}} \"{long}\" error error\n\
         turn-end ${{who}}\nstatus ${{who}} idle\n"
    );
    let world = world(&script, "");
    world.run("lead", "x", &["--quiet"]).with(0);
    let stored = fs::metadata(world.db()).unwrap().len();
    assert!(stored < 512 << 10, "{stored}");
    let said = log(&world).iter().map(Value::to_string).collect::<String>();
    // The type, the name of the tool, the code and the text of the error.
    assert!(said.matches("bytes left out)").count() >= 4, "{said}");
    assert!(said.contains(r#""input":{"left_out_bytes":1048578}"#), "{said}");
    assert!(states(&world)[1].starts_with("1 failed: x"));
}

/// More than any queue holds, faster than it can be stored.
#[test]
fn t11_a_burst_of_a_runtime_waits_for_the_store_and_nothing_of_it_is_lost() {
    let script = "# burst\nprompt $who\ntogether\nrepeat 10000\nevent ${who} todo/write {\"n\":1}\nend\nend\n\
                  message ${who} \"done\"\nturn-end ${who}\nstatus ${who} idle\n";
    let world = world(script, "");
    assert_eq!(world.run("lead", "x", &["--quiet"]).with(0).stdout, "done\n");
    assert_eq!(
        log(&world).iter().filter(|line| line["event"]["data"]["name"] == "dsh.todo/write").count(),
        10_000
    );
}

#[test]
fn t11_bytes_of_a_burst_wait_for_the_store_as_well() {
    let long = "x".repeat(1 << 20);
    let script = format!(
        "# burst\nprompt $who\ntogether\nrepeat 12\nmessage ${{who}} \"{long}\"\nend\nend\nmessage ${{who}} \"done\"\n\
         turn-end ${{who}}\nstatus ${{who}} idle\n"
    );
    let world = world(&script, "");
    assert_eq!(world.run("lead", "x", &["--quiet"]).with(0).stdout, "done\n");
    let told: usize = log(&world)
        .iter()
        .filter_map(|line| line["event"]["data"]["text"].as_str())
        .map(|text| text.matches('x').count())
        .sum();
    assert_eq!(told, 12 << 20);
}

#[test]
fn l14_a_runtime_that_is_held_up_can_be_cancelled() {
    let script = "# flood\nprompt $who\nmessage ${who} \"at work\"\nrepeat 1000000\nevent ${who} todo/write {\"n\":1}\n\
                  end\n";
    let world = world(script, "");
    let mut running = world.start("lead", "x", &["--json"]);
    running.until_json(|line| line["event"]["data"]["text"] == "at work");
    running.send(Signal::INT);
    assert_eq!(running.finish_within(Duration::from_secs(20)).code, Some(130));
    world.until_nothing_lives(Duration::from_secs(1));
}

#[test]
fn w4_a_runtime_that_floods_its_stderr_goes_on_and_one_that_says_nothing_more_is_ended() {
    let script = "# loud\nprompt $who\nstderr-fill 8MiB\nmessage ${who} \"done\"\nturn-end ${who}\nstatus ${who} idle\n";
    let loud = world(script, "");
    assert_eq!(loud.run("lead", "x", &["--quiet"]).with(0).stdout, "done\n");
    let script = "# silent\nprompt $who\nstarted ${who} a\ngate never\n";
    let silent = world(script, "    limits: {max_silence_ms: 300}\n");
    silent.run("lead", "x", &["--quiet"]).with(1);
    let states = states(&silent);
    assert!(states[0].starts_with("0 failed") && states[1].starts_with("1 "), "{states:?}");
    assert!(!states[1].contains("running") && !states[1].contains("pending"), "{states:?}");
    silent.until_nothing_lives(Duration::from_secs(5));
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

const BOTH: &str = "    shared: true\nteams:\n  both: {mode: parallel, members: [lead, lead]}\n";

#[test]
fn a_prompt_that_a_shared_runtime_does_not_answer_keeps_no_other_run_back() {
    let end = |who: &str| {
        format!(
            "receipt ${{{who}.session}} {who}\nstatus ${{{who}.session}} running\n\
             reply {who} {{\"messageId\":\"${{{who}.message}}\"}}\nmessage ${{{who}.session}} \"by {who}\"\n\
             turn-end ${{{who}.session}}\nstatus ${{{who}.session}} idle\n"
        )
    };
    let script = format!(
        "# no answer\ntake session/prompt as a\ntake session/prompt as b\n{}gate go\n{}",
        end("b"),
        end("a")
    );
    let world = world(&script, BOTH);
    let mut running = world.start("both", "x", &["--json"]);
    running.until_json(|line| line["event"]["kind"] == "stream_complete" && line["depth"] == 1);
    fs::write(world.path("gates/go"), "").unwrap();
    let done = running.finish().with(0);
    assert!(done.stdout.contains("by a") && done.stdout.contains("by b"), "{done:?}");
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn l14_a_run_that_is_cancelled_before_its_runtime_is_ready_spoils_it_for_no_other() {
    let script = "# slow\nstop-reading\ngate go\nstart-reading\nprompt $who\nmessage ${who} \"ready\"\n\
                  turn-end ${who}\nstatus ${who} idle\n";
    let world = world(script, BOTH);
    let mut running = world.start("both", "x", &["--json"]);
    let started = |line: &Value| line["event"]["kind"] == "run_started" && line["depth"] == 1;
    let one = running.until_json(started);
    running.until_json(started);
    let began = Instant::now();
    world.offspring(&["cancel", one["session"].as_str().unwrap()]).with(0);
    running
        .until_json(|line| line["event"]["kind"] == "stream_complete" && line["session"] == one["session"]);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    fs::write(world.path("gates/go"), "").unwrap();
    let done = running.finish();
    assert!(done.stdout.contains("ready") && !done.stdout.contains("dsh.not_stopped"), "{done:?}");
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn a_shared_runtime_that_is_not_ready_in_one_directory_works_on_in_another() {
    let world = world(
        "# good\nprompt $who\ngate go\nmessage ${who} \"good\"\nturn-end ${who}\nstatus ${who} idle\n",
        "",
    );
    world.write("pool/bad.script", "# bad\ntake initialize as first\nerror first -32603 \"no\"\n");
    for name in ["a", "b"] {
        fs::create_dir(world.here().join(name)).unwrap();
    }
    let gates = world.path("gates");
    let play = |script: &str| {
        format!(
            "exec {} --gates {} {}",
            fake_runtime().display(),
            gates.display(),
            world.path(script).display()
        )
    };
    let (good, bad) = (play("pool/play.script"), play("pool/bad.script"));
    let lead = json!({
        "type": "dsh", "model": "m", "shared": true,
        "command": ["sh", "-c", format!("case $PWD in */b) {bad};; *) {good};; esac")],
    });
    let both = format!(
        "offspring task lead --cwd a one & offspring task lead --cwd b two 2>/dev/null || touch {}; wait",
        gates.join("go").display()
    );
    let top = json!({ "type": "command", "command": ["sh", "-c", both] });
    world.pool(&json!({ "entry": "top", "agents": { "top": top, "lead": lead } }).to_string());
    let done = world.run("top", "x", &["--quiet"]).with(0);
    assert!(done.stdout.contains("good"), "{done:?}");
    let mut states = states(&world);
    states.sort();
    assert_eq!(states[1], "1 completed");
    assert!(states[2].starts_with("1 failed") && states[2].contains("no"), "{states:?}");
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
