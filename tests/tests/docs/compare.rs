//! Whether a command printed what a page shows: ids, times and sizes are another's on every machine, and a line `…`
//! stands for any number of lines.

use regex_lite::Regex;
use serde_json::Value;

/// What is different each time, and what stands for it.
const MASKS: &[(&str, &str)] = &[
    (r"\b(ses|run|tsk)_[0-9A-Za-z]{8,}", "${1}_…"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "DATE"),
    (r"\b(\d+:)?\d?\d:\d\d\b", "TIME"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "TIME"),
    (r"\b\d+(\.\d+)? (B|KiB|MiB|GiB|bytes)\b", "SIZE"),
    // What was aligned to one of these is aligned to another.
    (r" {2,}", " "),
];

/// A text with every mask in place.
pub(crate) fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, with) in MASKS {
        let pattern = Regex::new(pattern).expect("a pattern");
        text = pattern.replace_all(&text, *with).into_owned();
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Whether `printed` is what `shown` shows.
pub(crate) fn is_shown(printed: &str, shown: &str) -> bool {
    let (printed, shown) = (masked(printed), masked(shown));
    let (printed, shown): (Vec<&str>, Vec<&str>) = (printed.lines().collect(), shown.lines().collect());
    lines_match(&printed, &shown)
}

fn lines_match(printed: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        ["…", rest @ ..] => (0..=printed.len()).any(|skipped| lines_match(&printed[skipped..], rest)),
        [line, rest @ ..] => printed.first() == Some(line) && lines_match(&printed[1..], rest),
    }
}

/// The same for JSON: `"…"` stands for any value.
pub(crate) fn is_json_shown(printed: &Value, shown: &Value) -> bool {
    match (printed, shown) {
        (_, Value::String(any)) if any == "…" => true,
        (Value::Object(printed), Value::Object(shown)) => {
            printed.len() == shown.len()
                && shown
                    .iter()
                    .all(|(key, value)| printed.get(key).is_some_and(|printed| is_json_shown(printed, value)))
        }
        (Value::Array(printed), Value::Array(shown)) => {
            printed.len() == shown.len() && printed.iter().zip(shown).all(|(p, s)| is_json_shown(p, s))
        }
        (Value::String(printed), Value::String(shown)) => is_shown(printed, shown),
        _ => printed == shown,
    }
}

#[test]
fn what_is_different_each_time_is_masked_and_nothing_else() {
    let shown = "✓ a completed 12 ms  ses_001a22d6f1961000wO9XL88fmOE7eO\n";
    assert!(is_shown("✓ a completed 1.2 s  ses_001a22d6f1961000wO9XL88fmOE7eX\n", shown));
    assert!(!is_shown("✗ a completed 1.2 s  ses_001a22d6f1961000wO9XL88fmOE7eX\n", shown));
    assert!(!is_shown("✓ a completed 1.2 s\n", shown));
    assert!(is_shown("a\nb\nc\n", "a\n…\nc\n") && is_shown("a\nc\n", "a\n…\nc\n"));
    assert!(!is_shown("a\nb\n", "a\n…\nc\n") && !is_shown("a\nb\n", "a\n"));
    let json = |text| serde_json::from_str::<Value>(text).unwrap();
    assert!(is_json_shown(&json(r#"{"a":1,"b":[2]}"#), &json(r#"{"a":"…","b":[2]}"#)));
    assert!(!is_json_shown(&json(r#"{"a":1,"b":[2]}"#), &json(r#"{"a":"…"}"#)));
}
