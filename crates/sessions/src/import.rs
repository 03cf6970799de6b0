//! A tree that was copied out of one store, written into another: the same ids, the same numbers.
//!
//! A copy may be larger than memory and than one commit. It is written in pieces, and until the last one its
//! root carries a mark and an open run: whoever finds such a tree without its owner deletes it
//! ([`recover`](SessionManager::recover)), so that a copy which was cut off leaves nothing behind.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use offspring_protocol::{Origin, RunId, RunRecord, RunState, SessionData, SessionId};

use crate::{
    error::Refused,
    manager::SessionManager,
    store::{Batch, Durability, Fence, LogRow, StoreError, Write},
};

/// The key in a root's metadata that marks a copy which is not whole yet.
pub(crate) const UNFINISHED: &str = "offspring.unfinished_import";
/// Bytes of a tree in which no session ever ran: such a copy is written in one piece, because no open run can
/// mark it.
const MAX_UNMARKED_BYTES: usize = 16 << 20;

/// The rows of a tree that is to be written as it is.
#[derive(Debug, Clone)]
pub struct TreeCopy {
    /// What its root was started with.
    pub origin: Option<Origin>,
    /// Its sessions with their runs, first to last; parents before children, siblings in the order they were
    /// created, the root first.
    pub sessions: Vec<(SessionData, Vec<RunRecord>)>,
    /// The number of its last line. Lines before it may be missing: they were deleted.
    pub last_seq: u64,
}

/// A copy is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs that were open when the tree was copied. Nobody works for them here: they are `interrupted` now
    /// (rule L13).
    pub interrupted: Vec<(SessionId, RunId)>,
}

/// The duty to finish a copy that was begun. Dropped without [`finish`](Self::finish), what was written of it is
/// deleted.
#[derive(Debug)]
#[must_use = "a copy that is not finished is deleted"]
pub struct Import {
    manager: SessionManager,
    fence: Fence,
    root: Arc<SessionData>,
    last_seq: u64,
    /// The number of the last line that was written.
    written: u64,
    /// Whether runs were open.
    open: bool,
    how: How,
    over: bool,
}

/// How a copy that is not whole is kept from being taken for one.
#[derive(Debug)]
enum How {
    /// A mark in the root's row, and this run, which is open until the end.
    Marked(Box<RunRecord>),
    /// Nothing is written before the end.
    Held { writes: Vec<Write>, bytes: usize },
}

impl SessionManager {
    /// Begins to write a tree as it is, with its ids and numbers. Its log follows in
    /// [`append`](Import::append); nothing counts before [`finish`](Import::finish).
    ///
    /// # Errors
    /// [`Refused::BadCopy`] when the rows are no tree, [`StoreError::Taken`] when one of its ids is stored
    /// already, a closing manager, the store. Then nothing is changed.
    pub async fn import(&self, tree: TreeCopy) -> Result<Import, Refused> {
        self.refuse_when_closing()?;
        let TreeCopy { origin, mut sessions, last_seq } = tree;
        check(&sessions)?;
        for (data, _) in &sessions {
            if let Some(known) = self.session(&data.id).await? {
                let trees = crate::store::TreeQuery::Root(known.data.root_id);
                let owner = self.inner.store.trees(trees).await?.into_iter().next();
                let owner = owner.map_or_else(|| self.inner.store.owner(), |tree| tree.fence.owner);
                return Err(StoreError::Taken { id: data.id.clone(), owner }.into());
            }
        }
        let mut open = false;
        for run in sessions.iter_mut().flat_map(|(_, runs)| runs).filter(|run| run.state.is_open()) {
            open = true;
            // It works for the tree this is a copy of: whoever ends this run must not end that process.
            run.process = None;
        }
        let mark = sessions.iter().find_map(|(_, runs)| runs.first().cloned());
        let Some((root, _)) = sessions.first() else { return Err(bad("it has no session")) };
        let root = Arc::new(root.clone());
        let fence = Fence { root: root.id.clone(), owner: self.inner.store.owner(), epoch: 1 };
        let mut writes = Vec::new();
        for (place, (data, runs)) in sessions.into_iter().enumerate() {
            let mut data = data;
            if let (0, Some(_)) = (place, &mark) {
                data.metadata.insert(UNFINISHED.to_owned(), String::new());
            }
            writes.push(Write::Session(Arc::new(data)));
            if let (0, Some(origin)) = (place, &origin) {
                let origin = Arc::new(origin.clone());
                writes.push(Write::Origin { root: root.id.clone(), origin });
            }
            writes.extend(runs.into_iter().map(|run| Write::Run(Box::new(staged(run, mark.as_ref())))));
        }
        let how = match mark {
            Some(run) => How::Marked(Box::new(run)),
            None => How::Held { writes: Vec::new(), bytes: 0 },
        };
        let manager = self.clone();
        let mut import = Import { manager, fence, root, last_seq, written: 0, open, how, over: false };
        import.begin(writes).await?;
        Ok(import)
    }

