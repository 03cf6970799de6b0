//! Our client on the real runtime: turns, trees and where each of them ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_client::{ChildReport, ChildRun, Notification, Session, Subscription, TurnEnd, TurnResult};
use offspring_tests::dsh::{Profile, RealRuntime};

mod dsh_real;
use dsh_real::{ended, id, is_idle, started};

/// The text a child ended with, if its only run went well.
fn answer(child: &ChildReport) -> Option<String> {
    match child.runs.as_slice() {
        [run @ ChildRun::Finished(finished)] if run.is_ok() => finished.last_text(),
        _ => None,
    }
}

/// Each child on the way down, where each has but one.
fn chain(result: &TurnResult) -> Vec<&ChildReport> {
    let mut above = &result.session_id;
    let children = result.tree.children();
    for child in children {
        assert_eq!(&child.parent, above);
        above = &child.session;
    }
    children.iter().collect()
}

/// T9, T12: all of the turn in wire order, the root's events and no others among its events.
fn is_sound(result: &TurnResult) {
    let root = Some(result.session_id.as_str());
    assert!(result.notifications.is_sorted_by_key(Notification::number));
    let own =
        result.notifications.iter().filter(|it| it.method() == "session.event" && it.session_id() == root);
    let own: Vec<u64> = own.map(Notification::number).collect();
    assert_eq!(result.events.iter().map(Notification::number).collect::<Vec<_>>(), own);
    assert_eq!(result.events[0].event_type(), Some("agent/inbox/spliced"));
    // Who is spoken of was started before, or is the root.
    let mut known = vec![result.session_id.as_str().to_owned()];
    for notification in &result.notifications {
        match notification.method() {
            "subagent.started" => {
                assert!(known.contains(&notification.parent_session_id().unwrap().to_owned()));
                known.push(notification.child_session_id().unwrap().to_owned());
            }
            "subagent.finished" => {
                assert!(known.contains(&notification.child_session_id().unwrap().to_owned()));
            }
            _ => assert!(known.contains(&notification.session_id().unwrap().to_owned())),
        }
    }
}

async fn until_idle(subscription: &mut Subscription, session: &Session) {
    while !is_idle(&subscription.next().await.unwrap().unwrap(), session.id().as_str()) {}
}

#[tokio::test]
async fn one_prompt_is_one_turn() {
    let Some(real) = RealRuntime::for_test("one_prompt_is_one_turn") else { return };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let result = session.run("SAY hello").await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("hello"));
    assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    assert_eq!(result.end, Some(TurnEnd::Idle));
    assert!(result.tree.children().is_empty());
    is_sound(&result);
    // The next turn of the session has nothing of the first.
    let result = session.run("CHUNKS 3 REASON 2").await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("word0 word1 word2 "));
    is_sound(&result);
    ended(harness, &real).await;
}

#[tokio::test]
async fn run_ends_at_the_roots_idle_and_run_tree_when_the_last_grandchild_is_done() {
    let Some(real) =
        RealRuntime::for_test("run_ends_at_the_roots_idle_and_run_tree_when_the_last_grandchild_is_done")
    else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("early"));
    let mut later = session.subscribe();
    let result = session.run("DELEGATE 2 GATE early").await.unwrap();
    assert_eq!(result.end, Some(TurnEnd::Idle));
    assert!(result.final_response.unwrap().starts_with("level 2 done"));
    assert!(result.notifications.iter().all(|it| it.method() != "subagent.finished"));
    // The grandchild has not answered yet, and goes on to: what it does then is no loss.
    real.model().open("early");
    harness.client().wait(session.id()).await.unwrap();
    let mut finished = 0;
    while let Some(notification) = later.try_next() {
        finished += usize::from(notification.unwrap().method() == "subagent.finished");
    }
    assert_eq!(finished, 2);

    let session = harness.session(id("whole"));
    let mut onlooker = session.subscribe();
    let held_back = async {
        until_idle(&mut onlooker, &session).await;
        real.model().arrived("whole", 1).await;
        assert!(!harness.client().at_work(session.id()).is_empty());
        real.model().open("whole");
    };
    let (result, ()) = tokio::join!(session.run_tree("DELEGATE 2 GATE whole"), held_back);
    let result = result.unwrap();
    assert_eq!(result.end, Some(TurnEnd::TreeAtRest));
    is_sound(&result);
    let texts: Vec<Option<String>> = chain(&result).into_iter().map(answer).collect();
    // A child's last word is what it said when it was told of its own child's end.
    assert_eq!(texts, [Some("noted".to_owned()), Some("leaf done".to_owned())]);
    assert_eq!(result.final_response.as_deref(), Some("noted"));
    assert!(harness.client().at_work(session.id()).is_empty());
    drop((later, onlooker));
    ended(harness, &real).await;
}

