//! `session/wait`.

use offspring_tests::{
    World,
    serve::{Client, gate, open_gate},
};
use serde_json::json;

use crate::{hinted, refuses_what_all_refuse};

#[test]
fn l19_it_is_answered_after_every_notification_of_the_whole_tree() {
    let world = World::new();
    let mut client = Client::of_node(&world, "top");
    client.prompt("s", "deep");
    client.ask_of("session/wait", "s").unwrap();
    let seen = client.notifications().len();
    let last = client.notifications().last().unwrap().clone();
    assert_eq!(last["params"], json!({"sessionId": "s", "status": "idle"}));
    let finished = client.notifications().iter().filter(|line| line["method"] == "subagent.finished").count();
    assert_eq!(finished, 2);
    client.is_well();
    assert_eq!(client.notifications().len(), seen, "nothing comes after it");
    // At rest it is answered at once.
    client.ask_of("session/wait", "s").unwrap();
    client.shut_down();
}

#[test]
fn while_it_waits_everything_else_goes_on() {
    let world = World::new();
    gate(&world);
    let mut client = Client::of_node(&world, "gate");
    client.prompt("s", "one");
    let waits = [
        client.call("session/wait", &json!({"sessionId": "s"})),
        client.call("session/wait", &json!({"sessionId": "s"})),
    ];
    // On the same session, and on others.
    client.prompt("s", "two");
    client.ask_of("session/working-directory/get", "s").unwrap();
    client.node("echo");
    client.run("other", "x");
    client.is_well();
    assert!(client.other_answers().is_empty(), "a wait was answered too early");
    open_gate(&world, "1");
    client.event("s", "turn/end");
    // It waits for what was queued after it too: the session was not at rest in between.
    client.is_well();
    assert!(client.other_answers().is_empty(), "a wait was answered between two turns");
    open_gate(&world, "2");
    for wait in waits {
        client.answer_to(wait).unwrap();
    }
    client.shut_down();
}

#[test]
fn of_what_is_not_open_here_it_is_refused() {
    let world = World::new();
    let mut client = Client::of_node(&world, "lead");
    client.run("s", "x");
    let child = client.event("s", "tool/result")["params"]["event"]["data"]["message"]["sessions"][0].clone();
    let child = child.as_str().unwrap();
    for id in ["never", child] {
        let error = client.refused("session/wait", &json!({"sessionId": id}));
        let hint = "open it on this connection by a prompt or by `session/resume`";
        hinted(&error, -32004, &format!("unknown SDK session: {id}"), hint);
    }
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("session/wait", &json!({"sessionId": "s"}));
}
