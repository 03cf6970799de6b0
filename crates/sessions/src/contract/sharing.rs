//! Owners, commands, and many who write and read at once.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use offspring_protocol::{RunState, SessionData, SessionId, Timestamp};

use super::{
    Fixture,
    plant::{Planted, assert_same, child, id, line, log, owner, root, row, run, tree},
};
use crate::store::{
    Batch, CommandKind, CommandRow, Durability, Fence, LogRow, OwnerState, SessionQuery, SessionStore,
    StoreError, TreeQuery, Write,
};

/// Far more than any of this takes.
const BOUND: Duration = Duration::from_secs(20);

pub(super) async fn l13_an_old_fence_writes_nothing(fixture: Fixture) {
    let store = &fixture.store;
    let dead = Fence { root: id("root"), owner: owner("own_dead"), epoch: 1 };
    let old = Planted { store: store.clone(), fence: dead.clone(), root: root("root") };
    old.session(&old.root).await;
    old.append(line(&old.root.id, 1)).await;
    let fence = store.claim(old.root.id.clone(), 1).await.unwrap();
    assert_eq!(fence, Fence { root: old.root.id.clone(), owner: store.owner(), epoch: 2 });
    assert_eq!(tree(store, &old.root.id).await.unwrap().fence, fence);
    let writes = [
        Write::Append(line(&old.root.id, 2)),
        Write::Session(Arc::new(child(&old.root, "child"))),
        Write::Run(Box::new(run(&old.root.id, "r", RunState::Running))),
        Write::Update(Arc::new(SessionData { title: Some("x".into()), ..old.root.clone() })),
        Write::Delete(old.root.id.clone()),
    ];
    let wrong = [
        dead.clone(),
        Fence { epoch: 2, ..dead.clone() },
        Fence { epoch: 1, ..fence.clone() },
        Fence { epoch: 3, ..fence.clone() },
    ];
    for write in &writes {
        for fence in &wrong {
            let stale = Planted { fence: fence.clone(), ..old.clone() };
            let refused = stale.write(vec![write.clone()]).await;
            assert!(
                matches!(&refused, Err(StoreError::Fenced { root }) if *root == old.root.id),
                "{refused:?}"
            );
        }
    }
    // The fence comes first, also for a batch that would be refused anyway.
    let refused = old.write(vec![Write::Append(line(&old.root.id, 9))]).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    let new = Planted { fence, ..old };
    new.append(line(&new.root.id, 2)).await;
    assert_same(&row(store, &new.root.id).await.unwrap().data, &new.root);
    assert_eq!(new.log().await.len(), 2);
}

pub(super) async fn a_claim_with_an_old_epoch_is_refused(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let root = planted.root.id.clone();
    for epoch in [0, 2, u64::MAX] {
        let refused = fixture.store.claim(root.clone(), epoch).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    }
    assert_eq!(planted.tree().await.fence, planted.fence);
    // Of many who see the same dead owner, one gets the tree.
    let claims = join_all((0..8).map(|_| fixture.store.claim(root.clone(), 1))).await;
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
    assert_eq!(planted.tree().await.fence.epoch, 2);
    let child = Planted { fence: planted.tree().await.fence, ..planted };
    let child = child.child(&child.root, "child").await;
    assert!(matches!(fixture.store.claim(child.id, 1).await, Err(StoreError::Unknown { .. })));
}

pub(super) async fn a_fence_is_for_its_own_tree_only(fixture: Fixture) {
    let a = Planted::new(&fixture.store, "a").await;
    let b = Planted::new(&fixture.store, "b").await;
    let writes = [
        Write::Session(Arc::new(child(&b.root, "child"))),
        Write::Session(Arc::new(root("c"))),
        Write::Update(Arc::new(SessionData { title: Some("x".into()), ..b.root.clone() })),
        Write::Run(Box::new(run(&b.root.id, "r", RunState::Running))),
        Write::Append(line(&b.root.id, 1)),
        Write::Delete(b.root.id.clone()),
    ];
    for write in writes {
        let refused = a.write(vec![write]).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    }
    assert_same(&row(&fixture.store, &b.root.id).await.unwrap().data, &b.root);
    assert_eq!(b.tree().await.last_seq, 0);
}

