//! Event kinds as small numbers.

use std::borrow::Cow;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::fault::Fault;

/// The number of a kind is its place here plus 1. Append only: a number once written keeps its meaning.
const KINDS: &[&str] = &[
    "run_started",
    "spawn_session_start",
    "text_delta",
    "thinking_delta",
    "tool_call_start",
    "tool_call_progress",
    "tool_call_complete",
    "permission_requested",
    "permission_resolved",
    "usage",
    "message_complete",
    "stream_complete",
    "run_error",
    "status_changed",
    "compacted",
    "custom",
    "prompt_received",
    "prompt_dropped",
];

/// A number for a kind we know, the word itself for any other.
pub(super) fn encode(kind: &str) -> ToSqlOutput<'_> {
    match KINDS.iter().position(|known| *known == kind) {
        Some(place) => ToSqlOutput::Owned(Value::Integer(i64::try_from(place).unwrap_or(i64::MAX - 1) + 1)),
        None => ToSqlOutput::Borrowed(ValueRef::Text(kind.as_bytes())),
    }
}

pub(super) fn decode(value: ValueRef<'_>) -> Result<Cow<'static, str>, Fault> {
    match value {
        ValueRef::Integer(number) => usize::try_from(number - 1)
            .ok()
            .and_then(|place| KINDS.get(place))
            .map(|kind| Cow::Borrowed(*kind))
            .ok_or_else(|| Fault::Row(format!("event kind {number} is unknown"))),
        ValueRef::Text(word) => String::from_utf8(word.to_vec())
            .map(Cow::Owned)
            .map_err(|_| Fault::Row("an event kind is not UTF-8".into())),
        _ => Err(Fault::Row("an event kind is neither a number nor a word".into())),
    }
}

#[cfg(test)]
mod tests {
    use offspring_protocol::Event;

    use super::*;

    #[test]
    fn every_known_kind_has_a_number_and_no_number_ever_moves() {
        for kind in Event::KINDS {
            assert!(KINDS.contains(kind), "append `{kind}` to the end of KINDS");
        }
        // The numbers of the first version; a change here breaks every file that was ever written.
        for (number, kind) in [(1, "run_started"), (3, "text_delta"), (12, "stream_complete"), (16, "custom")]
        {
            assert_eq!(decode(ValueRef::Integer(number)).unwrap(), kind);
        }
    }

    #[test]
    fn an_unknown_number_is_damage_and_an_unknown_word_is_kept() {
        assert!(decode(ValueRef::Integer(0)).is_err());
        assert!(decode(ValueRef::Integer(i64::MAX)).is_err());
        assert!(decode(ValueRef::Integer(i64::MIN + 1)).is_err());
        assert!(matches!(encode("later"), ToSqlOutput::Borrowed(ValueRef::Text(b"later"))));
        assert_eq!(decode(ValueRef::Text(b"later")).unwrap(), "later");
    }
}
