//! `offspring serve --stdio`: one module per request, then what is true of all of them. One program, because linking
//! takes longer than all of its tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod as_program;
mod bad_lines;
mod crash;
mod drive;
mod ends;
mod initialize;
mod node_list;
mod order;
mod session_cancel;
mod session_get;
mod session_list;
mod session_prompt;
mod session_resume;
mod session_wait;
mod shutdown;
mod slow_reader;
mod tree_get;
mod tree_subscribe;
mod working_directory;

use offspring_tests::{
    World,
    serve::{Client, POOL, WireError},
};
use serde_json::{Value, json};

/// What every request says that needs `initialize` before it, and of params that are none.
fn refuses_what_all_refuse(method: &str, params: &Value) {
    let world = World::new();
    world.pool(POOL);
    let mut client = Client::new(&world);
    client.refused(method, params).is(-32007, "SDK server is not initialized");
    assert_eq!(client.refused(method, params).hint(), "call `initialize` first");
    client.node("echo");
    for bad in [
        json!([]),
        json!({"sessionId": 5}),
        json!({}),
        json!({"sessionId": ["x"]}),
        json!({"sessionId": null}),
    ] {
        let error = client.refused(method, &bad);
        assert_eq!(error.code, -32602, "{method} {bad}: {error:?}");
        assert!(error.message.starts_with("the params of this call are not what it takes: "), "{error:?}");
        assert!(!error.message.contains("line 1"), "{error:?}");
    }
    let empty = match params.clone() {
        Value::Object(mut params) => {
            params.insert("sessionId".to_owned(), json!(""));
            Value::Object(params)
        }
        other => other,
    };
    assert_eq!(client.refused(method, &empty).code, -32602);
    client.is_well();
    client.shut_down();
}

/// A request about a stored session, of one that nobody stored.
fn of_nobody_it_is_refused(method: &str) {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    let error = client.refused(method, &json!({"sessionId": "never"}));
    let hint = "`session/list` names the roots that are stored";
    hinted(&error, -32004, "session \"never\" not found", hint);
    client.shut_down();
}

/// A refusal with a hint.
fn hinted(error: &WireError, code: i64, message: &str, hint: &str) {
    error.is(code, message);
    assert_eq!(error.hint(), hint);
}