pub(super) async fn everything_but_commands_needs_a_fence(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let writes = [
        Write::Session(Arc::new(child(&planted.root, "child"))),
        Write::Update(Arc::new(planted.root.clone())),
        Write::Run(Box::new(run(&planted.root.id, "r", RunState::Running))),
        Write::Append(line(&planted.root.id, 1)),
        Write::Delete(planted.root.id.clone()),
    ];
    for write in writes {
        let refused = fixture.store.commit(Batch { writes: vec![write], ..Batch::default() }).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    }
    assert_eq!(fixture.store.commit(Batch::default()).await.unwrap().last_seq, 0);
}

fn command(name: &str, root: &SessionId, session: &SessionId, at: i64) -> CommandRow {
    CommandRow {
        id: name.to_owned(),
        root: root.clone(),
        session: session.clone(),
        kind: CommandKind::Cancel,
        asked_at: Timestamp(at),
        answer: None,
    }
}

async fn ask(store: &Arc<dyn SessionStore>, command: CommandRow) -> Result<(), StoreError> {
    let batch = Batch { writes: vec![Write::Command(command)], ..Batch::default() };
    store.commit(batch).await.map(|committed| assert_eq!(committed.last_seq, 0))
}

pub(super) async fn commands_are_open_until_they_have_an_answer(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let other = Planted::new(&fixture.store, "other").await;
    let (store, root) = (&fixture.store, &planted.root.id);
    let child = planted.child(&planted.root, "child").await;
    let (late, early) = (command("a", root, root, 2), command("b", root, &child.id, 1));
    let elsewhere = command("c", &other.root.id, &other.root.id, 0);
    for command in [&late, &early, &elsewhere] {
        ask(store, command.clone()).await.unwrap();
    }
    assert_eq!(store.open_commands(root.clone()).await.unwrap(), [early.clone(), late.clone()]);
    let done = CommandRow { answer: Some(String::new()), ..early };
    planted.write(vec![Write::Command(done.clone())]).await.unwrap();
    assert_eq!(store.open_commands(root.clone()).await.unwrap(), [late]);
    assert_eq!(store.command("b".into()).await.unwrap(), Some(done));
    assert_eq!(store.open_commands(other.root.id).await.unwrap(), [elsewhere]);
    let refused = ask(store, command("d", &id("nobody"), &id("nobody"), 1)).await;
    assert!(matches!(refused, Err(StoreError::Unknown { .. })), "{refused:?}");
}

pub(super) async fn commands_go_with_their_session(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let (store, root) = (&fixture.store, &planted.root.id);
    let child = planted.child(&planted.root, "child").await;
    ask(store, command("child", root, &child.id, 1)).await.unwrap();
    ask(store, command("root", root, root, 2)).await.unwrap();
    planted.write(vec![Write::Delete(child.id.clone())]).await.unwrap();
    assert!(store.command("child".into()).await.unwrap().is_none());
    assert_eq!(store.open_commands(root.clone()).await.unwrap().len(), 1);
    planted.write(vec![Write::Delete(root.clone())]).await.unwrap();
    assert!(store.command("root".into()).await.unwrap().is_none());
}

pub(super) async fn a_bad_batch_among_many_fails_alone(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    planted.append(line(&planted.root.id, 1)).await;
    let commits = (0..60_usize).map(|number| {
        let planted = &planted;
        async move {
            let data = child(&planted.root, &format!("child {number}"));
            let mut writes = vec![
                Write::Session(Arc::new(data.clone())),
                Write::Run(Box::new(run(&data.id, "r", RunState::Running))),
            ];
            if number % 3 == 1 {
                writes.push(Write::Append(line(&data.id, 77)));
            }
            (number, planted.write(writes).await)
        }
    });
    for (number, done) in join_all(commits).await {
        assert_eq!(done.is_ok(), number % 3 != 1, "{number}: {done:?}");
        assert_eq!(row(&fixture.store, &id(&format!("child {number}"))).await.is_some(), number % 3 != 1);
    }
    let tree = planted.tree().await;
    assert_eq!((tree.last_seq, tree.open_runs), (1, 40));
}

