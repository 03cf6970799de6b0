//! L13: after a crash no run stays open, and nobody touches what lives.

use std::sync::Arc;

use offspring_protocol::{Event, Outcome, OwnerId, RunState, SessionId};
use offspring_sessions::{
    CHILD_INTERRUPTED, CancelAnswer, CancelScope, ManagerOptions, MemoryStore, Refused, SessionManager,
    SessionStore, StartedRun, StoreError, store::Write,
};

use crate::world::*;

/// A manager whose owner is to die, and the store both share.
fn doomed(inner: &Arc<dyn SessionStore>) -> SessionManager {
    let store = Watched::new(Arc::clone(inner));
    *store.own_name.lock().unwrap() = Some("own_doomed".parse().unwrap());
    SessionManager::new(Arc::new(store), ManagerOptions::default())
}

struct Crashed {
    ids: [SessionId; 3],
    /// What is left of the dead process: it never learns that it is dead.
    runs: Vec<StartedRun>,
}

/// r > a > b at work, a word of each, in a process that dies.
async fn crashed(manager: &SessionManager) -> Crashed {
    let r = manager.create_root(root()).await.unwrap().start("x").await.unwrap();
    let a = child_of(&r, "a").await;
    let b = child_of(&a, "b").await;
    b.context.emit(text("last words")).await.unwrap();
    b.context.record_process("pid 7".to_owned()).await.unwrap();
    let ids = [&r, &a, &b].map(|run| run.context.session().id.clone());
    Crashed { ids, runs: vec![r, a, b] }
}

/// What must be so after the sweep of a tree that [`crashed`] made.
async fn swept(manager: &SessionManager, ids: &[SessionId; 3]) {
    let [r, a, b] = ids;
    let recovered = manager.recover().await.unwrap();
    assert_eq!(recovered.trees, std::slice::from_ref(r));
    let sessions: Vec<_> = recovered.interrupted.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(sessions, [b.clone(), a.clone(), r.clone()], "leaves first");
    assert_eq!(recovered.processes, ["pid 7"]);
    let lines = log(manager, r).await;
    for id in ids {
        let record = manager.session(id).await.unwrap().unwrap();
        assert_eq!(record.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
        let run = record.last_run.unwrap();
        // Its time ends with its last sign of life.
        let before = lines.iter().filter(|line| {
            line.session == *id
                && line.event.kind() != "run_error"
                && line.event.kind() != "custom"
                && !line.event.data().get().contains("interrupted")
        });
        assert_eq!(run.ended_at, Some(before.map(|line| line.at).max().unwrap().max(run.opened_at)));
    }
    let told = lines.iter().filter_map(|line| match line.event.parse().unwrap() {
        Event::Custom(custom) if custom.name == CHILD_INTERRUPTED => Some(line.session.clone()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [a.clone(), r.clone()], "each parent once");
    assert!(lines.iter().enumerate().all(|(at, line)| line.seq == at as u64 + 1));
    // A second sweep changes nothing.
    assert!(manager.recover().await.unwrap().trees.is_empty());
    assert_eq!(log(manager, r).await.len(), lines.len());
    // And it can go on, with the next number.
    let run = manager.resume_root(r).await.unwrap().start("again").await.unwrap();
    run.end.finish(Ok("x".into())).await.unwrap();
    assert_eq!(log(manager, r).await[lines.len()].seq, lines.len() as u64 + 1);
}

#[tokio::test]
async fn l13_o12_runs_of_a_dead_owner_are_interrupted_once() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let alive = SessionManager::new(Arc::clone(&inner), ManagerOptions::default());
    swept(&alive, &crash.ids).await;
    // The dead one wakes up: it may write nothing any more, and its agents are asked to stop.
    let stop = crash.runs[2].context.stop_requested();
    crash.runs[2].context.emit(text("hello?")).await.unwrap();
    stop.cancelled().await;
    assert!(matches!(crash.runs[2].context.emit(text("x")).await, Err(StoreError::Fenced { .. })));
    let lines = log(&alive, &crash.ids[0]).await.len();
    drop(crash.runs);
    assert_eq!(log(&alive, &crash.ids[0]).await.len(), lines);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn l13_o12_runs_of_a_process_that_died_on_a_shared_file_are_interrupted_once() {
    use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};
    let dir = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn SessionStore> {
        Arc::new(SqliteStore::open(dir.path().join("store.db"), SqliteOptions::default()).unwrap())
    };
    let first = open();
    let owner = first.owner();
    let second = SessionManager::new(open(), ManagerOptions::default());
    let crash = crashed(&SessionManager::new(Arc::clone(&first), ManagerOptions::default())).await;
    assert!(second.recover().await.unwrap().trees.is_empty(), "its owner lives");
    // Closing the store lets the lock go as a death would; its runs are still open in the file.
    first.close().await.unwrap();
    drop(first);
    assert_eq!(second.store().owner_state(owner).await.unwrap(), offspring_sessions::store::OwnerState::Dead);
    swept(&second, &crash.ids).await;
}

#[tokio::test]
async fn l13_what_lives_is_left_alone() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let store = Watched::new(Arc::clone(&inner));
    store.alive.lock().unwrap().push("own_doomed".parse::<OwnerId>().unwrap());
    let other = SessionManager::new(Arc::new(store), ManagerOptions::default());
    assert!(other.recover().await.unwrap().trees.is_empty());
    for id in &crash.ids {
        assert!(other.session(id).await.unwrap().unwrap().run_state().unwrap().is_open());
        assert!(matches!(other.resume_child(id).await, Err(Refused::Foreign { .. })));
        assert!(matches!(other.create_child(id, child("x")).await, Err(Refused::Foreign { .. })));
        assert!(matches!(other.delete(id).await, Err(Refused::StillRunning { .. })));
    }
    crash.runs[0].context.emit(text("alive")).await.unwrap();
}

#[tokio::test]
async fn l13_a_sweep_whose_write_fails_is_made_up_for_by_the_next() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let store = Arc::new(Watched::new(Arc::clone(&inner)));
    let manager = SessionManager::new(Arc::clone(&store) as _, ManagerOptions::default());
    store.fail(|_| {
        Some(StoreError::Full { store: "here".to_owned(), free_bytes: Some(0), detail: String::new() })
    });
    assert!(matches!(manager.recover().await, Err(StoreError::Full { .. })));
    store.heal();
    swept(&manager, &crash.ids).await;
}

