//! A program that runs, and how it ended.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{processes::send, until};

/// No command of a test takes longer.
const BOUND: Duration = Duration::from_secs(60);

/// How a program ended and what it said.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Finished {
    /// Itself, if it ended with this code.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// A program that runs; its output is read all the time. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
    stderr: Option<JoinHandle<String>>,
}

/// Lines of stdout, as they come.
pub type Lines = Vec<Value>;

impl Running {
    /// Starts it with pipes for stdout and stderr, and with one for stdin if the command has it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut stderr = child.stderr.take().expect("stderr");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = stdout;
            loop {
                let mut line = Vec::new();
                match stdout.read_until(b'\n', &mut line) {
                    Ok(1..) if sender.send(String::from_utf8_lossy(&line).into_owned()).is_ok() => {}
                    _ => return,
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, seen: Vec::new(), stderr: Some(stderr) }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Writes a line to its stdin.
    ///
    /// # Panics
    /// When that is no pipe, or nobody reads it any more.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("a pipe to its stdin");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads its stdin");
    }

    /// Writes bytes to its stdin.
    ///
    /// # Panics
    /// As [`tell`](Self::tell).
    pub fn tell_bytes(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("a pipe to its stdin").write_all(bytes).expect("it reads its stdin");
    }

    /// Whether it ends in time.
    ///
    /// # Panics
    /// When its state cannot be told.
    pub fn ends_within(&mut self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        while Instant::now() < deadline {
            if self.has_ended() {
                return true;
            }
            // poll: the process
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of stdout, without its end; `None` at the end.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(BOUND) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line.trim_end_matches('\n').to_owned())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line on stdout within {BOUND:?}"),
        }
    }

    /// Reads lines of JSON until one is wanted; gives it.
    ///
    /// # Panics
    /// When stdout ends before, or holds something else.
    pub fn until_json(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        while let Some(line) = self.line() {
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            if wanted(&value) {
                return value;
            }
        }
        panic!("stdout ended before the line that was waited for: {:?}", self.seen)
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When that cannot be told.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn finish(self) -> Finished {
        self.finish_within(BOUND)
    }

    /// Waits for its end, no longer than this.
    ///
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn finish_within(mut self, bound: Duration) -> Finished {
        let status = self.wait(bound);
        let mut stdout = self.seen.concat();
        let deadline = Instant::now() + BOUND;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            stdout.push_str(&line);
        }
        let stderr = self.stderr.take().map(|reading| reading.join().unwrap_or_default()).unwrap_or_default();
        Finished { code: status.code(), signal: status.signal(), stdout, stderr }
    }

    fn wait(&mut self, bound: Duration) -> ExitStatus {
        until(&format!("the end of {}", self.child.id()), bound, || self.child.try_wait().expect("its state"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
