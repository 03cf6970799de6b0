//! What is kept is its user's alone: whatever the umask, and whoever else works on the machine.

use std::{
    fs::{self, DirBuilder},
    path::Path,
};

use super::{
    fault::{INSTEAD, Place},
    owners::{DIRECTORY, restrict},
};
use crate::store::StoreError;

/// Files of the store.
const FILES: [&str; 3] = ["", "-wal", "-shm"];

/// A directory that only its user can enter, and those above it; one that is there already stays as it is.
pub(super) fn make_directory(place: &Place, path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_directory(place, above)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        // A umask may have taken even our own rights.
        Ok(()) => restrict(path, 0o700).map_err(|error| place.io("setting permissions of", path, &error)),
        // Another process was as quick.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(place.io("creating the directory", path, &error)),
    }
}

/// Refuses the store of another user, and one where another user has put a directory in the place of ours.
///
/// Not even root opens it: the locks it left behind would keep its user out.
pub(super) fn refuse_others(place: &Place) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let us = rustix::process::geteuid().as_raw();
        let owners = place.beside(DIRECTORY);
        // A link to a store is its user's own doing; one instead of the directory of locks is not ours.
        for found in
            [fs::metadata(&place.path).ok(), fs::symlink_metadata(&owners).ok()].into_iter().flatten()
        {
            if found.uid() != us {
                return Err(place.unusable(format!(
                    "it belongs to user {}, and this program runs as user {us}; run it as that user, or {INSTEAD}",
                    found.uid()
                )));
            }
            if found.is_symlink() {
                return Err(
                    place.unusable(format!("{} is a link; remove it, or {INSTEAD}", owners.display()))
                );
            }
        }
    }
    #[cfg(not(unix))]
    let _ = (place, DIRECTORY, INSTEAD);
    Ok(())
}

/// Closes to others what a copy or a stranger's umask left open: a store that was copied back, for one.
pub(super) fn close_to_others(place: &Place) -> Result<(), StoreError> {
    let files = FILES.iter().map(|suffix| (place.beside(suffix), 0o600));
    for (path, mode) in files.chain([(place.beside(DIRECTORY), 0o700)]) {
        match restrict(&path, mode) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(place.io("setting permissions of", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}
