//! L1–L4, L8, L10, L17: children are stored, then announced.

use std::collections::HashSet;

use offspring_protocol::{Event, RunState, SessionLimits};
use offspring_sessions::{Refused, Scope, SessionManager, StoreError};

use crate::world::*;

on_stores! {
    async fn l1_no_reader_ever_sees_a_childs_event_without_its_row(world) {
        let mut bus = world.manager.subscribe(Scope::All);
        let store = world.store.inner();
        let reader = tokio::spawn(async move {
            let mut seen = 0;
            while let Some(envelope) = bus.recv().await.unwrap() {
                assert!(store.session(envelope.session.id.clone()).await.unwrap().is_some());
                if let Event::SpawnSessionStart(spawn) = envelope.event.parse().unwrap() {
                    let row = store.session(spawn.child_session_id).await.unwrap().unwrap();
                    assert_eq!(row.data.parent_id, Some(spawn.parent_session_id));
                    assert!(row.last_run.is_some());
                }
                seen += 1;
                if envelope.event.kind() == "stream_complete" && envelope.session.depth == 0 {
                    return seen;
                }
            }
            panic!("the bus ended early");
        });
        let root = world.root().await;
        for n in 0..20 {
            let child = child_of(&root, &format!("n{n}")).await;
            child.context.emit(text("hello")).await.unwrap();
            child.end.finish(Ok("hi".into())).await.unwrap();
        }
        root.end.finish(Ok("all".into())).await.unwrap();
        assert!(reader.await.unwrap() > 100);
    }

    async fn l1_row_run_and_spawn_are_one_batch_that_shows_nothing_when_it_fails(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let mut bus = world.manager.subscribe(Scope::All);
        world.store.fail(no_rows);
        let refused = root.context.create_child(child("a")).await.unwrap_err();
        assert!(matches!(refused, Refused::Store(StoreError::Full { .. })), "{refused}");
        world.store.heal();
        assert!(world.manager.children(&root_id).await.unwrap().is_empty());
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 0);
        // The run ends all the same, and nobody ever heard of the child.
        root.end.finish(Ok("done".into())).await.unwrap();
        loop {
            let envelope = bus.recv().await.unwrap().unwrap();
            assert_ne!(envelope.event.kind(), "spawn_session_start");
            if envelope.event.kind() == "status_changed" && envelope.event.data().get().contains("completed") {
                break;
            }
        }
    }

    async fn l1_whoever_asked_for_a_child_and_went_away_leaves_no_open_run(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        root.context.record_process("settled".to_owned()).await.unwrap();
        world.store.hold();
        {
            let asked = root.context.create_child(child("a"));
            tokio::pin!(asked);
            tokio::select! {
                biased;
                _ = &mut asked => panic!("the commit is held"),
                () = world.store.held_up(1) => {}
            }
        }
        world.store.let_go();
        root.end.tree_at_rest().await;
        let children = world.manager.children(&root_id).await.unwrap();
        assert_eq!(children.len(), 1, "it was in the store before it was known that nobody wants it");
        assert_eq!(children[0].run_state().unwrap().outcome().unwrap().as_str(), "interrupted");
        root.end.finish(Ok("done".into())).await.unwrap();
    }

    async fn l2_one_spawn_per_child_also_when_an_agent_reports_one_itself(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let child = child_of(&root, "a").await;
        let lines = log(&world.manager, &root_id).await;
        let spawn = lines.iter().find(|line| line.event.kind() == "spawn_session_start").unwrap();
        root.context.emit(spawn.event.parse().unwrap()).await.unwrap();
        root.context.emit(Event::Other(spawn.event.clone())).await.unwrap();
        child.end.finish(Ok("a".into())).await.unwrap();
        root.end.finish(Ok("r".into())).await.unwrap();
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 1);
        let lines = log(&world.manager, &root_id).await;
        let reported = lines.iter().filter(|line| line.event.data().get().contains("reported.spawn_session_start"));
        assert_eq!(reported.count(), 2, "what it said is kept as what it is");
    }

    async fn l3_a_child_inherits_project_and_directory_and_relative_ones_resolve_against_the_parents(world) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let cwd = dir.path().to_str().unwrap().to_owned();
        let mut new = root();
        new.cwd = Some(cwd.clone());
        let root = world.manager.create_root(new).await.unwrap().start("x").await.unwrap();
        assert_eq!(root.context.data().project_id.as_ref().unwrap().as_str(), "global");
        let heir = child_of(&root, "heir").await;
        assert_eq!(heir.context.data().cwd.as_deref(), Some(cwd.as_str()));
        assert_eq!(heir.context.data().project_id, root.context.data().project_id);
        let mut new = child("own");
        new.cwd = Some("sub".to_owned());
        let own = heir.context.create_child(new).await.unwrap();
        assert_eq!(own.data().cwd.as_deref(), dir.path().join("sub").to_str());
        drop(own);
    }

    async fn l3_unset_stays_unset(world) {
        let root = world.root().await;
        let child = child_of(&root, "a").await;
        assert_eq!((child.context.data().cwd.clone(), child.context.data().project_id.clone()), (None, None));
    }

    async fn l3_a_missing_directory_fails_before_anything_exists(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        root.context.record_process("settled".to_owned()).await.unwrap();
        let before = log(&world.manager, &root_id).await.len();
        for cwd in ["/nowhere/at/all", "relative/without/base", "/dev/null"] {
            let mut new = child("a");
            new.cwd = Some(cwd.to_owned());
            let refused = root.context.create_child(new).await.unwrap_err();
            assert!(matches!(refused, Refused::Cwd { .. }), "{refused}");
        }
        assert!(world.manager.children(&root_id).await.unwrap().is_empty());
        assert_eq!(log(&world.manager, &root_id).await.len(), before);
        let mut new = crate::world::root();
        new.cwd = Some(".".to_owned());
        assert!(matches!(world.manager.create_root(new).await, Err(Refused::Cwd { .. })));
        assert_eq!(world.manager.roots(10).await.unwrap().len(), 1);
    }

    async fn l3_a_child_of_an_unknown_parent_is_the_root_of_its_own_tree_with_depth_1(world) {
        let mut wide = child("a");
        wide.limits = SessionLimits { max_depth: Some(99), ..SessionLimits::UNBOUNDED };
        let orphan = world.manager.create_child(&id("nobody"), wide).await.unwrap();
        let info = orphan.session().clone();
        assert_eq!((info.depth, &info.root, info.parent.as_ref()), (1, &info.id, Some(&id("nobody"))));
        assert_eq!(orphan.data().limits, SessionLimits::default(), "never more than the default policy");
        let run = orphan.start("x").await.unwrap();
        let below = child_of(&run, "b").await;
        assert_eq!(below.context.depth(), 2);
        assert_eq!(below.context.session().path.to_vec(), vec![info.id.clone(), below.context.session().id.clone()]);
        let lines = log(&world.manager, &info.id).await;
        assert_eq!((lines[0].seq, lines[0].event.kind()), (1, "spawn_session_start"));
        // The parent turns up later: still two trees, also for whoever reads them anew.
        let late = world.manager.ensure_session(&id("nobody"), None).await.unwrap();
        assert_eq!(late.info.depth, 0);
        drop(below);
        run.end.finish(Ok("x".into())).await.unwrap();
        let again = world.reloaded();
        assert_eq!(again.ensure_session(&info.id, None).await.unwrap().info.path.to_vec(), vec![info.id.clone()]);
        let of_parent = again.resume_root(&id("nobody")).await.unwrap().start("x").await.unwrap();
        let lines = log(&again, &info.id).await.len();
        let of_orphan = again.resume_child(&info.id).await.unwrap().start("y").await.unwrap();
        of_orphan.end.finish(Ok("y".into())).await.unwrap();
        assert!(log(&again, &info.id).await.len() > lines, "its own log, not that of the other tree");
        of_parent.end.tree_at_rest().await;
    }

    async fn l4_spawn_events_and_row_agree_on_depth_at_every_level(world) {
        let mut bus = world.manager.subscribe(Scope::All);
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let mut chain = vec![root];
        for depth in 1..=10_u32 {
            let next = child_of(chain.last().unwrap(), &format!("n{depth}")).await;
            assert_eq!(next.context.depth(), depth);
            chain.push(next);
        }
        for run in chain.into_iter().rev() {
            run.end.finish(Ok("x".into())).await.unwrap();
        }
        for record in world.manager.descendants(&root_id).await.unwrap() {
            let path = world.reloaded().path(&record.data.id).await.unwrap();
            assert_eq!(path.len(), record.data.depth as usize + 1);
        }
        for line in log(&world.manager, &root_id).await {
            let envelope = bus.recv().await.unwrap().unwrap();
            assert_eq!((envelope.seq, &envelope.session.id), (line.seq, &line.session));
            let row = world.manager.session(&line.session).await.unwrap().unwrap().data;
            assert_eq!(row.depth, envelope.session.depth);
            if let Event::SpawnSessionStart(spawn) = line.event.parse().unwrap() {
                assert_eq!(spawn.depth, row.depth + 1);
                assert_eq!(spawn.path.len(), spawn.depth as usize + 1);
            }
        }
    }

    async fn l10_the_started_run_names_the_session_of_its_spawn(world) {
        let root = world.root().await;
        let child = child_of(&root, "a").await;
        child.end.finish(Ok("x".into())).await.unwrap();
        let lines = log(&world.manager, &root.context.session().id).await;
        let mut spawned = Vec::new();
        let mut started = Vec::new();
        for line in lines {
            match line.event.parse().unwrap() {
                Event::SpawnSessionStart(spawn) => spawned.push(spawn.child_session_id),
                Event::RunStarted(run) if run.parent_session_id.is_some() => {
                    assert_eq!(run.session_id, line.session);
                    started.push(run.session_id);
                }
                _ => {}
            }
        }
        assert_eq!(spawned, started);
    }

    async fn l17_a_childs_limits_narrow_at_every_level(world) {
        let root = world.root().await;
        let mut new = child("a");
        new.limits = SessionLimits { max_descendants: Some(5), max_depth: Some(50), ..SessionLimits::UNBOUNDED };
        let a = root.context.create_child(new).await.unwrap().start("x").await.unwrap();
        let b = child_of(&a, "b").await;
        let limits = b.context.data().limits.clone();
        assert_eq!((limits.max_descendants, limits.max_depth, limits.max_live_children), (Some(5), Some(10), Some(500)));
        let stored = world.manager.session(&b.context.session().id).await.unwrap().unwrap();
        assert_eq!(stored.data.limits, limits);
    }

    async fn o2_a_late_subscriber_gets_the_whole_path_with_the_first_event(world) {
        let root = world.root().await;
        let a = child_of(&root, "a").await;
        let b = child_of(&a, "b").await;
        // Asked once everything so far is announced.
        b.context.record_process("p".to_owned()).await.unwrap();
        let mut late = world.manager.subscribe(Scope::Session(b.context.session().id.clone()));
        b.context.emit(text("x")).await.unwrap();
        let first = late.recv().await.unwrap().unwrap();
        let path = [&root, &a, &b].map(|run| run.context.session().id.clone());
        assert_eq!(first.session.path.to_vec(), path);
        assert_eq!(first.session.root, path[0]);
    }

    async fn o6_of_two_tasks_that_want_one_id_exactly_one_gets_it(world) {
        let root = world.root().await;
        let wanted = |node: &str| {
            let mut new = child(node);
            new.id = Some(id("x"));
            new
        };
        let (one, other) = tokio::join!(root.context.create_child(wanted("a")), root.context.create_child(wanted("b")));
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        let won = won.unwrap();
        let refused = lost.unwrap_err();
        assert!(matches!(refused, Refused::Store(StoreError::Taken { .. })), "{refused}");
        let row = world.manager.session(&id("x")).await.unwrap().unwrap();
        assert_eq!(row.data.agent_name, won.session().agent_name);
        assert_eq!(count(&world.manager, &root.context.session().id, "spawn_session_start").await, 1);
        // The refusal harmed nobody else in the tree.
        let run = won.start("x").await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
        child_of(&root, "c").await.end.finish(Ok("x".into())).await.unwrap();
        assert!(matches!(
            world.manager.create_root({ let mut new = crate::world::root(); new.id = Some(id("x")); new }).await,
            Err(Refused::Store(StoreError::Taken { .. }))
        ));
    }

    async fn o10_after_a_reload_children_and_descendants_are_there_and_a_follow_up_reuses_the_session(world) {
        let [r, a, b, c] = world.family().await;
        let again = world.reloaded();
        let root = again.resume_root(&r).await.unwrap().start("more").await.unwrap();
        assert_eq!(ids(&again.children(&r).await.unwrap()), [a.clone(), b.clone()]);
        assert_eq!(ids(&again.descendants(&r).await.unwrap()), [a.clone(), b.clone(), c.clone()]);
        assert_eq!(ids(&again.ancestors(&c).await.unwrap()), [b.clone(), r.clone()]);
        let follow_up = again.resume_child(&b).await.unwrap().start("more").await.unwrap();
        assert_eq!(follow_up.context.session().id, b);
        assert_eq!(follow_up.context.depth(), 1);
        follow_up.end.finish(Ok("again".into())).await.unwrap();
        root.end.finish(Ok("again".into())).await.unwrap();
        assert_eq!(again.store().runs(b.clone()).await.unwrap().len(), 2);
        assert_eq!(count(&again, &r, "spawn_session_start").await, 3);
        assert_eq!(again.session(&b).await.unwrap().unwrap().run_state(), Some(RunState::Ended(
            offspring_protocol::Outcome::Completed
        )));
    }
}

