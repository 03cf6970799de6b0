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
    live::{LiveTree, TreeState, lock},
    manager::SessionManager,
    rows::info_of,
    store::{
        Batch, Durability, EventQuery, Fence, LogRow, OwnerState, SessionQuery, SessionRecord, StoreError,
        TreeQuery, TreeRecord, Write,
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

/// A tree that is ours now.
pub(crate) struct Taken {
    state: TreeState,
    fence: Fence,
    last_seq: u64,
    pub(crate) found: Recovered,
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
    /// The info of one stored session: its path is found by walking up.
    pub(crate) async fn stored_info(&self, id: &SessionId) -> Result<Option<Arc<SessionInfo>>, StoreError> {
        let Some(record) = self.inner.store.session(id.clone()).await? else { return Ok(None) };
        let mut path = vec![id.clone()];
        // A child of a parent that was unknown is the root of its own tree and has no path above (L3).
        let mut above = record.data.parent_id.clone().filter(|_| record.data.root_id != *id);
        while let Some(id) = above.take() {
            let Some(parent) = self.inner.store.session(id).await? else { break };
            above = parent.data.parent_id.filter(|_| parent.data.root_id != parent.data.id);
            path.push(parent.data.id);
        }
        path.reverse();
        Ok(Some(Arc::new(info_of(&record.data, &path))))
    }

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
                if line.event.kind() == "usage"
                    && let Ok(Event::Usage(report)) = line.event.parse()
                {
                    // Each message once, so a replay changes no number (L15).
                    state.rollup.record(&line.session, &report.message_id, report.usage);
                }
                last_sign.insert(line.session, line.at);
            }
        }
        Ok(Loaded { state, records, last_sign })
    }

    /// The live tree of a session, read from the store and taken over if nobody else lives who owns it.
    pub(crate) async fn tree_for_writing(&self, id: &SessionId) -> Result<Arc<LiveTree>, Refused> {
        if let Some(tree) = self.usable_tree(id) {
            return Ok(tree);
        }
        // In a task of its own: a take-over that was begun is finished, whoever asked.
        let (manager, id) = (self.clone(), id.clone());
        let taken = tokio::spawn(async move { manager.take_for_writing(id).await });
        taken.await.unwrap_or(Err(Refused::Closing))
    }

    /// The live tree of a session. One whose store failed is forgotten once it is at rest, so that what the
    /// store does have can be read again.
    fn usable_tree(&self, id: &SessionId) -> Option<Arc<LiveTree>> {
        let tree = self.live_tree(id)?;
        let given_up = {
            let state = tree.state();
            state.failed.is_some() && state.open_runs == 0
        };
        if given_up {
            let mut trees = lock(&self.inner.trees);
            if trees.by_root.get(&tree.root).is_some_and(|live| Arc::ptr_eq(live, &tree)) {
                trees.forget(&tree.root);
                // The end of a run may be among what was not written.
                trees.unswept.insert(tree.root.clone());
            }
            return None;
        }
        Some(tree)
    }

    async fn take_for_writing(self, id: SessionId) -> Result<Arc<LiveTree>, Refused> {
        let store = &self.inner.store;
        let unknown = || Refused::UnknownSession { id: id.clone() };
        let record = store.session(id.clone()).await?.ok_or_else(unknown)?;
        let root = record.data.root_id;
        let _opening = self.may_open().await?;
        // One at a time takes a tree over; the second finds it live.
        let _one = self.inner.taking_over.lock().await;
        if let Some(tree) = self.usable_tree(&id) {
            return Ok(tree);
        }
        let retiring = lock(&self.inner.trees).retiring.remove(&root);
        if let Some(written) = retiring {
            written.cancelled().await;
        }
        let tree = store.trees(TreeQuery::Root(root)).await?.into_iter().next().ok_or_else(unknown)?;
        let owner = &tree.fence.owner;
        if *owner != store.owner() && store.owner_state(owner.clone()).await? == OwnerState::Alive {
            return Err(Refused::Foreign { id });
        }
        let Taken { state, fence, last_seq, .. } = self.take_over(tree).await?;
        if !state.members.contains_key(&id) {
            return Err(unknown());
        }
        Ok(self.go_live(fence, last_seq, state, &[]))
    }

    /// Ends every open run whose owner is dead as interrupted, tells each parent once, and leaves runs
    /// alone whose owner lives. A second sweep finds nothing (rule L13).
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        // In a task of its own: a take-over that was begun is finished, whoever asked.
        let manager = self.clone();
        tokio::spawn(async move { manager.sweep().await }).await.unwrap_or(Err(StoreError::Closed))
    }

    async fn sweep(self) -> Result<Recovered, StoreError> {
        let store = &self.inner.store;
        let mut recovered = Recovered::default();
        for found in store.trees(TreeQuery::Open).await? {
            let _one = self.inner.taking_over.lock().await;
            let root = &found.fence.root;
            let left_open = if found.fence.owner == store.owner() {
                let trees = lock(&self.inner.trees);
                trees.unswept.contains(root) && !trees.by_root.contains_key(root)
            } else {
                store.owner_state(found.fence.owner.clone()).await? == OwnerState::Dead
            };
            if !left_open {
                continue;
            }
            match self.take_over(found).await {
                Ok(taken) => recovered.join(taken.found),
                // Another process was faster: it is recovered then.
                Err(StoreError::Fenced { .. } | StoreError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(recovered)
    }

    async fn take_over(&self, tree: TreeRecord) -> Result<Taken, StoreError> {
        let root = tree.fence.root.clone();
        let fence = self.inner.store.claim(root.clone(), tree.fence.epoch).await?;
        let taken = match self.is_unfinished_import(&root).await {
            Ok(false) => self.end_open_runs(fence).await,
            Ok(true) => {
                self.delete_unfinished_import(fence).await.and(Err(StoreError::Unknown { id: root.clone() }))
            }
            Err(error) => Err(error),
        };
        let mut trees = lock(&self.inner.trees);
        match &taken {
            Ok(_) | Err(StoreError::Unknown { .. }) => trees.unswept.remove(&root),
            // It is ours now, so that no other process ends these runs: the next sweep does.
            Err(_) => trees.unswept.insert(root),
        };
        drop(trees);
        taken
    }

    pub(crate) async fn end_open_runs(&self, fence: Fence) -> Result<Taken, StoreError> {
        let store = &self.inner.store;
        let root = fence.root.clone();
        // Only now the log cannot grow behind our back.
        let last_seq =
            store.trees(TreeQuery::Root(root.clone())).await?.first().map_or(0, |tree| tree.last_seq);
        let Loaded { mut state, records, last_sign } = self.load_all(&root).await?;
        let mut recovered = Recovered { trees: vec![root], ..Recovered::default() };
        let mut writes = Vec::new();
        let mut seq = last_seq;
        let mut append =
            |session: &SessionId, run: Option<&RunId>, event: &Event, writes: &mut Vec<Write>| {
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
            if let Some(parent) =
                record.data.parent_id.as_ref().filter(|parent| state.members.contains_key(*parent))
            {
                let told = ChildInterrupted {
                    session: id.clone(),
                    run: run.id.clone(),
                    reason: "owner_lost".to_owned(),
                };
                if let Ok(data) = to_raw_value(&told) {
                    let told = Custom { name: CHILD_INTERRUPTED.to_owned(), data };
                    append(parent, None, &Event::Custom(told), &mut writes);
                }
            }
            let mut ended = run.clone();
            ended.state = RunState::Ended(Outcome::Interrupted);
            ended.error = Some("the program that ran it is gone".to_owned());
            // The wall time ends with the last sign of life, not with the day somebody looked.
            ended.ended_at = Some(last_sign.get(id).map_or(run.opened_at, |sign| run.opened_at.max(*sign)));
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
        Ok(Taken { state, fence, last_seq: seq, found: recovered })
    }
}
