//! How values stand in columns.

use std::collections::BTreeMap;

use offspring_protocol::{BadId, Outcome, RunState};
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use serde::{Serialize, de::DeserializeOwned};

use super::fault::Fault;

/// States from this number on are ends.
pub(super) const FIRST_ENDED: i64 = 2;

/// Append only: a number once written keeps its meaning.
const STATES: &[RunState] = &[
    RunState::Pending,
    RunState::Running,
    RunState::Ended(Outcome::Completed),
    RunState::Ended(Outcome::Failed),
    RunState::Ended(Outcome::Cancelled),
    RunState::Ended(Outcome::Interrupted),
];

pub(super) fn run_state(state: RunState) -> i64 {
    match state {
        RunState::Pending => 0,
        RunState::Running => 1,
        RunState::Ended(Outcome::Completed) => 2,
        RunState::Ended(Outcome::Failed) => 3,
        RunState::Ended(Outcome::Cancelled) => 4,
        RunState::Ended(Outcome::Interrupted) => 5,
    }
}

pub(super) fn run_state_of(number: i64) -> Result<RunState, Fault> {
    let state = usize::try_from(number).ok().and_then(|place| STATES.get(place)).copied();
    state.ok_or_else(|| Fault::Row(format!("run state {number} is unknown")))
}

/// A tree's log is one range of keys: 2^31 trees of 2^32 - 1 lines.
pub(super) fn event_key(tree: i64, seq: u64) -> Result<i64, Fault> {
    match (u32::try_from(tree), u32::try_from(seq)) {
        (Ok(tree), Ok(seq)) if tree <= i32::MAX.cast_unsigned() => Ok(i64::from(tree) << 32 | i64::from(seq)),
        _ => Err(Fault::Limit(format!("it holds no tree {tree} with a line {seq}"))),
    }
}

/// The greatest key of a tree's log.
pub(super) fn last_event_key(tree: i64) -> i64 {
    tree << 32 | i64::from(u32::MAX)
}

pub(super) fn seq_of(key: i64) -> u64 {
    (key & i64::from(u32::MAX)).cast_unsigned()
}

/// A string for a column that may also hold a number.
pub(super) fn text(value: Option<&str>) -> ToSqlOutput<'_> {
    value.map_or_else(
        || ToSqlOutput::from(Null),
        |text| ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
    )
}

/// An id as it was stored; one that is none is damage.
pub(super) fn id<T>(read: Result<T, BadId>) -> Result<T, Fault> {
    read.map_err(|error| Fault::Row(error.to_string()))
}

/// Most rows have none, and none takes no room.
pub(super) fn metadata(metadata: &BTreeMap<String, String>) -> Result<Option<String>, Fault> {
    if metadata.is_empty() { Ok(None) } else { to_json(metadata).map(Some) }
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Fault::Row(error.to_string()))
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::Row(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_number_and_the_open_ones_come_first() {
        for (number, state) in (0_i64..).zip(STATES) {
            assert_eq!(run_state(*state), number);
            assert_eq!(run_state_of(number).unwrap(), *state);
            assert_eq!(state.is_open(), number < FIRST_ENDED);
        }
        assert!(run_state_of(6).is_err() && run_state_of(-1).is_err());
    }

    #[test]
    fn l16_keys_of_a_tree_are_one_range_in_the_order_of_its_numbers() {
        for tree in [1, 2, 77, i64::from(i32::MAX)] {
            assert!(event_key(tree, 0).unwrap() > last_event_key(tree - 1));
            for seq in [1, 2, u64::from(u32::MAX)] {
                let key = event_key(tree, seq).unwrap();
                assert!(event_key(tree, seq - 1).unwrap() < key && key <= last_event_key(tree));
                assert_eq!(seq_of(key), seq);
            }
        }
        assert!(
            event_key(1, 1 << 32).is_err() && event_key(1 << 31, 1).is_err() && event_key(-1, 1).is_err()
        );
    }
}
