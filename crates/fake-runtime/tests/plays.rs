//! Scripts played over two streams to a driver that knows nothing but lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod driver;

use std::time::Duration;

use driver::{Driver, prompt, request};
use offspring_fake_runtime::{How, Player, Script, Signal};
use serde_json::json;

#[tokio::test]
async fn an_empty_script_is_a_runtime_that_answers_hi() {
    let mut driver = Driver::start("");
    driver.send(&prompt("p0", "root", "go")).await;
    assert_eq!(driver.next().await["error"]["message"], "SDK server is not initialized");
    driver.send(&request("i", "initialize", json!({"cwd": "/w"}))).await;
    assert_eq!(driver.next().await["result"]["serverInfo"]["version"], "0.0.1");
    driver.send(&prompt("p", "root", "go")).await;
    let kinds: Vec<String> = driver.until_idle("root").await.iter().map(driver::kind).collect();
    let expected = [
        "agent/inbox/spliced",
        "session.status running",
        "turn/start",
        "reply p",
        "assistant/message",
        "turn/end",
        "session.status idle",
    ];
    assert_eq!(kinds, expected);
    driver.send(&request("w", "session/wait", json!({"sessionId": "root"}))).await;
    assert_eq!(driver.next().await, json!({"jsonrpc": "2.0", "id": "w", "result": {}}));
    driver.send(&request(5, "session/wait", json!({"sessionId": "child"}))).await;
    assert_eq!(driver.next().await["error"]["message"], "unknown SDK session: child");
    driver.send(&request("u", "no/such", json!({}))).await;
    let unknown = "unknown DeepSeek Harness SDK runtime method: no/such";
    assert_eq!(driver.next().await["error"], json!({"code": -32603, "message": unknown}));
    driver.send(&request("g", "session/working-directory/get", json!({"sessionId": "root"}))).await;
    assert_eq!(driver.next().await["result"], json!({"cwd": "/w"}));
    driver.send(&request("s", "shutdown", json!({}))).await;
    assert_eq!(driver.next().await["result"], json!({}));
    assert_eq!(driver.end().await.how, How::Exit(0));
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_take_no_time_and_session_wait_waits_for_them() {
    let mut driver = Driver::start(
        "prompt root\nstarted root a\nstatus root idle\nafter 600s\nfinished root a\nafter 1h\nevent root late\n",
    );
    driver.initialize().await;
    driver.send(&prompt("p", "root", "go")).await;
    driver.until_idle("root").await;
    driver.send(&request("w", "session/wait", json!({"sessionId": "root"}))).await;
    let began = tokio::time::Instant::now();
    assert_eq!(driver::kind(&driver.next().await), "subagent.finished");
    assert_eq!(driver.next().await["id"], "w");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(600) && took < Duration::from_secs(601), "{took:?}");
    // The end of the input ends a play that only waits for time.
    assert_eq!(driver.end().await.how, How::Exit(0));
}

#[tokio::test]
async fn requests_are_taken_by_name_and_answered_in_any_order_and_shape() {
    let mut driver = Driver::start(
        "take a/one as one\ntake a/two as two\nreply two {\"n\":2}\nerror one 7 \"no\" {\"why\":1}\n\
         line {\"id\":${one.id},\"result\":{},\"error\":null}\nline {\"jsonrpc\":\"2.0\",\"id\":null,\"result\":1}\n",
    );
    driver.send(&request("x", "a/one", json!({}))).await;
    driver.send(&request(1.5, "a/two", json!({}))).await;
    assert_eq!(driver.next().await, json!({"jsonrpc": "2.0", "id": 1.5, "result": {"n": 2}}));
    let error = json!({"code": 7, "message": "no", "data": {"why": 1}});
    assert_eq!(driver.next().await, json!({"jsonrpc": "2.0", "id": "x", "error": error}));
    assert_eq!(driver.next().await, json!({"id": "x", "result": {}, "error": null}));
    assert_eq!(driver.next().await, json!({"jsonrpc": "2.0", "id": null, "result": 1}));
    // After the script the defaults answer: the method is unknown to them.
    driver.send(&request("y", "a/one", json!({}))).await;
    assert_eq!(driver.next().await["error"]["code"], -32603);
}

#[tokio::test]
async fn a_prompt_to_a_session_that_no_line_waits_for_is_refused_at_once() {
    let mut driver = Driver::start("prompt root\nstatus root idle\n");
    driver.initialize().await;
    driver.send(&prompt("p", "other", "go")).await;
    let refused = driver.next().await;
    assert_eq!(
        refused["error"]["message"],
        "the script waits for a prompt to root, and this one is to \"other\""
    );
    driver.send(&prompt("q", "root", "go")).await;
    driver.until_idle("root").await;
}

