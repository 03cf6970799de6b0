//! The program with a world of its own: a home, a store, a directory to work in, a pool.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    processes::{Seen, living},
    running::{Finished, Running},
    until,
};

/// The program under test. Tests do not guess which one is meant.
///
/// # Panics
/// When `OFFSPRING_BIN` does not name it.
#[must_use]
pub fn offspring() -> PathBuf {
    let path = std::env::var_os("OFFSPRING_BIN").unwrap_or_else(|| {
        panic!("OFFSPRING_BIN is not set: run `cargo xtask test`, which builds the program and hands its path over")
    });
    let path = PathBuf::from(path);
    assert!(path.is_file(), "OFFSPRING_BIN names no file: {}", path.display());
    path
}

/// The scripted runtime of the conformance kit.
///
/// # Panics
/// When `OFFSPRING_FAKE_RUNTIME` does not name it.
#[must_use]
pub fn fake_runtime() -> PathBuf {
    let path = std::env::var_os("OFFSPRING_FAKE_RUNTIME").unwrap_or_else(|| {
        panic!("OFFSPRING_FAKE_RUNTIME is not set: run `cargo xtask test`, which builds it")
    });
    PathBuf::from(path)
}

/// Removed with everything in it; nothing of the user's own is read or written.
#[derive(Debug)]
pub struct World {
    root: TempDir,
    token: String,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// An empty world.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let root = tempfile::Builder::new().prefix("world-").tempdir().expect("a temporary directory");
        for folder in ["home", "here", "pool", "state", "tmp"] {
            fs::create_dir(root.path().join(folder)).expect("a folder");
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let token = format!("600.{}{}{count}", std::process::id(), now.subsec_nanos());
        Self { root, token }
    }

    /// A number of seconds for `sleep` that no other process of the machine sleeps.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The directory the agents work in.
    #[must_use]
    pub fn here(&self) -> PathBuf {
        self.root.path().join("here")
    }

    /// A path in the world.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The store that [`command`](Self::command) names.
    #[must_use]
    pub fn db(&self) -> PathBuf {
        self.path("sessions.db")
    }

    /// Writes a file, its folders included; gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, text).expect("a file");
        path
    }

    /// Writes `pool/pool.yaml`; `@SLEEP@` in it becomes the world's token.
    pub fn pool(&self, yaml: &str) -> PathBuf {
        self.write("pool/pool.yaml", &yaml.replace("@SLEEP@", &self.token))
    }

    /// The program, in `here`, without a store named, with nothing of the user's environment but PATH.
    #[must_use]
    pub fn bare(&self) -> Command {
        let mut command = Command::new(offspring());
        command
            .current_dir(self.here())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("TMPDIR", self.path("tmp"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null());
        command
    }

    /// The program with these arguments, on the world's store.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.bare();
        command.arg("--db").arg(self.db()).args(arguments);
        command
    }

    /// Runs the program with these arguments to its end.
    pub fn offspring<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        Running::start(self.command(arguments)).finish()
    }

    /// Runs `pool/pool.yaml` to its end.
    pub fn run(&self, node: &str, prompt: &str, more: &[&str]) -> Finished {
        Running::start(self.run_command(node, prompt, more)).finish()
    }

    /// Starts `pool/pool.yaml`.
    #[must_use]
    pub fn start(&self, node: &str, prompt: &str, more: &[&str]) -> Running {
        Running::start(self.run_command(node, prompt, more))
    }

    /// The command line that runs `pool/pool.yaml`.
    #[must_use]
    pub fn run_command(&self, node: &str, prompt: &str, more: &[&str]) -> Command {
        let mut command = self.command(&["run"]);
        command.arg(self.path("pool/pool.yaml")).arg(prompt).args(["--node", node]).args(more);
        command
    }

    /// What a command prints as JSON.
    ///
    /// # Panics
    /// When it fails or prints something else.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let done = self.offspring(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        serde_json::from_str(&done.stdout).expect("JSON")
    }

    /// The sessions of `tree latest --json`.
    ///
    /// # Panics
    /// As [`json`](Self::json).
    #[must_use]
    pub fn tree(&self, session: &str) -> Vec<Value> {
        self.json(&["tree", session, "--json"])["sessions"].as_array().expect("sessions").clone()
    }

    /// Living processes that belong to this world: by its paths in their command line or environment, or by
    /// its token.
    #[must_use]
    pub fn processes(&self) -> Vec<Seen> {
        let root = self.root.path().to_string_lossy();
        living(&[&root, &self.token])
    }

    /// Living sleepers of this world's token.
    #[must_use]
    pub fn sleepers(&self) -> Vec<Seen> {
        let mut seen = living(&[&self.token]);
        seen.retain(Seen::is_sleeper);
        seen
    }

    /// Waits until so many sleepers are there.
    pub fn until_sleepers(&self, count: usize) -> Vec<Seen> {
        until(&format!("{count} sleepers"), Duration::from_secs(20), || {
            Some(self.sleepers()).filter(|seen| seen.len() >= count)
        })
    }

    /// Waits until no process of this world lives.
    pub fn until_nothing_lives(&self, bound: Duration) {
        let mut last = Vec::new();
        let deadline = std::time::Instant::now() + bound;
        while std::time::Instant::now() < deadline {
            last = self.processes();
            if last.is_empty() {
                return;
            }
            // poll: /proc
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still there after {bound:?}: {last:?}");
    }

    /// Every name below a directory with its length.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn picture(&self, folder: &Path) -> Vec<(PathBuf, u64)> {
        let mut seen = Vec::new();
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let entry = entry.expect("an entry");
                let about = entry.metadata().expect("an entry's data");
                if about.is_dir() {
                    open.push(entry.path());
                }
                seen.push((entry.path(), about.len()));
            }
        }
        seen.sort();
        seen
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed half-way leaves no process behind that holds the runner's pipes.
        if std::thread::panicking() {
            for seen in self.processes() {
                crate::processes::send(seen.pid, rustix::process::Signal::KILL);
            }
        }
    }
}
