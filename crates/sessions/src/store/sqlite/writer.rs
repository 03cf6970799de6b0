//! The one thread that writes.
//!
//! It takes whatever waits (no timer), puts it into one transaction with a savepoint for each batch, commits
//! once and answers everybody. A batch that is refused is undone alone.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc},
    thread,
    time::{Duration, Instant},
};

use offspring_protocol::{OwnerId, SessionId};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{
    apply::Applier,
    changes::Changes,
    fault::{Fault, Place},
    owners::OwnerLock,
    reclaim::Reclaim,
    schema,
    turnstile::Turnstile,
};
use crate::store::{Batch, Committed, Durability, Fence, Reclaimed, StoreError};

/// How long [`Writer`]'s drop waits for the thread to finish what it was given.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Ask {
    Commit(Batch, oneshot::Sender<Result<Committed, StoreError>>),
    Claim {
        root: SessionId,
        from_epoch: u64,
        answer: oneshot::Sender<Result<Fence, StoreError>>,
    },
    Reclaim(oneshot::Sender<Result<Reclaimed, StoreError>>),
    /// The last thing it does.
    Close(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Job {
    asked: Instant,
    ask: Ask,
}

/// What became of a job inside the transaction; told only after the commit.
enum Outcome {
    Committed(Result<Committed, StoreError>),
    Claimed(Result<Fence, StoreError>),
    Nothing,
}

impl Job {
    fn refuse(self, error: StoreError) {
        // Nobody listens when the asker was dropped.
        match self.ask {
            Ask::Commit(_, answer) => drop(answer.send(Err(error))),
            Ask::Claim { answer, .. } => drop(answer.send(Err(error))),
            Ask::Reclaim(answer) => drop(answer.send(Err(error))),
            Ask::Close(answer) => drop(answer.send(())),
        }
    }

    fn answer(self, outcome: Outcome) {
        match (self.ask, outcome) {
            (Ask::Commit(_, answer), Outcome::Committed(done)) => drop(answer.send(done)),
            (Ask::Claim { answer, .. }, Outcome::Claimed(done)) => drop(answer.send(done)),
            _ => {}
        }
    }
}

/// The handle of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    /// Closed when the thread has ended.
    ended: Mutex<std_mpsc::Receiver<()>>,
}

/// What the thread works with.
pub(super) struct Work {
    pub(super) place: Place,
    pub(super) conn: Connection,
    pub(super) turnstile: Turnstile,
    pub(super) owner: OwnerId,
    pub(super) owners: PathBuf,
    pub(super) lock: OwnerLock,
    pub(super) changes: Arc<Changes>,
    pub(super) max_group: usize,
}

impl Writer {
    pub(super) fn start(work: Work, queue: usize) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(queue.max(1));
        let (end, ended) = std_mpsc::sync_channel(1);
        let place = work.place.clone();
        thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let _end: std_mpsc::SyncSender<()> = end;
                work.run(waiting);
            })
            .map_err(|error| place.unusable(format!("its thread cannot start: {error}")))?;
        Ok(Self { jobs: Some(jobs), ended: Mutex::new(ended) })
    }

    /// Queues what is asked; waits while the queue is full.
    pub(super) async fn ask(&self, ask: Ask) -> Result<(), StoreError> {
        let job = Job { asked: Instant::now(), ask };
        match &self.jobs {
            Some(jobs) => jobs.send(job).await.map_err(|_| StoreError::Closed),
            None => Err(StoreError::Closed),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Bounded: a file that somebody else keeps locked must not hang who lets go of the store.
        let _ = ended.recv_timeout(DROP_WAIT);
    }
}

impl Work {
    fn run(self, mut waiting: mpsc::Receiver<Job>) {
        let Self { place, conn, turnstile, owner, owners, lock, changes, max_group } = self;
        let mut group = Group {
            place: &place,
            conn: &conn,
            turnstile: &turnstile,
            owner: &owner,
            owners: &owners,
            changes: &changes,
            applier: Applier::default(),
            synced: false,
        };
        let mut jobs = Vec::new();
        let mut closing = Vec::new();
        while waiting.blocking_recv_many(&mut jobs, max_group.max(1)) > 0 {
            if jobs.iter().any(|job| matches!(job.ask, Ask::Close(_))) {
                // What is queued behind is still written; what comes later is refused at the door.
                waiting.close();
            }
            closing.extend(jobs.extract_if(.., |job| matches!(job.ask, Ask::Close(_))));
            let reclaims: Vec<Job> = jobs.extract_if(.., |job| matches!(job.ask, Ask::Reclaim(_))).collect();
            group.commit(std::mem::take(&mut jobs));
            group.reclaim(reclaims);
        }
        changes.close();
        // Leaves one file behind where nobody else has it open.
        let _ = conn.busy_timeout(Duration::from_millis(200));
        empty_log(&conn);
        if let Err((_, error)) = conn.close() {
            tracing::debug!(%error, "closing the store");
        }
        drop(lock);
        for job in closing {
            job.refuse(StoreError::Closed);
        }
    }
}

/// Moves the log into the file and empties it; gives whether that went through.
pub(super) fn empty_log(conn: &Connection) -> bool {
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .is_ok_and(|busy| busy == 0)
}

struct Group<'a> {
    place: &'a Place,
    conn: &'a Connection,
    turnstile: &'a Turnstile,
    owner: &'a OwnerId,
    owners: &'a Path,
    changes: &'a Changes,
    applier: Applier,
    /// Whether commits are synced to the disk at present.
    synced: bool,
}

