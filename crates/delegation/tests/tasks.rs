//! Delegations by name, cancelling them, and the end of a root: nothing is left unowned.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use offspring_delegation::{
    DelegatorOptions, OnExit, RootOptions, RootRun, Subagent, TaskError, TaskRequest, tasks::UnknownTask,
};
use offspring_protocol::{
    Event, Outcome, RunState, SessionId, SessionLimits, TaskId, TaskKey, event::Custom,
};
use offspring_sessions::{CancelScope, Emitter, RunError};
use tokio::sync::{mpsc, oneshot};
use world::*;

/// A root that starts one task in the background, tells its id, and stays until it is let go.
async fn with_task(world: &World, stage: &Stage, node: &str) -> (RootRun, Result<TaskId, TaskError>) {
    let (sender, mut ids) = mpsc::channel(1);
    let (delegator, stage, node) = (world.delegator.clone(), stage.clone(), name(node));
    let root = Scripted::new("r", move |_, cx| {
        let (delegator, stage, node, sender) =
            (delegator.clone(), stage.clone(), node.clone(), sender.clone());
        async move {
            let cx = Arc::new(cx);
            let task = Subagent::new(&delegator).task_async(&cx, TaskRequest::new(node, "x")).await;
            sender.send(task).await.unwrap();
            stage.play().await;
            Ok("r".into())
        }
    });
    let run = world.delegator.run_root(root.node(), "x".into(), RootOptions::default()).await.unwrap();
    (run, bounded(ids.recv()).await.unwrap())
}

#[tokio::test]
async fn l6_a_background_task_returns_at_once_with_its_session_and_is_asked_about_by_its_id() {
    let world = World::new();
    let (root, child) = (Stage::new(), Stage::new());
    world.delegator.add(plays("a", &child));
    let (run, task) = with_task(&world, &root, "a").await;
    let task = task.unwrap();
    let children = world.children(&run.session.id).await;
    assert_eq!(task.sessions, [children[0].data.id.clone()]);
    assert_eq!(children[0].data.task.as_ref(), Some(&task.task));
    let tasks = world.delegator.tasks();
    let status = tasks.status(&task.task, &run.session.id).unwrap();
    assert_eq!((status.state, &status.task, status.members.len()), (RunState::Running, &task, 0));
    let output = tasks.output(&task.task, &run.session.id);
    child.arrived(1).await;
    child.let_go(1);
    let output = bounded(output).await.unwrap();
    assert_eq!((output.state, output.output.as_str()), (RunState::Ended(Outcome::Completed), "a"));
    assert_eq!((output.members.len(), &output.task), (1, &task));
    let status = tasks.status(&task.task, &run.session.id).unwrap();
    assert_eq!((status.state, status.output.as_str()), (output.state, "a"));
    root.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
}

#[tokio::test]
async fn l6_only_the_session_that_delegated_may_ask_about_a_task() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(echo("a"));
    let (run, task) = with_task(&world, &stage, "a").await;
    let (task, tasks) = (task.unwrap().task, world.delegator.tasks());
    for caller in [id("stranger"), world.children(&run.session.id).await[0].data.id.clone()] {
        let unknown = UnknownTask { task: task.clone() };
        assert_eq!(tasks.status(&task, &caller).unwrap_err(), unknown);
        assert_eq!(bounded(tasks.output(&task, &caller)).await.unwrap_err(), unknown);
        assert_eq!(bounded(tasks.cancel(&task, &caller, &world.manager)).await.unwrap_err(), unknown);
    }
    let other = TaskKey::new("task_none").unwrap();
    let unknown = tasks.status(&other, &run.session.id).unwrap_err();
    assert!(unknown.to_string().contains("no task task_none"), "{unknown}");
    stage.let_go(1);
    bounded(run.result).await.unwrap();
}

