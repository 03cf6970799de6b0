//! `max_active`: a bounded, fair queue that never gives more slots than there are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use offspring_delegation::{
    RootOptions, SlotLimits, Slots, Subagent, TaskRequest,
    slots::{QueueFull, Slot},
};
use offspring_protocol::{Outcome, RunId};
use offspring_sessions::{RunError, Scope};
use proptest::prelude::*;
use tokio::sync::oneshot;
use world::*;

type Acquiring = Pin<Box<dyn Future<Output = Result<Slot, QueueFull>>>>;
type Waiting = Pin<Box<dyn Future<Output = ()>>>;

fn slots(max_active: usize, max_queued: usize) -> Slots {
    Slots::new(SlotLimits { max_active, max_queued })
}

fn run(n: usize) -> RunId {
    RunId::new(format!("run{n}")).unwrap()
}

fn acquire(slots: &Slots, n: usize, parent: &'static str) -> Acquiring {
    let slots = slots.clone();
    Box::pin(async move { slots.acquire(&run(n), Some(&id(parent))).await })
}

/// A wait of a run for a child whose end the sender tells.
fn wait(slots: &Slots, n: usize) -> (oneshot::Sender<()>, Waiting) {
    let (ends, ended) = oneshot::channel::<()>();
    let slots = slots.clone();
    let waiting = async move {
        slots.while_waiting(&run(n), async { drop(ended.await) }).await;
    };
    (ends, Box::pin(waiting))
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[test]
fn l5_a_slot_is_given_while_one_is_free_and_comes_back_when_it_is_dropped() {
    let slots = slots(2, 10);
    let first = poll(&mut acquire(&slots, 1, "a")).unwrap().unwrap();
    let _second = poll(&mut acquire(&slots, 2, "a")).unwrap().unwrap();
    let mut third = acquire(&slots, 3, "a");
    assert!(poll(&mut third).is_none());
    assert_eq!(slots.active(), 2);
    drop(first);
    assert_eq!(slots.active(), 2, "given on");
    let third = poll(&mut third).unwrap().unwrap();
    drop(third);
    assert_eq!((slots.active(), slots.most_active()), (1, 2));
}

#[test]
fn l5_no_slots_at_all_are_one_slot() {
    let slots = slots(0, 10);
    let _one = poll(&mut acquire(&slots, 1, "a")).unwrap().unwrap();
    assert!(poll(&mut acquire(&slots, 2, "a")).is_none());
}

#[test]
fn l5_the_default_keeps_a_laptop_usable() {
    let limits = SlotLimits::default();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(limits, SlotLimits { max_active: (2 * cpus).max(4), max_queued: 10_000 });
}

#[test]
fn l5_the_queue_is_bounded_and_those_who_left_do_not_count() {
    let slots = slots(1, 3);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let mut waiting: Vec<Acquiring> = (1..=3).map(|n| acquire(&slots, n, "a")).collect();
    for waiter in &mut waiting {
        assert!(poll(waiter).is_none());
    }
    let full = poll(&mut acquire(&slots, 4, "b")).unwrap().unwrap_err();
    assert_eq!(full, QueueFull { max: 3 });
    assert!(full.to_string().contains("max_queued"), "{full}");
    // One leaves: there is room for one, and not for two.
    drop(waiting.remove(0));
    let mut fifth = acquire(&slots, 5, "b");
    assert!(poll(&mut fifth).is_none());
    assert!(poll(&mut acquire(&slots, 6, "b")).unwrap().is_err());
    // All leave, and all places are there again.
    drop((waiting, fifth));
    let mut again: Vec<Acquiring> = (7..=9).map(|n| acquire(&slots, n, "c")).collect();
    for waiter in &mut again {
        assert!(poll(waiter).is_none());
    }
    assert!(poll(&mut acquire(&slots, 10, "c")).unwrap().is_err());
    drop(held);
    assert!(poll(&mut again[0]).unwrap().is_ok());
}

/// The order in which waiters get the one slot.
fn served(slots: &Slots, held: Slot, mut waiting: BTreeMap<usize, Acquiring>) -> Vec<usize> {
    let mut served = Vec::new();
    let mut held = Some(held);
    while !waiting.is_empty() {
        drop(held.take());
        let next = waiting.iter_mut().find_map(|(n, waiter)| Some((*n, poll(waiter)?.unwrap())));
        let (n, slot) = next.expect("somebody is next");
        waiting.remove(&n);
        served.push(n);
        held = Some(slot);
        assert_eq!(slots.active(), 1);
    }
    served
}

#[test]
fn l5_the_lines_of_different_parents_take_turns() {
    let slots = slots(1, 100);
    let held = poll(&mut acquire(&slots, 0, "x")).unwrap().unwrap();
    let mut waiting = BTreeMap::new();
    let line = [(1, "team"), (2, "team"), (3, "team"), (4, "team"), (5, "other"), (6, "other"), (7, "third")];
    for (n, parent) in line {
        let mut waiter = acquire(&slots, n, parent);
        assert!(poll(&mut waiter).is_none());
        waiting.insert(n, waiter);
    }
    assert_eq!(served(&slots, held, waiting), [1, 5, 7, 2, 6, 3, 4]);
}

#[test]
fn l5_a_family_keeps_its_turn_when_its_first_has_left() {
    let slots = slots(1, 100);
    let held = poll(&mut acquire(&slots, 0, "x")).unwrap().unwrap();
    let mut waiting = BTreeMap::new();
    for (n, parent) in [(1, "team"), (2, "team"), (3, "other"), (4, "other"), (5, "other")] {
        let mut waiter = acquire(&slots, n, parent);
        assert!(poll(&mut waiter).is_none());
        waiting.insert(n, waiter);
    }
    waiting.remove(&1);
    assert_eq!(served(&slots, held, waiting), [2, 3, 4, 5]);
}

#[test]
fn l5_a_slot_given_to_somebody_who_left_is_passed_on() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (mut first, mut second) = (acquire(&slots, 1, "a"), acquire(&slots, 2, "a"));
    assert!(poll(&mut first).is_none());
    assert!(poll(&mut second).is_none());
    // Given to the first, which leaves before it looks.
    drop(held);
    drop(first);
    let second = poll(&mut second).unwrap().unwrap();
    drop(second);
    assert_eq!(slots.active(), 0);
}

