//! `tree/subscribe` and `tree/unsubscribe`.

use offspring_tests::{
    World,
    serve::{Client, gate, open_gate},
};
use serde_json::{Value, json};

use crate::refuses_what_all_refuse;

/// The envelopes of a subscription, up to one that is wanted.
fn until(client: &mut Client, subscription: &Value, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen = Vec::new();
    client.until(|line| {
        if line["method"] != "tree.event" || line["params"]["subscription"] != *subscription {
            return false;
        }
        let envelope = line["params"]["envelope"].clone();
        seen.push(envelope.clone());
        wanted(&envelope)
    });
    seen
}

fn is_rest(envelope: &Value) -> bool {
    envelope["session"] == "s" && envelope["event"]["data"]["state"] == "idle"
}

fn numbers(envelopes: &[Value]) -> Vec<u64> {
    envelopes.iter().map(|envelope| envelope["seq"].as_u64().unwrap()).collect()
}

#[test]
fn l18_what_was_and_what_comes_is_the_stored_log_without_gap_or_duplicate() {
    let world = World::new();
    gate(&world);
    let mut client = Client::of_node(&world, "gate");
    let prompt = client.call_prompt("s", "one");
    // Pipelined behind the prompt that makes the session.
    let all = client.call("tree/subscribe", &json!({"sessionId": "s"}));
    let all = client.answer_to(all).unwrap()["subscription"].clone();
    assert!(
        client.notifications().iter().all(|line| line["method"] != "tree.event"),
        "no event of a subscription comes before its number"
    );
    client.answer_to(prompt).unwrap();
    open_gate(&world, "1");
    let first = until(&mut client, &all, is_rest);
    let late =
        client.ask("tree/subscribe", &json!({"sessionId": "s", "fromSeq": 3})).unwrap()["subscription"]
            .clone();
    assert_ne!(all, late);
    client.prompt("s", "two");
    open_gate(&world, "2");
    client.ask_of("session/wait", "s").unwrap();
    let log = world.offspring(&["watch", "s", "--json"]).with(0);
    let log: Vec<Value> = log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = log.last().unwrap()["seq"].clone();
    // What both subscriptions were sent, whatever was looked at already.
    client.until(|line| line["params"]["subscription"] == all && line["params"]["envelope"]["seq"] == last);
    while !sent(&client, &late).last().is_some_and(|envelope| envelope["seq"] == last) {
        client.is_well();
    }
    assert_eq!(sent(&client, &all), log);
    assert_eq!(sent(&client, &late), log[2..]);
    assert_eq!(numbers(&first), (1..=first.len() as u64).collect::<Vec<u64>>());
    let (path, depth) = (&log[0]["path"], &log[0]["depth"]);
    assert_eq!((path, depth), (&json!(["s"]), &json!(0)));
    client.shut_down();
}

fn sent(client: &Client, subscription: &Value) -> Vec<Value> {
    let lines = client.notifications().iter();
    let own = lines
        .filter(|line| line["method"] == "tree.event" && line["params"]["subscription"] == *subscription);
    own.map(|line| line["params"]["envelope"].clone()).collect()
}

#[test]
fn of_a_child_it_sends_what_is_below_it() {
    let world = World::new();
    let mut client = Client::of_node(&world, "top");
    client.run("s", "deep");
    let child = client.event("s", "tool/result")["params"]["event"]["data"]["message"]["sessions"][0].clone();
    let subscription =
        client.ask("tree/subscribe", &json!({"sessionId": child})).unwrap()["subscription"].clone();
    let own = until(&mut client, &subscription, |envelope| {
        envelope["session"] == child && envelope["event"]["data"]["state"] == "idle"
    });
    assert!(own.iter().all(|envelope| envelope["path"].as_array().unwrap().contains(&child)));
    assert!(own.iter().any(|envelope| envelope["depth"] == 2));
    client.shut_down();
}

#[test]
fn one_that_was_ended_sends_nothing_more() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    client.run("s", "one");
    let subscription =
        client.ask("tree/subscribe", &json!({"sessionId": "s"})).unwrap()["subscription"].clone();
    until(&mut client, &subscription, is_rest);
    assert_eq!(client.ask("tree/unsubscribe", &json!({"subscription": subscription})).unwrap(), json!({}));
    let before = sent(&client, &subscription).len();
    client.run("s", "two");
    assert_eq!(sent(&client, &subscription).len(), before);
    let error = client.refused("tree/unsubscribe", &json!({"subscription": subscription}));
    error.is(-32602, &format!("this connection has no subscription {subscription}"));
    for bad in [json!({}), json!({"subscription": "1"}), json!({"subscription": -1})] {
        assert_eq!(client.refused("tree/unsubscribe", &bad).code, -32602);
    }
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("tree/subscribe", &json!({"sessionId": "s"}));
}

#[test]
fn of_nobody_and_from_no_number_it_is_refused() {
    crate::of_nobody_it_is_refused("tree/subscribe");
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    for from in [json!(-1), json!(1.5), json!("1")] {
        let params = json!({"sessionId": "s", "fromSeq": from});
        assert_eq!(client.refused("tree/subscribe", &params).code, -32602);
    }
    client.shut_down();
}