    /// Whether a tree is a copy that is not whole.
    pub(crate) async fn is_unfinished_import(&self, root: &SessionId) -> Result<bool, StoreError> {
        let root = self.inner.store.session(root.clone()).await?;
        Ok(root.is_some_and(|root| root.data.metadata.contains_key(UNFINISHED)))
    }

    /// Deletes a copy whose owner is gone.
    pub(crate) async fn delete_unfinished_import(&self, fence: Fence) -> Result<(), StoreError> {
        let root = fence.root.clone();
        tracing::info!(%root, "an import that was cut off is deleted");
        let batch =
            Batch { fence: Some(fence), writes: vec![Write::Delete(root)], durability: Durability::Process };
        self.inner.store.commit(batch).await.map(drop)
    }
}

/// The run that marks the copy is open as long as the copy is not whole.
fn staged(run: RunRecord, mark: Option<&RunRecord>) -> RunRecord {
    if mark.is_some_and(|mark| mark.id == run.id && mark.session_id == run.session_id) {
        RunRecord { state: RunState::Pending, process: None, ended_at: None, ..run }
    } else {
        run
    }
}

impl Import {
    /// All rows at once: the mark in the root's row and the run that stays open belong together.
    async fn begin(&mut self, writes: Vec<Write>) -> Result<(), Refused> {
        if let How::Held { writes: held, .. } = &mut self.how {
            *held = writes;
            return Ok(());
        }
        self.commit(writes, Durability::Process).await
    }

    /// The next lines of the log, in the order of their numbers. What is missing in between stays missing.
    ///
    /// # Errors
    /// [`Refused::BadCopy`] for lines out of order or of other sessions, or the store. The copy cannot be
    /// finished then.
    pub async fn append(&mut self, lines: Vec<LogRow>) -> Result<(), Refused> {
        let mut writes = Vec::with_capacity(lines.len());
        let mut bytes = 0;
        for line in lines {
            if line.seq <= self.written || line.seq > self.last_seq {
                let (seq, after, last) = (line.seq, self.written, self.last_seq);
                return Err(bad(format!("line {seq} of its log comes after line {after} of {last}")));
            }
            writes.extend(self.skip(line.seq - 1));
            self.written = line.seq;
            bytes += line.event.data().get().len();
            writes.push(Write::Append(line));
        }
        if let How::Held { writes: held, bytes: all } = &mut self.how {
            *all += bytes;
            if *all > MAX_UNMARKED_BYTES {
                return Err(bad("none of its sessions ever ran, and its log is longer than 16 MiB"));
            }
            held.append(&mut writes);
            return Ok(());
        }
        self.commit(writes, Durability::Process).await
    }

    /// The numbers up to this one have no line.
    fn skip(&self, to: u64) -> Option<Write> {
        (to > self.written).then(|| Write::Skip { root: self.root.id.clone(), to })
    }

    /// The copy is whole: it is a tree like any other from now on, and survives a power cut. Its open runs are
    /// ended as interrupted.
    ///
    /// # Errors
    /// The store; then what was written of the copy is deleted.
    pub async fn finish(mut self) -> Result<Imported, Refused> {
        let last = self.skip(self.last_seq);
        let writes = match &mut self.how {
            How::Held { writes, .. } => std::mem::take(writes).into_iter().chain(last).collect(),
            How::Marked(run) => {
                let rows = [Write::Update(Arc::clone(&self.root)), Write::Run(run.clone())];
                last.into_iter().chain(rows).collect()
            }
        };
        self.commit(writes, Durability::Power).await?;
        self.over = true;
        if !self.open {
            return Ok(Imported::default());
        }
        let ended = self.manager.end_open_runs(self.fence.clone()).await?;
        Ok(Imported { interrupted: ended.found.interrupted })
    }

