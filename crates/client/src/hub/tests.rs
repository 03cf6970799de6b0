use offspring_transport::SharedDiagnostics;
use offspring_tree::turn::TurnEnd;

use super::*;
use crate::notification::tests::{finished, notification, receipt, started, status, text};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn hub(limits: Limits) -> Hub {
    Hub::new(limits)
}

fn gone(how: GoneHow) -> Gone {
    let junk = SharedDiagnostics::default().snapshot();
    Gone { how, exit: None, stderr_tail: Arc::default(), junk }
}

/// A turn of `r` whose prompt was answered and whose receipt has come.
fn begun(hub: &Hub, extent: Extent, rest: Rest) -> SubscriptionKey {
    let key = hub.begin_turn(&id("r"), extent, Keep::Everything, Follower::Nobody);
    hub.attach(key, MessageId::new("m").unwrap());
    match rest {
        Rest::Bookkeeping => hub.keep_books(key),
        _ => hub.with_turn(key, |turn| turn.rest = rest).unwrap(),
    }
    hub.notification(&receipt().line());
    key
}

fn is_ended(hub: &Hub, key: SubscriptionKey) -> bool {
    hub.with_turn(key, |turn| turn.is_ended()).unwrap()
}

fn count(queue: &Queue) -> usize {
    std::iter::from_fn(|| queue.try_next()).filter(Result::is_ok).count()
}

