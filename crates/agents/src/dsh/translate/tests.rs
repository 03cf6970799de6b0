use offspring_protocol::Usage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn translation() -> Translation {
    Translation::new(SessionId::new("r").unwrap())
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn started(parent: &str, child: &str) -> Notice {
    let params = raw(&json!({ "parentSessionId": parent, "childSessionId": child }).to_string());
    Notice::parse("subagent.started", Some(&params)).unwrap()
}

fn finished(parent: &str, child: &str, status: &str, reason: &str) -> Notice {
    let params = json!({
        "parentSessionId": parent, "childSessionId": child, "status": status, "stopReason": reason,
        "lastAssistantMessage": [{ "type": "text", "text": format!("last of {child}") }],
    });
    Notice::parse("subagent.finished", Some(&raw(&params.to_string()))).unwrap()
}

fn event(session: &str, kind: &str, data: &Value) -> Notice {
    let params = json!({ "sessionId": session, "event": { "type": kind, "seq": 5, "data": data } });
    Notice::parse("session.event", Some(&raw(&params.to_string()))).unwrap()
}

fn message(session: &str, text: &str) -> Notice {
    let message = json!({ "id": format!("m-{text}"), "content": [{ "type": "text", "text": text }] });
    let usage = json!({ "inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 0, "totalTokens": 3 });
    event(session, "assistant/message", &json!({ "message": message, "usage": usage }))
}

/// What is to be done, one word a step.
fn picture(steps: Vec<Step>) -> Vec<String> {
    let place = |place: Place| place.0;
    let step = |step: Step| match step {
        Step::Adopt { place: at, under, peer } => {
            format!("adopt {} under {} {peer}", place(at), place(under))
        }
        Step::Say(at, Event::TextDelta(delta)) => format!("say {} {:?}", place(at), delta.text),
        Step::Say(at, Event::Usage(report)) => format!("usage {} {}", place(at), report.message_id),
        Step::Say(at, Event::Custom(custom)) => {
            format!("{} {} {}", custom.name, place(at), custom.data.get())
        }
        Step::Say(at, event) => format!("{} {}", event.kind(), place(at)),
        Step::Begin(at, asked) if asked.is_empty() => format!("begin {}", place(at)),
        Step::Begin(at, asked) => format!("begin {} {asked}", place(at)),
        Step::End(at, Ending::Completed(text)) => format!("completed {} {text}", place(at)),
        Step::End(at, Ending::Failed { code, message, .. }) => {
            format!("failed {} {code}: {message}", place(at))
        }
        Step::End(at, Ending::Aborted { .. }) => format!("aborted {}", place(at)),
    };
    steps.into_iter().map(step).collect()
}

fn play(translation: &mut Translation, notices: impl IntoIterator<Item = Notice>) -> Vec<String> {
    notices.into_iter().flat_map(|notice| picture(translation.take(notice))).collect()
}

#[test]
fn l12_each_start_is_a_run_and_its_finish_ends_it() {
    let mut one = translation();
    let steps = play(
        &mut one,
        [
            started("r", "c"),
            started("r", "c"),
            message("c", "x"),
            finished("r", "c", "ok", "completed"),
            finished("r", "c", "error", "error"),
            started("r", "c"),
            finished("r", "c", "error", "aborted"),
            started("c", "g"),
        ],
    );
    assert_eq!(
        steps,
        [
            "adopt 1 under 0 c",
            "begin 1",
            "say 1 \"x\"",
            "usage 1 m-x",
            "completed 1 last of c",
            "adopt 1 under 0 c",
            "begin 1",
            "aborted 1",
            // A grandchild that starts after its parent's finish.
            "adopt 2 under 1 g",
        ]
    );
    assert_eq!(one.open(), [Place(2)]);
}

#[test]
fn t4_a_late_finish_ends_the_run_below_its_old_parent_and_moves_nothing() {
    let mut one = translation();
    let steps = play(
        &mut one,
        [
            started("r", "a"),
            started("r", "b"),
            started("a", "c"),
            started("b", "c"),
            message("c", "of b"),
            finished("a", "c", "ok", "completed"),
            message("c", "still of b"),
            finished("b", "c", "error", "error"),
        ],
    );
    assert_eq!(
        steps,
        [
            "adopt 1 under 0 a",
            "adopt 2 under 0 b",
            "begin 1",
            "adopt 3 under 1 c",
            "begin 2",
            "adopt 4 under 2 c",
            "begin 4",
            "say 4 \"of b\"",
            "usage 4 m-of b",
            "begin 3",
            "completed 3 last of c",
            "say 4 \"still of b\"",
            "usage 4 m-still of b",
            "failed 4 error: the session of the runtime ended with `error`",
        ]
    );
    // Its parent was moved too.
    let mut one = translation();
    let steps = play(
        &mut one,
        [
            started("r", "a"),
            started("a", "c"),
            started("r", "b"),
            started("b", "a"),
            finished("a", "c", "ok", "completed"),
        ],
    );
    assert_eq!(steps.last().unwrap(), "completed 2 last of c");
}

#[test]
fn t2_t7_a_start_of_oneself_of_the_root_or_below_a_stranger_makes_nothing() {
    let mut one = translation();
    let steps =
        play(&mut one, [started("r", "r"), started("c", "r"), started("nobody", "c"), message("c", "x")]);
    assert_eq!(steps, Vec::<String>::new());
    assert_eq!(one.dropped(), 4);
    let steps = play(&mut one, [started("r", "a"), started("a", "b"), started("b", "a"), message("a", "x")]);
    assert_eq!(steps[3..], ["begin 2", "adopt 3 under 2 a", "begin 3", "say 3 \"x\"", "usage 3 m-x"]);
    assert_eq!(one.open(), [Place(3), Place(2), Place(1)]);
}

#[test]
fn what_is_muted_says_and_starts_nothing_until_it_is_started_again() {
    let mut one = translation();
    play(&mut one, [started("r", "a")]);
    one.mute(Place(1));
    let late =
        [message("a", "x"), started("a", "b"), message("b", "y"), finished("r", "a", "ok", "completed")];
    assert_eq!(play(&mut one, late), Vec::<String>::new());
    assert_eq!(
        play(&mut one, [started("r", "a"), message("a", "z")])[..3],
        ["adopt 1 under 0 a", "begin 1", "say 1 \"z\""]
    );
}

#[test]
fn tools_keep_their_names_and_what_only_the_runtime_needs_is_left_out() {
    let mut one = translation();
    let result = json!({ "message": { "toolCallId": "k", "isError": true, "content": [{ "type": "text", "text": "no" }] } });
    let notices = [
        event("r", "tool/call", &json!({ "callId": "k", "name": "bash", "arguments": "{\"a\":1}" })),
        event("r", "request/header", &json!({ "big": "x" })),
        event("r", "tool/result", &result),
        event("r", "todo/write", &json!({ "new": true })),
    ];
    let steps: Vec<Step> = notices.into_iter().flat_map(|notice| one.take(notice)).collect();
    let [Step::Say(_, Event::ToolCallStart(call)), Step::Say(_, Event::ToolCallComplete(done)), more] =
        &steps[..]
    else {
        panic!("{steps:?}")
    };
    assert_eq!((call.tool_name.as_str(), call.input.as_ref().unwrap().get()), ("bash", r#"{"a":1}"#));
    assert_eq!((done.tool_name.as_str(), done.output.as_str(), done.is_error), ("bash", "no", true));
    let Step::Say(_, Event::Custom(custom)) = more else { panic!("{more:?}") };
    assert_eq!((custom.name.as_str(), custom.data.get()), ("dsh.todo/write", r#"{"new":true}"#));
}

#[test]
fn a_run_begins_with_what_its_session_was_asked_where_that_is_the_first_that_is_heard_of_it() {
    let asked = |kind: &str, by: &str, texts: [&str; 2]| {
        let content = texts.map(|text| json!({ "type": "text", "text": text }));
        let message = json!({ "content": content, "source": { "kind": by }, "role": "user", "id": "i" });
        match kind {
            "agent/inbox/spliced" => event("c", kind, &json!({ "inserted": [message] })),
            kind => event("c", kind, &message),
        }
    };
    let begun = |next: Notice| play(&mut translation(), [started("r", "c"), next])[1].clone();
    let by_a_parent = ["do it", "Your parent agent id is r."];
    assert_eq!(begun(asked("agent/inbox/spliced", "user", by_a_parent)), "begin 1 do it");
    assert_eq!(begun(asked("user/message", "user", by_a_parent)), "begin 1 do it");
    let again = ["Agent r sent a message: ", "more"];
    assert_eq!(
        begun(asked("agent/inbox/spliced", "agent-message", again)),
        "begin 1 Agent r sent a message: more"
    );
    let status = raw(r#"{"sessionId":"c","status":"running"}"#);
    assert_eq!(begun(Notice::parse("session.status", Some(&status)).unwrap()), "begin 1");
    let unknown = raw(r#"{"sessionId":"c"}"#);
    assert_eq!(begun(Notice::parse("session.new", Some(&unknown)).unwrap()), "begin 1");
    assert_eq!(begun(started("c", "g")), "begin 1");
    // Only once.
    let mut one = translation();
    play(&mut one, [started("r", "c"), asked("agent/inbox/spliced", "user", by_a_parent)]);
    let steps = play(
        &mut one,
        [asked("agent/inbox/spliced", "user", by_a_parent), finished("r", "c", "ok", "completed")],
    );
    assert_eq!(steps, ["completed 1 last of c"]);
}

#[test]
fn l15_a_message_is_counted_under_its_own_id() {
    let mut one = translation();
    let steps = one.take(message("r", "x"));
    let Some(Step::Say(_, Event::Usage(report))) = steps.last() else { panic!("{steps:?}") };
    assert_eq!((report.message_id.as_str(), report.usage), ("m-x", Usage::message(1, 2)));
}

#[test]
fn an_error_that_a_later_turn_made_good_is_none() {
    let mut one = translation();
    let end = |kind: &str| {
        event("c", "turn/end", &json!({ "reason": { "kind": kind, "error": { "message": "broke" } } }))
    };
    play(&mut one, [started("r", "c"), end("error")]);
    let steps = play(&mut one, [end("completed"), finished("r", "c", "error", "error")]);
    assert_eq!(steps, ["failed 1 error: the session of the runtime ended with `error`"]);
    let mut one = translation();
    let steps = play(&mut one, [started("r", "c"), end("error"), finished("r", "c", "error", "error")]);
    assert_eq!(steps.last().unwrap(), "failed 1 error: broke");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Whatever order starts and finishes come in: a run begins only when none is open at its place, ends once, and
    /// below what was adopted before.
    #[test]
    fn l12_t3_t4_runs_begin_and_end_once_in_any_order(
        steps in prop::collection::vec((0..4_u8, 0..5_usize, 0..5_usize), 0..200),
    ) {
        const IDS: [&str; 5] = ["r", "a", "b", "c", "d"];
        let mut one = translation();
        let mut open = std::collections::BTreeSet::from([Place::ROOT]);
        let (mut known, mut begun) = (open.clone(), open.clone());
        for (what, parent, child) in steps {
            let notice = match what {
                0 | 1 => started(IDS[parent], IDS[child]),
                2 => finished(IDS[parent], IDS[child], "ok", "completed"),
                _ => message(IDS[child], "x"),
            };
            for step in one.take(notice) {
                match step {
                    Step::Adopt { place, under, .. } => {
                        prop_assert!(known.contains(&under) && under < place);
                        prop_assert!(begun.contains(&under) && open.insert(place));
                        known.insert(place);
                        begun.remove(&place);
                        prop_assert_eq!(one.peer(place).as_str(), IDS[child]);
                    }
                    Step::Begin(place, _) => prop_assert!(open.contains(&place) && begun.insert(place)),
                    Step::End(place, _) => {
                        prop_assert!(place != Place::ROOT && open.remove(&place) && begun.contains(&place));
                        prop_assert_eq!(one.peer(place).as_str(), IDS[child]);
                    }
                    Step::Say(place, _) => prop_assert!(known.contains(&place) && begun.contains(&place)),
                }
            }
            let expected: Vec<Place> = open.iter().rev().copied().filter(|place| *place != Place::ROOT).collect();
            prop_assert_eq!(one.open(), expected);
        }
    }
}