#[tokio::test]
async fn l13_asking_to_cancel_the_runs_of_a_dead_owner_ends_them() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let manager = SessionManager::new(Arc::clone(&inner), ManagerOptions::default());
    match manager.request_cancel(&crash.ids[1]).await.unwrap() {
        CancelAnswer::OwnerGone(recovered) => assert_eq!(recovered.interrupted.len(), 3),
        other => panic!("{other:?}"),
    }
    // Nobody is left to be asked, so nothing was asked of it.
    assert_eq!(inner.open_commands(crash.ids[0].clone()).await.unwrap(), []);
}

#[tokio::test]
async fn l13_of_several_who_ask_to_cancel_the_runs_of_a_dead_owner_one_has_ended_them() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let managers: [SessionManager; 6] =
        std::array::from_fn(|_| SessionManager::new(Arc::clone(&inner), ManagerOptions::default()));
    let asks = managers.iter().map(|manager| manager.request_cancel(&crash.ids[0]));
    let mut gone = 0;
    for answer in futures_util::future::join_all(asks).await {
        match answer.unwrap() {
            CancelAnswer::OwnerGone(recovered) => {
                assert_eq!(recovered.interrupted.len(), 3);
                gone += 1;
            }
            CancelAnswer::AtRest => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, 1);
}

#[tokio::test]
async fn l13_racing_take_overs_end_each_run_once() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let crash = crashed(&doomed(&inner)).await;
    let manager = SessionManager::new(Arc::clone(&inner), ManagerOptions::default());
    let other = SessionManager::new(Arc::clone(&inner), ManagerOptions::default());
    let sweeps = (0..10).map(|n| if n % 2 == 0 { manager.recover() } else { other.recover() });
    let found = futures_util::future::join_all(sweeps).await;
    let ended: usize = found.into_iter().map(|found| found.unwrap().interrupted.len()).sum();
    assert_eq!(ended, 3);
    assert_eq!(count(&manager, &crash.ids[0], "run_error").await, 3);
}