#[test]
fn l5_a_run_that_waits_lends_its_slot_and_returns_before_anybody_new() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (ends, mut waits) = wait(&slots, 0);
    assert!(poll(&mut waits).is_none());
    assert_eq!(slots.active(), 0);
    let child = poll(&mut acquire(&slots, 1, "b")).unwrap().unwrap();
    let mut new = acquire(&slots, 2, "c");
    assert!(poll(&mut new).is_none());
    ends.send(()).unwrap();
    assert!(poll(&mut waits).is_none(), "the child has not ended");
    drop(child);
    assert!(poll(&mut new).is_none(), "the returning run comes first");
    assert!(poll(&mut waits).is_some());
    assert_eq!(slots.active(), 1);
    drop(held);
    assert!(poll(&mut new).unwrap().is_ok());
}

#[test]
fn l5_a_run_that_finds_a_free_slot_takes_it_back_at_once() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (ends, mut waits) = wait(&slots, 0);
    assert!(poll(&mut waits).is_none());
    ends.send(()).unwrap();
    assert!(poll(&mut waits).is_some());
    assert_eq!(slots.active(), 1);
    drop(held);
    assert_eq!(slots.active(), 0);
}

#[test]
fn l5_a_run_with_several_waits_returns_with_the_last() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (first_ends, mut first) = wait(&slots, 0);
    let (second_ends, mut second) = wait(&slots, 0);
    assert!(poll(&mut first).is_none());
    assert!(poll(&mut second).is_none());
    first_ends.send(()).unwrap();
    assert!(poll(&mut first).is_some());
    assert_eq!(slots.active(), 0, "it waits for another child");
    second_ends.send(()).unwrap();
    assert!(poll(&mut second).is_some());
    assert_eq!(slots.active(), 1);
    drop(held);
    assert_eq!(slots.active(), 0);
}

