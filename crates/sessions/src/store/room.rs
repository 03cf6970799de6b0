//! How much room a store takes, and giving it back.

use std::fmt;

/// How much room a store takes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// The file, and what of it still stands in its log.
    pub file_bytes: u64,
    /// What of them holds something. The rest is used again, or given back by
    /// [`reclaim`](super::SessionStore::reclaim).
    pub used_bytes: u64,
}

/// How much one tree is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSize {
    /// Its sessions.
    pub sessions: u64,
    /// The bytes of its rows and its log, about: pages hold more than one row and are rarely full.
    pub bytes: u64,
}

/// What giving back room came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Before.
    pub before: Space,
    /// After.
    pub after: Space,
    /// Why not everything was given back, or not every byte of what was deleted is gone, if so.
    pub left: Option<Unreclaimed>,
}

/// Why something of what was deleted remains, for now. Asking again later helps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreclaimed {
    /// Another program reads the store and still sees what was deleted.
    Reader,
    /// Other programs write to the store, and building it anew would have kept them waiting too long.
    Writers,
    /// A database server keeps the room for what comes next, and decides itself when old bytes are written over.
    Server,
    /// Building the store anew needs as much room again as what it holds.
    NoRoom {
        /// What the store says.
        detail: String,
    },
}

impl fmt::Display for Unreclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reader => {
                f.write_str("another program is reading the store and keeps what was deleted in its files")
            }
            Self::Writers => f.write_str(
                "other programs are using the store, and building it anew takes too long for them",
            ),
            Self::Server => f.write_str(
                "the database server keeps the room for what comes next, and writes over what was deleted when it likes",
            ),
            Self::NoRoom { detail } => {
                write!(f, "building the store anew needs as much room again as it holds: {detail}")
            }
        }
    }
}

/// Bytes below which a file system counts as full: less than a commit takes.
const NEXT_TO_NOTHING: u64 = 8 << 20;

/// A full disk explains itself; a write that is refused while there is room does not.
pub(super) fn no_room(free_bytes: Option<u64>, detail: &str) -> String {
    match free_bytes {
        Some(free) if free < NEXT_TO_NOTHING => format!("{} free on its file system", bytes(free)),
        Some(free) => format!(
            "{} are free on its file system and a write was refused all the same ({detail}): a limit on the size of \
             files (`ulimit -f`), a quota, or a fault of the disk",
            bytes(free)
        ),
        None => detail.to_owned(),
    }
}

/// `812 B`, `4.0 KiB`, `1.5 GiB`.
fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let above = units.iter().zip(1_u32..).take_while(|(_, power)| count >> (10 * power) > 0).last();
    match above {
        None => format!("{count} B"),
        Some((unit, power)) => {
            let tenths = (u128::from(count) * 10) >> (10 * power);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}
