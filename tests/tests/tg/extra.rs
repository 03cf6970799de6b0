//! What the other implementation had no test for, and broke.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use offspring_delegation::{Subagent, TaskRequest, Worker, Workers};
use offspring_protocol::{
    AgentType, Event, External, Outcome, PeerId, PoolId, ProjectId, RunId, RunRecord, RunState, SessionData,
    SessionId, SessionLimits, SourceType, TaskKey, Timestamp, Usage, control::TaskResult,
};
use offspring_sessions::store::{Batch, Durability, EventQuery, Fence, Write};
use tokio::sync::mpsc;

use crate::world::*;

/// What the tool of a root gets when it delegates to this node.
async fn result_of(house: &House, node: &str) -> TaskResult {
    let (sender, mut results) = mpsc::channel(1);
    let (delegator, node) = (house.delegator().clone(), name(node));
    house
        .in_a_run(move |cx| {
            let (delegator, node, sender) = (delegator.clone(), node.clone(), sender.clone());
            async move {
                let result = Subagent::new(&delegator).task(&cx, TaskRequest::new(node, "x")).await.unwrap();
                sender.send(result).await.unwrap();
            }
        })
        .await;
    results.recv().await.unwrap()
}

#[tokio::test]
async fn extra_a_team_through_the_task_tool_returns_what_its_members_said_in_member_order() {
    let house = House::in_memory().await;
    let stage = Stage::new();
    // The first member is the last to end.
    house.pool.add(team("t", vec![plays("slow", &stage), echo("b"), echo("c")]));
    let mut heard = house.manager().subscribe(offspring_sessions::Scope::All);
    let letting = async {
        let mut ended = 0;
        while ended < 2 {
            let envelope = bounded(heard.recv()).await.unwrap().unwrap();
            ended += usize::from(envelope.event.kind() == "stream_complete");
        }
        stage.let_go(1);
    };
    let (result, ()) = tokio::join!(result_of(&house, "t"), letting);
    assert_eq!(
        result.output,
        "### slow (completed)\nslow\n### b (completed)\nb(x)\n### c (completed)\nc(x)\n"
    );
    let members: Vec<_> =
        result.members.iter().map(|member| (&member.node, member.output.as_str())).collect();
    assert_eq!(members, [(&name("slow"), "slow"), (&name("b"), "b(x)"), (&name("c"), "c(x)")]);
}

#[tokio::test]
async fn extra_a_members_failure_is_an_error_event_of_that_child_and_its_siblings_complete() {
    let house = House::in_memory().await;
    let (root, result) = house.run(team("t", vec![echo("a"), fails("b"), echo("c")]), "x").await;
    assert_eq!(result.outcome, Outcome::Completed);
    let children = house.children(&root).await;
    let log = house.log().await;
    let errors: Vec<_> = log
        .events()
        .filter_map(|(envelope, event)| match event {
            Event::RunError(error) => Some((envelope.session.id.clone(), error.message)),
            _ => None,
        })
        .collect();
    assert_eq!(errors, [(children[1].data.id.clone(), "b broke".to_owned())]);
    for (child, outcome) in children.iter().zip([Outcome::Completed, Outcome::Failed, Outcome::Completed]) {
        let ends: Vec<_> = log.ends().into_iter().filter(|(id, _)| *id == child.data.id).collect();
        assert_eq!(ends, [(child.data.id.clone(), outcome)]);
    }
}