pub(super) async fn l16_many_writers_of_many_trees_keep_every_order(fixture: Fixture) {
    const LINES: u64 = 40;
    let writers = (0..12).map(|number| {
        let store = match &fixture.other {
            Some(other) if number % 2 == 1 => other.clone(),
            _ => fixture.store.clone(),
        };
        async move {
            let planted = Planted::new(&store, &format!("root {number}")).await;
            let child = planted.child(&planted.root, &format!("child {number}")).await;
            let mut seq = 0;
            while seq < LINES {
                let writes = (1..=4).map(|step| Write::Append(line(&child.id, seq + step))).collect();
                seq = planted.write(writes).await.unwrap().last_seq;
            }
            (planted, child)
        }
    });
    for (planted, child) in join_all(writers).await {
        let expected: Vec<LogRow> = (1..=LINES).map(|seq| line(&child.id, seq)).collect();
        assert_eq!(log(&fixture.store, &planted.root.id).await, expected);
    }
}

pub(super) async fn commits_are_changes(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let mut changes = fixture.store.changes();
    for seq in 1..=3 {
        changes.mark_unchanged();
        planted.append(line(&planted.root.id, seq)).await;
        tokio::time::timeout(BOUND, changes.changed()).await.unwrap().unwrap();
    }
}

/// The second opening; rules about two processes hold of themselves for a store that has none.
fn other(fixture: &Fixture) -> Option<Arc<dyn SessionStore>> {
    fixture.other.clone()
}

pub(super) async fn l18_commits_of_another_process_are_changes_too(fixture: Fixture) {
    let Some(other) = other(&fixture) else { return };
    let planted = Planted::new(&fixture.store, "root").await;
    for seq in 1..=3 {
        // A new subscription each time: the first commit after it must not be missed.
        let mut changes = other.changes();
        planted.append(line(&planted.root.id, seq)).await;
        while log(&other, &planted.root.id).await.len() as u64 != seq {
            tokio::time::timeout(BOUND, changes.changed()).await.unwrap().unwrap();
        }
        let mut changes = other.changes();
        ask(&fixture.store, command(&seq.to_string(), &planted.root.id, &planted.root.id, 1)).await.unwrap();
        tokio::time::timeout(BOUND, changes.changed()).await.unwrap().unwrap();
    }
}

pub(super) async fn another_process_reads_what_was_committed(fixture: Fixture) {
    let Some(other) = other(&fixture) else { return };
    let planted = Planted::new(&fixture.store, "root").await;
    let child = planted.child(&planted.root, "child").await;
    planted.run(run(&child.id, "r", RunState::Running)).await;
    planted.append(line(&child.id, 1)).await;
    assert_same(&row(&other, &child.id).await.unwrap().data, &child);
    assert_eq!(log(&other, &planted.root.id).await, planted.log().await);
    assert_eq!(other.trees(TreeQuery::Open).await.unwrap(), [planted.tree().await]);
    // Then the other takes over, deletes, and makes it anew: what the first remembers must not matter.
    let fence = other.claim(planted.root.id.clone(), 1).await.unwrap();
    let taken = Planted { store: other.clone(), fence, root: planted.root.clone() };
    taken.write(vec![Write::Delete(planted.root.id.clone())]).await.unwrap();
    let again = Planted::new(&other, "other root").await;
    again.child(&again.root, "root").await;
    let refused = planted.write(vec![Write::Append(line(&child.id, 2))]).await;
    assert!(matches!(refused, Err(StoreError::Unknown { .. } | StoreError::Fenced { .. })), "{refused:?}");
    assert!(log(&fixture.store, &again.root.id).await.is_empty());
}

