//! Other processes: this test program again, in a part to play.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const PART: &str = "STORE_TEST_PART";
const STORE: &str = "STORE_TEST_DB";
const ARGUMENT: &str = "STORE_TEST_ARGUMENT";

/// A process that plays a part on a store; killed when dropped.
pub(crate) struct Other {
    child: Child,
    /// Closing it is the sign to end.
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(part: &str, store: &Path, argument: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process::plays_its_part", "--nocapture", "--quiet"]);
        Self::spawn(command, part, store, argument)
    }

    /// With a umask that forbids nothing.
    pub(crate) fn start_with_umask_000(part: &str, store: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process::plays_its_part", "--nocapture", "--quiet"]);
        Self::spawn(command, part, store, "")
    }

    fn spawn(mut command: Command, part: &str, store: &Path, argument: &str) -> Self {
        command.env(PART, part).env(STORE, store).env(ARGUMENT, argument);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { input: child.stdin.take(), lines, child }
    }

    /// The next line it says; `None` at its end. What the test runner prints is left out.
    pub(crate) fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The runner puts its own words on the line before ours.
            if let Some((_, said)) = line.trim_end_matches('\n').split_once("> ") {
                return Some(said.to_owned());
            }
        }
    }

    pub(crate) fn expect(&mut self, said: &str) {
        assert_eq!(self.line().as_deref(), Some(said));
    }

    /// Says something to it.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// As `kill -9`; returns when it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself and checks that it did well.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.input = None;
        let rest = std::iter::from_fn(|| self.line()).collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side: says a line to who started us. Gives false when nobody listens any more.
pub(crate) fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {line}").and_then(|()| out.flush()).is_ok()
}

/// Waits for the next line of who started us; `None` when we are to end.
pub(crate) fn hear() -> Option<String> {
    std::io::stdin().lines().next().transpose().ok().flatten()
}

/// Nothing in the process that runs the tests; a part in those it starts.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let store = PathBuf::from(std::env::var(STORE).unwrap());
    let argument = std::env::var(ARGUMENT).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(crate::processes::play(&part, &store, &argument));
}
