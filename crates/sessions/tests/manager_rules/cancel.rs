//! L14: the gate from the top, then the leaves.

use std::{sync::Arc, time::Duration};

use offspring_protocol::{Outcome, RunState, SessionId};
use offspring_sessions::{
    CancelAnswer, CancelScope, ManagerOptions, Refused, RunError, Scope, SessionManager, StartedRun,
    StoreError,
};
use proptest::prelude::*;
use tokio::task::JoinHandle;

use crate::world::*;

/// An agent that works until it is asked to stop.
fn works(run: StartedRun) -> JoinHandle<Outcome> {
    tokio::spawn(async move {
        run.context.stop_requested().cancelled().await;
        run.end.finish(Err(RunError::interrupted("cancelled", "stopped"))).await.unwrap()
    })
}

/// r > a > c, r > b, all at work.
async fn at_work(world: &World) -> [SessionId; 4] {
    let r = world.root().await;
    let a = child_of(&r, "a").await;
    let b = child_of(&r, "b").await;
    let c = child_of(&a, "c").await;
    let ids = [&r, &a, &b, &c].map(|run| run.context.session().id.clone());
    for run in [r, a, b, c] {
        works(run);
    }
    ids
}

async fn state(manager: &SessionManager, id: &SessionId) -> RunState {
    manager.session(id).await.unwrap().unwrap().run_state().unwrap()
}