#[tokio::test]
async fn extra_the_root_is_stored_before_its_child_and_children_are_listed_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    house.pool.add(echo("deep"));
    let stage = Stage::new();
    let run = house.start(plays("first", &stage), "x").await;
    // Announced or not: when the call returns the root is in the file.
    assert!(house.manager().store().session(run.session.id.clone()).await.unwrap().is_some());
    stage.let_go(1);
    bounded(run.result).await.unwrap();
    let nodes = vec![asks("middle", house.delegator(), &["deep"]), team("t", vec![echo("a"), echo("b")])];
    let (root, _) = house.delegate(nodes, "x").await;
    let before = house.descendants(&root).await;
    let log = house.log().await;
    let first_seen = |id: &SessionId| log.0.iter().position(|envelope| envelope.session.id == *id).unwrap();
    assert!(before.iter().all(|row| first_seen(&root) < first_seen(&row.data.id)));
    let house = House::open(sqlite(&path)).await;
    let named = |rows: &[offspring_sessions::SessionRecord]| -> Vec<_> {
        rows.iter().map(|row| (row.data.agent_name.clone(), row.data.id.clone(), row.data.depth)).collect()
    };
    assert_eq!(named(&house.descendants(&root).await), named(&before));
    let children = house.children(&root).await;
    let names: Vec<_> = children.iter().map(|row| row.data.agent_name.as_str()).collect();
    assert_eq!(names, ["middle", "a", "b"]);
    house.log().await;
}

#[tokio::test]
async fn extra_depth_is_the_same_on_every_path() {
    let house = House::in_memory().await;
    house.pool.add(echo("leaf"));
    house.pool.add(team("t", vec![echo("leaf")]));
    house.pool.add(chain("c", vec![echo("leaf")]));
    let delegator = house.delegator().clone();
    let middle = agent("middle", move |_, cx| {
        let delegator = delegator.clone();
        async move {
            let cx = Arc::new(cx);
            let subagent = Subagent::new(&delegator);
            for node in ["leaf", "t", "c"] {
                subagent.task(&cx, TaskRequest::new(name(node), "x")).await.unwrap();
                subagent.task_async(&cx, TaskRequest::new(name(node), "x")).await.unwrap();
                let list = [Worker { node: name(node) }];
                Workers::new(&delegator, &list).ask(&cx, node, "x".into()).await.unwrap();
            }
            let context = offspring_delegation::AgentContext { run: Some(&cx), manager: None };
            assert_eq!(context.child_depth(), 2);
            let child = context.create_child_session(name("leaf"), AgentType::Native, None).await.unwrap();
            child.start("x").await.unwrap().end.finish(Ok("leaf".into())).await.unwrap();
            Ok("middle".into())
        }
    });
    let (root, _) = house.delegate(vec![middle], "x").await;
    let rows = house.descendants(&root).await;
    let leaves: BTreeMap<_, _> = rows.iter().map(|row| (row.data.id.clone(), row.data.depth)).collect();
    assert_eq!(leaves.len(), 1 + 10);
    assert_eq!(leaves.values().filter(|depth| **depth == 2).count(), 10);
    let log = house.log().await;
    assert!(log.spawns().iter().all(|spawn| leaves[&spawn.child_session_id] == spawn.depth));
    let below = log.0.iter().filter(|envelope| envelope.session.id != root);
    assert!(below.into_iter().all(|envelope| leaves[&envelope.session.id] == envelope.session.depth));
}

