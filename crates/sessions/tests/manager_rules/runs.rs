//! L12, L19: runs end once.

use offspring_protocol::{
    Event, Outcome, RunState,
    event::{StreamComplete, TextDelta},
};
use offspring_sessions::{Refused, RunError, Scope, StoreError, store::Write};

use crate::world::*;

on_stores! {
    async fn l12_a_late_event_is_kept_marked_and_changes_nothing(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let emitter = root.context.emitter();
        root.end.finish(Ok("done".into())).await.unwrap();
        emitter.emit(text("late")).await.unwrap();
        emitter.emit(Event::StreamComplete(StreamComplete { cancelled: true, message_id: None })).await.unwrap();
        // Settled once a later commit of the tree is there.
        let again = world.manager.resume_root(&root_id).await.unwrap();
        let lines = log(&world.manager, &root_id).await;
        let late: Vec<_> = lines.iter().filter(|line| line.late).map(|line| line.event.kind()).collect();
        assert_eq!(late, ["text_delta", "custom"]);
        assert_eq!(world.manager.store().runs(root_id.clone()).await.unwrap()[0].state, RunState::Ended(Outcome::Completed));
        drop(again);
    }

    async fn l12_a_second_run_makes_no_second_row_and_no_second_spawn(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let child = child_of(&root, "a").await;
        let child_id = child.context.session().id.clone();
        assert!(matches!(world.manager.resume_child(&child_id).await, Err(Refused::StillRunning { .. })));
        child.end.finish(Err(RunError::failed("failed", "no"))).await.unwrap();
        let again = world.manager.resume_child(&child_id).await.unwrap().start("again").await.unwrap();
        assert_eq!(again.end.finish(Ok("yes".into())).await.unwrap(), Outcome::Completed);
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 1);
        let runs = world.manager.store().runs(child_id.clone()).await.unwrap();
        let states: Vec<_> = runs.iter().map(|run| (run.ordinal, run.state)).collect();
        assert_eq!(states, [(1, RunState::Ended(Outcome::Failed)), (2, RunState::Ended(Outcome::Completed))]);
        let started = kinds(&world.manager, &root_id, &child_id).await;
        assert_eq!(started.iter().filter(|kind| *kind == "run_started").count(), 2);
    }

    async fn l12_what_is_dropped_ends_as_interrupted_wherever_it_was(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        drop(announced(&root, "before").await);
        let started = child_of(&root, "during").await;
        drop(started.end);
        started.context.emit(text("still talking")).await.unwrap();
        let gave_up = announced(&root, "gave_up").await.give_up(RunError::failed("refused", "no")).await.unwrap();
        assert_eq!(gave_up, Outcome::Failed);
        root.end.tree_at_rest().await;
        let states: Vec<_> =
            world.manager.children(&root_id).await.unwrap().iter().map(|row| row.run_state().unwrap()).collect();
        let [interrupted, failed] = [Outcome::Interrupted, Outcome::Failed].map(RunState::Ended);
        assert_eq!(states, [interrupted, interrupted, failed]);
        assert_eq!(count(&world.manager, &root_id, "run_error").await, 3);
    }

    async fn l12_a_start_that_is_dropped_or_fails_leaves_no_open_run(world) {
        let root = world.root().await;
        let child = announced(&root, "a").await;
        drop(child.start("never polled"));
        root.end.tree_at_rest().await;
        let child = announced(&root, "b").await;
        world.store.fail(|batch| {
            batch.writes.iter().any(|write| matches!(write, Write::Run(run) if run.state == RunState::Running))
                .then(|| StoreError::Full { store: "here".to_owned(), free_bytes: Some(0), detail: String::new() })
        });
        let run = child.start("x").await.unwrap();
        run.context.stop_requested().cancelled().await;
        assert!(matches!(run.context.emit(text("x")).await, Err(StoreError::Full { .. })));
        world.store.heal();
        run.end.finish(Ok("x".into())).await.unwrap();
        root.end.tree_at_rest().await;
    }

    async fn l12_a_finish_that_is_dropped_while_it_waits_still_ends_the_run(world) {
        let root = world.root().await;
        let child = child_of(&root, "a").await;
        let child_id = child.context.session().id.clone();
        child.context.record_process("settled".to_owned()).await.unwrap();
        world.store.hold();
        {
            let finish = child.end.finish(Ok("x".into()));
            tokio::pin!(finish);
            tokio::select! {
                biased;
                _ = &mut finish => panic!("the commit is held"),
                () = world.store.held_up(1) => {}
            }
        }
        world.store.let_go();
        root.end.tree_at_rest().await;
        let row = world.manager.session(&child_id).await.unwrap().unwrap();
        assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Completed)));
    }

    async fn l12_the_outcome_comes_from_the_terminal_event_and_there_is_one(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        // What an agent says of its end is a report.
        root.context.emit(Event::StreamComplete(StreamComplete { cancelled: true, message_id: None })).await.unwrap();
        assert_eq!(root.end.finish(Ok("done".into())).await.unwrap(), Outcome::Completed);
        assert_eq!(count(&world.manager, &root_id, "stream_complete").await, 1);
        let lines = log(&world.manager, &root_id).await;
        let end = lines.iter().find(|line| line.event.kind() == "stream_complete").unwrap();
        assert_eq!((end.event.parse().unwrap().terminal(), end.late), (Some(Outcome::Completed), false));
    }

    async fn l19_a_tree_is_at_rest_only_when_every_run_below_is_over(world) {
        let root = world.root().await;
        let child = child_of(&root, "a").await;
        let grandchild = child_of(&child, "b").await;
        child.end.finish(Ok("gone before its child".into())).await.unwrap();
        let rest = root.end.tree_at_rest();
        tokio::pin!(rest);
        assert!(futures_util::FutureExt::now_or_never(rest.as_mut()).is_none());
        grandchild.end.finish(Ok("x".into())).await.unwrap();
        rest.await;
    }

    async fn o4_end_message_and_late_event_in_any_order_give_completed_with_the_message(world) {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let root = world.root().await;
            let root_id = root.context.session().id.clone();
            let child = child_of(&root, "a").await;
            let child_id = child.context.session().id.clone();
            let emitter = child.context.emitter();
            let mut end = Some(child.end);
            for step in order {
                match step {
                    0 => emitter.emit(text("the message")).await.unwrap(),
                    1 => {
                        end.take().unwrap().finish(Ok("answer".into())).await.unwrap();
                    }
                    _ => emitter.emit(Event::ThinkingDelta(TextDelta { text: "tool".into() })).await.unwrap(),
                }
            }
            root.end.finish(Ok("x".into())).await.unwrap();
            let row = world.manager.session(&child_id).await.unwrap().unwrap();
            assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Completed)));
            let lines = log(&world.manager, &root_id).await;
            let of_child: Vec<_> = lines.iter().filter(|line| line.session == child_id).collect();
            let end = of_child.iter().position(|line| line.event.kind() == "stream_complete").unwrap();
            for (at, line) in of_child.iter().enumerate().filter(|(_, line)| line.run.is_some()) {
                assert_eq!(line.late, at > end, "{order:?} {}", line.event.kind());
            }
            assert!(of_child.iter().any(|line| line.event.data().get().contains("the message")));
            assert!(of_child.iter().any(|line| line.event.kind() == "message_complete" && !line.late));
        }
    }

    async fn o5_repeated_starts_and_ends_are_one_node_one_spawn_and_one_end(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let mut bus = world.manager.subscribe(Scope::All);
        let child = child_of(&root, "a").await;
        let child_id = child.context.session().id.clone();
        child.context.record_process("settled".to_owned()).await.unwrap();
        let lines = log(&world.manager, &root_id).await;
        let start = lines.iter().find(|line| line.session == child_id && line.event.kind() == "run_started").unwrap();
        for _ in 0..2 {
            child.context.emit(start.event.parse().unwrap()).await.unwrap();
        }
        let emitter = child.context.emitter();
        child.end.finish(Ok("x".into())).await.unwrap();
        emitter.emit(Event::StreamComplete(StreamComplete::default())).await.unwrap();
        root.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(world.manager.children(&root_id).await.unwrap().len(), 1);
        let kinds = kinds(&world.manager, &root_id, &child_id).await;
        for once in ["run_started", "stream_complete"] {
            assert_eq!(kinds.iter().filter(|kind| *kind == once).count(), 1, "{once}");
        }
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 1);
        let last = log(&world.manager, &root_id).await.last().unwrap().seq;
        let mut spawns = 0;
        loop {
            let envelope = bus.recv().await.unwrap().unwrap();
            spawns += usize::from(envelope.event.kind() == "spawn_session_start");
            if envelope.seq == last {
                break;
            }
        }
        assert_eq!(spawns, 1);
    }
}

#[tokio::test]
async fn l12_a_token_dropped_while_the_queue_is_full_still_ends_its_run() {
    let world = World::memory();
    let root = world.root().await;
    let root_id = root.context.session().id.clone();
    let child = child_of(&root, "a").await;
    child.context.record_process("settled".to_owned()).await.unwrap();
    world.store.hold();
    let emitter = child.context.emitter();
    let flood = tokio::spawn(async move {
        for n in 0..2_000 {
            emitter.emit(if n % 2 == 0 { text("x") } else { tokens(&format!("m{n}"), 1) }).await.unwrap();
        }
    });
    world.store.held_up(1).await;
    tokio::task::yield_now().await;
    drop(child.end);
    world.store.let_go();
    flood.await.unwrap();
    root.end.tree_at_rest().await;
    let row = &world.manager.children(&root_id).await.unwrap()[0];
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
}
