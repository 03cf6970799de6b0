//! Whose event is it, and is it over?

use std::sync::Arc;

use offspring_delegation::{Subagent, TaskRequest};
use offspring_protocol::{
    AgentType, Event, External, MessageId, Outcome, PeerId, RunState, SessionState, ToolCallId,
    event::{MessageComplete, PermissionRequested, RunStarted, StreamComplete, ToolCallComplete},
};
use offspring_sessions::{Answer, Emitter, NewChild, REPORTED, Refused, RunContext, Scope, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::world::*;

/// r (on the stage) asks a, which asks b.
fn three(house: &House, b: offspring_delegation::Node) -> offspring_delegation::Node {
    let b_name = b.name().to_string();
    house.pool.add(b);
    house.pool.add(asks("a", house.delegator(), &[&b_name]));
    asks("r", house.delegator(), &["a"])
}

#[tokio::test]
async fn o1_what_a_grandchild_says_is_the_roots_with_its_whole_path_and_the_root_stays_running() {
    let house = House::in_memory().await;
    let stage = Stage::new();
    let playing = stage.clone();
    let b = agent("b", move |_, cx| {
        let stage = playing.clone();
        async move {
            let asked = PermissionRequested { request_id: "p1".to_owned(), title: "write a file".to_owned() };
            cx.emit(Event::PermissionRequested(asked)).await?;
            stage.play().await;
            Err(offspring_sessions::RunError::failed("retry", "the model is overloaded"))
        }
    });
    let node = three(&house, b);
    let mut starts = house.manager().subscribe(Scope::All);
    let run = house.start(node, "x").await;
    begun(&mut starts, 3).await;
    let root = run.session.id.clone();
    let mut heard = house.manager().subscribe(Scope::Subtree(root.clone()));
    stage.arrived(1).await;
    let row = house.row(&root).await;
    assert_eq!((row.state(), row.run_state()), (SessionState::Running, Some(RunState::Running)));
    let children = house.descendants(&root).await;
    assert_eq!(children.iter().filter(|child| child.state() == SessionState::Running).count(), 2);
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    let path = [root.clone(), children[0].data.id.clone(), children[1].data.id.clone()];
    let all = house.log().await;
    // The subscriber of the root may have come late: what it hears is complete all the same.
    let mut of_b = Vec::new();
    while let Some(envelope) = bounded(heard.recv()).await.unwrap() {
        if envelope.session.id == path[2] {
            of_b.push(envelope);
        }
    }
    let from_all = all.0.iter().filter(|envelope| envelope.session.id == path[2]);
    let kinds: Vec<_> = from_all.clone().map(|envelope| envelope.event.kind().to_owned()).collect();
    assert!(kinds.contains(&"permission_requested".to_owned()) && kinds.contains(&"run_error".to_owned()));
    assert!(of_b.iter().any(|envelope| envelope.event.kind() == "run_error"));
    for envelope in from_all.chain(&of_b) {
        let session = &envelope.session;
        assert_eq!((&session.root, &session.path[..], session.depth), (&root, &path[..], 2));
    }
    // The root said nothing of itself but that it runs and that it is done.
    let states: Vec<_> = all
        .events()
        .filter(|(envelope, _)| envelope.session.id == root)
        .filter_map(|(_, event)| match event {
            Event::StatusChanged(status) => Some(status.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [SessionState::Running, SessionState::Idle]);
}

#[tokio::test]
async fn o2_whoever_comes_late_knows_the_whole_path_from_the_first_event() {
    let house = House::in_memory().await;
    let stage = Stage::new();
    let node = three(&house, plays("b", &stage));
    let run = house.start(node, "x").await;
    stage.arrived(1).await;
    // Both starts were sent.
    let rows = house.descendants(&run.session.id).await;
    let mut heard = house.manager().subscribe(Scope::Session(rows[1].data.id.clone()));
    stage.let_go(1);
    let first = bounded(heard.recv()).await.unwrap().unwrap();
    let path = [run.session.id.clone(), rows[0].data.id.clone(), rows[1].data.id.clone()];
    assert_eq!((&first.session.path[..], first.session.depth), (&path[..], 2));
    assert_eq!(house.manager().path(&path[2]).await.unwrap(), path);
    let line = serde_json::to_value(&*first).unwrap();
    assert_eq!(line["path"], serde_json::json!(path.each_ref().map(|id| id.as_str())));
    bounded(run.result).await.unwrap();
}

/// An agent that gives away its emitter and ends when it is told.
struct Puppet {
    emitter: Emitter,
    ends: oneshot::Sender<Answer>,
}

fn puppet(strings: &mpsc::Sender<Puppet>) -> offspring_delegation::Node {
    let strings = strings.clone();
    agent("puppet", move |_, cx: RunContext| {
        let strings = strings.clone();
        async move {
            let (ends, answer) = oneshot::channel();
            strings.send(Puppet { emitter: cx.emitter(), ends }).await.unwrap();
            Ok(answer.await.unwrap())
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Said {
    Message,
    Finish,
    LateTool,
}

#[tokio::test]
async fn o4_in_every_order_of_message_finish_and_late_event_a_child_ends_completed_with_its_message() {
    use Said::{Finish, LateTool, Message};
    let orders = [
        [Message, Finish, LateTool],
        [Message, LateTool, Finish],
        [Finish, Message, LateTool],
        [Finish, LateTool, Message],
        [LateTool, Message, Finish],
        [LateTool, Finish, Message],
    ];
    for order in orders {
        let house = House::in_memory().await;
        let (strings, mut puppets) = mpsc::channel(1);
        house.pool.add(puppet(&strings));
        let node = asks("r", house.delegator(), &["puppet"]);
        let run = house.start(node, "x").await;
        let Puppet { emitter, ends } = bounded(puppets.recv()).await.unwrap();
        let child = house.children(&run.session.id).await[0].data.id.clone();
        let mut heard = house.manager().subscribe(Scope::Session(child.clone()));
        let message = MessageId::new("m1").unwrap();
        let mut ends = Some(ends);
        for said in order {
            match said {
                Message => {
                    let complete = MessageComplete {
                        message_id: message.clone(),
                        text: "the answer".to_owned(),
                        streamed_bytes: 0,
                    };
                    emitter.emit(Event::MessageComplete(complete)).await.unwrap();
                }
                LateTool => {
                    let complete = ToolCallComplete {
                        tool_call_id: ToolCallId::new("t1").unwrap(),
                        tool_name: "grep".to_owned(),
                        output: "found".to_owned(),
                        is_error: false,
                        sessions: Vec::new(),
                    };
                    emitter.emit(Event::ToolCallComplete(complete)).await.unwrap();
                }
                Finish => {
                    let answer = Answer { text: "the answer".to_owned(), message: Some(message.clone()) };
                    ends.take().unwrap().send(answer).unwrap();
                    while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "stream_complete" {}
                }
            }
        }
        assert_eq!(bounded(run.result).await.unwrap().answer, "the answer", "{order:?}");
        let state = |row: &offspring_sessions::SessionRecord| (row.state(), row.run_state());
        let ended = (SessionState::Idle, Some(RunState::Ended(Outcome::Completed)));
        assert_eq!(state(&house.row(&child).await), ended, "{order:?}");
        assert_eq!(house.manager().store().runs(child.clone()).await.unwrap().len(), 1, "{order:?}");
        let log = house.log().await;
        let after = |said| order.iter().position(|s| *s == said) > order.iter().position(|s| *s == Finish);
        for (kind, said) in [("message_complete", Message), ("tool_call_complete", LateTool)] {
            let found: Vec<_> = log
                .0
                .iter()
                .filter(|envelope| envelope.session.id == child && envelope.event.kind() == kind)
                .map(|envelope| envelope.late)
                .collect();
            assert_eq!(found, [after(said)], "{order:?} {kind}: kept, and marked when it came after the end");
        }
        assert_eq!(log.ends().iter().filter(|(id, _)| *id == child).count(), 1, "{order:?}");
    }
}

#[tokio::test]
async fn o5_a_start_or_an_end_that_is_sent_again_changes_nothing() {
    let house = House::in_memory().await;
    let root = house
        .in_a_run(|cx| async move {
            let external = || External { peer: PeerId::new("peer").unwrap(), id: "theirs".to_owned() };
            let own = cx.session().id.clone();
            // The same start three times: one session, and two refusals to count.
            let mut duplicates = 0;
            let mut adopted = None;
            for _ in 0..3 {
                let new = NewChild::new(name("peer_agent"), AgentType::Acp);
                match cx.manager().adopt_child(&own, external(), new).await {
                    Ok(child) => adopted = Some(child.child),
                    Err(Refused::StillRunning { .. }) => duplicates += 1,
                    Err(refused) => panic!("{refused}"),
                }
            }
            assert_eq!(duplicates, 2);
            let started = adopted.unwrap().start("x").await.unwrap();
            // What it says of itself is kept and believed of nobody: the same start and two ends.
            let said = RunStarted {
                session_id: started.context.session().id.clone(),
                run_id: started.context.run_id().clone(),
                agent_name: name("peer_agent"),
                parent_session_id: Some(own.clone()),
                prompt: "x".to_owned(),
                prompt_id: None,
            };
            started.context.emit(Event::RunStarted(said)).await.unwrap();
            for _ in 0..2 {
                started.context.emit(Event::StreamComplete(StreamComplete::default())).await.unwrap();
            }
            // The end itself is a value that is used up: nothing can send it twice.
            started.end.finish(Ok("done".into())).await.unwrap();
        })
        .await;
    let children = house.children(&root).await;
    assert_eq!(children.len(), 1, "one node");
    assert_eq!(house.manager().store().runs(children[0].data.id.clone()).await.unwrap().len(), 1);
    let log = house.log().await;
    assert_eq!(log.spawns().len(), 1, "one spawn");
    assert_eq!(log.starts().len(), 2, "one start of each");
    assert_eq!(log.ends().len(), 2, "one completion of each");
    let reported: Vec<_> = log
        .events()
        .filter_map(|(_, event)| match event {
            Event::Custom(custom) => custom.name.strip_prefix(REPORTED).map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [".run_started", ".stream_complete", ".stream_complete"]);
}

#[tokio::test]
async fn o6_two_delegations_that_ask_for_one_id_give_one_session_and_one_refusal() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [
        Arc::new(offspring_sessions::MemoryStore::new()) as Arc<dyn offspring_sessions::SessionStore>,
        sqlite(&directory.path().join("sessions.db")),
    ];
    for store in stores {
        let house = House::open(store).await;
        let owner = house.manager().store().owner();
        let first = house.start(echo("other"), "x").await;
        let other = first.session.id.clone();
        bounded(first.result).await.unwrap();
        let root = house
            .in_a_run(move |cx| {
                let (owner, other) = (owner.clone(), other.clone());
                async move {
                    let new = |agent: &str| NewChild {
                        id: Some(id("x")),
                        ..NewChild::new(name(agent), AgentType::Native)
                    };
                    let (one, two) = tokio::join!(cx.create_child(new("one")), cx.create_child(new("two")));
                    let (won, lost) = match (one, two) {
                        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
                        both => panic!("{both:?}"),
                    };
                    let row = || async {
                        let row = cx.manager().session(&id("x")).await.unwrap().unwrap();
                        serde_json::to_string(&row.data).unwrap()
                    };
                    let before = row().await;
                    let taken = |refused: Refused| match refused {
                        Refused::Store(StoreError::Taken { id: taken, owner: by }) => {
                            assert_eq!((taken, by), (id("x"), owner.clone()));
                        }
                        refused => panic!("{refused}"),
                    };
                    taken(lost);
                    // Nor below another root, nor as a root.
                    taken(cx.manager().create_child(&other, new("three")).await.unwrap_err());
                    let root = offspring_sessions::NewRoot::new(name("four"), AgentType::Native);
                    let root = offspring_sessions::NewRoot { id: Some(id("x")), ..root };
                    taken(cx.manager().create_root(root).await.unwrap_err());
                    assert_eq!(row().await, before, "nothing of the winner has changed");
                    won.start("x").await.unwrap().end.finish(Ok("won".into())).await.unwrap();
                }
            })
            .await;
        assert_eq!(house.children(&root).await.len(), 1);
        house.log().await;
    }
}

#[tokio::test]
async fn o9_the_callers_log_names_the_children_of_a_call_while_it_waits_and_when_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let stage = Stage::new();
    house.pool.add(team("t", vec![plays("a", &stage), plays("b", &stage)]));
    let run = house.start(asks("r", house.delegator(), &["t"]), "x").await;
    stage.arrived(2).await;
    let root = run.session.id.clone();
    let ids: Vec<_> = house.children(&root).await.into_iter().map(|row| row.data.id).collect();
    // While the call waits, another program reads it in the parent's own log.
    let query = || offspring_sessions::store::EventQuery {
        root: root.clone(),
        session: Some(root.clone()),
        after: 0,
        limit: 100,
    };
    let reader = sqlite(&path);
    let lines = reader.events(query()).await.unwrap();
    let mut call = None;
    let mut named = Vec::new();
    for line in &lines {
        match line.event.parse().unwrap() {
            Event::ToolCallStart(start) => call = Some(start.tool_call_id),
            Event::SpawnSessionStart(spawn) => {
                assert_eq!(spawn.tool_call_id, call, "the spawn says by which call");
                named.push(spawn.child_session_id);
            }
            _ => {}
        }
    }
    assert!(call.is_some());
    assert_eq!(named, ids);
    stage.let_go(2);
    bounded(run.result).await.unwrap();
    let lines = reader.events(query()).await.unwrap();
    let listed = lines.iter().find_map(|line| match line.event.parse().unwrap() {
        Event::ToolCallComplete(complete) => Some(complete.sessions),
        _ => None,
    });
    assert_eq!(listed, Some(ids));
    reader.close().await.unwrap();
    house.log().await;
}

#[tokio::test]
async fn o18_cancelling_a_tree_ends_every_node_once_leaves_first() {
    let house = House::in_memory().await;
    let stage = Stage::new();
    let node = three(&house, plays("b", &stage));
    let run = house.start(node, "x").await;
    stage.arrived(1).await;
    let root = run.session.id.clone();
    let rows = house.descendants(&root).await;
    let began = std::time::Instant::now();
    let cancelled =
        bounded(house.manager().cancel(&root, offspring_sessions::CancelScope::Subtree)).await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    let leaves_first = [rows[1].data.id.clone(), rows[0].data.id.clone(), root.clone()];
    assert_eq!((&cancelled.ended[..], cancelled.stuck.len()), (&leaves_first[..], 0));
    for row in house.manager().subtree(&root).await.unwrap() {
        assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Cancelled)));
    }
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    let log = house.log().await;
    let expected: Vec<_> = leaves_first.into_iter().map(|id| (id, Outcome::Cancelled)).collect();
    assert_eq!(log.ends(), expected, "in that order, and each once");
}

#[tokio::test]
async fn o18_cancelling_one_turn_leaves_what_it_started_alive() {
    let house = House::in_memory().await;
    let stage = Stage::new();
    let node = three(&house, plays("b", &stage));
    let run = house.start(node, "x").await;
    stage.arrived(1).await;
    let root = run.session.id.clone();
    let cancelled =
        bounded(house.manager().cancel(&root, offspring_sessions::CancelScope::Run)).await.unwrap();
    assert_eq!(cancelled.ended, std::slice::from_ref(&root));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    let states = |rows: Vec<offspring_sessions::SessionRecord>| -> Vec<_> {
        rows.iter().map(|row| row.run_state().unwrap()).collect()
    };
    assert_eq!(states(house.descendants(&root).await), [RunState::Running, RunState::Running]);
    let a = house.children(&root).await[0].data.id.clone();
    let mut heard = house.manager().subscribe(Scope::Session(a));
    stage.let_go(1);
    while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "stream_complete" {}
    let completed = RunState::Ended(Outcome::Completed);
    assert_eq!(states(house.descendants(&root).await), [completed, completed], "and they finish their work");
}

#[tokio::test]
async fn o18_a_cancelled_tree_starts_nothing_more() {
    let house = House::in_memory().await;
    let (refusals, mut refused) = mpsc::channel(1);
    let stage = Stage::new();
    let (playing, delegator) = (stage.clone(), house.delegator().clone());
    house.pool.add(echo("late"));
    let stubborn = agent("stubborn", move |_, cx| {
        let (stage, delegator, refusals) = (playing.clone(), delegator.clone(), refusals.clone());
        async move {
            let cx = Arc::new(cx);
            let kept = Arc::clone(&cx);
            // Outlives its run and tries to delegate.
            tokio::spawn(async move {
                kept.stop_requested().cancelled().await;
                let asked = Subagent::new(&delegator).task(&kept, TaskRequest::new(name("late"), "x")).await;
                refusals.send(asked.map(|result| result.output).map_err(|e| e.to_string())).await.unwrap();
            });
            stage.play().await;
            Ok("stubborn".into())
        }
    });
    let run = house.start(stubborn, "x").await;
    stage.arrived(1).await;
    bounded(house.manager().cancel(&run.session.id, Default::default())).await.unwrap();
    let refused = bounded(refused.recv()).await.unwrap().unwrap_err();
    assert!(refused.contains("cancelled"), "{refused}");
    assert!(house.children(&run.session.id).await.is_empty());
}
