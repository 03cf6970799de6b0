//! The program itself: what a script does to a process.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "test code")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_offspring-fake-runtime");
/// Every wait of a test ends by then: the program itself lives no longer.
const BOUND: Duration = Duration::from_secs(60);

struct Runtime {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Runtime {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["--at-most", "60"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn script(directory: &Path, text: &str) -> Self {
        let path = directory.join("test.script");
        std::fs::write(&path, text).unwrap();
        Self::start(&[path.to_str().unwrap()])
    }

    fn send(&mut self, id: &str, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let _ = writeln!(self.stdin.as_ref().unwrap(), "{line}");
    }

    fn prompt(&mut self, session: &str) {
        self.send("i", "initialize", json!({"cwd": "."}));
        self.send("p", "session/prompt", json!({"sessionId": session, "contentBlocks": []}));
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn until(&mut self, text: &str) {
        while let Some(message) = self.next() {
            if message.to_string().contains(text) {
                return;
            }
        }
        panic!("{text} did not come");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its end, waited for with a bound.
    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < BOUND, "it does not end");
            // poll: the end of a child
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs it with an input that ends.
fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["--at-most", "60"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}

const GO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"cwd":"."}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"root","contentBlocks":[]}}"#,
    "\n",
);

#[test]
fn a_script_of_the_library_is_played_by_its_name_and_an_ended_input_ends_it() {
    let output = run(&["--profile", "sdk", "t12", "--patch", "x.yml"], GO);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2 + 15, "{text}");
    assert!(text.ends_with('\n') && text.contains("of the root") && text.contains("after the idle"));
}

#[test]
fn what_cannot_be_played_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wrong.script");
    std::fs::write(&path, "prompt root\nstrated root a\n").unwrap();
    let path = path.to_str().unwrap();
    for (arguments, message) in [
        (&[path][..], format!("{path}: line 2: there is no statement `strated`; did you mean `started`?")),
        (&["no-such"], "failed to read no-such: No such file or directory (os error 2)".to_owned()),
        (&[], "name a script, `--trace FILE` or `--stream FILE`; --list names the library".to_owned()),
        (&["--show", "nonsense"], "the library has no script `nonsense`; --list names them".to_owned()),
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("offspring-fake-runtime: {message}\n"));
        assert!(output.stdout.is_empty());
    }
    assert!(String::from_utf8(run(&["--help"], "").stdout).unwrap().contains("Example:"));
    let listed = String::from_utf8(run(&["--list"], "").stdout).unwrap();
    assert_eq!(listed.lines().count(), offspring_fake_runtime::library::SCRIPTS.len());
    assert!(run(&["--show", "t04"], "").stdout.starts_with(b"# A finish goes where"));
}

#[test]
fn ends_are_those_of_a_process() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Runtime::script(directory.path(), "exit 7").ended().code(), Some(7));
    assert_eq!(Runtime::script(directory.path(), "kill").ended().signal(), Some(9));
    assert_eq!(Runtime::script(directory.path(), "kill ABRT").ended().signal(), Some(6));
    let mut wrong = Runtime::script(directory.path(), "gate never within 1ms");
    assert_eq!(wrong.ended().code(), Some(3));
    let mut long = Runtime::start(&["t13-no", "--at-most", "0"]);
    assert_eq!(long.ended().code(), Some(4));
}

#[test]
fn a_frame_before_the_end_is_read_whole() {
    let directory = tempfile::tempdir().unwrap();
    for end in ["exit 7", "kill"] {
        let mut runtime =
            Runtime::script(directory.path(), &format!("filler root 1MiB\nevent root last\n{end}"));
        assert_eq!(runtime.next().unwrap().to_string().len(), 1024 * 1024);
        runtime.until("\"last\"");
        assert!(runtime.next().is_none());
    }
}

