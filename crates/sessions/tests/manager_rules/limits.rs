//! L5: reserve, then commit, or give back.

use std::sync::Arc;

use offspring_protocol::SessionLimits;
use offspring_sessions::Refused;
use proptest::prelude::*;

use crate::world::*;

async fn bounded(world: &World, limits: SessionLimits) -> offspring_sessions::StartedRun {
    let mut new = root();
    new.limits = limits;
    world.manager.create_root(new).await.unwrap().start("x").await.unwrap()
}

on_stores! {
    async fn l5_depth_10_is_fine_and_11_is_refused_without_a_trace(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let mut chain = vec![root];
        for depth in 1..=10 {
            let next = child_of(chain.last().unwrap(), &format!("n{depth}")).await;
            chain.push(next);
        }
        let deepest = chain.last().unwrap();
        deepest.context.record_process("settled".to_owned()).await.unwrap();
        let (rows, lines) = (world.manager.subtree(&root_id).await.unwrap().len(), log(&world.manager, &root_id).await.len());
        let commits = world.store.commits();
        let refused = deepest.context.create_child(child("n11")).await.unwrap_err();
        assert!(matches!(refused, Refused::DelegationDepth { depth: 11, max: 10 }), "{refused}");
        assert!(refused.to_string().contains("do this work yourself"));
        assert_eq!(world.manager.subtree(&root_id).await.unwrap().len(), rows);
        assert_eq!(log(&world.manager, &root_id).await.len(), lines);
        assert_eq!(world.store.commits(), commits);
    }

    async fn l5_live_children_are_bounded_and_a_place_comes_back_with_the_end_of_a_run(world) {
        let root = bounded(&world, SessionLimits { max_live_children: Some(2), ..SessionLimits::default() }).await;
        let a = child_of(&root, "a").await;
        let b = child_of(&root, "b").await;
        let refused = root.context.create_child(child("c")).await.unwrap_err();
        assert!(matches!(refused, Refused::LiveChildren { max: 2 }), "{refused}");
        let a_id = a.context.session().id.clone();
        a.end.finish(Ok("a".into())).await.unwrap();
        let c = child_of(&root, "c").await;
        assert!(matches!(world.manager.resume_child(&a_id).await, Err(Refused::LiveChildren { .. })));
        drop(c);
        root.end.finish(Ok("x".into())).await.unwrap();
        drop(b);
    }

    async fn l5_descendants_are_counted_for_the_root_and_for_an_inner_session(world) {
        let root = bounded(&world, SessionLimits { max_descendants: Some(4), ..SessionLimits::default() }).await;
        let mut new = child("a");
        new.limits = SessionLimits { max_descendants: Some(1), ..SessionLimits::UNBOUNDED };
        let a = root.context.create_child(new).await.unwrap().start("x").await.unwrap();
        let a_id = a.context.session().id.clone();
        child_of(&a, "b").await.end.finish(Ok("b".into())).await.unwrap();
        match a.context.create_child(child("c")).await.unwrap_err() {
            Refused::Descendants { session, max: 1 } => assert_eq!(session, a_id),
            other => panic!("{other}"),
        }
        child_of(&root, "d").await.end.finish(Ok("d".into())).await.unwrap();
        child_of(&root, "e").await.end.finish(Ok("e".into())).await.unwrap();
        // All of them have ended, and they count all the same.
        assert!(matches!(root.context.create_child(child("f")).await, Err(Refused::Descendants { max: 4, .. })));
    }

    async fn l5_a_failed_commit_and_a_missing_directory_give_the_place_back(world) {
        let limits = SessionLimits { max_live_children: Some(1), max_descendants: Some(1), ..SessionLimits::default() };
        let root = bounded(&world, limits).await;
        for _ in 0..3 {
            let mut new = child("a");
            new.cwd = Some("/nowhere/at/all".to_owned());
            assert!(matches!(root.context.create_child(new).await, Err(Refused::Cwd { .. })));
        }
        let taken = world.family().await;
        for _ in 0..3 {
            let mut new = child("a");
            new.id = Some(taken[1].clone());
            assert!(matches!(root.context.create_child(new).await, Err(Refused::Store(_))));
        }
        child_of(&root, "a").await.end.finish(Ok("a".into())).await.unwrap();
    }

    async fn l5_concurrent_reservations_never_exceed_the_limit(world) {
        let root = Arc::new(bounded(&world, SessionLimits { max_descendants: Some(7), ..SessionLimits::default() }).await);
        let asked = (0..50).map(|n| {
            let root = Arc::clone(&root);
            tokio::spawn(async move { root.context.create_child(child(&format!("n{n}"))).await.ok() })
        });
        let made = futures_util::future::join_all(asked).await.into_iter().filter_map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(made.len(), 7);
        drop(made);
        root.end.tree_at_rest().await;
        assert_eq!(world.manager.children(&root.context.session().id).await.unwrap().len(), 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Whatever is made, refused, ended and resumed in whatever order: the limits hold and the counts agree
    /// with what is there.
    #[test]
    fn l5_counts_agree_with_what_is_there_after_any_history(
        steps in prop::collection::vec((0_u8..4, 0_usize..8), 1..60),
        live in 1_u32..4, below in 1_u32..12,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::memory();
            let limits = SessionLimits {
                max_live_children: Some(live), max_descendants: Some(below), max_depth: Some(3), ..SessionLimits::UNBOUNDED
            };
            let root = bounded(&world, limits).await;
            let root_id = root.context.session().id.clone();
            let mut open = vec![root];
            let mut idle = Vec::new();
            for (step, pick) in steps {
                let at = pick % open.len();
                match step {
                    0 | 1 => match open[at].context.create_child(child("n")).await {
                        Ok(made) => open.push(made.start("x").await.unwrap()),
                        Err(Refused::LiveChildren { .. } | Refused::Descendants { .. } | Refused::DelegationDepth { .. }) => {}
                        Err(other) => panic!("{other}"),
                    },
                    2 if at > 0 => {
                        let run = open.swap_remove(at);
                        idle.push(run.context.session().id.clone());
                        run.end.finish(Ok("x".into())).await.unwrap();
                    }
                    3 if !idle.is_empty() => {
                        let id = idle.swap_remove(pick % idle.len());
                        match world.manager.resume_child(&id).await {
                            Ok(child) => open.push(child.start("y").await.unwrap()),
                            Err(Refused::LiveChildren { .. }) => idle.push(id),
                            Err(other) => panic!("{other}"),
                        }
                    }
                    _ => {}
                }
                let rows = world.manager.subtree(&root_id).await.unwrap();
                assert!(rows.len() <= 1 + below as usize);
                for row in &rows {
                    let children = rows.iter().filter(|child| child.data.parent_id.as_ref() == Some(&row.data.id));
                    let at_work = children.filter(|child| child.run_state().unwrap().is_open()).count();
                    assert!(at_work <= live as usize);
                    assert!(row.data.depth <= 3);
                }
                assert_eq!(rows.len(), 1 + open.len() - 1 + idle.len());
            }
        });
    }
}
