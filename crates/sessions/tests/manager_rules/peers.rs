//! The third door: sessions a peer decided on.

use offspring_protocol::{External, PeerId, SessionLimits};
use offspring_sessions::{CancelScope, Refused};

use crate::world::*;

fn external(name: &str) -> External {
    External { peer: PeerId::new("peer").unwrap(), id: name.to_owned() }
}

on_stores! {
    async fn l12_the_same_external_id_under_the_same_parent_is_a_new_run_of_its_session(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let first = world.manager.adopt_child(&root_id, external("e"), child("a")).await.unwrap();
        assert!(first.new_session && first.breach.is_none());
        let session = first.child.session().id.clone();
        let run = first.child.start("x").await.unwrap();
        assert!(matches!(
            world.manager.adopt_child(&root_id, external("e"), child("a")).await,
            Err(Refused::StillRunning { .. })
        ));
        run.end.finish(Ok("x".into())).await.unwrap();
        let second = world.manager.adopt_child(&root_id, external("e"), child("a")).await.unwrap();
        assert_eq!((second.new_session, &second.child.session().id), (false, &session));
        second.child.start("y").await.unwrap().end.finish(Ok("y".into())).await.unwrap();
        assert_eq!(count(&world.manager, &root_id, "spawn_session_start").await, 1);
        root.end.finish(Ok("r".into())).await.unwrap();
        // Known after a reload too.
        let again = world.reloaded();
        let third = again.adopt_child(&root_id, external("e"), child("a")).await.unwrap();
        assert_eq!((third.new_session, &third.child.session().id), (false, &session));
    }

    async fn t3_under_another_parent_it_is_a_new_session_and_the_old_one_stays_where_it_was(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let other = child_of(&root, "other").await;
        let other_id = other.context.session().id.clone();
        let one = world.manager.adopt_child(&root_id, external("e"), child("a")).await.unwrap();
        let two = world.manager.adopt_child(&other_id, external("e"), child("a")).await.unwrap();
        assert!(two.new_session);
        assert_ne!(one.child.session().id, two.child.session().id);
        let old = world.manager.session(&one.child.session().id).await.unwrap().unwrap();
        assert_eq!(old.data.parent_id, Some(root_id));
        assert_eq!(two.child.session().depth, 2);
    }

    async fn l5_a_breach_is_told_and_refuses_nothing(world) {
        let mut new = root();
        new.limits = SessionLimits { max_live_children: Some(1), ..SessionLimits::default() };
        let root = world.manager.create_root(new).await.unwrap().start("x").await.unwrap();
        let root_id = root.context.session().id.clone();
        let one = world.manager.adopt_child(&root_id, external("1"), child("a")).await.unwrap();
        let two = world.manager.adopt_child(&root_id, external("2"), child("a")).await.unwrap();
        assert!(one.breach.is_none());
        assert!(matches!(two.breach, Some(Refused::LiveChildren { max: 1 })));
        drop((one, two));
        root.end.tree_at_rest().await;
        let one = world.manager.adopt_child(&root_id, external("1"), child("a")).await.unwrap();
        let two = world.manager.adopt_child(&root_id, external("2"), child("a")).await.unwrap();
        assert!(one.breach.is_none() && two.breach.is_some() && !two.new_session);
    }

    async fn l12_racing_adoptions_of_one_external_id_make_one_session(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let asked = (0..20).map(|_| world.manager.adopt_child(&root_id, external("e"), child("a")));
        let adopted = futures_util::future::join_all(asked).await;
        assert_eq!(adopted.iter().filter(|adopted| adopted.is_ok()).count(), 1);
        assert_eq!(world.manager.children(&root_id).await.unwrap().len(), 1);
    }

    async fn l14_a_run_adopts_until_it_is_cancelled(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let one = root.context.adopt_child(external("1"), child("a")).await.unwrap();
        assert_eq!((one.child.session().parent.as_ref(), one.child.session().depth), (Some(&root_id), 1));
        drop(one);
        let (cancelled, ()) = tokio::join!(world.manager.cancel(&root_id, CancelScope::Run), async {
            let refused = root.context.adopt_child(external("2"), child("a")).await;
            assert!(matches!(refused, Err(Refused::Cancelled)), "{refused:?}");
            root.end.finish(Ok("r".into())).await.unwrap();
        });
        cancelled.unwrap();
        assert_eq!(world.manager.children(&root_id).await.unwrap().len(), 1);
    }
}
