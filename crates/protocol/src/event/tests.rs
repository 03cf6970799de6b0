use super::*;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

#[test]
fn an_unknown_kind_is_written_back_byte_for_byte() {
    let text = r#"{"kind":"from_tomorrow","data":{ "b" : 1.50, "a": "\u00e9" }}"#;
    let event: RawEvent = serde_json::from_str(text).unwrap();
    let parsed = event.parse().unwrap();
    assert!(matches!(parsed, Event::Other(_)));
    assert_eq!(serde_json::to_string(&RawEvent::from(&parsed)).unwrap(), text);
}

#[test]
fn known_data_of_another_shape_is_an_error_that_names_the_kind() {
    let error = Event::parse("text_delta", &raw(r#"{"text":5}"#)).unwrap_err();
    assert!(error.to_string().contains("text_delta"), "{error}");
}

#[test]
fn l12_the_terminal_event_says_how_a_run_ended() {
    let ends = [
        (r#"{}"#, "stream_complete", Outcome::Completed),
        (r#"{"cancelled":true}"#, "stream_complete", Outcome::Cancelled),
        (r#"{"message":"no"}"#, "run_error", Outcome::Failed),
        (r#"{"message":"gone","interrupted":true}"#, "run_error", Outcome::Interrupted),
    ];
    for (data, kind, outcome) in ends {
        assert_eq!(Event::parse(kind, &raw(data)).unwrap().terminal(), Some(outcome));
    }
    assert_eq!(Event::parse("text_delta", &raw(r#"{"text":"x"}"#)).unwrap().terminal(), None);
}

#[test]
fn every_known_kind_survives_a_round_trip() {
    let samples = [
        ("run_started", r#"{"session_id":"s","run_id":"r","agent_name":"a"}"#),
        (
            "spawn_session_start",
            r#"{"child_session_id":"c","parent_session_id":"p","spawn_mechanism":"task","source_name":"n","source_type":"agent","agent_type":"command","depth":1,"path":["p","c"]}"#,
        ),
        ("text_delta", r#"{"text":"x"}"#),
        ("thinking_delta", r#"{"text":"x"}"#),
        ("tool_call_start", r#"{"tool_call_id":"t","tool_name":"task","input":{"z":1,"a":2}}"#),
        ("tool_call_progress", r#"{"tool_call_id":"t","message":"half"}"#),
        ("tool_call_complete", r#"{"tool_call_id":"t","tool_name":"task","output":"o","is_error":false}"#),
        ("permission_requested", r#"{"request_id":"q","title":"write"}"#),
        ("permission_resolved", r#"{"request_id":"q","allowed":false,"reason":"policy"}"#),
        (
            "usage",
            r#"{"message_id":"m","usage":{"input_tokens":1,"output_tokens":2,"cached_tokens":0,"cost_micro_usd":null,"messages":1}}"#,
        ),
        ("message_complete", r#"{"message_id":"m","text":"x"}"#),
        ("message_complete", r#"{"message_id":"m","text":"","streamed_bytes":9}"#),
        ("stream_complete", r#"{"message_id":"m"}"#),
        ("run_error", r#"{"message":"no","code":"exit_status"}"#),
        ("status_changed", r#"{"state":"idle","outcome":"completed"}"#),
        ("prompt_received", r#"{"prompt_id":"p","text":"x"}"#),
        ("prompt_dropped", r#"{"prompt_id":"p","message":"no","code":"cancelled"}"#),
        ("compacted", r#"{"from":1,"to":9}"#),
        ("custom", r#"{"name":"n","data":[1, 2]}"#),
    ];
    assert_eq!(samples.len(), Event::KINDS.len() + 1);
    for (kind, data) in samples {
        let event = Event::parse(kind, &raw(data)).unwrap();
        assert_eq!(event.kind(), kind);
        assert_eq!(RawEvent::from(&event).data().get(), data);
    }
}

#[test]
fn tg_26_every_source_type_is_valid_in_the_spawn_event_and_in_the_row() {
    for source_type in SourceType::KNOWN {
        let word = serde_json::to_string(source_type).unwrap();
        let data = format!(
            r#"{{"child_session_id":"c","parent_session_id":"p","spawn_mechanism":"spawn","source_name":"n","source_type":{word},"agent_type":"team","depth":1,"path":[]}}"#
        );
        let Event::SpawnSessionStart(spawn) = Event::parse("spawn_session_start", &raw(&data)).unwrap()
        else {
            panic!("not a spawn");
        };
        assert_eq!(&spawn.source_type, source_type);
    }
}

#[test]
fn what_is_written_from_a_borrowed_text_is_the_same() {
    let message = MessageComplete {
        message_id: MessageId::new("m").unwrap(),
        text: "a\n".to_owned(),
        streamed_bytes: 0,
    };
    let whole = RawEvent::from(&Event::MessageComplete(message.clone()));
    assert_eq!(RawEvent::message_complete(&message.message_id, &message.text), whole);
    let long = "\"\\\n\u{1}\u{7f}€a".repeat(LONG_BYTES / 8);
    for (parent, prompt) in [(None, ""), (Some(SessionId::new("p").unwrap()), "do \"it\""), (None, &long)] {
        let started = RunStarted {
            session_id: SessionId::new("s").unwrap(),
            run_id: RunId::new("r").unwrap(),
            agent_name: NodeName::new("a").unwrap(),
            parent_session_id: parent,
            prompt: prompt.to_owned(),
            prompt_id: prompt.is_empty().then(|| MessageId::new("p").unwrap()),
        };
        let whole = RawEvent::from(&Event::RunStarted(started.clone()));
        let started = RunStarted { prompt: String::new(), ..started };
        assert_eq!(RawEvent::run_started(&started, prompt), whole);
    }
}