#[test]
fn l5_a_run_that_waits_again_while_it_stands_in_line_needs_no_slot() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (ends, mut first) = wait(&slots, 0);
    assert!(poll(&mut first).is_none());
    let child = poll(&mut acquire(&slots, 1, "b")).unwrap().unwrap();
    ends.send(()).unwrap();
    assert!(poll(&mut first).is_none());
    let (second_ends, mut second) = wait(&slots, 0);
    assert!(poll(&mut second).is_none());
    drop(child);
    assert!(poll(&mut first).is_some(), "it goes on without a slot");
    assert_eq!(slots.active(), 0);
    second_ends.send(()).unwrap();
    assert!(poll(&mut second).is_some());
    assert_eq!(slots.active(), 1);
    drop(held);
    assert_eq!(slots.active(), 0);
}

#[test]
fn l5_a_dropped_wait_gives_the_run_its_slot_back_in_turn() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (_ends, mut waits) = wait(&slots, 0);
    assert!(poll(&mut waits).is_none());
    let child = poll(&mut acquire(&slots, 1, "b")).unwrap().unwrap();
    let mut new = acquire(&slots, 2, "c");
    assert!(poll(&mut new).is_none());
    // The tool call was given up; the run works on.
    drop(waits);
    drop(child);
    assert_eq!(slots.active(), 1);
    assert!(poll(&mut new).is_none(), "the run that works has the slot");
    drop(held);
    assert!(poll(&mut new).unwrap().is_ok());
}

#[test]
fn l5_a_run_that_ends_while_it_stands_in_line_takes_no_slot() {
    let slots = slots(1, 10);
    let held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (ends, mut waits) = wait(&slots, 0);
    assert!(poll(&mut waits).is_none());
    let child = poll(&mut acquire(&slots, 1, "b")).unwrap().unwrap();
    ends.send(()).unwrap();
    assert!(poll(&mut waits).is_none());
    drop(held);
    assert!(poll(&mut waits).is_some(), "nothing to wait for");
    drop(child);
    assert_eq!(slots.active(), 0);
    assert!(poll(&mut acquire(&slots, 2, "c")).unwrap().is_ok());
}

