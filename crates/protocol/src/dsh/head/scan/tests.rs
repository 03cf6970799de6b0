use proptest::prelude::*;

use super::{super::Frame, *};

/// The head by a careful reading.
fn careful(text: &str) -> Option<Head<'_>> {
    match Frame::with_care(text.as_bytes()) {
        Ok(Frame::Notification(head)) => Some(head),
        _ => None,
    }
}

/// Frames as runtimes write them, and what may stand in place of a piece.
const FRAMES: &[&str] = &[
    r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"r","event":{"type":"x/y","seq":12,"data":{"a":[1.5,-2e9,true,null,{"b":"c\n\u00e9"}],"e":{}}}}}"#,
    r#"{"jsonrpc":"2.0","method":"session.status","params":{"sessionId":"übung","status":"idle"}}"#,
    r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s","more":1,"sessionId":"t"},"jsonrpcs":[]}"#,
    r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"ü","event":{"type":"x"},"status":"odd"}}"#,
    r#" { "method" : "subagent.started" , "params" : { "parentSessionId" : "p" , "childSessionId" : "c" } } "#,
    r#"{"method":"m","params":{"sessionId":"s","event":{"type":"a","type":"b"},"event":{}},"more":[[],[[0]],{"x":[{}]}]}"#,
];
const PIECES: &[&str] = &[
    "\"",
    "\\",
    "\\u12",
    "\\u00zz",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "\t",
    "0",
    "-",
    ".",
    "e",
    "01",
    "true",
    "nul",
    "\u{1}",
    "é",
    "\"id\":1,",
    "\"type\":7,",
    "\"method\":\"n\",",
    "null",
    "1.",
    "\u{2028}",
];

#[test]
fn the_common_spelling_is_taken() {
    for frame in FRAMES {
        let head = notification(frame);
        assert!(head.is_some(), "{frame}");
        assert_eq!(head, careful(frame), "{frame}");
        // Whoever keeps the frame finds them in it again.
        let Head { method, session, event_type, .. } = head.unwrap();
        for part in [Some(method), session, event_type].into_iter().flatten() {
            assert!(frame.as_bytes().as_ptr_range().contains(&part.as_ptr()), "{frame}: {part}");
        }
    }
    for odd in [
        r#"{"method":"m","params":{"sessionId":"\u0072"}}"#,
        r#"{"method":"m","params":{"sessionId":5}}"#,
        r#"{"method":"m","params":[]}"#,
        r#"{"method":"m","id":null}"#,
        r#"{"method":"m","method":"m"}"#,
        r#"{"method":"m"}}"#,
        r#"{"method":"m","x":[1,]}"#,
        r#"{"method":"m","x":{"a":1,}}"#,
        r#"{"method":"m","x":[1}}"#,
        r#"{"method":"m","x":01}"#,
        r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s"},"params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s"},"id":1}"#,
        r#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s","event":{"type":"x"}}"#,
        "{}",
        "",
    ] {
        assert_eq!(notification(odd), None, "{odd}");
    }
    let deep = |depth: usize| format!(r#"{{"method":"m","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(notification(&deep(64)).is_some());
    assert!(notification(&deep(65)).is_none());
}

#[test]
fn w1_every_place_of_a_special_byte_in_a_string_is_found() {
    for length in 0..40 {
        for place in 0..=length {
            for byte in [b'"', b'\\', 0, 0x1f] {
                let mut bytes = vec![b'~'; length];
                bytes.insert(place, byte);
                assert_eq!(special(&bytes), Some(place));
                // What is close to one is none: also with the high bit.
                for other in [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut bytes = vec![other; length];
                    assert_eq!(special(&bytes), None);
                    bytes.insert(place, byte);
                    assert_eq!(special(&bytes), Some(place));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn w3_whatever_is_taken_the_parser_takes_alike(
        frame in 0..FRAMES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3, 0..PIECES.len()), 0..5),
    ) {
        let mut text = FRAMES[frame].to_owned();
        for (place, removed, piece) in changes {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let from = place.index(places.len());
            let to = (from + removed).min(places.len() - 1);
            text.replace_range(places[from]..places[to], PIECES[piece]);
        }
        if let Some(head) = notification(&text) {
            prop_assert_eq!(Some(head), careful(&text), "{}", text);
        }
    }
}
