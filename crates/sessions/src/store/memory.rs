//! The store without a file: everything is gone with the process.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use futures_util::future::{BoxFuture, ready};
use offspring_protocol::{Origin, OwnerId, RunId, RunRecord, SessionData, SessionId};
use tokio::sync::watch;

use super::{
    Batch, CommandRow, Committed, EventQuery, Fence, LogRow, MAX_PAGE_BYTES, OwnerState, SessionQuery,
    SessionRecord, SessionStore, StoreError, StoreInfo, TreeQuery, TreeRecord, Write,
};

type Map<K, V> = HashMap<K, V, RandomState>;
type Set<T> = HashSet<T, RandomState>;

/// How many sessions a [`SessionQuery::Prefix`] gives.
const PREFIX_LIMIT: usize = 20;

/// The store without a file: everything is gone with the process.
///
/// Memory per child session with two deltas and one message: its row, its run and eight log lines, about
/// 3 KiB (`cargo xtask bench delegation` prints the measured figure).
#[derive(Debug)]
pub struct MemoryStore {
    owner: OwnerId,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the rows ever made: the order of creation.
    created: u64,
    sessions: Map<SessionId, Row>,
    children: Map<SessionId, Vec<SessionId>>,
    trees: Map<SessionId, Tree>,
    commands: BTreeMap<String, CommandRow>,
    closed: bool,
}

#[derive(Debug)]
struct Row {
    order: u64,
    data: Arc<SessionData>,
    runs: Vec<RunRecord>,
}

#[derive(Debug)]
struct Tree {
    fence: Fence,
    log: Vec<LogRow>,
    last_seq: u64,
    origin: Option<Arc<Origin>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self { owner: crate::ids::owner(), state: Mutex::default(), changes: watch::Sender::new(0) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> BoxFuture<'_, Result<T, StoreError>>
    where
        T: Send + 'static,
    {
        Box::pin(ready(self.lock().map(|state| read(&state))))
    }
}

impl State {
    fn record(&self, id: &SessionId) -> Option<SessionRecord> {
        let row = self.sessions.get(id)?;
        let origin = self.trees.get(id).and_then(|tree| tree.origin.as_deref());
        Some(SessionRecord {
            data: (*row.data).clone(),
            last_run: row.runs.last().cloned(),
            rerun_of: origin.and_then(|origin| origin.rerun_of.clone()),
        })
    }

    fn children(&self, id: &SessionId) -> &[SessionId] {
        self.children.get(id).map_or(&[], Vec::as_slice)
    }

    /// A session and all below it, parents first.
    fn subtree(&self, id: &SessionId) -> Vec<SessionId> {
        let mut found = Vec::new();
        let mut stack: Vec<&SessionId> =
            self.sessions.get_key_value(id).map(|(id, _)| id).into_iter().collect();
        while let Some(id) = stack.pop() {
            found.push(id.clone());
            stack.extend(self.children(id).iter().rev());
        }
        found
    }

