//! `tree/get`.

use offspring_tests::{World, serve::Client};
use serde_json::json;

use crate::refuses_what_all_refuse;

#[test]
fn it_shows_a_session_and_all_below_it_and_where_its_log_ends() {
    let world = World::new();
    let mut client = Client::of_node(&world, "top");
    client.run("s", "deep");
    let tree = client.ask_of("tree/get", "s").unwrap();
    let sessions = tree["sessions"].as_array().unwrap();
    let depths: Vec<_> = sessions.iter().map(|it| it["session"]["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, [0, 1, 2], "parents first");
    let below = sessions[1]["session"]["id"].as_str().unwrap();
    let part = client.ask_of("tree/get", below).unwrap();
    assert_eq!(part["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(part["lastSeq"], tree["lastSeq"], "the number is the tree's");
    let log = world.offspring(&["watch", "s", "--json"]).with(0);
    assert_eq!(tree["lastSeq"], log.stdout.lines().count());
    client.shut_down();
}

#[test]
fn l18_subscribing_after_it_misses_nothing() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    client.run("s", "one");
    let last = client.ask_of("tree/get", "s").unwrap()["lastSeq"].as_u64().unwrap();
    client.ask("tree/subscribe", &json!({"sessionId": "s", "fromSeq": last + 1})).unwrap();
    client.run("s", "two");
    let event = client.until(|line| line["method"] == "tree.event");
    let envelope = &event["params"]["envelope"];
    assert_eq!(
        (envelope["seq"].as_u64(), &envelope["event"]["kind"]),
        (Some(last + 1), &"prompt_received".into())
    );
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("tree/get", &json!({"sessionId": "s"}));
}

#[test]
fn of_nobody_it_is_refused() {
    crate::of_nobody_it_is_refused("tree/get");
}
