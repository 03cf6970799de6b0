//! The name of a process that outlives it: the second net (L13, L14).

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::RunMarker;
use crate::os::{self, Reach};

/// Which process ran, told apart from every other one of this machine before and after it.
///
/// For a guarded program it names the guard. The text form, for a store, is
/// `v1:<pid>:<start time in clock ticks since boot>:<boot id>:<marker>`, for example
/// `v1:4711:123456:0c9e3c1a-…:00f1…`; another version number is refused, never guessed at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    pid: u32,
    start_time_ticks: u64,
    boot_id: String,
    marker: RunMarker,
}

/// A text that is no [`ProcessIdentity`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a process identity is v1:<pid>:<start ticks>:<boot id>:<marker>, not {text:?}")]
pub struct IdentityError {
    text: String,
}

/// What was still there, and what of it could not be ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// How many processes were killed.
    pub killed: usize,
    /// Pids that live on: another user's processes, or ones stuck in the kernel.
    pub survivors: Vec<u32>,
}

impl ProcessIdentity {
    /// Of a process that was just started and is not yet reaped; `None` where the system does not tell.
    pub(crate) fn of_child(pid: u32, marker: RunMarker) -> Option<Self> {
        let (start_time_ticks, boot_id) = os::origin(pid)?;
        Some(Self { pid, start_time_ticks, boot_id, marker })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started, in clock ticks since boot.
    #[must_use]
    pub fn start_time_ticks(&self) -> u64 {
        self.start_time_ticks
    }

    /// Which boot of the machine.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The marker all processes of the run carry.
    #[must_use]
    pub fn marker(&self) -> RunMarker {
        self.marker
    }

    /// Whether exactly this process lives; a zombie does not, and a later process with the same pid is another.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where that cannot be told (not Linux, no `/proc`).
    pub fn is_alive(&self) -> io::Result<bool> {
        os::is_alive(self)
    }

    /// Ends whatever is left of the run: this process, everything that carries its marker and all that descends
    /// from these. Blocking, 5 s at most; call it for runs whose owner is known to be dead. Nothing of an earlier
    /// boot is left, so then nothing is looked for.
    ///
    /// # Errors
    /// When the processes cannot be listed, or [`io::ErrorKind::Unsupported`].
    pub fn kill_leftovers(&self) -> io::Result<Leftovers> {
        if os::boot_id().is_some_and(|boot_id| boot_id != self.boot_id) {
            return Ok(Leftovers::default());
        }
        end(&Reach::of_leftovers(self.marker, Some((self.pid, self.start_time_ticks))))
    }
}

/// Ends every process that carries a marker and all that descends from these, when no identity was stored. Blocking,
/// 5 s at most.
///
/// # Errors
/// When the processes cannot be listed, or [`io::ErrorKind::Unsupported`].
pub fn sweep(marker: RunMarker) -> io::Result<Leftovers> {
    end(&Reach::of_leftovers(marker, None))
}

fn end(reach: &Reach) -> io::Result<Leftovers> {
    let swept = reach.end(None)?;
    Ok(Leftovers { killed: swept.killed, survivors: swept.survivors })
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1:{}:{}:{}:{}", self.pid, self.start_time_ticks, self.boot_id, self.marker)
    }
}

impl FromStr for ProcessIdentity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split(':');
            let version = parts.next()?;
            let pid =
                parts.next()?.parse().ok().filter(|&pid: &u32| pid > 0 && i32::try_from(pid).is_ok())?;
            let start_time_ticks = parts.next()?.parse().ok()?;
            let boot_id = parts.next().filter(|id| !id.is_empty())?.to_owned();
            let marker = parts.next()?.parse().ok()?;
            let whole = version == "v1" && parts.next().is_none();
            whole.then_some(Self { pid, start_time_ticks, boot_id, marker })
        };
        parse().ok_or_else(|| IdentityError { text: text.chars().take(120).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l14_an_identity_survives_its_text_form_and_nothing_else_is_taken_for_one() {
        let marker = RunMarker::generate().unwrap();
        let text = format!("v1:4711:12345:0c9e3c1a-boot:{marker}");
        let identity: ProcessIdentity = text.parse().unwrap();
        assert_eq!(identity.to_string(), text);
        assert_eq!((identity.pid(), identity.start_time_ticks(), identity.marker()), (4711, 12345, marker));
        for wrong in [
            String::new(),
            text.replace("v1", "v2"),
            text.replace("4711", "0"),
            text.replace("4711", "-1"),
            text.replace("0c9e3c1a-boot", ""),
            format!("{text}:more"),
            text.to_uppercase(),
        ] {
            assert!(wrong.parse::<ProcessIdentity>().is_err(), "{wrong:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn l14_a_pid_that_is_used_again_or_another_boot_is_not_the_process_that_was() {
        let marker = RunMarker::generate().unwrap();
        let us = ProcessIdentity::of_child(std::process::id(), marker).unwrap();
        assert!(us.is_alive().unwrap());
        let another = ProcessIdentity { start_time_ticks: us.start_time_ticks + 1, ..us.clone() };
        assert!(!another.is_alive().unwrap());
        let before = ProcessIdentity { boot_id: "before".to_owned(), ..us };
        assert!(!before.is_alive().unwrap());
        assert_eq!(before.kill_leftovers().unwrap(), Leftovers::default());
    }
}