/// Why a whole transaction came to nothing.
enum Failed {
    /// The bound of the oldest job is over.
    Waited,
    Fault(Fault),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        if fault.is_busy() { Self::Waited } else { Self::Fault(fault) }
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sql(error).into()
    }
}

impl Group<'_> {
    /// Once for all who ask, outside of any transaction.
    fn reclaim(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let Self { place, conn, turnstile, owners, owner, .. } = *self;
        let done = Reclaim { place, conn, turnstile, owners, owner }.run();
        self.applier.deleted &= !matches!(&done, Ok(Reclaimed { left: None, .. }));
        self.changes.bump();
        for job in jobs {
            if let Ask::Reclaim(answer) = job.ask {
                drop(answer.send(done.clone()));
            }
        }
    }

    fn commit(&mut self, mut jobs: Vec<Job>) {
        while !jobs.is_empty() {
            match self.attempt(&jobs) {
                Ok(outcomes) => {
                    self.changes.bump();
                    jobs.into_iter().zip(outcomes).for_each(|(job, outcome)| job.answer(outcome));
                    return;
                }
                Err(Failed::Waited) => {
                    self.undo();
                    let now = Instant::now();
                    let over = |job: &mut Job| now.duration_since(job.asked) >= self.place.busy_timeout;
                    for job in jobs.extract_if(.., over) {
                        let waited = now.duration_since(job.asked);
                        job.refuse(self.place.busy(waited));
                    }
                    // SQLite does not wait where it sees a deadlock coming.
                    thread::sleep(Duration::from_millis(1));
                }
                // One batch too big for the disk must not take the others with it.
                Err(Failed::Fault(_)) if jobs.len() > 1 => {
                    self.undo();
                    return jobs.into_iter().for_each(|job| self.commit(vec![job]));
                }
                Err(Failed::Fault(fault)) => {
                    self.undo();
                    let error = self.place.fault(fault);
                    return jobs.into_iter().for_each(|job| job.refuse(error.clone()));
                }
            }
        }
    }

    fn undo(&mut self) {
        self.applier.forget();
        if !self.conn.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::warn!(%error, "could not undo a transaction");
        }
    }

    fn execute(&self, sql: &str) -> Result<(), rusqlite::Error> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn attempt(&mut self, jobs: &[Job]) -> Result<Vec<Outcome>, Failed> {
        let oldest = jobs.iter().map(|job| job.asked).min().unwrap_or_else(Instant::now);
        let deadline = oldest + self.place.busy_timeout;
        let turn = match self.turnstile.enter(deadline) {
            Ok(Some(turn)) => turn,
            Ok(None) => return Err(Failed::Waited),
            Err(error) => return Err(Failed::Fault(error.into())),
        };
        self.sync(jobs)?;
        // Programs that know nothing of the turnstile may hold the file too.
        self.conn.busy_timeout(deadline.saturating_duration_since(Instant::now()))?;
        self.execute("BEGIN IMMEDIATE")?;
        if self.applier.begin(self.conn)? {
            // A newer version may have made the tables its own since we opened them.
            schema::check(self.conn, self.place).map_err(Fault::Refused)?;
        }
        let outcomes = jobs.iter().map(|job| self.apply(job)).collect::<Result<_, _>>()?;
        self.applier.finish(self.conn)?;
        self.execute("COMMIT")?;
        if self.applier.deleted {
            // The log file still holds what was deleted. A reader may be in the way: then next time.
            self.conn.busy_timeout(Duration::ZERO)?;
            self.applier.deleted = !empty_log(self.conn);
        }
        drop(turn);
        Ok(outcomes)
    }

    /// Outside the transaction, where SQLite allows it.
    fn sync(&mut self, jobs: &[Job]) -> Result<(), rusqlite::Error> {
        let power =
            |job: &Job| matches!(&job.ask, Ask::Commit(batch, _) if batch.durability == Durability::Power);
        let wanted = jobs.iter().any(power);
        if wanted != self.synced {
            self.conn.pragma_update(None, "synchronous", if wanted { "FULL" } else { "NORMAL" })?;
            self.synced = wanted;
        }
        Ok(())
    }

    /// `Err` only when the whole transaction is lost.
    fn apply(&mut self, job: &Job) -> Result<Outcome, Fault> {
        match &job.ask {
            Ask::Commit(batch, _) => {
                self.execute("SAVEPOINT batch")?;
                let done = self.applier.apply(self.conn, batch);
                self.settle(done).map(Outcome::Committed)
            }
            Ask::Claim { root, from_epoch, .. } => {
                self.execute("SAVEPOINT batch")?;
                let done = self.applier.claim(self.conn, root, *from_epoch, self.owner);
                self.settle(done).map(Outcome::Claimed)
            }
            Ask::Reclaim(_) | Ask::Close(_) => Ok(Outcome::Nothing),
        }
    }

    fn settle<T>(&self, done: Result<T, Fault>) -> Result<Result<T, StoreError>, Fault> {
        match done {
            Ok(done) => {
                self.execute("RELEASE batch")?;
                Ok(Ok(done))
            }
            // SQLite itself has undone everything (no room, for one).
            Err(fault) if self.conn.is_autocommit() => Err(fault),
            Err(fault) => {
                self.execute("ROLLBACK TO batch")?;
                self.execute("RELEASE batch")?;
                Ok(Err(self.place.fault(fault)))
            }
        }
    }
}
