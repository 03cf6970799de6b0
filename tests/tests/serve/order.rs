//! The order in which calls take effect, and how many may wait.

use std::fs;

use offspring_tests::{
    World,
    serve::{Client, POOL, prompts_of},
};
use serde_json::json;

/// Many calls written at once, before anything is read.
fn all_at_once(client: &mut Client, calls: &[(String, serde_json::Value)]) {
    let lines = calls.iter().enumerate().map(|(at, (method, params))| {
        json!({"jsonrpc": "2.0", "id": format!("c{at}"), "method": method, "params": params}).to_string()
    });
    let lines: Vec<String> = lines.collect();
    client.line(&lines.join("\n"));
}

#[test]
fn l12_five_hundred_calls_on_one_session_take_effect_in_the_order_of_the_wire() {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::with(&world, &["--max-calls", "600", "--max-queued-prompts", "600"]);
    client.node("echo");
    let here = world.here().canonicalize().unwrap();
    // Each step goes down or up again: one that was overtaken would not find its directory.
    fs::create_dir_all(here.join("a/b/c")).unwrap();
    let steps = ["a", "b", "c", "..", "..", ".."];
    let wheres = ["a", "a/b", "a/b/c", "a/b", "a", ""];
    let mut calls = Vec::new();
    for at in 0..500 {
        calls.push(match at % 10 {
            9 => ("session/prompt".to_owned(), offspring_tests::serve::prompt_params("s", &format!("{at}"))),
            _ => {
                let step = (at - at / 10) % 6;
                ("session/working-directory/set".to_owned(), json!({"sessionId": "s", "path": steps[step]}))
            }
        });
    }
    all_at_once(&mut client, &calls);
    let mut messages = Vec::new();
    for at in 0..500 {
        let answer = client.answer(&json!(format!("c{at}"))).unwrap();
        if at % 10 == 9 {
            messages.push(answer["messageId"].as_str().unwrap().to_owned());
        } else {
            let where_ = here.join(wheres[(at - at / 10) % 6]);
            let wanted = where_.to_str().unwrap().trim_end_matches('/');
            assert_eq!(answer["cwd"], wanted, "call {at}");
        }
    }
    client.ask_of("session/cancel", "s").unwrap();
    client.shut_down();
    let stored: Vec<String> = prompts_of(&world, "s").into_iter().map(|(id, _)| id).collect();
    assert_eq!(stored, messages, "in the log they stand in the order of the wire");
}

#[test]
fn more_calls_than_may_wait_are_refused_and_the_others_go_on() {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::with(&world, &["--max-calls", "4"]);
    client.node("slow");
    client.prompt("s", "x");
    world.until_sleepers(1);
    let waits: Vec<u64> = (0..4).map(|_| client.call("session/wait", &json!({"sessionId": "s"}))).collect();
    for _ in 0..3 {
        let error = client.refused("session/get", &json!({"sessionId": "s"}));
        error.is(-32001, "too many calls wait for their answers: the limit is 4 (calls)");
    }
    // Those that wait are answered as ever; what ends them comes from elsewhere here.
    assert_eq!(world.offspring(&["cancel", "s"]).code, Some(0));
    for wait in waits {
        client.answer_to(wait).unwrap();
    }
    client.is_well();
    client.shut_down();
}