#[tokio::test]
async fn l5_a_background_task_that_is_refused_is_an_error_and_no_task() {
    let limits = SessionLimits { max_depth: Some(0), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    let stage = Stage::new();
    stage.let_go(2);
    for node in [echo("a"), team("t", vec![echo("a")])] {
        let called = node.name().to_string();
        world.delegator.add(node);
        let (run, task) = with_task(&world, &stage, &called).await;
        assert!(matches!(task, Err(TaskError::Refused(_))), "{task:?}");
        assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed, "nothing is waited for");
    }
    let log = world.log().await;
    assert!(log.spawns().is_empty());
    for (_, event) in log.events() {
        if let Event::ToolCallComplete(call) = event {
            let key = TaskKey::new(call.tool_call_id.as_str()).unwrap();
            assert!(call.is_error && key.as_str().starts_with("task_"));
        }
    }
}

#[tokio::test]
async fn a_refused_task_is_not_remembered() {
    let limits = SessionLimits { max_depth: Some(0), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    world.delegator.add(echo("a"));
    let (root, _) = world.run(asks("r", &world.delegator, "a"), "x").await;
    let tasks = world.delegator.tasks().clone();
    let log = world.log().await;
    let calls: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::ToolCallStart(call) => Some(TaskKey::new(call.tool_call_id.as_str()).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(calls.len(), 1);
    assert!(tasks.status(&calls[0], &root).is_err());
}

#[tokio::test]
async fn l14_cancelling_a_task_cancels_its_whole_subtree_and_only_that() {
    let world = World::new();
    let (root, child) = (Stage::new(), Stage::new());
    world.delegator.add(plays("b", &child));
    world.delegator.add(asks("a", &world.delegator, "b"));
    let (run, task) = with_task(&world, &root, "a").await;
    child.arrived(1).await;
    let task = task.unwrap().task;
    let (tasks, caller) = (world.delegator.tasks(), run.session.id.clone());
    let ended = bounded(tasks.cancel(&task, &caller, &world.manager)).await.unwrap();
    assert_eq!(ended.state, RunState::Ended(Outcome::Cancelled));
    assert_eq!(ended.error.as_deref(), Some("cancelled"));
    let states: Vec<_> =
        world.descendants(&caller).await.iter().map(|row| row.run_state().unwrap()).collect();
    assert_eq!(states, [RunState::Ended(Outcome::Cancelled); 2]);
    // A second cancel finds it as it is, and the caller works on.
    let again = bounded(tasks.cancel(&task, &caller, &world.manager)).await.unwrap();
    assert_eq!((again.state, again.task), (ended.state, ended.task));
    root.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    let sessions: Vec<SessionId> =
        world.descendants(&caller).await.into_iter().map(|row| row.data.id).collect();
    let log = world.log().await;
    let ends: Vec<_> = log.ends().into_iter().map(|(session, _)| session).collect();
    assert_eq!(ends, [sessions[1].clone(), sessions[0].clone(), caller], "leaves first");
}

#[tokio::test]
async fn l14_a_task_that_had_ended_is_left_as_it_is() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(echo("a"));
    let (run, task) = with_task(&world, &stage, "a").await;
    let (tasks, caller) = (world.delegator.tasks(), run.session.id.clone());
    let task = task.unwrap().task;
    bounded(tasks.output(&task, &caller)).await.unwrap();
    let ended = bounded(tasks.cancel(&task, &caller, &world.manager)).await.unwrap();
    assert_eq!((ended.state, ended.output.as_str()), (RunState::Ended(Outcome::Completed), "a(x)"));
    stage.let_go(1);
    bounded(run.result).await.unwrap();
}

#[tokio::test]
async fn l14_a_cancelled_sequence_starts_no_further_member() {
    let world = World::new();
    let (root, member) = (Stage::new(), Stage::new());
    for node in
        [chain("c", vec![plays("a", &member), echo("b")]), lenient("l", vec![plays("a", &member), echo("b")])]
    {
        let called = node.name().to_string();
        world.delegator.add(node);
        let (run, task) = with_task(&world, &root, &called).await;
        member.arrived(1).await;
        let (tasks, caller) = (world.delegator.tasks(), run.session.id.clone());
        let ended = bounded(tasks.cancel(&task.unwrap().task, &caller, &world.manager)).await.unwrap();
        assert_eq!(ended.state, RunState::Ended(Outcome::Cancelled), "{called}");
        assert_eq!(ended.members.len(), 1, "{called}");
        assert_eq!(world.children(&caller).await.len(), 1, "{called}");
        root.let_go(1);
        bounded(run.result).await.unwrap();
    }
}

#[tokio::test]
async fn l14_cancelling_the_caller_alone_starts_no_further_member() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(lenient("l", vec![plays("a", &stage), echo("b")]));
    let run = world.delegator.run_root(asks("r", &world.delegator, "l"), "x".into(), RootOptions::default());
    let run = run.await.unwrap();
    stage.arrived(1).await;
    let root = run.session.id.clone();
    let cancelled = bounded(world.manager.cancel(&root, CancelScope::Run)).await.unwrap();
    assert_eq!(cancelled.ended, std::slice::from_ref(&root));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    let mut heard = world.manager.subscribe(offspring_sessions::Scope::Session(root.clone()));
    stage.let_go(1);
    // The delegation ends when its member has: the late end of the call says so.
    while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "tool_call_complete" {}
    assert_eq!(world.children(&root).await.len(), 1);
}