#[tokio::test]
async fn l13_a_store_that_fails_stops_the_tree_and_the_tree_can_be_resumed_when_it_is_well() {
    let world = World::memory();
    let root = world.root().await;
    let root_id = root.context.session().id.clone();
    let child = child_of(&root, "a").await;
    child.context.record_process("settled".to_owned()).await.unwrap();
    world.store.fail(|batch| {
        batch.writes.iter().any(|write| matches!(write, Write::Append(_))).then(|| StoreError::Full {
            store: "here".to_owned(),
            free_bytes: Some(0),
            detail: String::new(),
        })
    });
    child.context.emit(text("lost")).await.unwrap();
    child.context.stop_requested().cancelled().await;
    root.context.stop_requested().cancelled().await;
    assert!(matches!(
        root.context.create_child(crate::world::child("x")).await,
        Err(Refused::Store(StoreError::Full { .. }))
    ));
    assert!(child.end.finish(Ok("x".into())).await.is_err());
    // Whoever follows it is not kept waiting for an end that cannot be written.
    assert!(root.end.finish(Ok("x".into())).await.is_err());
    let mut follow = world.manager.follow(&root_id, 1);
    while follow.next().await.unwrap().is_some() {}
    world.store.heal();
    let run = world.manager.resume_root(&root_id).await.unwrap().start("again").await.unwrap();
    assert_eq!(run.end.finish(Ok("x".into())).await.unwrap(), Outcome::Completed);
    for row in world.manager.subtree(&root_id).await.unwrap() {
        assert!(!row.run_state().unwrap().is_open());
    }
    let seqs: Vec<_> = log(&world.manager, &root_id).await.iter().map(|line| line.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(world.manager.cancel(&root_id, CancelScope::Subtree).await.unwrap().ended.is_empty());
}

#[tokio::test]
async fn l13_trees_at_rest_leave_memory_and_come_back() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let options = ManagerOptions { max_resting_trees: 2, ..ManagerOptions::default() };
    let manager = SessionManager::new(store, options);
    let mut roots = Vec::new();
    for n in 0..6 {
        let root = manager.create_root(root()).await.unwrap().start("x").await.unwrap();
        roots.push(root.context.session().id.clone());
        let late = root.context.emitter();
        root.end.finish(Ok("x".into())).await.unwrap();
        late.emit(text(&format!("late {n}"))).await.unwrap();
    }
    for root in &roots {
        let run = manager.resume_root(root).await.unwrap().start("y").await.unwrap();
        run.end.finish(Ok("y".into())).await.unwrap();
        let lines = log(&manager, root).await;
        assert!(
            lines.iter().any(|line| line.late && line.event.data().get().contains("late")),
            "its last word is kept"
        );
        assert!(lines.iter().enumerate().all(|(at, line)| line.seq == at as u64 + 1));
        assert_eq!(manager.store().runs(root.clone()).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn l16_what_was_queued_behind_a_failed_write_leaves_no_hole_in_the_log() {
    let world = World::memory();
    let root = world.root().await;
    let root_id = root.context.session().id.clone();
    root.context.record_process("settled".to_owned()).await.unwrap();
    world.store.hold();
    root.context.emit(tokens("lost", 1)).await.unwrap();
    world.store.held_up(1).await;
    root.context.emit(tokens("behind it", 1)).await.unwrap();
    // Only the first is refused; then the store has room again.
    let refused = std::sync::atomic::AtomicBool::new(false);
    world.store.fail(move |_| {
        let first = !refused.swap(true, std::sync::atomic::Ordering::SeqCst);
        first.then(|| StoreError::Full {
            store: "here".to_owned(),
            free_bytes: Some(0),
            detail: String::new(),
        })
    });
    world.store.let_go();
    assert_eq!(root.end.finish(Ok("x".into())).await.unwrap(), Outcome::Completed, "its end is written");
    assert_eq!(count(&world.manager, &root_id, "usage").await, 0);
}

/// A manager that keeps no tree at rest in memory.
fn forgetful(store: &Arc<Watched>) -> SessionManager {
    let options = ManagerOptions { max_resting_trees: 0, ..ManagerOptions::default() };
    SessionManager::new(Arc::clone(store) as _, options)
}

#[tokio::test]
async fn l12_the_last_word_of_a_forgotten_tree_is_written_before_the_tree_is_read_again() {
    let store = Arc::new(Watched::new(Arc::new(MemoryStore::new())));
    let manager = forgetful(&store);
    let first = manager.create_root(root()).await.unwrap().start("x").await.unwrap();
    let first_id = first.context.session().id.clone();
    let late = first.context.emitter();
    first.end.finish(Ok("x".into())).await.unwrap();
    drop(first.context);
    store.hold_tree(&first_id);
    late.emit(text("last word")).await.unwrap();
    drop(late);
    store.held_up(1).await;
    // Another tree comes, the first one goes.
    drop(manager.create_root(root()).await.unwrap());
    let (again, id) = (manager.clone(), first_id.clone());
    let resumed = tokio::spawn(async move { again.resume_root(&id).await.map(drop) });
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    store.let_go();
    resumed.await.unwrap().unwrap();
    let lines = log(&manager, &first_id).await;
    assert!(lines.iter().any(|line| line.late && line.event.data().get().contains("last word")));
}

#[tokio::test]
async fn l12_a_tree_that_somebody_still_speaks_for_is_not_forgotten() {
    let store = Arc::new(Watched::new(Arc::new(MemoryStore::new())));
    let manager = forgetful(&store);
    let first = manager.create_root(root()).await.unwrap().start("x").await.unwrap();
    let first_id = first.context.session().id.clone();
    let late = first.context.emitter();
    first.end.finish(Ok("x".into())).await.unwrap();
    drop(first.context);
    drop(manager.create_root(root()).await.unwrap());
    let second = manager.resume_root(&first_id).await.unwrap().start("y").await.unwrap();
    late.emit(text("late")).await.unwrap();
    second.end.finish(Ok("y".into())).await.unwrap();
    assert!(log(&manager, &first_id).await.iter().any(|line| line.late && line.event.kind() == "text_delta"));
}
