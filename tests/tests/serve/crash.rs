//! A server that is killed.

use std::time::Duration;

use offspring_tests::{
    World,
    processes::SignalName as Signal,
    serve::{Client, prompts_of},
};
use serde_json::json;

#[test]
fn l13_after_a_kill_each_prompt_that_was_acknowledged_has_one_outcome() {
    let world = World::new();
    let mut client = Client::of_node(&world, "boss");
    let messages = [client.prompt("s", "runs"), client.prompt("s", "waits"), client.prompt("s", "waits too")];
    world.until_sleepers(1);
    client.process().send(Signal::KILL);
    let done = client.finish();
    assert_eq!(done.signal, Some(9));
    world.until_nothing_lives(Duration::from_secs(10));

    let mut client = Client::of_node(&world, "echo");
    client.ask_of("session/resume", "s").unwrap();
    // What waited is told as turns that failed, and then the session is at rest.
    let idle = client.status("s", "idle");
    assert_eq!(idle["params"]["sessionId"], "s");
    let ends = client.notifications().iter().filter(|line| line["params"]["event"]["type"] == "turn/end");
    let codes: Vec<_> =
        ends.map(|line| line["params"]["event"]["data"]["reason"]["error"]["code"].clone()).collect();
    assert_eq!(codes, ["owner_lost", "owner_lost"]);
    let wanted = [messages[0].clone(), messages[1].clone(), messages[2].clone()];
    let [runs, waits, too] = wanted;
    let outcomes = [
        (runs, "interrupted".to_owned()),
        (waits, "dropped: owner_lost".to_owned()),
        (too, "dropped: owner_lost".to_owned()),
    ];
    assert_eq!(prompts_of(&world, "s"), outcomes);
    let log = |world: &World| world.offspring(&["watch", "s", "--json"]).with(0).stdout;
    let before = log(&world);
    client.shut_down();

    // A second look finds nothing to do.
    let mut client = Client::of_node(&world, "echo");
    client.ask_of("session/resume", "s").unwrap();
    client.is_well();
    assert_eq!(client.notifications().len(), 0, "{:?}", client.notifications());
    assert_eq!(log(&world), before);
    // And it can be used.
    client.prompt("s", "again");
    world.until_sleepers(1);
    client.ask_of("session/cancel", "s").unwrap();
    client.shut_down();
    let prompts = prompts_of(&world, "s");
    assert_eq!(prompts[..3], outcomes);
    assert_eq!(prompts[3].1, "cancelled");
}

#[test]
fn l13_a_tree_that_another_process_took_over_is_not_interrupted_again() {
    let world = World::new();
    let mut client = Client::of_node(&world, "slow");
    client.prompt("s", "runs");
    world.until_sleepers(1);
    client.process().send(Signal::KILL);
    let _ = client.finish();
    let mut first = Client::of_node(&world, "echo");
    first.ask_of("session/resume", "s").unwrap();
    let mut second = Client::of_node(&world, "echo");
    assert_eq!(second.refused("session/resume", &json!({"sessionId": "s"})).code, -32009);
    first.shut_down();
    second.ask_of("session/resume", "s").unwrap();
    second.shut_down();
    let log = world.offspring(&["watch", "s", "--json"]).with(0).stdout;
    assert_eq!(log.matches("\"interrupted\":true").count(), 1, "{log}");
    world.until_nothing_lives(Duration::from_secs(10));
}
