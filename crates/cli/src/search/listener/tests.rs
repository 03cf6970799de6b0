use offspring_protocol::{
    RawEvent,
    event::{Custom, MessageComplete, RunFailed, RunStarted, StreamComplete, TextDelta, ToolCallStart},
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn row(seq: u64, session: &str, event: &Event) -> LogRow {
    LogRow {
        seq,
        session: session.parse().unwrap(),
        run: Some(format!("run_{session}").parse().unwrap()),
        at: Timestamp(0),
        late: false,
        event: RawEvent::from(event),
    }
}

fn delta(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned() })
}

fn message(text: &str) -> Event {
    Event::MessageComplete(MessageComplete {
        message_id: "m".parse().unwrap(),
        text: text.to_owned(),
        streamed_bytes: 0,
    })
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Session, number and line of every hit, the text in it between brackets.
fn heard(wanted: &str, rows: &[LogRow]) -> Vec<String> {
    let wanted = Wanted::new(wanted, false).unwrap();
    let mut hits = Vec::new();
    let mut listener = Listener::new(&wanted, |hit: Hit| {
        let (before, found, after) = hit.parts();
        hits.push(format!("{} {} {}{before}[{found}]{after}", hit.session, hit.seq, hit.said_as.sign()));
    });
    rows.iter().for_each(|row| listener.hear(row));
    listener.end();
    hits
}

#[test]
fn a_text_is_found_across_pieces_of_two_sessions_at_once() {
    let rows = [
        row(1, "a", &delta("one\nthe nee")),
        row(2, "b", &delta("another need")),
        row(3, "a", &delta("dle is he")),
        row(4, "b", &delta("le here\nno more\n")),
        row(5, "a", &delta("re")),
    ];
    assert_eq!(heard("needle", &rows), ["b 4 another [needle] here", "a 5 the [needle] is here"]);
    assert_eq!(heard("one the", &rows), [] as [&str; 0], "a line ends a text");
}

#[test]
fn everything_that_was_said_is_searched() {
    let started = RunStarted {
        session_id: "a".parse().unwrap(),
        run_id: "run_a".parse().unwrap(),
        agent_name: "n".parse().unwrap(),
        parent_session_id: None,
        prompt: "first\nfind X here\r\nlast".to_owned(),
        prompt_id: None,
    };
    let call = ToolCallStart {
        tool_call_id: "c".parse().unwrap(),
        tool_name: "bash".to_owned(),
        title: "with x".to_owned(),
        input: Some(raw("{\"x\": [\"rm \\u0078\", 1]}")),
    };
    let failed = RunFailed { message: "no X".to_owned(), code: String::new(), interrupted: false };
    let custom = |name: &str, data: &str| Event::Custom(Custom { name: name.to_owned(), data: raw(data) });
    let rows = [
        row(1, "a", &Event::RunStarted(started)),
        row(2, "a", &Event::ThinkingDelta(TextDelta { text: "why x".to_owned() })),
        row(3, "a", &Event::ToolCallStart(call)),
        row(4, "a", &custom("stderr_line", "\"x is missing\"")),
        row(5, "a", &Event::Other(RawEvent::new("later", raw("{\"said\":\"x too\"}")))),
        row(6, "a", &message("x as the answer")),
        row(7, "a", &Event::RunError(failed)),
    ];
    let found = [
        "a 1 > find [X] here",
        "a 2 (thinking) why [x]",
        "a 3 ~ with [x]",
        "a 3 ~ rm [x]",
        "a 4 2> [x] is missing",
        "a 5 * [x] too",
        "a 6 [x] as the answer",
        "a 7 error: no [X]",
    ];
    assert_eq!(heard("x", &rows), found);
}

#[test]
fn a_message_that_repeats_its_pieces_is_found_once() {
    let rows = [
        row(1, "a", &delta("the nee")),
        row(2, "a", &delta("dle\nand more\n")),
        row(3, "a", &message("the needle\nand more\n")),
        row(4, "a", &Event::StreamComplete(StreamComplete::default())),
        row(5, "a", &message("the needle")),
    ];
    assert_eq!(heard("needle", &rows), ["a 2 the [needle]", "a 5 the [needle]"]);
    let unlike = [row(1, "a", &delta("one needle")), row(2, "a", &message("another needle"))];
    assert_eq!(heard("needle", &unlike), ["a 1 one [needle]", "a 2 another [needle]"]);
}

#[test]
fn a_long_line_is_found_once_and_shown_in_part() {
    let filler = "éx".repeat(MAX_LINE);
    let line = format!("{filler}needle{filler}needle{filler}");
    for size in [1_000, 16_385, 5_000_000] {
        let pieces: Vec<String> =
            line.chars().collect::<Vec<_>>().chunks(size).map(String::from_iter).collect();
        let rows: Vec<LogRow> = (1..).zip(&pieces).map(|(seq, piece)| row(seq, "a", &delta(piece))).collect();
        let found = heard("needle", &rows);
        assert_eq!(found.len(), 1, "{size}");
        assert!(found[0].contains(&format!(" …{}[needle]", "éx".repeat(30))), "{}", found[0]);
        assert!(found[0].chars().count() < 230);
    }
}

#[test]
fn letters_are_the_same_in_either_case_and_accents_are_not_left_out() {
    let line = |text: &str| [row(1, "a", &delta(text))];
    for (wanted, text) in [
        ("straße", "STRAßE"),
        ("ΣΟΦΟΣ", "σοφος"),
        ("σοφος", "σοφος"),
        ("k", "\u{212a}"),
        ("ÄÖ", "äö"),
        ("[a.*", "x[A.*"),
    ] {
        assert_eq!(heard(wanted, &line(text)).len(), 1, "{wanted} in {text}");
    }
    for (wanted, text) in [("strasse", "straße"), ("e", "é"), ("a.c", "abc")] {
        assert_eq!(heard(wanted, &line(text)).len(), 0, "{wanted} in {text}");
    }
    let sensitive = Wanted::new("Ab", true).unwrap();
    assert!(sensitive.text.is_match("xAb") && !sensitive.text.is_match("xab"));
    for bad in ["", "a\nb", &"x".repeat(MAX_WANTED + 1)] {
        assert!(Wanted::new(bad, false).is_err());
    }
    assert!(Wanted::new(&"ſ".repeat(MAX_WANTED / 2), false).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn what_is_found_in_pieces_is_what_is_found_in_the_whole(
        text in "[abß\n ]{0,60}",
        cuts in prop::collection::vec(0..61_usize, 0..8),
        wanted in "[aAbß ]{1,3}",
    ) {
        let chars: Vec<char> = text.chars().collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).collect();
        cuts.extend([0, chars.len()]);
        cuts.sort_unstable();
        let rows: Vec<LogRow> = cuts
            .windows(2)
            .map(|cut| row(1, "a", &delta(&chars[cut[0]..cut[1]].iter().collect::<String>())))
            .collect();
        let whole = [row(1, "a", &delta(&text))];
        prop_assert_eq!(heard(&wanted, &rows), heard(&wanted, &whole));
        let expected = text.split('\n').filter(|line| line.to_lowercase().contains(&wanted.to_lowercase())).count();
        prop_assert_eq!(heard(&wanted, &whole).len(), expected);
    }
}