    /// Refuses what cannot be done before anything is changed: all or nothing without an undo.
    fn check(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut plan = Plan { state: self, made: Map::default(), gone: Set::default() };
        let mut next = 1;
        if let Some(fence) = &batch.fence
            && let Some(tree) = self.trees.get(&fence.root)
        {
            if tree.fence != *fence {
                return Err(super::wrong_fence(batch, fence, &tree.fence.owner));
            }
            next = tree.last_seq + 1;
        }
        for write in &batch.writes {
            let fence = |id| super::fence_root(batch.fence.as_ref(), id);
            match write {
                Write::Session(data) => {
                    super::check_row(data)?;
                    let root = fence(&data.id)?;
                    plan.make(batch, root, data)?;
                    if data.id == *root {
                        next = 1;
                    }
                }
                Write::Update(data) => {
                    super::check_row(data)?;
                    plan.own(fence(&data.id)?, &data.id)?;
                }
                Write::Origin { root, origin } => {
                    super::check_origin(origin)?;
                    plan.own(fence(root)?, root)?;
                    plan.is_root(root)?;
                }
                Write::Run(run) => {
                    run.id.check_storable()?;
                    plan.own(fence(&run.session_id)?, &run.session_id)?;
                }
                Write::Append(line) => {
                    let root = fence(&line.session)?;
                    plan.own(root, &line.session)?;
                    if line.seq != next {
                        return Err(StoreError::NotNext {
                            root: root.clone(),
                            expected: next,
                            got: line.seq,
                        });
                    }
                    line.run.as_ref().map_or(Ok(()), RunId::check_storable)?;
                    next += 1;
                }
                Write::Skip { root, to } => {
                    plan.own(fence(root)?, root)?;
                    if *to < next {
                        return Err(StoreError::NotNext { root: root.clone(), expected: next, got: *to });
                    }
                    next = to.saturating_add(1);
                }
                Write::Command(command) => plan.known(&command.root).map(drop)?,
                Write::Delete(id) => {
                    plan.own(fence(id)?, id)?;
                    plan.delete(id);
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: Batch) -> Committed {
        let Batch { fence, writes, .. } = batch;
        for write in writes {
            match write {
                Write::Session(data) => {
                    if let Some(fence) = fence.as_ref().filter(|_| data.id == data.root_id) {
                        let tree = Tree { fence: fence.clone(), log: Vec::new(), last_seq: 0, origin: None };
                        self.trees.insert(data.id.clone(), tree);
                    }
                    // A root's parent, if it names one, is in no tree of ours (rule L3).
                    if let Some(parent) = data.parent_id.as_ref().filter(|_| data.id != data.root_id) {
                        self.children.entry(parent.clone()).or_default().push(data.id.clone());
                    }
                    self.created += 1;
                    let row = Row { order: self.created, data, runs: Vec::new() };
                    self.sessions.insert(row.data.id.clone(), row);
                }
                Write::Update(new) => {
                    if let Some(row) = self.sessions.get_mut(&new.id) {
                        let old = &row.data;
                        let (parent_id, root_id, depth) =
                            (old.parent_id.clone(), old.root_id.clone(), old.depth);
                        row.data = Arc::new(SessionData { parent_id, root_id, depth, ..(*new).clone() });
                    }
                }
                Write::Origin { root, origin } => {
                    if let Some(tree) = self.trees.get_mut(&root) {
                        tree.origin = Some(origin);
                    }
                }
                Write::Run(run) => {
                    if let Some(row) = self.sessions.get_mut(&run.session_id) {
                        match row.runs.iter_mut().rfind(|old| old.id == run.id) {
                            Some(old) => *old = *run,
                            None => {
                                // Nearly every session has one run; a list that grows by itself holds four.
                                row.runs.reserve_exact(1);
                                row.runs.push(*run);
                            }
                        }
                    }
                }
                Write::Append(line) => {
                    if let Some(tree) = fence.as_ref().and_then(|fence| self.trees.get_mut(&fence.root)) {
                        tree.last_seq = line.seq;
                        tree.log.push(line);
                    }
                }
                Write::Skip { root, to } => {
                    if let Some(tree) = self.trees.get_mut(&root) {
                        tree.last_seq = to;
                    }
                }
                Write::Command(command) => {
                    self.commands.insert(command.id.clone(), command);
                }
                Write::Delete(id) => self.delete(&id),
            }
        }
        let last_seq = fence.and_then(|fence| self.trees.get(&fence.root)).map_or(0, |tree| tree.last_seq);
        Committed { last_seq }
    }

    fn delete(&mut self, id: &SessionId) {
        let gone = self.subtree(id);
        let Some(root) = self.sessions.get(id).map(|row| row.data.root_id.clone()) else { return };
        if let Some(siblings) =
            self.sessions[id].data.parent_id.as_ref().and_then(|p| self.children.get_mut(p))
        {
            siblings.retain(|sibling| sibling != id);
        }
        let gone: Set<SessionId> = gone.into_iter().collect();
        for id in &gone {
            self.sessions.remove(id);
            self.children.remove(id);
        }
        self.commands.retain(|_, command| !gone.contains(&command.session) && !gone.contains(&command.root));
        if gone.contains(&root) {
            self.trees.remove(&root);
        } else if let Some(tree) = self.trees.get_mut(&root) {
            tree.log.retain(|line| !gone.contains(&line.session));
        }
    }

    fn open_runs(&self, root: &SessionId) -> u64 {
        let open = |id: &SessionId| self.sessions[id].runs.iter().filter(|run| run.state.is_open()).count();
        self.subtree(root).iter().map(|id| open(id) as u64).sum()
    }

    fn tree_record(&self, root: &SessionId) -> Option<TreeRecord> {
        let tree = self.trees.get(root)?;
        Some(TreeRecord {
            fence: tree.fence.clone(),
            last_seq: tree.last_seq,
            open_runs: self.open_runs(root),
        })
    }

    fn sessions(&self, query: &SessionQuery) -> Vec<SessionRecord> {
        let ids: Vec<SessionId> = match query {
            SessionQuery::Roots { limit } => {
                let roots = self.sessions.values().filter(|row| row.data.id == row.data.root_id);
                let mut roots: Vec<(u64, &SessionId)> = roots.map(|row| (row.order, &row.data.id)).collect();
                roots.sort_unstable_by(|a, b| b.cmp(a));
                roots.into_iter().take(*limit).map(|(_, id)| id.clone()).collect()
            }
            SessionQuery::Children(id) => self.children(id).to_vec(),
            SessionQuery::Subtree(id) => self.subtree(id),
            SessionQuery::Prefix(prefix) => {
                let matching =
                    self.sessions.values().filter(|row| row.data.id.as_str().starts_with(prefix.as_str()));
                let mut matching: Vec<&Row> = matching.collect();
                matching.sort_unstable_by_key(|row| (row.data.depth, row.order));
                matching.into_iter().take(PREFIX_LIMIT).map(|row| row.data.id.clone()).collect()
            }
        };
        ids.iter().filter_map(|id| self.record(id)).collect()
    }

    fn events(&self, query: &EventQuery) -> Vec<LogRow> {
        let Some(tree) = self.trees.get(&query.root) else { return Vec::new() };
        let start = tree.log.partition_point(|line| line.seq <= query.after);
        let wanted = |line: &&LogRow| query.session.as_ref().is_none_or(|session| line.session == *session);
        let mut bytes = 0;
        let fits = |line: &&LogRow| {
            let before = bytes;
            bytes += line.event.data().get().len();
            before < MAX_PAGE_BYTES
        };
        tree.log[start..].iter().filter(wanted).take(query.limit).take_while(fits).cloned().collect()
    }
}

/// What the rows will be after the writes of a batch that were checked so far.
struct Plan<'a> {
    state: &'a State,
    made: Map<&'a SessionId, &'a SessionData>,
    gone: Set<&'a SessionId>,
}

impl<'a> Plan<'a> {
    fn row(&self, id: &SessionId) -> Option<&'a SessionData> {
        let made = self.made.get(id).copied();
        made.or_else(|| self.state.sessions.get(id).filter(|_| !self.gone.contains(id)).map(|row| &*row.data))
    }

    fn known(&self, id: &SessionId) -> Result<&'a SessionData, StoreError> {
        self.row(id).ok_or_else(|| StoreError::Unknown { id: id.clone() })
    }

