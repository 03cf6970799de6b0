//! W4 and W7: pipes that nobody reads, fills or closes, and the steps of the ladder.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod world;

use std::time::{Duration, Instant};

use offspring_process::{ExitKind, Ladder, Stdin, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{both, living, token, until_sleepers};

const PROMPT_BYTES: usize = 10 * 1024 * 1024;

#[tokio::test]
async fn w4_ten_mebibytes_of_stderr_without_a_newline_are_drained_into_a_bounded_tail() {
    for (how, spec) in both("head -c 10485760 /dev/zero | tr '\\0' x >&2; printf 'the end' >&2; exit 4") {
        let process = spawn(&spec.stderr_tail_bytes(1000)).unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(60), process.wait()).await.unwrap();
        let tail = &exit.stderr_tail;
        assert_eq!(exit.status, ExitKind::Code(4), "{how}");
        assert_eq!((tail.bytes().len(), tail.total_bytes()), (1000, 10_485_760 + 7), "{how}");
        assert!(tail.is_truncated() && tail.text().ends_with("xxxthe end"), "{how}");
        let line = process.stderr_last_line();
        assert!(line.ends_with("xthe end") && line.len() <= 512, "{how}");
        assert!(!format!("{exit:?}").contains("xxx"));
    }
}

#[tokio::test]
async fn w4_the_last_line_is_seen_while_the_program_runs() {
    for (how, spec) in both("echo one >&2; read next; echo two >&2; read end") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdin = process.take_stdin().unwrap();
        let mut bytes = process.watch_stderr_bytes();
        bytes.wait_for(|bytes| *bytes == 4).await.unwrap();
        assert_eq!(process.stderr_last_line(), "one");
        stdin.write_all(b"\n").await.unwrap();
        bytes.wait_for(|bytes| *bytes == 8).await.unwrap();
        assert_eq!(process.stderr_last_line(), "two");
        drop(stdin);
        process.wait().await;
        assert_eq!(process.stderr_tail().text(), "one\ntwo\n", "{how}");
    }
}

#[tokio::test]
async fn w7_a_program_that_never_reads_its_stdin_does_not_hang_its_writer() {
    let prompt = vec![b'x'; PROMPT_BYTES];
    for (how, spec) in both("exec 0<&-; exit 5") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdin = process.take_stdin().unwrap();
        let written = tokio::time::timeout(Duration::from_secs(10), stdin.write_all(&prompt)).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe, "{how}");
        assert_eq!(process.wait().await.status, ExitKind::Code(5), "{how}");
    }
    let token = token();
    for (how, spec) in both(&format!("sleep {token}")) {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdin = process.take_stdin().unwrap();
        until_sleepers(&token, 1);
        // The writer waits on a full pipe; the stop ends both.
        let (written, exit) = tokio::join!(stdin.write_all(&prompt), process.stop(Ladder::terminate()));
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe, "{how}");
        assert_eq!(exit.status, ExitKind::Signal(15), "{how}");
    }
}

#[tokio::test]
async fn w7_a_prompt_of_ten_mebibytes_goes_through() {
    let prompt = vec![b'x'; PROMPT_BYTES];
    for (how, spec) in both("wc -c") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let (mut stdin, mut stdout) = (process.take_stdin().unwrap(), process.take_stdout().unwrap());
        let mut count = String::new();
        let write = async {
            stdin.write_all(&prompt).await.unwrap();
            drop(stdin);
        };
        let (_, read) = tokio::join!(write, stdout.read_to_string(&mut count));
        read.unwrap();
        assert_eq!(count.trim().parse::<usize>().unwrap(), PROMPT_BYTES, "{how}");
        assert!(process.wait().await.is_success(), "{how}");
    }
}

