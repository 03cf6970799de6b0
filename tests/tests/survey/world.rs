//! Directories with known content to survey.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed with its value.
pub(crate) struct World {
    root: tempfile::TempDir,
    dir: PathBuf,
}

impl World {
    /// An empty directory, no repository.
    pub(crate) fn plain() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = root.path().join("surveyed");
        fs::create_dir(&dir).expect("the surveyed directory");
        Self { root, dir }
    }

    /// An empty repository.
    pub(crate) fn repository() -> Self {
        let world = Self::plain();
        world.git(&["init", "-q", "-b", "main"]);
        world
    }

    /// The directory to survey.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A place beside the surveyed directory, removed with it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file, its folders included.
    pub(crate) fn write(&self, name: &str, text: &str) -> &Self {
        self.write_bytes(name.as_bytes(), text)
    }

    /// Writes a file whose name need not be UTF-8.
    pub(crate) fn write_bytes(&self, name: &[u8], text: &str) -> &Self {
        let path = self.dir.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
        self
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> &Self {
        fs::remove_file(self.dir.join(name)).expect("the file to remove");
        self
    }

    /// Commits everything that is there.
    pub(crate) fn commit(&self, message: &str) -> &Self {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self
    }

    /// Runs git in the surveyed directory with a fixed identity and no
    /// configuration of the user or the machine; panics when git fails.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = git_command().args(arguments).current_dir(&self.dir).output().expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Every name below the surveyed directory with its length and time of change.
    pub(crate) fn picture(&self) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
        let mut seen = Vec::new();
        let mut open = vec![self.dir.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let entry = entry.expect("an entry");
                let about = entry.metadata().expect("an entry's data");
                if about.is_dir() {
                    open.push(entry.path());
                }
                seen.push((entry.path(), about.len(), about.modified().expect("a time")));
            }
        }
        seen.sort();
        seen
    }
}

/// git with a fixed identity that reads nobody's configuration.
pub(crate) fn git_command() -> Command {
    let mut git = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(name);
    }
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.org")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.org");
    git
}

/// A text of `count` lines of C.
pub(crate) fn lines(count: usize) -> String {
    (0..count).map(|n| format!("int value_{n};\n")).collect()
}