    /// A session of the fence's own tree; the fence is for no other.
    fn own(&self, root: &SessionId, id: &SessionId) -> Result<(), StoreError> {
        let row = self.known(id)?;
        if row.root_id == *root { Ok(()) } else { Err(StoreError::Fenced { root: row.root_id.clone() }) }
    }

    fn is_root(&self, id: &SessionId) -> Result<(), StoreError> {
        if self.known(id)?.root_id == *id { Ok(()) } else { Err(StoreError::Unknown { id: id.clone() }) }
    }

    fn make(&mut self, batch: &Batch, root: &SessionId, data: &'a SessionData) -> Result<(), StoreError> {
        if let Some(taken) = self.row(&data.id) {
            let owner = self.state.trees.get(&taken.root_id).map(|tree| &tree.fence);
            let owner =
                owner.or(batch.fence.as_ref()).map_or_else(crate::ids::owner, |fence| fence.owner.clone());
            return Err(StoreError::Taken { id: data.id.clone(), owner });
        }
        if data.root_id != *root {
            return Err(StoreError::Fenced { root: data.root_id.clone() });
        }
        if data.id != data.root_id {
            self.known(&data.root_id)?;
            let parent = data.parent_id.as_ref().unwrap_or(&data.root_id);
            let unknown = || StoreError::Unknown { id: parent.clone() };
            let found = self.row(parent).filter(|row| data.parent_id.is_some() && row.root_id == *root);
            found.ok_or_else(unknown)?;
        }
        self.made.insert(&data.id, data);
        Ok(())
    }

