//! Runtimes and callers that misbehave, in this process; time is paused.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::peer::{Peer, finished, idle, message, receipt, running, started};
use offspring_client::{
    ClientError, Harness, HarnessClient, Limits, Notification, SessionId, SubscriptionEnd, TurnEnd,
};
use offspring_protocol::rpc::OwnedMessage;
use serde_json::json;

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

async fn ask(peer: &mut Peer, number: usize) {
    peer.raw(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"a{number}\",\"method\":\"approval/request\"}}\n").as_bytes(),
    )
    .await;
}

/// The code of the error with which the client answered, and whom.
async fn refused(peer: &mut Peer) -> (String, i64) {
    match peer.heard().await {
        OwnedMessage::Response { id, outcome: Err(error) } => (id.to_string(), error.code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn w6_without_a_handler_every_request_is_refused_at_once() {
    let (mut peer, _client) = Peer::connected(HarnessClient::builder());
    for number in 0..2_000 {
        ask(&mut peer, number).await;
        assert_eq!(refused(&mut peer).await, (format!("\"a{number}\""), -32601));
    }
}

#[tokio::test(start_paused = true)]
async fn w6_a_handler_that_drops_or_panics_at_once_or_later_refuses_its_request_and_harms_nobody() {
    let asked = Arc::new(AtomicUsize::new(0));
    let builder = HarnessClient::builder().on_request(move |request| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, 0, "at once");
        async move {
            match number {
                1 => panic!("later"),
                2 => drop(request),
                _ => request.respond(&number).await.unwrap(),
            }
        }
    });
    let (mut peer, client) = Peer::connected(builder);
    for number in 0..3 {
        ask(&mut peer, number).await;
        assert_eq!(refused(&mut peer).await, (format!("\"a{number}\""), -32603));
    }
    ask(&mut peer, 3).await;
    let OwnedMessage::Response { outcome: Ok(result), .. } = peer.heard().await else { panic!() };
    assert_eq!(result.get(), "3");
    assert!(client.gone().is_none());
}

#[tokio::test(start_paused = true)]
async fn w6_what_a_request_is_about_is_known_by_each_of_its_names() {
    let builder = HarnessClient::builder().on_request(|request| async move {
        let known = format!("{:?} {}", request.kind(), request.method());
        request.respond(&known).await.unwrap();
    });
    let (mut peer, _client) = Peer::connected(builder);
    for (method, kind) in [
        ("permission/request", "Approval"),
        ("approval/request", "Approval"),
        ("user-question/request", "UserQuestion"),
        ("question/request", "UserQuestion"),
        ("llm.request", "Other"),
    ] {
        peer.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\"}}\n").as_bytes()).await;
        let OwnedMessage::Response { outcome: Ok(result), .. } = peer.heard().await else {
            panic!("{method}")
        };
        assert_eq!(result.get(), format!("\"{kind} {method}\""));
    }
}

#[tokio::test(start_paused = true)]
async fn w6_requests_beyond_what_is_worked_on_at_once_are_refused_and_room_comes_back() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let builder =
        HarnessClient::builder().limits(Limits { incoming_requests: 2, ..Limits::default() }).on_request({
            let gate = gate.clone();
            move |request| {
                let gate = gate.clone();
                async move {
                    gate.acquire().await.unwrap().forget();
                    request.respond(&()).await.unwrap();
                }
            }
        });
    let (mut peer, _client) = Peer::connected(builder);
    for number in 0..5 {
        ask(&mut peer, number).await;
    }
    for number in 2..5 {
        let (who, code) = refused(&mut peer).await;
        assert_eq!(who, format!("\"a{number}\""));
        assert_ne!(code, -32601);
    }
    gate.add_permits(3);
    for _ in 0..2 {
        assert!(matches!(peer.heard().await, OwnedMessage::Response { outcome: Ok(_), .. }));
    }
    ask(&mut peer, 5).await;
    assert!(matches!(peer.heard().await, OwnedMessage::Response { outcome: Ok(_), .. }));
}

#[tokio::test(start_paused = true)]
async fn t11_who_looks_at_frames_and_panics_sees_no_more_and_harms_nobody() {
    let seen = Arc::new(AtomicUsize::new(0));
    let builder = HarnessClient::builder().on_frame({
        let seen = seen.clone();
        move |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            panic!("a bad recorder");
        }
    });
    let (mut peer, client) = Peer::connected(builder);
    let mut main = client.subscribe(&id("r"));
    peer.say(&[message("r", "a"), message("r", "b")]).await;
    assert!(main.next().await.unwrap().is_ok() && main.next().await.unwrap().is_ok());
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn t2_a_filter_and_who_reads_behind_it_find_the_edge_of_the_start_they_see() {
    let (mut peer, client) = Peer::connected(HarnessClient::builder());
    let paths = Arc::new(Mutex::new(Vec::new()));
    let mut filtered = client.subscribe_filtered({
        let (client, paths) = (client.clone(), paths.clone());
        move |one: &Notification| {
            let child = one.child_session_id().unwrap_or_default();
            paths.lock().unwrap().push(client.path(child));
            // What a filter may do: everything that does not wait.
            drop(client.subscribe(&id("r")));
            let _ = client.diagnostics();
            true
        }
    });
    peer.say(&[started("r", "a"), started("a", "b")]).await;
    for _ in 0..2 {
        filtered.next().await.unwrap().unwrap();
    }
    assert_eq!(*paths.lock().unwrap(), [vec![id("r"), id("a")], vec![id("r"), id("a"), id("b")]]);
}

