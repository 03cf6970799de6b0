//! A reader's shell: a directory of its own, `offspring` on the path, a store of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Removed with everything in it.
pub(crate) struct Session {
    root: tempfile::TempDir,
}

/// The program under test. Tests do not guess which one is meant.
fn offspring() -> PathBuf {
    let path = std::env::var_os("OFFSPRING_BIN").unwrap_or_else(|| {
        panic!("OFFSPRING_BIN is not set: run `cargo xtask test`, which builds the program and hands its path over")
    });
    let path = PathBuf::from(path);
    assert!(path.is_file(), "OFFSPRING_BIN names no file: {}", path.display());
    path
}

impl Session {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        let session = Self { root: tempfile::tempdir().expect("a temporary directory") };
        for folder in ["bin", "home", "here"] {
            fs::create_dir(session.root.path().join(folder)).expect("a folder");
        }
        symlink(offspring(), session.root.path().join("bin/offspring")).expect("a link to the program");
        session
    }

    fn here(&self) -> PathBuf {
        self.root.path().join("here")
    }

    /// Writes a file of the page.
    pub(crate) fn write(&self, name: &str, text: String) {
        assert_eq!(Path::new(name).components().count(), 1, "{name} is no plain name");
        fs::write(self.here().join(name), text).expect("a file");
    }

    /// The names in the reader's directory, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.here()).expect("the directory");
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        names.sort();
        names
    }

    /// What a command prints on stdout; its stderr goes into the failure of a test.
    pub(crate) fn run(&self, command: &str) -> String {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.root.path().join("bin")).chain(std::env::split_paths(&before));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(self.here())
            .env("PATH", std::env::join_paths(path).expect("a path"))
            .env("HOME", self.root.path().join("home"))
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        // Neither a store nor a run of whoever runs the tests.
        for name in ["DB", "SOCKET", "TOKEN", "SESSION", "LOG"] {
            shell.env_remove(format!("OFFSPRING_{name}"));
        }
        let output = shell.output().expect("sh starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{command}` ended with {}; stderr:\n{err}", output.status);
        String::from_utf8(output.stdout).expect("what it prints is UTF-8")
    }
}
