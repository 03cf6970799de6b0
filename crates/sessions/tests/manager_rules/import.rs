//! A tree copied from one store into another: all of it or nothing.

use std::{sync::Arc, time::Duration};

use offspring_protocol::{NodeName, Origin, Outcome, RunState, SessionId};
use offspring_sessions::{
    ManagerOptions, MemoryStore, NewRoot, Refused, SessionManager, SessionStore, StoreError, TreeCopy,
    store::{LogRow, SessionQuery, TreeQuery, Write},
};

use crate::world::*;

fn origin() -> Origin {
    Origin {
        manifest: "entry: root".to_owned(),
        manifest_path: None,
        node: NodeName::new("root").unwrap(),
        prompt: "do it".to_owned(),
        cwd: None,
        program_version: "0.0.1".to_owned(),
        rerun_of: Some(id("ses_older")),
    }
}

/// A tree as it can be copied: its rows, runs and lines.
async fn picture(manager: &SessionManager, root: &SessionId) -> (TreeCopy, Vec<LogRow>) {
    let mut sessions = Vec::new();
    for record in manager.subtree(root).await.unwrap() {
        let runs = manager.store().runs(record.data.id.clone()).await.unwrap();
        sessions.push((record.data, runs));
    }
    let trees = manager.store().trees(TreeQuery::Root(root.clone())).await.unwrap();
    let origin = manager.store().origin(root.clone()).await.unwrap();
    (TreeCopy { origin, sessions, last_seq: trees[0].last_seq }, log(manager, root).await)
}

async fn copied(
    manager: &SessionManager,
    (copy, lines): (TreeCopy, Vec<LogRow>),
) -> Result<offspring_sessions::Imported, Refused> {
    let mut import = manager.import(copy).await?;
    for piece in lines.chunks(3) {
        import.append(piece.to_vec()).await?;
    }
    import.finish().await
}

