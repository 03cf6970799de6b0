//! One child at a time: stored before it is announced, one spawn, right depth, inherited, bounded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::{collections::BTreeMap, sync::Arc};

use offspring_delegation::{
    AgentContext, Delegator, DelegatorOptions, Node, RootOptions, SubAgentEvent, Subagent, TaskError,
    TaskRequest, Worker, Workers, workers::WorkerTool,
};
use offspring_protocol::{
    AgentType, Event, Outcome, RunState, SessionLimits, SourceType, TaskId, ToolCallId, event::SpawnMechanism,
};
use offspring_sessions::{NewRoot, Refused, RunError, SessionManager};
use tokio::sync::mpsc;
use world::*;

/// A root that asks `a`, which asks `b`.
async fn three_levels(world: &World) -> offspring_protocol::SessionId {
    world.delegator.add(echo("b"));
    world.delegator.add(asks("a", &world.delegator, "b"));
    let (root, result) = world.run(asks("r", &world.delegator, "a"), "hi").await;
    assert_eq!(result.answer, "b(hi)");
    root
}

#[tokio::test]
async fn l1_a_child_is_in_the_store_when_its_spawn_is_heard() {
    let world = World::new();
    world.delegator.add(echo("a"));
    let mut heard = world.manager.subscribe(offspring_sessions::Scope::All);
    let run = world.delegator.run_root(asks("r", &world.delegator, "a"), "x".into(), RootOptions::default());
    let run = run.await.unwrap();
    let spawn = loop {
        let envelope = bounded(heard.recv()).await.unwrap().unwrap();
        if let Event::SpawnSessionStart(spawn) = envelope.event.parse().unwrap() {
            break spawn;
        }
    };
    let row = world.manager.store().session(spawn.child_session_id.clone()).await.unwrap().unwrap();
    assert_eq!(row.data.parent_id.as_ref(), Some(&run.session.id));
    bounded(run.result).await.unwrap();
}

#[tokio::test]
async fn l2_l10_each_child_has_one_spawn_and_its_run_started_carries_the_same_id() {
    let world = World::new();
    let root = three_levels(&world).await;
    let children: Vec<_> = world.descendants(&root).await.into_iter().map(|row| row.data.id).collect();
    let log = world.log().await;
    let spawned: Vec<_> = log.spawns().into_iter().map(|spawn| spawn.child_session_id).collect();
    assert_eq!(spawned, children);
    let started: Vec<_> = log.starts().into_iter().map(|started| started.session_id).collect();
    assert_eq!(started, [vec![root], children.clone()].concat());
    for child in &children {
        let of_child =
            |event: &Event| matches!(event, Event::SpawnSessionStart(s) if s.child_session_id == *child);
        let spawn = log.position(|_, event| of_child(event)).unwrap();
        let start =
            log.position(|_, event| matches!(event, Event::RunStarted(s) if s.session_id == *child)).unwrap();
        assert!(spawn < start, "stored and announced before it runs");
        // The child's start belongs to the child, its spawn to its parent.
        assert_eq!(log.0[start].session.id, *child);
        assert_ne!(log.0[spawn].session.id, *child);
    }
}

