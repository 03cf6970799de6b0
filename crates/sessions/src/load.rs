//! Trees that come out of the store: for reading, for taking over, and after their owner died (rule L13).

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use offspring_protocol::{
    Event, Outcome, RawEvent, RunId, RunState, SessionId, SessionInfo, SessionState, Timestamp,
    event::{Custom, RunFailed, StatusChanged},
};
use offspring_tree::Runs;
use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::{
    error::Refused,
    ids,
    live::{LiveTree, TreeState},
    manager::{SessionManager, info_of},
    store::{
        Batch, Durability, EventQuery, LogRow, OwnerState, SessionQuery, SessionRecord, StoreError, TreeQuery,
        TreeRecord, Write,
    },
};

/// Log lines read at once.
pub(crate) const PAGE: usize = 1_024;

/// The name of the [`Custom`] event that tells a parent, once, that a child's owner vanished (rule L13).
pub const CHILD_INTERRUPTED: &str = "child_interrupted";

/// Data of a [`CHILD_INTERRUPTED`] event.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
pub struct ChildInterrupted {
    /// The child.
    pub session: SessionId,
    /// Its run.
    pub run: RunId,
    /// Why: `owner_lost`.
    pub reason: String,
}

/// What a sweep found and ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Trees whose owner was gone.
    pub trees: Vec<SessionId>,
    /// Runs that are `interrupted` now.
    pub interrupted: Vec<(SessionId, RunId)>,
    /// The processes that worked for them, in the words of whoever recorded them: they may still live.
    pub processes: Vec<String>,
}

impl Recovered {
    fn join(&mut self, other: Self) {
        self.trees.extend(other.trees);
        self.interrupted.extend(other.interrupted);
        self.processes.extend(other.processes);
    }
}

/// A tree as the store has it, and when each session last gave a sign of life.
pub(crate) struct Loaded {
    pub(crate) state: TreeState,
    pub(crate) records: Vec<SessionRecord>,
    last_sign: HashMap<SessionId, Timestamp, RandomState>,
}

/// The info of every session of a tree, parents first, from its rows.
pub(crate) fn infos(records: &[SessionRecord]) -> Vec<Arc<SessionInfo>> {
    let mut known: HashMap<&SessionId, Arc<SessionInfo>, RandomState> = HashMap::default();
    let mut infos = Vec::with_capacity(records.len());
    for record in records {
        let data = &record.data;
        let above = data.parent_id.as_ref().and_then(|parent| known.get(parent));
        let mut path = above.map_or_else(Vec::new, |parent| parent.path.to_vec());
        path.push(data.id.clone());
        let info = Arc::new(info_of(data, &path));
        known.insert(&data.id, Arc::clone(&info));
        infos.push(info);
    }
    infos
}

impl SessionManager {
    /// The rows, roll-up and runs of a tree.
    pub(crate) async fn load(&self, root: &SessionId) -> Result<TreeState, StoreError> {
        Ok(self.load_all(root).await?.state)
    }

    async fn load_all(&self, root: &SessionId) -> Result<Loaded, StoreError> {
        let store = &self.inner.store;
        let records = store.sessions(SessionQuery::Subtree(root.clone())).await?;
        let mut state = TreeState::default();
        for (record, info) in records.iter().zip(infos(&records)) {
            let above = info.path[..info.path.len().saturating_sub(1)].to_vec();
            state.admit(Arc::clone(&info), Arc::new(record.data.clone()), None);
            if let (Some(run), Some(member)) = (&record.last_run, state.members.get_mut(&info.id)) {
                member.runs = Runs::restored(run.id.clone(), run.ordinal, run.state);
            }
            for id in above {
                if let Some(member) = state.members.get_mut(&id) {
                    member.descendants += 1;
                }
            }
        }
        let mut last_sign = HashMap::default();
        let mut after = 0;
        loop {
            let query = EventQuery { root: root.clone(), session: None, after, limit: PAGE };
            let lines = store.events(query).await?;
            let Some(last) = lines.last() else { break };
            after = last.seq;
            for line in lines {
                if line.event.kind() == "usage" {
                    if let Ok(Event::Usage(report)) = line.event.parse() {
                        // Each message once, so a replay changes no number (L15).
                        state.rollup.record(&line.session, &report.message_id, report.usage);
                    }
                }
                last_sign.insert(line.session, line.at);
            }
        }
        Ok(Loaded { state, records, last_sign })
    }

