//! Faults that users of like systems reported, each with a test for ours: through a client and, where the fault is
//! one of processes or pipes, a real process.

use std::{fmt::Write as _, time::Duration};

use crate::peer::{Peer, event, finished, idle, message, receipt, running, started, turn_end};
use crate::runtime::{harness, params, scripted, soon};
use offspring_client::{
    ClientError, Harness, HarnessClient, Keep, Limits, Notification, SessionId, SubscriptionEnd,
};
use serde_json::json;

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn methods(notifications: &[Notification]) -> Vec<String> {
    let word = |one: &Notification| one.event_type().or(one.status()).unwrap_or(one.method()).to_owned();
    notifications.iter().map(word).collect()
}

/// cc-connect 1520, tcode 324, hive 236: a child's turn inside the root's took the root's place.
#[tokio::test(start_paused = true)]
async fn o3_a_child_s_turn_inside_the_root_s_is_neither_its_text_nor_its_end_nor_its_usage() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    peer.begin("r", "R1").await;
    let usage = |session: &str, tokens: u64| event(session, "llm/usage", &json!({ "tokens": tokens }));
    peer.say(&[
        started("r", "c"),
        receipt("c", "C1"),
        running("c"),
        usage("c", 10),
        message("c", "the child's"),
    ])
    .await;
    // What is asked for while the child's turn runs names the root.
    let interrupting = tokio::spawn({
        let client = harness.client().clone();
        async move { client.cancel(&id("r")).await }
    });
    let interrupt = peer.heard().await;
    let offspring_protocol::rpc::OwnedMessage::Request { id: request, method, params } = interrupt else {
        panic!("{interrupt:?}")
    };
    assert_eq!((method.as_str(), params.unwrap().get()), ("session/cancel", r#"{"sessionId":"r"}"#));
    peer.answer(&request, "{}").await;
    interrupting.await.unwrap().unwrap();
    peer.say(&[turn_end("c", "error"), idle("c"), finished("r", "c"), usage("r", 100), message("r", "mine")])
        .await;
    peer.say(&[turn_end("r", "completed"), idle("r")]).await;
    let result = turn.await.unwrap().unwrap();
    assert_eq!(result.final_response.as_deref(), Some("mine"));
    assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    let tokens: Vec<&str> = result
        .events
        .iter()
        .filter(|event| event.event_type() == Some("llm/usage"))
        .map(|event| event.event_data().unwrap().get())
        .collect();
    assert_eq!(tokens, [r#"{"tokens":100}"#]);
    assert!(harness.client().try_next_unmatched().is_none());
}

/// eve 3558: a child's end after its parent's turn crashed the parent.
#[tokio::test(start_paused = true)]
async fn o7_a_finish_after_the_turn_touches_no_result_and_is_seen_once_by_who_follows_the_tree() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let mut tree = session.subscribe();
    let turn = tokio::spawn({
        let session = session.clone();
        async move { session.run("go").await }
    });
    peer.begin("r", "m1").await;
    peer.say(&[started("r", "c"), idle("r")]).await;
    let first = turn.await.unwrap().unwrap();
    let before = methods(&first.notifications);
    tokio::time::sleep(Duration::from_millis(1)).await; // moment: the paused clock
    peer.say(&[finished("r", "c"), receipt("r", "settled")]).await;
    peer.round_trip(&harness).await;
    assert_eq!(methods(&first.notifications), before);
    assert_eq!(first.tree.unfinished().count(), 1);
    let turn = tokio::spawn(async move { session.run("next").await });
    peer.begin("r", "m2").await;
    peer.say(&[message("r", "it is done"), idle("r")]).await;
    let second = turn.await.unwrap().unwrap();
    assert_eq!(second.final_response.as_deref(), Some("it is done"));
    assert!(second.tree.children().is_empty());
    let mut finishes = 0;
    while let Some(one) = tree.try_next() {
        finishes += usize::from(one.unwrap().method() == "subagent.finished");
    }
    assert_eq!(finishes, 1);
    assert!(harness.client().gone().is_none());
}

/// openclaw 74448: the end of an attempt was taken for the end of the run.
#[tokio::test(start_paused = true)]
async fn o8_the_end_of_an_attempt_is_no_end_of_the_run_whatever_its_reason() {
    for reason in ["compaction", "retry", "a word of later", ""] {
        let (mut peer, harness) = Peer::new(Limits::default()).await;
        let session = harness.session(id("r"));
        let turn = tokio::spawn(async move { session.run("go").await });
        peer.begin("r", "m").await;
        peer.say(&[started("r", "c"), message("r", "half"), turn_end("r", reason)]).await;
        peer.say(&[message("c", "half"), turn_end("c", reason)]).await;
        peer.round_trip(&harness).await;
        assert!(!turn.is_finished(), "{reason}");
        peer.say(&[message("r", "final"), turn_end("r", "completed"), idle("r"), turn_end("r", "again")])
            .await;
        let result = turn.await.unwrap().unwrap();
        assert_eq!(result.final_response.as_deref(), Some("final"));
        assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// opencode 31923, 45215: memory grew with a client that had stopped reading. As many events of 4 KiB as are seen in
/// a resident size, with queues of 2 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o17_one_who_stopped_reading_costs_a_bounded_memory_and_the_other_sees_all_in_order() {
    const EVENTS: u64 = 15_000;
    let (_file, harness) = harness(
        &format!("wait-for notification go\nrepeat {EVENTS}\nfiller r 4KiB\nend\nnotify over {{\"sessionId\":\"r\"}}\n"),
        Limits { queue_bytes: 2 << 20, queue_items: 1_000_000, ..Limits::default() },
    )
    .await;
    let client = harness.client();
    let mut stalled = client.subscribe(&id("r"));
    let mut healthy = client.subscribe(&id("r"));
    let before = resident_bytes();
    client.notify("go", &()).await.unwrap();
    let (mut seen, mut last, mut most) = (0, 0, 0);
    loop {
        let one = soon(healthy.next()).await.unwrap().unwrap();
        assert!(one.number() > last);
        last = one.number();
        if one.method() == "over" {
            break;
        }
        seen += 1;
        if seen % 1_000 == 0 {
            most = most.max(resident_bytes());
        }
    }
    assert_eq!(seen, EVENTS);
    // Two queues, and what the allocator keeps beside them; all events are 60 MB.
    let grown = most.saturating_sub(before);
    assert!(grown < 30 << 20, "{} MiB more", grown >> 20);
    let mut kept = 0;
    let missed = loop {
        match stalled.next().await {
            Some(Ok(_)) => kept += 1,
            Some(Err(SubscriptionEnd::Lagged { missed })) => break missed,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(kept + missed, EVENTS + 1);
    assert!(stalled.next().await.is_none());
    harness.close().await;
}

/// claude-agent-sdk-python 103, mcp-go 956: a full stderr hung the start.
#[tokio::test]
async fn o19_ten_megabytes_of_stderr_before_the_first_answer_and_one_without_a_line_end_hang_nothing() {
    let (_file, command) = scripted(
        "stderr-fill 1MiB\nstderr-fill 9MiB\nstderr \"\"\ntake initialize as i\nstderr-fill 1MiB\nreply i {}\nwait-for notification go\nstderr-fill 1MiB\nstderr \"\"\nstderr \"the last word\"\nexit 9\n",
    );
    let limits = Limits { stderr_tail_bytes: 8 * 1024, ..Limits::default() };
    let before = resident_bytes();
    let harness =
        soon(Harness::start(HarnessClient::builder().limits(limits), &command, &params())).await.unwrap();
    assert!(resident_bytes().saturating_sub(before) < 24 << 20);
    harness.client().notify("go", &()).await.unwrap();
    let error = loop {
        match soon(harness.client().working_directory(&id("r"))).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let ClientError::RuntimeGone(gone) = &error else { panic!("{error}") };
    assert_eq!(gone.stderr_tail.text().len(), 8 * 1024);
    assert!(error.to_string().contains("the last word"), "{error}");
}

/// claude-agent-sdk-python 98, openclaw 71793, inkbox 11: one large message killed the reader, or the session.
#[tokio::test]
async fn o20_a_frame_up_to_the_limit_is_delivered_one_above_fails_alone_and_a_gigabyte_allocates_nothing() {
    let limit = 16 << 20;
    let limits = Limits { unmatched_bytes: 64 << 20, ..Limits::default() };
    assert_eq!(limits.frame_bytes, limit);
    let (mut peer, harness) = Peer::new(limits).await;
    let client = harness.client();
    let of_size = |bytes: usize| {
        let empty = message("r", "").len();
        message("r", &"x".repeat(bytes - empty))
    };
    for (bytes, delivered) in [(1 << 20, true), (limit, true), (limit + 1, false)] {
        peer.say(&[of_size(bytes)]).await;
        soon(peer.round_trip(&harness)).await;
        let one = client.try_next_unmatched();
        assert_eq!(one.is_some_and(|one| one.unwrap().frame().len() == bytes), delivered, "{bytes} bytes");
    }
    let junk = client.diagnostics().junk;
    assert_eq!(junk.counts().too_large, 1);
    assert!(junk.to_string().contains(&(limit + 1).to_string()), "{junk}");

    let before = resident_bytes();
    let block = vec![b'x'; 1 << 20];
    for _ in 0..1_024 {
        peer.raw(&block).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 2 * limit as u64, "{} MiB for a line of 1 GiB", grown >> 20);
    peer.raw(b"\n").await;
    soon(peer.round_trip(&harness)).await;
    assert_eq!(client.diagnostics().junk.counts().too_large, 2);
}

/// codex 45727, pi 1911, claude-sdk-ts 137, openclaw 89830: lines were cut where no line ends.
#[tokio::test(start_paused = true)]
async fn o21_only_a_line_feed_ends_a_frame_at_every_split_of_the_wire() {
    let text = "\u{2028}a\u{2029}b\u{85}c\u{b}d\u{c}e\u{1e}f";
    // In a JSON text these stand as they are only where JSON allows it; the others are escaped by the peer.
    let line = message("r", text);
    let mut wire = Vec::new();
    for end in ["\n", "\r\n", "\r\r\n"] {
        wire.extend_from_slice(line.as_bytes());
        wire.extend_from_slice(end.as_bytes());
    }
    wire.extend_from_slice(b"{\"method\":\"unterminated\"}");
    let mut pictures = std::collections::BTreeSet::new();
    for split in 0..=wire.len() {
        let (mut peer, client) = Peer::connected(HarnessClient::builder());
        let (first, second) = wire.split_at(split);
        peer.raw(first).await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        peer.raw(second).await;
        drop(peer);
        let mut picture = String::new();
        while let Some(one) = client.next_unmatched().await {
            match one {
                Ok(one) => writeln!(picture, "{}", one.frame().trim_end_matches('\r')).unwrap(),
                Err(SubscriptionEnd::RuntimeGone { gone, .. }) => {
                    writeln!(picture, "{:?}", gone.junk.counts()).unwrap();
                    assert_eq!((gone.junk.counts().unterminated, gone.junk.counts().total()), (1, 1));
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(picture.matches(line.as_str()).count(), 3, "{picture}");
        pictures.insert(picture);
    }
    assert_eq!(pictures.len(), 1);
}

/// ha-mcp 603, gaia 2472: a banner on stdout broke the session.
#[tokio::test]
async fn o22_a_banner_a_log_line_and_an_object_that_is_no_message_are_kept_beside_the_session() {
    let (_file, command) = scripted(
        r#"bytes "Welcome to the runtime!\n"
           take initialize as i
           bytes "2026-01-01 INFO ready\n"
           bytes "{\"level\":\"info\",\"msg\":\"an object\"}\n"
           reply i {}
           prompt r
           bytes "{\"half\": \n"
           message r "four"
           status r idle"#,
    );
    let harness = soon(Harness::start(HarnessClient::builder(), &command, &params())).await.unwrap();
    let result = soon(harness.session(id("r")).turn("x").keep(Keep::Nothing).run()).await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("four"));
    let junk = harness.client().diagnostics().junk;
    assert_eq!((junk.counts().not_json, junk.counts().not_rpc, junk.counts().total()), (3, 1, 4));
    let kept: String = junk.last_lines().map(|line| format!("{line}\n")).collect();
    for line in ["Welcome to the runtime!", "INFO ready", "an object"] {
        assert!(kept.contains(line), "{kept}");
    }
    harness.close().await;
}