#[tokio::test]
async fn l3_a_child_inherits_project_and_directory_and_a_relative_one_starts_there() {
    let here = std::env::temp_dir();
    let own = here.join(format!("offspring-delegation-{}", std::process::id()));
    std::fs::create_dir_all(own.join("sub")).unwrap();
    let world = World::new();
    world.delegator.add(echo("a"));
    let delegator = world.delegator.clone();
    let root = Scripted::new("r", move |_, cx| {
        let delegator = delegator.clone();
        async move {
            let cx = Arc::new(cx);
            let subagent = Subagent::new(&delegator);
            for cwd in [None, Some("sub"), Some("nowhere")] {
                let request = TaskRequest { cwd: cwd.map(str::to_owned), ..TaskRequest::new(name("a"), "x") };
                let asked = subagent.task(&cx, request).await;
                match cwd {
                    Some("nowhere") => {
                        assert!(matches!(asked, Err(TaskError::Refused(Refused::Cwd { .. }))), "{asked:?}");
                    }
                    _ => drop(asked.unwrap()),
                }
            }
            Ok("done".into())
        }
    });
    let cwd = own.to_str().unwrap().to_owned();
    let options = RootOptions { cwd: Some(cwd.clone()), ..RootOptions::default() };
    let run = world.delegator.run_root(root.node(), "x".into(), options).await.unwrap();
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    let root = world.manager.session(&run.session.id).await.unwrap().unwrap().data;
    let children = world.children(&run.session.id).await;
    assert_eq!(children.len(), 2, "a missing directory leaves nothing");
    assert!(root.project_id.is_some());
    assert!(children.iter().all(|child| child.data.project_id == root.project_id));
    assert_eq!(children[0].data.cwd.as_ref(), Some(&cwd));
    assert_eq!(children[1].data.cwd.as_deref(), Some(own.join("sub").to_str().unwrap()));
    std::fs::remove_dir_all(own).unwrap();
}

#[tokio::test]
async fn l3_a_child_of_an_unknown_parent_has_depth_one_and_the_default_policy() {
    let world = World::new();
    let context = AgentContext { run: None, manager: Some(&world.manager) };
    let child =
        context.create_child_session(name("a"), AgentType::Native, Some(&id("nobody"))).await.unwrap();
    let data = child.data().clone();
    assert_eq!((data.parent_id.as_ref(), &data.root_id, data.depth), (Some(&id("nobody")), &data.id, 1));
    assert_eq!(data.limits, SessionLimits::default());
    assert_eq!(child.give_up(RunError::failed("unused", "unused")).await.unwrap(), Outcome::Failed);
}

#[tokio::test]
async fn l4_depth_is_the_same_in_spawn_events_and_row_at_every_level() {
    let world = World::new();
    let root = three_levels(&world).await;
    let rows = world.descendants(&root).await;
    assert_eq!(rows.iter().map(|row| row.data.depth).collect::<Vec<_>>(), [1, 2]);
    let log = world.log().await;
    for (row, spawn) in rows.iter().zip(log.spawns()) {
        assert_eq!((spawn.depth, &spawn.child_session_id), (row.data.depth, &row.data.id));
        assert_eq!(spawn.path.len(), row.data.depth as usize + 1);
        let events: Vec<_> = log.0.iter().filter(|envelope| envelope.session.id == row.data.id).collect();
        assert!(events.len() >= 4);
        assert!(events.iter().all(|envelope| envelope.session.depth == row.data.depth));
        assert!(events.iter().all(|envelope| envelope.session.path[..] == spawn.path[..]));
    }
}

