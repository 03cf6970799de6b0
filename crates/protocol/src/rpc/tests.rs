use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use super::*;

/// A message in one line: kind, id, method, payload, and `loose` where the version is missing.
fn seen(frame: &str) -> String {
    let incoming = match Message::classify(frame.as_bytes()) {
        Ok(incoming) => incoming,
        Err(NotRpc::NotUtf8 { valid_up_to }) => return format!("not utf-8 {valid_up_to}"),
        Err(NotRpc::NotJson { column, .. }) => return format!("not json {column}"),
        Err(NotRpc::NotRpc { why }) => return format!("not rpc: {why}"),
    };
    let loose = if incoming.strict { "" } else { "loose " };
    let raw = |raw: Option<&RawValue>| raw.map_or("-".to_owned(), |raw| raw.get().to_owned());
    match incoming.message {
        Message::Request { id, method, params } => format!("{loose}request {id} {method} {}", raw(params)),
        Message::Notification { method, params } => format!("{loose}notification {method} {}", raw(params)),
        Message::Response { id, outcome: Ok(result) } => format!("{loose}result {id} {}", result.get()),
        Message::Response { id, outcome: Err(error) } => {
            format!("{loose}error {id} {} {} {}", error.code, error.message, raw(error.data.as_deref()))
        }
    }
}

#[test]
fn w3_every_kind_of_message_is_told_from_the_others() {
    for (frame, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}"#, r#"request 1 m {"a":1}"#),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "request 1 m -"),
        (r#"{"jsonrpc":"2.0","method":"m","params":[1, 2]}"#, "notification m [1, 2]"),
        (r#"{"jsonrpc":"2.0","method":"m"}"#, "notification m -"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "result 1 {}"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}"#, "error 1 -32603 no -"),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":[1]}}"#,
            "error null -32700 no [1]",
        ),
        // Order means nothing, neither does white space around tokens.
        ("\t { \"params\" : 5 , \"method\" : \"m\" , \"jsonrpc\" : \"2.0\" } \r", "notification m 5"),
    ] {
        assert_eq!(seen(frame), expected, "{frame}");
    }
}

