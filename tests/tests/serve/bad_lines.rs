//! Ids, and lines that are no requests.

use offspring_tests::{
    World,
    serve::{Client, POOL},
};
use serde_json::{Value, json};

#[test]
fn w5_an_id_comes_back_as_it_was_given() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    for id in [
        json!(1.5),
        json!(-3),
        json!("x"),
        json!(""),
        json!(null),
        json!("ü\u{2028}"),
        json!(9_007_199_254_740_993_u64),
    ] {
        client.send(&id, "node/list", &json!({}));
        assert!(client.answer(&id).is_ok(), "{id}");
        client.send(&id, "nosuch/method", &json!({}));
        client
            .answer(&id)
            .unwrap_err()
            .is(-32601, "unknown DeepSeek Harness SDK runtime method: nosuch/method");
    }
    client.line(r#"{"jsonrpc":"2.0","id":1e2,"method":"node/list"}"#);
    client.answer(&json!(100.0)).unwrap();
    client.shut_down();
}

#[test]
fn w3_what_is_no_message_is_answered_without_an_id_and_ends_nothing() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_params = format!(r#"{{"jsonrpc":"2.0","id":"deep","method":"node/list","params":{deep}}}"#);
    let lines: [(&str, i64); 9] = [
        ("{", -32700),
        ("no json", -32700),
        ("{\"id\":1,\"method\":\"node/list\"", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"node/list"}]"#, -32600),
        ("5", -32600),
        ("null", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"node/list"}"#, -32600),
    ];
    for (line, code) in lines {
        client.line(line);
        assert_eq!(client.answer(&Value::Null).unwrap_err().code, code, "{line}");
        client.is_well();
    }
    // Nobody answers these: a blank line, an answer that nobody waits for, a notification.
    for line in
        ["", "   ", r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, r#"{"jsonrpc":"2.0","method":"shutdown"}"#]
    {
        client.line(line);
        client.is_well();
    }
    // However deep: it is answered, one way or the other, and nothing overflows.
    client.line(&deep);
    client.answer(&Value::Null).unwrap_err();
    client.line(&deep_params);
    client.is_well();
    // No version, or another, and members that nobody defined.
    client.line(r#"{"id":"old","method":"node/list"}"#);
    client.answer(&"old".into()).unwrap();
    client.line(r#"{"jsonrpc":"1.0","id":"older","method":"node/list","params":{"more":1},"extra":true}"#);
    client.answer(&"older".into()).unwrap();
    client.end().with(0);
}

#[test]
fn w3_bytes_that_are_no_text_are_answered_too() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    for bytes in [&b"\xff\xfe{}\n"[..], b"{\"id\":\"\xc3(\"}\n", b"\0\0\0\n", b"\x1b[31m\n"] {
        client.process().tell_bytes(bytes);
        let error = client.answer(&Value::Null).unwrap_err();
        assert_eq!(error.code, -32700, "{bytes:?}: {error:?}");
        assert!(!error.message.contains('\u{1b}'));
        client.is_well();
    }
    client.shut_down();
}

#[test]
fn w2_a_line_that_is_too_long_is_skipped_and_told() {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::with(&world, &["--max-frame-bytes", "100000"]);
    client.node("echo");
    let long =
        json!({"jsonrpc": "2.0", "id": 7, "method": "node/list", "params": {"x": "y".repeat(300_000)}});
    let long = long.to_string();
    client.line(&long);
    let message = format!("the line has {} bytes and the limit is 100000 (frame_bytes)", long.len());
    client.answer(&Value::Null).unwrap_err().is(-32600, &message);
    client.is_well();
    // Within the limit a long one is as good as any.
    client.run("s", &"z".repeat(90_000));
    let said = client.event("s", "assistant/message");
    let text = said["params"]["event"]["data"]["message"]["content"][0]["text"].as_str().unwrap().len();
    assert_eq!(text, 90_000);
    client.shut_down();
}

#[test]
fn w9_nothing_but_frames_is_on_stdout_whatever_an_agent_says() {
    let world = World::new();
    let more =
        "  noisy: {type: command, command: [sh, -c, 'printf \"{}\\n\\033[31m\\0\\377 x\"; echo err >&2']}\n";
    world.pool(&format!("{POOL}{more}"));
    let mut client = Client::new(&world);
    client.node("noisy");
    client.run("s", "x");
    // The client parses every line of stdout and fails at one that is no message.
    let said = client.event("s", "assistant/message");
    assert!(
        said["params"]["event"]["data"]["message"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("{}\n")
    );
    client.shut_down();
}
