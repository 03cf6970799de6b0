//! The one place where systems differ. What a system cannot do is an error or `None` here, never a success.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod linux_look;
#[cfg(target_os = "linux")]
pub(crate) mod procfs;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "linux")]
pub(crate) use linux_look::{facilities, left_over};

#[cfg(all(unix, not(target_os = "linux")))]
mod other_unix;
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use other_unix::*;

#[cfg(not(unix))]
mod unsupported;
#[cfg(not(unix))]
pub(crate) use unsupported::*;

/// How long the end of everything may take before survivors are reported.
pub(crate) const KILL_BOUND: Duration = Duration::from_secs(5);

/// What ending a set of processes came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// How many processes were sent SIGKILL.
    pub(crate) killed: usize,
    /// Processes that live on: another user's, or stuck in the kernel.
    pub(crate) survivors: Vec<u32>,
}