pub(super) async fn one_of_two_processes_gets_an_id(fixture: Fixture) {
    let Some(other) = other(&fixture) else { return };
    let here = Planted::new(&fixture.store, "here").await;
    let there = Planted::new(&other, "there").await;
    for round in 0..10 {
        // A root of that id, then a child: under a root of each process.
        let name = format!("x{round}");
        let make = async |planted: &Planted| {
            let title = Some(planted.store.owner().to_string());
            if round % 2 == 0 {
                let data = SessionData { title, ..child(&planted.root, &name) };
                return planted.write(vec![Write::Session(Arc::new(data))]).await;
            }
            let data = SessionData { title, ..root(&name) };
            let fence = Fence { root: data.id.clone(), owner: planted.store.owner(), epoch: 1 };
            let writes = vec![Write::Session(Arc::new(data))];
            planted.store.commit(Batch { fence: Some(fence), writes, durability: Durability::Process }).await
        };
        let (first, second) = futures_util::future::join(make(&here), make(&there)).await;
        let (loser, winner) = match (first, second) {
            (Ok(_), Err(error)) => (error, fixture.store.owner()),
            (Err(error), Ok(_)) => (error, other.owner()),
            both => panic!("{both:?}"),
        };
        let StoreError::Taken { id: taken, owner } = loser else { panic!("{loser:?}") };
        assert_eq!((taken, &owner), (id(&name), &winner));
        let found = row(&fixture.store, &id(&name)).await.unwrap();
        assert_eq!(found.data.title.as_deref(), Some(winner.as_str()));
    }
}

pub(super) async fn l13_an_owner_is_alive_until_it_closes(fixture: Fixture) {
    let store = &fixture.store;
    assert_eq!(store.owner_state(store.owner()).await.unwrap(), OwnerState::Alive);
    assert_eq!(store.owner_state(owner("own_never")).await.unwrap(), OwnerState::Dead);
    assert_eq!(store.owner_state(owner("../own")).await.unwrap(), OwnerState::Dead);
    let Some(other) = other(&fixture) else { return };
    assert_ne!(store.owner(), other.owner());
    for _ in 0..3 {
        assert_eq!(store.owner_state(other.owner()).await.unwrap(), OwnerState::Alive);
        assert_eq!(other.owner_state(store.owner()).await.unwrap(), OwnerState::Alive);
    }
    other.close().await.unwrap();
    for _ in 0..2 {
        assert_eq!(store.owner_state(other.owner()).await.unwrap(), OwnerState::Dead);
    }
    assert_eq!(store.owner_state(store.owner()).await.unwrap(), OwnerState::Alive);
}

pub(super) async fn a_closed_store_refuses_everything(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let store = &fixture.store;
    let root = planted.root.id.clone();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(planted.write(Vec::new()).await, Err(StoreError::Closed)));
    assert!(matches!(store.claim(root.clone(), 1).await, Err(StoreError::Closed)));
    assert!(matches!(store.session(root.clone()).await, Err(StoreError::Closed)));
    assert!(matches!(store.sessions(SessionQuery::Roots { limit: 1 }).await, Err(StoreError::Closed)));
    assert!(matches!(store.runs(root.clone()).await, Err(StoreError::Closed)));
    assert!(matches!(store.trees(TreeQuery::Open).await, Err(StoreError::Closed)));
    assert!(matches!(store.open_commands(root).await, Err(StoreError::Closed)));
    assert!(matches!(store.command("c".into()).await, Err(StoreError::Closed)));
    if let Some(other) = other(&fixture) {
        assert!(row(&other, &planted.root.id).await.is_some());
    }
}

pub(super) async fn both_durabilities_are_taken(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let durabilities = [Durability::Power, Durability::Process, Durability::Power];
    for (seq, durability) in (1..).zip(durabilities) {
        let batch = Batch { durability, ..planted.batch(vec![Write::Append(line(&planted.root.id, seq))]) };
        assert_eq!(fixture.store.commit(batch).await.unwrap().last_seq, seq);
    }
    assert_eq!(planted.log().await.len(), 3);
}
