//! What is there after the program ended, well or not.

use std::path::Path;

use offspring_protocol::{Event, Outcome, RunState, SessionId};
use offspring_sessions::{CHILD_INTERRUPTED, Scope, store::EventQuery};
use tokio::runtime::{Builder, Runtime};

use crate::world::*;

#[tokio::test]
async fn o10_after_a_restart_the_tree_is_known_and_a_follow_up_reuses_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    house.pool.add(echo("c"));
    let b = asks("b", house.delegator(), &["c"]);
    let (root, _) = house.delegate(vec![echo("a"), b], "x").await;
    let before: Vec<_> = house.descendants(&root).await.into_iter().map(|row| row.data.id).collect();
    house.log().await;

    let house = House::open(sqlite(&path)).await;
    let names = |rows: &[offspring_sessions::SessionRecord]| -> Vec<String> {
        rows.iter().map(|row| row.data.agent_name.to_string()).collect()
    };
    for _ in 0..2 {
        assert_eq!(names(&house.children(&root).await), ["a", "b"]);
        let rows = house.descendants(&root).await;
        assert_eq!(names(&rows), ["a", "b", "c"]);
        assert_eq!(rows.into_iter().map(|row| row.data.id).collect::<Vec<_>>(), before, "in a stable order");
    }
    // The nodes are known by the names in the rows.
    for node in [echo("coordinator"), echo("b")] {
        house.pool.add(node);
    }
    let again = bounded(house.pool.prompt(&root, "more".into()).await.unwrap().result).await.unwrap();
    assert_eq!(again.answer, "coordinator(more)");
    let b = &house.children(&root).await[1].data.id;
    let again = bounded(house.pool.prompt_child(b, "go on".into())).await.unwrap();
    assert_eq!((again.output.as_str(), again.session.as_ref()), ("b(go on)", Some(b)));
    assert_eq!(house.descendants(&root).await.len(), 3, "no session was added");
    assert_eq!(house.manager().store().runs(b.clone()).await.unwrap().len(), 2);
    // What the manifest no longer has is readable and answers by name.
    let a = &house.children(&root).await[0].data.id;
    let unknown = house.pool.prompt_child(a, "go on".into()).await.unwrap_err();
    assert!(unknown.to_string().starts_with("there is no node `a`"), "{unknown}");
    let log = house.log().await;
    assert!(log.spawns().is_empty(), "no second spawn");
}

/// A program that dies while r > a runs: nothing of it is told to the store.
fn dies(path: &Path) -> SessionId {
    // One thread: when it is taken away, nothing of it is polled any more.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (house, root) = runtime.block_on(async {
        let house = House::open(sqlite(path)).await;
        let stage = Stage::new();
        house.pool.add(plays("a", &stage));
        let mut heard = house.manager().subscribe(Scope::All);
        let run = house.start(asks("r", house.delegator(), &["a"]), "x").await;
        begun(&mut heard, 2).await;
        (house, run.session.id.clone())
    });
    // Its tasks end where they are, and its lock goes with its store.
    drop(runtime);
    drop(house);
    root
}

async fn log_of(house: &House, root: &SessionId) -> Vec<offspring_sessions::store::LogRow> {
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: 1_000 };
    house.manager().events(query).await.unwrap()
}

/// Waits until the lock of the program that died is free.
async fn open_when_dead(path: &Path, root: &SessionId) -> House {
    bounded(async {
        loop {
            let house = House::open(sqlite(path)).await;
            if house.pool.recovered().trees.contains(root) {
                return house;
            }
            house.log().await;
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[test]
fn o12_runs_of_a_program_that_died_are_interrupted_once_and_the_parent_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let root = dies(&path);
    Runtime::new().unwrap().block_on(async {
        let house = open_when_dead(&path, &root).await;
        let recovered = house.pool.recovered();
        assert_eq!(recovered.trees, std::slice::from_ref(&root));
        let rows = house.manager().subtree(&root).await.unwrap();
        let interrupted: Vec<_> = recovered.interrupted.iter().map(|(session, _)| session.clone()).collect();
        assert_eq!(interrupted, [rows[1].data.id.clone(), root.clone()], "children first");
        let lines = log_of(&house, &root).await;
        for row in &rows {
            let run = row.last_run.as_ref().unwrap();
            assert_eq!(run.state, RunState::Ended(Outcome::Interrupted));
            let own = lines.iter().filter(|line| line.session == row.data.id);
            let ends: Vec<_> = own
                .clone()
                .filter_map(|line| match line.event.parse().unwrap() {
                    Event::RunError(error) => Some((error.code, error.interrupted)),
                    _ => None,
                })
                .collect();
            assert_eq!(ends, [("owner_lost".to_owned(), true)]);
            // The wall time ends with the last sign of life and not with the look at it.
            let last = own.clone().rfind(|line| line.event.kind() == "run_started").unwrap();
            let of_recovery = own.clone().find(|line| line.event.kind() == "run_error").unwrap();
            let ended = run.ended_at.unwrap();
            assert!(last.at <= ended && ended <= of_recovery.at, "{last:?} {ended:?}");
        }
        let told = |lines: &[offspring_sessions::store::LogRow]| {
            lines
                .iter()
                .filter(|line| {
                    matches!(line.event.parse().unwrap(), Event::Custom(custom) if custom.name == CHILD_INTERRUPTED)
                })
                .map(|line| line.session.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&lines), std::slice::from_ref(&root));
        // A second sweep, by this program and by the next, changes nothing.
        assert_eq!(house.manager().recover().await.unwrap().trees.len(), 0);
        house.log().await;
        let house = House::open(sqlite(&path)).await;
        assert!(house.pool.recovered().trees.is_empty());
        assert_eq!(log_of(&house, &root).await, lines);
        house.log().await;
    });
}

#[tokio::test]
async fn o12_a_second_program_leaves_a_living_run_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let first = House::open(sqlite(&path)).await;
    let stage = Stage::new();
    let mut heard = first.manager().subscribe(Scope::All);
    let run = first.start(plays("r", &stage), "x").await;
    begun(&mut heard, 1).await;
    let second = House::open(sqlite(&path)).await;
    assert!(second.pool.recovered().trees.is_empty());
    assert_eq!(second.row(&run.session.id).await.run_state(), Some(RunState::Running));
    second.log().await;
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    let store = sqlite(&path);
    let row = store.session(run.session.id.clone()).await.unwrap().unwrap();
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Completed)));
    store.close().await.unwrap();
    first.log().await;
}