#[tokio::test]
async fn l5_beyond_the_depth_a_delegation_is_refused_before_any_child_exists_and_the_run_goes_on() {
    let limits = SessionLimits { max_depth: Some(2), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    let again = asks("again", &world.delegator, "again");
    world.delegator.add(again.clone());
    let (root, result) = world.run(again, "x").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert!(result.answer.contains("exceeds the maximum of 2"), "{}", result.answer);
    assert!(result.answer.contains("do this work yourself"), "{}", result.answer);
    assert_eq!(world.descendants(&root).await.len(), 2);
    let log = world.log().await;
    assert_eq!(log.spawns().len(), 2);
    assert!(log.ends().iter().all(|(_, outcome)| *outcome == Outcome::Completed));
    // The refused call is the caller's own, and its log has both ends of it.
    let calls: Vec<_> = log
        .events()
        .filter_map(|(envelope, event)| match event {
            Event::ToolCallComplete(call) => Some((envelope.session.depth, envelope.late, call)),
            _ => None,
        })
        .collect();
    let (depth, late, refused) = &calls[0];
    assert_eq!((*depth, *late, refused.is_error), (2, false, true));
    assert!(refused.sessions.is_empty() && refused.output.contains("exceeds the maximum"));
    assert!(calls[1..].iter().all(|(_, _, call)| !call.is_error && call.output.is_empty()));
}

#[tokio::test]
async fn l5_the_default_depth_is_ten_also_for_a_detached_delegator() {
    let delegator = Delegator::detached();
    let again = asks("again", &delegator, "again");
    delegator.add(again.clone());
    let run = delegator.run_root(again, "x".into(), RootOptions::default()).await.unwrap();
    let result = bounded(run.result).await.unwrap();
    assert!(result.answer.contains("depth 11 exceeds the maximum of 10"), "{}", result.answer);
    assert_eq!(delegator.manager().descendants(&run.session.id).await.unwrap().len(), 10);
}

#[tokio::test]
async fn l5_l17_the_bounds_of_a_root_narrow_and_never_widen() {
    let limits = SessionLimits { max_depth: Some(50), max_descendants: Some(7), ..SessionLimits::UNBOUNDED };
    let world = World::with(DelegatorOptions { limits: limits.clone(), ..DelegatorOptions::default() });
    let mut agent = Scripted::new("a", |_, _cx| async { Ok("x".into()) });
    agent.limits =
        SessionLimits { max_descendants: Some(3), max_depth: Some(90), ..SessionLimits::UNBOUNDED };
    let agent = agent.node();
    let row = async |run: offspring_delegation::RootRun| {
        let id = run.session.id.clone();
        bounded(run.result).await.unwrap();
        world.manager.session(&id).await.unwrap().unwrap().data.limits
    };
    let run = world.delegator.run_root(echo("e"), "x".into(), RootOptions::default()).await.unwrap();
    assert_eq!(row(run).await, limits, "wider than the defaults is not narrowed by them");
    let asked = SessionLimits { max_depth: Some(4), ..SessionLimits::UNBOUNDED };
    let options = || RootOptions { limits: asked.clone(), ..RootOptions::default() };
    let run = world.delegator.run_root(agent.clone(), "x".into(), options()).await.unwrap();
    assert_eq!(
        row(run).await,
        SessionLimits { max_depth: Some(4), max_descendants: Some(3), ..limits.clone() }
    );
    let run = world.delegator.run_root(team("t", vec![]), "x".into(), options()).await.unwrap();
    assert_eq!(row(run).await, SessionLimits { max_depth: Some(4), ..limits });
}

#[tokio::test]
async fn l5_descendants_and_live_children_are_bounded_and_counted_back() {
    let limits = SessionLimits { max_live_children: Some(2), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    world.delegator.add(team("three", vec![echo("m"); 3]));
    let (root, result) = world.task(TaskRequest::new(name("three"), "x")).await;
    let outcomes: Vec<_> = result.members.iter().map(|member| member.outcome).collect();
    assert_eq!(outcomes, [Outcome::Completed, Outcome::Completed, Outcome::Failed]);
    assert!(result.members[2].error.as_ref().unwrap().contains("2 children"));
    assert_eq!(result.members[2].session, None);
    assert_eq!(world.children(&root).await.len(), 2);
    // One after another they are never more than one.
    world.delegator.add(chain("chain", vec![echo("m"); 3]));
    let (root, _) = world.task(TaskRequest::new(name("chain"), "x")).await;
    assert_eq!(world.children(&root).await.len(), 3);
}

#[tokio::test]
async fn l7_what_a_node_is_and_how_it_was_delegated_to_are_two_things() {
    let world = World::new();
    let (both, one) = (team("both", vec![echo("a")]), chain("one", vec![echo("a")]));
    assert_eq!((echo("a").agent_type(), echo("a").source_type()), (AgentType::Native, SourceType::Agent));
    assert_eq!((both.agent_type(), both.source_type()), (AgentType::Team, SourceType::TeamParallel));
    assert_eq!((one.agent_type(), one.source_type()), (AgentType::Team, SourceType::TeamSequential));
    let (root, _) = world.run(team("t", vec![both, one, echo("a")]), "x").await;
    let rows = world.children(&root).await;
    let of = |n: usize| (rows[n].data.agent_type.clone(), rows[n].data.source_type.clone().unwrap());
    assert_eq!(of(0), (AgentType::Team, SourceType::TeamParallel));
    assert_eq!(of(1), (AgentType::Team, SourceType::TeamSequential));
    assert_eq!(of(2), (AgentType::Native, SourceType::Agent));
    for (row, spawn) in rows.iter().zip(world.log().await.spawns().into_iter().filter(|s| s.depth == 1)) {
        assert_eq!(Some(spawn.source_type), row.data.source_type);
        assert_eq!(spawn.agent_type, row.data.agent_type);
    }
}

#[tokio::test]
async fn l8_outside_a_pool_ids_are_made_and_events_emitted_and_nothing_is_stored() {
    let delegator = Delegator::detached();
    let mut heard = delegator.manager().subscribe(offspring_sessions::Scope::All);
    let run = delegator.run_root(team("t", vec![echo("a"), echo("b")]), "x".into(), RootOptions::default());
    let run = run.await.unwrap();
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    assert!(delegator.manager().store().session(run.session.id.clone()).await.unwrap().is_none());
    delegator.manager().close().await.unwrap();
    let mut spawns = 0;
    while let Some(envelope) = bounded(heard.recv()).await.unwrap() {
        spawns += usize::from(envelope.event.kind() == "spawn_session_start");
    }
    assert_eq!(spawns, 2);
}

#[tokio::test]
async fn l9_a_session_that_was_delegated_is_found_and_not_written_again() {
    let world = World::new();
    let root = three_levels(&world).await;
    let before = world.descendants(&root).await[0].data.clone();
    let ensured = world.manager.ensure_session(&before.id, Some(&root)).await.unwrap();
    assert_eq!(ensured.how, offspring_sessions::How::Memory);
    let after = world.descendants(&root).await[0].data.clone();
    assert_eq!(serde_json::to_string(&before).unwrap(), serde_json::to_string(&after).unwrap());
}

#[tokio::test]
async fn l12_a_new_prompt_is_a_new_run_of_the_same_session_without_a_second_spawn() {
    let world = World::new();
    let root = three_levels(&world).await;
    let child = world.children(&root).await[0].data.id.clone();
    let again = bounded(world.delegator.prompt_child(&child, echo("a"), "again".into())).await.unwrap();
    assert_eq!((again.output.as_str(), again.session.as_ref()), ("a(again)", Some(&child)));
    let run = world.delegator.prompt_root(&root, fails("r"), "more".into()).await.unwrap();
    let result = bounded(run.result).await.unwrap();
    assert_eq!((result.outcome, result.error.as_deref()), (Outcome::Failed, Some("r broke")));
    assert_eq!(world.descendants(&root).await.len(), 2);
    let runs = world.manager.store().runs(root.clone()).await.unwrap();
    let states: Vec<_> = runs.iter().map(|run| run.state).collect();
    assert_eq!(states, [RunState::Ended(Outcome::Completed), RunState::Ended(Outcome::Failed)]);
    let log = world.log().await;
    assert_eq!(log.spawns().len(), 2);
    assert_eq!(log.starts().len(), 5);
}

#[tokio::test]
async fn l12_a_child_may_be_prompted_as_a_root_while_its_tree_runs() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(echo("a"));
    world.delegator.add(plays("p", &stage));
    world.delegator.add(chain("then", vec![echo("a"), plays("p", &stage)]));
    let run =
        world.delegator.run_root(asks("r", &world.delegator, "then"), "x".into(), RootOptions::default());
    let run = run.await.unwrap();
    stage.arrived(1).await;
    let child = world.children(&run.session.id).await[0].data.id.clone();
    // Its own tree is not at rest, and it does not wait for that.
    let again = world.delegator.prompt_root(&child, echo("a"), "again".into()).await.unwrap();
    assert_eq!(bounded(again.result).await.unwrap().answer, "a(again)");
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().answer, "p");
}

