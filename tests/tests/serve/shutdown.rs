//! `shutdown`.

use std::time::Duration;

use offspring_tests::{
    World,
    serve::{Client, POOL, prompts_of},
};
use serde_json::{Value, json};

#[test]
fn it_is_answered_before_and_after_initialize_whatever_its_params() {
    for params in [Value::Null, json!({}), json!([1]), json!({"x": 1})] {
        let world = World::new();
        world.pool(POOL);
        let mut client = Client::new(&world);
        assert_eq!(client.ask("shutdown", &params).unwrap(), json!({}));
        let done = client.finish().with(0);
        assert!(done.stderr.is_empty(), "{}", done.stderr);
    }
}

#[test]
fn l14_what_runs_is_cancelled_leaves_first_and_what_waits_is_dropped() {
    let world = World::new();
    let mut client = Client::of_node(&world, "boss");
    let messages = [client.prompt("s", "runs"), client.prompt("s", "waits")];
    world.until_sleepers(1);
    let wait = client.call("session/wait", &json!({"sessionId": "s"}));
    assert_eq!(client.ask("shutdown", &Value::Null).unwrap(), json!({}));
    // A wait that is cut short is no success: the tree did not come to rest by itself.
    client.answer_to(wait).unwrap_err().is(-32005, "SDK server is shutting down");
    let done = client.finish().with(0);
    assert!(done.stderr.is_empty(), "{}", done.stderr);
    world.until_nothing_lives(Duration::from_secs(5));
    let [runs, waits] = messages;
    let ends = [(runs, "cancelled".to_owned()), (waits, "dropped: closing".to_owned())];
    assert_eq!(prompts_of(&world, "s"), ends);
    let tree = world.tree("s");
    assert!(tree.iter().all(|session| session["outcome"] == "cancelled"), "{tree:?}");
}

#[test]
fn every_line_after_it_is_ignored() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    client.line(concat!(
        r#"{"jsonrpc":"2.0","id":"a","method":"shutdown"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":"b","method":"session/prompt","params":{"sessionId":"s","contentBlocks":[]}}"#
    ));
    client.answer(&"a".into()).unwrap();
    client.read_to_end();
    assert!(client.other_answers().is_empty());
    client.finish().with(0);
    assert_eq!(world.json(&["ls", "--json"]), json!([]));
}
