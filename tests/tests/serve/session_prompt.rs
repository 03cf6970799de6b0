//! `session/prompt`.

use offspring_tests::{
    World,
    serve::{Client, POOL, gate, open_gate, prompt_params, prompts_of},
};
use serde_json::{Value, json};

use crate::{hinted, refuses_what_all_refuse};

#[test]
fn t13_the_receipt_comes_before_the_answer_and_the_answer_before_nothing_of_an_older_turn() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    let message = client.prompt("s", "hello");
    let receipt = &client.notifications()[0]["params"]["event"];
    assert_eq!(receipt["type"], "agent/inbox/spliced");
    assert_eq!(receipt["data"]["inserted"][0]["id"], *message);
    assert_eq!(receipt["data"]["inserted"][0]["content"], json!([{"type": "text", "text": "hello"}]));
    let said = client.event("s", "assistant/message");
    assert_eq!(said["params"]["event"]["data"]["message"]["content"][0]["text"], "hello");
    let end = client.event("s", "turn/end");
    assert_eq!(end["params"]["event"]["data"], json!({"turn": 1, "reason": {"kind": "completed"}}));
    client.status("s", "idle");
    client.shut_down();
}

#[test]
fn several_blocks_are_one_prompt_and_none_is_an_empty_one() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    let blocks = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two", "more": 1}]);
    for (session, blocks, text) in [("two", blocks, "one\ntwo"), ("none", json!([]), "")] {
        client.ask("session/prompt", &json!({"sessionId": session, "contentBlocks": blocks})).unwrap();
        let said = client.event(session, "user/message");
        assert_eq!(said["params"]["event"]["data"]["content"][0]["text"], text);
        client.status(session, "idle");
    }
    client.shut_down();
}

#[test]
fn l12_two_prompts_that_are_queued_are_two_turns_and_one_idle() {
    let world = World::new();
    gate(&world);
    let mut client = Client::of_node(&world, "gate");
    let messages = [client.prompt("s", "one"), client.prompt("s", "two"), client.prompt("s", "three")];
    for answer in ["1", "2", "3"] {
        open_gate(&world, answer);
        let said = client.event("s", "assistant/message");
        assert_eq!(said["params"]["event"]["data"]["message"]["content"][0]["text"], answer);
    }
    client.status("s", "idle");
    client.ask_of("session/wait", "s").unwrap();
    let of = |wanted: fn(&Value) -> bool| client.notifications().iter().filter(|line| wanted(line)).count();
    assert_eq!(of(|line| line["method"] == "session.status"), 2, "running and idle, once each");
    assert_eq!(of(|line| line["params"]["event"]["type"] == "turn/end"), 3);
    client.shut_down();
    let ends = messages.map(|id| (id, "completed".to_owned()));
    assert_eq!(prompts_of(&world, "s"), ends);
}

#[test]
fn what_cannot_be_a_prompt_makes_no_session() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    for (blocks, message) in [
        (json!("text"), "the params of this call are not what it takes: "),
        (json!([5]), "content block 0 is none: "),
        (
            json!([{"type": "text"}]),
            "content block 0 is of type \"text\": the nodes of this pool take text only",
        ),
        (
            json!([{"type": "text", "text": "x"}, {"type": "image", "data": "", "mimeType": "image/png"}]),
            "content block 1 is of type \"image\": the nodes of this pool take text only",
        ),
    ] {
        let error = client.refused("session/prompt", &json!({"sessionId": "s", "contentBlocks": blocks}));
        assert!(error.code == -32602 && error.message.starts_with(message), "{error:?}");
    }
    let long = "x".repeat(513);
    for id in ["", "a\0b", &long] {
        assert_eq!(client.refused("session/prompt", &prompt_params(id, "x")).code, -32602, "{id:?}");
    }
    assert_eq!(client.ask("session/list", &json!({})).unwrap()["sessions"], json!([]));
    // T1: an id is any text that is not empty.
    for id in ["../../etc/x", "a b", "ü\u{2028}\n", "latest", "-x"] {
        client.run(id, "fine");
    }
    client.shut_down();
}

#[test]
fn an_id_that_is_taken_is_refused_in_the_runtimes_words() {
    let world = World::new();
    let mut client = Client::of_node(&world, "lead");
    client.run("mine", "x");
    let child =
        client.event("mine", "tool/result")["params"]["event"]["data"]["message"]["sessions"][0].clone();
    let child = child.as_str().unwrap().to_owned();
    let error = client.refused("session/prompt", &prompt_params(&child, "x"));
    let message = format!("session \"{child}\" already exists: it is a child in the tree of mine");
    hinted(&error, -32008, &message, "open the root of its tree; its children are sent with it");
    client.shut_down();

    let mut client = Client::of_node(&world, "echo");
    let error = client.refused("session/prompt", &prompt_params("mine", "x"));
    let hint = "call `session/resume` on this connection first, or use another id";
    hinted(&error, -32008, "session \"mine\" already exists", hint);
    assert_eq!(error.data["sessionId"], "mine");
    // In the middle of others that race for it, none gets a second session.
    client.run("mine2", "x");
    client.shut_down();
}

#[test]
fn more_prompts_than_may_wait_are_refused_and_not_stored() {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::with(&world, &["--max-queued-prompts", "2"]);
    client.node("slow");
    client.prompt("s", "runs");
    world.until_sleepers(1);
    let waiting = [client.prompt("s", "waits"), client.prompt("s", "waits too")];
    let error = client.refused("session/prompt", &prompt_params("s", "one too many"));
    let message = "2 prompts of the session s wait already: the limit is 2 (queued_prompts)";
    error.is(-32001, message);
    client.ask_of("session/cancel", "s").unwrap();
    client.ask_of("session/wait", "s").unwrap();
    client.shut_down();
    let prompts = prompts_of(&world, "s");
    assert_eq!(prompts.len(), 3, "{prompts:?}");
    assert_eq!([&prompts[1].0, &prompts[2].0], [&waiting[0], &waiting[1]]);
}

#[test]
fn a_run_that_fails_ends_its_turn_with_its_words() {
    let world = World::new();
    let mut client = Client::of_node(&world, "fail");
    client.run("s", "x");
    let end = client.event("s", "turn/end");
    let reason = &end["params"]["event"]["data"]["reason"];
    assert_eq!(reason["kind"], "error");
    assert!(reason["error"]["message"].as_str().unwrap().contains("no paper"), "{reason}");
    client.shut_down();
}

#[test]
fn it_needs_initialize_and_params() {
    refuses_what_all_refuse("session/prompt", &prompt_params("s", "x"));
}
