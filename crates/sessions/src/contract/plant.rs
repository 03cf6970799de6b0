//! Small trees to try a store with.

use std::{collections::BTreeMap, sync::Arc};

use offspring_protocol::{
    AgentType, NodeName, OwnerId, RawEvent, RunId, RunRecord, RunState, SessionData, SessionId,
    SessionLimits, Timestamp, Usage,
};
use serde_json::value::RawValue;

use crate::store::{
    Batch, Committed, Durability, EventQuery, Fence, LogRow, SessionQuery, SessionRecord, SessionStore,
    StoreError, TreeQuery, TreeRecord, Write,
};

pub(super) fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub(super) fn run_id(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

/// A root's row with nothing that is optional.
pub(super) fn root(name: &str) -> SessionData {
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

pub(super) fn child(parent: &SessionData, name: &str) -> SessionData {
    SessionData {
        parent_id: Some(parent.id.clone()),
        root_id: parent.root_id.clone(),
        depth: parent.depth + 1,
        ..root(name)
    }
}

pub(super) fn run(session: &SessionId, name: &str, state: RunState) -> RunRecord {
    RunRecord {
        id: run_id(name),
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

pub(super) fn event(kind: &str, data: &str) -> RawEvent {
    RawEvent::new(kind.to_owned(), RawValue::from_string(data.to_owned()).unwrap())
}

pub(super) fn line(session: &SessionId, seq: u64) -> LogRow {
    let event = event("text_delta", &format!("{{\"text\":\"{seq}\"}}"));
    LogRow { seq, session: session.clone(), run: None, at: Timestamp(1), late: false, event }
}

/// A store, with the right to write to one tree of it.
#[derive(Clone)]
pub(super) struct Planted {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) fence: Fence,
    pub(super) root: SessionData,
}

impl Planted {
    /// A tree of nothing but a root, owned by the store's own owner.
    pub(super) async fn new(store: &Arc<dyn SessionStore>, name: &str) -> Self {
        Self::with_root(store, root(name)).await
    }

    pub(super) async fn with_root(store: &Arc<dyn SessionStore>, root: SessionData) -> Self {
        let fence = Fence { root: root.id.clone(), owner: store.owner(), epoch: 1 };
        let planted = Self { store: Arc::clone(store), fence, root };
        planted.session(&planted.root).await;
        planted
    }

    pub(super) fn batch(&self, writes: Vec<Write>) -> Batch {
        Batch { fence: Some(self.fence.clone()), writes, durability: Durability::Process }
    }

    pub(super) async fn write(&self, writes: Vec<Write>) -> Result<Committed, StoreError> {
        self.store.commit(self.batch(writes)).await
    }

    pub(super) async fn session(&self, data: &SessionData) {
        self.write(vec![Write::Session(Arc::new(data.clone()))]).await.unwrap();
    }

    /// A new child, stored.
    pub(super) async fn child(&self, parent: &SessionData, name: &str) -> SessionData {
        let data = child(parent, name);
        self.session(&data).await;
        data
    }

    pub(super) async fn run(&self, run: RunRecord) {
        self.write(vec![Write::Run(Box::new(run))]).await.unwrap();
    }

    pub(super) async fn append(&self, line: LogRow) {
        self.write(vec![Write::Append(line)]).await.unwrap();
    }

    pub(super) async fn log(&self) -> Vec<LogRow> {
        log(&self.store, &self.root.id).await
    }

    pub(super) async fn tree(&self) -> TreeRecord {
        tree(&self.store, &self.root.id).await.unwrap()
    }
}

pub(super) async fn log(store: &Arc<dyn SessionStore>, root: &SessionId) -> Vec<LogRow> {
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: usize::MAX };
    store.events(query).await.unwrap()
}

pub(super) async fn tree(store: &Arc<dyn SessionStore>, root: &SessionId) -> Option<TreeRecord> {
    let found = store.trees(TreeQuery::Root(root.clone())).await.unwrap();
    assert!(found.len() <= 1);
    found.into_iter().next()
}

pub(super) async fn row(store: &Arc<dyn SessionStore>, id: &SessionId) -> Option<SessionRecord> {
    store.session(id.clone()).await.unwrap()
}

/// The ids a query finds, in order.
pub(super) async fn ids(store: &Arc<dyn SessionStore>, query: SessionQuery) -> Vec<String> {
    let found = store.sessions(query).await.unwrap();
    found.iter().map(|record| record.data.id.to_string()).collect()
}

pub(super) fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

/// Two rows with the same content, the bytes of their settings included.
pub(super) fn assert_same(found: &SessionData, expected: &SessionData) {
    // `RawValue` has no equality; its Debug shows its bytes.
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
}