    /// Deletes what was written of the copy.
    ///
    /// # Errors
    /// The store; then the next [`recover`](SessionManager::recover) after the end of this process deletes it.
    pub async fn abandon(mut self) -> Result<(), StoreError> {
        self.over = true;
        delete(&self.manager, &self.fence, &self.how).await
    }

    async fn commit(&mut self, writes: Vec<Write>, durability: Durability) -> Result<(), Refused> {
        let batch = Batch { fence: Some(self.fence.clone()), writes, durability };
        match self.manager.inner.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(StoreError::Unknown { id }) => Err(bad(format!("it has no session {id}, and its log does"))),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let how = std::mem::replace(&mut self.how, How::Held { writes: Vec::new(), bytes: 0 });
        let (manager, fence) = (self.manager.clone(), self.fence.clone());
        // Without a runtime the next sweep does it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = delete(&manager, &fence, &how).await {
                    tracing::warn!(root = %fence.root, %error, "an unfinished import stays for the next sweep");
                }
            });
        }
    }
}

async fn delete(manager: &SessionManager, fence: &Fence, how: &How) -> Result<(), StoreError> {
    if let How::Held { .. } = how {
        return Ok(());
    }
    // Only what is ours: a root of that id that was there before has another fence.
    let ours = crate::store::TreeQuery::Root(fence.root.clone());
    let tree = manager.inner.store.trees(ours).await?.into_iter().next();
    if tree.is_none_or(|tree| tree.fence != *fence) || !manager.is_unfinished_import(&fence.root).await? {
        return Ok(());
    }
    manager.delete_unfinished_import(fence.clone()).await
}

fn bad(problem: impl Into<String>) -> Refused {
    Refused::BadCopy { problem: problem.into() }
}

/// Whether these rows are a tree: one root, parents before children, depths counted once (L4).
fn check(sessions: &[(SessionData, Vec<RunRecord>)]) -> Result<(), Refused> {
    let mut depths: HashMap<&SessionId, u32, RandomState> = HashMap::default();
    let Some((root, _)) = sessions.first() else { return Err(bad("it has no session")) };
    for (data, runs) in sessions {
        let id = &data.id;
        if data.root_id != root.id {
            return Err(bad(format!("session {id} is of the tree {}, not of {}", data.root_id, root.id)));
        }
        // A root may name a parent that is in no tree of ours (L3).
        let depth = match &data.parent_id {
            _ if *id == root.id => 0,
            None => return Err(bad(format!("session {id} is a second root"))),
            Some(parent) => match depths.get(parent) {
                Some(depth) => depth + 1,
                None => return Err(bad(format!("session {id} comes before its parent {parent}"))),
            },
        };
        // A child of an unknown parent is the root of a tree of its own and has depth 1 (L3).
        let adopted = *id == root.id && data.parent_id.is_some() && data.depth == 1;
        if data.depth != depth && !adopted {
            return Err(bad(format!("session {id} has depth {}, and stands at {depth}", data.depth)));
        }
        if depths.insert(id, data.depth).is_some() {
            return Err(bad(format!("session {id} is there twice")));
        }
        if data.metadata.contains_key(UNFINISHED) {
            return Err(bad("it is a copy that was never finished"));
        }
        for (place, run) in runs.iter().enumerate() {
            if run.session_id != *id {
                return Err(bad(format!("run {} of session {id} is of session {}", run.id, run.session_id)));
            }
            if runs[..place].iter().any(|before| before.id == run.id) {
                return Err(bad(format!("run {} of session {id} is there twice", run.id)));
            }
        }
    }
    // A cycle would be a tree that nothing walks to its end.
    match &root.parent_id {
        Some(parent) if depths.contains_key(parent) => {
            Err(bad(format!("the root {} is below itself: its parent is {parent}", root.id)))
        }
        _ => Ok(()),
    }
}
