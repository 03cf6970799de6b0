//! What a root was started with, and what of a run was not kept.

use offspring_protocol::{NodeName, Origin, SessionId};
use offspring_sessions::NewRoot;

use crate::world::*;

fn origin() -> Origin {
    Origin {
        manifest: "name: p\nagents: {}\n".to_owned(),
        manifest_path: Some("/pools/p.yaml".to_owned()),
        node: NodeName::new("r").unwrap(),
        prompt: "what is asked".to_owned(),
        cwd: None,
        program_version: "0.1.0".to_owned(),
        rerun_of: Some(SessionId::new("ses_before").unwrap()),
    }
}

on_stores! {
    async fn a_root_keeps_what_it_was_started_with_and_nobody_else_has_it(world) {
        let with = NewRoot { origin: Some(origin()), ..root() };
        let run = world.manager.create_root(with).await.unwrap().start("x").await.unwrap();
        let child = child_of(&run, "a").await;
        let (id, below) = (run.context.session().id.clone(), child.context.session().id.clone());
        child.end.finish(Ok("a".into())).await.unwrap();
        run.end.finish(Ok("r".into())).await.unwrap();
        let without = world.root().await;
        for manager in [world.manager.clone(), world.reloaded()] {
            assert_eq!(manager.origin(&id).await.unwrap(), Some(origin()));
            assert_eq!(manager.origin(&below).await.unwrap(), None);
            assert_eq!(manager.origin(&without.context.session().id).await.unwrap(), None);
            let record = manager.session(&id).await.unwrap().unwrap();
            assert_eq!(record.rerun_of, origin().rerun_of);
            assert_eq!(manager.session(&below).await.unwrap().unwrap().rerun_of, None);
        }
        world.manager.delete(&id).await.unwrap();
        assert_eq!(world.manager.origin(&id).await.unwrap(), None);
        without.end.finish(Ok("r".into())).await.unwrap();
    }

    async fn what_a_run_left_out_is_added_up_and_kept_with_its_record(world) {
        let run = world.root().await;
        let id = run.context.session().id.clone();
        run.context.left_out(3);
        run.context.left_out(0);
        run.context.left_out(4 << 30);
        run.end.finish(Ok("r".into())).await.unwrap();
        let left = |record: offspring_sessions::SessionRecord| record.last_run.unwrap().left_out_bytes;
        for manager in [world.manager.clone(), world.reloaded()] {
            assert_eq!(left(manager.session(&id).await.unwrap().unwrap()), (4 << 30) + 3);
        }
        // A new run begins with nothing left out, and a sum that does not fit stays at its end.
        let again = world.manager.resume_root(&id).await.unwrap().start("y").await.unwrap();
        assert_eq!(left(world.manager.session(&id).await.unwrap().unwrap()), 0);
        again.context.left_out(u64::MAX);
        again.context.left_out(1);
        again.end.finish(Ok("r".into())).await.unwrap();
        assert_eq!(left(world.reloaded().session(&id).await.unwrap().unwrap()), u64::MAX);
        let runs = world.manager.store().runs(id).await.unwrap();
        assert_eq!(runs.iter().map(|run| run.left_out_bytes).collect::<Vec<_>>(), [(4 << 30) + 3, u64::MAX]);
    }
}
