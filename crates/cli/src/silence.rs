//! How long a session has said nothing, in words, before its limit ends it.

use std::time::Duration;

use offspring_sessions::Silence;

use crate::text::duration;

/// Without a limit silence is worth a word from here on.
const WORTH_A_WORD: Duration = Duration::from_secs(30);

/// `silent 40 s of 60 s` from half of the limit on; without a limit `silent 45 s` from 30 s on.
pub(crate) fn words(silence: &Silence) -> Option<String> {
    let Silence { lasts, limit } = silence;
    match limit {
        Some(limit) if *lasts >= *limit / 2 => Some(format!("silent {} of {}", round(*lasts), round(*limit))),
        None if *lasts >= WORTH_A_WORD => Some(format!("silent {}", round(*lasts))),
        _ => None,
    }
}

fn round(time: Duration) -> String {
    match time.as_secs() {
        0 => duration(time),
        seconds @ 1..=99 => format!("{seconds} s"),
        seconds => duration(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_worth_a_word_from_half_of_its_limit_on() {
        let said = |lasts: u64, limit: Option<u64>| {
            words(&Silence { lasts: Duration::from_millis(lasts), limit: limit.map(Duration::from_millis) })
        };
        assert_eq!(said(29_999, None), None);
        assert_eq!(said(45_200, None).as_deref(), Some("silent 45 s"));
        assert_eq!(said(29_999, Some(60_000)), None);
        assert_eq!(said(40_900, Some(60_000)).as_deref(), Some("silent 40 s of 60 s"));
        assert_eq!(said(310_000, Some(600_000)).as_deref(), Some("silent 5:10 of 10:00"));
        assert_eq!(said(400, Some(800)).as_deref(), Some("silent 400 ms of 800 ms"));
    }
}