#[tokio::test(start_paused = true)]
async fn t11_a_filter_may_hold_another_subscription_and_is_dropped_without_a_deadlock() {
    let (_peer, client) = Peer::connected(HarnessClient::builder());
    let inner = Arc::new(client.subscribe_filtered(|_| true));
    let outer = client.subscribe_filtered(move |_| {
        let _ = &inner;
        true
    });
    assert_eq!(client.diagnostics().counts.subscriptions, 2);
    drop(outer);
    assert_eq!(client.diagnostics().counts.subscriptions, 0);
}

#[tokio::test(start_paused = true)]
async fn t10_two_who_wait_for_what_is_unmatched_get_one_each_and_both_see_the_end() {
    let (mut peer, client) = Peer::connected(HarnessClient::builder());
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let (mut numbers, mut ends) = (Vec::new(), 0);
                while let Some(one) = client.next_unmatched().await {
                    match one {
                        Ok(one) => numbers.push(one.number()),
                        Err(_) => ends += 1,
                    }
                }
                (numbers, ends)
            })
        })
        .collect();
    for number in ["1", "2"] {
        tokio::time::sleep(Duration::from_secs(1)).await; // moment: the paused clock; both wait
        peer.say(&[message("x", number)]).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await; // moment: the paused clock; both wait again
    drop(peer);
    let (mut numbers, mut ends) = (Vec::new(), 0);
    for one in waiting {
        let (seen, ended) = tokio::time::timeout(Duration::from_secs(60), one).await.unwrap().unwrap();
        numbers.extend(seen);
        ends += ended;
    }
    numbers.sort_unstable();
    assert_eq!((numbers, ends), (vec![1, 2], 1));
}

#[tokio::test(start_paused = true)]
async fn t11_a_subscriber_that_never_reads_blocks_nobody_and_is_told_what_it_missed() {
    let limits = Limits { queue_items: 10, ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let client = harness.client();
    let (mut slow, mut slow_filter) = (client.subscribe(&id("r")), client.subscribe_filtered(|_| true));
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    peer.begin("r", "m").await;
    for burst in 0..50 {
        let lines: Vec<String> = (0..100).map(|n| message("r", &format!("{burst}/{n}"))).collect();
        peer.say(&lines).await;
    }
    peer.say(&[idle("r")]).await;
    let result = turn.await.unwrap().unwrap();
    assert_eq!(result.notifications.len(), 2 + 5_000 + 1);
    assert_eq!(result.final_response.as_deref(), Some("49/99"));
    for subscription in [&mut slow, &mut slow_filter] {
        for expected in 1..=10 {
            let one = subscription.next().await.unwrap().unwrap();
            // The answer to `initialize` was line 1.
            assert_eq!(one.number(), expected + 1 + u64::from(expected > 2), "{one:?}");
        }
        let end = subscription.next().await;
        assert!(matches!(end, Some(Err(SubscriptionEnd::Lagged { missed: 4_993 }))), "{end:?}");
        assert!(subscription.next().await.is_none());
    }
    // T10: until they are dropped they count as a match.
    peer.say(&[message("r", "x")]).await;
    peer.round_trip(&harness).await;
    assert!(client.try_next_unmatched().is_none());
}

#[tokio::test(start_paused = true)]
async fn t10_the_queue_of_what_is_unmatched_is_bounded_and_counts_what_it_dropped() {
    let limits = Limits { unmatched_items: 5, ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let lines: Vec<String> = (0..12).map(|n| message("x", &n.to_string())).collect();
    peer.say(&lines).await;
    peer.round_trip(&harness).await;
    let client = harness.client();
    assert_eq!(client.diagnostics().counts.unmatched_dropped, 7);
    let mut kept = 0;
    while let Some(one) = client.try_next_unmatched() {
        one.unwrap();
        kept += 1;
    }
    assert_eq!(kept, 5);
    // There is room again.
    peer.say(&[message("x", "later")]).await;
    peer.round_trip(&harness).await;
    assert!(client.try_next_unmatched().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn w8_bounds_beyond_what_a_clock_counts_are_no_panic() {
    let limits = Limits {
        initialize_within: Duration::MAX,
        request_within: Duration::MAX,
        receipt_within: Duration::MAX,
        turn_within: Duration::MAX,
        tree_silence: Duration::MAX,
        shutdown_within: Duration::MAX,
        ..Limits::default()
    };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m").await;
    let wait = peer.request("session/wait").await;
    peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
    peer.say(&[started("r", "c"), idle("r")]).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await; // moment: the paused clock
    peer.say(&[finished("r", "c")]).await;
    assert_eq!(turn.await.unwrap().unwrap().end, Some(TurnEnd::TreeAtRest));
}

#[tokio::test(start_paused = true)]
async fn w5_every_shape_of_an_answer_is_taken_as_it_is_meant() {
    let (mut peer, client) = Peer::connected(HarnessClient::builder());
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let results = [
        "null",
        "0",
        "\"\u{2028}\"",
        "[{\"id\":7}]",
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"x\"}",
        &deep,
    ];
    for result in results {
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.request("ask", &(), Duration::from_secs(10)).await }
        });
        let id = peer.request("ask").await;
        peer.answer(&id, result).await;
        assert_eq!(asking.await.unwrap().unwrap().get(), result);
    }
    let errors = [
        (json!({"code": 123_456_789_012_i64, "message": "large", "data": {"a": [1, 2]}}), 123_456_789_012),
        (json!({"code": -32700, "message": ""}), -32700),
        (json!({"code": i64::MIN, "message": "\u{1b}[31m", "data": null}), i64::MIN),
    ];
    for (error, code) in errors {
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.request("ask", &(), Duration::from_secs(10)).await }
        });
        let id = peer.request("ask").await;
        peer.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n").as_bytes()).await;
        let refused = asking.await.unwrap().unwrap_err();
        assert!(!refused.to_string().contains('\u{1b}'));
        let ClientError::Refused { error: said, .. } = refused else { panic!("{refused}") };
        assert_eq!((said.code, said.message.as_str()), (code, error["message"].as_str().unwrap()));
        let data = said.data.map(|data| serde_json::from_str::<serde_json::Value>(data.get()).unwrap());
        assert_eq!(data.as_ref(), error.get("data").filter(|data| !data.is_null()));
    }
}

