//! Reading from the store beside the drawing: one question of a kind at a time, and only the latest answer counts.

use offspring_protocol::SessionId;
use offspring_sessions::{
    SessionManager, SessionRecord, StoreError,
    store::{EventQuery, LogRow, OwnerState, TreeQuery},
};
use tokio::{sync::mpsc, task::JoinHandle};

use super::transcript::{PAGE_EVENTS, Wanted, ends_line};
use crate::{cancel, failure::Failure};

/// Answers that wait to be taken.
const WAITING: usize = 16;

/// What was read.
pub(super) enum Read {
    /// The sessions of the tree.
    Sessions(Result<Vec<SessionRecord>, StoreError>),
    /// Where the pages of a session's log begin.
    Starts(SessionId, Result<Vec<u64>, StoreError>),
    /// Events that come after those there are.
    After(SessionId, Result<Vec<LogRow>, StoreError>),
    /// A page of this number.
    Page(SessionId, usize, Result<Vec<LogRow>, StoreError>),
    /// Runs whose program is gone were ended.
    Swept(Result<(), StoreError>),
    /// What came of cancelling a session of this name.
    Cancelled(String, Result<(&'static str, String), Failure>),
}

/// Reads for the window.
pub(super) struct Reader {
    manager: SessionManager,
    root: SessionId,
    answers: mpsc::Sender<(Question, Read)>,
    read: mpsc::Receiver<(Question, Read)>,
    /// What is being read.
    open: Vec<Question>,
    /// How often another transcript was begun.
    begun: u64,
    transcript: Option<JoinHandle<()>>,
}

/// What an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Sessions,
    /// Of the transcript that was begun so many times.
    Events(u64),
    Sweep,
    Cancel,
}

impl Reader {
    pub(super) fn new(manager: SessionManager, root: SessionId) -> Self {
        let (answers, read) = mpsc::channel(WAITING);
        Self { manager, root, answers, read, open: Vec::new(), begun: 0, transcript: None }
    }

    /// The next answer.
    pub(super) async fn next(&mut self) -> Read {
        loop {
            match self.read.recv().await {
                // Of a transcript that nobody looks at any more.
                Some((Question::Events(begun), _)) if begun != self.begun => {}
                Some((question, read)) => {
                    self.open.retain(|open| *open != question);
                    return read;
                }
                // Cannot be: we hold a sender.
                None => std::future::pending().await,
            }
        }
    }

    /// Reads, unless the same is being read.
    fn ask(
        &mut self,
        question: Question,
        answer: impl Future<Output = Read> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        if question != Question::Cancel {
            if self.open.contains(&question) {
                return None;
            }
            self.open.push(question);
        }
        let answers = self.answers.clone();
        Some(tokio::spawn(async move {
            let read = answer.await;
            let _ = answers.send((question, read)).await;
        }))
    }

    /// Reads the rows of a session and all below it.
    pub(super) fn sessions(&mut self, top: &SessionId) {
        let (manager, top) = (self.manager.clone(), top.clone());
        self.ask(Question::Sessions, async move { Read::Sessions(manager.subtree(&top).await) });
    }

    /// Begins with another session's transcript.
    pub(super) fn transcript(&mut self, session: &SessionId) {
        if let Some(before) = self.transcript.take() {
            before.abort();
        }
        self.open.retain(|open| *open != Question::Events(self.begun));
        self.begun += 1;
        let (log, session) = (self.log(session), session.clone());
        self.transcript = self.ask(Question::Events(self.begun), async move {
            let starts = log.starts().await;
            Read::Starts(session, starts)
        });
    }

    /// Reads a part of the transcript, unless something of it is being read.
    pub(super) fn part(&mut self, session: &SessionId, wanted: Wanted) {
        let (log, session) = (self.log(session), session.clone());
        let asked = self.ask(Question::Events(self.begun), async move {
            match wanted {
                Wanted::After(after) => Read::After(session, log.page(after).await),
                Wanted::Between(page, after, last) => {
                    Read::Page(session, page, log.between(after, last).await)
                }
            }
        });
        if asked.is_some() {
            self.transcript = asked;
        }
    }

    /// Ends runs whose program is gone: nobody else may look (rule L13).
    pub(super) fn sweep(&mut self) {
        let (manager, root) = (self.manager.clone(), self.root.clone());
        self.ask(Question::Sweep, async move { Read::Swept(sweep(&manager, root).await) });
    }

    /// Cancels a session and all below it.
    pub(super) fn cancel(&mut self, session: &SessionId, name: String) {
        let (manager, session) = (self.manager.clone(), session.clone());
        self.ask(Question::Cancel, async move {
            let answer = cancel::carry_out(&manager, &session).await;
            Read::Cancelled(name, answer)
        });
    }

    fn log(&self, session: &SessionId) -> Log {
        Log { manager: self.manager.clone(), root: self.root.clone(), session: session.clone() }
    }
}

async fn sweep(manager: &SessionManager, root: SessionId) -> Result<(), StoreError> {
    let store = manager.store();
    let tree = store.trees(TreeQuery::Root(root)).await?.into_iter().next();
    if let Some(tree) = tree
        && tree.open_runs > 0
        && store.owner_state(tree.fence.owner).await? == OwnerState::Dead
    {
        crate::store::end_leftovers(manager.recover().await?).await;
    }
    Ok(())
}

/// The log of one session.
struct Log {
    manager: SessionManager,
    root: SessionId,
    session: SessionId,
}

impl Log {
    async fn page(&self, after: u64) -> Result<Vec<LogRow>, StoreError> {
        let (root, session) = (self.root.clone(), Some(self.session.clone()));
        self.manager.events(EventQuery { root, session, after, limit: PAGE_EVENTS }).await
    }

    /// Where pages begin, the last one before the end.
    async fn starts(&self) -> Result<Vec<u64>, StoreError> {
        let mut starts = vec![0];
        loop {
            let after = starts.last().copied().unwrap_or_default();
            let page = self.page(after).await?;
            let last = page.iter().rfind(|line| ends_line(line)).or(page.last());
            match last {
                Some(last) if page.len() >= PAGE_EVENTS => starts.push(last.seq),
                _ => return Ok(starts),
            }
        }
    }

    async fn between(&self, after: u64, last: u64) -> Result<Vec<LogRow>, StoreError> {
        let mut lines: Vec<LogRow> = Vec::new();
        loop {
            let page = self.page(lines.last().map_or(after, |line| line.seq)).await?;
            let is_over = page.is_empty() || page.last().is_some_and(|line| line.seq >= last);
            lines.extend(page.into_iter().filter(|line| line.seq <= last));
            if is_over {
                return Ok(lines);
            }
        }
    }
}
