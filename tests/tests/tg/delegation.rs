//! TG tests about delegating: spawns, depth, teams, types.

use std::sync::Arc;

use offspring_delegation::{SubAgentEvent, Subagent, TaskError, TaskRequest, TeamRun, Worker, Workers};
use offspring_pool::Limits;
use offspring_protocol::{
    AgentType, Event, Outcome, SessionId, SessionLimits, SourceType, event::SpawnSessionStart,
};
use offspring_sessions::{NewChild, Refused};

use crate::world::*;

#[tokio::test]
async fn tg_03_a_team_outside_a_pool_makes_ids_and_spawns_and_stores_nothing() {
    let house = House::detached();
    let (root, result) = house.run(team("orphan_team", vec![echo("a"), echo("b")]), "test").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert!(house.manager().store().session(root.clone()).await.unwrap().is_none());
    let log = house.log().await;
    let spawns = log.spawns();
    assert_eq!(spawns.len(), 2);
    assert!(spawns.iter().all(|spawn| spawn.parent_session_id == root && spawn.depth == 1));
    assert_ne!(spawns[0].child_session_id, spawns[1].child_session_id);
}

#[tokio::test]
async fn tg_04_run_started_names_the_child_of_the_spawn_that_caused_it() {
    let house = House::in_memory().await;
    let nodes = vec![echo("worker"), team("t", vec![chain("c", vec![echo("a"), echo("b")]), echo("d")])];
    let (root, _) = house.delegate(nodes, "x").await;
    let log = house.log().await;
    let spawned: Vec<SessionId> = log.spawns().into_iter().map(|spawn| spawn.child_session_id).collect();
    assert_eq!(spawned.len(), 5);
    for child in &spawned {
        let of_child: Vec<_> = log
            .0
            .iter()
            .filter_map(|envelope| SubAgentEvent::seen_from(&root, envelope))
            .filter(|view| view.child_session_id == child)
            .filter_map(|view| match view.event.parse().unwrap() {
                Event::RunStarted(started) => Some(started),
                _ => None,
            })
            .collect();
        assert_eq!(of_child.len(), 1);
        assert_eq!(of_child[0].session_id, *child);
    }
}

/// `coordinator` (0) → `b` (1) → `c` (2).
async fn nested(house: &House) -> SessionId {
    house.pool.add(echo("c"));
    house.delegate(vec![asks("b", house.delegator(), &["c"])], "x").await.0
}

#[tokio::test]
async fn tg_06_depth_grows_by_one_along_a_chain_of_delegations() {
    let house = House::in_memory().await;
    let root = nested(&house).await;
    assert_eq!(house.row(&root).await.data.depth, 0);
    let log = house.log().await;
    let depths: Vec<_> = log.spawns().iter().map(|spawn| (spawn.source_name.clone(), spawn.depth)).collect();
    assert_eq!(depths, [(name("b"), 1), (name("c"), 2)]);
}