#[tokio::test]
async fn l12_a_panic_fails_its_run_and_nothing_else() {
    let world = World::new();
    let literal = Scripted::new("a", |_, cx| async move {
        assert!(cx.depth() == 9, "no such depth");
        Ok("never".into())
    });
    let formatted = Scripted::new("b", |prompt, _cx| async move { panic!("not {}", prompt.text) });
    let early = Scripted::new("c", |_, _cx| -> std::future::Ready<_> { panic!("before it began") });
    let node = team("t", vec![literal.node(), formatted.node(), early.node(), echo("d")]);
    world.delegator.add(node);
    let (root, result) = world.task(TaskRequest::new(name("t"), "so")).await;
    let errors: Vec<_> =
        result.members.iter().map(|member| member.error.clone().unwrap_or_default()).collect();
    let said = ["no such depth", "not so", "before it began", ""];
    for (error, said) in errors.iter().zip(said) {
        assert!(error.contains(said) && (said.is_empty() || error.contains("panicked")), "{errors:?}");
    }
    let states: Vec<_> = world.children(&root).await.iter().map(|row| row.run_state().unwrap()).collect();
    let failed = RunState::Ended(Outcome::Failed);
    assert_eq!(states, [failed, failed, failed, RunState::Ended(Outcome::Completed)]);
    let log = world.log().await;
    let codes: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::RunError(error) => Some(error.code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["panicked"; 3]);
}

