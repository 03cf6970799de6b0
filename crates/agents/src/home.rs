//! The private directory of one process: its socket, the program for its agents, their scratch directories.

use std::{
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use tempfile::TempDir;

/// The prefix of every private directory, so that stale ones are recognised.
const PREFIX: &str = "offspring-";
/// A socket's path has to fit into 107 bytes on Linux and 103 elsewhere.
const LONGEST_SOCKET: usize = 100;

/// The private directory of one process, mode 0700, gone with it.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
    /// Held for life: a directory whose lock can be taken is stale.
    _lock: File,
}

impl Home {
    /// Makes it in the user's runtime directory (`XDG_RUNTIME_DIR`), else in the directory for temporary
    /// files, and removes those of processes that died without doing so.
    ///
    /// `program` becomes `offspring` on the agents' `PATH`.
    ///
    /// # Errors
    /// When no directory can be made.
    pub fn new(program: &Path) -> io::Result<Self> {
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let mut last = None;
        for base in runtime.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")]) {
            match Self::new_in(&base, program) {
                Ok(home) if home.socket().as_os_str().len() <= LONGEST_SOCKET => return Ok(home),
                Ok(_) => {
                    last = Some(io::Error::other(format!("{} is too long for a socket", base.display())));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("there is no directory for temporary files")))
    }

    fn new_in(base: &Path, program: &Path) -> io::Result<Self> {
        remove_stale(base);
        let directory = private().prefix(PREFIX).rand_bytes(8).tempdir_in(base)?;
        // Locked before it has the name that others look for: a lock that can be taken means stale.
        let unnamed = directory.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, directory.path().join("lock"))?;
        let bin = directory.path().join("bin");
        DirBuilder::new().mode(0o700).create(&bin)?;
        symlink(program, bin.join("offspring"))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where the endpoint listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// The directory in which agents find `offspring`.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.directory.path().join("bin")
    }

    /// A new directory, mode 0700, removed when it is dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> io::Result<TempDir> {
        private().prefix("run-").tempdir_in(self.directory.path())
    }
}

/// Left alone, a temporary directory has the permissions that the umask leaves, and others may look into it.
fn private<'a>() -> tempfile::Builder<'a, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(0o700));
    builder
}

/// Removes private directories of ours whose process is gone.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        // Anybody may put a directory of this name there, with anything in it.
        if !ours {
            continue;
        }
        // A pipe of this name must not keep us waiting for its writer.
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let lock =
            File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path.join("lock"));
        let Ok(lock) = lock else { continue };
        if !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            // Another start may be removing it too.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_look_into_the_private_directories() {
        let home = Home::new(Path::new("/bin/sh")).unwrap();
        let scratch = home.scratch().unwrap();
        for directory in [home.directory.path(), &home.bin(), scratch.path()] {
            let mode = fs::metadata(directory).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o700, "{}", directory.display());
        }
    }

    #[test]
    fn w8_what_others_left_in_the_temporary_directory_keeps_nobody_waiting() {
        let base = tempfile::tempdir().unwrap();
        let (pipe, stale) = (base.path().join("offspring-pipe"), base.path().join("offspring-stale"));
        fs::create_dir(&pipe).unwrap();
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("lock"), "").unwrap();
        let made = std::process::Command::new("mkfifo").arg(pipe.join("lock")).status().unwrap();
        assert!(made.success());

        let (done, looked) = std::sync::mpsc::channel();
        let place = base.path().to_owned();
        std::thread::spawn(move || done.send(Home::new_in(&place, Path::new("/bin/sh")).is_ok()));
        let made = looked.recv_timeout(std::time::Duration::from_secs(10));
        assert_eq!(made, Ok(true));
        assert!(!stale.exists());
    }
}
