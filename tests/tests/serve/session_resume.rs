//! `session/resume`.

use offspring_tests::{World, serve::Client};
use serde_json::json;

use crate::{hinted, refuses_what_all_refuse};

#[test]
fn l12_a_session_of_a_process_that_is_gone_goes_on_with_its_numbers() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    client.run("s", "before");
    client.shut_down();

    let mut client = Client::of_node(&world, "echo");
    assert_eq!(client.ask_of("session/resume", "s").unwrap(), json!({}));
    client.is_well();
    assert_eq!(client.notifications(), [] as [serde_json::Value; 0], "a resume says nothing");
    client.run("s", "after");
    let first = &client.notifications()[0]["params"]["event"];
    assert_eq!((&first["type"], &first["seq"]), (&"agent/inbox/spliced".into(), &6.into()));
    let turn = client.event("s", "turn/end");
    assert_eq!(turn["params"]["event"]["data"]["turn"], 2);
    client.shut_down();
}

#[test]
fn what_cannot_be_resumed_is_refused_in_the_runtimes_words() {
    let world = World::new();
    let mut client = Client::of_node(&world, "lead");
    client.run("s", "x");
    let error = client.refused("session/resume", &json!({"sessionId": "s"}));
    let hint = "prompt it: it is open on this connection";
    hinted(&error, -32008, "SDK session is already open or opening: s", hint);
    let error = client.refused("session/resume", &json!({"sessionId": "missing"}));
    let hint = "`session/list` names the roots that are stored";
    hinted(&error, -32004, "session \"missing\" not found", hint);
    // What was refused is not open by that.
    client
        .refused("session/wait", &json!({"sessionId": "missing"}))
        .is(-32004, "unknown SDK session: missing");
    let child = client.event("s", "tool/result")["params"]["event"]["data"]["message"]["sessions"][0].clone();
    let error = client.refused("session/resume", &json!({"sessionId": child}));
    assert_eq!(error.code, -32008);
    assert!(error.message.ends_with("already exists: it is a child in the tree of s"), "{error:?}");

    // L13: whose owner lives is left alone.
    let mut other = Client::of_node(&world, "echo");
    let error = other.refused("session/resume", &json!({"sessionId": "s"}));
    let hint = "another process runs its tree; it can be opened here when that process has ended";
    hinted(&error, -32009, "session \"s\" is already owned by an active write handle", hint);
    client.shut_down();
    other.ask_of("session/resume", "s").unwrap();
    other.run("s", "mine now");
    other.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("session/resume", &json!({"sessionId": "s"}));
}