#[tokio::test]
async fn a_spawn_carries_what_the_caller_said_and_the_row_keeps_it() {
    let world = World::new();
    let mut agent = Scripted::new("a", |_, _cx| async { Ok("x".into()) });
    agent.model = Some("m2".to_owned());
    agent.limits = SessionLimits { max_depth: Some(3), ..SessionLimits::UNBOUNDED };
    world.delegator.add(agent.node());
    let notes = BTreeMap::from([("why".to_owned(), "because".to_owned())]);
    let call = ToolCallId::new("call-7").unwrap();
    let request = TaskRequest {
        description: "look at it".to_owned(),
        metadata: notes.clone(),
        tool_call: Some(call.clone()),
        ..TaskRequest::new(name("a"), "x")
    };
    let (root, result) = world.task(request).await;
    let row = world.children(&root).await[0].data.clone();
    assert_eq!(result.task, TaskId { task: row.task.clone().unwrap(), sessions: vec![row.id.clone()] });
    assert_eq!(row.title.as_deref(), Some("look at it"));
    assert_eq!((row.model.as_deref(), row.limits.max_depth, &row.metadata), (Some("m2"), Some(3), &notes));
    let log = world.log().await;
    let spawn = log.spawns().remove(0);
    assert_eq!(spawn.tool_call_id, Some(call.clone()));
    assert_eq!(spawn.spawn_mechanism, SpawnMechanism::Task);
    assert_eq!((spawn.description.as_str(), spawn.task.as_ref()), ("look at it", row.task.as_ref()));
    assert_eq!((spawn.model_id.as_deref(), spawn.metadata), (Some("m2"), notes));
    let calls: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::ToolCallStart(start) => Some((start.tool_call_id, start.tool_name, start.title)),
            Event::ToolCallComplete(end) => Some((end.tool_call_id, end.tool_name, end.output)),
            _ => None,
        })
        .collect();
    let expected = |text: &str| (call.clone(), "task".to_owned(), text.to_owned());
    assert_eq!(calls, [expected("look at it"), expected("")]);
}