#[tokio::test]
async fn four_levels_come_to_rest_from_below() {
    let Some(real) = RealRuntime::for_test("four_levels_come_to_rest_from_below") else { return };
    let harness = started(&real).await;
    let result = harness.session(id("root")).run_tree("DELEGATE 4").await.unwrap();
    is_sound(&result);
    let below: Vec<&str> = chain(&result).into_iter().map(|child| child.session.as_str()).collect();
    assert_eq!(below.len(), 4);
    let finished = result.notifications.iter().filter(|it| it.method() == "subagent.finished");
    let mut finished: Vec<&str> = finished.map(|it| it.child_session_id().unwrap()).collect();
    finished.reverse();
    assert_eq!(finished, below);
    assert!(result.tree.children().iter().all(|child| answer(child).is_some()));
    assert_eq!(harness.client().path(below[3]).len(), 5);
    ended(harness, &real).await;
}

#[tokio::test]
async fn three_children_at_once_each_with_its_own_answer() {
    let Some(real) = RealRuntime::for_test("three_children_at_once_each_with_its_own_answer") else { return };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let all_at_work = async {
        for gate in ["g#1", "g#2", "g#3"] {
            real.model().arrived(gate, 1).await;
        }
        // In another order than they began.
        for gate in ["g#3", "g#1", "g#2"] {
            real.model().open(gate);
        }
    };
    let (result, ()) = tokio::join!(session.run_tree("PARALLEL 3 GATE g"), all_at_work);
    let result = result.unwrap();
    is_sound(&result);
    assert!(result.tree.children().iter().all(|child| child.parent == *session.id()));
    let mut texts: Vec<String> = result.tree.children().iter().filter_map(answer).collect();
    texts.sort();
    assert_eq!(texts, ["leaf done #1", "leaf done #2", "leaf done #3"]);
    ended(harness, &real).await;
}

