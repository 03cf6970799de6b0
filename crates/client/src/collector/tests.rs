use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
    time::Duration,
};

use offspring_transport::SharedDiagnostics;

use super::*;
use crate::{
    error::GoneHow,
    notification::tests::{event, receipt, started, status, text},
    result::ChildRun,
};

const LARGE: Room = Room { turn_bytes: 1 << 20, queue_items: 1 << 10, queue_bytes: 1 << 20 };

fn collector(extent: Extent, keep: Keep, follower: Follower, room: Room) -> Collector {
    Collector::new(SessionId::new("r").unwrap(), extent, keep, follower, room)
}

fn attach(turn: &mut Collector) {
    turn.attach(MessageId::new("m").unwrap());
}

/// A turn whose prompt was answered and whose receipt has come and, where somebody reads, was read.
fn begun(extent: Extent, keep: Keep, follower: Follower, room: Room) -> Collector {
    let mut turn = collector(extent, keep, follower, room);
    attach(&mut turn);
    turn.take(&receipt().line());
    turn.follow_if_wanted(&mut 0);
    turn
}

fn gone(how: GoneHow) -> Arc<Gone> {
    let junk = SharedDiagnostics::default().snapshot();
    Arc::new(Gone { how, exit: None, stderr_tail: Arc::default(), junk })
}

