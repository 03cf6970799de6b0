//! A reader's shell: a directory of its own, `offspring` on the path, a store of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use offspring_tests::{fake_runtime, offspring};

use crate::page::root;

/// Removed with everything in it.
pub(crate) struct Session {
    root: tempfile::TempDir,
}

impl Session {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        let session = Self { root: tempfile::tempdir().expect("a temporary directory") };
        for folder in ["bin", "home", "here"] {
            fs::create_dir(session.root.path().join(folder)).expect("a folder");
        }
        for (program, name) in [(offspring(), "offspring"), (fake_runtime(), "offspring-fake-runtime")] {
            symlink(program, session.root.path().join("bin").join(name)).expect("a link to a program");
        }
        session
    }

    /// A clone of the repository as far as its pages use it: the examples, under version control.
    pub(crate) fn in_the_repository() -> Self {
        let session = Self::new();
        symlink(root().join("examples"), session.here().join("examples")).expect("a link to the examples");
        session.run(
            "git init -q . && git add . && \
             git -c user.name=reader -c user.email=reader@localhost commit -qm 'First'",
        );
        session
    }

    fn here(&self) -> PathBuf {
        self.root.path().join("here")
    }

    /// Writes a file of the page.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Adds to a file of the page.
    pub(crate) fn add(&self, name: &str, text: &str) {
        let before = fs::read_to_string(self.file(name)).expect("the file it adds to");
        self.write(name, &format!("{before}{text}"));
    }

    fn file(&self, name: &str) -> PathBuf {
        assert!(
            Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_))),
            "{name} leads out of the reader's directory"
        );
        self.here().join(name)
    }

    /// The names in the reader's directory, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.here()).expect("the directory");
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        names.sort();
        names
    }

    /// What a command prints on stdout, with the reader's directories under the names the pages use; its stderr goes
    /// into the failure of a test.
    pub(crate) fn run(&self, command: &str) -> String {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.root.path().join("bin")).chain(std::env::split_paths(&before));
        let mut shell = Command::new("sh");
        shell
            // The program under test is the one that the pages have built.
            .args(["-c", &command.replace("cargo run --release -- ", "offspring ")])
            .current_dir(self.here())
            .env("PATH", std::env::join_paths(path).expect("a path"))
            .env("HOME", self.root.path().join("home"))
            .env("LC_ALL", "C.UTF-8")
            .env("RECORDED", root().join("tests/fixtures/dsh"))
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        // Neither a store nor a run of whoever runs the tests.
        for name in ["DB", "SOCKET", "TOKEN", "SESSION", "LOG"] {
            shell.env_remove(format!("OFFSPRING_{name}"));
        }
        let output = shell.output().expect("sh starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{command}` ended with {}; stderr:\n{err}", output.status);
        let printed = String::from_utf8(output.stdout).expect("what it prints is UTF-8");
        let home = self.root.path().join("home");
        let named = [(self.here(), "~/work"), (home, "~")];
        named.iter().fold(printed, |text, (path, name)| text.replace(&*path.to_string_lossy(), name))
    }
}
