//! `session/get`.

use offspring_tests::{World, serve::Client};
use serde_json::json;

use crate::refuses_what_all_refuse;

#[test]
fn it_shows_a_root_or_a_child_as_it_is_now() {
    let world = World::new();
    let mut client = Client::of_node(&world, "boss");
    client.prompt("s", "go");
    world.until_sleepers(1);
    let root = client.ask_of("session/get", "s").unwrap();
    assert_eq!((&root["state"], &root["lastRun"]["state"]), (&"running".into(), &"running".into()));
    let started = client.until(|line| line["method"] == "subagent.started");
    let id = started["params"]["childSessionId"].as_str().unwrap().to_owned();
    let child = client.ask_of("session/get", &id).unwrap();
    assert_eq!((&child["session"]["parent_id"], &child["session"]["depth"]), (&"s".into(), &1.into()));
    client.ask_of("session/cancel", "s").unwrap();
    let child = client.ask_of("session/get", &id).unwrap();
    assert_eq!((&child["state"], &child["lastRun"]["state"]), (&"idle".into(), &"cancelled".into()));
    // One that never ran has no last run.
    client.ask_of("session/working-directory/get", "fresh").unwrap();
    let fresh = client.ask_of("session/get", "fresh").unwrap();
    assert_eq!((&fresh["state"], fresh.get("lastRun")), (&"idle".into(), None));
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("session/get", &json!({"sessionId": "s"}));
}

#[test]
fn of_nobody_it_is_refused() {
    crate::of_nobody_it_is_refused("session/get");
}
