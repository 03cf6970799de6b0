//! The real runtime without any client between: what the client relies on is what it really sends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::dsh::{Profile, RealRuntime, Wire};
use serde_json::{Value, json};

fn is_status(message: &Value, session: &str, status: &str) -> bool {
    let params = &message["params"];
    message["method"] == "session.status" && params["sessionId"] == session && params["status"] == status
}

/// What comes from a prompt to the reply of `session/wait`.
fn whole_tree(wire: &mut Wire, session: &str, text: &str) -> Vec<Value> {
    wire.prompt("p", session, text);
    let mut seen = wire.until(|message| is_status(message, session, "idle"));
    wire.send("w", "session/wait", Some(&json!({ "sessionId": session })));
    seen.extend(wire.reply("w"));
    seen
}

#[test]
fn a_tree_of_three_starts_top_down_and_finishes_bottom_up() {
    let Some(real) = RealRuntime::for_test("a_tree_of_three_starts_top_down_and_finishes_bottom_up") else {
        return;
    };
    let mut wire = real.start();
    wire.initialize();
    wire.prompt("p", "root", "DELEGATE 2 GATE leaf");
    let early = wire.until(|message| is_status(message, "root", "idle"));
    // The root is done with its turn while its grandchild has not even answered.
    assert!(early.iter().all(|message| message["method"] != "subagent.finished"));
    real.model().wait_at("leaf", 1);
    real.model().open("leaf");
    wire.send("w", "session/wait", Some(&json!({ "sessionId": "root" })));
    let mut seen = early;
    seen.extend(wire.reply("w"));

    let pairs = |method: &str| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let found = seen.iter().filter(|message| message["method"] == method);
        found
            .map(|it| (text(&it["params"]["parentSessionId"]), text(&it["params"]["childSessionId"])))
            .collect()
    };
    let started = pairs("subagent.started");
    let mut finished = pairs("subagent.finished");
    finished.reverse();
    assert_eq!(started.len(), 2);
    assert_eq!((started[0].0.as_str(), &started[0].1), ("root", &started[1].0));
    assert_eq!(started, finished);
    assert_eq!(real.model().unknown(), Vec::<String>::new());
    wire.shut_down();
}

#[test]
fn error_texts_that_the_client_tells_apart() {
    let Some(real) = RealRuntime::for_test("error_texts_that_the_client_tells_apart") else { return };
    let mut wire = real.start();
    let session = |id: &str| json!({ "sessionId": id });
    assert_eq!(wire.ask("session/wait", &session("s")).unwrap_err(), "SDK server is not initialized");
    let nobody = json!({ "cwd": real.work(), "provider": "nobody", "model": "m" });
    assert_eq!(wire.ask("initialize", &nobody).unwrap_err(), "no adapter registered for provider \"nobody\"");
    wire.initialize();

    let unknown = wire.ask("session/nonsense", &json!({})).unwrap_err();
    assert_eq!(unknown, "unknown DeepSeek Harness SDK runtime method: session/nonsense");
    let unknown = wire.ask("session/cancel", &session("s")).unwrap_err();
    assert_eq!(unknown, "unknown DeepSeek Harness SDK runtime method: session/cancel");
    assert_eq!(wire.ask("session/wait", &session("nobody")).unwrap_err(), "unknown SDK session: nobody");
    assert_eq!(wire.ask("session/resume", &session("nobody")).unwrap_err(), "session \"nobody\" not found");

    whole_tree(&mut wire, "s", "SAY hello");
    let open = wire.ask("session/resume", &session("s")).unwrap_err();
    assert_eq!(open, "SDK session is already open or opening: s");
    // A wait that a shutdown overtakes is told the same as one whose tree is quiet.
    wire.prompt("q", "s", "GATE never\nSAY never");
    real.model().wait_at("never", 1);
    wire.send("w", "session/wait", Some(&session("s")));
    wire.send("last", "shutdown", None);
    let waited = wire.reply("w").pop().unwrap();
    assert_eq!(waited["result"], json!({}));
    wire.end().with(0);

    // A second process finds the session on disk.
    let mut wire = real.start();
    wire.initialize();
    let block = json!([{ "type": "text", "text": "hi" }]);
    let taken = wire.ask("session/prompt", &json!({ "sessionId": "s", "contentBlocks": block })).unwrap_err();
    assert_eq!(taken, "session \"s\" already exists");
    wire.ask("session/resume", &session("s")).unwrap();
    let mut other = real.start();
    other.initialize();
    let owned = other.ask("session/resume", &session("s")).unwrap_err();
    assert_eq!(owned, "session \"s\" is already owned by an active write handle");
    other.shut_down();
    wire.shut_down();
}

#[test]
fn a_patch_that_does_not_activate_is_only_told_on_stderr() {
    let Some(real) = RealRuntime::for_test("a_patch_that_does_not_activate_is_only_told_on_stderr") else {
        return;
    };
    let patch = real.work().join("wrong.patch.yml");
    std::fs::write(&patch, "- insert:\n    - id: subagent\n      name: '@deepseek-ai/dsh-no-such-plugin'\n")
        .unwrap();
    let real = real.with(Profile { name: "sdk-minimal", patches: vec![patch] });
    let mut wire = real.start();
    wire.initialize();
    let end = wire.end();
    assert!(end.stderr.contains("did not activate"), "{end:?}");
}
