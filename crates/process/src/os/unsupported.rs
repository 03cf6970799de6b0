//! Systems where nothing of this is there: every start is refused.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::Swept;
use crate::{Facilities, LeftOver, ProcessIdentity, RunMarker};

pub(crate) const SUPPORTED: bool = false;
pub(crate) const GUARD_SUPPORTED: bool = false;

pub(crate) fn may_execute(path: &Path) -> bool {
    path.is_file()
}

pub(crate) fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

pub(crate) fn prepare_host() {}

pub(crate) fn own_group(_: &mut Command) {}

pub(crate) fn origin(_: u32) -> Option<(u64, String)> {
    None
}

pub(crate) fn boot_id() -> Option<String> {
    None
}

pub(crate) fn mark_child(_: u32, _: RunMarker) -> io::Result<()> {
    Err(unsupported())
}

pub(crate) fn is_alive(_: &ProcessIdentity) -> io::Result<bool> {
    Err(unsupported())
}

pub(crate) fn facilities() -> Facilities {
    Facilities { subreaper: false, pidfd: false, processes: false }
}

pub(crate) fn left_over() -> io::Result<Vec<LeftOver>> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "processes are held on Unix only")
}

#[derive(Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn open(_: u32) -> Self {
        Self
    }

    pub(crate) fn strike(&self, _: bool) {}
}

#[derive(Debug)]
pub(crate) struct Reach;

impl Reach {
    pub(crate) fn of_child(_: u32, _: RunMarker, _: bool) -> Self {
        Self
    }

    pub(crate) fn of_leftovers(_: RunMarker, _: Option<(u32, u64)>) -> Self {
        Self
    }

    pub(crate) fn ask(&self) {}

    pub(crate) fn hurry_guard(&self) {}

    pub(crate) fn end(&self, _: Option<u32>) -> io::Result<Swept> {
        Err(unsupported())
    }

    pub(crate) fn wait_until_gone(&self, _: Duration) {}
}