#[tokio::test]
async fn l19_a_root_waits_for_what_its_agent_left_in_the_background() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(plays("b", &stage));
    world.delegator.add(starts("a", &world.delegator, "b").node());
    let root = starts("r", &world.delegator, "a").node();
    let run = world.delegator.run_root(root, "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    let root = run.session.id.clone();
    let rows = world.descendants(&root).await;
    assert!(!run.result.is_finished());
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    let log = world.log().await;
    let ends = log.ends();
    assert_eq!(ends.last().unwrap(), &(root, Outcome::Completed));
    assert_eq!(ends.len(), 3);
    assert!(ends.contains(&(rows[1].data.id.clone(), Outcome::Completed)));
}

#[tokio::test]
async fn l19_a_background_sequence_holds_its_tree_also_between_two_members() {
    let world = World::new();
    let members = (0..20).map(|n| echo(&format!("m{n}"))).collect();
    world.delegator.add(chain("c", members));
    let (root, result) = world.run(starts("r", &world.delegator, "c").node(), "x").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(world.children(&root).await.len(), 20);
    let log = world.log().await;
    assert_eq!(log.ends().last().unwrap().0, root);
    let call = log.position(|_, event| matches!(event, Event::ToolCallComplete(_))).unwrap();
    assert!(!log.0[call].late, "the call ended before its caller's run");
    assert_eq!(log.0.last().unwrap().session.id, root);
}

#[tokio::test]
async fn l19_on_exit_cancel_stops_the_background_and_no_sequence_goes_on() {
    for scope in ["root", "child"] {
        let world = World::new();
        let stage = Stage::new();
        world.delegator.add(lenient("c", vec![plays("m", &stage), echo("n")]));
        let mut agent = starts("a", &world.delegator, "c");
        agent.on_exit = OnExit::Cancel;
        let agent = agent.node();
        world.delegator.add(agent.clone());
        let node = if scope == "root" { agent } else { asks("r", &world.delegator, "a") };
        let (root, result) = world.run(node, "x").await;
        assert_eq!(result.outcome, Outcome::Completed, "{scope}");
        let rows = world.descendants(&root).await;
        let states: Vec<_> =
            rows.iter().map(|row| (row.data.agent_name.as_str(), row.run_state().unwrap())).collect();
        let member = ("m", RunState::Ended(Outcome::Cancelled));
        let expected = [("a", RunState::Ended(Outcome::Completed)), member];
        assert_eq!(states, expected[usize::from(scope == "root")..], "{scope}");
    }
}

