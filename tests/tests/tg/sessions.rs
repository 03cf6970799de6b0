//! TG tests about rows: what a child's row holds, and what `ensure_session` does to it.

use std::sync::Arc;

use offspring_delegation::AgentContext;
use offspring_pool::Limits;
use offspring_protocol::{AgentType, Outcome, ProjectId, RunState, SessionId, SessionLimits};
use offspring_sessions::{
    AnnouncedChild, How, MemoryStore, NewChild, NewRoot, Notice, Refused, RootSession, RunError, SessionStore,
};

use crate::world::*;

/// Both stores, with a directory that goes when the test is over.
fn stores(directory: &tempfile::TempDir) -> [Arc<dyn SessionStore>; 2] {
    [Arc::new(MemoryStore::new()), sqlite(&directory.path().join("sessions.db"))]
}

async fn parent(house: &House, cwd: Option<&str>) -> RootSession {
    let cwd = cwd.map(str::to_owned);
    let new = NewRoot { cwd, ..NewRoot::new(name("parent"), AgentType::Native) };
    house.manager().create_root(new).await.unwrap()
}

async fn child(house: &House, parent: &SessionId) -> AnnouncedChild {
    let new = NewChild::new(name("coder"), AgentType::Native);
    house.manager().create_child(parent, new).await.unwrap()
}

async fn as_json(house: &House, id: &SessionId) -> String {
    serde_json::to_string(&house.row(id).await.data).unwrap()
}

#[tokio::test]
async fn tg_01_a_childs_row_has_the_fields_of_its_parent_and_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().to_str().unwrap();
    for store in stores(&directory) {
        let house = House::open(store).await;
        let above = parent(&house, Some(cwd)).await;
        let below = child(&house, &above.session().id).await;
        let row = house.row(&below.session().id).await.data;
        assert_eq!(row.parent_id.as_ref(), Some(&above.session().id));
        assert_eq!(row.root_id, above.session().id);
        assert_eq!(row.project_id, Some(ProjectId::global()));
        assert_eq!(row.project_id, above.data().project_id);
        assert_eq!(row.cwd.as_deref(), Some(cwd));
        assert_eq!((row.agent_name, row.agent_type), (name("coder"), AgentType::Native));
        assert_eq!(row.pool_id.unwrap().as_str(), POOL);
        assert_eq!(row.depth, 1);
        // A parent that nobody knows: nothing to inherit.
        let orphan = child(&house, &id("unknown_parent")).await;
        let row = house.row(&orphan.session().id).await.data;
        assert_eq!(row.parent_id, Some(id("unknown_parent")));
        assert_eq!((row.project_id, row.cwd, row.depth), (None, None, 1));
        drop((above, below, orphan));
        house.log().await;
    }
}

#[tokio::test]
async fn tg_02_ensure_session_does_not_save_a_session_that_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    for store in stores(&directory) {
        let house = House::open(store).await;
        let above = parent(&house, None).await;
        let below = child(&house, &above.session().id).await.session().id.clone();
        let before = as_json(&house, &below).await;
        let ensured = house.manager().ensure_session(&below, Some(&above.session().id)).await.unwrap();
        assert_eq!((ensured.how, &ensured.info.id), (How::Memory, &below));
        assert_eq!(as_json(&house, &below).await, before);
        let row = house.row(&below).await.data;
        assert_eq!((row.agent_type, row.pool_id.unwrap().as_str()), (AgentType::Native, POOL));
        drop(above);
        house.log().await;
    }
}

#[tokio::test]
async fn tg_05_ensure_session_of_another_program_does_not_overwrite_a_delegated_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let (root, _) = house.delegate(vec![echo("coder")], "x").await;
    let below = house.children(&root).await[0].data.id.clone();
    let before = as_json(&house, &below).await;
    house.log().await;
    // Another pool, which would write its own name and type.
    let house = House::named("other", sqlite(&path)).await;
    let mut notices = house.manager().bus().notices();
    let ensured = house.manager().ensure_session(&below, Some(&root)).await.unwrap();
    assert_eq!(ensured.how, How::Store);
    assert!(matches!(notices.recv().await.unwrap(), Notice::Created(info) if info.id == below));
    assert!(matches!(notices.recv().await.unwrap(), Notice::Updated(info) if info.id == below));
    assert_eq!(as_json(&house, &below).await, before);
    let row = house.row(&below).await.data;
    assert_eq!((row.agent_type, row.pool_id.unwrap().as_str()), (AgentType::Native, POOL));
    house.log().await;
}

#[tokio::test]
async fn tg_09_outside_a_run_the_depth_falls_back_to_one() {
    let house = House::in_memory().await;
    let context = AgentContext { run: None, manager: Some(house.manager()) };
    assert_eq!(context.child_depth(), 1);
    let child = context.create_child_session(name("coder"), AgentType::Native, None).await.unwrap();
    assert_eq!(house.row(&child.session().id).await.data.depth, 1);
}

#[tokio::test]
async fn tg_11_ensure_session_of_a_session_that_only_memory_has_gives_that() {
    let house = House::detached();
    let (root, _) = house.delegate(vec![echo("coder")], "x").await;
    let below = house.children(&root).await[0].data.id.clone();
    assert!(house.manager().store().session(below.clone()).await.unwrap().is_none());
    let mut notices = house.manager().bus().notices();
    let ensured = house.manager().ensure_session(&below, None).await.unwrap();
    assert_eq!((ensured.how, &ensured.info.id, ensured.info.depth), (How::Memory, &below, 1));
    assert!(matches!(notices.recv().await.unwrap(), Notice::Updated(info) if info.id == below));
    assert_eq!(house.descendants(&root).await.len(), 1, "no second one was made");
}

