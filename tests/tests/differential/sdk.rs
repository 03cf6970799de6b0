//! The Python SDK, driven by `tests/differential/sdk_driver.py` in one process for many streams.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use offspring_tests::streams::{Stream, json::quoted};
use serde::Deserialize;

use crate::outcome::{Delivered, Failure, Outcome, Turn, TurnResult};

pub(crate) struct Sdk {
    python: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    failed: Option<String>,
    runs: Vec<Run>,
    watched: Vec<usize>,
    unmatched: usize,
    requests: Vec<Request>,
    lines: usize,
}

#[derive(Deserialize)]
struct Run {
    root: String,
    error: Option<(String, String)>,
    final_response: Option<String>,
    finish_reason: Option<String>,
    events: Vec<String>,
    notifications: usize,
}

#[derive(Deserialize)]
struct Request {
    error: Option<(String, String)>,
    result: Option<String>,
}

impl Sdk {
    pub(crate) fn start(python: &Path) -> Self {
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential/sdk_driver.py");
        let mut python = Command::new(python)
            .arg("-B")
            .arg(driver)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", python.display()));
        let input = python.stdin.take();
        let output = BufReader::with_capacity(1 << 20, python.stdout.take().unwrap());
        Self { python, input, output }
    }

    /// Plays a stream whose script is in this file.
    pub(crate) fn play(&mut self, stream: &Stream, script: &Path) -> Outcome {
        let player = player();
        let job = format!(
            "{{\"player\":{},\"script\":{},\"plan\":{}}}\n",
            quoted(&player.to_string_lossy()),
            quoted(&script.to_string_lossy()),
            stream.plan()
        );
        self.input.as_mut().unwrap().write_all(job.as_bytes()).unwrap();
        let answer = self.line();
        let answer: Answer = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{}: the driver said {answer:?}: {error}", stream.name));
        let mut left = answer.lines;
        let mut list = |length: usize| -> Vec<Delivered> {
            left -= length;
            (0..length).map(|_| self.delivered()).collect()
        };
        let turns = answer.runs.into_iter().map(|run| {
            let notifications = list(run.notifications);
            let result = match run.error {
                Some(error) => Err(failure(error)),
                None => Ok(TurnResult {
                    final_response: run.final_response.unwrap(),
                    finish_reason: run.finish_reason,
                    events: run.events,
                    notifications,
                }),
            };
            Turn { root: run.root, result }
        });
        let turns = turns.collect();
        let watched = answer.watched.into_iter().map(&mut list).collect();
        let unmatched = list(answer.unmatched);
        let requests = answer.requests.into_iter().map(|request| match request.error {
            Some(error) => Err(failure(error)),
            None => Ok(request.result.unwrap()),
        });
        Outcome { failed: answer.failed, turns, watched, unmatched, requests: requests.collect() }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.output.read_until(b'\n', &mut line).unwrap();
        assert_eq!(line.pop(), Some(b'\n'), "the driver ended");
        // Half of a surrogate pair, which Python writes and which is no text: one sign for each.
        String::from_utf8(line).unwrap_or_else(|bytes| lossy(bytes.as_bytes()))
    }

    fn delivered(&mut self) -> Delivered {
        let line = self.line();
        let (method, params) = line.split_once('\t').unwrap_or_else(|| panic!("the driver said {line:?}"));
        Delivered { method: method.to_owned(), params: params.to_owned() }
    }
}

impl Drop for Sdk {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.python.wait();
    }
}

/// The three bytes of a lone surrogate become one U+FFFD, as in everything else that reads one.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}")
}

fn failure((class, words): (String, String)) -> Failure {
    match class.as_str() {
        "TransportClosedError" => Failure::Gone,
        "JsonRpcError" => Failure::Refused(words),
        // The last is pydantic's: an answer without its members.
        "SdkProtocolError" | "ValidationError" => Failure::Protocol,
        _ => Failure::Other(format!("{class} {words}")),
    }
}

/// The program that plays a script to either client.
pub(crate) fn player() -> PathBuf {
    env!("CARGO_BIN_EXE_stream-player").into()
}