fn interrupted(queue: &Queue) -> Option<Vec<SessionId>> {
    match queue.try_next() {
        Some(Err(SubscriptionEnd::RuntimeGone { interrupted, .. })) => Some(interrupted),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn t10_what_nobody_subscribed_to_waits_within_its_bound_and_the_rest_is_counted() {
    let hub = hub(Limits { unmatched_items: 2, ..Limits::default() });
    let (key, queue) = hub.subscribe(&id("r"));
    for session in ["x", "r", "y", "z", "z", "z"] {
        hub.notification(&text(session, "a").line());
    }
    assert_eq!((count(&hub.unmatched_queue()), hub.counts().unmatched_dropped), (2, 3));
    assert_eq!(count(&queue), 1);
    // What was taken out has room again, and an end is told although something was dropped.
    hub.notification(&notification(1, r#"{"method":"m"}"#).line());
    hub.unsubscribe(key);
    hub.notification(&text("r", "a").line());
    hub.gone(gone(GoneHow::EndOfOutput));
    let unmatched = hub.unmatched_queue();
    assert!(unmatched.try_next().unwrap().is_ok() && unmatched.try_next().unwrap().is_ok());
    assert_eq!(interrupted(&unmatched), Some(Vec::new()));
    assert_eq!((count(&queue), hub.counts().unmatched_dropped), (0, 3));
}

#[test]
fn t10_t11_a_filter_is_asked_about_everything_and_what_one_wants_is_not_unmatched() {
    let hub = hub(Limits::default());
    let wants = |word: &'static str| Arc::new(move |one: &Notification| one.session_id() == Some(word));
    let (first, of_x) = hub.subscribe_filtered(wants("x"));
    let (second, of_y) = hub.subscribe_filtered(wants("y"));
    let (third, failing) = hub.subscribe_filtered(Arc::new(|_: &Notification| panic!("a filter that fails")));
    let (_, of_tree) = hub.subscribe(&id("x"));
    assert!(first != second && second != third);
    assert_eq!(hub.counts().subscriptions, 4);
    for session in ["x", "y", "z"] {
        hub.notification(&text(session, "a").line());
    }
    assert_eq!(hub.counts().subscriptions, 3);
    assert!(matches!(failing.try_next(), Some(Err(SubscriptionEnd::FilterFailed))));
    assert_eq!(count(&of_tree), 1);
    assert_eq!((count(&of_x), count(&of_y), count(&hub.unmatched_queue())), (1, 1, 1));
    hub.unsubscribe_filtered(first);
    hub.notification(&text("x", "b").line());
    hub.notification(&text("y", "b").line());
    assert_eq!((count(&of_x), count(&of_y), count(&of_tree)), (0, 1, 1));
    assert_eq!(count(&hub.unmatched_queue()), 0);
}

#[test]
fn t2_t3_t6_a_start_makes_a_tree_and_what_it_said_is_counted() {
    let hub = hub(Limits::default());
    let (_, queue) = hub.subscribe(&id("r"));
    hub.notification(&started("r", "c").line());
    hub.notification(&started("c", "d").line());
    hub.notification(&started("r", "c").line());
    hub.notification(&started("r", "r").line());
    hub.notification(&started("r", "d").line());
    hub.notification(&text("d", "a").line());
    assert_eq!(count(&queue), 6);
    let counts = hub.counts();
    assert_eq!((counts.invalid_starts, counts.repeated_starts, counts.moves), (1, 1, 1));
    assert_eq!((counts.sessions, counts.subscriptions, counts.open_requests), (3, 1, 0));
    assert_eq!(hub.path("d"), [id("r"), id("d")]);
    assert_eq!(hub.open_within(&id("r")), [id("c"), id("d")]);
    // T4: each parent's own start of it finishes for itself.
    hub.notification(&finished("r", "d").line());
    assert_eq!(hub.open_within(&id("r")), [id("c"), id("d")]);
    hub.notification(&finished("c", "d").line());
    assert_eq!(hub.open_within(&id("r")), [id("c")]);
    hub.notification(&status("c", "idle").line());
    hub.notification(&status("r", "running").line());
    assert_eq!(hub.open_within(&id("r")).len(), 2);
    hub.notification(&status("r", "idle").line());
    assert_eq!(hub.open_within(&id("r")), [id("c")]);
}

#[test]
fn w5_an_id_is_answered_once_and_not_given_twice() {
    let hub = hub(Limits::default());
    assert!(hub.sending(Id::from(1), None) && hub.sending(Id::from(2), None));
    assert!(!hub.sending(Id::from(1), None));
    assert_eq!(hub.counts().open_requests, 2);
    assert!(hub.answered(&Id::from(1), true) && !hub.answered(&Id::from(1), true));
    assert!(!hub.answered(&Id::from(3), false) && hub.answered(&Id::from(2), false));
    assert_eq!(hub.counts().open_requests, 0);
}

#[test]
fn t13_a_tree_by_its_books_is_at_rest_when_the_reader_waits_and_nobody_is_at_work() {
    let hub = hub(Limits::default());
    let of_books = begun(&hub, Extent::Tree, Rest::Bookkeeping);
    let of_root = begun(&hub, Extent::Root, Rest::Bookkeeping);
    let asked = begun(&hub, Extent::Tree, Rest::Asked);
    let (_, queue) = hub.subscribe(&id("r"));
    for one in [started("r", "c"), status("c", "running"), status("r", "idle")] {
        hub.notification(&one.line());
    }
    assert!(is_ended(&hub, of_root));
    hub.reader_waits();
    assert!(!is_ended(&hub, of_books), "a child is at work");
    hub.notification(&status("c", "idle").line());
    hub.notification(&finished("r", "c").line());
    // In the same read as the last finish.
    hub.notification(&started("r", "d").line());
    hub.reader_waits();
    assert!(!is_ended(&hub, of_books));
    hub.notification(&finished("r", "d").line());
    // A word of somebody else in between takes nothing back.
    hub.notification(&text("r", "a").line());
    assert!(!is_ended(&hub, of_books), "more may have been written");
    hub.reader_waits();
    assert!(is_ended(&hub, of_books));
    assert!(!is_ended(&hub, asked), "the runtime was asked, and says so itself");
    assert_eq!(hub.end_turn(of_books).unwrap().into_result().end, Some(TurnEnd::TreeAtRest));
    assert!(hub.end_turn(of_books).is_none() && hub.with_turn(of_books, |_| ()).is_none());
    assert_eq!(hub.end_turn(of_root).unwrap().into_result().end, Some(TurnEnd::Idle));
    assert_eq!((count(&queue), hub.counts().subscriptions), (8, 2));
}

#[test]
fn t13_books_that_are_begun_at_rest_are_closed_at_once_unless_there_is_more_to_read() {
    for waits in [true, false] {
        let hub = hub(Limits::default());
        let key = begun(&hub, Extent::Tree, Rest::Asked);
        hub.notification(&status("r", "idle").line());
        if waits {
            hub.reader_waits();
        }
        hub.keep_books(key);
        assert_eq!(is_ended(&hub, key), waits);
        hub.reader_waits();
        assert!(is_ended(&hub, key));
    }
}

#[test]
fn t13_an_answer_to_a_wait_is_believed_unless_it_is_an_error_or_that_of_a_shutdown() {
    for (succeeded, closing, at_work, ends) in [
        (true, false, true, true),
        (true, false, false, true),
        (false, false, false, false),
        (false, true, false, false),
        (true, true, true, false),
        (true, true, false, true),
    ] {
        let hub = hub(Limits::default());
        let key = begun(&hub, Extent::Tree, Rest::Asking);
        hub.notification(&started("r", "c").line());
        if !at_work {
            hub.notification(&finished("r", "c").line());
        }
        hub.notification(&status("r", "idle").line());
        assert!(hub.sending(Id::from(1), Some(&id("r"))));
        hub.reader_waits();
        assert!(!hub.is_closing() && !is_ended(&hub, key));
        if closing {
            hub.closing();
            assert!(hub.is_closing());
        }
        assert!(hub.answered(&Id::from(1), succeeded));
        assert_eq!(is_ended(&hub, key), ends, "{succeeded} {closing} {at_work}");
        // From then on by the books.
        let rest = hub.with_turn(key, |turn| turn.rest).unwrap();
        assert_eq!(rest, if ends { Rest::Asked } else { Rest::Bookkeeping });
        hub.reader_waits();
        assert_eq!(is_ended(&hub, key), ends || !at_work);
        hub.notification(&finished("r", "c").line());
        hub.reader_waits();
        assert!(is_ended(&hub, key));
    }
}

#[test]
fn t13_a_wait_is_that_of_the_turn_which_is_about_to_ask_for_its_own_root() {
    let hub = hub(Limits::default());
    let other = hub.begin_turn(&id("q"), Extent::Tree, Keep::Everything, Follower::Nobody);
    hub.with_turn(other, |turn| turn.rest = Rest::Asking).unwrap();
    let books = begun(&hub, Extent::Tree, Rest::Bookkeeping);
    let asking = begun(&hub, Extent::Tree, Rest::Asking);
    let rest = |key| hub.with_turn(key, |turn| turn.rest).unwrap();
    assert!(hub.sending(Id::from(1), None));
    assert_eq!((rest(other), rest(books), rest(asking)), (Rest::Asking, Rest::Bookkeeping, Rest::Asking));
    assert!(hub.sending(Id::from(2), Some(&id("r"))));
    assert_eq!((rest(other), rest(books), rest(asking)), (Rest::Asking, Rest::Bookkeeping, Rest::Asked));
    // One that nobody's turn is about to send, as a caller may.
    assert!(hub.sending(Id::from(3), Some(&id("r"))) && hub.answered(&Id::from(3), true));
    assert_eq!((rest(books), rest(asking)), (Rest::Bookkeeping, Rest::Asked));
    // A subscription that ended meanwhile has no turn any more.
    assert!(hub.end_turn(asking).is_some() && hub.answered(&Id::from(2), true));
}

#[test]
fn t13_the_end_of_the_runtime_is_told_once_to_everybody_with_what_it_interrupted_of_theirs() {
    let hub = hub(Limits::default());
    let (_, of_r) = hub.subscribe(&id("r"));
    let (_, of_q) = hub.subscribe(&id("q"));
    let (_, filtered) = hub.subscribe_filtered(Arc::new(|_: &Notification| false));
    let turn = begun(&hub, Extent::Tree, Rest::Bookkeeping);
    hub.notification(&started("r", "c").line());
    assert!(hub.is_gone().is_none());
    let first = hub.gone(gone(GoneHow::EndOfOutput));
    let second = hub.gone(gone(GoneHow::Closed));
    assert!(Arc::ptr_eq(&first, &second) && first.how == GoneHow::EndOfOutput);
    assert!(hub.is_gone().is_some_and(|gone| Arc::ptr_eq(&gone, &first)));
    assert_eq!(count(&of_q), 0);
    assert_eq!((interrupted(&of_q), of_q.try_next().is_none()), (None, true));
    assert!(of_r.try_next().unwrap().is_ok() && of_r.try_next().unwrap().is_ok());
    assert_eq!(interrupted(&of_r), Some(vec![id("c")]));
    assert_eq!(interrupted(&filtered), Some(vec![id("c")]));
    assert_eq!(interrupted(&hub.unmatched_queue()), Some(vec![id("c")]));
    assert!(hub.with_turn(turn, |turn| turn.failure().is_some()).unwrap());
    // Whoever comes later is told at once.
    assert_eq!(interrupted(&hub.subscribe(&id("r")).1), Some(Vec::new()));
    let late = hub.subscribe_filtered(Arc::new(|_: &Notification| true)).1;
    assert_eq!(interrupted(&late), Some(Vec::new()));
    let late = hub.begin_turn(&id("r"), Extent::Root, Keep::Everything, Follower::Nobody);
    assert!(is_ended(&hub, late));
}

#[test]
fn t13_a_tree_that_was_at_rest_when_the_runtime_went_has_ended_well() {
    let hub = hub(Limits::default());
    let key = begun(&hub, Extent::Tree, Rest::Bookkeeping);
    hub.notification(&status("r", "idle").line());
    hub.closing();
    assert_eq!(hub.gone(gone(GoneHow::EndOfOutput)).how, GoneHow::Closed);
    assert_eq!(hub.end_turn(key).unwrap().into_result().end, Some(TurnEnd::TreeAtRest));
}

/// Whether the reader of the wire may go on now.
async fn reads(hub: &Hub) -> bool {
    tokio::time::timeout(Duration::from_secs(1), hub.let_read()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn t11_the_reader_of_the_wire_waits_for_whoever_asked_for_it_and_goes_on_when_they_read_end_or_close() {
    let held = || {
        let hub = Arc::new(hub(Limits { queue_items: 2, ..Limits::default() }));
        let key = hub.begin_turn(&id("r"), Extent::Tree, Keep::Nothing, Follower::WaitedFor(None));
        hub.attach(key, MessageId::new("m").unwrap());
        hub.notification(&receipt().line());
        (hub, key)
    };
    let (hub, _) = held();
    assert!(reads(&hub).await, "there is room for one");

    for how in ["it reads", "it is dropped", "the client closes"] {
        let (hub, key) = held();
        hub.notification(&text("r", "x").line());
        assert!(!reads(&hub).await);
        let waiting = tokio::spawn({
            let hub = hub.clone();
            async move { hub.let_read().await }
        });
        tokio::task::yield_now().await;
        match how {
            "it reads" => _ = hub.with_turn(key, |turn| turn.follow_if_wanted(&mut 0)).unwrap().unwrap(),
            "it is dropped" => hub.unsubscribe(key),
            _ => hub.closing(),
        }
        let woken = tokio::time::timeout(Duration::from_secs(1), waiting).await;
        assert!(woken.is_ok(), "{how}");
        assert!(reads(&hub).await, "{how}");
    }

    // What came before the answer to the prompt counts when the answer does.
    let hub = hub_of_two();
    let key = hub.begin_turn(&id("r"), Extent::Tree, Keep::Nothing, Follower::WaitedFor(None));
    hub.notification(&receipt().line());
    hub.notification(&text("r", "x").line());
    assert!(reads(&hub).await);
    hub.attach(key, MessageId::new("m").unwrap());
    assert!(!reads(&hub).await);

    // Nobody is waited for by one that is closing.
    let hub = hub_of_two();
    hub.closing();
    let key = hub.begin_turn(&id("r"), Extent::Tree, Keep::Nothing, Follower::WaitedFor(None));
    hub.attach(key, MessageId::new("m").unwrap());
    hub.notification(&receipt().line());
    hub.notification(&text("r", "x").line());
    assert!(reads(&hub).await);
}

fn hub_of_two() -> Hub {
    hub(Limits { queue_items: 2, ..Limits::default() })
}