#[test]
fn w3_what_peers_are_known_to_do_differently_is_tolerated() {
    for (frame, expected) in [
        (r#"{"method":"m"}"#, "loose notification m -"),
        (r#"{"id":1,"method":"m"}"#, "loose request 1 m -"),
        (r#"{"jsonrpc":"1.0","id":1,"result":2}"#, "loose result 1 2"),
        (r#"{"jsonrpc":2.0,"id":1,"result":2}"#, "loose result 1 2"),
        (r#"{"jsonrpc":"2.0","id":1,"result":3,"error":null}"#, "result 1 3"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#, "result 1 null"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}"#, "error 1 1 x -"),
        (r#"{"jsonrpc":"2.0","id":1,"result":7,"error":{"code":1,"message":"x"}}"#, "error 1 1 x -"),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":9223372036854775807,"message":"x","data":null,"more":{}}}"#,
            "error 1 9223372036854775807 x -",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":2,"extra":[{"\ud800":"\ud800"}],"\udc00":1}"#, "result 1 2"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":2}"#, "result 1 2"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":"x"}}"#, "error 1 1 x -"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null,"result":null,"error":null}"#,
            "request 1 m -",
        ),
        (r#"{"jsonrpc":"2.0","method":"m","params":null,"result":1}"#, "notification m -"),
        (r#"{"jsonrpc":"2.0","method":"a\/\u00e9\n"}"#, "notification a/é\n -"),
        (r#"{"jsonrpc":"2.0","\u006dethod":"m"}"#, "notification m -"),
    ] {
        assert_eq!(seen(frame), expected, "{frame}");
    }
}

#[test]
fn w3_ids_are_kept_as_they_were_written() {
    for id in ["0", "-1", "1.50", "1E400", "18446744073709551616", "\"x\"", "\"\"", "\"7\"", "null"] {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#);
        assert_eq!(seen(&frame), format!("result {id} 0"));
        let Message::Response { id: read, .. } = Message::classify(frame.as_bytes()).unwrap().message else {
            panic!("{frame}")
        };
        assert_eq!(serde_json::to_string(&read).unwrap(), id);
        assert_eq!(seen(&response(&read, &0).unwrap()), format!("result {id} 0"));
    }
    for id in ["[]", "{}", "true", "false", r#""\ud800""#] {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#);
        assert_eq!(seen(&frame), "not rpc: its id is neither number, string nor null", "{id}");
    }
}

#[test]
fn w5_ids_of_different_kinds_or_texts_are_different_ids() {
    let id = |text: &str| Id::from_raw(&RawValue::from_string(text.to_owned()).unwrap()).unwrap();
    assert_eq!(id("1"), Id::from(1));
    assert_eq!(id(r#""\u0031""#), Id::from("1"));
    assert_eq!(Id::from(String::from("1")), Id::from("1"));
    let all = [id("1"), id("1.0"), id("-1"), id(r#""1""#), id("null"), id(r#""null""#), id(r#""""#)];
    let map: HashMap<_, _> = all.iter().cloned().enumerate().map(|(n, id)| (id, n)).collect();
    assert_eq!(map.len(), all.len());
    for (n, id) in all.iter().enumerate() {
        assert_eq!(map[id], n);
    }
    assert_eq!(format!("{:?}", id("-1.50")), "Number(-1.50)");
    assert_eq!(Id::from("a\"\n").to_string(), r#""a\"\n""#);
}

#[test]
fn w3_what_is_no_message_says_why() {
    for (frame, expected) in [
        ("", "not json 0"),
        ("   ", "not json 3"),
        ("Server listening on 1", "not json 1"),
        ("\u{feff}{}", "not json 1"),
        (r#"{"jsonrpc":"2.0","method":"m"} x"#, "not json 32"),
        (r#"{"jsonrpc":"2.0","method":"m"}{}"#, "not json 31"),
        (r#"{"jsonrpc":"2.0","method":"m""#, "not json 29"),
        (r#"{"jsonrpc":"2.0","method":"m","params":{"a":}}"#, "not json 45"),
        ("[1,", "not json 3"),
        ("5 5", "not json 3"),
        ("[]", "not rpc: it is no object (batches are not supported)"),
        (r#"[{"jsonrpc":"2.0","method":"m"}]"#, "not rpc: it is no object (batches are not supported)"),
        ("null", "not rpc: it is no object (batches are not supported)"),
        ("1e999", "not rpc: it is no object (batches are not supported)"),
        (r#""text""#, "not rpc: it is no object (batches are not supported)"),
        ("{}", "not rpc: it has neither a method nor an id"),
        (r#"{"level":"info","msg":"ready"}"#, "not rpc: it has neither a method nor an id"),
        (r#"{"jsonrpc":"2.0","result":1}"#, "not rpc: it answers no id"),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#, "not rpc: it answers no id"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "not rpc: it has neither a method nor a result nor an error"),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
            "not rpc: it has neither a method nor a result nor an error",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
            "not rpc: its error has no integer code and message text",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
            "not rpc: its error has no integer code and message text",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}"#,
            "not rpc: its error has no integer code and message text",
        ),
        (r#"{"jsonrpc":"2.0","method":5}"#, "not rpc: its method is no text"),
        (r#"{"jsonrpc":"2.0","method":null,"id":1}"#, "not rpc: its method is no text"),
        (r#"{"jsonrpc":"2.0","method":"\ud800"}"#, "not rpc: its method is no text"),
        (r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#, "not rpc: a member appears twice"),
        (r#"{"jsonrpc":"2.0","method":"a","id":1,"i\u0064":2}"#, "not rpc: a member appears twice"),
    ] {
        assert_eq!(seen(frame), expected, "{frame}");
    }
    assert_eq!(
        Message::classify(b"{\"method\":\"\xff\"}").unwrap_err().to_string(),
        "the line is not UTF-8 after byte 11"
    );
    assert_eq!(
        Message::classify(b"{\"method\"}").unwrap_err().to_string(),
        "the line is not JSON: expected `:` at byte 10"
    );
}

#[test]
fn w3_a_payload_however_deep_is_neither_parsed_nor_a_stack_overflow() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let frame = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{deep},"extra":{deep}}}"#);
    assert_eq!(seen(&frame), format!("notification m {deep}"));
    assert_eq!(seen(&deep), "not rpc: it is no object (batches are not supported)");
    assert_eq!(seen(&"[".repeat(200_000)), "not json 200000");
}

#[test]
fn w3_names_and_payloads_are_borrowed_from_the_frame() {
    let frame = br#"{"jsonrpc":"2.0","method":"session.event","params":{"a":1}}"#;
    let Message::Notification { method, params } = Message::classify(frame).unwrap().message else {
        panic!("no notification")
    };
    let range = frame.as_ptr_range();
    assert!(matches!(method, std::borrow::Cow::Borrowed(text) if range.contains(&text.as_ptr())));
    assert!(range.contains(&params.unwrap().get().as_ptr()));
}

#[test]
fn w1_an_outgoing_message_is_one_line_whatever_it_carries() {
    let pretty = RawValue::from_string("{\n  \"a\": \"x\\ny\",\r\n  \"b\": []\n}".to_owned()).unwrap();
    let odd = "a\nb\r\u{2028}\u{2029}\u{85}\u{b}\u{c}";
    let lines = [
        request(&Id::from(odd), odd, &pretty).unwrap(),
        notification(odd, &[odd]).unwrap(),
        response(&Id::from(1), &pretty).unwrap(),
        error_response(&Id::Null, &ErrorObject::new(-1, odd).with_data(&pretty).unwrap()).unwrap(),
    ];
    for line in &lines {
        assert!(!line.contains('\n'), "{line:?}");
    }
    let kept = "{   \"a\": \"x\\ny\",\r   \"b\": [] }";
    assert_eq!(seen(&lines[0]), format!("request {} {odd} {kept}", Id::from(odd)));
    assert_eq!(seen(&lines[2]), format!("result 1 {kept}"));
    assert_eq!(seen(&lines[3]), format!("error null -1 {odd} {kept}"));
}

#[test]
fn outgoing_messages_have_the_members_that_json_rpc_asks_for() {
    assert_eq!(request(&Id::from(1), "m", &()).unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
    assert_eq!(notification("m", &None::<u8>).unwrap(), r#"{"jsonrpc":"2.0","method":"m"}"#);
    assert_eq!(notification("m", &[()]).unwrap(), r#"{"jsonrpc":"2.0","method":"m","params":[null]}"#);
    assert_eq!(response(&Id::from("a"), &()).unwrap(), r#"{"jsonrpc":"2.0","id":"a","result":null}"#);
    assert_eq!(
        error_response(&Id::from(1), &ErrorObject::method_not_found("x\"")).unwrap(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no handler for method \"x\\\"\""}}"#
    );
    let error = notification("m", &BTreeMap::from([([1], 2)])).unwrap_err();
    assert_eq!(error.to_string(), "failed to write notification m as JSON: key must be a string");
    let error = request(&Id::from(3), "m", &BTreeMap::from([([1], 2)])).unwrap_err();
    assert_eq!(error.to_string(), "failed to write request 3 (m) as JSON: key must be a string");
    let error = response(&Id::from(3), &BTreeMap::from([([1], 2)])).unwrap_err();
    assert_eq!(error.to_string(), "failed to write the answer to request 3 as JSON: key must be a string");
}

#[test]
fn an_owned_message_carries_the_same_as_the_borrowed_one() {
    let owned = |frame: &str| Message::classify(frame.as_bytes()).unwrap().message.into_owned();
    assert!(matches!(
        owned(r#"{"id":1,"method":"m","params":[1]}"#),
        OwnedMessage::Request { id, method, params: Some(raw) }
            if id == Id::from(1) && method == "m" && raw.get() == "[1]"
    ));
    assert!(matches!(
        owned(r#"{"method":"m"}"#),
        OwnedMessage::Notification { method, params: None } if method == "m"
    ));
    assert!(matches!(
        owned(r#"{"id":"a","result":[ ]}"#),
        OwnedMessage::Response { id, outcome: Ok(raw) } if id == Id::from("a") && raw.get() == "[ ]"
    ));
    let OwnedMessage::Response { outcome: Err(error), .. } =
        owned(r#"{"id":1,"error":{"code":-5,"message":"no","data":{}}}"#)
    else {
        panic!("no error")
    };
    assert_eq!(error.to_string(), "the peer answered with error -5: no");
    assert_eq!(error.data.unwrap().get(), "{}");
}
