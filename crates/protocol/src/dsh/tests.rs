#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::{
    Frame, Head, Notice,
    notice::{assistant_text, inbox_message_ids, turn_end_kind},
};
use crate::rpc::Message;

fn head(frame: &str) -> Head<'_> {
    match Frame::read(frame.as_bytes()) {
        Ok(Frame::Notification(head)) => head,
        other => panic!("{frame}: {other:?}"),
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

#[test]
fn the_order_of_members_means_nothing() {
    let usual = r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"r","event":{"type":"turn/end","seq":1}}}"#;
    let turned = r#"{"params":{"event":{"data":{"type":"x"},"type":"turn/end"},"sessionId":"r"},"method":"session.event","jsonrpc":"2.0"}"#;
    assert_eq!(head(usual), head(turned));
    assert_eq!(head(usual).event_type.as_deref(), Some("turn/end"));
    assert!(head(usual).strict && matches!(head(usual).session, Some(Cow::Borrowed("r"))));
}

#[test]
fn t1_an_id_that_is_no_string_is_absent_and_one_that_is_escaped_is_whole() {
    for odd in ["5", "null", "true", "-1.5", "1e400", "[]", "{\"a\":[1]}", "\"\\ud800\""] {
        let frame = format!(
            r#"{{"method":"subagent.started","params":{{"parentSessionId":{odd},"childSessionId":"c"}}}}"#
        );
        let head = head(&frame);
        assert_eq!((head.parent, head.child.as_deref(), head.strict), (None, Some("c"), false), "{odd}");
    }
    let frame = r#"{"method":"m","params":{"sessionId":"a\n\u00e9"}}"#;
    assert_eq!(head(frame).session.as_deref(), Some("a\né"));
}

#[test]
fn params_of_any_shape_are_a_notification() {
    for params in ["null", "[1,{\"sessionId\":\"x\"}]", "7", "\"text\"", "true"] {
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"later/one","params":{params}}}"#);
        assert_eq!((&*head(&frame).method, head(&frame).session.clone()), ("later/one", None), "{params}");
    }
    assert_eq!(head(r#"{"method":"m"}"#).method, "m");
    assert!(matches!(Frame::read(br#"{"method":"m","id":1}"#), Ok(Frame::Other(_))));
    assert!(matches!(Frame::read(br#"{"id":1,"error":{"code":1,"message":""}}"#), Ok(Frame::Other(_))));
    assert!(Frame::read(br#"{"method":"m","method":"n"}"#).is_err());
    assert!(Frame::read(br#"{"method":"m"} x"#).is_err());
}

#[test]
fn what_a_turn_needs_is_read_whatever_else_there_is() {
    let inserted =
        json!({"inserted": [{"id": "a", "role": "user"}, {"no": "id"}, 5, {"id": ""}, {"id": "b"}]});
    let ids = inbox_message_ids(&raw(&inserted));
    assert_eq!(ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(inbox_message_ids(&raw(&json!({"inserted": 5}))).is_empty());

    let text = |value: Value| assistant_text(&raw(&value));
    let blocks = json!([{"type": "reasoning", "text": "no"}, {"type": "text", "text": "a\u{2028}"}, 7, {"type": "text"}, {"type": "text", "text": "b"}]);
    assert_eq!(text(json!({"message": {"content": blocks}})).as_deref(), Some("a\u{2028}b"));
    assert_eq!(text(json!({"content": blocks})).as_deref(), Some("a\u{2028}b"));
    assert_eq!(text(json!({"message": {"content": []}})).as_deref(), Some(""));
    assert_eq!(text(json!({"message": {"content": "text"}})), None);
    assert_eq!(text(json!([])), None);

    assert_eq!(turn_end_kind(&raw(&json!({"reason": {"kind": "error"}}))).as_deref(), Some("error"));
    assert_eq!(turn_end_kind(&raw(&json!({"reason": {"kind": 5}}))), None);
}

#[test]
fn a_finish_is_read_with_its_last_text() {
    let params = json!({"provider": "spawn", "agentId": "c", "parentSessionId": "p", "childSessionId": "c",
        "status": "ok", "stopReason": "completed", "lastAssistantMessage": [{"type": "text", "text": "done"}], "later": 1});
    let Ok(Notice::Finished(finished)) = Notice::parse("subagent.finished", Some(&raw(&params))) else {
        panic!("no finish")
    };
    assert_eq!(finished.last_text().as_deref(), Some("done"));
    assert_eq!(finished.status, Some(super::FinishedStatus::Ok));
    assert!(matches!(Notice::parse("x/y", None), Ok(Notice::Other { .. })));
    assert!(Notice::parse("subagent.started", Some(&raw(&json!({"parentSessionId": ""})))).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        prop_oneof![Just("r"), Just("idle"), Just("2.0")].prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("sessionId"),
        Just("parentSessionId"),
        Just("childSessionId"),
        Just("status"),
        Just("event"),
        Just("type"),
        Just("method"),
        Just("params"),
        Just("jsonrpc"),
        Just("id"),
        Just("result"),
        Just("x"),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// One pass finds what a careful reading of the whole document finds.
    #[test]
    fn w3_a_head_says_what_the_document_says(value in any_json()) {
        let frame = value.to_string();
        let classified = Message::classify(frame.as_bytes());
        match Frame::read(frame.as_bytes()) {
            Ok(Frame::Notification(head)) => {
                let is_notification = matches!(classified.unwrap().message, Message::Notification { .. });
                prop_assert!(is_notification);
                                prop_assert_eq!(Some(&*head.method), value["method"].as_str());
                let params = &value["params"];
                prop_assert_eq!(head.session.as_deref(), params["sessionId"].as_str());
                prop_assert_eq!(head.parent.as_deref(), params["parentSessionId"].as_str());
                prop_assert_eq!(head.child.as_deref(), params["childSessionId"].as_str());
                prop_assert_eq!(head.status.as_deref(), params["status"].as_str());
                prop_assert_eq!(head.event_type.as_deref(), params["event"]["type"].as_str());
            }
            Ok(Frame::Other(incoming)) => {
                prop_assert_eq!(format!("{:?}", incoming.message), format!("{:?}", classified.unwrap().message));
            }
            Err(error) => prop_assert_eq!(error, classified.unwrap_err()),
        }
    }

    #[test]
    fn w3_no_bytes_are_read_in_two_ways(frame in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(Frame::read(&frame).err(), Message::classify(&frame).err());
    }
}
