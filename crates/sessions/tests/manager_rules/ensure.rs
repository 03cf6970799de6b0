//! L9: a session under a given id, whether anybody has heard of it or not.

use offspring_sessions::{Binding, How, Notice, Refused};
use tokio::sync::broadcast::Receiver;

use crate::world::*;

fn told(notices: &mut Receiver<Notice>) -> Vec<(&'static str, String)> {
    std::iter::from_fn(|| notices.try_recv().ok())
        .map(|notice| match notice {
            Notice::Created(info) => ("created", info.id.to_string()),
            Notice::Updated(info) => ("updated", info.id.to_string()),
        })
        .collect()
}

on_stores! {
    async fn l9_nowhere_makes_a_root_once_and_memory_says_updated(world) {
        let mut notices = world.manager.bus().notices();
        let made = world.manager.ensure_session(&id("x"), None).await.unwrap();
        assert_eq!((made.how, made.info.depth), (How::Created, 0));
        assert_eq!(made.binding, Binding::Node(name("default")));
        assert_eq!(told(&mut notices), [("created", "x".to_owned())]);
        let row = world.manager.session(&id("x")).await.unwrap().unwrap();
        assert_eq!(row.data.pool_id.unwrap().as_str(), "pool");
        assert!(row.last_run.is_none(), "there is no run before somebody prompts");
        let commits = world.store.commits();
        let again = world.manager.ensure_session(&id("x"), None).await.unwrap();
        assert_eq!(again.how, How::Memory);
        assert_eq!(told(&mut notices), [("updated", "x".to_owned())]);
        assert_eq!(world.store.commits(), commits);
        // It can be prompted.
        let run = world.manager.resume_root(&id("x")).await.unwrap().start("hello").await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
    }

    async fn l9_a_session_in_the_store_is_loaded_and_never_saved(world) {
        let [r, _, b, c] = world.family().await;
        let again = world.reloaded();
        let mut notices = again.bus().notices();
        let commits = world.store.commits();
        let found = again.ensure_session(&c, None).await.unwrap();
        assert_eq!((found.how, found.binding), (How::Store, Binding::None));
        assert_eq!(found.info.path.to_vec(), [r.clone(), b, c.clone()]);
        assert_eq!(told(&mut notices), [("created", c.to_string()), ("updated", c.to_string())]);
        assert_eq!(again.ensure_session(&c, None).await.unwrap().how, How::Memory);
        let root = again.ensure_session(&r, None).await.unwrap();
        assert_eq!(root.binding, Binding::Node(name("root")));
        assert_eq!(world.store.commits(), commits);
    }

    async fn l9_with_a_parent_it_makes_a_child_with_its_spawn(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let made = world.manager.ensure_session(&id("kid"), Some(&root_id)).await.unwrap();
        assert_eq!((made.how, made.info.depth, made.binding), (How::Created, 1, Binding::None));
        assert_eq!(made.info.path.to_vec(), [root_id.clone(), id("kid")]);
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 1);
        let orphan = world.manager.ensure_session(&id("orphan"), Some(&id("nobody"))).await.unwrap();
        assert_eq!((orphan.info.depth, orphan.info.root.clone()), (1, id("orphan")));
        // An idle child takes no place among those at work.
        root.end.tree_at_rest().await;
    }

    async fn l9_racing_calls_for_one_id_yield_one_session(world) {
        let mut notices = world.manager.bus().notices();
        let commits = world.store.commits();
        let asked = (0..100).map(|_| {
            let manager = world.manager.clone();
            tokio::spawn(async move { manager.ensure_session(&id("x"), None).await.unwrap().how })
        });
        let how = futures_util::future::join_all(asked).await;
        assert_eq!(how.iter().filter(|how| *how.as_ref().unwrap() == How::Created).count(), 1);
        assert_eq!(world.store.commits(), commits + 1);
        assert_eq!(told(&mut notices).iter().filter(|(what, _)| *what == "created").count(), 1);
        assert_eq!(world.manager.roots(10).await.unwrap().len(), 1);
    }

    async fn l9_a_race_with_another_manager_finds_its_session(world) {
        let other = world.reloaded();
        world.store.hold();
        let (slow, manager) = (world.manager.clone(), other.clone());
        let one = tokio::spawn(async move { slow.ensure_session(&id("x"), None).await.unwrap().how });
        let two = tokio::spawn(async move { manager.ensure_session(&id("x"), None).await.unwrap().how });
        world.store.held_up(2).await;
        world.store.let_go();
        let mut how = [one.await.unwrap(), two.await.unwrap()];
        how.sort_by_key(|how| *how == How::Store);
        assert_eq!(how, [How::Created, How::Store]);
    }

    async fn l9_a_refusal_leaves_nothing(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let too_long = id(&"x".repeat(600));
        assert!(matches!(world.manager.ensure_session(&too_long, None).await, Err(Refused::BadId(_))));
        assert!(world.manager.ensure_session(&too_long, Some(&root_id)).await.is_err());
        assert!(world.manager.children(&root_id).await.unwrap().is_empty());
    }
}
