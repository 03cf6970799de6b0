//! How many commits a run takes. The memory store's count of changes is its count of commits.
//!
//! The clock stands still while anything can go on, so that what is counted depends on no machine.
#![cfg(test)]

use std::{sync::Arc, time::Duration};

use offspring_protocol::{AgentType, Event, NodeName, event::TextDelta};
use offspring_sessions::{
    Answer, ManagerOptions, MemoryStore, NewChild, NewRoot, Scope, SessionManager, SessionStore, StartedRun,
};

struct World {
    store: Arc<MemoryStore>,
    manager: SessionManager,
    root: StartedRun,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let manager = SessionManager::new(Arc::clone(&store) as _, ManagerOptions::default());
        let root = NewRoot::new(NodeName::new("root").unwrap(), AgentType::Native);
        let root = manager.create_root(root).await.unwrap().start("go").await.unwrap();
        root.context.record_process("1".to_owned()).await.unwrap();
        Self { store, manager, root }
    }

    fn commits(&self) -> u64 {
        *self.store.changes().borrow()
    }

    async fn child(&self) -> StartedRun {
        let new = NewChild::new(NodeName::new("child").unwrap(), AgentType::Command);
        self.root.context.create_child(new).await.unwrap().start("do").await.unwrap()
    }
}

fn text(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned() })
}

#[tokio::test(start_paused = true)]
async fn l16_what_nobody_waits_for_is_committed_with_what_somebody_waits_for() {
    let world = World::new().await;
    let before = world.commits();
    let child = world.child().await;
    assert_eq!(world.commits() - before, 1, "the row with its run and its spawn");
    child.context.record_process("2".to_owned()).await.unwrap();
    assert_eq!(world.commits() - before, 2, "its start with the process");
    child.context.emit(text("done")).await.unwrap();
    child.end.finish(Ok(Answer::from("done".to_owned()))).await.unwrap();
    assert_eq!(world.commits() - before, 3, "the last of its output with its end");
}

#[tokio::test(start_paused = true)]
async fn l16_a_line_that_nobody_waits_for_is_shown_within_50_ms() {
    let world = World::new().await;
    let mut heard = world.manager.subscribe(Scope::All);
    for round in 0..3 {
        let began = tokio::time::Instant::now();
        world.root.context.emit(text("one")).await.unwrap();
        world.root.context.emit(text(" two")).await.unwrap();
        let envelope = heard.recv().await.unwrap().unwrap();
        assert_eq!(envelope.event, (&text("one two")).into(), "round {round}");
        assert!(began.elapsed() <= Duration::from_millis(50), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn l16_a_full_queue_does_not_wait_for_the_clock() {
    let world = World::new().await;
    let began = tokio::time::Instant::now();
    for _ in 0..10_000 {
        world.root.context.emit(text("x")).await.unwrap();
    }
    // The last few may wait once for more, all before them waited for room only.
    assert!(began.elapsed() <= Duration::from_millis(5), "{:?}", began.elapsed());
}
