//! `offspring prune`: deletes whole trees by age, number or size; only what the criterion names.

use std::{path::PathBuf, process::ExitCode, str::FromStr};

use clap::Args;
use jiff::{Span, ZonedDateTime};
use offspring_protocol::Timestamp;
use offspring_sessions::{Retention, SessionManager};

use crate::{
    erased::{Erased, Gone},
    failure::Failure,
    store,
    text::{bytes, counted},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Deletes whole trees, oldest first; a tree in which something runs is kept, and that is said.\n\n\
    Examples:\n  offspring prune --older-than 30d --dry-run\n  offspring prune --keep 100\n  \
    offspring prune --to-size 500MB"
)]
pub(crate) struct Prune {
    #[command(flatten)]
    pub(crate) what: What,
    /// Delete nothing; say what would be deleted.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also delete the copies of the store that updates left beside it: they hold what it held then.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) copies: bool,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct What {
    /// Trees that ended longer ago than this: `30d`, `12h`, `6mo`, `1y`.
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: Option<Age>,
    /// All trees but the newest so many.
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<usize>,
    /// The oldest trees, until the store is no larger than this: `500MB`, `2GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) to_size: Option<Size>,
    /// No tree: only give back room that earlier deletions left.
    #[arg(long)]
    pub(crate) reclaim: bool,
}

pub(crate) async fn prune(db: Option<PathBuf>, args: &Prune) -> Result<ExitCode, Failure> {
    let (manager, place) = store::manager(db).await?;
    let max_bytes = args.what.to_size.map(|size| size.0);
    let policy = Retention {
        rested_before: args.what.older_than.as_ref().map(Age::ago).transpose()?,
        keep: args.what.keep,
        max_bytes,
    };
    let retained = match args.dry_run {
        true => manager.would_delete(policy).await?,
        false => manager.retain(policy).await?,
    };
    let gone = retained
        .deleted
        .iter()
        .map(|tree| Gone::new(&tree.root, tree.size.sessions, Some(tree.size.bytes)))
        .collect();
    let mut erased = Erased::new(gone, retained.in_use, args.dry_run);
    if !args.dry_run {
        erased.give_back(&manager).await;
    }
    erased.look_for_copies(&place, args.copies)?;
    let printed = erased.print(args.json);
    let reached = match max_bytes {
        Some(max) if !args.dry_run => reaches(&manager, max, erased.in_use.len()).await,
        _ => Ok(()),
    };
    manager.close().await?;
    let printed = printed?;
    reached?;
    Ok(printed)
}

/// Whether the store is as small as was asked.
async fn reaches(manager: &SessionManager, max: u64, in_use: usize) -> Result<(), Failure> {
    let used = manager.store().space().await?.used_bytes;
    if used <= max {
        return Ok(());
    }
    let why = match in_use {
        0 => "no tree is left; a store takes as much without one".to_owned(),
        more => format!("{} in use and kept", counted(more, "tree is", "trees are")),
    };
    Err(Failure::new(format!("the store still holds {}, more than {}: {why}", bytes(used), bytes(max))))
}

/// How long ago, by the calendar where days and longer are meant.
#[derive(Debug, Clone)]
pub(crate) struct Age(Span);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span: Span = text.parse().map_err(|_| "say for example 30d, 12h, 6mo or 1y".to_owned())?;
        if span.is_negative() {
            return Err("an age is not negative".to_owned());
        }
        Ok(Self(span))
    }
}

impl Age {
    fn ago(&self) -> Result<Timestamp, Failure> {
        let then = ZonedDateTime::now().checked_sub(self.0);
        let then = then.map_err(|_| Failure::usage("--older-than: there was no such time"))?;
        Ok(Timestamp(then.timestamp().as_millisecond()))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "say for example 500MB, 1.5GiB or 4096".to_owned();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let mut size = whole.checked_mul(factor).ok_or_else(wrong)?;
        let mut part = factor;
        for digit in fraction.chars() {
            part /= 10;
            let digit = digit.to_digit(10).ok_or_else(wrong)?;
            size = size.saturating_add(u64::from(digit) * part);
        }
        Ok(Self(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        let cases = [
            ("0", 0),
            ("4096", 4_096),
            ("500MB", 500_000_000),
            ("500 mb", 500_000_000),
            ("2GiB", 2 << 30),
            ("64k", 64 << 10),
            ("1.5GB", 1_500_000_000),
            ("1.25KiB", 1_024 + 204 + 50),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MB", "-1", "5XB", "1.2.3k", "1e9", "99999999999TB", "5 M B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_read_and_none_is_in_the_future() {
        let now = Timestamp(jiff::Timestamp::now().as_millisecond());
        for text in ["30d", "12h", "90m", "2w", "6mo", "1y", "1y 2mo", "0d", "P30D"] {
            let ago = text.parse::<Age>().unwrap().ago().unwrap();
            assert!(ago.0 <= now.0 + 1_000, "{text}");
        }
        for text in ["", "30", "d", "30x", "-30d", "30d ago", "yesterday"] {
            assert!(text.parse::<Age>().is_err(), "{text}");
        }
    }
}
