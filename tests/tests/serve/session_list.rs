//! `session/list`.

use offspring_tests::{
    World,
    serve::{Client, POOL},
};
use serde_json::json;

#[test]
fn it_lists_roots_newest_first_and_no_more_than_asked_for() {
    let world = World::new();
    let mut client = Client::of_node(&world, "lead");
    for id in ["one", "two", "three"] {
        client.run(id, "x");
    }
    let ids = |client: &mut Client, params: serde_json::Value| -> Vec<String> {
        let listed = client.ask("session/list", &params).unwrap();
        let ids = listed["sessions"].as_array().unwrap().iter();
        ids.map(|it| it["session"]["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&mut client, json!({})), ["three", "two", "one"]);
    assert_eq!(ids(&mut client, json!({"limit": 2})), ["three", "two"]);
    assert_eq!(ids(&mut client, json!({"limit": 1000})).len(), 3);
    let listed = client.ask("session/list", &json!(null)).unwrap();
    let newest = &listed["sessions"][0];
    assert_eq!((&newest["state"], &newest["lastRun"]["state"]), (&"idle".into(), &"completed".into()));
    assert_eq!(newest["session"]["title"], "x");
    assert!(listed.get("lastSeq").is_none());
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_a_limit_within_its_bounds() {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::new(&world);
    client.refused("session/list", &json!({})).is(-32007, "SDK server is not initialized");
    client.node("echo");
    client.refused("session/list", &json!({"limit": 1001})).is(-32602, "limit 1001 is more than 1000");
    for bad in [json!({"limit": -1}), json!({"limit": 1.5}), json!({"limit": "2"}), json!("x")] {
        assert_eq!(client.refused("session/list", &bad).code, -32602, "{bad}");
    }
    client.is_well();
    client.shut_down();
}