#[tokio::test]
async fn extra_no_event_is_announced_twice_and_all_are_stored_in_that_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let nodes = vec![team("t", vec![chain("c", vec![echo("a"), fails("b")]), echo("a"), echo("a")])];
    let (root, _) = house.delegate(nodes, "x").await;
    let log = house.log().await;
    let numbers: Vec<_> = log.0.iter().map(|envelope| envelope.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let messages: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::MessageComplete(message) => Some(message.message_id.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(messages.iter().collect::<BTreeSet<_>>().len(), messages.len());
    let house = House::open(sqlite(&path)).await;
    let query = EventQuery { root, session: None, after: 0, limit: 10_000 };
    let stored = house.manager().events(query).await.unwrap();
    assert_eq!(stored.len(), log.0.len());
    for (line, envelope) in stored.iter().zip(&log.0) {
        assert_eq!((line.seq, &line.session, &line.run), (envelope.seq, &envelope.session.id, &envelope.run));
        assert_eq!(line.event, envelope.event);
    }
    house.log().await;
}

#[tokio::test]
async fn extra_after_a_run_no_session_is_an_orphan_and_none_is_open() {
    let house = House::in_memory().await;
    let nodes = vec![
        echo("a"),
        team("t", vec![chain("c", vec![echo("a"), fails("b"), echo("never")]), fails("d")]),
        team("nobody", vec![]),
    ];
    let (root, _) = house.delegate(nodes, "x").await;
    let all: Vec<_> = house.manager().subtree(&root).await.unwrap();
    let known: BTreeSet<_> = all.iter().map(|row| row.data.id.clone()).collect();
    let names: Vec<_> = all.iter().map(|row| row.data.agent_name.as_str()).collect();
    assert_eq!(names, ["coordinator", "a", "c", "a", "b", "d"]);
    for row in &all {
        assert!(row.data.parent_id.as_ref().is_none_or(|parent| known.contains(parent)));
        assert!(row.run_state().unwrap().outcome().is_some());
    }
    // And no root beside the one that was asked for.
    assert_eq!(house.manager().roots(10).await.unwrap().len(), 1);
    let log = house.log().await;
    assert_eq!(log.ends().len(), all.len(), "one end each");
}

#[tokio::test]
async fn extra_every_field_of_a_row_and_of_a_run_survives_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let root = SessionData {
        id: id("root"),
        parent_id: None,
        root_id: id("root"),
        depth: 0,
        project_id: None,
        cwd: None,
        agent_name: name("r"),
        agent_type: AgentType::Native,
        source_type: None,
        pool_id: None,
        task: None,
        title: None,
        model: None,
        settings: None,
        limits: SessionLimits::UNBOUNDED,
        external: None,
        created_at: Timestamp(1),
        last_active_at: Timestamp(2),
        metadata: BTreeMap::new(),
        version: "1".to_owned(),
    };
    let child = SessionData {
        id: id("child ü/\u{2028}"),
        parent_id: Some(id("root")),
        root_id: id("root"),
        depth: 1,
        project_id: Some(ProjectId::new("project").unwrap()),
        cwd: Some("/a directory/with 'quotes'".to_owned()),
        agent_name: name("a"),
        agent_type: AgentType::from("a later type"),
        source_type: Some(SourceType::TeamSequential),
        pool_id: Some(PoolId::new("pool").unwrap()),
        task: Some(TaskKey::new("task").unwrap()),
        title: Some("title\nof two lines".to_owned()),
        model: Some("model".to_owned()),
        settings: Some(
            serde_json::value::RawValue::from_string(r#"{ "b": 1.50, "a": [null] }"#.to_owned()).unwrap(),
        ),
        limits: SessionLimits {
            max_depth: Some(1),
            max_descendants: Some(2),
            max_live_children: Some(3),
            max_wall_ms: Some(1 << 52),
        },
        external: Some(External { peer: PeerId::new("peer").unwrap(), id: "their id".to_owned() }),
        created_at: Timestamp(-3),
        last_active_at: Timestamp(1 << 50),
        metadata: BTreeMap::from([("key".to_owned(), "value".to_owned()), (String::new(), "\"".to_owned())]),
        version: "1".to_owned(),
    };
    let run = RunRecord {
        id: RunId::new("run").unwrap(),
        session_id: child.id.clone(),
        ordinal: 7,
        state: RunState::Ended(Outcome::Failed),
        error: Some("what went wrong".to_owned()),
        usage: Usage {
            input_tokens: 1,
            output_tokens: 2,
            cached_tokens: 3,
            cost_micro_usd: Some(4),
            messages: 5,
        },
        process: Some("pid 1 of boot x".to_owned()),
        opened_at: Timestamp(6),
        ended_at: Some(Timestamp(7)),
        left_out_bytes: 0,
    };
    let store = sqlite(&path);
    let fence = Fence { root: id("root"), owner: store.owner(), epoch: 1 };
    let writes = vec![
        Write::Session(Arc::new(root.clone())),
        Write::Session(Arc::new(child.clone())),
        Write::Run(Box::new(run.clone())),
    ];
    store.commit(Batch { fence: Some(fence), writes, durability: Durability::Power }).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let house = House::open(sqlite(&path)).await;
    for row in [&root, &child] {
        let read = house.row(&row.id).await;
        assert_eq!(serde_json::to_string(&read.data).unwrap(), serde_json::to_string(row).unwrap());
    }
    assert_eq!(house.row(&child.id).await.last_run, Some(run));
    house.log().await;
}