on_stores! {
    async fn l14_o18_a_cancel_ends_each_run_once_leaves_first_and_leaves_the_rest_alone(world) {
        let [r, a, b, c] = at_work(&world).await;
        let cancelled = world.manager.cancel(&a, CancelScope::Subtree).await.unwrap();
        assert_eq!((cancelled.ended, cancelled.stuck), (vec![c.clone(), a.clone()], vec![]));
        assert_eq!(state(&world.manager, &b).await, RunState::Running);
        let cancelled = world.manager.cancel(&r, CancelScope::Subtree).await.unwrap();
        assert_eq!(cancelled.ended, [b.clone(), r.clone()]);
        let ends: Vec<_> = log(&world.manager, &r).await.into_iter()
            .filter(|line| line.event.kind() == "stream_complete").map(|line| line.session).collect();
        assert_eq!(ends, [c.clone(), a.clone(), b.clone(), r.clone()]);
        for id in [&r, &a, &b, &c] {
            assert_eq!(state(&world.manager, id).await, RunState::Ended(Outcome::Cancelled));
        }
        assert_eq!(count(&world.manager, &r, "run_error").await, 0);
    }

    async fn l14_cancelling_twice_is_harmless_also_at_once(world) {
        let [r, ..] = at_work(&world).await;
        let (one, two) = tokio::join!(
            world.manager.cancel(&r, CancelScope::Subtree),
            world.manager.cancel(&r, CancelScope::Subtree)
        );
        assert!(one.unwrap().stuck.is_empty() && two.unwrap().stuck.is_empty());
        assert!(world.manager.cancel(&r, CancelScope::Subtree).await.unwrap().ended.is_empty());
        assert_eq!(count(&world.manager, &r, "stream_complete").await, 4);
        // The gate is open again: a new prompt starts anew.
        let run = world.manager.resume_root(&r).await.unwrap().start("x").await.unwrap();
        child_of(&run, "d").await.end.finish(Ok("d".into())).await.unwrap();
        assert_eq!(run.end.finish(Ok("x".into())).await.unwrap(), Outcome::Completed);
        assert!(matches!(
            world.manager.cancel(&id("nobody"), CancelScope::Subtree).await,
            Err(Refused::UnknownSession { .. })
        ));
    }

    async fn l14_while_it_cancels_nothing_new_starts_below(world) {
        let r = world.root().await;
        let idle = child_of(&r, "idle").await;
        let idle_id = idle.context.session().id.clone();
        idle.end.finish(Ok("x".into())).await.unwrap();
        let r_id = r.context.session().id.clone();
        let manager = world.manager.clone();
        let cancel = tokio::spawn(async move { manager.cancel(&r_id, CancelScope::Subtree).await.unwrap() });
        r.context.stop_requested().cancelled().await;
        assert!(matches!(r.context.create_child(child("x")).await, Err(Refused::Cancelled)));
        assert!(matches!(world.manager.create_child(&idle_id, child("x")).await, Err(Refused::Cancelled)));
        assert!(matches!(world.manager.resume_child(&idle_id).await, Err(Refused::Cancelled)));
        assert!(r.end.is_cancelled());
        // However it ends, it was cancelled.
        assert_eq!(r.end.finish(Ok("too late".into())).await.unwrap(), Outcome::Cancelled);
        assert_eq!(cancel.await.unwrap().ended.len(), 1);
        // Its right to act is gone for good, although the gate is open.
        assert!(matches!(r.context.create_child(child("x")).await, Err(Refused::Cancelled)));
    }

    async fn l14_the_end_of_one_cancel_opens_no_gate_of_another(world) {
        let r = world.root().await;
        let a = child_of(&r, "a").await;
        let [r_id, a_id] = [&r, &a].map(|run| run.context.session().id.clone());
        let stop = r.context.stop_requested();
        let (manager, top) = (world.manager.clone(), r_id.clone());
        let whole = tokio::spawn(async move { manager.cancel(&top, CancelScope::Subtree).await.unwrap() });
        a.context.stop_requested().cancelled().await;
        let (manager, top) = (world.manager.clone(), a_id.clone());
        let part = tokio::spawn(async move { manager.cancel(&top, CancelScope::Subtree).await.unwrap() });
        tokio::task::yield_now().await;
        a.end.finish(Ok("a".into())).await.unwrap();
        part.await.unwrap();
        stop.cancelled().await;
        assert!(matches!(world.manager.create_child(&a_id, child("x")).await, Err(Refused::Cancelled)));
        r.end.finish(Ok("r".into())).await.unwrap();
        whole.await.unwrap();
        drop(world.manager.create_child(&a_id, child("x")).await.unwrap());
    }

    async fn l14_a_child_that_is_being_made_when_the_gate_closes_never_runs(world) {
        let r = world.root().await;
        let r_id = r.context.session().id.clone();
        r.context.record_process("settled".to_owned()).await.unwrap();
        world.store.hold();
        let (stop, end) = (r.context.stop_requested(), r.end);
        let over = tokio::spawn(async move {
            stop.cancelled().await;
            end.finish(Ok("x".into())).await.unwrap()
        });
        let r = Arc::new(r.context);
        let maker = Arc::clone(&r);
        let made = tokio::spawn(async move { maker.create_child(child("a")).await.map(drop) });
        world.store.held_up(1).await;
        let (manager, top) = (world.manager.clone(), r_id.clone());
        let cancel = tokio::spawn(async move { manager.cancel(&top, CancelScope::Subtree).await.unwrap() });
        // The gate is closed before anything else happens.
        while !matches!(world.manager.resume_root(&r_id).await, Err(Refused::Cancelled)) {
            tokio::task::yield_now().await;
        }
        assert!(!r.stop_requested().is_cancelled(), "the child that is being stored is a leaf and comes first");
        world.store.let_go();
        assert!(matches!(made.await.unwrap(), Err(Refused::Cancelled)));
        assert!(cancel.await.unwrap().stuck.is_empty());
        assert_eq!(over.await.unwrap(), Outcome::Cancelled);
        let children = world.manager.children(&r_id).await.unwrap();
        assert_eq!(children[0].run_state(), Some(RunState::Ended(Outcome::Cancelled)));
    }

    async fn l14_cancelling_one_run_leaves_its_children_alive(world) {
        let r = world.root().await;
        let a = child_of(&r, "a").await;
        let [r_id, a_id] = [&r, &a].map(|run| run.context.session().id.clone());
        let over = works(r);
        let cancelled = world.manager.cancel(&r_id, CancelScope::Run).await.unwrap();
        assert_eq!(cancelled.ended, [r_id]);
        assert_eq!(over.await.unwrap(), Outcome::Cancelled);
        assert_eq!(state(&world.manager, &a_id).await, RunState::Running);
        assert!(!a.context.stop_requested().is_cancelled());
        a.end.finish(Ok("a".into())).await.unwrap();
        assert!(world.manager.cancel(&a_id, CancelScope::Run).await.unwrap().ended.is_empty());
    }

    async fn l14_closing_cancels_refuses_and_closes_the_store_last(world) {
        let [r, a, ..] = at_work(&world).await;
        let mut bus = world.manager.subscribe(Scope::All);
        let closed = world.manager.close().await.unwrap();
        assert_eq!(closed.ended.len(), 4);
        assert_eq!(*world.store.closed_at.lock().unwrap(), Some(world.store.commits()), "nothing was written after it");
        let mut ends = 0;
        while let Some(envelope) = bus.recv().await.unwrap() {
            ends += usize::from(envelope.event.kind() == "stream_complete");
        }
        assert_eq!(ends, 4);
        assert!(matches!(world.manager.create_root(root()).await, Err(Refused::Closing)));
        assert!(matches!(world.manager.create_child(&r, child("x")).await, Err(Refused::Closing)));
        assert!(matches!(world.manager.resume_child(&a).await, Err(Refused::Closing)));
        assert!(matches!(world.manager.subscribe(Scope::All).recv().await, Ok(None)));
        assert!(world.manager.close().await.unwrap().ended.is_empty());
        assert!(matches!(world.store.inner().session(r).await, Err(StoreError::Closed)));
    }

    async fn l14_a_root_that_is_being_made_when_the_manager_closes_is_not_left_open(world) {
        world.store.hold();
        let manager = world.manager.clone();
        let made = tokio::spawn(async move { manager.create_root(root()).await });
        world.store.held_up(1).await;
        let manager = world.manager.clone();
        let close = tokio::spawn(async move { manager.close().await.unwrap() });
        tokio::task::yield_now().await;
        world.store.let_go();
        match made.await.unwrap() {
            Ok(root) => drop(root),
            Err(refused) => assert!(matches!(refused, Refused::Closing)),
        }
        let closed = close.await.unwrap();
        assert!(closed.stuck.is_empty());
        assert_eq!(*world.store.closed_at.lock().unwrap(), Some(world.store.commits()));
        assert_eq!(world.store.commits(), 2, "the row and its end");
    }

    async fn l14_another_process_asks_the_owner_and_gets_its_answer(world) {
        let [r, ..] = at_work(&world).await;
        // It sees another owner, who lives.
        let other = Watched::new(world.store.inner());
        *other.own_name.lock().unwrap() = Some("own_other".parse().unwrap());
        other.alive.lock().unwrap().push(world.store.owner_name());
        let other = SessionManager::new(Arc::new(other), ManagerOptions::default());
        assert!(matches!(other.cancel(&r, CancelScope::Subtree).await, Err(Refused::UnknownSession { .. })));
        assert!(matches!(other.resume_root(&r).await, Err(Refused::Foreign { .. })));
        let answer = other.request_cancel(&r).await.unwrap();
        match answer {
            CancelAnswer::Owner(words) => assert_eq!(words, "cancelled 4 sessions"),
            // All runs ended before the owner had written its answer.
            CancelAnswer::AtRest => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(state(&world.manager, &r).await, RunState::Ended(Outcome::Cancelled));
        assert_eq!(other.request_cancel(&r).await.unwrap(), CancelAnswer::AtRest);
        assert!(matches!(other.request_cancel(&id("nobody")).await, Err(Refused::UnknownSession { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn l14_a_slow_store_keeps_no_agent_from_being_stopped() {
    let world = World::memory();
    let r = world.root().await;
    let r_id = r.context.session().id.clone();
    r.context.record_process("settled".to_owned()).await.unwrap();
    world.store.hold();
    let context = Arc::new(r.context);
    let maker = Arc::clone(&context);
    let made = tokio::spawn(async move { maker.create_child(child("a")).await.map(drop) });
    world.store.held_up(1).await;
    let began = tokio::time::Instant::now();
    let (manager, top) = (world.manager.clone(), r_id.clone());
    let cancel = tokio::spawn(async move { manager.cancel(&top, CancelScope::Subtree).await.unwrap() });
    context.stop_requested().cancelled().await;
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    world.store.let_go();
    r.end.finish(Ok("x".into())).await.unwrap();
    assert!(cancel.await.unwrap().stuck.is_empty());
    assert!(matches!(made.await.unwrap(), Err(Refused::Cancelled)));
    for row in world.manager.subtree(&r_id).await.unwrap() {
        assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Cancelled)));
    }
}

#[tokio::test(start_paused = true)]
async fn l14_who_does_not_stop_is_named_within_twice_the_bound() {
    let world = World::memory();
    let r = world.root().await;
    let a = child_of(&r, "a").await;
    let b = child_of(&a, "b").await;
    let [r_id, a_id, b_id] = [&r, &a, &b].map(|run| run.context.session().id.clone());
    let over = works(a);
    let began = tokio::time::Instant::now();
    let cancelled = world.manager.cancel(&r_id, CancelScope::Subtree).await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(41), "{:?}", began.elapsed());
    assert_eq!((cancelled.ended, cancelled.stuck), (vec![a_id], vec![b_id, r_id.clone()]));
    over.await.unwrap();
    // They end as cancelled all the same.
    assert_eq!(b.end.finish(Ok("late".into())).await.unwrap(), Outcome::Cancelled);
    assert_eq!(r.end.finish(Ok("late".into())).await.unwrap(), Outcome::Cancelled);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Agents that make children as fast as they can, and a cancel at any moment.
    #[test]
    fn l14_children_made_while_a_cancel_comes_never_leave_an_open_run(makers in 1_usize..4, yields in 0_usize..25) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let world = World::memory();
            let root = world.root().await;
            let root_id = root.context.session().id.clone();
            let context = Arc::new(root.context);
            let makers: Vec<_> = (0..makers).map(|_| {
                let context = Arc::clone(&context);
                tokio::spawn(async move {
                    while let Ok(made) = context.create_child(child("n")).await {
                        let Ok(run) = made.start("x").await else { break };
                        works(run);
                        // Or it would fill the limit in one go.
                        tokio::task::yield_now().await;
                    }
                })
            }).collect();
            let stop = context.stop_requested();
            let end = root.end;
            let root_over = tokio::spawn(async move {
                stop.cancelled().await;
                end.finish(Ok("x".into())).await.unwrap()
            });
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            let cancelled = world.manager.cancel(&root_id, CancelScope::Subtree).await.unwrap();
            assert!(cancelled.stuck.is_empty());
            assert_eq!(root_over.await.unwrap(), Outcome::Cancelled);
            let rows = world.manager.subtree(&root_id).await.unwrap();
            for row in &rows {
                assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Cancelled)));
            }
            let ends = count(&world.manager, &root_id, "stream_complete").await;
            assert_eq!(ends, rows.len());
            for maker in makers {
                maker.await.unwrap();
            }
            assert_eq!(world.manager.subtree(&root_id).await.unwrap().len(), rows.len());
        });
    }
}
