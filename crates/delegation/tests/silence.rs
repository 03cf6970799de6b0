//! A run that says nothing for longer than it may fails; one that waits for somebody is not silent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod world;

use std::{sync::Arc, time::Duration};

use offspring_delegation::{DelegatorOptions, SlotLimits, Subagent, TaskRequest, Team};
use offspring_protocol::{
    Event, Outcome, RunState,
    event::{TextDelta, ToolCallStart},
};
use offspring_sessions::{RunContext, Silence, store::EventQuery};
use tokio::time::{Instant, sleep};
use world::*;

const LIMIT: Duration = Duration::from_secs(1);
/// Within the limit.
const PAUSE: Duration = Duration::from_millis(900);

async fn say(cx: &RunContext) {
    cx.emit(Event::TextDelta(TextDelta { text: "still here".to_owned() })).await.unwrap();
}

/// Fails as silent, and that was so long after its begin.
async fn fails_after(world: &World, mut agent: Scripted, bound: Duration) {
    agent.max_silence = Some(LIMIT);
    let began = Instant::now();
    let (root, result) = world.run(agent.node(), "x").await;
    assert_eq!(result.outcome, Outcome::Failed, "{result:?}");
    let error = "timeout: it said nothing for 1.0s, and its limit is 1s (max_silence_ms)";
    assert_eq!(result.error.as_deref(), Some(error));
    let took = began.elapsed();
    assert!(took >= bound && took < bound + Duration::from_millis(100), "{took:?}, not {bound:?}");
    let run = world.manager.session(&root).await.unwrap().unwrap().last_run.unwrap();
    assert_eq!(run.state, RunState::Ended(Outcome::Failed));
    let query = EventQuery { root: root.clone(), session: Some(root), after: 0, limit: usize::MAX };
    let lines = world.manager.events(query).await.unwrap();
    let codes = lines
        .iter()
        .filter(|line| matches!(line.event.parse(), Ok(Event::RunError(error)) if error.code == "timeout"));
    assert_eq!(codes.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn w8_a_run_that_says_nothing_for_longer_than_it_may_fails_as_timed_out() {
    let world = World::new();
    fails_after(&world, Scripted::new("never", |_, _cx| std::future::pending()), LIMIT).await;
    let talks = Scripted::new("talks", |_, cx| async move {
        for n in 0..4 {
            // moment: of a clock that is paused and jumps
            sleep(PAUSE).await;
            // An event of any kind, or a sign of life that is none.
            match n {
                0 => cx.heard(),
                1 => {
                    let call = ToolCallStart {
                        tool_call_id: offspring_protocol::ToolCallId::new("c").unwrap(),
                        tool_name: "t".to_owned(),
                        title: String::new(),
                        input: None,
                    };
                    cx.emit(Event::ToolCallStart(call)).await.unwrap();
                }
                _ => say(&cx).await,
            }
        }
        std::future::pending().await
    });
    fails_after(&world, talks, 4 * PAUSE + LIMIT).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_child_is_not_silent_until_that_is_over() {
    let world = World::new();
    let slow = Scripted::new("slow", |_, _cx| async {
        // moment: of a clock that is paused and jumps
        sleep(10 * LIMIT).await;
        Ok("at last".into())
    });
    world.delegator.add(slow.node());
    for waits in [true, false] {
        let delegator = world.delegator.clone();
        let boss = Scripted::new("boss", move |_, cx| {
            let delegator = delegator.clone();
            async move {
                let cx = Arc::new(cx);
                let request = TaskRequest::new(name("slow"), "x");
                match waits {
                    true => drop(Subagent::new(&delegator).task(&cx, request).await.unwrap()),
                    // It lives on in the background.
                    false => drop(Subagent::new(&delegator).task_async(&cx, request).await.unwrap()),
                }
                std::future::pending().await
            }
        });
        fails_after(&world, boss, 10 * LIMIT + LIMIT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_turn_is_not_silent() {
    let slots = SlotLimits { max_active: 1, ..SlotLimits::default() };
    let world = World::with(DelegatorOptions { slots, ..DelegatorOptions::default() });
    let member = |called: &str| {
        let mut member = Scripted::new(called, |_, _cx| async {
            // moment: of a clock that is paused and jumps
            sleep(PAUSE).await;
            Ok("in time".into())
        });
        member.takes_slot = true;
        member.max_silence = Some(LIMIT);
        member.node()
    };
    let members = ["a", "b", "c", "d"].map(member).to_vec();
    let team = offspring_delegation::Node::Team(Arc::new(Team::new(name("t"), members)));
    let (_, result) = world.run(team, "x").await;
    assert_eq!(result.answer.matches("in time").count(), 4, "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_hears_how_long_a_session_has_been_silent_and_how_long_it_may() {
    let world = World::new();
    let stage = Stage::new();
    for limit in [Some(LIMIT * 10), None] {
        let played = stage.clone();
        let mut agent = Scripted::new("a", move |_, _cx| {
            let stage = played.clone();
            async move {
                stage.play().await;
                Ok("done".into())
            }
        });
        agent.max_silence = limit;
        let run = world.delegator.run_root(agent.node(), "x".into(), Default::default()).await.unwrap();
        stage.arrived(1).await;
        let id = run.session.id.clone();
        tokio::time::advance(PAUSE).await;
        assert_eq!(world.manager.silence(&id), Some(Silence { lasts: PAUSE, limit }));
        stage.let_go(1);
        bounded(run.result).await.unwrap();
        assert_eq!(world.manager.silence(&id), None, "it has ended");
    }
    assert_eq!(world.manager.silence(&id("nobody")), None);
}
