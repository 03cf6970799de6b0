//! How deep, how many, how much, and where.

use std::sync::Arc;

use offspring_delegation::{RootOptions, Subagent, TaskError, TaskRequest};
use offspring_pool::Limits;
use offspring_protocol::{Event, MessageId, Outcome, SessionId, SessionLimits, Usage, event::UsageReport};
use offspring_sessions::{Refused, RunError, SessionManager};

use crate::world::*;

fn limits(session: SessionLimits) -> Limits {
    Limits { session, ..Limits::default() }
}

#[tokio::test]
async fn o15_an_agent_that_always_delegates_ends_at_the_depth_limit_with_advice() {
    let house = House::limited(limits(SessionLimits { max_depth: Some(5), ..SessionLimits::default() }));
    let again = asks("again", house.delegator(), &["again"]);
    let (root, result) = house.run(again, "pass it on").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert!(result.answer.contains("delegation depth 6 exceeds the maximum of 5"), "{}", result.answer);
    assert!(result.answer.contains("do this work yourself"), "{}", result.answer);
    let rows = house.manager().subtree(&root).await.unwrap();
    assert_eq!(rows.len(), 6);
    let log = house.log().await;
    assert_eq!(log.spawns().len(), 5);
    // No id, no row, no event of a sixth.
    let known: Vec<&SessionId> = rows.iter().map(|row| &row.data.id).collect();
    assert!(log.0.iter().all(|envelope| known.contains(&&envelope.session.id)));
}

#[tokio::test]
async fn o15_beyond_its_descendants_a_root_is_refused_at_any_depth_and_each_root_counts_for_itself() {
    let house = House::limited(limits(SessionLimits {
        max_depth: Some(5),
        max_descendants: Some(20),
        ..SessionLimits::default()
    }));
    house.pool.add(echo("leaf"));
    house.pool.add(asks("pair", house.delegator(), &["leaf"]));
    for _ in 0..2 {
        let delegator = house.delegator().clone();
        let root = house
            .in_a_run(move |cx| {
                let delegator = delegator.clone();
                async move {
                    let subagent = Subagent::new(&delegator);
                    for _ in 0..10 {
                        subagent.task(&cx, TaskRequest::new(name("pair"), "x")).await.unwrap();
                    }
                    let refused = subagent.task(&cx, TaskRequest::new(name("leaf"), "x")).await.unwrap_err();
                    let text = refused.to_string();
                    let TaskError::Refused(Refused::Descendants { session, max: 20 }) = refused else {
                        panic!("{text}")
                    };
                    assert_eq!(&session, &cx.session().id);
                    assert!(text.contains("do this work yourself"), "{text}");
                }
            })
            .await;
        assert_eq!(house.descendants(&root).await.len(), 20);
    }
    let log = house.log().await;
    assert_eq!(log.spawns().len(), 40);
}

/// Reports this many tokens of a message of its own, twice, then ends as it is told.
fn spends(
    called: &str,
    tokens: u64,
    then: Option<offspring_delegation::Node>,
    house: &House,
) -> offspring_delegation::Node {
    let message = MessageId::new(format!("message of {called}")).unwrap();
    let delegator = house.delegator().clone();
    let below = then.map(|node| {
        let called = node.name().clone();
        house.pool.add(node);
        called
    });
    let own = called.to_owned();
    agent(called, move |_, cx| {
        let (message, delegator, below, own) =
            (message.clone(), delegator.clone(), below.clone(), own.clone());
        async move {
            let cx = Arc::new(cx);
            for _ in 0..2 {
                let usage = Usage::message(tokens, 0);
                cx.emit(Event::Usage(UsageReport { message_id: message.clone(), usage })).await?;
            }
            if let Some(below) = below {
                let asked = Subagent::new(&delegator).task(&cx, TaskRequest::new(below, "x")).await;
                asked.map_err(|refused| RunError::failed("refused", refused.to_string()))?;
            }
            match own.as_str() {
                "b" => Err(RunError::failed("broken", "b broke")),
                "c" => {
                    // Cancelled from outside.
                    std::future::pending::<()>().await;
                    Ok("never".into())
                }
                _ => Ok("done".into()),
            }
        }
    })
}

async fn tokens(manager: &SessionManager, id: &SessionId) -> (u64, u64) {
    let usage = manager.usage(id).await.unwrap();
    (usage.own.total_tokens(), usage.subtree.total_tokens())
}

