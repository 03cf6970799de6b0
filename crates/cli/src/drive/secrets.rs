//! What of the environment of a runtime is shown nowhere (W10): which values, and how they are taken out of a line of the wire.

use std::{borrow::Cow, ffi::OsString};

use offspring_process::{REDACTED, Secrets};
use offspring_protocol::{Text, TextKind, rewrite_texts};

use crate::variables;

/// A value whose name does not say that it is secret is one from this length on: a shorter one is a word of every line.
const SHORTEST_BYTES: usize = 8;
/// The lines of a secret of several lines are looked for one by one from this length on.
const SHORTEST_LINE_BYTES: usize = 8;
/// A string of JSON may hold JSON that holds JSON: so often its escapes are undone.
const NESTED_AT_MOST: usize = 3;
/// Members of an envelope whose values make it what it is.
const ENVELOPE: [&str; 3] = ["jsonrpc", "id", "method"];

/// The values that neither a trace, an error nor a line on stderr may hold.
pub(super) fn secrets(passed: &[OsString]) -> Secrets {
    let known = variables::RUNTIME.iter().map(OsString::from).map(|name| (name, false));
    let named = known.chain(passed.iter().cloned().map(|name| (name, true)));
    let mut secrets = Secrets::none();
    for (name, is_passed) in named {
        let Some(value) = std::env::var_os(&name) else { continue };
        let value = value.to_string_lossy();
        let is_secret = says_secret(&name.to_string_lossy())
            || is_passed && value.len() >= SHORTEST_BYTES && !value.bytes().all(|byte| byte.is_ascii_digit());
        if is_secret {
            let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE_BYTES);
            secrets = lines.fold(secrets.with(value.trim()), Secrets::with).with(value.as_ref());
        }
        // A password within an address is one, whatever the variable is called.
        if let Some(user) = user_info(&value) {
            let password = user.split_once(':').map_or(user, |(_, password)| password);
            secrets = secrets.with(user).with(password).with(percent_decoded(password));
        }
    }
    secrets
}

fn says_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "passwd", "credential"].iter().any(|word| name.contains(word))
}

/// `user:password` of `scheme://user:password@host`.
fn user_info(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.rsplit_once('@').map(|(user, _)| user)
}

fn percent_decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => bytes.extend([b"%", piece.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text that is no JSON, without the secrets, however they are spelled in it.
pub(super) fn redact_text<'a>(secrets: &Secrets, text: &'a str) -> Cow<'a, str> {
    let shown = secrets.redact(text);
    let mut plain = Cow::Borrowed(shown.as_ref());
    for _ in 0..NESTED_AT_MOST {
        if !plain.contains('\\') {
            return shown;
        }
        plain = Cow::Owned(unescaped(&plain));
        if matches!(secrets.redact(&plain), Cow::Owned(_)) {
            return Cow::Borrowed(REDACTED);
        }
    }
    shown
}

/// A line of JSON whose strings are without the secrets. Names of members, numbers and the envelope stay as they are,
/// so that the line says the same to whoever routes it.
pub(super) fn redact_json(secrets: &Secrets, line: &str) -> String {
    let hide = |Text { text, kind, depth, member }: Text<'_>| {
        if kind != TextKind::String || depth == 1 && ENVELOPE.contains(&member) {
            return None;
        }
        let clean = redact_text(secrets, text);
        (clean != text).then(|| clean.into_owned())
    };
    rewrite_texts(line, hide).unwrap_or_else(|| line.to_owned())
}

/// The text with one level of the escapes of JSON undone; what is none stays.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        // A pair of surrogates is two escapes that are one character.
        let decoded = [12, 6, 2].into_iter().find_map(|bytes| {
            let escape = rest.get(at..at + bytes)?;
            let one: String = serde_json::from_str(&format!("\"{escape}\"")).ok()?;
            (one.chars().count() == 1).then_some((one, bytes))
        });
        let (one, bytes) = decoded.unwrap_or(("\\".to_owned(), 1));
        plain.push_str(&one);
        rest = &rest[at + bytes..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Secrets {
        Secrets::none().with("hunter22").with("method").with("s1-root")
    }

    #[test]
    fn w10_a_secret_is_found_in_every_spelling_and_the_line_stays_one_of_the_wire() {
        let line = r#"{"jsonrpc":"2.0","method":"a/method","id": "method","params":{"method":[1.50,"x method","h\u0075nter22"],"hunter22": 8080,"n":{"id":"s1-root"}}}"#;
        let shown = redact_json(&all(), line);
        assert_eq!(
            shown,
            r#"{"jsonrpc":"2.0","method":"a/method","id": "method","params":{"method":[1.50,"x [redacted]","[redacted]"],"hunter22": 8080,"n":{"id":"[redacted]"}}}"#
        );
        for text in [r#"{\"a\":\"h\u0075nter22\"}"#, r#"{"a":"h\u0075nter22"}"#, r"h\\u0075nter22"] {
            let inner = serde_json::to_string(&serde_json::json!({ "t": text })).unwrap();
            assert!(redact_json(&all(), &inner).contains(r#"{"t":"[redacted]"}"#), "{inner}");
        }
        assert_eq!(redact_json(&all(), "[]"), "[]");
        let emoji = r#"["\ud83c\udf89 \"fine\" \\"]"#;
        assert_eq!(redact_json(&all(), emoji), emoji);
        assert_eq!(redact_text(&all(), "no method here"), "no [redacted] here");
    }

    #[test]
    fn w10_the_password_of_an_address_is_one() {
        assert_eq!(user_info("https://me:p%40ss@host:1/x@y"), Some("me:p%40ss"));
        assert_eq!(user_info("https://host/x@y"), None);
        assert_eq!(percent_decoded("p%40ss%"), "p@ss%");
        assert!(says_secret("MY_API_KEY") && !says_secret("PORT"));
    }
}
