//! Every text of a JSON value, replaced where somebody wants it otherwise: what is withheld, what is too long.

use std::{fmt, mem};

use serde::de;

/// Asks `rewrite` about every text of a JSON value: each string, names of members included, as it reads without its
/// escapes, and each number as it is spelled. What it gives stands there instead, as a string; `None` leaves
/// everything as it is, byte for byte. `None` when nothing is left otherwise.
///
/// Depth and order of members do not matter, and a half of a surrogate pair reads as U+FFFD. `json` has to be JSON.
///
/// ```
/// use offspring_protocol::rewrite_texts;
///
/// let hide = |text: &str| text.contains("hunter2").then(|| text.replace("hunter2", "*"));
/// let json = r#"{ "b": ["\u0068unter2", 1.0], "a": null }"#;
/// assert_eq!(rewrite_texts(json, hide).as_deref(), Some(r#"{ "b": ["*", 1.0], "a": null }"#));
/// assert_eq!(rewrite_texts("[1]", hide), None);
/// ```
pub fn rewrite_texts(json: &str, mut rewrite: impl FnMut(&str) -> Option<String>) -> Option<String> {
    let mut written = String::new();
    // What is before `kept` is written; what is between it and `rest` stays as it is.
    let (mut kept, mut rest) = (json, json);
    while let Some(at) = rest.find(|character: char| character == '"' || is_of_number(character)) {
        let token = &rest[at..];
        let length = if token.starts_with('"') {
            end_of_string(token)
        } else {
            token.find(|character| !is_of_number(character)).unwrap_or(token.len())
        };
        let (token, after) = token.split_at(length);
        let new = if token.starts_with('"') { rewrite(&read(token)) } else { rewrite(token) };
        if let Some(new) = new {
            written.push_str(&kept[..kept.len() - after.len() - length]);
            written.push_str(&serde_json::to_string(&new).unwrap_or_default());
            kept = after;
        }
        rest = after;
    }
    if kept.len() == json.len() {
        return None;
    }
    written.push_str(kept);
    Some(written)
}

/// The `e` of `true` and `false` is none: it is asked for alone and nobody wants it otherwise.
fn is_of_number(character: char) -> bool {
    matches!(character, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')
}

/// Where the string that a text begins with has ended.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !mem::take(&mut is_escaped);
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// What a string says.
fn read(token: &str) -> String {
    struct Bytes;
    impl de::Visitor<'_> for Bytes {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }
    // As bytes, because a half of a surrogate pair is no text and JSON has it all the same.
    let mut reader = serde_json::Deserializer::from_str(token);
    de::Deserializer::deserialize_bytes(&mut reader, Bytes).unwrap_or_else(|_| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(json: &str) -> Option<String> {
        let new = rewrite_texts(json, |text| text.contains("42").then(|| text.replace("42", "\"")))?;
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&new).is_ok(), "{new}");
        Some(new)
    }

    #[test]
    fn w10_names_numbers_escapes_and_halves_of_pairs_are_read_and_the_rest_stays_byte_for_byte() {
        let changed = [
            (
                r#"{"z":1 , "a42":{"42":[ "x42", true]},"z":2}"#,
                r#"{"z":1 , "a\"":{"\"":[ "x\"", true]},"z":2}"#,
            ),
            (r#"[-142e+7, "\\\"4\u0032", false]"#, r#"["-1\"e+7", "\\\"\"", false]"#),
            (r#""\ud80042""#, "\"\u{fffd}\u{fffd}\u{fffd}\\\"\""),
            ("42", r#""\"""#),
        ];
        for (json, new) in changed {
            assert_eq!(hidden(json).as_deref(), Some(new), "{json}");
        }
        assert_eq!(hidden(r#"{"a":"\\","b":[4,2,"4","2\"",null]}"#), None);
        assert_eq!(hidden(""), None);
    }

    #[test]
    fn w10_no_depth_is_too_deep() {
        let deep = format!("{}\"42\"{}", "[".repeat(100_000), "]".repeat(100_000));
        let new = rewrite_texts(&deep, |text| (text == "42").then(String::new)).unwrap();
        assert_eq!(new.len(), deep.len() - 2);
    }
}
