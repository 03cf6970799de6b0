//! What a person who asks whether all is well wants to know: what of the kernel is there, and what was left behind.
//! Nothing here changes or signals anything.

use std::io;

use crate::os;

/// What this crate needs of the kernel, and whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facilities {
    /// Orphans of what we start fall to us (Linux 3.4).
    pub subreaper: bool,
    /// A process is named without its pid being used again meanwhile (Linux 5.3); a guard needs it.
    pub pidfd: bool,
    /// Processes can be listed, with what they descend from.
    pub processes: bool,
}

impl Facilities {
    /// Of the system this runs on.
    #[must_use]
    pub fn here() -> Self {
        os::facilities()
    }
}

/// A process of a run whose program and guard are both gone (rule L14): only the next start would end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOver {
    /// Its pid.
    pub pid: u32,
    /// The name of its program as the kernel has it, at most 15 bytes. Untrusted (W11). Arguments may be secrets.
    pub name: String,
}

/// The processes of our user that carry the mark of a run and have no living program that could end them.
///
/// It looks at what each descends from: a guard, the program that the guard was started by, or, without a guard, a
/// program of the same session. A program that runs inside another's run is found once that one is gone too.
///
/// # Errors
/// When processes cannot be listed, or [`io::ErrorKind::Unsupported`].
pub fn left_over() -> io::Result<Vec<LeftOver>> {
    os::left_over()
}
