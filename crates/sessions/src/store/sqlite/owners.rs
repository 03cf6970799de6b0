//! Who lives: one locked file per process beside the store.
//!
//! A lock ends with its process, at once and without a clock: a stopped process (SIGSTOP, a sleeping
//! laptop) keeps it, a killed one does not (rule L13).

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
};

use offspring_protocol::OwnerId;

use super::fault::Place;
use crate::store::{OwnerState, StoreError};

/// The suffix of the directory beside the store.
pub(super) const DIRECTORY: &str = ".owners";

/// Our own lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct OwnerLock {
    path: PathBuf,
    _held: File,
}

impl OwnerLock {
    /// Takes the lock of a new owner.
    pub(super) fn take(place: &Place, directory: &Path, owner: &OwnerId) -> Result<Self, StoreError> {
        let path = lock_path(directory, owner)
            .ok_or_else(|| place.unusable(format!("the owner id {owner} cannot name a file")))?;
        // Locked before it has the name others look for, so that nobody ever sees it unlocked.
        let unborn = directory.join(format!(".{owner}.new"));
        let held = open_private(&unborn).map_err(|error| place.io("creating", &unborn, &error))?;
        held.try_lock().map_err(|error| place.unusable(format!("locking {}: {error}", unborn.display())))?;
        fs::rename(&unborn, &path).map_err(|error| place.io("creating", &path, &error))?;
        Ok(Self { path, _held: held })
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Gone or locked means dead or alive; a file that is left behind is only untidy.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "could not remove an owner's lock file");
        }
    }
}

/// Whether the process of that owner lives; forgets the files of dead ones.
pub(super) fn state(directory: &Path, owner: &OwnerId) -> OwnerState {
    let Some(path) = lock_path(directory, owner) else { return OwnerState::Dead };
    let state = is_held(&path);
    if state == OwnerState::Dead {
        // An owner id is used once: nobody can have taken this lock again.
        let _ = fs::remove_file(&path);
    }
    state
}

/// The same, which leaves the file.
pub(super) fn is_held(path: &Path) -> OwnerState {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return OwnerState::Dead,
        Err(error) => {
            // Not knowing must not look like death: a live owner would lose its tree.
            tracing::warn!(path = %path.display(), %error, "cannot look at an owner's lock file");
            return OwnerState::Alive;
        }
    };
    // Shared, so that two who look at the same time do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => OwnerState::Dead,
        Err(_) => OwnerState::Alive,
    }
}

/// Whether a process but that of `ours` has the store open.
pub(super) fn others(directory: &Path, ours: &OwnerId) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return true };
    let named = entries
        .flatten()
        .filter_map(|entry| OwnerId::new(entry.file_name().to_str()?.strip_suffix(".lock")?).ok());
    named.into_iter().any(|owner| owner != *ours && state(directory, &owner) == OwnerState::Alive)
}

/// An owner id of ours is a file name; one that could leave the directory has no file and no process.
fn lock_path(directory: &Path, owner: &OwnerId) -> Option<PathBuf> {
    let name = owner.as_str();
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (name.len() <= 200 && name.bytes().all(safe)).then(|| directory.join(format!("{name}.lock")))
}

/// A file of ours that only its user can read, whatever the umask.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let file = options.open(path)?;
    restrict(path, 0o600)?;
    Ok(file)
}

/// Sets exactly these permissions where the system has them.
pub(super) fn restrict(path: &Path, mode: u32) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if fs::metadata(path)?.permissions().mode() & 0o7777 != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
    }
    #[cfg(not(unix))]
    let _ = (path, mode);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn l13_an_owner_is_alive_while_its_lock_is_held_and_dead_after() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { path: dir.path().join("db"), busy_timeout: Duration::ZERO };
        let owner = OwnerId::new("own_1").unwrap();
        assert_eq!(state(dir.path(), &owner), OwnerState::Dead);
        let lock = OwnerLock::take(&place, dir.path(), &owner).unwrap();
        assert_eq!(state(dir.path(), &owner), OwnerState::Alive);
        drop(lock);
        assert_eq!(state(dir.path(), &owner), OwnerState::Dead);
    }

    #[test]
    fn a_dead_owners_file_is_removed_when_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let owner = OwnerId::new("own_1").unwrap();
        let path = dir.path().join("own_1.lock");
        fs::write(&path, "").unwrap();
        assert_eq!(state(dir.path(), &owner), OwnerState::Dead);
        assert!(!path.exists());
    }

    #[test]
    fn an_owner_id_that_leaves_the_directory_is_dead_and_touches_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("x.lock");
        fs::write(&outside, "").unwrap();
        let inside = dir.path().join("owners");
        fs::create_dir(&inside).unwrap();
        assert_eq!(state(&inside, &OwnerId::new("../x").unwrap()), OwnerState::Dead);
        assert!(outside.exists());
    }
}