    /// The live tree of a session, read from the store and taken over if nobody else lives who owns it.
    pub(crate) async fn tree_for_writing(&self, id: &SessionId) -> Result<Arc<LiveTree>, Refused> {
        if let Some(tree) = self.live_tree(id) {
            return Ok(tree);
        }
        let store = &self.inner.store;
        let unknown = || Refused::UnknownSession { id: id.clone() };
        let record = store.session(id.clone()).await?.ok_or_else(unknown)?;
        // One at a time takes a tree over; the second finds it live.
        let _one = self.inner.taking_over.lock().await;
        if let Some(tree) = self.live_tree(id) {
            return Ok(tree);
        }
        let trees = store.trees(TreeQuery::Root(record.data.root_id.clone())).await?;
        let tree = trees.into_iter().next().ok_or_else(unknown)?;
        let owner = &tree.fence.owner;
        if *owner != store.owner() && store.owner_state(owner) == OwnerState::Alive {
            return Err(Refused::Foreign { id: id.clone() });
        }
        let (state, fence, last_seq, _) = self.take_over(tree).await?;
        self.go_live(fence, last_seq, state)
    }

    /// Ends every open run whose owner is dead as interrupted, tells each parent once, and leaves runs
    /// alone whose owner lives. A second sweep finds nothing (rule L13).
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let store = &self.inner.store;
        let mut recovered = Recovered::default();
        for tree in store.trees(TreeQuery::Open).await? {
            if tree.fence.owner == store.owner() || store.owner_state(&tree.fence.owner) == OwnerState::Alive {
                continue;
            }
            match self.take_over(tree).await {
                Ok((_, _, _, found)) => recovered.join(found),
                // Another process was faster: it is recovered then.
                Err(StoreError::Fenced { .. } | StoreError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(recovered)
    }

    async fn take_over(
        &self,
        tree: TreeRecord,
    ) -> Result<(TreeState, crate::store::Fence, u64, Recovered), StoreError> {
        let store = &self.inner.store;
        let root = tree.fence.root.clone();
        let fence = store.claim(root.clone(), tree.fence.epoch).await?;
        // Only now the log cannot grow behind our back.
        let last_seq = store.trees(TreeQuery::Root(root.clone())).await?.first().map_or(0, |tree| tree.last_seq);
        let Loaded { mut state, records, last_sign } = self.load_all(&root).await?;
        let mut recovered = Recovered { trees: vec![root], ..Recovered::default() };
        let mut writes = Vec::new();
        let mut seq = last_seq;
        let mut append = |session: &SessionId, run: Option<&RunId>, event: &Event, writes: &mut Vec<Write>| {
            seq += 1;
            writes.push(Write::Append(LogRow {
                seq,
                session: session.clone(),
                run: run.cloned(),
                at: ids::now(),
                late: false,
                event: RawEvent::from(event),
            }));
        };
        // Children before parents: whoever reads the log sees the leaves end first.
        for record in records.iter().rev() {
            let Some(run) = record.last_run.as_ref().filter(|run| run.state.is_open()) else { continue };
            let id = &record.data.id;
            let failed = RunFailed {
                message: "the program that ran it is gone".to_owned(),
                code: "owner_lost".to_owned(),
                interrupted: true,
            };
            append(id, Some(&run.id), &Event::RunError(failed), &mut writes);
            let status = StatusChanged { state: SessionState::Idle, outcome: Some(Outcome::Interrupted) };
            append(id, None, &Event::StatusChanged(status), &mut writes);
            if let Some(parent) = record.data.parent_id.as_ref().filter(|parent| state.members.contains_key(*parent)) {
                let told =
                    ChildInterrupted { session: id.clone(), run: run.id.clone(), reason: "owner_lost".to_owned() };
                if let Ok(data) = to_raw_value(&told) {
                    let told = Custom { name: CHILD_INTERRUPTED.to_owned(), data };
                    append(parent, None, &Event::Custom(told), &mut writes);
                }
            }
            let mut ended = run.clone();
            ended.state = RunState::Ended(Outcome::Interrupted);
            ended.error = Some("the program that ran it is gone".to_owned());
            // The wall time ends with the last sign of life, not with the day somebody looked.
            ended.ended_at = Some(last_sign.get(id).copied().unwrap_or(run.opened_at));
            if let Some(member) = state.members.get_mut(id) {
                member.runs = Runs::restored(ended.id.clone(), ended.ordinal, ended.state);
            }
            recovered.interrupted.push((id.clone(), run.id.clone()));
            recovered.processes.extend(run.process.clone());
            writes.push(Write::Run(Box::new(ended)));
        }
        if !writes.is_empty() {
            let batch = Batch { fence: Some(fence.clone()), writes, durability: Durability::Process };
            store.commit(batch).await?;
        }
        Ok((state, fence, seq, recovered))
    }
}
