//! `session/cancel`.

use std::time::Duration;

use offspring_tests::{
    World,
    serve::{Client, prompts_of},
};
use serde_json::json;

use crate::refuses_what_all_refuse;

#[test]
fn l14_it_ends_a_tree_from_the_leaves_and_says_who_ended() {
    let world = World::new();
    let mut client = Client::of_node(&world, "boss");
    client.prompt("s", "go");
    world.until_sleepers(1);
    let ended = client.ask_of("session/cancel", "s").unwrap();
    assert!(world.sleepers().is_empty(), "it returned before the end");
    let child = client.until(|line| line["method"] == "subagent.finished");
    assert_eq!(
        (&child["params"]["status"], &child["params"]["stopReason"]),
        (&"error".into(), &"aborted".into())
    );
    assert_eq!(ended, json!({"ended": [child["params"]["childSessionId"], "s"]}));
    let end = client.event("s", "turn/end");
    assert_eq!(end["params"]["event"]["data"]["reason"], json!({"kind": "aborted"}));
    client.status("s", "idle");
    // Twice is harmless, and a later prompt starts anew.
    assert_eq!(client.ask_of("session/cancel", "s").unwrap(), json!({"ended": []}));
    client.prompt("s", "again");
    world.until_sleepers(1);
    client.ask_of("session/cancel", "s").unwrap();
    client.shut_down();
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn l14_of_a_child_it_ends_the_child_alone() {
    let world = World::new();
    let mut client = Client::of_node(&world, "boss");
    client.prompt("s", "go");
    world.until_sleepers(1);
    let started = client.until(|line| line["method"] == "subagent.started");
    let child = started["params"]["childSessionId"].clone();
    assert_eq!(
        client.ask("session/cancel", &json!({"sessionId": child})).unwrap(),
        json!({"ended": [child]})
    );
    // Its parent is told and ends by itself, as one whose task was cancelled.
    client.ask_of("session/wait", "s").unwrap();
    let end = client.event("s", "turn/end");
    assert_eq!(end["params"]["event"]["data"]["reason"]["kind"], "error");
    client.shut_down();
}

#[test]
fn l14_what_waits_is_dropped_and_what_comes_after_it_is_not() {
    let world = World::new();
    let mut client = Client::of_node(&world, "slow");
    // In one breath: each takes effect in the order of the wire.
    let before =
        [client.call_prompt("s", "runs"), client.call_prompt("s", "waits"), client.call_prompt("s", "waits")];
    let cancel = client.call("session/cancel", &json!({"sessionId": "s"}));
    let after = client.call_prompt("s", "starts anew");
    let ids = before.map(|call| client.answer_to(call).unwrap()["messageId"].as_str().unwrap().to_owned());
    client.answer_to(cancel).unwrap();
    let after = client.answer_to(after).unwrap()["messageId"].as_str().unwrap().to_owned();
    world.until_sleepers(1);
    client.ask_of("session/cancel", "s").unwrap();
    client.ask_of("session/wait", "s").unwrap();
    let idles = client.notifications().iter().filter(|line| line["params"]["status"] == "idle").count();
    assert!((1..=2).contains(&idles), "{idles}");
    client.shut_down();
    let ends: Vec<(String, String)> = prompts_of(&world, "s");
    let named = |id: &String| ends.iter().find(|(other, _)| other == id).unwrap().1.as_str();
    // The first was running, or about to: it is never left to run.
    assert!(["cancelled", "dropped: cancelled"].contains(&named(&ids[0])), "{ends:?}");
    assert_eq!([named(&ids[1]), named(&ids[2])], ["dropped: cancelled"; 2], "{ends:?}");
    assert_eq!(named(&after), "cancelled", "{ends:?}");
}

#[test]
fn of_nobody_it_is_refused() {
    crate::of_nobody_it_is_refused("session/cancel");
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("session/cancel", &json!({"sessionId": "s"}));
}