    fn delete(&mut self, id: &SessionId) {
        let mut stack = vec![id.clone()];
        while let Some(id) = stack.pop() {
            let children =
                self.made.values().filter(|row| row.id != row.root_id && row.parent_id.as_ref() == Some(&id));
            stack.extend(children.map(|row| row.id.clone()));
            if self.made.remove(&id).is_none()
                && let Some((id, _)) = self.state.sessions.get_key_value(&id)
            {
                self.gone.insert(id);
            }
            stack.extend(self.state.children(&id).iter().filter(|child| !self.gone.contains(child)).cloned());
        }
    }
}

impl SessionStore for MemoryStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let done = self.lock().and_then(|mut state| {
            state.check(&batch)?;
            Ok(state.apply(batch))
        });
        if done.is_ok() {
            self.changes.send_modify(|count| *count += 1);
        }
        Box::pin(ready(done))
    }

    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        let owner = self.owner.clone();
        let claimed = self.lock().and_then(|mut state| match state.trees.get_mut(&root) {
            Some(tree) if tree.fence.epoch == from_epoch => {
                tree.fence = Fence { root, owner, epoch: from_epoch + 1 };
                Ok(tree.fence.clone())
            }
            Some(_) => Err(StoreError::Fenced { root }),
            None => Err(StoreError::Unknown { id: root }),
        });
        Box::pin(ready(claimed))
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.read(|state| state.record(&id))
    }

    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.read(|state| state.sessions(&query))
    }

    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.read(|state| state.trees.get(&root)?.origin.as_deref().cloned())
    }

    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.read(|state| state.sessions.get(&session).map_or_else(Vec::new, |row| row.runs.clone()))
    }

    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.read(|state| match &query {
            TreeQuery::Root(root) => state.tree_record(root).into_iter().collect(),
            TreeQuery::Open => {
                let records = state.trees.keys().filter_map(|root| state.tree_record(root));
                records.filter(|tree| tree.open_runs > 0).collect()
            }
        })
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.read(|state| state.events(&query))
    }

    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.read(|state| {
            let open =
                state.commands.values().filter(|command| command.root == root && command.answer.is_none());
            let mut open: Vec<CommandRow> = open.cloned().collect();
            open.sort_by_key(|command| command.asked_at);
            open
        })
    }

    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.read(|state| state.commands.get(&id).cloned())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn owner(&self) -> OwnerId {
        self.owner.clone()
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        // Nobody else can see this memory: any other owner died with an earlier process.
        let state = if owner == self.owner { OwnerState::Alive } else { OwnerState::Dead };
        Box::pin(ready(Ok(state)))
    }

    fn info(&self) -> StoreInfo {
        StoreInfo { kind: "memory", path: None, server: None }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        Box::pin(ready(Ok(())))
    }
}
