//! Stores around a store: one that counts commits, and can commit each step of a run alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use offspring_protocol::{Event, Origin, OwnerId, RunRecord, SessionId};
use offspring_sessions::{
    SessionRecord, SessionStore, StoreError,
    store::{
        Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, SessionQuery, StoreInfo,
        TreeQuery, TreeRecord, Write,
    },
};
use tokio::sync::watch;

/// Passes everything on and counts.
#[derive(Clone)]
pub(crate) struct Counted {
    inner: Arc<dyn SessionStore>,
    apart: bool,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    commits: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counted {
    /// Commits what it is given as it is given.
    pub(crate) fn new(inner: impl SessionStore) -> Self {
        Self { inner: Arc::new(inner), apart: false, counts: Arc::default() }
    }

    /// Commits each step of a run alone: making a child, its start, each delta, its end.
    pub(crate) fn apart(inner: impl SessionStore) -> Self {
        Self { apart: true, ..Self::new(inner) }
    }

    /// Commits so far.
    pub(crate) fn commits(&self) -> u64 {
        self.counts.commits.load(Ordering::Relaxed)
    }

    /// How long commits were in flight so far, all added up.
    pub(crate) fn in_flight(&self) -> Duration {
        Duration::from_nanos(self.counts.nanoseconds.load(Ordering::Relaxed))
    }

    async fn one(&self, batch: Batch) -> Result<Committed, StoreError> {
        let began = Instant::now();
        let done = self.inner.commit(batch).await;
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.nanoseconds.fetch_add(took, Ordering::Relaxed);
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        done
    }
}

/// The steps that the manager put into one batch: a step begins with a spawn, a run's start, a delta or a
/// message, and has the rows and runs that its lines speak of.
fn steps(batch: Batch) -> Vec<Batch> {
    let Batch { fence, writes, durability } = batch;
    let (lines, mut rest): (Vec<Write>, Vec<Write>) =
        writes.into_iter().partition(|write| matches!(write, Write::Append(_)));
    let mut steps: Vec<Vec<Write>> = Vec::new();
    for line in lines {
        let Write::Append(row) = &line else { continue };
        match row.event.kind() {
            "spawn_session_start" => {
                if let Ok(Event::SpawnSessionStart(spawn)) = row.event.parse() {
                    steps.push(take(&mut rest, &spawn.child_session_id, true));
                }
            }
            "run_started" | "message_complete" => steps.push(take(&mut rest, &row.session, false)),
            kind if kind.ends_with("_delta") || steps.is_empty() => steps.push(Vec::new()),
            _ => {}
        }
        if let Some(step) = steps.last_mut() {
            step.push(line);
        }
    }
    if !rest.is_empty() {
        steps.insert(0, rest);
    }
    steps.into_iter().map(|writes| Batch { fence: fence.clone(), writes, durability }).collect()
}

/// The row, if the session is made, and the first run of it that is still to be written.
fn take(rest: &mut Vec<Write>, session: &SessionId, made: bool) -> Vec<Write> {
    let mut taken = Vec::new();
    let row = rest.iter().position(|write| matches!(write, Write::Session(row) if row.id == *session));
    if let Some(row) = row.filter(|_| made) {
        taken.push(rest.remove(row));
    }
    if let Some(run) =
        rest.iter().position(|write| matches!(write, Write::Run(run) if run.session_id == *session))
    {
        taken.push(rest.remove(run));
    }
    taken
}

impl SessionStore for Counted {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            if !self.apart {
                return self.one(batch).await;
            }
            let mut last = Committed { last_seq: 0 };
            for step in steps(batch) {
                last = self.one(step).await?;
            }
            Ok(last)
        })
    }

    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        self.inner.claim(root, from_epoch)
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.inner.session(id)
    }

    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.inner.sessions(query)
    }

    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.inner.origin(root)
    }

    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.inner.runs(session)
    }

    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.inner.trees(query)
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.inner.events(query)
    }

    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.inner.open_commands(root)
    }

    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.inner.command(id)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn owner(&self) -> OwnerId {
        self.inner.owner()
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        self.inner.owner_state(owner)
    }

    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}
