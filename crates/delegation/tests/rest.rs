//! When is a tree at rest, and who is stopped before it is? The cases in which two things happen at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, DelegatorOptions, Node, RootOptions, Subagent, TaskRequest};
use offspring_protocol::{
    AgentType, Event, Origin, Outcome, OwnerId, RunRecord, RunState, SessionId, SessionLimits,
    event::TextDelta,
};
use offspring_sessions::{
    CancelScope, MemoryStore, NewChild, RunError, SessionRecord, SessionStore, StoreError,
    store::{
        Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, SessionQuery, StoreInfo,
        TreeQuery, TreeRecord,
    },
};
use tokio::sync::watch;
use world::*;

#[tokio::test]
async fn l19_a_sequence_that_a_child_starts_while_its_root_waits_is_waited_for_between_its_members() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(chain("c", (0..20).map(|n| echo(&format!("m{n}"))).collect()));
    let (delegator, playing) = (world.delegator.clone(), stage.clone());
    let root = Scripted::new("r", move |_, cx| {
        let (delegator, stage) = (delegator.clone(), playing.clone());
        async move {
            // No task names it: when the root begins to wait, no delegation is open.
            let started =
                cx.create_child(NewChild::new(name("own"), AgentType::Native)).await?.start("x").await?;
            tokio::spawn(async move {
                stage.play().await;
                let context = Arc::new(started.context);
                let request = TaskRequest::new(name("c"), "x");
                Subagent::new(&delegator).task_async(&context, request).await.unwrap();
                started.end.finish(Ok("own".into())).await.unwrap();
            });
            Ok("r".into())
        }
    });
    let run = world.delegator.run_root(root.node(), "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    stage.let_go(1);
    let root = run.session.id.clone();
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    assert_eq!(world.descendants(&root).await.len(), 21, "every member has run");
    let log = world.log().await;
    assert_eq!(log.ends().last().unwrap(), &(root.clone(), Outcome::Completed), "the root ends last");
    assert_eq!(log.0.last().unwrap().session.id, root);
}

#[tokio::test(start_paused = true)]
async fn l5_what_an_agent_starts_in_its_grace_beyond_its_wall_time_is_stopped_too() {
    for depth in [0, 1] {
        let world = World::new();
        world.delegator.add(hangs("b"));
        let delegator = world.delegator.clone();
        let mut late = Scripted::new("late", move |_, cx| {
            let delegator = delegator.clone();
            async move {
                let cx = Arc::new(cx);
                cx.stop_requested().cancelled().await;
                let request = TaskRequest::new(name("b"), "x");
                Subagent::new(&delegator).task_async(&cx, request).await.unwrap();
                Ok("too late".into())
            }
        });
        late.stop_grace = Duration::from_secs(5);
        late.limits = SessionLimits { max_wall_ms: Some(1_000), ..SessionLimits::UNBOUNDED };
        let late: Node = late.node();
        world.delegator.add(late.clone());
        let node = if depth == 0 { late } else { asks("r", &world.delegator, "late") };
        let (root, result) = world.run(node, "x").await;
        assert_eq!(result.outcome, if depth == 0 { Outcome::Failed } else { Outcome::Completed });
        let rows = world.manager.subtree(&root).await.unwrap();
        let states: Vec<_> = rows
            .iter()
            .skip(depth)
            .map(|row| (row.data.agent_name.as_str(), row.run_state().unwrap()))
            .collect();
        let ended = |agent, outcome| (agent, RunState::Ended(outcome));
        assert_eq!(states, [ended("late", Outcome::Failed), ended("b", Outcome::Cancelled)], "{depth}");
    }
}

