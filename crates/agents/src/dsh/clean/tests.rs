use offspring_protocol::{
    Usage,
    event::{TextDelta, ToolCallComplete, ToolCallStart, UsageReport},
};
use proptest::prelude::*;

use super::*;

const KEY: &str = "hunter2\"key\\of\ntwo";

fn clean() -> Clean {
    let withheld = Withheld::default();
    withheld.add(KEY);
    withheld.add("12345678");
    Clean::new(withheld, 1 << 20, Arc::default())
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn start(id: &str, name: &str, input: &str) -> Event {
    Event::ToolCallStart(ToolCallStart {
        tool_call_id: ToolCallId::new(id).unwrap(),
        tool_name: name.to_owned(),
        title: name.to_owned(),
        input: Some(raw(input)),
    })
}

fn complete(id: &str, name: &str, output: &str) -> Event {
    Event::ToolCallComplete(ToolCallComplete {
        tool_call_id: ToolCallId::new(id).unwrap(),
        tool_name: name.to_owned(),
        output: output.to_owned(),
        is_error: false,
        sessions: Vec::new(),
    })
}

fn custom(name: &str, data: &str) -> Event {
    Event::Custom(Custom { name: name.to_owned(), data: raw(data) })
}

fn usage(id: &str) -> Event {
    let message_id = MessageId::new(id).unwrap();
    Event::Usage(UsageReport { message_id, usage: Usage::message(12_345_678, 1) })
}

fn stored(event: &Event) -> String {
    RawEvent::from(event).data().get().to_owned()
}

#[test]
fn w10_nothing_withheld_is_in_any_member_of_any_event_however_it_is_spelled() {
    let clean = clean();
    let in_json = serde_json::to_string(KEY).unwrap();
    let nested = serde_json::to_string(&json!({ "arguments": in_json }).to_string()).unwrap();
    let events = [
        start(&format!("call-{KEY}"), &format!("tool-{KEY}"), &format!("{{{in_json}:[{in_json}]}}")),
        start("k", KEY, &nested),
        complete(&format!("call-{KEY}"), &format!("tool-{KEY}"), KEY),
        complete("k", "n", &format!("{:?}", format!("{in_json}"))),
        custom(&format!("dsh.{KEY}"), &format!("[{nested}, 912345678, null]")),
        Event::TextDelta(TextDelta { text: format!("it is {in_json}, {in_json:?}") }),
        usage(&format!("m-{KEY}")),
    ];
    for event in events {
        let is_usage = matches!(event, Event::Usage(_));
        let kind = event.kind().to_owned();
        let new = clean.event(event);
        assert_eq!(new.kind(), kind);
        let shown = stored(&new);
        assert!(shown.contains("[redacted]"), "{shown}");
        assert!(["hunter2", "key", "of", "two"].iter().all(|piece| !shown.contains(piece)), "{shown}");
        assert!(is_usage || !shown.contains("12345678"), "{shown}");
    }
    let error = clean.result(Err(RunError::failed(KEY, format!("said {in_json:?}")).with_partial(KEY)));
    let error = error.unwrap_err();
    assert_eq!((&*error.code, &*error.partial), ("[redacted]", "[redacted]"));
    assert!(error.message.starts_with("said") && error.message.contains("[redacted]"), "{}", error.message);
    assert!(!error.message.contains("hunter2"), "{}", error.message);
    assert_eq!(clean.result(Ok(KEY.into())).unwrap().text, "[redacted]");
    assert_eq!(clean.shown(KEY), "[redacted]");
}

#[test]
fn w10_t1_ids_that_cannot_be_stored_stay_two_and_are_found_again() {
    let clean = clean();
    let long = "x".repeat(MAX_STORED_ID_BYTES + 1);
    let ids =
        [KEY.to_owned(), format!("1{KEY}"), "12345678".to_owned(), long, "a\0b".to_owned(), "a".to_owned()];
    let mut seen = std::collections::HashSet::new();
    for id in &ids {
        let shown = clean.id(id);
        assert!(MessageId::new(&shown).unwrap().check_storable().is_ok(), "{shown}");
        assert_eq!(clean.id(id), shown);
        assert_eq!(clean.ids.given(&shown).unwrap(), *id);
        assert!(seen.insert(shown));
    }
    assert!(seen.contains("a"));
    // The two ends of a call keep one id.
    let id = |event: Event| match clean.event(event) {
        Event::ToolCallStart(call) => call.tool_call_id,
        Event::ToolCallComplete(call) => call.tool_call_id,
        event => panic!("{event:?}"),
    };
    assert_eq!(id(start(KEY, "n", "1")), id(complete(KEY, "n", "")));
    // By another program: another session, and never the wrong one.
    let later = self::clean();
    assert_ne!(later.id(KEY), clean.id(KEY));
    assert_eq!(later.ids.given(&clean.id(KEY)).unwrap_err().code, "unknown_session");
    for number in 0..2 * KNOWN_IDS {
        clean.id(&format!("{number}{KEY}"));
    }
    assert!(clean.ids.0.lock().unwrap().len() <= KNOWN_IDS);
}

#[test]
fn what_is_too_long_is_cut_and_says_how_much() {
    let clean = clean();
    let (long, beyond) = ("n".repeat(KEPT_BYTES + 5), format!("{}… (", "n".repeat(NAME_BYTES)));
    let quoted = format!("\"{long}\"");
    let left_out = format!(r#"{{"left_out_bytes":{}}}"#, quoted.len());
    let Event::ToolCallStart(call) = clean.event(start("k", &long, &quoted)) else { panic!() };
    assert!(call.tool_name.starts_with(&beyond) && call.tool_name.len() < NAME_BYTES + 40);
    assert_eq!(call.input.unwrap().get(), left_out);
    let Event::ToolCallComplete(call) = clean.event(complete("k", &long, &long)) else { panic!() };
    assert!(call.tool_name.starts_with(&beyond));
    assert_eq!(call.output, format!("{}… (5 bytes left out)", &long[..KEPT_BYTES]));
    let Event::Custom(custom) = clean.event(custom(&long, &quoted)) else { panic!() };
    assert!(custom.name.starts_with(&beyond));
    assert_eq!(custom.data.get(), left_out);
    let error = clean.result(Err(RunError::failed(long.clone(), long.clone()))).unwrap_err();
    assert!(error.code.starts_with(&beyond) && error.message.ends_with("… (5 bytes left out)"));
    assert!(clean.shown(&long).ends_with("… (5 bytes left out)"));
    let small = Clean::new(Withheld::default(), 5, Arc::default());
    assert_eq!(small.result(Ok("abcdefg".into())).unwrap().text, "abcde… (2 bytes left out)");
    assert_eq!(small.result(Ok("abcde".into())).unwrap().text, "abcde");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Whatever stands around it, and however deep it is.
    #[test]
    fn w10_a_key_is_in_no_stored_event(
        texts in prop::collection::vec("[a-z\"\\\\]{0,6}", 1..6),
        at in any::<prop::sample::Index>(),
        depth in 0_usize..300,
        kind in 0..4_u8,
    ) {
        let mut texts = texts;
        let at = at.index(texts.len());
        texts[at].push_str(KEY);
        let deep = format!("{}{}{}", "[".repeat(depth), serde_json::to_string(&texts).unwrap(), "]".repeat(depth));
        let event = match kind {
            0 => start(&texts[at], &texts[at], &deep),
            1 => complete(&texts[at], &texts[at], &deep),
            2 => custom(&texts[at], &deep),
            _ => Event::TextDelta(TextDelta { text: deep }),
        };
        let shown = stored(&clean().event(event));
        prop_assert!(!shown.contains("hunter2"), "{}", shown);
    }
}