#[tokio::test(start_paused = true)]
async fn w3_a_notification_as_deep_as_a_peer_likes_is_one() {
    let (mut peer, client) = Peer::connected(HarnessClient::builder());
    let deep = format!("{}{}", "{\"a\":[".repeat(5_000), "]}".repeat(5_000));
    peer.raw(format!("{{\"method\":\"x\",\"params\":{{\"deep\":{deep},\"sessionId\":\"r\"}}}}\n").as_bytes())
        .await;
    let one = client.next_unmatched().await.unwrap().unwrap();
    assert_eq!((one.method(), one.session_id()), ("x", Some("r")));
    assert!(one.params().is_some());
}

#[tokio::test(start_paused = true)]
async fn t9_a_start_right_behind_the_last_finish_counts_however_the_bytes_come() {
    // The finish ends a read of the client's; the start is there already.
    let filler = message("r", &"x".repeat(64 * 1024));
    for pad in [0, 1, 40] {
        let (mut peer, harness) = Peer::new(Limits::default()).await;
        let session = harness.session(id("r"));
        let turn = tokio::spawn(async move { session.run_tree("go").await });
        peer.begin("r", "m").await;
        let wait = peer.request("session/wait").await;
        peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
        peer.say(&[started("r", "c"), idle("r")]).await;
        peer.round_trip(&harness).await;
        // So long that the finish ends exactly at the end of the client's buffer of 64 KiB.
        let last = finished("r", "c");
        let frame = message("r", "");
        let room = 64 * 1024 - (last.len() + 1) - (frame.len() + 1) - pad;
        peer.say(&[message("r", &"x".repeat(room)), last, started("r", "d"), filler.clone()]).await;
        tokio::time::sleep(Duration::from_secs(10)).await; // moment: the paused clock
        assert!(!turn.is_finished(), "pad {pad}");
        peer.say(&[finished("r", "d")]).await;
        assert_eq!(turn.await.unwrap().unwrap().tree.children().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn w8_a_tree_that_spoke_and_fell_silent_is_given_up_at_the_bound_after_its_last_word() {
    let limits = Limits { tree_silence: Duration::from_secs(800), ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m").await;
    let wait = peer.request("session/wait").await;
    peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
    peer.say(&[started("r", "c"), idle("r")]).await;
    tokio::time::sleep(Duration::from_secs(10)).await; // moment: the paused clock
    peer.say(&[message("c", "a last word")]).await;
    let began = tokio::time::Instant::now();
    let error = turn.await.unwrap().unwrap_err();
    assert!(matches!(&error.reason, ClientError::TreeOpen { open, .. } if *open == [id("c")]), "{error}");
    assert_eq!(began.elapsed().as_secs(), 800);
}

/// What a client makes of a runtime that falls silent after so many bytes of a recorded wire.
async fn silent_after(frames: &[Recorded], bytes: usize) -> Result<TurnEnd, ClientError> {
    let (mut peer, client) = Peer::connected(HarnessClient::builder());
    let params = offspring_client::dsh::InitializeParams {
        cwd: "/".into(),
        provider: "p".into(),
        model: "m".into(),
        reasoning_effort: None,
        max_tokens: None,
    };
    let driving = tokio::spawn(async move {
        let harness = Harness::over(client, &params).await?;
        let outcome = harness.session(id("root")).run_tree("DELEGATE 2").await;
        outcome.map(|result| result.end.unwrap()).map_err(|error| {
            let runs = error.partial.tree.children().iter().flat_map(|child| &child.runs);
            let gone = matches!(error.reason, ClientError::RuntimeGone(_));
            for run in runs {
                assert!(
                    !gone || !matches!(run, offspring_client::ChildRun::Open),
                    "an open run after the end"
                );
            }
            error.reason
        })
    });
    let mut left = bytes;
    let mut asked = Vec::new();
    for frame in frames {
        let line = match frame {
            Recorded::Line(line) => format!("{line}\n"),
            Recorded::Asked { method } => {
                asked.push((method, peer.request(method).await));
                continue;
            }
            Recorded::Answer { method, result } => {
                let at = asked.iter().position(|(asked, _)| asked == &method).unwrap();
                let (_, id) = asked.remove(at);
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
            }
        };
        if left == 0 {
            break;
        }
        let piece = &line.as_bytes()[..line.len().min(left)];
        peer.raw(piece).await;
        left -= piece.len();
        if piece.len() < line.len() {
            break;
        }
    }
    let week = Duration::from_secs(7 * 24 * 3_600);
    let outcome = tokio::time::timeout(week, driving).await.expect("no end").unwrap();
    drop(peer);
    outcome
}

enum Recorded {
    Asked { method: String },
    Line(String),
    Answer { method: String, result: String },
}

/// The wire of a trace: what the runtime wrote, its answers by what they answer.
fn recorded() -> Vec<Recorded> {
    let path = format!("{}/../../tests/fixtures/dsh/b_nested.jsonl", env!("CARGO_MANIFEST_DIR"));
    let mut methods = std::collections::HashMap::new();
    let mut frames = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let message = &line["msg"];
        match line["dir"].as_str() {
            Some("c2s") => {
                let method = message["method"].as_str().unwrap().to_owned();
                methods.insert(message["id"].to_string(), method.clone());
                if method != "shutdown" {
                    frames.push(Recorded::Asked { method });
                }
            }
            Some("s2c") if message["method"].is_string() => frames.push(Recorded::Line(message.to_string())),
            Some("s2c") => {
                let method = methods[&message["id"].to_string()].clone();
                if method != "shutdown" {
                    frames.push(Recorded::Answer { method, result: message["result"].to_string() });
                }
            }
            _ => {}
        }
    }
    frames
}

fn lengths(frames: &[Recorded]) -> Vec<usize> {
    let length = |frame: &Recorded| match frame {
        Recorded::Asked { .. } => 0,
        Recorded::Line(line) => line.len() + 1,
        // One digit of an id in all of them.
        Recorded::Answer { result, .. } => {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{result}}}\n").len()
        }
    };
    frames.iter().map(length).filter(|length| *length > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn w8_a_runtime_that_falls_silent_at_any_frame_of_a_recorded_wire_is_a_typed_error() {
    let frames = recorded();
    let mut at = 0;
    let mut kinds = std::collections::BTreeSet::new();
    for length in lengths(&frames) {
        let error = silent_after(&frames, at).await.unwrap_err();
        kinds.insert(match &error {
            ClientError::Timeout { method, .. } => method.clone(),
            ClientError::TreeOpen { .. } => "open".to_owned(),
            other => panic!("{at} bytes: {other}"),
        });
        at += length;
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["initialize", "open", "session/prompt", "the root's idle"]);
}

#[tokio::test(start_paused = true)]
async fn t13_a_receipt_that_comes_after_the_answer_counts() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    let prompt = peer.request("session/prompt").await;
    peer.answer(&prompt, r#"{"messageId":"m"}"#).await;
    tokio::time::sleep(Duration::from_secs(5)).await; // moment: the paused clock
    peer.say(&[receipt("r", "m"), running("r"), message("r", "x"), idle("r")]).await;
    assert_eq!(turn.await.unwrap().unwrap().final_response.as_deref(), Some("x"));
}
