//! Teams: members at once or one after another, operators that keep structure, rows for members only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use offspring_delegation::{
    DelegatorOptions, Node, Prompt, RootOptions, Subagent, TaskError, TaskRequest, Team, TeamRun,
};
use offspring_protocol::{
    AgentType, Event, Outcome, RunState, SessionId, SessionLimits, control::TaskResult, event::SpawnMechanism,
};
use offspring_sessions::{CancelScope, Refused, RunError};
use world::*;

fn outcomes(result: &TaskResult) -> Vec<Outcome> {
    result.members.iter().map(|member| member.outcome).collect()
}

fn outputs(result: &TaskResult) -> Vec<&str> {
    result.members.iter().map(|member| member.output.as_str()).collect()
}

async fn of(world: &World, node: Node, prompt: &str) -> (SessionId, TaskResult) {
    let called = node.name().clone();
    world.delegator.add(node);
    world.task(TaskRequest::new(called, prompt)).await
}

#[tokio::test]
async fn l6_members_of_a_team_are_children_of_the_caller_and_the_team_has_no_row() {
    for node in [team("t", vec![echo("a"), echo("b")]), chain("t", vec![echo("a"), echo("b")])] {
        let world = World::new();
        let (root, result) = of(&world, node, "x").await;
        let rows = world.descendants(&root).await;
        let names: Vec<_> = rows.iter().map(|row| row.data.agent_name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(rows.iter().all(|row| row.data.parent_id.as_ref() == Some(&root) && row.data.depth == 1));
        let ids: Vec<_> = rows.iter().map(|row| row.data.id.clone()).collect();
        assert_eq!(result.task.sessions, ids, "one session per member, in member order");
        assert!(rows.iter().all(|row| row.data.task.as_ref() == Some(&result.task.task)));
        let log = world.log().await;
        assert!(log.spawns().iter().all(|spawn| spawn.spawn_mechanism == SpawnMechanism::Spawn));
        let sessions = log.events().find_map(|(_, event)| match event {
            Event::ToolCallComplete(call) => Some(call.sessions),
            _ => None,
        });
        assert_eq!(sessions, Some(ids), "the caller's call names its children");
    }
}

#[tokio::test]
async fn l6_l4_only_a_team_that_is_a_member_of_a_team_gets_a_row_from_the_outer_one() {
    let world = World::new();
    let inner = chain("inner", vec![echo("a"), echo("b")]);
    let (root, result) = of(&world, team("outer", vec![inner, echo("c")]), "x").await;
    assert_eq!(outputs(&result), ["b(a(x))", "c(x)"]);
    let rows = world.descendants(&root).await;
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.data.agent_name.as_str(), row.data.depth, row.data.agent_type == AgentType::Team))
        .collect();
    assert_eq!(seen, [("inner", 1, true), ("a", 2, false), ("b", 2, false), ("c", 1, false)]);
    assert_eq!(result.task.sessions, [rows[0].data.id.clone(), rows[3].data.id.clone()]);
    assert!(rows[1..3].iter().all(|row| row.data.task.is_none()), "the task is of the outer members");
    let log = world.log().await;
    let mut spawns: Vec<_> =
        log.spawns().iter().map(|spawn| (spawn.source_name.to_string(), spawn.depth)).collect();
    spawns.sort();
    let expected = [("a", 2), ("b", 2), ("c", 1), ("inner", 1)].map(|(name, depth)| (name.to_owned(), depth));
    assert_eq!(spawns, expected);
}