#[tokio::test]
async fn w7_the_ladder_goes_step_by_step_and_no_further_than_needed() {
    // Ends at the end of its input.
    for (how, spec) in both("trap 'exit 9' TERM; while read line; do :; done; exit 1") {
        let process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let ladder = Ladder::default().end_of_input_within(Duration::from_secs(20));
        assert_eq!(process.stop(ladder).await.status, ExitKind::Code(1), "{how}");
    }
    // Ends at SIGTERM, with a last word.
    for (how, spec) in both("trap 'echo bye; exit 2' TERM; echo ready; while :; do sleep 0.01; done") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdout = process.take_stdout().unwrap();
        let mut ready = [0; 6];
        stdout.read_exact(&mut ready).await.unwrap();
        let ladder = Ladder::default().end_of_input_within(Duration::from_millis(50));
        assert_eq!(process.stop(ladder).await.status, ExitKind::Code(2), "{how}");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "bye\n", "{how}");
    }
    // Ends by SIGKILL only.
    let token = token();
    for (how, spec) in both(&format!("trap '' TERM; while :; do sleep {token}; done")) {
        let process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        until_sleepers(&token, 1);
        let ladder = Ladder::default()
            .end_of_input_within(Duration::from_millis(50))
            .terminate_within(Duration::from_millis(50));
        assert_eq!(process.stop(ladder).await.status, ExitKind::Signal(9), "{how}");
        assert_eq!(living(&token), []);
    }
}

#[tokio::test]
async fn w7_a_shutdown_that_never_answers_is_bounded_and_one_that_works_is_enough() {
    let token = token();
    for (how, spec) in both(&format!("sleep {token}")) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 1);
        let never = std::future::pending::<()>();
        let exit = process.stop_after(never, Duration::from_millis(100), Ladder::terminate()).await;
        assert_eq!(exit.status, ExitKind::Signal(15), "{how}");
    }
    for (how, spec) in both("read line; exit 6") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdin = process.take_stdin().unwrap();
        let shutdown = async move {
            stdin.write_all(b"shutdown\n").await.unwrap();
            // Keeps stdin open: it is the message that ends the program.
            std::mem::forget(stdin);
        };
        let exit = process.stop_after(shutdown, Duration::from_secs(20), Ladder::at_once()).await;
        assert_eq!(exit.status, ExitKind::Code(6), "{how}");
    }
}

#[tokio::test]
async fn w7_closing_twice_is_harmless_and_the_more_urgent_call_wins() {
    let token = token();
    for (how, spec) in both(&format!("trap '' TERM; while :; do sleep {token}; done")) {
        let spec = spec.grace(Duration::from_secs(60));
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 1);
        let started = Instant::now();
        let slow = process.stop(Ladder::terminate().terminate_within(Duration::from_secs(60)));
        let fast = process.stop(Ladder::terminate().terminate_within(Duration::from_millis(50)));
        let (slow, fast) = tokio::join!(slow, fast);
        assert!(started.elapsed() < Duration::from_secs(20), "{how}");
        assert_eq!((slow.status, &slow), (ExitKind::Signal(9), &fast), "{how}");
        assert_eq!(process.stop(Ladder::default()).await, fast, "{how}");
        assert_eq!(process.wait().await, fast, "{how}");
    }
}

#[tokio::test]
async fn w7_a_writer_that_shuts_its_pipe_ends_the_input_while_it_holds_it() {
    for (how, spec) in both("cat; exit 4") {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        let mut stdin = process.take_stdin().unwrap();
        stdin.write_all(b"all").await.unwrap();
        stdin.shutdown().await.unwrap();
        let mut said = String::new();
        process.take_stdout().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!((said.as_str(), process.wait().await.status), ("all", ExitKind::Code(4)), "{how}");
        assert_eq!(stdin.write_all(b"x").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe, "{how}");
    }
}

#[tokio::test]
async fn w7_a_stop_whose_caller_goes_away_is_climbed_to_its_end() {
    let token = token();
    for (how, spec) in both(&format!("sleep {token}")) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 1);
        let abandoned = tokio::time::timeout(Duration::ZERO, process.stop(Ladder::terminate())).await;
        assert!(abandoned.is_err());
        assert_eq!(process.wait().await.status, ExitKind::Signal(15), "{how}");
    }
}