#[test]
fn sigterm_ends_it_unless_it_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let mut runtime = Runtime::script(directory.path(), "on sigterm exit 5\nevent root ready");
    runtime.until("ready");
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.ended().code(), Some(5));

    let mut runtime = Runtime::start(&["w07-it-ends-only"]);
    runtime.prompt("root");
    runtime.until("\"idle\"");
    runtime.signal(Signal::TERM);
    runtime.send("s", "shutdown", json!({}));
    // Answered, so that the signal and the request before it were taken.
    runtime.send("g", "session/working-directory/get", json!({"sessionId": "root"}));
    assert_eq!(runtime.next().unwrap()["id"], "g");
    runtime.stdin = None;
    assert!(runtime.is_running());
    runtime.signal(Signal::KILL);
    assert_eq!(runtime.ended().signal(), Some(9));
}

#[test]
fn stdout_and_stdin_are_closed_while_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let mut runtime =
        Runtime::script(directory.path(), "event root x\nclose-stdout\nwait-for request ping\nexit 5");
    runtime.until("\"x\"");
    assert!(runtime.next().is_none());
    assert!(runtime.is_running());
    runtime.send("1", "ping", json!({}));
    assert_eq!(runtime.ended().code(), Some(5));

    let mut runtime =
        Runtime::script(directory.path(), "close-stdin\nevent root closed\ngate never within 1m");
    runtime.until("closed");
    let refused = writeln!(runtime.stdin.as_ref().unwrap(), "{{}}");
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert!(runtime.is_running());
}

#[test]
fn what_it_leaves_behind_holds_the_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let mut runtime = Runtime::script(directory.path(), "leave-behind 1s\nevent root x\nexit 0");
    runtime.until("\"x\"");
    assert_eq!(runtime.ended().code(), Some(0));
    let began = Instant::now();
    let mut rest = Vec::new();
    runtime.stdout.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    // It ends by itself: no process is left when the test is over.
    assert!(began.elapsed() > Duration::from_millis(300), "nobody held the pipe");
}

#[test]
fn a_gate_is_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("gate.script");
    std::fs::write(&script, "event root before\ngate open.me\nevent root behind\n").unwrap();
    let gates = directory.path().join("gates");
    std::fs::create_dir(&gates).unwrap();
    let mut runtime = Runtime::start(&["--gates", gates.to_str().unwrap(), script.to_str().unwrap()]);
    runtime.until("before");
    std::fs::write(gates.join("open.me"), "").unwrap();
    runtime.until("behind");
}

#[test]
fn it_sees_the_environment_it_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("env.script");
    std::fs::write(&path, "environment root\nstderr \"got ${env:GIVEN}\"\nexit").unwrap();
    let output = Command::new(PROGRAM).arg(&path).env_clear().env("GIVEN", "it").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains(r#"{"variables":["GIVEN"]}"#));
    assert_eq!(output.stderr, b"got it\n");
}

fn trace(name: &str) -> String {
    format!("{}/../../tests/fixtures/dsh/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_trace_is_played_with_the_ids_of_the_client() {
    let mut runtime = Runtime::start(&["--trace", &trace("b_nested")]);
    runtime.send("mine", "initialize", json!({"cwd": "."}));
    assert_eq!(runtime.next().unwrap()["id"], "mine");
    let blocks = json!([{"type": "text", "text": "DELEGATE 2"}]);
    runtime.send("prompt", "session/prompt", json!({"sessionId": "my root", "contentBlocks": blocks}));
    runtime.send("wait", "session/wait", json!({"sessionId": "my root"}));
    let mut seen = Vec::new();
    loop {
        let message = runtime.next().unwrap();
        if message["id"] == "wait" {
            break;
        }
        seen.push(message);
    }
    // 91 notifications and the reply to the prompt, which comes behind the receipt that it names.
    assert_eq!(seen.len(), 92);
    assert!(!seen.iter().any(|message| message["params"]["sessionId"] == "root"));
    let reply = seen.iter().position(|message| message["id"] == "prompt").unwrap();
    let id = &seen[reply]["result"]["messageId"];
    let receipt =
        seen.iter().position(|message| message["params"]["event"]["data"]["inserted"][0]["id"] == *id);
    assert!(receipt.unwrap() < reply);
    runtime.send("s", "shutdown", json!({}));
    assert_eq!(runtime.next().unwrap()["id"], "s");
    assert_eq!(runtime.ended().code(), Some(0));
}

#[test]
fn a_trace_dies_after_the_frame_or_byte_that_is_named() {
    let trace = trace("a_single");
    let whole = run(&["--trace", &trace], GO).stdout;
    assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 21);
    for frames in [0, 1, 2, 10, 20] {
        let output = run(&["--trace", &trace, "--kill-after-frames", &frames.to_string()], GO);
        assert_eq!(output.status.signal(), Some(9));
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), frames);
        assert!(whole.starts_with(&output.stdout));
    }
    let output = run(&["--trace", &trace, "--cut-after-bytes", "1000"], GO);
    assert_eq!((output.status.signal(), output.stdout.as_slice()), (Some(9), &whole[..1000]));
}

