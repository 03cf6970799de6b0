//! Deleting never orphans.

use offspring_protocol::Event;
use offspring_sessions::{Refused, Retained, Retention, StoreError};

use crate::world::*;

on_stores! {
    async fn l3_deleting_a_subtree_takes_all_below_it_and_nothing_else(world) {
        let [r, a, b, c] = world.family().await;
        let deleted = world.manager.delete(&b).await.unwrap();
        assert_eq!(deleted, [b.clone(), c.clone()]);
        for manager in [world.manager.clone(), world.reloaded()] {
            assert_eq!(ids(&manager.subtree(&r).await.unwrap()), [r.clone(), a.clone()]);
            assert!(manager.session(&c).await.unwrap().is_none());
            assert!(log(&manager, &r).await.iter().all(|line| line.session == r || line.session == a));
        }
        assert!(matches!(world.manager.delete(&b).await, Err(Refused::UnknownSession { .. })));
        // The tree goes on, and its numbers too.
        let last = log(&world.manager, &r).await.last().unwrap().seq;
        let run = world.manager.resume_root(&r).await.unwrap().start("x").await.unwrap();
        child_of(&run, "d").await.end.finish(Ok("d".into())).await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
        assert!(log(&world.manager, &r).await.last().unwrap().seq > last);
    }

    async fn l12_what_runs_is_not_deleted_and_a_late_word_of_what_was_deleted_harms_nobody(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let child = child_of(&root, "a").await;
        let child_id = child.context.session().id.clone();
        for id in [&root_id, &child_id] {
            assert!(matches!(world.manager.delete(id).await, Err(Refused::StillRunning { .. })));
        }
        let late = child.context.emitter();
        child.end.finish(Ok("x".into())).await.unwrap();
        world.manager.delete(&child_id).await.unwrap();
        assert!(matches!(late.emit(text("late")).await, Err(StoreError::Unknown { .. })));
        root.context.emit(Event::TextDelta(offspring_protocol::event::TextDelta { text: "on".into() })).await.unwrap();
        root.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(world.manager.delete(&root_id).await.unwrap(), std::slice::from_ref(&root_id));
        assert!(world.manager.roots(10).await.unwrap().is_empty());
        // The id is free again.
        let mut new = crate::world::root();
        new.id = Some(root_id.clone());
        let run = world.manager.create_root(new).await.unwrap().start("x").await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(log(&world.manager, &root_id).await[0].seq, 1);
    }

    async fn l14_nothing_starts_in_what_is_being_deleted(world) {
        let root = world.root().await;
        let child = child_of(&root, "a").await;
        let child_id = child.context.session().id.clone();
        child.end.finish(Ok("x".into())).await.unwrap();
        world.store.hold();
        let (manager, id) = (world.manager.clone(), child_id.clone());
        let deleting = tokio::spawn(async move { manager.delete(&id).await.unwrap() });
        world.store.held_up(1).await;
        assert!(matches!(world.manager.resume_child(&child_id).await, Err(Refused::UnknownSession { .. })));
        world.store.let_go();
        assert_eq!(deleting.await.unwrap(), std::slice::from_ref(&child_id));
        assert!(world.manager.session(&child_id).await.unwrap().is_none());
    }

    async fn l14_a_delete_that_fails_leaves_everything_as_it_was(world) {
        let [r, a, ..] = world.family().await;
        world.store.fail(|_| Some(StoreError::Busy { store: "here".to_owned(), waited: std::time::Duration::ZERO }));
        assert!(matches!(world.manager.delete(&a).await, Err(Refused::Store(StoreError::Busy { .. }))));
        world.store.heal();
        drop(world.manager.resume_child(&a).await.unwrap());
        assert_eq!(world.manager.subtree(&r).await.unwrap().len(), 4);
    }

    async fn l3_retention_deletes_whole_trees_at_rest_and_keeps_what_runs(world) {
        let old = world.family().await;
        let running = world.root().await;
        let middle = world.family().await;
        let new = world.family().await;
        let gone = |retained: Retained| -> Vec<_> {
            retained.deleted.iter().map(|tree| tree.root.data.id.clone()).collect()
        };
        assert!(gone(world.manager.retain(Retention::default()).await.unwrap()).is_empty());
        let policy = Retention { keep: Some(1), ..Retention::default() };
        let would = world.manager.would_delete(policy).await.unwrap();
        assert_eq!(world.manager.roots(10).await.unwrap().len(), 4, "nothing was deleted by asking");
        let done = world.manager.retain(policy).await.unwrap();
        assert_eq!(done.in_use, std::slice::from_ref(&running.context.session().id));
        assert_eq!(done.in_use, would.in_use);
        let done = gone(done);
        assert_eq!(done, [old[0].clone(), middle[0].clone()]);
        assert_eq!(done, gone(would));
        let left = ids(&world.manager.roots(10).await.unwrap());
        assert_eq!(left, [new[0].clone(), running.context.session().id.clone()]);
        for id in old.iter().chain(&middle) {
            assert!(world.manager.session(id).await.unwrap().is_none());
        }
        assert_eq!(world.manager.subtree(&new[0]).await.unwrap().len(), 4);
        let later = offspring_protocol::Timestamp(i64::MAX);
        let policy = Retention { rested_before: Some(later), ..Retention::default() };
        assert_eq!(gone(world.manager.retain(policy).await.unwrap()), [new[0].clone()]);
    }
}
