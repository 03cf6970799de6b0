//! What a root that is run again takes from its older tree: the results of what completed there.
//!
//! A delegation of the new tree is asked for once (`Claim`), by its parent's counterpart in the older tree and
//! by what it is asked: node, how it is delegated to, directory and prompt. What stands for it there and ended
//! well, with everything below it, is not run again: the child is made as any other (rule L1), and in the place
//! of its node works `Taken`, which says what was said then. Whatever else stands for it is run, and what that
//! delegates is looked for below its counterpart.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;
use offspring_protocol::{Event, MessageId, NodeName, Outcome, RunState, SessionId, SourceType};
use offspring_sessions::{
    Answer, RunContext, RunError, SessionManager, SessionRecord, StoreError,
    store::{EventQuery, LogRow},
};
use sha2::{Digest, Sha256};

use crate::{
    drive,
    node::{Agent, Node, Prompt},
};

/// The note in the row of a session whose result was taken: from which session. Only this crate writes it.
pub const TAKEN_FROM: &str = "taken_from";

/// Lines of the older log that are read at once.
const PAGE: usize = 1_024;

type Map<K, V> = HashMap<K, V, RandomState>;

/// The results of an older tree, each to be taken once. Cheap to clone: the clones share what is left.
#[derive(Debug, Clone)]
pub struct Recall(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    manager: SessionManager,
    root: SessionId,
    complete: bool,
    table: Mutex<Table>,
}

/// A session of the older tree, by the order of creation; the root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place(usize);

/// What a delegation is known by among its siblings. Two that are asked the same are told apart by their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Asked {
    node: NodeName,
    source_type: SourceType,
    /// Seen from the parent's, so that a directory which was moved as a whole is the same.
    cwd: Option<PathBuf>,
    prompt: PromptSum,
}

/// Its SHA-256: the prompts of a whole tree may be more than memory should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PromptSum([u8; 32]);

impl PromptSum {
    fn of(prompt: &str) -> Self {
        Self(Sha256::digest(prompt).into())
    }
}

impl Asked {
    /// `own` is the child's directory, seen from its parent's `base`; unset it is the parent's.
    fn new(
        node: &NodeName,
        source_type: SourceType,
        base: Option<&str>,
        own: Option<&str>,
        prompt: PromptSum,
    ) -> Self {
        let cwd = match (base, own) {
            (Some(base), own) => {
                let whole = Path::new(base).join(own.unwrap_or_default());
                Some(whole.strip_prefix(base).map(Path::to_owned).unwrap_or(whole))
            }
            (None, own) => own.map(PathBuf::from),
        };
        Self { node: node.clone(), source_type, cwd, prompt }
    }
}

/// A result that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The session that ran for it.
    pub(crate) session: SessionId,
    /// The session of the older tree whose log holds it.
    told_by: SessionId,
    lines: Lines,
}

/// Where an answer stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lines {
    /// The message.
    message: u64,
    /// What its run said before, for a message that does not repeat it.
    after: u64,
}

#[derive(Debug, Default)]
struct Table {
    /// Sessions of the older tree that nothing stands for yet, by their parent and what it asked.
    waiting: Map<(Place, Asked), BTreeSet<Place>>,
    results: Map<Place, Stored>,
    /// Which session of the older tree a session of the new one stands for.
    counterparts: Map<SessionId, Place>,
}

impl Recall {
    /// Reads an older tree from its root.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(manager: &SessionManager, root: &SessionId) -> Result<Self, StoreError> {
        let records = manager.subtree(root).await?;
        let mut logged: Map<SessionId, Logged> = Map::default();
        let mut after = 0;
        loop {
            let query = EventQuery { root: root.clone(), session: None, after, limit: PAGE };
            let page = manager.events(query).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for line in page.iter().filter(|line| !line.late) {
                logged.entry(line.session.clone()).or_default().take(line);
            }
        }
        let (table, complete) = Table::of(&records, &logged);
        let shared =
            Shared { manager: manager.clone(), root: root.clone(), complete, table: Mutex::new(table) };
        Ok(Self(Arc::new(shared)))
    }

    /// Whether every session of the older tree completed: there is nothing to be run again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.complete
    }

    /// From now on this session stands for the root of the older tree.
    pub(crate) fn begin(&self, root: &SessionId) {
        self.lock().counterparts.insert(root.clone(), Place(0));
    }

    /// What stands for a child that is about to be made; nothing else can have it while the claim lives.
    pub(crate) fn claim(
        &self,
        caller: &RunContext,
        node: &Node,
        cwd: Option<&str>,
        prompt: &Prompt,
    ) -> Option<Claim> {
        let (base, prompt) = (caller.data().cwd.as_deref(), PromptSum::of(&prompt.text));
        let asked = Asked::new(node.name(), node.source_type(), base, cwd, prompt);
        let (key, place) = self.lock().claim(&caller.session().id, asked)?;
        Some(Claim { recall: self.clone(), key, place, kept: false })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// What there is to take, and whether everything completed. Parents come before children.
    fn of(records: &[SessionRecord], logged: &Map<SessionId, Logged>) -> (Self, bool) {
        let places: Map<&SessionId, usize> =
            records.iter().enumerate().map(|(place, record)| (&record.data.id, place)).collect();
        let parent_of = |record: &SessionRecord| {
            record.data.parent_id.as_ref().and_then(|parent| places.get(parent).copied())
        };
        // A result is taken when nothing that went into it failed: a team whose member failed completes all the
        // same, and so does an agent that goes on without its child.
        let mut whole: Vec<bool> = records.iter().map(completed).collect();
        for (place, record) in records.iter().enumerate().rev() {
            if let (false, Some(parent)) = (whole[place], parent_of(record)) {
                whole[parent] = false;
            }
        }
        let mut table = Self::default();
        for (place, record) in records.iter().enumerate() {
            let data = &record.data;
            let (Some(parent), Some(source), Some(log)) =
                (parent_of(record), &data.source_type, logged.get(&data.id))
            else {
                continue;
            };
            // What ended before it began was asked nothing that is known.
            let Some(prompt) = log.prompt else { continue };
            let base = records[parent].data.cwd.as_deref();
            let asked = Asked::new(&data.agent_name, source.clone(), base, data.cwd.as_deref(), prompt);
            table.waiting.entry((Place(parent), asked)).or_default().insert(Place(place));
            if let (true, Some(lines)) = (whole[place] && is_all_there(record), log.answer) {
                // A result that was taken before is its first owner's.
                let first =
                    data.metadata.get(TAKEN_FROM).and_then(|first| SessionId::new(first.as_str()).ok());
                let session = first.unwrap_or_else(|| data.id.clone());
                let stored = Stored { session, told_by: data.id.clone(), lines };
                table.results.insert(Place(place), stored);
            }
        }
        (table, whole.first().copied().unwrap_or_default())
    }

    fn claim(&mut self, parent: &SessionId, asked: Asked) -> Option<((Place, Asked), Place)> {
        let key = (*self.counterparts.get(parent)?, asked);
        let place = self.waiting.get_mut(&key)?.pop_first()?;
        Some((key, place))
    }
}