async fn gone(manager: &SessionManager, root: &SessionId) {
    for _ in 0..2_000 {
        if manager.session(root).await.unwrap().is_none() {
            assert!(log(manager, root).await.is_empty());
            assert!(manager.store().sessions(SessionQuery::Prefix(String::new())).await.unwrap().is_empty());
            return;
        }
        // poll: a drop cannot be waited for
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the unfinished copy is still there");
}

/// A source: r > a, r > b > c, with `a` deleted again, so that its log has gaps, and an origin.
async fn source() -> (World, SessionId) {
    let world = World::memory();
    let new = NewRoot { origin: Some(origin()), ..root() };
    let r = world.manager.create_root(new).await.unwrap().start("do it").await.unwrap();
    let a = child_of(&r, "a").await;
    let b = child_of(&r, "b").await;
    let c = child_of(&b, "c").await;
    let ids = [&r, &a].map(|run| run.context.session().id.clone());
    a.context.emit(text("words of a")).await.unwrap();
    c.context.emit(text("words of c")).await.unwrap();
    for run in [c, b, a, r] {
        run.end.finish(Ok("done".into())).await.unwrap();
    }
    world.manager.delete(&ids[1]).await.unwrap();
    (world, ids[0].clone())
}

on_stores! {
    async fn a_copy_is_the_same_tree(world) {
        let (from, root) = source().await;
        let original = picture(&from.manager, &root).await;
        let numbers: Vec<u64> = original.1.iter().map(|line| line.seq).collect();
        assert!(numbers.windows(2).any(|two| two[1] > two[0] + 1), "a log with gaps: {numbers:?}");
        assert_eq!(copied(&world.manager, original.clone()).await.unwrap().interrupted, []);
        let copy = picture(&world.manager, &root).await;
        assert_eq!(format!("{:?}", copy.0), format!("{:?}", original.0));
        assert_eq!(copy.1, original.1);
        // It is a tree like any other: it can be resumed, and goes on with the next number.
        let again = world.manager.resume_root(&root).await.unwrap().start("more").await.unwrap();
        again.end.finish(Ok("more".into())).await.unwrap();
        assert_eq!(log(&world.manager, &root).await[numbers.len()].seq, original.0.last_seq + 1);
    }

    async fn an_id_that_is_there_is_refused_and_nothing_changes(world) {
        let (from, root) = source().await;
        let original = picture(&from.manager, &root).await;
        copied(&world.manager, original.clone()).await.unwrap();
        let before = world.store.commits();
        let refused = world.manager.import(original.0.clone()).await.map(drop);
        assert!(matches!(refused, Err(Refused::Store(StoreError::Taken { .. }))), "{refused:?}");
        assert_eq!(world.store.commits(), before);
        // One of its children is taken by another tree.
        let mut other = original.clone();
        let (new, child) = (id("ses_new"), original.0.sessions[1].0.id.clone());
        for (data, runs) in &mut other.0.sessions {
            for each in [Some(&mut data.id), Some(&mut data.root_id), data.parent_id.as_mut()].into_iter().flatten() {
                if *each == root {
                    *each = new.clone();
                }
            }
            runs.iter_mut().for_each(|run| run.session_id = data.id.clone());
        }
        let refused = world.manager.import(other.0).await.map(drop);
        let Err(Refused::Store(StoreError::Taken { id, .. })) = refused else { panic!("{refused:?}") };
        assert_eq!((id, world.store.commits()), (child, before));
    }

    async fn a_copy_that_is_not_finished_is_deleted(world) {
        let (from, root) = source().await;
        let (copy, lines) = picture(&from.manager, &root).await;
        let mut import = world.manager.import(copy.clone()).await.unwrap();
        import.append(lines[..4].to_vec()).await.unwrap();
        assert!(world.manager.session(&root).await.unwrap().unwrap().run_state().unwrap().is_open());
        // Neither a sweep nor a delete of this process takes it away meanwhile.
        assert!(world.manager.recover().await.unwrap().trees.is_empty());
        assert!(matches!(world.manager.delete(&root).await, Err(Refused::StillRunning { .. })));
        import.append(lines[4..].to_vec()).await.unwrap();
        drop(import);
        gone(&world.manager, &root).await;
        // And the same with its lines out of order, or of somebody else.
        let mut import = world.manager.import(copy.clone()).await.unwrap();
        import.append(lines[4..5].to_vec()).await.unwrap();
        let refused = import.append(lines[3..4].to_vec()).await;
        assert!(matches!(refused, Err(Refused::BadCopy { .. })), "{refused:?}");
        import.abandon().await.unwrap();
        gone(&world.manager, &root).await;
        let mut import = world.manager.import(copy.clone()).await.unwrap();
        let stranger = LogRow { session: id("ses_nobody"), ..lines[0].clone() };
        let refused = import.append(vec![stranger]).await;
        let Err(Refused::BadCopy { problem }) = refused else { panic!("{refused:?}") };
        assert!(problem.contains("ses_nobody"), "{problem}");
        drop(import);
        gone(&world.manager, &root).await;
        copied(&world.manager, (copy, lines)).await.unwrap();
    }

    async fn l13_runs_that_were_open_are_interrupted_and_their_processes_left_alone(world) {
        let from = World::memory();
        let r = from.root().await;
        let a = child_of(&r, "a").await;
        a.context.record_process("pid 7".to_owned()).await.unwrap();
        a.context.emit(text("half")).await.unwrap();
        let ids = [&r, &a].map(|run| run.context.session().id.clone());
        from.manager.usage(&ids[0]).await.unwrap();
        let mut original = picture(&from.manager, &ids[0]).await;
        // Both are open in the copy.
        assert!(original.0.sessions.iter().all(|(_, runs)| runs[0].state.is_open()));
        original.0.last_seq = original.1.last().map_or(0, |line| line.seq);
        let imported = copied(&world.manager, original).await.unwrap();
        let ended: Vec<SessionId> = imported.interrupted.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ended, [ids[1].clone(), ids[0].clone()], "leaves first");
        for id in &ids {
            let record = world.manager.session(id).await.unwrap().unwrap();
            assert_eq!(record.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
            assert_eq!(record.last_run.unwrap().process, None);
        }
        assert_eq!(world.manager.recover().await.unwrap(), offspring_sessions::Recovered::default());
        for run in [a, r] {
            run.end.finish(Ok("done".into())).await.unwrap();
        }
    }

    async fn rows_that_are_no_tree_are_refused(world) {
        let (from, root) = source().await;
        let (copy, _) = picture(&from.manager, &root).await;
        let broken = |change: &dyn Fn(&mut TreeCopy)| {
            let mut copy = copy.clone();
            change(&mut copy);
            copy
        };
        let cases: [(&str, TreeCopy); 11] = [
            ("no session", broken(&|copy| copy.sessions.clear())),
            ("before its parent", broken(&|copy| copy.sessions.swap(1, 2))),
            ("of the tree", broken(&|copy| copy.sessions.swap(0, 1))),
            ("there twice", broken(&|copy| copy.sessions.push(copy.sessions[1].clone()))),
            ("has depth 5", broken(&|copy| copy.sessions[1].0.depth = 5)),
            ("second root", broken(&|copy| copy.sessions[1].0.parent_id = None)),
            (
                "below itself",
                broken(&|copy| copy.sessions[0].0.parent_id = Some(copy.sessions[1].0.id.clone())),
            ),
            (
                "below itself",
                broken(&|copy| copy.sessions[0].0.parent_id = Some(copy.sessions[0].0.id.clone())),
            ),
            ("is of session", broken(&|copy| copy.sessions[1].1[0].session_id = id("ses_else"))),
            ("there twice", broken(&|copy| {
                let run = copy.sessions[1].1[0].clone();
                copy.sessions[1].1.push(run);
            })),
            ("never finished", broken(&|copy| {
                copy.sessions[0].0.metadata.insert("offspring.unfinished_import".to_owned(), String::new());
            })),
        ];
        for (part, copy) in cases {
            let refused = world.manager.import(copy).await.map(drop);
            let Err(Refused::BadCopy { problem }) = refused else { panic!("{part}: {refused:?}") };
            assert!(problem.contains(part), "{problem:?} does not say {part:?}");
        }
        assert_eq!(world.store.commits(), 0);
    }

    async fn a_tree_in_which_nothing_ran_is_written_in_one_piece(world) {
        let (from, root) = source().await;
        let (mut copy, mut lines) = picture(&from.manager, &root).await;
        copy.sessions.iter_mut().for_each(|(_, runs)| runs.clear());
        lines.iter_mut().for_each(|line| line.run = None);
        let mut import = world.manager.import(copy.clone()).await.unwrap();
        import.append(lines.clone()).await.unwrap();
        assert_eq!(world.store.commits(), 0);
        drop(import);
        copied(&world.manager, (copy, lines.clone())).await.unwrap();
        assert_eq!((world.store.commits(), log(&world.manager, &root).await), (1, lines));
    }

    async fn a_store_without_room_keeps_nothing_of_a_copy(world) {
        let (from, root) = source().await;
        let original = picture(&from.manager, &root).await;
        world.store.fail(|batch| {
            let lines = batch.writes.iter().any(|write| matches!(write, Write::Append(_)));
            lines.then(|| StoreError::Full { store: "here".to_owned(), free_bytes: Some(0), detail: String::new() })
        });
        let refused = copied(&world.manager, original.clone()).await;
        assert!(matches!(refused, Err(Refused::Store(StoreError::Full { .. }))), "{refused:?}");
        gone(&world.manager, &root).await;
        world.store.heal();
        copied(&world.manager, original).await.unwrap();
    }
}

#[tokio::test]
async fn l13_a_copy_whose_program_was_killed_leaves_nothing() {
    let (from, root) = source().await;
    let (copy, lines) = picture(&from.manager, &root).await;
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let doomed = {
        let store = Watched::new(Arc::clone(&inner));
        *store.own_name.lock().unwrap() = Some("own_doomed".parse().unwrap());
        SessionManager::new(Arc::new(store), ManagerOptions::default())
    };
    let mut import = doomed.import(copy.clone()).await.unwrap();
    import.append(lines[..5].to_vec()).await.unwrap();
    // As after `kill -9`: nothing of it runs on.
    std::mem::forget(import);
    let next = SessionManager::new(inner, ManagerOptions::default());
    assert_eq!(next.recover().await.unwrap(), offspring_sessions::Recovered::default());
    gone(&next, &root).await;
    copied(&next, (copy, lines)).await.unwrap();
}
