//! Rows and runs: what was written is read back.

use std::sync::Arc;

use offspring_protocol::{
    AgentType, BadId, External, NodeName, Outcome, PeerId, PoolId, ProjectId, RunRecord, RunState,
    SessionData, SessionLimits, SessionState, SourceType, TaskKey, Timestamp, Usage,
};
use serde_json::value::RawValue;

use super::{
    Fixture,
    plant::{Planted, assert_same, child, id, line, log, root, row, run, run_id, tree},
};
use crate::store::{SessionQuery, StoreError, Write};

/// The longest id a store takes (rule T1).
const MAX_STORED_ID_BYTES: usize = 512;

/// Ids that look alike, or like something else.
const ODD_IDS: &[&str] = &[
    "a",
    "A",
    "a ",
    " a",
    "é",
    "e\u{301}",
    "../../etc/passwd",
    "a\nb",
    "'; --",
    "1",
    "1.0",
    "\u{10FFFF}",
    "%",
    "_",
];

pub(super) async fn t1_ids_are_compared_by_bytes(fixture: Fixture) {
    for odd in ODD_IDS {
        Planted::new(&fixture.store, odd).await;
    }
    for odd in ODD_IDS {
        let found = row(&fixture.store, &id(odd)).await.unwrap();
        assert_same(&found.data, &root(odd));
    }
    assert!(row(&fixture.store, &id("Ä")).await.is_none());
}

pub(super) async fn t1_ids_of_512_bytes_are_stored(fixture: Fixture) {
    let name = "é".repeat(MAX_STORED_ID_BYTES / 2);
    let planted = Planted::new(&fixture.store, &name).await;
    let long = planted.child(&planted.root, &"x".repeat(MAX_STORED_ID_BYTES)).await;
    planted.run(run(&long.id, &"r".repeat(MAX_STORED_ID_BYTES), RunState::Running)).await;
    planted.append(line(&long.id, 1)).await;
    assert_same(&row(&fixture.store, &long.id).await.unwrap().data, &long);
    assert_eq!(planted.log().await, [line(&long.id, 1)]);
}

pub(super) async fn t1_longer_ids_and_nul_are_refused(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let long = "x".repeat(MAX_STORED_ID_BYTES + 1);
    for bad in [long.as_str(), "a\0b"] {
        let refused = planted.write(vec![Write::Session(Arc::new(child(&planted.root, bad)))]).await;
        assert!(matches!(refused, Err(StoreError::BadId(_))), "{refused:?}");
        let mut named = child(&planted.root, "child");
        named.agent_name = NodeName::new(bad).unwrap();
        let refused = planted.write(vec![Write::Session(Arc::new(named))]).await;
        assert!(matches!(refused, Err(StoreError::BadId(_))), "{refused:?}");
        let refused =
            planted.write(vec![Write::Run(Box::new(run(&planted.root.id, bad, RunState::Running)))]).await;
        assert!(matches!(refused, Err(StoreError::BadId(_))), "{refused:?}");
    }
    let refused = planted.write(vec![Write::Session(Arc::new(child(&planted.root, &long)))]).await;
    let Err(StoreError::BadId(BadId::TooLong { bytes, .. })) = refused else { panic!("{refused:?}") };
    assert_eq!(bytes, MAX_STORED_ID_BYTES + 1);
    let found = fixture.store.sessions(SessionQuery::Subtree(planted.root.id.clone())).await.unwrap();
    assert_eq!(found.len(), 1);
}

