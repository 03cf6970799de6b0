//! A turn whose slow reader holds up the runtime, against a runtime in this process; time is paused.

use std::time::Duration;

use crate::peer::{Peer, finished, idle, message, receipt, running, started};
use offspring_client::{ClientError, Harness, Keep, Limits, SessionId, TurnStream};
use tokio::time::{Instant, sleep, timeout};

const QUEUED: usize = 8;

/// A turn of the session `r` that holds up its runtime at eight lines, two of which are there already.
async fn held(tree: bool) -> (Peer, Harness, TurnStream) {
    let (mut peer, harness) = Peer::new(Limits { queue_items: QUEUED, ..Limits::default() }).await;
    let turn = harness.session(SessionId::new("r").unwrap()).turn("go").keep(Keep::Nothing).hold_runtime();
    let begun =
        tokio::spawn(async move { if tree { turn.stream_tree().await } else { turn.stream().await } });
    peer.begin("r", "m1").await;
    (peer, harness, begun.await.unwrap().unwrap())
}

/// More than the pipe between the two takes: 4 MiB.
fn many() -> Vec<String> {
    (0..40).map(|n| message("r", &format!("{n}{}", "x".repeat(100_000)))).collect()
}

#[tokio::test(start_paused = true)]
async fn t11_a_runtime_waits_for_a_slow_reader_that_asked_for_it_and_nothing_is_lost() {
    let (mut peer, _harness, mut stream) = held(false).await;
    let mut said = many();
    said.push(idle("r"));
    let saying = tokio::spawn(async move {
        peer.say(&said).await;
        peer
    });
    sleep(Duration::from_secs(60)).await; // moment: the paused clock
    assert!(!saying.is_finished(), "nobody reads, and still all of it was read");
    let mut seen = 0;
    while let Some(next) = stream.next().await {
        next.unwrap();
        seen += 1;
    }
    assert_eq!(seen, 2 + 40 + 1);
    assert!(stream.finish().unwrap().final_response.unwrap().starts_with("39x"));
    drop(saying.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_the_answer_to_the_prompt_does_not_keep_the_answer_back() {
    let (mut peer, harness) = Peer::new(Limits { queue_items: QUEUED, ..Limits::default() }).await;
    let turn = harness.session(SessionId::new("r").unwrap()).turn("go").keep(Keep::Nothing).hold_runtime();
    let begun = tokio::spawn(turn.stream());
    let prompt = peer.request("session/prompt").await;
    peer.say(&[receipt("r", "m1"), running("r")]).await;
    let many: Vec<String> = (0..30).map(|n| message("r", &n.to_string())).collect();
    peer.say(&many).await;
    peer.answer(&prompt, r#"{"messageId":"m1"}"#).await;
    peer.say(&[idle("r")]).await;
    let mut stream = timeout(Duration::from_secs(1), begun).await.expect("no answer").unwrap().unwrap();
    let mut seen = 0;
    while let Some(next) = stream.next().await {
        next.unwrap();
        seen += 1;
    }
    assert_eq!(seen, 33);
}

#[tokio::test(start_paused = true)]
async fn w7_a_client_that_is_closed_waits_for_no_reader() {
    let (mut peer, harness, mut stream) = held(false).await;
    let many: Vec<String> = (0..30).map(|n| message("r", &n.to_string())).collect();
    peer.say(&many).await;
    let began = Instant::now();
    let closing = tokio::spawn(async move { harness.close().await });
    let shutdown = peer.request("shutdown").await;
    peer.answer(&shutdown, "{}").await;
    closing.await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    drop(peer);
    // What was not read is said to be lost.
    let error = loop {
        if let Err(error) = stream.next().await.expect("an end without a word") {
            break error;
        }
    };
    assert!(matches!(error.reason, ClientError::Lagged { missed: 24 }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn t11_a_held_runtime_goes_on_when_the_stream_is_dropped() {
    let (mut peer, harness, stream) = held(false).await;
    let many: Vec<String> = (0..30).map(|n| message("r", &n.to_string())).collect();
    peer.say(&many).await;
    let client = harness.client().clone();
    let asking =
        tokio::spawn(async move { client.request("ask", &(), Duration::from_secs(600)).await.map(|_| ()) });
    let ask = peer.request("ask").await;
    peer.answer(&ask, "1").await;
    sleep(Duration::from_secs(60)).await; // moment: the paused clock
    assert!(!asking.is_finished(), "an answer overtook what is held up before it (T9)");
    drop(stream);
    timeout(Duration::from_secs(1), asking).await.expect("still held up").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn t11_who_may_hold_up_others_only_for_a_while_is_left_behind_after_it() {
    let (mut peer, harness) = Peer::new(Limits { queue_items: QUEUED, ..Limits::default() }).await;
    let bound = Duration::from_secs(10);
    let turn = harness.session(SessionId::new("r").unwrap()).turn("go").keep(Keep::Nothing);
    let begun = tokio::spawn(turn.hold_runtime_at_most(bound).stream());
    peer.begin("r", "m1").await;
    let mut stream = begun.await.unwrap().unwrap();
    let mut other = harness.client().subscribe(&SessionId::new("o").unwrap());
    let mut said: Vec<String> = (0..30).map(|n| message("r", &n.to_string())).collect();
    said.push(idle("o"));
    let began = Instant::now();
    peer.say(&said).await;
    other.next().await.unwrap().unwrap();
    assert!(began.elapsed() >= bound && began.elapsed() < 2 * bound, "{:?}", began.elapsed());
    let error = loop {
        if let Err(error) = stream.next().await.expect("an end without a word") {
            break error;
        }
    };
    assert!(matches!(error.reason, ClientError::Lagged { missed: 24 }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn while_nothing_was_read_nobody_was_silent() {
    let (mut peer, _harness, mut stream) = held(true).await;
    for _ in 0..2 {
        stream.next().await.unwrap().unwrap();
    }
    // It is asked for rest when there is nothing to be read.
    let saying = async {
        let wait = peer.request("session/wait").await;
        peer.say(&[started("r", "c")]).await;
        wait
    };
    let (next, wait) = tokio::join!(stream.next(), saying);
    next.unwrap().unwrap();
    peer.say(&[idle("r")]).await;
    let many: Vec<String> = (1..QUEUED).map(|n| message("c", &n.to_string())).collect();
    peer.say(&many).await;
    // Longer than a tree may be silent.
    sleep(Duration::from_secs(2 * 60 * 60)).await; // moment: the paused clock
    for _ in 0..QUEUED {
        stream.next().await.unwrap().unwrap();
    }
    let finishing = tokio::spawn(async move {
        sleep(Duration::from_secs(30 * 60)).await; // moment: the paused clock
        peer.say(&[finished("r", "c")]).await;
        peer.answer(&wait, "{}").await;
        peer
    });
    stream.next().await.unwrap().unwrap();
    assert!(stream.next().await.is_none());
    assert!(stream.finish().unwrap().tree.children()[0].runs[0].is_ok());
    drop(finishing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_goes_while_it_is_held_up_is_gone_after_all_it_said() {
    let (mut peer, _harness, mut stream) = held(false).await;
    let many: Vec<String> = (0..30).map(|n| message("r", &n.to_string())).collect();
    peer.say(&many).await;
    drop(peer);
    sleep(Duration::from_secs(60)).await; // moment: the paused clock
    let mut seen = 0;
    let error = loop {
        match stream.next().await.expect("an end without a word") {
            Ok(_) => seen += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(seen, 32);
    assert!(matches!(error.reason, ClientError::RuntimeGone(_)), "{error}");
}
