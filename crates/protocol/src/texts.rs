//! Every text of a JSON value, replaced where somebody wants it otherwise: what is withheld, what is too long.

use std::{fmt, mem};

use serde::de;

/// A text of a JSON value, and what it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// A string, as it reads without its escapes, or a number as it is spelled.
    pub text: &'a str,
    /// Whether it is a number, the name of a member, or a string.
    pub kind: TextKind,
    /// How many lists and objects it is in.
    pub depth: usize,
    /// The name, escapes and all, of the last member of the outermost object that began before it: within an object of
    /// objects whose value it is part of.
    pub member: &'a str,
}

/// What a [`Text`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// The name of a member.
    Name,
    /// A string.
    String,
    /// A number.
    Number,
}

/// Asks `rewrite` about every text of a JSON value: each string, names of members included, and each number. What it
/// gives stands there instead, as a string; `None` leaves everything as it is, byte for byte. `None` when nothing is
/// left otherwise.
///
/// Depth and order of members do not matter, and a half of a surrogate pair reads as U+FFFD. `json` has to be JSON.
///
/// ```
/// use offspring_protocol::{Text, rewrite_texts};
///
/// let hide = |Text { text, .. }: Text<'_>| text.contains("hunter2").then(|| text.replace("hunter2", "*"));
/// let json = r#"{ "b": ["\u0068unter2", 1.0], "a": null }"#;
/// assert_eq!(rewrite_texts(json, hide).as_deref(), Some(r#"{ "b": ["*", 1.0], "a": null }"#));
/// assert_eq!(rewrite_texts("[1]", hide), None);
/// ```
pub fn rewrite_texts(json: &str, mut rewrite: impl FnMut(Text<'_>) -> Option<String>) -> Option<String> {
    let mut written = String::new();
    // What is before `kept` is written; what is between it and `rest` stays as it is.
    let (mut kept, mut rest) = (json, json);
    let (mut depth, mut member) = (0_usize, "");
    while let Some(at) = rest.find(begins) {
        let token = &rest[at..];
        let length = match token.as_bytes()[0] {
            b'{' | b'[' => {
                depth += 1;
                1
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                1
            }
            b'"' => end_of_string(token),
            _ => token.find(|character| !is_of_number(character)).unwrap_or(token.len()),
        };
        let (token, after) = token.split_at(length);
        let new = if token.starts_with('"') {
            let is_name = after.trim_start().starts_with(':');
            if is_name && depth == 1 {
                member = token.trim_matches('"');
            }
            let kind = if is_name { TextKind::Name } else { TextKind::String };
            rewrite(Text { text: &read(token), kind, depth, member })
        } else if token.starts_with(is_of_number) {
            rewrite(Text { text: token, kind: TextKind::Number, depth, member })
        } else {
            None
        };
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

/// Whether a text, a list or an object begins or ends here.
fn begins(character: char) -> bool {
    matches!(character, '"' | '{' | '}' | '[' | ']') || is_of_number(character)
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
        let new = rewrite_texts(json, |it| it.text.contains("42").then(|| it.text.replace("42", "\"")))?;
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
    fn each_text_is_told_with_what_it_is_and_where() {
        let mut seen = Vec::new();
        rewrite_texts(r#"{"a": [1, "x", {"b": "y"}], "c": "z"}"#, |it| {
            seen.push((it.text.to_owned(), it.kind, it.depth, it.member.to_owned()));
            None
        });
        let wanted = [
            ("a", TextKind::Name, 1, "a"),
            ("1", TextKind::Number, 2, "a"),
            ("x", TextKind::String, 2, "a"),
            ("b", TextKind::Name, 3, "a"),
            ("y", TextKind::String, 3, "a"),
            ("c", TextKind::Name, 1, "c"),
            ("z", TextKind::String, 1, "c"),
        ];
        assert_eq!(seen, wanted.map(|(text, kind, depth, member)| (text.into(), kind, depth, member.into())));
    }

    #[test]
    fn w10_no_depth_is_too_deep() {
        let deep = format!("{}\"42\"{}", "[".repeat(100_000), "]".repeat(100_000));
        let new = rewrite_texts(&deep, |it| (it.text == "42").then(String::new)).unwrap();
        assert_eq!(new.len(), deep.len() - 2);
    }
}