#[tokio::test]
async fn tg_07_a_tool_that_names_a_team_makes_its_members_children_of_the_caller() {
    let house = House::in_memory().await;
    let (root, _) = house.delegate(vec![team("team_x", vec![echo("a"), echo("b")])], "run team_x").await;
    let rows = house.descendants(&root).await;
    assert_eq!(rows.iter().map(|row| row.data.agent_name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let log = house.log().await;
    let spawns = log.spawns();
    assert_eq!(spawns.len(), 2);
    assert!(spawns.iter().all(|spawn| spawn.parent_session_id == root && spawn.depth == 1));
}

fn ids(spawns: &[SpawnSessionStart]) -> Vec<&SessionId> {
    let mut ids: Vec<_> = spawns.iter().map(|spawn| &spawn.child_session_id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn tg_08_each_child_of_a_tree_has_exactly_one_spawn() {
    let house = House::in_memory().await;
    let nodes = vec![echo("worker"), team("t", vec![chain("c", vec![echo("a"), echo("b")]), echo("worker")])];
    let (root, _) = house.delegate(nodes, "x").await;
    let rows = house.descendants(&root).await;
    let log = house.log().await;
    let spawns = log.spawns();
    let mut rows: Vec<_> = rows.iter().map(|row| &row.data.id).collect();
    rows.sort();
    assert_eq!(ids(&spawns), rows);
}

#[tokio::test]
async fn tg_13_beyond_the_depth_limit_a_delegation_is_an_error_of_the_tool() {
    let house = House::in_memory().await;
    let again = asks("again", house.delegator(), &["again"]);
    let (root, result) = house.run(again, "x").await;
    assert_eq!(result.outcome, Outcome::Completed, "the error is the tool's and not the run's end");
    assert!(result.answer.contains("delegation depth 11 exceeds the maximum of 10"), "{}", result.answer);
    assert_eq!(house.descendants(&root).await.len(), 10);
    let limits =
        Limits { session: SessionLimits { max_depth: Some(0), ..Default::default() }, ..Limits::default() };
    let house = House::limited(limits);
    for node in [echo("a"), team("t", vec![echo("a")]), chain("c", vec![echo("a")])] {
        house.pool.add(node);
    }
    let delegator = house.delegator().clone();
    let root = house
        .in_a_run(move |cx| {
            let delegator = delegator.clone();
            async move {
                let subagent = Subagent::new(&delegator);
                for node in ["a", "t", "c"] {
                    let refused = subagent.task(&cx, TaskRequest::new(name(node), "x")).await.unwrap_err();
                    let TaskError::Refused(Refused::DelegationDepth { depth: 1, max: 0 }) = refused else {
                        panic!("{refused}")
                    };
                }
            }
        })
        .await;
    assert!(house.descendants(&root).await.is_empty());
}

#[tokio::test]
async fn tg_14_waiting_background_and_worker_delegations_spawn_once_each() {
    let house = House::in_memory().await;
    house.pool.add(echo("worker"));
    let delegator = house.delegator().clone();
    let root = house
        .in_a_run(move |cx| {
            let delegator = delegator.clone();
            async move {
                let subagent = Subagent::new(&delegator);
                let request = || TaskRequest::new(name("worker"), "x");
                subagent.task(&cx, request()).await.unwrap();
                subagent.task_async(&cx, request()).await.unwrap();
                let list = [Worker { node: name("worker") }];
                Workers::new(&delegator, &list).ask(&cx, "ask_worker", "x".into()).await.unwrap();
            }
        })
        .await;
    let children = house.children(&root).await.len();
    let log = house.log().await;
    let spawns = log.spawns();
    let mut once = ids(&spawns);
    once.dedup();
    assert_eq!((children, spawns.len(), once.len()), (3, 3, 3));
}

#[tokio::test]
async fn tg_15_a_worker_of_a_deep_session_is_one_deeper() {
    let house = House::in_memory().await;
    house.pool.add(echo("worker_x"));
    let delegator = house.delegator().clone();
    let boss = agent("boss", move |_, cx| {
        let delegator = delegator.clone();
        async move {
            assert_eq!(cx.depth(), 2);
            let cx = Arc::new(cx);
            let list = [Worker { node: name("worker_x") }];
            let result = Workers::new(&delegator, &list).ask(&cx, "ask_worker_x", "x".into()).await.unwrap();
            Ok(result.output.into())
        }
    });
    house.pool.add(boss);
    let (_, result) = house.delegate(vec![asks("middle", house.delegator(), &["boss"])], "x").await;
    assert_eq!(result.answer, "worker_x(x)");
    let log = house.log().await;
    let depths: Vec<_> = log.spawns().iter().map(|spawn| spawn.depth).collect();
    assert_eq!(depths, [1, 2, 3]);
}

#[tokio::test]
async fn tg_16_a_sequence_below_depth_one_keeps_require_all_and_depth() {
    for (require_all, expected) in [(false, "b(x)"), (true, "")] {
        let house = House::in_memory().await;
        let run = TeamRun { require_all, ..TeamRun::new(name("chain"), vec![fails("a"), echo("b")]) };
        house.pool.add(offspring_delegation::Node::TeamRun(Arc::new(run)));
        let (_, result) = house.delegate(vec![asks("middle", house.delegator(), &["chain"])], "x").await;
        assert_eq!(result.answer, expected);
        let log = house.log().await;
        let members: Vec<_> =
            log.spawns().into_iter().filter(|spawn| spawn.source_name != name("middle")).collect();
        assert_eq!(members.len(), if require_all { 1 } else { 2 });
        assert!(members.iter().all(|spawn| spawn.depth == 2));
    }
}

#[tokio::test]
async fn tg_18_events_of_a_nested_team_keep_their_own_depth() {
    let house = House::in_memory().await;
    let inner = chain("Sequential", vec![echo("a"), echo("b")]);
    let (root, _) = house.run(team("Parallel", vec![inner, echo("c")]), "test").await;
    let log = house.log().await;
    let views: Vec<_> =
        log.0.iter().filter_map(|envelope| SubAgentEvent::seen_from(&root, envelope)).collect();
    for view in &views {
        let expected = match view.source_name.as_str() {
            "Sequential" | "c" => 1,
            _ => 2,
        };
        assert_eq!((view.depth, view.path.len()), (expected, expected as usize + 1), "{}", view.source_name);
    }
    let depths = || views.iter().map(|view| view.depth);
    assert_eq!((depths().min(), depths().max()), (Some(1), Some(2)));
}

#[tokio::test]
async fn tg_20_an_agent_of_every_type_runs_at_the_depth_it_was_delegated_to() {
    let house = House::in_memory().await;
    let types: Vec<_> = AgentType::KNOWN.iter().cloned().chain([AgentType::from("agui")]).collect();
    let nodes: Vec<_> = types
        .iter()
        .map(|agent_type| {
            typed(agent_type.as_str(), agent_type.clone(), |_, cx| async move {
                Ok(format!("{} {}", cx.depth(), cx.session().agent_type).into())
            })
        })
        .collect();
    let (_, result) = house.delegate(vec![team("all", nodes)], "x").await;
    for agent_type in &types {
        let said = format!("### {agent_type} (completed)\n1 {agent_type}\n");
        assert!(result.answer.contains(&said), "{}", result.answer);
    }
}

#[tokio::test]
async fn tg_22_a_team_of_mixed_members_stores_what_each_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let acp = typed("acp_agent", AgentType::Acp, |_, _cx| async { Ok("acp".into()) });
    let mixed = team("Mixed", vec![echo("native_agent"), acp, chain("teamrun_member", vec![])]);
    let (root, _) = house.delegate(vec![mixed], "test").await;
    let log = house.log().await;
    let spawned: Vec<_> = log.spawns().into_iter().map(|spawn| spawn.child_session_id).collect();
    assert_eq!(spawned.len(), 3);
    // What another program finds.
    let house = House::open(sqlite(&path)).await;
    let rows = house.children(&root).await;
    assert_eq!(rows.iter().map(|row| row.data.id.clone()).collect::<Vec<_>>(), spawned);
    let types: Vec<_> = rows.iter().map(|row| row.data.agent_type.as_str()).collect();
    assert_eq!(types, ["native", "acp", "team"]);
    house.log().await;
}

#[test]
fn tg_25_agent_type_and_source_type_come_from_their_own_domains() {
    let (native, team, chain) =
        (echo("native"), team("team", vec![echo("a")]), chain("chain", vec![echo("a")]));
    assert_eq!((native.agent_type().as_str(), native.source_type().as_str()), ("native", "agent"));
    assert_eq!((team.agent_type().as_str(), team.source_type().as_str()), ("team", "team_parallel"));
    assert_eq!((chain.agent_type().as_str(), chain.source_type().as_str()), ("team", "team_sequential"));
}

#[tokio::test]
async fn tg_26_every_source_type_is_valid_in_the_spawn_in_the_view_and_in_the_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let all: Vec<_> = SourceType::KNOWN.iter().cloned().chain([SourceType::from("later")]).collect();
    let (asked, words) = (all.clone(), |types: &[SourceType]| -> Vec<String> {
        types.iter().map(|source_type| source_type.to_string()).collect()
    });
    let root = house
        .in_a_run(move |cx| {
            let asked = asked.clone();
            async move {
                for source_type in asked {
                    let new = NewChild::new(name("child"), AgentType::Native);
                    let child = cx.create_child(NewChild { source_type, ..new }).await.unwrap();
                    let started = child.start("x").await.unwrap();
                    started.end.finish(Ok("done".into())).await.unwrap();
                }
            }
        })
        .await;
    let log = house.log().await;
    let spawned: Vec<_> = log.spawns().into_iter().map(|spawn| spawn.source_type).collect();
    assert_eq!(words(&spawned), words(&all));
    let seen: Vec<_> = log
        .0
        .iter()
        .filter(|envelope| envelope.event.kind() == "run_started")
        .filter_map(|envelope| SubAgentEvent::seen_from(&root, envelope))
        .map(|view| view.source_type.clone())
        .collect();
    assert_eq!(words(&seen), words(&all));
    let house = House::open(sqlite(&path)).await;
    let rows: Vec<_> =
        house.children(&root).await.into_iter().filter_map(|row| row.data.source_type).collect();
    assert_eq!(words(&rows), words(&all));
    assert_eq!(rows, all, "what is not known survives too");
    house.log().await;
    // And what nodes say of themselves is one of them.
    for node in [echo("a"), team("t", vec![]), chain("c", vec![])] {
        assert!(SourceType::KNOWN.contains(&node.source_type()));
    }
}
