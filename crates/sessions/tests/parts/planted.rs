//! Small trees, in whatever store.

use std::{collections::BTreeMap, sync::Arc};

use offspring_protocol::{
    AgentType, NodeName, RawEvent, RunId, RunRecord, RunState, SessionData, SessionId, SessionLimits,
    Timestamp, Usage,
};
use offspring_sessions::store::{
    Batch, Committed, Durability, EventQuery, Fence, LogRow, SessionQuery, SessionStore, StoreError,
    TreeQuery, Write,
};
use serde_json::value::RawValue;

pub(crate) fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub(crate) fn root(name: &str) -> SessionData {
    SessionData {
        id: id(name),
        parent_id: None,
        root_id: id(name),
        depth: 0,
        project_id: None,
        cwd: None,
        agent_name: NodeName::new("node").unwrap(),
        agent_type: AgentType::Native,
        source_type: None,
        pool_id: None,
        task: None,
        title: None,
        model: None,
        settings: None,
        limits: SessionLimits::default(),
        external: None,
        created_at: Timestamp(1),
        last_active_at: Timestamp(1),
        metadata: BTreeMap::new(),
        version: "1".to_owned(),
    }
}

pub(crate) fn child(parent: &SessionData, name: &str) -> SessionData {
    SessionData {
        parent_id: Some(parent.id.clone()),
        root_id: parent.root_id.clone(),
        depth: parent.depth + 1,
        ..root(name)
    }
}

pub(crate) fn run(session: &SessionId, name: &str, state: RunState) -> RunRecord {
    RunRecord {
        id: RunId::new(name).unwrap(),
        session_id: session.clone(),
        ordinal: 1,
        state,
        error: None,
        usage: Usage::default(),
        process: None,
        opened_at: Timestamp(1),
        ended_at: None,
        left_out_bytes: 0,
    }
}

pub(crate) fn line(session: &SessionId, seq: u64, text: &str) -> LogRow {
    let data = RawValue::from_string(serde_json::to_string(&[text]).unwrap()).unwrap();
    let event = RawEvent::new("text_delta", data);
    LogRow { seq, session: session.clone(), run: None, at: Timestamp(1), late: false, event }
}

/// A tree of the store's own owner.
pub(crate) struct Planted<'a> {
    pub(crate) store: &'a dyn SessionStore,
    pub(crate) fence: Fence,
    pub(crate) root: SessionData,
}

impl<'a> Planted<'a> {
    pub(crate) async fn new(store: &'a dyn SessionStore, name: &str) -> Self {
        let root = root(name);
        let fence = Fence { root: root.id.clone(), owner: store.owner(), epoch: 1 };
        let planted = Self { store, fence, root };
        planted.write(vec![Write::Session(Arc::new(planted.root.clone()))]).await.unwrap();
        planted
    }

    pub(crate) fn batch(&self, writes: Vec<Write>) -> Batch {
        Batch { fence: Some(self.fence.clone()), writes, durability: Durability::Process }
    }

    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        self.store.commit(self.batch(writes)).await
    }

    /// A child with its spawn, as the manager writes them (rule L1), and two lines of its own.
    pub(crate) async fn spawn(&self, name: &str, seq: u64) -> Result<Committed, StoreError> {
        let data = child(&self.root, name);
        let session = data.id.clone();
        self.write(vec![
            Write::Session(Arc::new(data)),
            Write::Append(line(&self.root.id, seq, name)),
            Write::Run(Box::new(run(&session, "r", RunState::Running))),
            Write::Append(line(&session, seq + 1, "started")),
            Write::Append(line(&session, seq + 2, "text")),
        ])
        .await
    }
}

/// Lines that [`Planted::spawn`] writes.
pub(crate) const SPAWN_LINES: u64 = 3;

pub(crate) async fn log(store: &dyn SessionStore, root: &SessionId) -> Vec<LogRow> {
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: usize::MAX };
    store.events(query).await.unwrap()
}

/// The names of the children of a root, after a look at all that must hold for a tree of [`Planted::spawn`]s.
pub(crate) async fn check_tree(store: &dyn SessionStore, root: &SessionId) -> Vec<String> {
    let log = log(store, root).await;
    let tree = store.trees(TreeQuery::Root(root.clone())).await.unwrap().remove(0);
    assert!(log.iter().map(|line| line.seq).eq(1..=tree.last_seq), "a gap in the log of {root}");
    let found = store.sessions(SessionQuery::Subtree(root.clone())).await.unwrap();
    let children: Vec<_> = found.iter().filter(|record| record.data.id != *root).collect();
    for record in &children {
        assert_eq!(record.data.parent_id.as_ref(), Some(root));
        assert!(record.last_run.is_some());
        assert_eq!(log.iter().filter(|line| line.session == record.data.id).count(), 2);
    }
    let spawns = log.iter().filter(|line| line.session == *root);
    let spawned: Vec<String> = spawns
        .map(|line| serde_json::from_str::<[String; 1]>(line.event.data().get()).unwrap().concat())
        .collect();
    let names: Vec<String> = children.iter().map(|record| record.data.id.to_string()).collect();
    assert_eq!(names, spawned, "a row without its spawn, or a spawn without its row");
    assert_eq!(tree.open_runs, names.len() as u64);
    names
}