#[tokio::test]
async fn an_unknown_node_is_an_error_that_names_what_was_probably_meant() {
    let world = World::new();
    for node in ["survey", "history", "x"] {
        world.delegator.add(echo(node));
    }
    let unknown = |node: &str| world.delegator.node(&name(node)).unwrap_err();
    assert_eq!(unknown("histroy").suggestion, Some(name("history")));
    assert_eq!(unknown("suvey").suggestion, Some(name("survey")));
    assert_eq!(unknown("histxxx").suggestion, Some(name("history")), "a third of it differs");
    assert_eq!(unknown("hisxxxx").suggestion, None);
    assert_eq!(unknown("report").suggestion, None);
    assert_eq!(unknown("y").suggestion, None, "of one letter every letter would be close");
    assert_eq!(unknown("zzz").available, [name("history"), name("survey"), name("x")]);
    let text = unknown("histroy").to_string();
    assert_eq!(text, "there is no node `histroy`; did you mean `history`?");
    assert_eq!(
        unknown("report").to_string(),
        "there is no node `report`; there are: `history`, `survey`, `x`"
    );
    let (root, result) = world.run(asks("r", &world.delegator, "histroy"), "x").await;
    assert!(result.answer.contains("did you mean `history`"), "{}", result.answer);
    assert!(world.children(&root).await.is_empty());
    let log = world.log().await;
    assert_eq!(log.position(|_, event| matches!(event, Event::ToolCallStart(_))), None);
}

#[tokio::test]
async fn a_root_is_titled_by_the_first_line_that_says_something() {
    let world = World::new();
    let title = async |prompt: &str, title: Option<&str>| {
        let options = RootOptions { title: title.map(str::to_owned), ..RootOptions::default() };
        let run = world.delegator.run_root(echo("a"), prompt.into(), options).await.unwrap();
        let id = run.session.id.clone();
        bounded(run.result).await.unwrap();
        world.manager.session(&id).await.unwrap().unwrap().data.title.unwrap()
    };
    assert_eq!(title("\n  \n  first line \nsecond", None).await, "first line");
    assert_eq!(title("given", Some("own")).await, "own");
    assert_eq!(title("", None).await, "");
    let (fits, long) = ("é".repeat(80), "é".repeat(81));
    assert_eq!(title(&fits, None).await, fits);
    assert_eq!(title(&long, None).await, format!("{fits}…"));
}

#[tokio::test]
async fn nodes_are_known_by_name_replaced_listed_and_forgotten() {
    let world = World::new();
    let mut described = Scripted::new("a", |_, _cx| async { Ok("new".into()) });
    described.description = "does a".to_owned();
    world.delegator.add(echo("a"));
    world.delegator.add(described.node());
    world.delegator.add(team("t", vec![echo("a")]));
    let listed = Subagent::new(&world.delegator).list_available_nodes();
    let listed: Vec<_> = listed
        .into_iter()
        .map(|node| (node.name, node.source_type, node.agent_type, node.description))
        .collect();
    assert_eq!(listed[0], (name("a"), SourceType::Agent, AgentType::Native, "does a".to_owned()));
    assert_eq!(listed[1], (name("t"), SourceType::TeamParallel, AgentType::Team, String::new()));
    assert_eq!(world.run(world.delegator.node(&name("a")).unwrap(), "x").await.1.answer, "new");
    world.delegator.clear();
    assert!(world.delegator.nodes().is_empty());
}

/// Runs this with the context of a root's run.
async fn in_a_run<F, Fut>(world: &World, what: F)
where
    F: Fn(Arc<offspring_sessions::RunContext>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let what = Arc::new(what);
    let root = Scripted::new("r", move |_, cx| {
        let what = Arc::clone(&what);
        async move {
            what(Arc::new(cx)).await;
            Ok("done".into())
        }
    });
    let (_, result) = world.run(root.node(), "x").await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
}