/// A session of the older tree that a child to be stands for; given back unless the child is made.
#[derive(Debug)]
pub(crate) struct Claim {
    recall: Recall,
    key: (Place, Asked),
    place: Place,
    kept: bool,
}

impl Claim {
    /// Its result, if it may be taken.
    pub(crate) fn result(&self) -> Option<Stored> {
        self.recall.lock().results.get(&self.place).cloned()
    }

    /// What says a result again in the place of a node.
    pub(crate) fn taken(&self, stored: Stored) -> Node {
        let Shared { manager, root, .. } = &*self.recall.0;
        let name = self.key.1.node.clone();
        Node::agent(Taken { name, manager: manager.clone(), root: root.clone(), stored })
    }

    /// The child is made: what it delegates is looked for below its counterpart.
    pub(crate) fn keep(mut self, child: &SessionId) {
        self.kept = true;
        self.recall.lock().counterparts.insert(child.clone(), self.place);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            let mut table = self.recall.lock();
            table.waiting.entry(self.key.clone()).or_default().insert(self.place);
        }
    }
}

/// What the log says about a session.
#[derive(Debug, Default)]
struct Logged {
    /// What its first run was asked.
    prompt: Option<PromptSum>,
    /// Where its last run began.
    began: u64,
    /// Where each of its messages stands.
    messages: Map<MessageId, u64>,
    /// Where the answer of its last run stands.
    answer: Option<Lines>,
}

impl Logged {
    fn take(&mut self, line: &LogRow) {
        if !matches!(line.event.kind(), "run_started" | "message_complete" | "stream_complete") {
            return;
        }
        match line.event.parse() {
            Ok(Event::RunStarted(started)) => {
                self.prompt.get_or_insert_with(|| PromptSum::of(&started.prompt));
                self.began = line.seq;
            }
            Ok(Event::MessageComplete(message)) => {
                self.messages.insert(message.message_id, line.seq);
            }
            Ok(Event::StreamComplete(end)) => {
                let message = end.message_id.and_then(|message| self.messages.get(&message).copied());
                self.answer = message.map(|message| Lines { message, after: self.began });
            }
            // What cannot be read was not said: then there is nothing to take.
            _ => {}
        }
    }
}

fn completed(record: &SessionRecord) -> bool {
    record.run_state() == Some(RunState::Ended(Outcome::Completed))
}

/// Whether its answer is what its delegation got: of its one run, and not cut.
fn is_all_there(record: &SessionRecord) -> bool {
    record.last_run.as_ref().is_some_and(|run| run.ordinal == 1 && run.left_out_bytes == 0)
}

/// Works in the place of a node whose result was taken: says what was said then.
struct Taken {
    name: NodeName,
    manager: SessionManager,
    /// Of the older tree.
    root: SessionId,
    stored: Stored,
}

impl Agent for Taken {
    fn name(&self) -> &NodeName {
        &self.name
    }

    fn run(self: Arc<Self>, _: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            let gone = || {
                let message =
                    format!("the result of {} was removed from the store meanwhile", self.stored.session);
                RunError::failed("result_gone", message)
            };
            let text = self.text().await?.ok_or_else(gone)?;
            Ok(drive::stream(&cx, text).await?)
        })
    }
}

impl Taken {
    async fn text(&self) -> Result<Option<String>, StoreError> {
        let Lines { message, after } = self.stored.lines;
        let line = self.page(message - 1, 1).await?.pop().filter(|line| line.seq == message);
        let Some(Ok(Event::MessageComplete(found))) = line.map(|line| line.event.parse()) else {
            return Ok(None);
        };
        if found.streamed_bytes == 0 {
            return Ok(Some(found.text));
        }
        let (mut text, mut after) = (String::new(), after);
        while after < message {
            let page = self.page(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for line in page.iter().filter(|line| line.seq < message && !line.late) {
                if let Ok(Event::TextDelta(delta)) = line.event.parse() {
                    text.push_str(&delta.text);
                }
            }
        }
        Ok((text.len() as u64 == found.streamed_bytes).then_some(text))
    }

    async fn page(&self, after: u64, limit: usize) -> Result<Vec<LogRow>, StoreError> {
        let (root, session) = (self.root.clone(), Some(self.stored.told_by.clone()));
        self.manager.events(EventQuery { root, session, after, limit }).await
    }
}
