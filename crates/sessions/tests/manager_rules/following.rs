//! L18: history, then live, no gap and no duplicate.

use std::sync::Arc;

use offspring_protocol::SessionId;
use offspring_sessions::{Follow, ManagerOptions, SessionManager, SessionStore, StoreError};
use proptest::prelude::*;

use crate::world::*;

async fn all(mut follow: Follow) -> Vec<(u64, SessionId, String)> {
    let mut seen = Vec::new();
    while let Some(envelope) = follow.next().await.unwrap() {
        assert_eq!(envelope.session.path.last(), Some(&envelope.session.id));
        assert_eq!(envelope.session.path.len(), envelope.session.depth as usize + 1);
        assert_eq!(follow.cursor(), envelope.seq);
        seen.push((envelope.seq, envelope.session.id.clone(), envelope.event.data().get().to_owned()));
    }
    seen
}

async fn written(manager: &SessionManager, root: &SessionId) -> Vec<(u64, SessionId, String)> {
    let lines = log(manager, root).await;
    lines.into_iter().map(|line| (line.seq, line.session, line.event.data().get().to_owned())).collect()
}

/// Four runs that stream and make children of their own.
async fn stream(root: offspring_sessions::StartedRun) {
    let mut runs = Vec::new();
    for n in 0..4 {
        let run = child_of(&root, &format!("w{n}")).await;
        runs.push(tokio::spawn(async move {
            for word in 0..40 {
                run.context.emit(text(&format!("{word} "))).await.unwrap();
                if word % 10 == 0 {
                    child_of(&run, "leaf").await.end.finish(Ok("leaf".into())).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            run.end.finish(Ok("done".into())).await.unwrap();
        }));
    }
    for run in runs {
        run.await.unwrap();
    }
    root.end.finish(Ok("all".into())).await.unwrap();
}

on_stores! {
    async fn l18_from_any_cursor_it_equals_the_log_and_ends_at_rest(world) {
        let [r, ..] = world.family().await;
        let expected = written(&world.manager, &r).await;
        for manager in [world.manager.clone(), world.reloaded()] {
            for from in 0..=expected.len() + 2 {
                let seen = all(manager.follow(&r, from as u64)).await;
                assert_eq!(seen, expected[expected.len().min(from.saturating_sub(1))..], "from {from}");
            }
        }
        assert!(matches!(world.manager.follow(&id("nobody"), 1).next().await, Err(StoreError::Unknown { .. })));
    }

    async fn l18_while_four_runs_stream_every_follower_sees_the_log(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        root.context.record_process("settled".to_owned()).await.unwrap();
        let mut followers: Vec<_> = (0..3_u64).map(|n| {
            let manager = if n == 0 { world.reloaded() } else { world.manager.clone() };
            let root_id = root_id.clone();
            tokio::spawn(async move { (n, all(manager.follow(&root_id, n)).await) })
        }).collect();
        let streaming = tokio::spawn(stream(root));
        // One more that comes while they stream.
        tokio::task::yield_now().await;
        let (manager, late) = (world.manager.clone(), root_id.clone());
        followers.push(tokio::spawn(async move { (1, all(manager.follow(&late, 1)).await) }));
        streaming.await.unwrap();
        let expected = written(&world.manager, &root_id).await;
        for follower in followers {
            let (from, seen) = follower.await.unwrap();
            assert_eq!(seen, expected[usize::try_from(from.saturating_sub(1)).unwrap()..]);
        }
    }

    async fn l18_a_follower_goes_on_when_the_tree_is_resumed(world) {
        let [r, ..] = world.family().await;
        let mut follow = world.manager.follow(&r, 1);
        while follow.next().await.unwrap().is_some() {}
        let at = follow.cursor();
        assert!(follow.next().await.unwrap().is_none());
        let run = world.manager.resume_root(&r).await.unwrap().start("more").await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(follow.next().await.unwrap().unwrap().seq, at + 1);
    }
}

#[tokio::test]
async fn l18_an_end_between_two_looks_is_not_missed() {
    let world = World::memory();
    let root = world.root().await;
    let root_id = root.context.session().id.clone();
    root.context.record_process("settled".to_owned()).await.unwrap();
    let manager = world.manager.clone();
    let follow = manager.follow(&root_id, 3);
    let holding = world.store.hold_a_read();
    let (followed, ()) = tokio::join!(tokio::spawn(all(follow)), async {
        // It has read that there is nothing; before it goes on, the tree ends.
        holding.await;
        root.end.finish(Ok("x".into())).await.unwrap();
        world.store.let_reads_go();
    });
    assert_eq!(followed.unwrap().len(), 3, "message, end, status");
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l18_another_process_on_the_same_file_follows_live() {
    use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};
    let dir = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn SessionStore> {
        Arc::new(SqliteStore::open(dir.path().join("store.db"), SqliteOptions::default()).unwrap())
    };
    let owner = SessionManager::new(open(), ManagerOptions::default());
    let watcher = SessionManager::new(open(), ManagerOptions::default());
    let root = owner.create_root(root()).await.unwrap().start("x").await.unwrap();
    let root_id = root.context.session().id.clone();
    let follow = watcher.follow(&root_id, 1);
    let followed = tokio::spawn(all(follow));
    stream(root).await;
    assert_eq!(followed.await.unwrap(), written(&owner, &root_id).await);
}

#[tokio::test(start_paused = true)]
async fn l18_a_follower_of_a_tree_whose_owner_dies_ends() {
    let inner: Arc<dyn SessionStore> = Arc::new(offspring_sessions::MemoryStore::new());
    let doomed = Watched::new(Arc::clone(&inner));
    *doomed.own_name.lock().unwrap() = Some("own_doomed".parse().unwrap());
    let doomed = SessionManager::new(Arc::new(doomed), ManagerOptions::default());
    let root = doomed.create_root(root()).await.unwrap().start("x").await.unwrap();
    let root_id = root.context.session().id.clone();
    root.context.record_process("p".to_owned()).await.unwrap();
    let store = Arc::new(Watched::new(Arc::clone(&inner)));
    store.alive.lock().unwrap().push("own_doomed".parse().unwrap());
    let watcher = SessionManager::new(Arc::clone(&store) as _, ManagerOptions::default());
    let mut follow = watcher.follow(&root_id, 1);
    assert_eq!(follow.next().await.unwrap().unwrap().seq, 1);
    assert_eq!(follow.next().await.unwrap().unwrap().seq, 2);
    let waiting = tokio::spawn(async move {
        let mut kinds = Vec::new();
        while let Some(envelope) = follow.next().await.unwrap() {
            kinds.push(envelope.event.kind().to_owned());
        }
        kinds
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    store.alive.lock().unwrap().clear();
    assert_eq!(waiting.await.unwrap(), ["run_error", "status_changed"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Readers that come and go at any cursor while a history grows.
    #[test]
    fn l18_any_reader_at_any_time_sees_exactly_what_is_written(
        steps in prop::collection::vec((0_u8..5, 0_usize..6, 1_u64..40), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let world = World::memory();
            let root = world.root().await;
            let root_id = root.context.session().id.clone();
            let mut open = vec![root];
            let mut readers = Vec::new();
            for (step, pick, from) in steps {
                let at = pick % open.len();
                match step {
                    0 => open.push(child_of(&open[at], "n").await),
                    1 if at > 0 => drop(open.swap_remove(at).end.finish(Ok("x".into())).await.unwrap()),
                    2 => {
                        let follow = world.manager.follow(&root_id, from);
                        readers.push((from, tokio::spawn(all(follow))));
                    }
                    _ => open[at].context.emit(text("word ")).await.unwrap(),
                }
            }
            while let Some(run) = open.pop() {
                run.end.finish(Ok("x".into())).await.unwrap();
            }
            let expected = written(&world.manager, &root_id).await;
            for (from, reader) in readers {
                let start = expected.len().min(usize::try_from(from).unwrap() - 1);
                assert_eq!(reader.await.unwrap(), expected[start..]);
            }
        });
    }
}