#[tokio::test]
async fn workers_are_tools_named_ask_and_their_children_are_as_deep_as_any() {
    let world = World::new();
    let mut expert =
        Scripted::new("expert", |prompt, _cx| async move { Ok(format!("e:{}", prompt.text).into()) });
    expert.description = "knows".to_owned();
    for node in
        [expert.node(), team("crew", vec![echo("m")]), echo("x"), echo("ask_x"), chain("line", vec![])]
    {
        world.delegator.add(node);
    }
    let delegator = world.delegator.clone();
    in_a_run(&world, move |cx| {
        let delegator = delegator.clone();
        async move {
            let named = ["expert", "crew", "line", "gone", "ask_x", "x"];
            let list: Vec<Worker> = named.map(|node| Worker { node: name(node) }).into();
            let workers = Workers::new(&delegator, &list);
            let tool = |name: &str, description: &str| WorkerTool {
                name: name.to_owned(),
                description: description.to_owned(),
            };
            assert_eq!(
                workers.tools(),
                [
                    tool("ask_expert", "Get expert answer from specialized agent: knows"),
                    tool("ask_crew", "Delegate task to worker: crew"),
                    tool("ask_line", "Delegate task to worker: line"),
                    tool("ask_ask_x", "Get expert answer from specialized agent: ask_x"),
                    tool("ask_x", "Get expert answer from specialized agent: x"),
                ]
            );
            let ask = async |tool: &str| workers.ask(&cx, tool, "q".into()).await;
            assert_eq!(ask("ask_expert").await.unwrap().output, "e:q");
            assert_eq!(ask("expert").await.unwrap().output, "e:q");
            assert_eq!(ask("ask_x").await.unwrap().output, "x(q)");
            assert_eq!(ask("ask_ask_x").await.unwrap().output, "ask_x(q)");
            let only = [Worker { node: name("ask_x") }];
            let result = Workers::new(&delegator, &only).ask(&cx, "ask_x", "q".into()).await.unwrap();
            assert_eq!(result.output, "ask_x(q)");
            let Err(TaskError::UnknownNode(unknown)) = ask("ask_nobody").await else { panic!() };
            assert_eq!((unknown.name, unknown.available), (name("ask_nobody"), named.map(name).to_vec()));
            let Err(TaskError::UnknownNode(unknown)) = ask("ask_gone").await else { panic!() };
            assert_eq!(unknown.name, name("gone"));
        }
    })
    .await;
    let log = world.log().await;
    assert!(log.spawns().iter().all(|spawn| spawn.depth == 1 && spawn.tool_call_id.is_some()));
    let tools: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::ToolCallStart(start) => Some(start.tool_name),
            _ => None,
        })
        .collect();
    assert_eq!(tools, ["ask_expert", "ask_expert", "ask_x", "ask_ask_x", "ask_ask_x"]);
}

#[tokio::test]
async fn l1_l3_l8_an_agent_context_falls_back_from_run_to_pool_to_nothing() {
    let world = World::new();
    let (results, mut made) = mpsc::channel(8);
    let other = SessionManager::detached();
    let others = other.clone();
    in_a_run(&world, move |cx| {
        let (results, other) = (results.clone(), others.clone());
        async move {
            let own = cx.session().id.clone();
            let context = AgentContext { run: Some(&cx), manager: Some(&other) };
            assert_eq!(context.child_depth(), 1);
            for parent in [None, Some(&own), Some(&id("stranger"))] {
                let child = context.create_child_session(name("a"), AgentType::Claude, parent).await.unwrap();
                results.send(child.session().id.clone()).await.unwrap();
                child.give_up(RunError::failed("unused", "unused")).await.unwrap();
            }
        }
    })
    .await;
    let root = world.manager.roots(9).await.unwrap().into_iter().find(|root| root.data.parent_id.is_none());
    let root = root.unwrap().data.id;
    for parent in [root.clone(), root, id("stranger")] {
        let child = made.recv().await.unwrap();
        // All three are in the run's store, not in that of the manager that stands by.
        let row = world.manager.session(&child).await.unwrap().unwrap().data;
        assert_eq!((row.parent_id, row.depth, row.agent_type), (Some(parent), 1, AgentType::Claude));
        assert!(other.session(&child).await.unwrap().is_none());
    }
    let pool = AgentContext { run: None, manager: Some(&world.manager) };
    let stored = world.manager.create_root(NewRoot::new(name("r"), AgentType::Native)).await.unwrap();
    let parent = stored.session().id.clone();
    let child = pool.create_child_session(name("a"), AgentType::Native, Some(&parent)).await.unwrap();
    assert_eq!(child.session().depth, 1);
    assert!(world.manager.session(&child.session().id).await.unwrap().is_some());
    let nothing = AgentContext::default();
    assert_eq!(nothing.child_depth(), 1);
    let child = nothing.create_child_session(name("a"), AgentType::Native, None).await.unwrap();
    assert_eq!((child.session().depth, child.session().parent.is_some()), (1, true));
    assert!(world.manager.session(&child.session().id).await.unwrap().is_none());
}