/// A row with every field set, to values that are easy to lose.
fn full(name: &str) -> SessionData {
    let text = |text: &str| Some(text.to_owned());
    SessionData {
        parent_id: Some(id("nobody stored this")),
        depth: 1,
        project_id: Some(ProjectId::new("3f9a").unwrap()),
        cwd: text("/tmp/a b\nc\u{202e}"),
        agent_name: NodeName::new("näme 'with' \"quotes\"").unwrap(),
        agent_type: AgentType::Team,
        source_type: Some(SourceType::TeamSequential),
        pool_id: Some(PoolId::new("pool").unwrap()),
        task: Some(TaskKey::new("task_1").unwrap()),
        title: text(""),
        model: text("model-1"),
        // Spaces, order of keys, numbers and escapes are the node's own.
        settings: Some(
            RawValue::from_string("{ \"b\": 1.0e+2,\t\"a\":\"\\u00e9\\/\" , \"a\":1 }".into()).unwrap(),
        ),
        limits: SessionLimits {
            max_depth: Some(u32::MAX),
            max_descendants: Some(0),
            max_live_children: None,
            max_wall_ms: Some(u64::MAX),
        },
        external: Some(External { peer: PeerId::new("peer").unwrap(), id: String::new() }),
        created_at: Timestamp(i64::MIN),
        last_active_at: Timestamp(i64::MAX),
        metadata: [("", "x"), ("k", ""), ("ключ", "\u{0}\u{1F}\u{2028}")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        version: "1".to_owned(),
        ..root(name)
    }
}

pub(super) async fn every_field_of_a_row_survives(fixture: Fixture) {
    let planted = Planted::with_root(&fixture.store, full("full")).await;
    assert_same(&row(&fixture.store, &planted.root.id).await.unwrap().data, &planted.root);
    // Each optional field away on its own, so that no two of them are one.
    type Strip = fn(&mut SessionData);
    let strips: &[Strip] = &[
        |row| row.project_id = None,
        |row| row.cwd = None,
        |row| row.source_type = None,
        |row| row.pool_id = None,
        |row| row.task = None,
        |row| row.title = None,
        |row| row.model = None,
        |row| row.settings = None,
        |row| row.limits.max_depth = None,
        |row| row.limits.max_descendants = None,
        |row| row.limits.max_live_children = Some(7),
        |row| row.limits.max_wall_ms = None,
        |row| row.limits = SessionLimits::UNBOUNDED,
        |row| row.external = None,
        |row| row.metadata.clear(),
    ];
    for (number, strip) in strips.iter().enumerate() {
        let mut data = child(&planted.root, &format!("child {number}"));
        data = SessionData { parent_id: data.parent_id, root_id: data.root_id, ..full(data.id.as_str()) };
        strip(&mut data);
        planted.session(&data).await;
        assert_same(&row(&fixture.store, &data.id).await.unwrap().data, &data);
    }
}

pub(super) async fn l7_unknown_words_survive(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    for (number, word) in ["agui", "", "NATIVE", "team_parallel", "a b"].iter().enumerate() {
        let mut data = child(&planted.root, &format!("child {number}"));
        data.agent_type = AgentType::Other((*word).into());
        data.source_type = Some(SourceType::Other((*word).into()));
        planted.session(&data).await;
        let found = row(&fixture.store, &data.id).await.unwrap().data;
        assert_eq!(found.agent_type.as_str(), *word);
        assert_eq!(found.source_type.unwrap().as_str(), *word);
    }
}

pub(super) async fn an_update_changes_all_but_id_parent_root_and_depth(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let before = planted.child(&planted.root, "child").await;
    let wish = SessionData { root_id: id("elsewhere"), depth: 7, ..full("child") };
    planted.write(vec![Write::Update(Arc::new(wish.clone()))]).await.unwrap();
    let expected = SessionData {
        parent_id: before.parent_id.clone(),
        root_id: before.root_id,
        depth: before.depth,
        ..wish
    };
    assert_same(&row(&fixture.store, &before.id).await.unwrap().data, &expected);
    planted.write(vec![Write::Update(Arc::new(child(&planted.root, "child")))]).await.unwrap();
    assert_same(&row(&fixture.store, &before.id).await.unwrap().data, &child(&planted.root, "child"));
}

pub(super) async fn a_taken_id_names_its_owner_and_changes_nothing(fixture: Fixture) {
    let first = Planted::new(&fixture.store, "first").await;
    let taken = first.child(&first.root, "taken").await;
    let second = Planted::new(&fixture.store, "second").await;
    let again = SessionData { title: Some("other".into()), ..child(&second.root, "taken") };
    for planted in [&first, &second] {
        let refused = planted.write(vec![Write::Session(Arc::new(again.clone()))]).await;
        let Err(StoreError::Taken { id, owner }) = refused else { panic!("{refused:?}") };
        assert_eq!((id, owner), (taken.id.clone(), fixture.store.owner()));
    }
    // A root's id, by a child and by the same root again.
    for data in [child(&second.root, "first"), root("first")] {
        let refused = second.write(vec![Write::Session(Arc::new(data))]).await;
        assert!(matches!(refused, Err(StoreError::Taken { .. })), "{refused:?}");
    }
    let twice = child(&second.root, "new");
    let both = vec![Write::Session(Arc::new(twice.clone())), Write::Session(Arc::new(twice.clone()))];
    let refused = second.write(both).await;
    assert!(matches!(refused, Err(StoreError::Taken { .. })), "{refused:?}");
    assert!(row(&fixture.store, &twice.id).await.is_none());
    assert_same(&row(&fixture.store, &taken.id).await.unwrap().data, &taken);
}

pub(super) async fn l12_runs_keep_their_order_and_are_changed_by_id(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let session = &planted.root.id;
    // Their order is that of their coming, not of their names.
    for (ordinal, name) in (1..).zip(["z", "a", "m"]) {
        planted.run(RunRecord { ordinal, ..run(session, name, RunState::Pending) }).await;
    }
    let ended = RunRecord {
        ordinal: 2,
        error: Some("why".into()),
        ended_at: Some(Timestamp(9)),
        ..run(session, "a", RunState::Ended(Outcome::Failed))
    };
    planted.run(ended.clone()).await;
    let runs = fixture.store.runs(session.clone()).await.unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    assert_eq!(runs[1], ended);
    assert_eq!(row(&fixture.store, session).await.unwrap().last_run.unwrap().id, run_id("m"));
    // The same name in another session is another run.
    let child = planted.child(&planted.root, "child").await;
    planted.run(run(&child.id, "a", RunState::Running)).await;
    assert_eq!(fixture.store.runs(session.clone()).await.unwrap()[1], ended);
    assert_eq!(fixture.store.runs(child.id).await.unwrap().len(), 1);
}

pub(super) async fn l15_every_field_of_a_run_survives(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let session = planted.root.id.clone();
    let full = RunRecord {
        ordinal: u32::MAX,
        error: Some(String::new()),
        usage: Usage {
            input_tokens: u64::MAX,
            output_tokens: 1,
            cached_tokens: 2,
            cost_micro_usd: Some(0),
            messages: u64::MAX - 1,
        },
        process: Some("1 2 boot".into()),
        opened_at: Timestamp(i64::MIN),
        ended_at: Some(Timestamp(i64::MAX)),
        left_out_bytes: u64::MAX,
        ..run(&session, "r", RunState::Ended(Outcome::Interrupted))
    };
    let free = RunRecord {
        usage: Usage { cost_micro_usd: None, ..full.usage },
        error: None,
        left_out_bytes: 0,
        ..full.clone()
    };
    for record in [&full, &free] {
        planted.run(record.clone()).await;
        assert_eq!(fixture.store.runs(session.clone()).await.unwrap(), std::slice::from_ref(record));
        assert_eq!(row(&fixture.store, &session).await.unwrap().last_run.as_ref(), Some(record));
    }
}

pub(super) async fn l12_a_session_is_running_while_its_last_run_is_open(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let session = planted.root.id.clone();
    let ends =
        [Outcome::Completed, Outcome::Failed, Outcome::Cancelled, Outcome::Interrupted].map(RunState::Ended);
    for state in [RunState::Pending, RunState::Running].into_iter().chain(ends) {
        planted.run(run(&session, "r", state)).await;
        let found = row(&fixture.store, &session).await.unwrap();
        assert_eq!(found.run_state(), Some(state));
        assert_eq!(found.state() == SessionState::Running, state.is_open());
        assert_eq!(planted.tree().await.open_runs, u64::from(state.is_open()));
    }
}

pub(super) async fn a_batch_is_all_or_nothing(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let kept = planted.child(&planted.root, "kept").await;
    planted.append(line(&kept.id, 1)).await;
    let new = child(&planted.root, "new");
    let good = || {
        vec![
            Write::Session(Arc::new(new.clone())),
            Write::Run(Box::new(run(&new.id, "r", RunState::Running))),
            Write::Append(line(&new.id, 2)),
            Write::Update(Arc::new(SessionData { title: Some("changed".into()), ..kept.clone() })),
            Write::Delete(kept.id.clone()),
        ]
    };
    let bad = [
        Write::Session(Arc::new(planted.root.clone())),
        Write::Session(Arc::new(child(&planted.root, "a\0"))),
        Write::Run(Box::new(run(&id("nobody"), "r", RunState::Running))),
        Write::Append(line(&new.id, 9)),
        Write::Update(Arc::new(child(&planted.root, "nobody"))),
        Write::Delete(id("nobody")),
    ];
    for bad in bad {
        let mut writes = good();
        writes.push(bad);
        planted.write(writes).await.unwrap_err();
        assert!(row(&fixture.store, &new.id).await.is_none());
        assert_same(&row(&fixture.store, &kept.id).await.unwrap().data, &kept);
        assert_eq!(planted.log().await, [line(&kept.id, 1)]);
        let tree = planted.tree().await;
        assert_eq!((tree.last_seq, tree.open_runs), (1, 0));
    }
    assert_eq!(planted.write(good()).await.unwrap().last_seq, 2);
    assert!(row(&fixture.store, &kept.id).await.is_none());
    assert_eq!(planted.log().await, [line(&new.id, 2)]);
}

pub(super) async fn what_is_not_stored_is_unknown(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let nobody = id("nobody");
    let writes = [
        Write::Update(Arc::new(child(&planted.root, "nobody"))),
        Write::Run(Box::new(run(&nobody, "r", RunState::Running))),
        Write::Append(line(&nobody, 1)),
        Write::Delete(nobody.clone()),
    ];
    for write in writes {
        let refused = planted.write(vec![write]).await;
        let Err(StoreError::Unknown { id }) = refused else { panic!("{refused:?}") };
        assert_eq!(id, nobody);
    }
    assert!(matches!(fixture.store.claim(nobody, 1).await, Err(StoreError::Unknown { .. })));
}

pub(super) async fn writes_see_the_writes_before_them(fixture: Fixture) {
    let data = root("root");
    let fence = crate::store::Fence { root: data.id.clone(), owner: fixture.store.owner(), epoch: 1 };
    let planted = Planted { store: fixture.store.clone(), fence, root: data.clone() };
    let (a, b) = (child(&data, "a"), child(&child(&data, "a"), "b"));
    let writes = vec![
        Write::Session(Arc::new(data.clone())),
        Write::Session(Arc::new(a.clone())),
        Write::Session(Arc::new(b.clone())),
        Write::Append(line(&b.id, 1)),
        Write::Run(Box::new(run(&b.id, "r", RunState::Running))),
        Write::Run(Box::new(run(&b.id, "r", RunState::Ended(Outcome::Completed)))),
        Write::Update(Arc::new(SessionData { title: Some("t".into()), ..b.clone() })),
        Write::Delete(a.id.clone()),
        Write::Session(Arc::new(a.clone())),
        Write::Append(line(&a.id, 2)),
    ];
    assert_eq!(planted.write(writes).await.unwrap().last_seq, 2);
    assert_eq!(log(&fixture.store, &data.id).await, [line(&a.id, 2)]);
    assert!(row(&fixture.store, &b.id).await.is_none());
    let deleted_and_used =
        vec![Write::Delete(a.id.clone()), Write::Run(Box::new(run(&a.id, "r", RunState::Running)))];
    assert!(matches!(planted.write(deleted_and_used).await, Err(StoreError::Unknown { .. })));
    // The whole tree, and another of the same name.
    let again = vec![
        Write::Delete(data.id.clone()),
        Write::Session(Arc::new(data.clone())),
        Write::Append(line(&data.id, 1)),
    ];
    assert_eq!(planted.write(again).await.unwrap().last_seq, 1);
    assert!(row(&fixture.store, &a.id).await.is_none());
    assert_eq!(tree(&fixture.store, &data.id).await.unwrap().last_seq, 1);
}