#[tokio::test]
async fn l19_the_calls_of_a_tree_that_is_cancelled_end_before_its_root() {
    let world = World::new();
    let stage = Stage::new();
    world.delegator.add(plays("a", &stage));
    let root = starts("r", &world.delegator, "a").node();
    let run = world.delegator.run_root(root, "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    let (manager, root) = (world.manager.clone(), run.session.id.clone());
    // In a task of its own: it goes on as soon as the child has ended, before the end of the call is told.
    let cancel = tokio::spawn(async move { manager.cancel(&root, CancelScope::Subtree).await });
    bounded(cancel).await.unwrap().unwrap();
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    let log = world.log().await;
    let call = log.position(|_, event| matches!(event, Event::ToolCallComplete(_))).unwrap();
    assert!(!log.0[call].late, "its caller's run was still open");
}

/// A store in memory that refuses what is written while it is broken.
struct Breakable {
    inner: MemoryStore,
    broken: AtomicBool,
}

impl SessionStore for Breakable {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        if self.broken.load(Ordering::SeqCst) {
            return Box::pin(async {
                Err(StoreError::Full { store: "here".to_owned(), free_bytes: Some(0), detail: String::new() })
            });
        }
        self.inner.commit(batch)
    }
    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        self.inner.claim(root, from_epoch)
    }
    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.inner.session(id)
    }
    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.inner.sessions(query)
    }
    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.inner.origin(root)
    }
    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.inner.runs(session)
    }
    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.inner.trees(query)
    }
    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.inner.events(query)
    }
    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.inner.open_commands(root)
    }
    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.inner.command(id)
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
    fn owner(&self) -> OwnerId {
        self.inner.owner()
    }
    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        self.inner.owner_state(owner)
    }
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}

/// The store breaks under a root whose agent is done and whose child takes its time to stop.
async fn broken_under(
    agent: impl FnOnce(&World) -> Scripted,
) -> (SessionRecord, offspring_delegation::RootResult) {
    let store = Arc::new(Breakable { inner: MemoryStore::new(), broken: AtomicBool::new(false) });
    let world = World::over(Arc::clone(&store) as _, DelegatorOptions::default());
    let stage = Stage::new();
    let playing = stage.clone();
    let mut child = Scripted::new("b", move |_, cx| {
        let stage = playing.clone();
        async move {
            stage.play().await;
            cx.emit(Event::TextDelta(TextDelta { text: "lost".to_owned() })).await?;
            cx.stop_requested().cancelled().await;
            stage.play().await;
            Ok("b".into())
        }
    });
    child.stop_grace = Duration::from_secs(10);
    world.delegator.add(child.node());
    let root = agent(&world).node();
    let run = world.delegator.run_root(root, "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    store.broken.store(true, Ordering::SeqCst);
    stage.let_go(1);
    stage.arrived(1).await;
    // Whatever was woken has had its turn.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!run.result.is_finished(), "its child is still at work");
    store.broken.store(false, Ordering::SeqCst);
    stage.let_go(1);
    let result = bounded(run.result).await.unwrap();
    (world.manager.session(&run.session.id).await.unwrap().unwrap(), result)
}

#[tokio::test]
async fn l19_a_root_whose_store_fails_waits_for_its_tree_and_does_not_succeed_whatever_its_answer() {
    let (row, result) = broken_under(|world| starts("r", &world.delegator, "b")).await;
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
    assert_eq!(result.outcome, Outcome::Interrupted);
    assert!(result.answer.starts_with("task_"), "what there was of an answer: {:?}", result.answer);
    let error = result.error.unwrap();
    assert!(error.contains("the store failed"), "{error}");
}

#[tokio::test]
async fn l19_a_root_that_stops_when_its_store_fails_says_why_and_not_that_it_was_cancelled() {
    let (row, result) = broken_under(|world| {
        let starting = Arc::new(starts("r", &world.delegator, "b"));
        Scripted::new("r", move |prompt, cx| {
            let stop = cx.stop_requested();
            let work = Arc::clone(&starting).run(prompt, cx);
            async move {
                work.await?;
                stop.cancelled().await;
                Err(RunError::interrupted("cancelled", "cancelled"))
            }
        })
    })
    .await;
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Interrupted)));
    let error = result.error.unwrap();
    assert!(error.contains("the store failed") && error.contains("no room for the store here"), "{error}");
}

#[tokio::test]
async fn l19_a_root_that_failed_before_its_store_did_keeps_its_own_error() {
    let (row, result) = broken_under(|world| {
        let starting = Arc::new(starts("r", &world.delegator, "b"));
        Scripted::new("r", move |prompt, cx| {
            let work = Arc::clone(&starting).run(prompt, cx);
            async move {
                work.await?;
                Err(RunError::failed("broken", "r broke").with_partial("half of it"))
            }
        })
    })
    .await;
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Failed)));
    assert_eq!((result.outcome, result.error.as_deref()), (Outcome::Failed, Some("r broke")));
    assert_eq!(result.answer, "half of it", "what there was of an answer");
}