#[tokio::test]
async fn l19_on_exit_cancel_also_stops_children_that_no_task_names() {
    let world = World::new();
    let mut agent = Scripted::new("r", |_, cx| async move {
        let new = offspring_sessions::NewChild::new(name("own"), offspring_protocol::AgentType::Native);
        let child = cx.create_child(new).await?;
        let started = child.start("x").await?;
        tokio::spawn(async move {
            started.context.stop_requested().cancelled().await;
            started.end.finish(Ok("stopped".into())).await.unwrap();
        });
        Ok("r".into())
    });
    agent.on_exit = OnExit::Cancel;
    let (root, result) = world.run(agent.node(), "x").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(world.children(&root).await[0].run_state(), Some(RunState::Ended(Outcome::Cancelled)));
}

#[tokio::test]
async fn l14_cancelling_one_run_leaves_its_children_alone_whatever_its_exit() {
    for on_exit in [OnExit::Wait, OnExit::Cancel] {
        let world = World::new();
        let (stage, child) = (Stage::new(), Stage::new());
        world.delegator.add(plays("b", &child));
        let (delegator, playing) = (world.delegator.clone(), stage.clone());
        let mut root = Scripted::new("r", move |_, cx| {
            let (delegator, stage) = (delegator.clone(), playing.clone());
            async move {
                let cx = Arc::new(cx);
                Subagent::new(&delegator).task_async(&cx, TaskRequest::new(name("b"), "x")).await.unwrap();
                stage.play().await;
                Ok("r".into())
            }
        });
        root.on_exit = on_exit;
        let run = world.delegator.run_root(root.node(), "x".into(), RootOptions::default()).await.unwrap();
        stage.arrived(1).await;
        child.arrived(1).await;
        let root = run.session.id.clone();
        let cancelled = bounded(world.manager.cancel(&root, CancelScope::Run)).await.unwrap();
        assert_eq!((cancelled.ended, cancelled.stuck.len()), (vec![root.clone()], 0));
        assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
        let row = &world.children(&root).await[0];
        assert_eq!(row.run_state(), Some(RunState::Running));
        let mut heard = world.manager.subscribe(offspring_sessions::Scope::Session(row.data.id.clone()));
        child.let_go(1);
        while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "stream_complete" {}
        assert_eq!(world.children(&root).await[0].run_state(), Some(RunState::Ended(Outcome::Completed)));
    }
}

