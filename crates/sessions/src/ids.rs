//! New ids: `ses_` + 16 hex digits of a 64-bit time-and-counter + a random base62 tail.
//!
//! 64 bits, because the 48 bits of the peers' form wrap every 795 days and then sort backwards. Nobody
//! may rely on the order of ids all the same (rule T1): it is there to help databases, not readers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use offspring_protocol::{MessageId, OwnerId, RunId, SessionId, TaskKey, Timestamp};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The last time-and-counter given out by this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Now, by the system's clock.
#[must_use]
pub fn now() -> Timestamp {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Strictly greater at each call, also when the clock steps back or a millisecond needs over 4,096.
fn next(last: &AtomicU64, now: Timestamp) -> u64 {
    let from_clock = u64::try_from(now.0).unwrap_or(0) << 12;
    let advance = |last: u64| from_clock.max(last.saturating_add(1));
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(advance(last)));
    advance(before.unwrap_or_else(|last| last))
}

/// A new id with this prefix. The tail carries 5.95 bits a character from the system's random source.
fn id(prefix: &str, tail: usize) -> String {
    let mut random = [0_u8; 24];
    if getrandom::fill(&mut random).is_err() {
        // Without the system's random source ids stay unique in this process and likely elsewhere.
        let seed =
            std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), LAST.load(Ordering::Relaxed));
        random[..8].copy_from_slice(&seed.to_le_bytes());
    }
    let mut text = format!("{prefix}_{:016x}", next(&LAST, now()));
    text.extend(random.iter().take(tail).map(|byte| char::from(BASE62[usize::from(*byte) % 62])));
    text
}

macro_rules! makers {
    ($($(#[$doc:meta])* $name:ident -> $id:ident, $prefix:literal, $tail:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// Never: the text is not empty.
        #[must_use]
        #[allow(clippy::expect_used, reason = "the text starts with a prefix, so it is not empty")]
        pub fn $name() -> $id {
            $id::new(id($prefix, $tail)).expect("starts with its prefix")
        }
    )*};
}

makers! {
    /// A new session id.
    session -> SessionId, "ses", 14;
    /// A new owner id.
    owner -> OwnerId, "own", 8;
    /// A new run id.
    run -> RunId, "run", 8;
    /// A new task id.
    task -> TaskKey, "task", 8;
    /// A new message id.
    message -> MessageId, "msg", 8;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The peers' 48-bit form wrapped at 2026-08-14T11:19:55.136Z.
    const WRAP_OF_48_BITS_MS: i64 = 26 << 36;

    #[test]
    fn ids_keep_their_order_across_the_48_bit_wrap_and_a_clock_that_steps_back() {
        let last = AtomicU64::new(0);
        let times =
            [WRAP_OF_48_BITS_MS - 1, WRAP_OF_48_BITS_MS, WRAP_OF_48_BITS_MS + 1, WRAP_OF_48_BITS_MS - 500, 0];
        let made: Vec<u64> = times.iter().map(|ms| next(&last, Timestamp(*ms))).collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:x?}");
    }

    #[test]
    fn ids_are_unique_and_have_the_stated_form() {
        let ids: HashSet<String> = (0..10_000).map(|_| session().to_string()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let rest = id.strip_prefix("ses_").unwrap();
            assert_eq!(rest.len(), 30);
            assert!(rest[..16].bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
            assert!(rest[16..].bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
        }
    }

    #[test]
    fn more_than_4096_ids_in_a_millisecond_move_on() {
        let last = AtomicU64::new(0);
        let made: Vec<u64> = (0..5_000).map(|_| next(&last, Timestamp(1))).collect();
        assert!(made.is_sorted_by(|a, b| a < b));
    }
}