#[tokio::test]
async fn o16_usage_is_summed_over_the_tree_failed_and_cancelled_included_and_each_message_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let c = spends("c", 5, None, &house);
    let b = spends("b", 20, Some(c), &house);
    let a = spends("a", 10, None, &house);
    let r = spends("r", 100, Some(team("both", vec![a, b])), &house);
    let mut heard = house.manager().subscribe(offspring_sessions::Scope::All);
    let run = house.start(r, "x").await;
    let root = run.session.id.clone();
    let mut seen = 0;
    while seen < 2 {
        let envelope = bounded(heard.recv()).await.unwrap().unwrap();
        seen += usize::from(envelope.event.kind() == "usage" && envelope.session.agent_name == name("c"));
    }
    let find = async |called: &str| {
        let rows = house.descendants(&root).await;
        rows.into_iter().find(|row| row.data.agent_name == name(called)).unwrap()
    };
    let c = find("c").await.data.id;
    bounded(house.manager().cancel(&c, Default::default())).await.unwrap();
    bounded(run.result).await.unwrap();
    let outcome = async |called: &str| find(called).await.run_state().unwrap().outcome().unwrap();
    assert_eq!(
        (outcome("a").await, outcome("b").await, outcome("c").await),
        (Outcome::Completed, Outcome::Failed, Outcome::Cancelled)
    );
    let all: Vec<_> =
        house.manager().subtree(&root).await.unwrap().into_iter().map(|row| row.data.id).collect();
    let numbers = async |manager: &SessionManager| {
        let mut numbers = Vec::new();
        for id in &all {
            numbers.push(tokens(manager, id).await);
        }
        numbers
    };
    let before = numbers(house.manager()).await;
    assert_eq!(before[0], (100, 135));
    assert_eq!(
        before.iter().map(|(own, _)| own).sum::<u64>(),
        135,
        "the sum of all own is the root's subtree"
    );
    assert_eq!(tokens(house.manager(), &find("b").await.data.id).await, (20, 25));
    house.log().await;
    // The whole log is played once more into another program.
    let house = House::open(sqlite(&path)).await;
    assert_eq!(numbers(house.manager()).await, before);
    house.log().await;
}

#[tokio::test]
async fn o23_a_child_works_where_its_parent_does_and_a_missing_directory_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let parents = directory.path().join("p");
    std::fs::create_dir_all(parents.join("sub")).unwrap();
    std::fs::create_dir(directory.path().join("own")).unwrap();
    std::fs::write(parents.join("file"), "").unwrap();
    let parents = parents.to_str().unwrap().to_owned();
    let own = directory.path().join("own").to_str().unwrap().to_owned();
    let house = House::in_memory().await;
    house.pool.add(agent("where", |prompt, cx| async move {
        Ok(format!("{} {}", prompt.text, cx.cwd().unwrap().display()).into())
    }));
    let (delegator, own_dir) = (house.delegator().clone(), own.clone());
    let root = agent("r", move |_, cx| {
        let (delegator, own) = (delegator.clone(), own_dir.clone());
        async move {
            let cx = Arc::new(cx);
            let subagent = Subagent::new(&delegator);
            let mut said = Vec::new();
            for cwd in
                [None, Some("sub"), Some("../p/sub"), Some(own.as_str()), Some("missing"), Some("file")]
            {
                let cwd = cwd.map(str::to_owned);
                let request = TaskRequest { cwd, ..TaskRequest::new(name("where"), "in") };
                said.push(match subagent.task(&cx, request).await {
                    Ok(result) => result.output,
                    Err(refused) => refused.to_string(),
                });
            }
            Ok(said.join("\n").into())
        }
    });
    let options = RootOptions { cwd: Some(parents.clone()), ..RootOptions::default() };
    let run = house.start_with(root, "x", options).await;
    let id = run.session.id.clone();
    let answer = bounded(run.result).await.unwrap().answer;
    let expected = [
        format!("in {parents}"),
        format!("in {parents}/sub"),
        format!("in {parents}/../p/sub"),
        format!("in {own}"),
        format!("the working directory {parents}/missing does not exist"),
        format!("the working directory {parents}/file is not a directory"),
    ];
    assert_eq!(answer.lines().collect::<Vec<_>>(), expected);
    let rows = house.children(&id).await;
    let stored: Vec<_> = rows.iter().map(|row| row.data.cwd.clone().unwrap()).collect();
    let expected =
        [&parents, &format!("{parents}/sub"), &format!("{parents}/../p/sub"), &own].map(Clone::clone);
    assert_eq!(stored, expected, "no row for the refused ones");
    let log = house.log().await;
    assert_eq!(log.spawns().len(), 4);
    // A child with a directory of its own reads nothing of its parent's in what we wrote for it.
    let own_events = log.0.iter().filter(|envelope| envelope.session.id == rows[3].data.id);
    assert!(own_events.into_iter().all(|envelope| !envelope.event.data().get().contains(&parents)));
}

#[tokio::test]
async fn o23_a_child_of_a_session_without_a_directory_has_none_and_a_relative_one_is_refused() {
    let house = House::in_memory().await;
    house.pool.add(echo("a"));
    let delegator = house.delegator().clone();
    let root = house
        .in_a_run(move |cx| {
            let delegator = delegator.clone();
            async move {
                let subagent = Subagent::new(&delegator);
                subagent.task(&cx, TaskRequest::new(name("a"), "x")).await.unwrap();
                // It exists in the directory of this process, which is not meant.
                let request = TaskRequest { cwd: Some("src".to_owned()), ..TaskRequest::new(name("a"), "x") };
                let refused = subagent.task(&cx, request).await.unwrap_err();
                assert!(matches!(refused, TaskError::Refused(Refused::Cwd { .. })), "{refused}");
            }
        })
        .await;
    let rows = house.children(&root).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].data.cwd, None);
}
