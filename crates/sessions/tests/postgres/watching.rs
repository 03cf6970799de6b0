//! Managers of two processes on one database: following, commands, taking over.

use std::sync::Arc;

use offspring_protocol::{AgentType, Event, NodeName, Outcome, RunState, event::TextDelta};
use offspring_sessions::{
    CancelAnswer, ManagerOptions, NewChild, NewRoot, SessionManager, StartedRun, StoreError,
    store::postgres::{PostgresAddress, PostgresOptions, PostgresStore},
};

use crate::{BOUND, open, own_server, place, server::Stop, short_lived, until_dead};

fn manager(store: PostgresStore) -> SessionManager {
    SessionManager::new(Arc::new(store), ManagerOptions::default())
}

async fn root(manager: &SessionManager) -> StartedRun {
    let root = NewRoot::new(NodeName::new("root").unwrap(), AgentType::Native);
    manager.create_root(root).await.unwrap().start("do it").await.unwrap()
}

async fn child(parent: &StartedRun, name: &str) -> StartedRun {
    let child = NewChild::new(NodeName::new(name).unwrap(), AgentType::Native);
    parent.context.create_child(child).await.unwrap().start("part of it").await.unwrap()
}

fn text(text: &str) -> Event {
    Event::TextDelta(TextDelta { text: text.to_owned() })
}

/// Follows a tree to its end and gives the numbers it saw.
async fn follow(manager: SessionManager, root: offspring_protocol::SessionId) -> Vec<u64> {
    let mut follow = manager.follow(&root, 1);
    let mut seen = Vec::new();
    while let Some(envelope) = tokio::time::timeout(BOUND, follow.next()).await.unwrap().unwrap() {
        seen.push(envelope.seq);
    }
    seen
}

/// Emits words until the tree has so many events.
async fn speak(run: &StartedRun, words: usize) {
    for word in 0..words {
        run.context.emit(text(&format!("{word} "))).await.unwrap();
        if word % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn l18_watchers_of_another_process_see_every_event_once() {
    let Some(url) = place::server("l18_watchers") else { return };
    let address = place::fresh(&url);
    let (ours, theirs) = (manager(open(&address).await), manager(open(&address).await));
    let r = root(&ours).await;
    let id = r.context.session().id.clone();
    let watchers: Vec<_> = (0..3).map(|_| tokio::spawn(follow(theirs.clone(), id.clone()))).collect();
    let a = child(&r, "a").await;
    speak(&a, 300).await;
    a.end.finish(Ok("done".into())).await.unwrap();
    r.end.finish(Ok("done".into())).await.unwrap();
    let whole = follow(ours.clone(), id).await;
    assert!(whole.iter().copied().eq(1..=whole.len() as u64));
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), whole);
    }
}

#[tokio::test]
async fn l14_another_process_cancels_and_is_answered() {
    let Some(url) = place::server("l14_cancel") else { return };
    let address = place::fresh(&url);
    let (ours, theirs) = (manager(open(&address).await), manager(open(&address).await));
    let r = root(&ours).await;
    let id = r.context.session().id.clone();
    let stop = r.context.stop_requested();
    let agent = tokio::spawn(async move {
        stop.cancelled().await;
        drop(r);
    });
    let answer = theirs.request_cancel(&id).await.unwrap();
    assert!(
        matches!(&answer, CancelAnswer::Owner(said) if said.contains("cancelled 1 session")),
        "{answer:?}"
    );
    agent.await.unwrap();
    let state = theirs.session(&id).await.unwrap().unwrap().run_state();
    assert_eq!(state, Some(RunState::Ended(Outcome::Cancelled)));
}

#[tokio::test]
async fn l13_o12_what_a_dead_process_left_is_interrupted_once_and_can_go_on() {
    let Some(url) = place::server("l13_dead") else { return };
    let address = place::fresh(&url);
    // A runtime of its own that ends without a word, as a process that is killed.
    let there = address.clone();
    let dying = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let manager = manager(short_lived(&there).await);
            let r = root(&manager).await;
            let a = child(&r, "a").await;
            a.context.emit(text("last words")).await.unwrap();
            let ids = [&a, &r].map(|run| run.context.session().id.clone());
            let owner = manager.store().owner();
            // Nothing of it is dropped, or it would end its runs.
            std::mem::forget((manager, r, a));
            (ids, owner)
        })
    });
    let ([a, r], owner) = tokio::task::spawn_blocking(move || dying.join().unwrap()).await.unwrap();
    let (second, third) = (manager(open(&address).await), manager(open(&address).await));
    until_dead(second.store().as_ref(), owner.as_str()).await;
    // Of two who see it at the same time one takes it.
    let (one, other) = futures_util::future::join(second.recover(), third.recover()).await;
    let (one, other) = (one.unwrap(), other.unwrap());
    let owner = if one.trees.is_empty() { &third } else { &second };
    let mut interrupted: Vec<_> = Vec::new();
    for recovered in [one, other] {
        interrupted.extend(recovered.interrupted.into_iter().map(|(session, _)| session));
    }
    assert_eq!(interrupted, [a, r.clone()]);
    assert!(third.recover().await.unwrap().trees.is_empty());
    let again = owner.resume_root(&r).await.unwrap().start("again").await.unwrap();
    again.end.finish(Ok("done".into())).await.unwrap();
    let whole = follow(third.clone(), r).await;
    assert!(whole.iter().copied().eq(1..=whole.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn l16_l18_a_run_goes_on_over_a_restart_of_the_server_and_watchers_miss_nothing() {
    let Some(mut server) = own_server("l18_restart") else { return };
    let address: PostgresAddress = server.url().parse().unwrap();
    let (ours, theirs) = (manager(open(&address).await), manager(open(&address).await));
    let r = root(&ours).await;
    let id = r.context.session().id.clone();
    let watcher = tokio::spawn(follow(theirs.clone(), id.clone()));
    let a = child(&r, "a").await;
    for how in [Stop::Immediate, Stop::Fast] {
        let writing = speak(&a, 400);
        let restart = tokio::task::spawn_blocking(move || {
            server.stop(how).unwrap();
            server.begin().unwrap();
            server
        });
        let ((), restarted) = futures_util::future::join(writing, restart).await;
        server = restarted.unwrap();
    }
    let b = child(&r, "b").await;
    for run in [b, a, r] {
        run.end.finish(Ok("done".into())).await.unwrap();
    }
    let whole = follow(ours, id).await;
    assert!(whole.iter().copied().eq(1..=whole.len() as u64));
    assert_eq!(watcher.await.unwrap(), whole);
}

#[tokio::test]
async fn l13_an_owner_that_was_away_for_too_long_stops_its_agents() {
    let Some(url) = place::server("l13_away") else { return };
    let address = place::fresh(&url);
    let ours = PostgresStore::open(&address, PostgresOptions::default()).await.unwrap();
    let ours = manager(ours);
    let r = root(&ours).await;
    let id = r.context.session().id.clone();
    let stop = r.context.stop_requested();
    // As after its lease: another process takes the tree.
    let other = open(&address).await;
    use offspring_sessions::store::SessionStore as _;
    other.claim(id, 1).await.unwrap();
    r.context.emit(text("hello?")).await.unwrap();
    tokio::time::timeout(BOUND, stop.cancelled()).await.unwrap();
    assert!(matches!(r.context.emit(text("x")).await, Err(StoreError::Fenced { .. })));
}