#[test]
fn l5_a_run_without_a_slot_just_waits() {
    let slots = slots(1, 10);
    let _held = poll(&mut acquire(&slots, 0, "a")).unwrap().unwrap();
    let (ends, mut waits) = wait(&slots, 9);
    assert!(poll(&mut waits).is_none());
    assert_eq!(slots.active(), 1);
    ends.send(()).unwrap();
    assert!(poll(&mut waits).is_some());
    assert_eq!(slots.active(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Acquire(usize, usize),
    /// The run ends, or leaves its line.
    Drop(usize),
    Wait(usize),
    WaitOver(usize),
    WaitDropped(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = 0..12_usize;
    let step = prop_oneof![
        3 => (run.clone(), 0..3_usize).prop_map(|(run, parent)| Step::Acquire(run, parent)),
        2 => run.clone().prop_map(Step::Drop),
        2 => run.clone().prop_map(Step::Wait),
        2 => run.clone().prop_map(Step::WaitOver),
        1 => run.prop_map(Step::WaitDropped),
    ];
    proptest::collection::vec(step, 0..80)
}

/// What the queue looks like from outside: who stands in line, who holds, who waits for a child.
#[derive(Default)]
struct Model {
    acquiring: BTreeMap<usize, Acquiring>,
    slots: BTreeMap<usize, Slot>,
    waits: BTreeMap<usize, (Option<oneshot::Sender<()>>, Waiting)>,
    /// Runs whose dropped wait may still stand in line.
    dropped: BTreeSet<usize>,
}

impl Model {
    fn settle(&mut self) {
        loop {
            let came = self.acquiring.iter_mut().find_map(|(n, waiter)| Some((*n, poll(waiter)?.unwrap())));
            let back = self.waits.iter_mut().find_map(|(n, (_, waits))| poll(waits).map(|()| *n));
            if let Some((n, slot)) = came {
                self.acquiring.remove(&n);
                self.slots.insert(n, slot);
            } else if let Some(n) = back {
                self.waits.remove(&n);
            } else {
                return;
            }
        }
    }

    /// Runs that do work: each holds a slot, but for those whose wait was dropped.
    fn at_work(&self) -> usize {
        self.slots.keys().filter(|n| !self.waits.contains_key(n)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn l5_never_more_slots_than_there_are_and_none_is_lost(max_active in 1..4_usize, steps in steps()) {
        let slots = slots(max_active, 100);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Acquire(n, parent) if !model.slots.contains_key(&n) => {
                    let parent = ["a", "b", "c"][parent];
                    model.acquiring.entry(n).or_insert_with(|| acquire(&slots, n, parent));
                }
                Step::Drop(n) => {
                    model.acquiring.remove(&n);
                    model.slots.remove(&n);
                    model.dropped.remove(&n);
                    if let Some((_, mut waits)) = model.waits.remove(&n) {
                        poll(&mut waits);
                    }
                }
                Step::Wait(n) if model.slots.contains_key(&n) && !model.waits.contains_key(&n) => {
                    let (ends, mut waits) = wait(&slots, n);
                    poll(&mut waits);
                    model.waits.insert(n, (Some(ends), waits));
                }
                Step::WaitOver(n) => {
                    if let Some(ends) = model.waits.get_mut(&n).and_then(|(ends, _)| ends.take()) {
                        ends.send(()).unwrap();
                    }
                }
                Step::WaitDropped(n) if model.waits.remove(&n).is_some() => {
                    model.dropped.insert(n);
                }
                _ => {}
            }
            model.settle();
            prop_assert!(slots.active() <= max_active);
            prop_assert!(slots.most_active() <= max_active);
            // Whoever works holds a slot; a dropped wait gets its own back as soon as one is free.
            let works = model.at_work();
            prop_assert!(slots.active() <= works);
            prop_assert!(slots.active() + model.dropped.len() >= works);
            // Nobody waits while a slot is free.
            let stands_in_line = !model.acquiring.is_empty()
                || model.waits.values().any(|(ends, _)| ends.is_none());
            prop_assert!(!stands_in_line || slots.active() == max_active);
        }
        // When everybody has left, all slots are free.
        drop(model);
        prop_assert_eq!(slots.active(), 0);
        let all: Vec<_> = (100..100 + max_active).map(|n| poll(&mut acquire(&slots, n, "z"))).collect();
        prop_assert!(all.iter().all(|slot| matches!(slot, Some(Ok(_)))));
    }
}

/// An agent that takes a slot and counts how many work at once.
fn counted(called: &str, working: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Scripted {
    let (working, most) = (Arc::clone(working), Arc::clone(most));
    let mut agent = Scripted::new(called, move |_, _cx| {
        let (working, most) = (Arc::clone(&working), Arc::clone(&most));
        async move {
            most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            working.fetch_sub(1, Ordering::SeqCst);
            Ok("done".into())
        }
    });
    agent.takes_slot = true;
    agent
}

#[tokio::test]
async fn l5_of_a_team_of_fifty_never_more_than_max_active_work() {
    let world = World::with_slots(3);
    let (working, most) = (Arc::default(), Arc::default());
    let member = counted("m", &working, &most).node();
    let (root, result) = world.run(team("t", vec![member; 50]), "go").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(world.children(&root).await.len(), 50);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!((world.delegator.slots().most_active(), world.delegator.slots().active()), (3, 0));
}

#[tokio::test]
async fn l5_a_chain_of_depth_ten_finishes_with_one_slot() {
    let world = World::with_slots(1);
    let delegator = world.delegator.clone();
    let mut deep = Scripted::new("deep", move |_, cx| {
        let delegator = delegator.clone();
        async move {
            let cx = Arc::new(cx);
            if cx.depth() == 10 {
                return Ok("bottom".into());
            }
            let asked = Subagent::new(&delegator).task(&cx, TaskRequest::new(name("deep"), "go")).await;
            let below = asked.map_err(|refused| RunError::failed("refused", refused.to_string()))?;
            Ok(format!("{}<{}", below.output, cx.depth()).into())
        }
    });
    deep.takes_slot = true;
    let deep = deep.node();
    world.delegator.add(deep.clone());
    let (root, result) = world.run(deep, "go").await;
    assert_eq!(result.answer, "bottom<9<8<7<6<5<4<3<2<1<0");
    assert_eq!(world.descendants(&root).await.len(), 10);
    assert_eq!((world.delegator.slots().most_active(), world.delegator.slots().active()), (1, 0));
}

#[tokio::test]
async fn l5_a_run_that_finds_the_queue_full_fails_and_leaves_no_slot_taken() {
    let slots = SlotLimits { max_active: 1, max_queued: 1 };
    let world = World::with(offspring_delegation::DelegatorOptions { slots, ..Default::default() });
    let stage = Stage::new();
    let playing = stage.clone();
    let mut member = Scripted::new("m", move |_, _cx| {
        let stage = playing.clone();
        async move {
            stage.play().await;
            Ok("played".into())
        }
    });
    member.takes_slot = true;
    let member = member.node();
    let mut heard = world.manager.subscribe(Scope::All);
    let node = team("t", vec![member; 3]);
    let run = world.delegator.run_root(node, "go".into(), RootOptions::default()).await.unwrap();
    // Nobody is let go before the third was refused.
    while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "run_error" {}
    stage.let_go(2);
    let result = bounded(run.result).await.unwrap();
    assert_eq!(result.outcome, Outcome::Completed, "two of three are enough");
    let children = world.children(&run.session.id).await;
    let outcomes: Vec<_> =
        children.iter().map(|child| child.run_state().unwrap().outcome().unwrap()).collect();
    assert_eq!(outcomes, [Outcome::Completed, Outcome::Completed, Outcome::Failed]);
    assert!(children[2].last_run.as_ref().unwrap().error.as_ref().unwrap().contains("max_queued"));
    assert_eq!(world.delegator.slots().active(), 0);
}

#[tokio::test]
async fn l14_a_run_that_is_cancelled_while_it_waits_for_a_slot_never_starts() {
    let world = World::with_slots(1);
    let stage = Stage::new();
    let playing = stage.clone();
    let mut member = Scripted::new("m", move |_, _cx| {
        let stage = playing.clone();
        async move {
            stage.play().await;
            Ok("played".into())
        }
    });
    member.takes_slot = true;
    let member = member.node();
    let run =
        world.delegator.run_root(team("t", vec![member; 2]), "go".into(), Default::default()).await.unwrap();
    stage.arrived(1).await;
    let children = world.children(&run.session.id).await;
    let waiting = &children[1].data.id;
    bounded(world.manager.cancel(waiting, Default::default())).await.unwrap();
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    assert_eq!(world.delegator.slots().active(), 0);
    let waiting = waiting.clone();
    let log = world.log().await;
    assert!(log.starts().iter().all(|started| started.session_id != waiting));
    assert!(log.ends().contains(&(waiting, Outcome::Cancelled)));
}