#[tokio::test]
async fn l8_without_a_store_ids_are_made_and_events_emitted_and_nothing_is_kept() {
    let manager = SessionManager::detached();
    let mut bus = manager.subscribe(Scope::All);
    let root = manager.create_root(root()).await.unwrap().start("x").await.unwrap();
    let root_id = root.context.session().id.clone();
    let child = child_of(&root, "a").await;
    let child_id = child.context.session().id.clone();
    assert_eq!(ids(&manager.children(&root_id).await.unwrap()), std::slice::from_ref(&child_id));
    child.context.emit(text("hi")).await.unwrap();
    child.end.finish(Ok("a".into())).await.unwrap();
    root.end.finish(Ok("r".into())).await.unwrap();
    let mut seqs = Vec::new();
    let mut seen = HashSet::new();
    while seqs.len() < 11 {
        let envelope = bus.recv().await.unwrap().unwrap();
        seqs.push(envelope.seq);
        seen.insert(envelope.session.id.clone());
    }
    assert_eq!(seqs, (1..=11).collect::<Vec<u64>>());
    assert_eq!(seen, HashSet::from([root_id.clone(), child_id.clone()]));
    assert!(log(&manager, &root_id).await.is_empty());
    let row = manager.session(&child_id).await.unwrap().unwrap();
    assert_eq!(row.run_state().unwrap().outcome().unwrap().as_str(), "completed");
    assert!(manager.close().await.unwrap().stuck.is_empty());
}
