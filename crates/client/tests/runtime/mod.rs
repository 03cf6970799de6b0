//! Runtimes as real processes: the one of the conformance kit with a script, or a shell.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::{future::Future, io::Write, path::PathBuf, time::Duration};

use offspring_client::{Harness, HarnessClient, Limits, RuntimeCommand, dsh::InitializeParams};
use tempfile::NamedTempFile;

/// Where `cargo xtask test` says the runtime of the kit is.
const PROGRAM_VARIABLE: &str = "OFFSPRING_FAKE_RUNTIME";

/// Longer than anything here takes, shorter than anybody waits for a test that hangs.
const SOON: Duration = Duration::from_secs(20);

/// A bound for what has to come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it did not come")
}

/// The runtime of the kit: as named for the tests, else as this build has put it beside them.
pub(crate) fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return program.into();
    }
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("offspring-fake-runtime");
    assert!(program.exists(), "build it first: cargo build -p offspring-fake-runtime");
    program
}

/// A runtime that plays this script, and its file.
pub(crate) fn scripted(script: &str) -> (NamedTempFile, RuntimeCommand) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(script.as_bytes()).unwrap();
    let command = RuntimeCommand::new(program()).arg(file.path()).args(["--at-most", "120"]);
    (file, command)
}

/// A runtime that is this shell script. `answer "$line" JSON` answers a request.
pub(crate) fn shell(script: &str) -> RuntimeCommand {
    let answer = r#"answer() { id=${1#*\"id\":}; id=${id%%[,\}]*}; printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$2"; }"#;
    RuntimeCommand::new("sh").arg("-c").arg(format!("{answer}\n{script}"))
}

pub(crate) fn params() -> InitializeParams {
    InitializeParams {
        cwd: "/".into(),
        provider: "p".into(),
        model: "m".into(),
        reasoning_effort: None,
        max_tokens: None,
    }
}

/// Closing takes no longer than it has to.
pub(crate) fn quick() -> Limits {
    Limits {
        shutdown_within: Duration::from_millis(150),
        end_of_input_within: Duration::from_millis(150),
        terminate_within: Duration::from_millis(150),
        ..Limits::default()
    }
}

/// A harness over a runtime that plays this script.
pub(crate) async fn harness(script: &str, limits: Limits) -> (NamedTempFile, Harness) {
    let (file, command) = scripted(script);
    let builder = HarnessClient::builder().limits(limits);
    let harness = soon(Harness::start(builder, &command, &params())).await.unwrap();
    (file, harness)
}

/// Whether a process with this pid lives, other than as a zombie of somebody else.
pub(crate) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// Waits until a process is gone, reaped included.
pub(crate) async fn gone(pid: u32) {
    let deadline = tokio::time::Instant::now() + SOON;
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(tokio::time::Instant::now() < deadline, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await; // poll: the process table
    }
}
