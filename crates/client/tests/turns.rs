//! Turns against a runtime in this process, whose every line is in the test; time is paused.

use std::time::Duration;

use crate::peer::{Peer, finished, idle, message, receipt, running, started, turn_end};
use offspring_client::{ClientError, GoneHow, Keep, Limits, PeerError, SessionId, SubscriptionEnd, TurnEnd};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn t12_t13_a_turn_goes_from_its_receipt_to_the_root_s_idle_and_a_child_s_text_is_never_its_answer() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    let prompt = peer.request("session/prompt").await;
    // A stale idle and a message of an earlier turn, then the receipt, and the answer after it.
    peer.say(&[idle("r"), message("r", "stale"), receipt("r", "m1"), running("r")]).await;
    peer.answer(&prompt, r#"{"messageId":"m1"}"#).await;
    peer.say(&[
        started("r", "c"),
        message("r", "mine"),
        message("c", "the child's"),
        turn_end("r", "completed"),
        turn_end("c", "error"),
        idle("c"),
        idle("r"),
        message("r", "after"),
    ])
    .await;
    let result = turn.await.unwrap().unwrap();
    assert_eq!(result.final_response.as_deref(), Some("mine"));
    assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    assert_eq!(result.end, Some(TurnEnd::Idle));
    assert_eq!((result.events.len(), result.notifications.len()), (3, 9));
    assert_eq!(result.tree.children().len(), 1);
    let numbers: Vec<u64> = result.notifications.iter().map(|one| one.number()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tree_ends_where_the_runtime_answers_session_wait_and_not_before() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m1").await;
    let wait = peer.request("session/wait").await;
    peer.say(&[started("r", "c"), message("r", "asked"), idle("r"), finished("r", "c"), running("r")]).await;
    peer.say(&[message("r", "the child is done"), turn_end("r", "completed"), idle("r")]).await;
    peer.answer(&wait, "{}").await;
    peer.say(&[message("r", "of somebody else")]).await;
    let result = turn.await.unwrap().unwrap();
    assert_eq!(result.final_response.as_deref(), Some("the child is done"));
    assert_eq!(result.end, Some(TurnEnd::TreeAtRest));
    assert!(result.tree.children()[0].runs[0].is_ok());
    assert_eq!(harness.client().diagnostics().counts.subscriptions, 0);
}

#[tokio::test(start_paused = true)]
async fn no_silence_ends_a_tree_a_child_may_finish_ten_minutes_after_the_root_s_idle() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m1").await;
    let wait = peer.request("session/wait").await;
    peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
    peer.say(&[started("r", "c"), started("c", "g"), idle("r")]).await;
    tokio::time::sleep(Duration::from_secs(600)).await; // moment: the paused clock
    peer.say(&[finished("c", "g")]).await;
    tokio::time::sleep(Duration::from_secs(600)).await; // moment: the paused clock
    assert!(!turn.is_finished());
    // A start in the same read as the last finish.
    peer.say(&[finished("r", "c"), started("r", "d")]).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // moment: the paused clock
    assert!(!turn.is_finished());
    peer.say(&[finished("r", "d")]).await;
    let result = turn.await.unwrap().unwrap();
    assert_eq!(result.tree.children().len(), 3);
    assert_eq!(result.tree.unfinished().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn w8_a_finish_that_never_comes_is_an_error_at_the_stated_bound_and_names_who_is_open() {
    let limits = Limits { tree_silence: Duration::from_secs(90), ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m1").await;
    let wait = peer.request("session/wait").await;
    peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
    peer.say(&[started("r", "c"), started("r", "d"), finished("r", "d"), idle("r")]).await;
    let began = tokio::time::Instant::now();
    let error = turn.await.unwrap().unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 90);
    let ClientError::TreeOpen { open, .. } = &error.reason else { panic!("{error}") };
    assert_eq!(open, &[id("c")]);
    assert_eq!(error.partial.tree.children().len(), 2);
    assert_eq!(harness.client().diagnostics().counts.subscriptions, 0);
}

#[tokio::test(start_paused = true)]
async fn t13_a_missing_receipt_and_an_unanswered_prompt_are_errors_at_their_bounds() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let first = tokio::spawn({
        let session = session.clone();
        async move { session.run("go").await }
    });
    let prompt = peer.request("session/prompt").await;
    peer.answer(&prompt, r#"{"messageId":"m1"}"#).await;
    peer.say(&[receipt("r", "another"), idle("r")]).await;
    let error = first.await.unwrap().unwrap_err();
    assert!(matches!(error.reason, ClientError::MissingReceipt { .. }), "{error}");

    let began = tokio::time::Instant::now();
    let error = session.run("again").await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 60);
    assert!(error.to_string().contains("session/prompt"), "{error}");
    // A late answer harms nobody.
    let late = peer.request("session/prompt").await;
    peer.answer(&late, r#"{"messageId":"late"}"#).await;
    assert!(harness.client().gone().is_none());
}

#[tokio::test(start_paused = true)]
async fn when_the_runtime_goes_every_open_run_is_interrupted_and_everybody_is_told() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let mut subscription = session.subscribe();
    let mut elsewhere = harness.client().subscribe(&id("other"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m1").await;
    peer.say(&[started("r", "c"), idle("r")]).await;
    drop(peer);
    let error = turn.await.unwrap().unwrap_err();
    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
    assert_eq!(gone.how, GoneHow::EndOfOutput);
    assert!(matches!(error.partial.tree.children()[0].runs[0], offspring_client::ChildRun::Interrupted));
    let mut last = None;
    while let Some(next) = subscription.next().await {
        last = Some(next);
    }
    let Some(Err(SubscriptionEnd::RuntimeGone { interrupted, .. })) = last else { panic!("{last:?}") };
    assert_eq!(interrupted, [id("c")]);
    let told = elsewhere.next().await;
    assert!(
        matches!(&told, Some(Err(SubscriptionEnd::RuntimeGone { interrupted, .. })) if interrupted.is_empty())
    );
    assert!(matches!(
        harness.session(id("r")).run("x").await.unwrap_err().reason,
        ClientError::RuntimeGone(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_answered_because_of_a_shutdown_is_no_success() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    peer.begin("r", "m1").await;
    let wait = peer.request("session/wait").await;
    peer.say(&[started("r", "c"), idle("r")]).await;
    let closing = tokio::spawn({
        let harness = harness.clone();
        async move { harness.close().await }
    });
    let shutdown = peer.request("shutdown").await;
    peer.answer(&wait, "{}").await;
    peer.answer(&shutdown, "{}").await;
    drop(peer);
    let error = turn.await.unwrap().unwrap_err();
    assert!(
        matches!(&error.reason, ClientError::RuntimeGone(gone) if gone.how == GoneHow::Closed),
        "{error}"
    );
    closing.await.unwrap();
    harness.close().await;
}

#[tokio::test(start_paused = true)]
async fn t11_a_stream_ends_with_its_turn_and_one_that_is_too_slow_says_so() {
    let limits = Limits { queue_items: 8, ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let streaming = tokio::spawn({
        let session = session.clone();
        async move { session.turn("go").keep(Keep::Nothing).stream().await.unwrap() }
    });
    peer.begin("r", "m1").await;
    let mut stream = streaming.await.unwrap();
    peer.say(&[message("r", "a"), idle("r")]).await;
    let mut seen = 0;
    while let Some(next) = stream.next().await {
        next.unwrap();
        seen += 1;
    }
    assert_eq!(seen, 4);
    let result = stream.finish().unwrap();
    assert_eq!((result.final_response.as_deref(), result.notifications.len()), (Some("a"), 0));

    let streaming =
        tokio::spawn(async move { session.turn("go").keep(Keep::Nothing).stream().await.unwrap() });
    peer.begin("r", "m2").await;
    let mut stream = streaming.await.unwrap();
    let many: Vec<String> = (0..20).map(|n| message("r", &n.to_string())).collect();
    peer.say(&many).await;
    // Everything is read before the first is taken.
    peer.round_trip(&harness).await;
    let mut seen = 0;
    let error = loop {
        match stream.next().await {
            Some(Ok(_)) => seen += 1,
            Some(Err(error)) => break error,
            None => panic!("ended after {seen}"),
        }
    };
    assert_eq!(seen, 8);
    assert!(matches!(error.reason, ClientError::Lagged { missed: 14 }), "{error}");
    assert_eq!(harness.client().diagnostics().counts.subscriptions, 0);
}

#[tokio::test(start_paused = true)]
async fn w8_a_turn_whose_error_was_given_has_no_result_although_it_goes_on() {
    let limits = Limits { turn_within: Duration::from_secs(90), ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let streaming = tokio::spawn(async move { session.stream("go").await.unwrap() });
    peer.begin("r", "m1").await;
    let mut stream = streaming.await.unwrap();
    let error = loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("ended without an error"),
        }
    };
    assert!(matches!(error.reason, ClientError::Timeout { .. }), "{error}");
    assert!(stream.next().await.is_none());
    let again = stream.finish().unwrap_err();
    assert!(matches!(again.reason, ClientError::Closed { .. }), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_answered_is_no_error_whoever_is_open_unless_the_client_closes() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let _tree = harness.session(id("r")).subscribe();
    peer.say(&[started("r", "c")]).await;
    peer.round_trip(&harness).await;
    let waiting = |harness: &offspring_client::Harness| {
        let client = harness.client().clone();
        tokio::spawn(async move { client.wait(&id("r")).await })
    };
    let wait = waiting(&harness);
    let request = peer.request("session/wait").await;
    peer.answer(&request, "{}").await;
    wait.await.unwrap().unwrap();

    // Refused while it closes: what the runtime said, and not that it closed.
    let (refused, answered) = (waiting(&harness), peer.request("session/wait").await);
    let other = waiting(&harness);
    let request = peer.request("session/wait").await;
    let closing = tokio::spawn(async move { harness.close().await });
    let shutdown = peer.request("shutdown").await;
    peer.refuse(&answered, "unknown SDK session: r").await;
    peer.answer(&request, "{}").await;
    let error = refused.await.unwrap().unwrap_err();
    assert_eq!(error.peer_error(), Some(PeerError::UnknownSession));
    let error = other.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_eq!(error.peer_error(), None);
    peer.answer(&shutdown, "{}").await;
    closing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_a_session_works_is_asked_and_changed_by_its_own_id() {
    let (mut peer, harness) = Peer::new(Limits::default()).await;
    let session = harness.session(id("r"));
    let asking = tokio::spawn({
        let session = session.clone();
        async move { session.working_directory().await.unwrap() }
    });
    let (request, params) = peer.asked("session/working-directory/get").await;
    assert_eq!(params, r#"{"sessionId":"r"}"#);
    peer.answer(&request, r#"{"cwd":"/here"}"#).await;
    assert_eq!(asking.await.unwrap(), "/here");
    let asking = tokio::spawn(async move { session.set_working_directory("there").await.unwrap() });
    let (request, params) = peer.asked("session/working-directory/set").await;
    assert_eq!(params, r#"{"sessionId":"r","path":"there"}"#);
    peer.answer(&request, r#"{"cwd":"/here/there"}"#).await;
    assert_eq!(asking.await.unwrap(), "/here/there");
}

#[tokio::test(start_paused = true)]
async fn on_notification_sees_all_of_the_turn_in_order_whatever_is_kept() {
    for keep in [Keep::Everything, Keep::Nothing] {
        let (mut peer, harness) = Peer::new(Limits::default()).await;
        let session = harness.session(id("r"));
        let (sender, seen) = std::sync::mpsc::channel();
        let turn = tokio::spawn(async move {
            session
                .turn("go")
                .keep(keep)
                .on_notification(move |one| sender.send(one.number()).unwrap())
                .run()
                .await
        });
        peer.begin("r", "m1").await;
        peer.say(&[started("r", "c"), message("c", "x"), idle("r")]).await;
        let result = turn.await.unwrap().unwrap();
        let seen: Vec<u64> = seen.iter().collect();
        assert_eq!((seen.len(), seen.is_sorted()), (5, true));
        assert_eq!(result.notifications.len(), if keep == Keep::Everything { 5 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn t11_a_turn_that_keeps_too_much_is_an_error_and_the_reader_goes_on() {
    let limits = Limits { turn_bytes: 2_000, ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    peer.begin("r", "m1").await;
    peer.say(&[message("r", &"x".repeat(2_000))]).await;
    let error = turn.await.unwrap().unwrap_err();
    assert!(matches!(error.reason, ClientError::TurnTooLarge { limit_bytes: 2_000, .. }), "{error}");
    peer.round_trip(&harness).await;
}