#[tokio::test]
async fn tg_12_a_session_that_ensure_session_makes_has_the_manifests_name_as_its_pool() {
    let directory = tempfile::tempdir().unwrap();
    for store in stores(&directory) {
        let house = House::open(store).await;
        let ensured = house.manager().ensure_session(&id("new_session_1"), None).await.unwrap();
        assert_eq!(ensured.how, How::Created);
        let row = house.row(&id("new_session_1")).await.data;
        assert_eq!(row.pool_id.unwrap().as_str(), POOL);
        assert_eq!((row.parent_id, row.depth, row.agent_name), (None, 0, name("coder")));
        house.log().await;
    }
}

#[tokio::test]
async fn tg_17_ensure_session_of_an_id_that_nobody_knows_makes_and_stores_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let unknown = id("unknown_session_xyz");
    assert!(house.manager().session(&unknown).await.unwrap().is_none());
    let root = house.manager().ensure_session(&unknown, None).await.unwrap();
    assert_eq!((root.how, &root.info.id), (How::Created, &unknown));
    let below = house.manager().ensure_session(&id("below"), Some(&unknown)).await.unwrap();
    assert_eq!((below.how, below.info.parent.as_ref(), below.info.depth), (How::Created, Some(&unknown), 1));
    house.log().await;
    let house = House::open(sqlite(&path)).await;
    assert_eq!(house.children(&unknown).await[0].data.id, id("below"));
    house.log().await;
}

#[tokio::test]
async fn tg_19_racing_ensure_session_calls_give_one_session() {
    let directory = tempfile::tempdir().unwrap();
    for store in stores(&directory) {
        let house = House::open(store).await;
        let above = parent(&house, None).await;
        let below = child(&house, &above.session().id).await.session().id.clone();
        for raced in [below, id("nobody_has_it")] {
            let ensure = || house.manager().ensure_session(&raced, Some(&above.session().id));
            let calls = futures_util::future::join_all((0..16).map(|_| ensure())).await;
            assert!(calls.iter().all(|call| call.as_ref().unwrap().info.id == raced));
            let made = calls.iter().filter(|call| call.as_ref().unwrap().how == How::Created).count();
            assert!(made <= 1);
        }
        assert_eq!(house.children(&above.session().id).await.len(), 2);
        drop(above);
        house.log().await;
    }
}

#[tokio::test]
async fn tg_21_a_child_that_never_ran_is_there_and_does_no_harm() {
    let house = House::in_memory().await;
    let above = parent(&house, None).await;
    let below = child(&house, &above.session().id).await;
    let orphan = below.session().id.clone();
    // Whoever wanted to run it fails first.
    assert_eq!(below.give_up(RunError::failed("unused", "no agent")).await.unwrap(), Outcome::Failed);
    let row = house.row(&orphan).await;
    assert_eq!(row.data.parent_id.as_ref(), Some(&above.session().id));
    assert_eq!(row.run_state(), Some(RunState::Ended(Outcome::Failed)), "and it is not running for ever");
    let ensured = house.manager().ensure_session(&orphan, None).await.unwrap();
    assert_eq!((ensured.how, &ensured.info.id), (How::Memory, &orphan));
    drop(above);
    let log = house.log().await;
    assert!(log.starts().is_empty());
    assert_eq!(log.spawns().len(), 1);
}

#[tokio::test]
async fn tg_23_a_parent_without_a_project_gives_its_child_none() {
    let directory = tempfile::tempdir().unwrap();
    for store in stores(&directory) {
        let house = House::open(store).await;
        // Without a directory there is no project; a child with a directory of its own computes none.
        let above = parent(&house, None).await;
        let cwd = Some(directory.path().to_str().unwrap().to_owned());
        let new = NewChild { cwd: cwd.clone(), ..NewChild::new(name("coder"), AgentType::Native) };
        let below = house.manager().create_child(&above.session().id, new).await.unwrap();
        let lower = child(&house, &below.session().id).await;
        for id in [&below.session().id, &lower.session().id] {
            let row = house.row(id).await.data;
            assert_eq!((row.project_id, &row.cwd), (None, &cwd));
        }
        drop((above, below, lower));
        house.log().await;
    }
}

#[tokio::test]
async fn tg_24_outside_a_run_delegation_is_bounded_too() {
    let house = House::limited(Limits::default());
    let context = AgentContext { run: None, manager: Some(house.manager()) };
    assert_eq!(context.child_depth(), 1, "it starts at one");
    let mut held = Vec::new();
    let mut above = id("nobody");
    loop {
        match context.create_child_session(name("coder"), AgentType::Native, Some(&above)).await {
            Ok(child) => {
                above = child.session().id.clone();
                held.push(child);
            }
            Err(Refused::DelegationDepth { depth, max }) => {
                assert_eq!((depth, max), (11, SessionLimits::default().max_depth.unwrap()));
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(held.len(), 10);
    assert_eq!(house.descendants(&held[0].session().id).await.len(), 9);
}
