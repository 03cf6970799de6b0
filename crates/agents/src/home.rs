//! The private directory of one process: its socket, the program for its agents, their scratch directories.

use std::{
    fs::{self, DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::OFlags;
use tempfile::TempDir;

/// The prefix of every private directory, so that stale ones are recognised.
const PREFIX: &str = "offspring-";
/// Letters behind it, and behind that of a scratch directory.
const RANDOM_BYTES: usize = 8;
/// What is in one, beside scratch directories.
const LOCK: &str = "lock";
const UNNAMED_LOCK: &str = "lock.new";
const SOCKET: &str = "s";
const BIN: &str = "bin";
const SCRATCH_PREFIX: &str = "run-";
/// One is without its lock for milliseconds, while it is made and while it is removed.
const UNLOCKED: Duration = Duration::from_secs(600);
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
        let mut last = None;
        for base in bases() {
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
        let directory = private(base, PREFIX)?;
        // Locked before it has the name that others look for: a lock that can be taken means stale.
        let unnamed = directory.path().join(UNNAMED_LOCK);
        let lock = private_file(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, directory.path().join(LOCK))?;
        let bin = directory.path().join(BIN);
        DirBuilder::new().mode(0o700).create(&bin)?;
        fs::set_permissions(&bin, Permissions::from_mode(0o700))?;
        symlink(program, bin.join("offspring"))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where the endpoint listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// The directory in which agents find `offspring`.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.directory.path().join(BIN)
    }

    /// A new directory, mode 0700, removed when it is dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> io::Result<TempDir> {
        private(self.directory.path(), SCRATCH_PREFIX)
    }
}

/// Where private directories may be, the best place first.
fn bases() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")])
}

/// The private directories of the user, for whoever asks whether all is well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Homes {
    /// Where the next one would be made; `None` when there is no place for one.
    pub place: Option<PathBuf>,
    /// Those of programs that are at work.
    pub living: Vec<PathBuf>,
    /// Those that a killed program left, its socket in it.
    pub stale: Vec<PathBuf>,
}

impl Homes {
    /// Looks where [`Home::new`] would make one, and in the better places before that. Changes nothing.
    #[must_use]
    pub fn look() -> Self {
        let mut homes = Self::default();
        for base in bases() {
            for entry in fs::read_dir(&base).into_iter().flatten().flatten() {
                let path = entry.path();
                let known = homes.living.contains(&path) || homes.stale.contains(&path);
                if !known && is_private(&entry.file_name().to_string_lossy(), &path) {
                    if is_stale(&path) { homes.stale.push(path) } else { homes.living.push(path) }
                }
            }
            if can_hold(&base) {
                homes.place = Some(base);
                break;
            }
        }
        homes
    }
}

/// Whether a private directory can be made here and its socket has a path that is short enough.
fn can_hold(base: &Path) -> bool {
    let name = PREFIX.len() + RANDOM_BYTES + SOCKET.len() + "//".len();
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    base.is_dir()
        && base.as_os_str().len() + name <= LONGEST_SOCKET
        && rustix::fs::access(base, access).is_ok()
}

/// Left alone, a temporary directory has the permissions that the umask leaves, and others may look into it, or not
/// even we.
fn private(base: &Path, prefix: &str) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).rand_bytes(RANDOM_BYTES).permissions(Permissions::from_mode(0o700));
    let directory = builder.tempdir_in(base)?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700))?;
    Ok(directory)
}

/// A new file, mode 0600 whatever the umask.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Removes private directories of ours whose process is gone.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if is_private(&entry.file_name().to_string_lossy(), &path) && is_stale(&path) {
            // Another start may be removing it too.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether it is what [`Home::new_in`] makes: anybody may put a directory of such a name there, with anything in it.
fn is_private(name: &str, path: &Path) -> bool {
    let made = name.strip_prefix(PREFIX).is_some_and(|random| random.len() == RANDOM_BYTES);
    let ours = || {
        fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
    };
    let known = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            [LOCK, UNNAMED_LOCK, SOCKET, BIN].iter().any(|known| name == *known)
                || name.to_string_lossy().starts_with(SCRATCH_PREFIX)
        })
    };
    made && ours() && fs::read_dir(path).is_ok_and(|mut entries| entries.all(known))
}

/// Its lock can be taken; or there is none, and has not been for long: who made or removed it was killed meanwhile.
fn is_stale(path: &Path) -> bool {
    // A pipe of this name must not keep us waiting for its writer.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let lock = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path.join(LOCK));
    match lock {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > UNLOCKED))
        }
        Err(_) => false,
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
        let pipe = base.path().join("offspring-pipepipe");
        fs::create_dir(&pipe).unwrap();
        let made = std::process::Command::new("mkfifo").arg(pipe.join("lock")).status().unwrap();
        assert!(made.success());

        let (done, looked) = std::sync::mpsc::channel();
        let place = base.path().to_owned();
        std::thread::spawn(move || done.send(Home::new_in(&place, Path::new("/bin/sh")).is_ok()));
        let made = looked.recv_timeout(Duration::from_secs(10));
        assert_eq!(made, Ok(true));
    }

    #[test]
    fn what_a_process_that_was_killed_left_is_removed_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, files: &[&str]| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            files.iter().for_each(|file| fs::write(path.join(file), "").unwrap());
            path
        };
        let age = |path: &Path| File::open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        // Killed at work, while it was made and while it was removed.
        let left = [
            make("offspring-aaaaaaa1", &["lock", "s", "bin", "run-x"]),
            make("offspring-aaaaaaa2", &["lock.new"]),
            make("offspring-aaaaaaa3", &["bin"]),
        ];
        left.iter().for_each(|path| age(path));
        let kept = [
            make("offspring-aaaaaaa4", &["lock.new"]),
            make("offspring-aaaaaaa5", &["lock", "thesis.tex"]),
            make("offspring-main", &["lock"]),
        ];
        kept[1..].iter().for_each(|path| age(path));
        let living = Home::new_in(base.path(), Path::new("/bin/sh")).unwrap();
        age(living.directory.path());
        let other = Home::new_in(base.path(), Path::new("/bin/sh")).unwrap();
        assert!(left.iter().all(|path| !path.exists()), "{left:?}");
        assert!(kept.iter().all(|path| path.exists()), "{kept:?}");
        assert!(living.socket().parent().unwrap().exists() && other.bin().exists());
    }
}
