//! L15: each provider message once.

use offspring_protocol::SessionId;
use offspring_sessions::{RunError, SessionManager};

use crate::world::*;

async fn input(manager: &SessionManager, id: &SessionId) -> (u64, u64) {
    let usage = manager.usage(id).await.unwrap();
    (usage.own.input_tokens, usage.subtree.input_tokens)
}

on_stores! {
    async fn l15_o16_own_and_subtree_count_each_message_once_failed_cancelled_and_late_ones_too(world) {
        let r = world.root().await;
        let a = child_of(&r, "a").await;
        let b = child_of(&r, "b").await;
        let c = child_of(&b, "c").await;
        let runs = [&r, &a, &b, &c].map(|run| run.context.session().id.clone());
        r.context.emit(tokens("m1", 60)).await.unwrap();
        r.context.emit(tokens("m2", 40)).await.unwrap();
        r.context.emit(tokens("m2", 40)).await.unwrap();
        a.context.emit(tokens("m1", 10)).await.unwrap();
        b.context.emit(tokens("m1", 20)).await.unwrap();
        let late = c.context.emitter();
        let cancelled = tokio::spawn(async move {
            c.context.stop_requested().cancelled().await;
            c.end.finish(Err(RunError::interrupted("x", "x"))).await
        });
        world.manager.cancel(&runs[3], offspring_sessions::CancelScope::Subtree).await.unwrap();
        cancelled.await.unwrap().unwrap();
        late.emit(tokens("m1", 5)).await.unwrap();
        a.end.finish(Ok("a".into())).await.unwrap();
        b.end.finish(Err(RunError::failed("failed", "b"))).await.unwrap();
        r.end.finish(Ok("r".into())).await.unwrap();
        let expected = [(100, 135), (10, 10), (20, 25), (5, 5)];
        // Live, then read from the store, twice: a replay changes no number.
        for manager in [world.manager.clone(), world.reloaded(), world.reloaded()] {
            for (id, expected) in runs.iter().zip(expected) {
                assert_eq!(input(&manager, id).await, expected, "{id}");
            }
        }
        let again = world.reloaded();
        let resumed = again.resume_root(&runs[0]).await.unwrap().start("x").await.unwrap();
        resumed.context.emit(tokens("m2", 40)).await.unwrap();
        assert_eq!(input(&again, &runs[0]).await, (100, 135));
        resumed.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(input(&world.reloaded(), &runs[0]).await, (100, 135));
    }
}