#[tokio::test]
async fn l19_a_root_that_waits_for_its_tree_is_cancelled_with_it() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(plays("a", &stage));
    let root = starts("r", &world.delegator, "a").node();
    let run = world.delegator.run_root(root, "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    let cancelled = bounded(world.manager.cancel(&run.session.id, CancelScope::Subtree)).await.unwrap();
    assert_eq!((cancelled.ended.len(), cancelled.stuck.len()), (2, 0));
    assert_eq!(cancelled.ended.last(), Some(&run.session.id));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn l14_the_agent_is_gone_before_its_run_ends() {
    /// Says when it goes.
    struct Held(Emitter);
    impl Drop for Held {
        fn drop(&mut self) {
            let gone = Custom { name: "gone".to_owned(), data: serde_json::value::RawValue::NULL.to_owned() };
            self.0.emit(Event::Custom(gone)).now_or_never().unwrap().unwrap();
        }
    }
    let world = World::new();
    let stage = Stage::new();
    let playing = stage.clone();
    let agent = Scripted::new("a", move |_, cx| {
        let (held, stage) = (Held(cx.emitter()), playing.clone());
        async move {
            stage.play().await;
            drop(held);
            Ok("a".into())
        }
    });
    let run = world.delegator.run_root(agent.node(), "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    bounded(world.manager.cancel(&run.session.id, CancelScope::Subtree)).await.unwrap();
    let log = world.log().await;
    let gone =
        log.position(|_, event| matches!(event, Event::Custom(custom) if custom.name == "gone")).unwrap();
    assert!(!log.0[gone].late, "what the agent held is gone before its end is told");
}

#[tokio::test]
async fn l14_an_agent_that_is_asked_to_stop_gets_its_grace_and_no_more() {
    let world = World::new();
    for (grace, polite) in [(Duration::from_secs(10), true), (Duration::from_millis(20), false)] {
        let stage = Stage::new();
        let finished = Arc::new(AtomicUsize::new(0));
        let (playing, counted) = (stage.clone(), Arc::clone(&finished));
        let mut agent = Scripted::new("a", move |_, cx| {
            let (stage, finished) = (playing.clone(), Arc::clone(&counted));
            async move {
                stage.play().await;
                cx.stop_requested().cancelled().await;
                if !polite {
                    std::future::pending::<()>().await;
                }
                tokio::task::yield_now().await;
                finished.fetch_add(1, Ordering::SeqCst);
                Ok("what there was".into())
            }
        });
        agent.stop_grace = grace;
        stage.let_go(1);
        let run = world.delegator.run_root(agent.node(), "x".into(), RootOptions::default()).await.unwrap();
        stage.arrived(1).await;
        bounded(world.manager.cancel(&run.session.id, CancelScope::Subtree)).await.unwrap();
        let result = bounded(run.result).await.unwrap();
        assert_eq!((result.outcome, result.error.as_deref()), (Outcome::Cancelled, Some("cancelled")));
        assert_eq!(result.answer, if polite { "what there was" } else { "" });
        assert_eq!(finished.load(Ordering::SeqCst), usize::from(polite));
    }
}

#[tokio::test(start_paused = true)]
async fn l5_wall_time_ends_a_run_with_all_it_started() {
    let limits = SessionLimits { max_wall_ms: Some(1_000), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    world.delegator.add(hangs("b"));
    world.delegator.add(lenient("c", vec![hangs("b"), echo("n")]));
    for (waits, node) in [(true, "b"), (true, "c"), (false, "b"), (false, "c")] {
        let root = match waits {
            true => asks("r", &world.delegator, node),
            false => starts("r", &world.delegator, node).node(),
        };
        let began = tokio::time::Instant::now();
        let (root, result) = world.run(root, "x").await;
        assert_eq!(result.outcome, Outcome::Failed);
        assert_eq!(result.error.as_deref(), Some("it ran longer than its limit of 1s (max_wall_ms)"));
        assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
        let rows = world.descendants(&root).await;
        assert_eq!(rows.len(), 1, "{node}: nothing further was started");
        assert!(!rows[0].run_state().unwrap().is_open());
        let run = world.manager.session(&root).await.unwrap().unwrap().last_run.unwrap();
        assert_eq!(run.state, RunState::Ended(Outcome::Failed));
    }
    let log = world.log().await;
    let codes = log.events().filter(|(e, event)| {
        e.session.depth == 0 && matches!(event, Event::RunError(error) if error.code == "timeout")
    });
    assert_eq!(codes.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn l5_within_its_wall_time_a_run_is_left_alone() {
    let limits = SessionLimits { max_wall_ms: Some(u64::MAX), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    let mut slow = Scripted::new("s", |_, _cx| async {
        // moment: the clock is paused; how long a run takes is what is tested
        tokio::time::sleep(Duration::from_millis(900)).await;
        Ok("in time".into())
    });
    slow.limits = SessionLimits { max_wall_ms: Some(1_000), ..SessionLimits::UNBOUNDED };
    let slow = slow.node();
    assert_eq!(world.run(slow.clone(), "x").await.1.answer, "in time");
    // Each member has its own time; the team's is its caller's.
    let (_, result) = world.run(chain("c", vec![slow.clone(), slow.clone(), slow]), "x").await;
    assert_eq!((result.outcome, result.answer.as_str()), (Outcome::Completed, "in time"));
}

#[tokio::test]
async fn a_delegation_whose_agent_takes_the_runtime_task_down_ends_all_the_same() {
    // A panic outside of the agent's work: when the driver asks how long it may take to stop.
    struct Odd(offspring_protocol::NodeName);
    impl offspring_delegation::Agent for Odd {
        fn name(&self) -> &offspring_protocol::NodeName {
            &self.0
        }
        fn stop_grace(&self) -> Duration {
            panic!("no grace")
        }
        fn run(
            self: Arc<Self>,
            _: offspring_delegation::Prompt,
            _: offspring_sessions::RunContext,
        ) -> futures_util::future::BoxFuture<'static, Result<offspring_sessions::Answer, RunError>> {
            Box::pin(async { Ok("never".into()) })
        }
    }
    let world = World::new();
    world.delegator.add(offspring_delegation::Node::agent(Odd(name("odd"))));
    let (root, result) = world.task(TaskRequest::new(name("odd"), "x")).await;
    assert_eq!(result.state, RunState::Ended(Outcome::Interrupted));
    assert!(result.error.as_ref().unwrap().contains("was lost"), "{result:?}");
    let row = &world.children(&root).await[0];
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
    assert_eq!(result.task.sessions, std::slice::from_ref(&row.data.id));
}

#[tokio::test]
async fn a_delegation_that_panics_ends_as_interrupted_and_holds_nothing_up() {
    // A panic in the delegation's own task: when it asks for the member's name.
    struct Nameless(AtomicUsize);
    impl offspring_delegation::Agent for Nameless {
        fn name(&self) -> &offspring_protocol::NodeName {
            panic!("no name, asked {} times", self.0.fetch_add(1, Ordering::SeqCst))
        }
        fn run(
            self: Arc<Self>,
            _: offspring_delegation::Prompt,
            _: offspring_sessions::RunContext,
        ) -> futures_util::future::BoxFuture<'static, Result<offspring_sessions::Answer, RunError>> {
            Box::pin(async { Ok("never".into()) })
        }
    }
    let world = World::new();
    let nameless = offspring_delegation::Node::agent(Nameless(AtomicUsize::new(0)));
    world.delegator.add(team("t", vec![nameless]));
    let (root, result) = world.task(TaskRequest::new(name("t"), "x")).await;
    assert_eq!(result.state, RunState::Ended(Outcome::Interrupted));
    assert_eq!(result.error.as_deref(), Some("the delegation was lost"));
    let asked = world.delegator.tasks().status(&result.task.task, &root).unwrap();
    assert_eq!(asked.state, result.state);
}

#[tokio::test]
async fn l5_a_caller_that_gives_up_waiting_leaves_its_delegation_running() {
    let world = World::with_slots(1);
    let stage = Stage::new();
    world.delegator.add(plays("a", &stage));
    let (delegator, playing) = (world.delegator.clone(), stage.clone());
    let (sender, answered) = oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let mut root = Scripted::new("r", move |_, cx| {
        let (delegator, stage, sender) = (delegator.clone(), playing.clone(), sender.lock().unwrap().take());
        async move {
            let cx = Arc::new(cx);
            let subagent = Subagent::new(&delegator);
            let asked = subagent.task(&cx, TaskRequest::new(name("a"), "x"));
            tokio::select! {
                _ = asked => panic!("it cannot end"),
                () = stage.arrived(1) => {}
            }
            sender.unwrap().send(delegator.slots().active()).unwrap();
            stage.let_go(1);
            Ok("r".into())
        }
    });
    root.takes_slot = true;
    let (root, result) = world.run(root.node(), "x").await;
    assert_eq!(answered.await.unwrap(), 1, "it works again and holds its slot");
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(world.children(&root).await[0].run_state(), Some(RunState::Ended(Outcome::Completed)));
    assert_eq!(world.delegator.slots().active(), 0);
}

#[tokio::test]
async fn l14_closing_cancels_what_runs_and_its_tasks_end() {
    let world = World::new();
    let (root, child) = (Stage::new(), Stage::new());
    world.delegator.add(plays("a", &child));
    let (run, task) = with_task(&world, &root, "a").await;
    let task = task.unwrap().task;
    child.arrived(1).await;
    let (tasks, caller) = (world.delegator.tasks().clone(), run.session.id.clone());
    let closed = bounded(world.manager.close()).await.unwrap();
    assert_eq!((closed.ended.len(), closed.stuck.len()), (2, 0));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    let output = bounded(tasks.output(&task, &caller)).await.unwrap();
    assert_eq!(output.state, RunState::Ended(Outcome::Cancelled));
}
