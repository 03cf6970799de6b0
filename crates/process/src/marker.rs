//! The mark every process of a run carries.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

/// The environment variable that holds the [`RunMarker`] in every process of a run.
pub const MARKER_VARIABLE: &str = "OFFSPRING_RUN";

/// The highest bit of every lineage number.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
const LINEAGE: u64 = 1 << 61;

/// An unguessable 128-bit value that marks every process of one run.
///
/// A process carries it twice. In its environment as [`MARKER_VARIABLE`], which `env -i` removes. And, on Linux, as
/// a *lineage number*: the soft limit `RLIMIT_RTTIME` (`ulimit -R`) is set to a number derived from the marker.
/// Limits are inherited over fork and exec whatever the environment says, and this one has no other effect: it
/// bounds the CPU time of real-time tasks, and the number stands for more than seventy thousand years.
///
/// The text form is 32 lower-case hexadecimal digits. It is no secret: every process of the user can read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunMarker(u128);

/// A text that is no [`RunMarker`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run marker is 32 lower-case hexadecimal digits, not {text:?}")]
pub struct MarkerError {
    text: String,
}

impl RunMarker {
    /// A new marker from the random source of the system.
    ///
    /// # Errors
    /// When the system has no `/dev/urandom`.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    /// The lineage number: never 0, never "unlimited", never a value somebody would choose.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn lineage(self) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        let low = self.0 as u64;
        (low & (LINEAGE - 1)) | LINEAGE
    }

    /// Whether a number is the lineage number of some marker.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) const fn is_lineage(number: u64) -> bool {
        number >= LINEAGE && number < LINEAGE << 1
    }
}

impl fmt::Display for RunMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RunMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunMarker({self})")
    }
}

impl FromStr for RunMarker {
    type Err = MarkerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let error = || MarkerError { text: text.chars().take(40).collect() };
        if text.len() != 32 || !text.bytes().all(digits) {
            return Err(error());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| error())
    }
}