#[tokio::test]
async fn t4_a_settled_child_is_started_again_under_the_same_id() {
    let Some(real) = RealRuntime::for_test("t4_a_settled_child_is_started_again_under_the_same_id") else {
        return;
    };
    // A message to a settled child needs more plugins than the small profile has.
    let real = real.with(Profile::full());
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let mut both = session.subscribe();
    let first = session.run_tree("DELEGATE 1").await.unwrap();
    let child = first.tree.children()[0].session.clone();
    let prompt = format!(r#"TOOL send_message {{"agent_id":"{child}","message":"SAY an answer to that"}}"#);
    let second = session.run_tree(&prompt).await.unwrap();
    is_sound_from_the_start(&second, &first);
    assert_eq!(second.tree.children().len(), 1);
    assert_eq!(second.tree.children()[0].session, child);
    assert_eq!(answer(&second.tree.children()[0]).as_deref(), Some("an answer to that"));
    let mut seen = Vec::new();
    while let Some(notification) = both.try_next() {
        let notification = notification.unwrap();
        if notification.method().starts_with("subagent.") {
            assert_eq!(notification.child_session_id(), Some(child.as_str()));
            assert_eq!(notification.parent_session_id(), Some("root"));
            seen.push(notification.method().to_owned());
        }
    }
    let [start, finish] = ["subagent.started", "subagent.finished"];
    assert_eq!(seen, [start, finish, start, finish]);
    drop(both);
    ended(harness, &real).await;
}

/// A message may wake a child before its second start is told; it is of the tree all the same.
fn is_sound_from_the_start(second: &TurnResult, first: &TurnResult) {
    let child = first.tree.children()[0].session.as_str();
    for notification in second.notifications.iter().filter_map(Notification::session_id) {
        assert!(notification == child || notification == second.session_id.as_str());
    }
    assert_eq!(second.finish_reason.as_deref(), Some("completed"));
}

#[tokio::test]
async fn t9_two_roots_at_once_see_nothing_of_each_other() {
    let Some(real) = RealRuntime::for_test("t9_two_roots_at_once_see_nothing_of_each_other") else { return };
    let harness = started(&real).await;
    let (a, b) = (harness.session(id("a")), harness.session(id("b")));
    let together = async {
        real.model().arrived("both", 2).await;
        real.model().open("both");
    };
    let prompt = "DELEGATE 2 GATE both";
    let (of_a, of_b, ()) = tokio::join!(a.run_tree(prompt), b.run_tree(prompt), together);
    let (of_a, of_b) = (of_a.unwrap(), of_b.unwrap());
    for result in [&of_a, &of_b] {
        is_sound(result);
        assert_eq!(chain(result).len(), 2);
        assert!(result.tree.children().iter().all(|child| answer(child).is_some()));
    }
    // They did run at once: each began before the other ended.
    let span = |result: &TurnResult| {
        let numbers = result.notifications.iter().map(Notification::number);
        (numbers.clone().min().unwrap(), numbers.max().unwrap())
    };
    assert!(span(&of_a).0 < span(&of_b).1 && span(&of_b).0 < span(&of_a).1);
    ended(harness, &real).await;
}

#[tokio::test]
async fn t13_two_prompts_on_one_session_end_at_the_one_idle() {
    let Some(real) = RealRuntime::for_test("t13_two_prompts_on_one_session_end_at_the_one_idle") else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let second = async {
        real.model().arrived("first", 1).await;
        let mut receipts = session.subscribe();
        let open = async {
            while receipts.next().await.unwrap().unwrap().event_type() != Some("agent/inbox/spliced") {}
            real.model().open("first");
        };
        tokio::join!(session.run("SAY two"), open).0
    };
    let (first, second) = tokio::join!(session.run("GATE first\nSAY one"), second);
    let (first, second) = (first.unwrap(), second.unwrap());
    let last = |result: &TurnResult| result.notifications.last().unwrap().number();
    assert_eq!(last(&first), last(&second));
    assert_eq!(first.final_response.as_deref(), Some("two"));
    assert_eq!(second.final_response.as_deref(), Some("two"));
    // The second begins with its own receipt, so the first answer is in the first only as far as it came before.
    assert!(first.events.len() > second.events.len());
    ended(harness, &real).await;
}

#[tokio::test]
async fn o3_a_childs_turn_inside_the_roots_changes_nothing_of_the_roots() {
    let Some(real) = RealRuntime::for_test("o3_a_childs_turn_inside_the_roots_changes_nothing_of_the_roots")
    else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let mut onlooker = session.subscribe();
    let child_is_done = async {
        let is_childs =
            |seen: &Notification| seen.session_id() != Some("root") && seen.status() == Some("idle");
        while !is_childs(&onlooker.next().await.unwrap().unwrap()) {}
        real.model().open("root");
    };
    let prompt = "TOOL subagent {\"description\":\"d\",\"prompt\":\"CHUNKS 5\"}\nGATE root\nSAY mine";
    let (result, ()) = tokio::join!(session.run(prompt), child_is_done);
    let result = result.unwrap();
    is_sound(&result);
    let roots_idle: Vec<&Notification> =
        result.notifications.iter().filter(|it| is_idle(it, "root")).collect();
    assert_eq!(roots_idle.len(), 1, "the end, and no other");
    assert!(
        result.notifications.iter().any(|it| it.session_id() != Some("root") && it.status() == Some("idle"))
    );
    let said = result.events.iter().filter(|event| event.event_type() == Some("assistant/message"));
    assert!(said.clone().all(|event| !event.frame().contains("word0")));
    assert!(said.clone().any(|event| event.frame().contains("mine")));
    harness.client().wait(session.id()).await.unwrap();
    drop(onlooker);
    ended(harness, &real).await;
}

#[tokio::test]
async fn o7_a_finish_after_the_turn_is_told_once_by_the_next() {
    let Some(real) = RealRuntime::for_test("o7_a_finish_after_the_turn_is_told_once_by_the_next") else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    let mut onlooker = session.subscribe();
    let first = session.run("DELEGATE 1 GATE leaf").await.unwrap();
    assert!(matches!(first.tree.children()[0].runs.as_slice(), [ChildRun::Open]));
    let finish = async {
        real.model().arrived("second", 1).await;
        real.model().open("leaf");
        while onlooker.next().await.unwrap().unwrap().method() != "subagent.finished" {}
        real.model().open("second");
    };
    let (second, ()) = tokio::join!(session.run_tree("GATE second\nSAY two"), finish);
    let second = second.unwrap();
    // The result that was returned is what it was.
    assert!(matches!(first.tree.children()[0].runs.as_slice(), [ChildRun::Open]));
    let [child] = second.tree.children() else { panic!("{:?}", second.tree) };
    assert_eq!(child.session, first.tree.children()[0].session);
    assert_eq!(answer(child).as_deref(), Some("leaf done"));
    assert_eq!(second.finish_reason.as_deref(), Some("completed"));
    assert!(second.events.iter().any(|event| event.frame().contains("two")));
    drop(onlooker);
    ended(harness, &real).await;
}