#[tokio::test]
async fn l14_a_cancelled_run_makes_no_child_through_its_agent_context() {
    let world = World::new();
    let (refusals, mut refused) = mpsc::channel(2);
    let stage = Stage::new();
    let playing = stage.clone();
    stage.let_go(1);
    let mut agent = Scripted::new("r", move |_, cx| {
        let (refusals, stage) = (refusals.clone(), playing.clone());
        async move {
            stage.play().await;
            cx.stop_requested().cancelled().await;
            let own = cx.session().id.clone();
            let context = AgentContext { run: Some(&cx), manager: None };
            for parent in [None, Some(&own)] {
                let made = context.create_child_session(name("a"), AgentType::Native, parent).await;
                refusals.send(made.unwrap_err()).await.unwrap();
            }
            Ok("stopped".into())
        }
    });
    agent.stop_grace = std::time::Duration::from_secs(10);
    let run = world.delegator.run_root(agent.node(), "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    let scope = offspring_sessions::CancelScope::Run;
    bounded(world.manager.cancel(&run.session.id, scope)).await.unwrap();
    for _ in 0..2 {
        assert!(matches!(refused.recv().await.unwrap(), Refused::Cancelled));
    }
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn l4_the_view_of_an_event_has_the_absolute_depth_and_only_for_those_above() {
    let world = World::new();
    let root = three_levels(&world).await;
    let rows = world.descendants(&root).await;
    let (a, b) = (rows[0].data.id.clone(), rows[1].data.id.clone());
    let log = world.log().await;
    let mut seen = 0;
    for envelope in &log.0 {
        let view = SubAgentEvent::seen_from(&root, envelope);
        assert_eq!(view.is_some(), envelope.session.id != root);
        assert!(SubAgentEvent::seen_from(&id("stranger"), envelope).is_none());
        assert!(SubAgentEvent::seen_from(&b, envelope).is_none(), "nothing is below it");
        let Some(view) = view else { continue };
        seen += 1;
        assert_eq!(view.depth, envelope.session.depth);
        assert_eq!(view.event, &envelope.event);
        assert_eq!(view.source_type, &SourceType::Agent);
        let (own, parent) = if envelope.session.depth == 1 { (&a, &root) } else { (&b, &a) };
        assert_eq!((view.child_session_id, view.parent_session_id), (own, parent));
        assert_eq!(view.source_name.as_str(), if view.depth == 1 { "a" } else { "b" });
        assert_eq!(view.path.last(), Some(own));
        let from_a = SubAgentEvent::seen_from(&a, envelope);
        assert_eq!(from_a.map(|view| view.depth), (view.depth == 2).then_some(2));
    }
    assert!(seen >= 8);
}

#[test]
fn a_node_shows_its_structure() {
    let node = team("t", vec![chain("c", vec![echo("a"), echo("b")]), echo("d")]);
    assert_eq!(format!("{node:?}"), "((a | b) & d)");
    assert_eq!(format!("{:?}", Node::agent(Scripted::new("x", |_, _| async { Ok("".into()) }))), "x");
}