#[test]
fn t13_what_came_before_the_answer_belongs_to_the_turn_from_its_receipt_on() {
    let mut turn = collector(Extent::Root, Keep::Everything, Follower::Nobody, LARGE);
    for one in [text("r", "old"), status("r", "idle"), receipt(), text("c", "not its"), text("r", "mine")] {
        turn.take(&one.line());
    }
    assert!(turn.awaits() == Awaits::Receipt && !turn.is_ended());
    attach(&mut turn);
    assert_eq!(turn.awaits(), Awaits::RootIdle);
    turn.take(&status("c", "idle").line());
    assert_eq!(turn.awaits(), Awaits::RootIdle);
    turn.take(&event("c", "turn/end", r#"{"reason":{"kind":"error"}}"#).line());
    turn.take(&event("r", "turn/end", r#"{"reason":{"kind":"completed"}}"#).line());
    turn.take(&status("r", "running").line());
    turn.take(&status("r", "idle").line());
    assert!(turn.awaits() == Awaits::Nothing && turn.is_ended());
    turn.take(&text("r", "too late").line());
    assert!(turn.failure().is_none());
    let result = turn.into_result();
    assert_eq!((result.final_response.as_deref(), result.end), (Some("mine"), Some(TurnEnd::Idle)));
    assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    // T12: the events are the root's own, and a status is none.
    assert_eq!((result.events.len(), result.notifications.len()), (3, 8));
}

#[test]
fn t13_a_turn_whose_receipt_has_not_come_waits_for_it_whatever_else_comes() {
    let mut turn = collector(Extent::Tree, Keep::Everything, Follower::Nobody, LARGE);
    assert!(!turn.tree_at_rest());
    attach(&mut turn);
    for one in [
        text("r", "old"),
        status("r", "idle"),
        event("r", "agent/inbox/spliced", r#"{"inserted":[{"id":"another","role":"user"}]}"#),
    ] {
        turn.take(&one.line());
        assert!(turn.awaits() == Awaits::Receipt && !turn.tree_at_rest());
    }
    let result = turn.into_result();
    assert_eq!((result.final_response, result.notifications.len(), result.end), (None, 0, None));
}

#[test]
fn t13_a_tree_is_at_rest_only_after_the_root_s_idle_and_silence_is_counted_from_what_came_since() {
    let mut turn = begun(Extent::Tree, Keep::Everything, Follower::Nobody, LARGE);
    assert!(turn.awaits() == Awaits::RootIdle && !turn.tree_at_rest());
    turn.take(&text("c", "x").line());
    assert_eq!(turn.heard_at(), None);
    turn.take(&status("r", "idle").line());
    let idle = turn.heard_at().unwrap();
    assert_eq!(turn.awaits(), Awaits::TreeRest);
    turn.take(&text("c", "y").line());
    let heard = turn.heard_at().unwrap();
    assert!(heard > idle);
    turn.take(&status("r", "running").line());
    assert_eq!((turn.awaits(), turn.heard_at()), (Awaits::RootIdle, Some(heard)));
    assert!(!turn.tree_at_rest() && !turn.is_ended());
    turn.take(&status("r", "idle").line());
    assert!(turn.tree_at_rest() && turn.is_ended() && turn.tree_at_rest());
    assert_eq!(turn.into_result().end, Some(TurnEnd::TreeAtRest));
}

#[test]
fn t11_the_bytes_of_a_turn_are_bounded_before_its_answer_and_after_it_and_counted_once() {
    let room = Room { turn_bytes: receipt().cost_bytes() + text("r", "a").cost_bytes(), ..LARGE };
    let of_turn = |turn: &Collector| match turn.failure() {
        None => false,
        Some(ClientError::TurnTooLarge { limit_bytes, .. }) => limit_bytes == room.turn_bytes,
        Some(other) => panic!("{other}"),
    };
    let new = || collector(Extent::Root, Keep::Everything, Follower::Nobody, room);

    let mut turn = new();
    turn.take(&receipt().line());
    attach(&mut turn);
    turn.take(&text("r", "a").line());
    assert!(!of_turn(&turn), "as much as may be");
    turn.take(&text("r", "b").line());
    assert!(of_turn(&turn) && turn.is_ended());
    turn.take(&text("r", "c").line());
    let result = turn.into_result();
    assert_eq!((result.events.len(), result.notifications.len(), result.end), (2, 2, None));

    // What was too much for it is no end of it, be it the root's idle.
    let mut turn = new();
    attach(&mut turn);
    turn.take(&receipt().line());
    turn.take(&text("r", "a").line());
    turn.take(&status("r", "idle").line());
    assert!(of_turn(&turn) && turn.into_result().end.is_none());

    let mut turn = new();
    turn.take(&receipt().line());
    turn.take(&text("r", "a").line());
    assert!(!of_turn(&turn));
    turn.take(&text("r", "b").line());
    assert!(of_turn(&turn));
    attach(&mut turn);
    assert!(of_turn(&turn), "an answer changes nothing of it");
}

#[test]
fn t11_a_turn_that_keeps_nothing_for_nobody_keeps_nothing_and_has_no_bound() {
    let room = Room { turn_bytes: 1, queue_items: 1, queue_bytes: 1 };
    let mut turn = begun(Extent::Root, Keep::Nothing, Follower::Nobody, room);
    for _ in 0..9 {
        turn.take(&text("r", "x").line());
    }
    assert_eq!(turn.follow_if_wanted(&mut 0).map(|one| one.number()), None);
    turn.take(&status("r", "idle").line());
    assert!(turn.failure().is_none());
    let result = turn.into_result();
    assert_eq!((result.events.len(), result.notifications.len()), (0, 0));
    assert_eq!((result.final_response.as_deref(), result.end), (Some("x"), Some(TurnEnd::Idle)));
}

#[test]
fn t11_a_reader_that_lets_its_queue_fill_up_is_told_how_much_it_missed() {
    let begun = |room| begun(Extent::Root, Keep::Nothing, Follower::LeftBehind, room);
    let missed = |turn: &Collector| match turn.failure() {
        None => 0,
        Some(ClientError::Lagged { missed }) => missed,
        Some(other) => panic!("{other}"),
    };
    let cost = text("r", "x").cost_bytes();
    for room in [Room { queue_items: 2, ..LARGE }, Room { queue_bytes: 2 * cost, ..LARGE }] {
        let mut turn = begun(room);
        let mut cursor = 0;
        // As much as was taken out has room again.
        for _ in 0..3 {
            turn.take(&text("r", "x").line());
            turn.take(&text("r", "y").line());
            assert!(turn.follow_if_wanted(&mut cursor).is_some());
            assert!(turn.follow_if_wanted(&mut cursor).is_some());
        }
        assert_eq!((cursor, missed(&turn)), (6, 0));
        for _ in 0..2 {
            turn.take(&text("r", "x").line());
        }
        assert_eq!(missed(&turn), 0);
        for number in 1..=3 {
            turn.take(&text("r", "z").line());
            assert!(missed(&turn) == number && turn.is_ended(), "{room:?}");
        }
        // What is queued is still given.
        assert!(turn.follow_if_wanted(&mut cursor).is_some() && turn.follow_if_wanted(&mut cursor).is_some());
        assert!(turn.follow_if_wanted(&mut cursor).is_none());
        assert_eq!(cursor, 8);
    }
    // One that alone is too large passes when there is nothing else.
    let mut turn = begun(Room { queue_bytes: cost - 1, ..LARGE });
    turn.take(&text("r", "x").line());
    assert_eq!(missed(&turn), 0);
    turn.take(&text("r", "y").line());
    assert_eq!(missed(&turn), 1);
}

#[tokio::test(start_paused = true)]
async fn t11_a_reader_that_is_waited_for_loses_nothing_and_is_waited_for_until_half_is_read() {
    let begun = |room| begun(Extent::Tree, Keep::Nothing, Follower::WaitedFor(None), room);
    let cost = text("r", "x").cost_bytes();
    for room in [Room { queue_items: 4, ..LARGE }, Room { queue_bytes: 4 * cost, ..LARGE }] {
        let (mut turn, mut cursor) = (begun(room), 0);
        for number in 1..=6 {
            turn.take(&text("r", "x").line());
            assert_eq!(turn.is_holding(), number >= 4, "{room:?}: {number}");
        }
        for left in (0..6).rev() {
            assert!(turn.follow_if_wanted(&mut cursor).is_some());
            assert_eq!(turn.is_holding(), left > 2, "{room:?}: {left}");
        }
        assert!(!turn.is_ended());
    }

    // While nothing was read nobody was silent; a root that was never idle has no silence.
    let (mut turn, mut cursor) = (begun(Room { queue_items: 2, ..LARGE }), 0);
    turn.take(&text("r", "x").line());
    turn.take(&text("r", "x").line());
    assert!(turn.is_holding() && turn.follow_if_wanted(&mut cursor).is_some());
    assert_eq!((turn.is_holding(), turn.heard_at()), (false, None));
    turn.take(&status("r", "idle").line());
    let idle = turn.heard_at().unwrap();
    assert!(turn.is_holding());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(turn.follow_if_wanted(&mut cursor).is_some());
    assert_eq!(turn.heard_at(), Some(idle + Duration::from_secs(60)));
    // What holds nobody up changes nothing of it.
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(turn.follow_if_wanted(&mut cursor).is_some());
    assert_eq!(turn.heard_at(), Some(idle + Duration::from_secs(60)));
}

#[test]
fn w7_a_turn_that_holds_no_more_leaves_its_reader_behind_and_an_ended_one_holds_nobody() {
    let room = Room { queue_items: 1, ..LARGE };
    let mut turn = begun(Extent::Root, Keep::Nothing, Follower::WaitedFor(None), room);
    turn.take(&text("r", "x").line());
    assert!(turn.is_holding());
    turn.hold_no_more();
    assert!(!turn.is_holding() && turn.failure().is_none());
    turn.take(&text("r", "x").line());
    assert!(matches!(turn.failure(), Some(ClientError::Lagged { missed: 1 })));

    let mut turn = begun(Extent::Root, Keep::Nothing, Follower::WaitedFor(None), room);
    turn.take(&status("r", "idle").line());
    assert!(turn.is_ended() && !turn.is_holding());

    // Nobody who follows is made to by it.
    let mut turn = begun(Extent::Root, Keep::Everything, Follower::Nobody, room);
    turn.hold_no_more();
    turn.take(&text("r", "x").line());
    assert!(turn.follow_if_wanted(&mut 0).is_none());
}

#[test]
fn a_follower_of_a_turn_that_keeps_everything_sees_all_of_it_and_it_stays() {
    let mut turn = begun(Extent::Root, Keep::Everything, Follower::LeftBehind, LARGE);
    turn.take(&text("r", "x").line());
    turn.take(&status("r", "idle").line());
    let mut cursor = 0;
    let seen: Vec<Notification> = std::iter::from_fn(|| turn.follow_if_wanted(&mut cursor)).collect();
    let kinds: Vec<_> = seen.iter().map(|one| one.event_type().or(one.status())).collect();
    assert_eq!(kinds, [Some("agent/inbox/spliced"), Some("assistant/message"), Some("idle")]);
    assert_eq!((cursor, turn.into_result().notifications.len()), (3, 3));
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_turn_wakes_who_follows_at_each_step_and_who_waits_for_its_end_where_a_bound_may_change() {
    let wakes = |turn: &mut Collector, step: &dyn Fn(&mut Collector)| {
        let woken = Arc::new(Woken::default());
        turn.wake_with(&Waker::from(woken.clone()));
        step(turn);
        woken.0.load(Ordering::Relaxed) == 1
    };
    for (follower, each) in
        [(Follower::Nobody, false), (Follower::LeftBehind, true), (Follower::WaitedFor(None), true)]
    {
        let mut turn = collector(Extent::Tree, Keep::Everything, follower, LARGE);
        assert!(!wakes(&mut turn, &|turn| turn.take(&receipt().line())));
        assert!(wakes(&mut turn, &attach));
        assert_eq!(wakes(&mut turn, &|turn| turn.take(&text("r", "x").line())), each);
        assert_eq!(wakes(&mut turn, &|turn| turn.take(&status("c", "idle").line())), each);
        assert_eq!(wakes(&mut turn, &|turn| turn.take(&started("r", "c").line())), each);
        assert!(wakes(&mut turn, &|turn| turn.take(&status("r", "running").line())));
        assert!(wakes(&mut turn, &|turn| turn.take(&status("r", "idle").line())));
        assert!(wakes(&mut turn, &|turn| _ = turn.tree_at_rest()));
    }
    let mut turn = begun(Extent::Root, Keep::Everything, Follower::Nobody, LARGE);
    assert!(wakes(&mut turn, &|turn| turn.gone(&gone(GoneHow::EndOfOutput))));
    let mut turn = begun(Extent::Root, Keep::Everything, Follower::Nobody, Room { turn_bytes: 1, ..LARGE });
    assert!(turn.is_ended());
    turn = collector(Extent::Root, Keep::Everything, Follower::Nobody, Room { turn_bytes: 1, ..LARGE });
    assert!(wakes(&mut turn, &|turn| turn.take(&receipt().line())), "too large before its answer");
}

#[test]
fn t13_a_runtime_that_goes_interrupts_what_is_open_and_the_first_end_stays() {
    let mut turn = begun(Extent::Tree, Keep::Everything, Follower::Nobody, LARGE);
    turn.take(&started("r", "c").line());
    turn.gone(&gone(GoneHow::EndOfOutput));
    turn.gone(&gone(GoneHow::Closed));
    assert!(turn.is_ended() && turn.awaits() == Awaits::Nothing);
    assert!(
        matches!(turn.failure(), Some(ClientError::RuntimeGone(gone)) if gone.how == GoneHow::EndOfOutput)
    );
    let result = turn.into_result();
    assert!(matches!(result.tree.children()[0].runs[..], [ChildRun::Interrupted]) && result.end.is_none());

    // A turn that had ended has ended well; a child that outlived it is interrupted all the same.
    let mut turn = begun(Extent::Root, Keep::Everything, Follower::Nobody, LARGE);
    turn.take(&started("r", "c").line());
    turn.take(&status("r", "idle").line());
    turn.gone(&gone(GoneHow::EndOfOutput));
    assert!(turn.failure().is_none());
    let result = turn.into_result();
    assert!(matches!(result.tree.children()[0].runs[..], [ChildRun::Interrupted]));
    assert_eq!(result.end, Some(TurnEnd::Idle));
}

#[test]
fn t13_a_runtime_that_goes_before_its_answer_is_taken_in_had_said_what_it_had_said() {
    for ends in [true, false] {
        let mut turn = collector(Extent::Root, Keep::Everything, Follower::Nobody, LARGE);
        for one in [receipt(), started("r", "c"), text("r", "mine")] {
            turn.take(&one.line());
        }
        if ends {
            turn.take(&status("r", "idle").line());
        }
        turn.gone(&gone(GoneHow::EndOfOutput));
        attach(&mut turn);
        assert_eq!(turn.failure().is_none(), ends);
        let result = turn.into_result();
        assert_eq!(result.final_response.as_deref(), Some("mine"));
        assert_eq!(result.end, ends.then_some(TurnEnd::Idle));
        let run = &result.tree.children()[0].runs[0];
        assert_eq!(matches!(run, ChildRun::Interrupted), !ends, "{run:?}");
    }
}