#[tokio::test]
async fn a_session_that_the_client_names_is_bound_to_a_name() {
    let mut driver =
        Driver::start("prompt $who as p\nevent $who x {\"said\":\"${p.text} ${who}\"}\nstatus $who idle\n");
    driver.initialize().await;
    driver.send(&prompt("p", "s \"1\"", "go")).await;
    let seen = driver.until_idle("s \"1\"").await;
    assert_eq!(seen[4]["params"]["event"]["data"]["said"], "go s \"1\"");
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_until_it_is_opened_and_not_for_ever() {
    let script =
        Script::parse("gate one\nevent root first\ngate two within 3s\nevent root second\n").unwrap();
    let player = Player::new(script);
    let gates = player.gates().clone();
    let mut driver = Driver::play(player);
    gates.open("one");
    assert_eq!(driver::kind(&driver.next().await), "first");
    let how = driver.ended().await.how;
    assert_eq!(how, How::GateClosed { line: 3, name: "two".into() });
}

#[tokio::test]
async fn the_answer_to_a_request_of_the_script_is_checked() {
    let script = "ask approval/request {\"a\":1} as a\nwait-for answer a error -32601\nevent root answered\n";
    let mut driver = Driver::start(script);
    let asked = driver.next().await;
    assert_eq!(
        asked,
        json!({"jsonrpc": "2.0", "id": "kit-1", "method": "approval/request", "params": {"a": 1}})
    );
    let answer = |code: i64| json!({"jsonrpc": "2.0", "id": "kit-1", "error": {"code": code, "message": ""}});
    driver.send(&answer(-32601).to_string()).await;
    assert_eq!(driver::kind(&driver.next().await), "answered");

    let mut driver = Driver::start(script);
    driver.next().await;
    driver.send(&answer(-1).to_string()).await;
    let what = "the client answered with error -1".to_owned();
    assert_eq!(driver.ended().await.how, How::ClientWrong { line: 2, what });
}

#[tokio::test]
async fn a_strict_script_ends_at_a_line_that_is_no_message() {
    let mut driver = Driver::start("strict\n");
    driver.send("not a message").await;
    let how = driver.ended().await.how;
    assert!(matches!(&how, How::ClientWrong { line: 0, what } if what.contains("not a message")), "{how:?}");
}

#[tokio::test]
async fn a_shutdown_answers_who_waits_and_writes_nothing_more() {
    let mut driver = Driver::start("prompt root\nwait-for request shutdown\nevent root never\n");
    driver.initialize().await;
    driver.send(&prompt("p", "root", "go")).await;
    driver.send(&request("w", "session/wait", json!({"sessionId": "root"}))).await;
    driver.send(&request("s", "shutdown", json!({}))).await;
    let kinds: Vec<String> = driver.rest().await.iter().map(driver::kind).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["reply w", "reply s"]);
}

#[tokio::test]
async fn ends_and_stderr_are_told() {
    let mut driver = Driver::start("stderr \"first\"\nstderr-bytes \"\\xff\"\nstderr-fill 3\nexit 7\n");
    let end = driver.ended().await;
    assert_eq!((end.how, end.stderr), (How::Exit(7), b"first\n\xffxxx".to_vec()));
    assert_eq!(Driver::start("kill\n").ended().await.how, How::Signal(Signal::Kill));
}

#[tokio::test]
async fn stdout_can_be_closed_while_the_play_goes_on() {
    let mut driver = Driver::start("event root x\nclose-stdout\nwait-for request ping\nexit 5\n");
    assert_eq!(driver.rest().await.len(), 1);
    driver.send(&request(1, "ping", json!({}))).await;
    assert_eq!(driver.ended().await.how, How::Exit(5));
}

#[tokio::test(start_paused = true)]
async fn writes_are_split_where_the_script_says() {
    let driver = Driver::start(
        "together\nevent root a\nevent root b\nend\nafter 1s\nsplit every 7 pause 1s\nmessage root \"héllo\"\nend\nexit",
    );
    let began = tokio::time::Instant::now();
    let reads = driver.raw_reads().await;
    assert_eq!(reads[0].iter().filter(|byte| **byte == b'\n').count(), 2, "two lines in one write");
    let pieces = &reads[1..];
    assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece.len() == 7));
    assert!(pieces.concat().ends_with(b"}\n"));
    assert_eq!(began.elapsed().as_secs(), pieces.len() as u64 + 1);
}

#[tokio::test]
async fn a_play_dies_after_any_number_of_frames_or_bytes() {
    let script = Script::parse("repeat 5\nevent root x\nend\n").unwrap();
    let whole = Driver::play(Player::new(script.clone())).all_bytes().await;
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    for (frames, end) in std::iter::once(0).chain(ends).enumerate() {
        let player = Player::new(script.clone()).kill_after_frames(frames as u64);
        assert_eq!(Driver::play(player).all_bytes().await, whole[..end], "{frames} frames");
        let player = Player::new(script.clone()).cut_after_bytes(end as u64 + 1);
        let cut = Driver::play(player).all_bytes().await;
        assert_eq!(cut, whole[..(end + 1).min(whole.len())], "{end} bytes and one");
    }
}

#[tokio::test]
async fn what_the_client_does_not_read_is_written_once_it_does() {
    // Far more than the pipe holds; requests are answered all the same.
    let mut driver = Driver::start("repeat 2000\nfiller root 1KiB\nend\n");
    driver.send(&request("i", "initialize", json!({}))).await;
    driver.send(&request("r", "fake-runtime/rest", json!({}))).await;
    let mut fillers = 0;
    loop {
        let message = driver.next().await;
        if message["id"] == "r" {
            break;
        }
        fillers += usize::from(driver::kind(&message) == "kit/filler");
    }
    assert_eq!(fillers, 2000);
}