#[tokio::test]
async fn l6_a_team_as_root_has_a_row_and_its_members_are_its_children() {
    let world = World::new();
    let (root, result) = world.run(team("t", vec![echo("a"), fails("b"), echo("c")]), "x").await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(result.answer, "### a (completed)\na(x)\n### b (failed)\nb broke\n### c (completed)\nc(x)\n");
    let row = world.manager.session(&root).await.unwrap().unwrap();
    assert_eq!((row.data.agent_type, row.data.depth, row.data.source_type), (AgentType::Team, 0, None));
    assert_eq!(world.children(&root).await.len(), 3);
    let (_, result) = world.run(chain("c", vec![echo("a"), echo("b")]), "x").await;
    assert_eq!(result.answer, "b(a(x))");
    let (_, result) = world.run(chain("c", vec![fails("a"), echo("b")]), "x").await;
    assert_eq!(result.outcome, Outcome::Failed);
    assert_eq!(result.error.unwrap(), "the team run c ended at a: a broke");
}

#[tokio::test]
async fn l11_members_of_a_parallel_team_run_at_once() {
    let world = World::new();
    let stage = Stage::new();
    let members = (0..20).map(|n| plays(&format!("m{n}"), &stage)).collect();
    let run = world.delegator.run_root(team("t", members), "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(20).await;
    stage.let_go(20);
    let result = bounded(run.result).await.unwrap();
    let expected: String = (0..20).map(|n| format!("### m{n} (completed)\nm{n}\n")).collect();
    assert_eq!(result.answer, expected, "in member order, whoever was first");
}

#[tokio::test]
async fn l11_one_members_failure_neither_stops_nor_loses_the_others() {
    let world = World::new();
    let stage = Stage::new();
    let node = team("t", vec![plays("slow", &stage), fails("b"), echo("c")]);
    let mut heard = world.manager.subscribe(offspring_sessions::Scope::All);
    let letting = async {
        while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "run_error" {}
        stage.let_go(1);
    };
    let ((_, result), ()) = tokio::join!(of(&world, node, "x"), letting);
    assert_eq!(outcomes(&result), [Outcome::Completed, Outcome::Failed, Outcome::Completed]);
    assert_eq!(outputs(&result), ["slow", "", "c(x)"]);
    assert_eq!(result.members[1].error.as_deref(), Some("b broke"));
    assert!(result.members.iter().all(|member| member.session.is_some()));
    assert_eq!((result.state, result.error), (RunState::Ended(Outcome::Completed), None));
}

#[tokio::test]
async fn l11_a_parallel_team_fails_only_when_every_member_fails() {
    let world = World::new();
    let (_, result) = of(&world, team("t", vec![fails("a"), fails("b")]), "x").await;
    assert_eq!(result.state, RunState::Ended(Outcome::Failed));
    assert_eq!(result.error.as_deref(), Some("every member failed: a: a broke; b: b broke"));
    assert_eq!(result.output, "### a (failed)\na broke\n### b (failed)\nb broke\n");
}

#[tokio::test]
async fn l11_a_team_without_members_has_no_event_and_no_error() {
    for node in [team("t", vec![]), chain("t", vec![]), lenient("t", vec![])] {
        let world = World::new();
        let (root, result) = of(&world, node, "x").await;
        assert_eq!(result.state, RunState::Ended(Outcome::Completed));
        assert_eq!((result.output.as_str(), result.error, result.members.len()), ("", None, 0));
        assert!(result.task.sessions.is_empty());
        assert!(world.descendants(&root).await.is_empty());
        let log = world.log().await;
        assert!(log.spawns().is_empty());
        assert!(log.0.iter().all(|envelope| envelope.session.id == root));
    }
}

#[tokio::test]
async fn l11_each_output_of_a_sequence_is_the_next_input() {
    let world = World::new();
    let (_, result) = of(&world, chain("t", vec![echo("a"), echo("b"), echo("c")]), "x").await;
    assert_eq!(result.output, "c(b(a(x)))");
    assert_eq!(outputs(&result), ["a(x)", "b(a(x))", "c(b(a(x)))"]);
}

#[tokio::test]
async fn l11_require_all_stops_at_the_first_failure() {
    let world = World::new();
    let (root, result) = of(&world, chain("t", vec![echo("a"), fails("b"), echo("c")]), "x").await;
    assert_eq!(outcomes(&result), [Outcome::Completed, Outcome::Failed]);
    assert_eq!(result.state, RunState::Ended(Outcome::Failed));
    assert_eq!(result.error.as_deref(), Some("the team run t ended at b: b broke"));
    assert_eq!(result.output, "a(x)", "what there is");
    assert_eq!(world.children(&root).await.len(), 2, "c was never made");
}

#[tokio::test]
async fn l11_without_require_all_the_last_successful_output_goes_on() {
    let world = World::new();
    let node = lenient("t", vec![fails("a"), echo("b"), fails("c"), echo("d"), fails("e")]);
    let (_, result) = of(&world, node, "x").await;
    assert_eq!(result.output, "d(b(x))", "the prompt after the first failure, then the last output");
    assert_eq!((result.state, result.error), (RunState::Ended(Outcome::Completed), None));
    assert_eq!(result.members.len(), 5);
    let (_, result) = of(&world, lenient("t", vec![fails("a"), fails("b")]), "x").await;
    assert_eq!(result.state, RunState::Ended(Outcome::Failed));
    assert_eq!(result.error.as_deref(), Some("no step of the team run t succeeded: a: a broke; b: b broke"));
    assert_eq!(result.output, "");
}

#[tokio::test]
async fn l11_a_shared_prompt_stands_before_every_prompt_of_a_team_and_the_first_of_a_sequence() {
    let world = World::new();
    let shared_prompt = Some("S".to_owned());
    let both = vec![echo("a"), echo("b")];
    let node = Node::Team(Arc::new(Team {
        shared_prompt: shared_prompt.clone(),
        ..Team::new(name("t"), both.clone())
    }));
    assert_eq!(outputs(&of(&world, node, "x").await.1), ["a(S\n\nx)", "b(S\n\nx)"]);
    let node = Node::TeamRun(Arc::new(TeamRun { shared_prompt, ..TeamRun::new(name("t"), both) }));
    assert_eq!(outputs(&of(&world, node, "x").await.1), ["a(S\n\nx)", "b(a(S\n\nx))"]);
}

#[tokio::test]
async fn l11_one_member_that_is_cancelled_is_a_step_without_success() {
    for (require_all, expected, state, asked) in
        [(true, "", Outcome::Cancelled, 1), (false, "b(x)", Outcome::Completed, 2)]
    {
        let world = World::new();
        let stage = Stage::new();
        let mut run = TeamRun::new(name("t"), vec![plays("a", &stage), echo("b")]);
        run.require_all = require_all;
        let cancelling = async {
            stage.arrived(1).await;
            let root = world.manager.roots(1).await.unwrap()[0].data.id.clone();
            let member = world.children(&root).await[0].data.id.clone();
            bounded(world.manager.cancel(&member, CancelScope::Subtree)).await.unwrap();
        };
        let ((_, result), ()) = tokio::join!(of(&world, Node::TeamRun(Arc::new(run)), "x"), cancelling);
        assert_eq!((result.output.as_str(), result.state), (expected, RunState::Ended(state)));
        assert_eq!((result.members.len(), result.members[0].outcome), (asked, Outcome::Cancelled));
    }
}

#[tokio::test]
async fn l11_of_a_parallel_team_one_cancelled_member_is_listed_and_all_are_a_cancelled_team() {
    let world = World::new();
    let stage = Stage::new();
    let cancelling = async |which: usize| {
        stage.arrived(2).await;
        let root = world.manager.roots(1).await.unwrap()[0].data.id.clone();
        for child in world.children(&root).await.into_iter().take(which) {
            bounded(world.manager.cancel(&child.data.id, CancelScope::Subtree)).await.unwrap();
        }
        stage.let_go(2 - which);
    };
    let node = || team("t", vec![plays("a", &stage), plays("b", &stage)]);
    let ((_, result), ()) = tokio::join!(of(&world, node(), "x"), cancelling(1));
    assert_eq!(outcomes(&result), [Outcome::Cancelled, Outcome::Completed]);
    assert_eq!(result.output, "### a (cancelled)\ncancelled\n### b (completed)\nb\n");
    assert_eq!(result.state, RunState::Ended(Outcome::Completed));
    let ((_, result), ()) = tokio::join!(of(&world, node(), "x"), cancelling(2));
    assert_eq!(result.state, RunState::Ended(Outcome::Cancelled));
}

#[tokio::test]
async fn l5_a_team_is_refused_as_a_whole_only_when_nothing_of_it_exists() {
    let limits = SessionLimits { max_depth: Some(0), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    for node in [
        team("t", vec![echo("a"), echo("b")]),
        chain("t", vec![echo("a"), echo("b")]),
        lenient("t", vec![echo("a"), echo("b")]),
    ] {
        world.delegator.add(node);
        let (root, result) = world.run(asks("r", &world.delegator, "t"), "x").await;
        assert!(result.answer.starts_with("refused: delegation depth 1 exceeds"), "{}", result.answer);
        assert!(world.children(&root).await.is_empty());
    }
    let limits = SessionLimits { max_descendants: Some(1), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    for (node, state, output) in [
        (chain("t", vec![echo("a"), echo("b")]), Outcome::Failed, "a(x)"),
        (lenient("t", vec![echo("a"), echo("b")]), Outcome::Completed, "a(x)"),
    ] {
        let (root, result) = of(&world, node, "x").await;
        assert_eq!(outcomes(&result), [Outcome::Completed, Outcome::Failed]);
        assert_eq!((result.state, result.output.as_str()), (RunState::Ended(state), output));
        assert_eq!((result.members[1].session.as_ref(), world.children(&root).await.len()), (None, 1));
    }
}

#[tokio::test]
async fn l5_a_refused_team_as_a_root_fails_and_says_why() {
    let limits = SessionLimits { max_depth: Some(0), ..SessionLimits::default() };
    let world = World::with(DelegatorOptions { limits, ..DelegatorOptions::default() });
    let (root, result) = world.run(team("t", vec![echo("a")]), "x").await;
    assert_eq!(result.outcome, Outcome::Failed);
    assert!(result.error.unwrap().contains("delegation depth 1"));
    let log = world.log().await;
    assert!(log.spawns().is_empty());
    assert_eq!(log.ends(), [(root, Outcome::Failed)]);
}

#[tokio::test]
async fn l14_when_the_pool_closes_a_team_is_refused_as_closing() {
    let world = World::new();
    let (root, members) = (Stage::new(), Arc::new(AtomicUsize::new(0)));
    let (playing, counted) = (root.clone(), Arc::clone(&members));
    let counts = Scripted::new("m", move |_, _cx| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok("x".into()) }
    });
    let member = counts.node();
    world.delegator.add(team("t", vec![member.clone(); 2]));
    world.delegator.add(lenient("l", vec![member; 2]));
    let (sender, mut results) = tokio::sync::mpsc::channel(2);
    let delegator = world.delegator.clone();
    let mut agent = Scripted::new("r", move |_, cx| {
        let (stage, delegator, sender) = (playing.clone(), delegator.clone(), sender.clone());
        async move {
            stage.play().await;
            let cx = Arc::new(cx);
            cx.stop_requested().cancelled().await;
            for node in ["t", "l"] {
                let asked = Subagent::new(&delegator).task(&cx, TaskRequest::new(name(node), "x")).await;
                sender.send(asked).await.unwrap();
            }
            Ok("r".into())
        }
    });
    agent.stop_grace = std::time::Duration::from_secs(10);
    root.let_go(1);
    let run = world.delegator.run_root(agent.node(), "x".into(), RootOptions::default()).await.unwrap();
    root.arrived(1).await;
    bounded(world.manager.close()).await.unwrap();
    let refused = results.recv().await.unwrap();
    assert!(matches!(refused, Err(TaskError::Refused(Refused::Cancelled | Refused::Closing))), "{refused:?}");
    let result = results.recv().await.unwrap().unwrap();
    assert_eq!((result.state, result.members.len()), (RunState::Ended(Outcome::Cancelled), 0));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    assert_eq!(members.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_same_agent_twice_in_a_team_and_in_two_teams_at_once_mixes_nothing_up() {
    let world = World::new();
    let stage = Stage::new();
    let playing = stage.clone();
    // Says whose run it is only after all the others have begun.
    let agent = Scripted::new("a", move |prompt: Prompt, cx| {
        let stage = playing.clone();
        async move {
            stage.play().await;
            Ok(format!("{} {} {}", prompt.text, cx.session().id, cx.run_id()).into())
        }
    });
    let agent = agent.node();
    let (first, second) = (team("t", vec![agent.clone(); 2]), team("u", vec![agent.clone(), agent]));
    let start = async |node: Node, prompt: &str| {
        world.delegator.run_root(node, prompt.into(), RootOptions::default()).await.unwrap()
    };
    let (first, second) = (start(first, "one").await, start(second, "two").await);
    stage.arrived(4).await;
    stage.let_go(4);
    for (run, prompt) in [(first, "one"), (second, "two")] {
        let answer = bounded(run.result).await.unwrap().answer;
        let children = world.children(&run.session.id).await;
        assert_eq!(children.len(), 2);
        let own = |n: usize| {
            let run = children[n].last_run.as_ref().unwrap();
            format!("### a (completed)\n{prompt} {} {}\n", children[n].data.id, run.id)
        };
        assert_eq!(answer, own(0) + &own(1));
    }
    let log = world.log().await;
    let of_member = |kind: &str, depth: u32| kind == "message_complete" && depth == 1;
    for envelope in log.0.iter().filter(|e| of_member(e.event.kind(), e.session.depth)) {
        let Event::MessageComplete(message) = envelope.event.parse().unwrap() else { panic!() };
        assert!(message.text.contains(envelope.session.id.as_str()), "{message:?}");
    }
}

#[tokio::test]
async fn l11_children_are_listed_in_member_order_also_in_a_great_team() {
    let world = World::new();
    let members: Vec<Node> = (0..300).map(|n| echo(&format!("m{n}"))).collect();
    let (root, result) = of(&world, team("t", members), "x").await;
    let rows = world.children(&root).await;
    let named: Vec<_> = rows.iter().map(|row| row.data.agent_name.to_string()).collect();
    assert_eq!(named, (0..300).map(|n| format!("m{n}")).collect::<Vec<_>>());
    let ids: Vec<_> = rows.into_iter().map(|row| row.data.id).collect();
    assert_eq!(result.task.sessions, ids);
    let of_task = world.delegator.tasks().status(&result.task.task, &root).unwrap();
    assert_eq!(of_task.task, result.task);
}

#[test]
fn operators_keep_structure_and_never_change_their_operands() {
    let [a, b, c] = ["a", "b", "c"].map(echo);
    let shown = |node: &Node| format!("{node:?}");
    let ab = a.clone() | b.clone();
    let abc = ab.clone() | c.clone();
    assert_eq!((shown(&ab), shown(&abc)), ("(a | b)".to_owned(), "(a | b | c)".to_owned()));
    assert_eq!((ab.name().as_str(), abc.name().as_str()), ("a | b", "a | b | c"));
    let and = a.clone() & b.clone();
    let three = and.clone() & c.clone();
    assert_eq!((shown(&and), shown(&three)), ("(a & b)".to_owned(), "(a & b & c)".to_owned()));
    // A sequence inside a team stays one, and a team inside a sequence.
    assert_eq!(shown(&(ab.clone() & c.clone())), "((a | b) & c)");
    assert_eq!(shown(&(and.clone() | c.clone())), "((a & b) | c)");
    assert_eq!(shown(&(c.clone() & ab.clone())), "(c & (a | b))");
    // What stands on the right is one member, whatever it is.
    assert_eq!(shown(&(a.clone() | (b.clone() | c.clone()))), "(a | (b | c))");
    assert_eq!(shown(&(a.clone() & (b.clone() & c.clone()))), "(a & (b & c))");
    // Two structures have two names.
    let (left, right) = (ab.clone() & c.clone(), a.clone() | (b.clone() & c.clone()));
    assert_eq!((left.name().as_str(), right.name().as_str()), ("(a | b) & c", "a | (b & c)"));
    assert_eq!(shown(&(left & a.clone())), "((a | b) & c & a)");
    assert_eq!((shown(&ab), shown(&and)), ("(a | b)".to_owned(), "(a & b)".to_owned()));
    let Node::TeamRun(run) = &ab else { panic!() };
    assert!(run.require_all);
}

#[test]
fn an_operator_extends_only_what_an_operator_made() {
    let [a, b, c] = ["a", "b", "c"].map(echo);
    let members = || vec![a.clone(), b.clone()];
    let shown = |node: Node| format!("{node:?}");
    assert_eq!(shown(team("own", members()) & c.clone()), "((a & b) & c)");
    assert_eq!(shown(chain("own", members()) | c.clone()), "((a | b) | c)");
    let by_hand = Team::new(name("a & b"), members());
    let with = |team: Team| shown(Node::Team(Arc::new(team)) & c.clone());
    assert_eq!(with(by_hand.clone()), "(a & b & c)");
    assert_eq!(with(Team { description: "says".to_owned(), ..by_hand.clone() }), "((a & b) & c)");
    assert_eq!(with(Team { shared_prompt: Some("S".to_owned()), ..by_hand }), "((a & b) & c)");
    let by_hand = TeamRun::new(name("a | b"), members());
    let with = |run: TeamRun| shown(Node::TeamRun(Arc::new(run)) | c.clone());
    assert_eq!(with(by_hand.clone()), "(a | b | c)");
    assert_eq!(with(TeamRun { require_all: false, ..by_hand.clone() }), "((a | b) | c)");
    assert_eq!(with(TeamRun { description: "says".to_owned(), ..by_hand.clone() }), "((a | b) | c)");
    assert_eq!(with(TeamRun { shared_prompt: Some("S".to_owned()), ..by_hand }), "((a | b) | c)");
}

#[tokio::test]
async fn a_sequence_inside_a_team_runs_as_one() {
    let world = World::new();
    let node = (echo("a") | echo("b")) & echo("c");
    let (root, result) = world.run(node, "x").await;
    assert_eq!(result.answer, "### a | b (completed)\nb(a(x))\n### c (completed)\nc(x)\n");
    let depths: Vec<_> = world.descendants(&root).await.iter().map(|row| row.data.depth).collect();
    assert_eq!(depths, [1, 2, 2, 1]);
    let (_, result) = world.run((fails("a") & echo("b")) | echo("c"), "x").await;
    assert_eq!(result.answer, "c(### a (failed)\na broke\n### b (completed)\nb(x)\n)");
}

#[tokio::test]
async fn l12_an_answer_that_names_no_error_is_kept_as_it_is() {
    let world = World::new();
    let interrupted =
        Scripted::new("i", |_, _cx| async { Err(RunError::interrupted("gone", "it went away")) });
    let (_, result) = of(&world, team("t", vec![interrupted.node()]), "x").await;
    assert_eq!(outcomes(&result), [Outcome::Interrupted]);
    assert_eq!(result.state, RunState::Ended(Outcome::Failed));
    let text = Scripted::new("l", |_, _cx| async { Ok("line\n".into()) });
    let (_, result) = of(&world, team("t", vec![text.node()]), "x").await;
    assert_eq!(result.output, "### l (completed)\nline\n", "no second line end");
}