#[test]
fn a_stream_is_written_after_its_prompt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream.jsonl");
    let mut text = String::new();
    let event = |kind: &str, data: Value| {
        json!({"jsonrpc": "2.0", "method": "session.event",
               "params": {"sessionId": "root", "event": {"type": kind, "seq": 0, "data": data}}})
    };
    let status = |status: &str| json!({"jsonrpc": "2.0", "method": "session.status", "params": {"sessionId": "root", "status": status}});
    text.push_str(&format!("{}\n", event("agent/inbox/spliced", json!({"inserted": [{"id": "m"}]}))));
    text.push_str(&format!("{}\n", status("running")));
    let filler = "é".repeat(500);
    for _ in 0..3000 {
        text.push_str(&format!("{}\n", event("x", json!({"text": filler}))));
    }
    text.push_str(&format!("{}\n", status("idle")));
    std::fs::write(&path, &text).unwrap();
    let mut runtime = Runtime::start(&["--stream", path.to_str().unwrap()]);
    runtime.prompt("root");
    runtime.send("w", "session/wait", json!({"sessionId": "root"}));
    let mut seen = String::new();
    let mut order = Vec::new();
    loop {
        let mut line = String::new();
        runtime.stdout.read_line(&mut line).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        match message["id"].as_str() {
            Some("w") => break,
            Some(id) => order.push((id.to_owned(), seen.lines().count(), message["result"].clone())),
            None => seen.push_str(&line),
        }
    }
    assert_eq!(seen, text);
    assert_eq!((order[1].0.as_str(), order[1].1, &order[1].2), ("p", 2, &json!({"messageId": "m"})));
}

/// The blocks of the README, as they stand.
fn readme(language: &str) -> String {
    let page = include_str!("../README.md");
    let block = page.split(&format!("```{language}\n")).nth(1).unwrap_or_else(|| panic!("no {language}"));
    block.split("```").next().unwrap().to_owned()
}

/// A directory that holds the program, for a PATH.
fn path() -> std::ffi::OsString {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(PROGRAM).parent().unwrap().to_owned();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&before))).unwrap()
}

#[test]
fn the_shell_of_the_readme_prints_what_it_says() {
    let output =
        Command::new("sh").args(["-c", &readme("shell-example")]).env("PATH", path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "6\n");
    assert!(include_str!("../README.md").contains("This prints `6`."));
}

#[test]
fn the_python_of_the_readme_is_a_client() {
    let Some(python) = std::env::var_os("OFFSPRING_DSH_PYTHON") else {
        // Without that peer there is no python to count on.
        let skipped = std::env::var("OFFSPRING_SKIP_PEERS").unwrap_or_default();
        let peer = skipped.split(',').find(|peer| peer.starts_with("dsh"));
        let peer = peer
            .unwrap_or_else(|| panic!("run `cargo xtask test`, or name a python in OFFSPRING_DSH_PYTHON"));
        let file = std::env::var_os("OFFSPRING_SKIPPED_FILE").unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
        return writeln!(file, "{peer} the_python_of_the_readme_is_a_client").unwrap();
    };
    let output = Command::new(python).args(["-c", &readme("python")]).env("PATH", path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "of the root\n");
}
