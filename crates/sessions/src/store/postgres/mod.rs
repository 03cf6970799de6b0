//! The store in a PostgreSQL database, which many hosts may share.
//!
//! Every commit is one transaction that first takes its tree by owner and epoch, so that an owner which was taken for
//! dead can write nothing any more (rule L13). Who lives is a lease by the database's clock, which each process renews.
//! One connection of each process listens for what others committed; that is a hint, readers look by number (rule L18).
//!
//! When the connection is lost, what was not sent to be committed is tried again for as long as
//! [`PostgresOptions::patience`]. Of what was, the server is asked whether it is committed; nothing is ever written
//! twice, and what cannot be found out is [`StoreError::Undecided`].
//!
//! Every acknowledged commit is as durable as the server makes its commits (`synchronous_commit`, on by default);
//! [`Durability::Power`](super::Durability::Power) turns that on where it is off.
//!
//! The server is PostgreSQL 13 or later, reached directly: a pooler between that hands out connections by transaction
//! can neither listen nor keep prepared statements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use futures_util::future::{BoxFuture, ready};
use offspring_protocol::{Origin, OwnerId, RunRecord, SessionId};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_postgres::error::SqlState;

use super::{
    Batch, CommandRow, Committed, EventQuery, Fence, LogRow, OwnerState, Reclaimed, SessionQuery,
    SessionRecord, SessionStore, Space, StoreError, StoreInfo, TreeQuery, TreeRecord, TreeSize, Unreclaimed,
    Write,
};

mod address;
mod changes;
mod columns;
mod commit;
mod fault;
mod lines;
mod link;
mod look;
mod owners;
mod pipeline;
mod read;
mod schema;
mod text;
mod tls;

pub use address::{BadAddress, PostgresAddress};
use changes::Changes;
use commit::InDoubt;
use fault::{Fault, Place};
use link::Link;
pub use look::{PostgresLook, look};
pub use schema::VERSION as SCHEMA_VERSION;

/// Between attempts; doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long [`PostgresStore::open`] waits for a server that cannot be reached.
const OPENING: Duration = Duration::from_secs(3);
/// A batch that deletes may take so many times as long as others.
const DELETING: u32 = 20;

/// How a [`PostgresStore`] behaves.
#[derive(Debug, Clone, Copy)]
pub struct PostgresOptions {
    /// How long a process lives on without a word, by the database's clock; 15 s by default. It renews the lease three
    /// times in that while. Longer: a dead process is noticed later. Shorter: a process that was held up for so long may
    /// lose its trees.
    pub lease: Duration,
    /// How long a read or a write waits for a server that is away or busy before it fails; 30 s by default.
    pub patience: Duration,
    /// Connections for reading and writing, opened when they are needed; 8 by default, and one more that listens.
    pub connections: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), patience: Duration::from_secs(30), connections: 8 }
    }
}

/// The store in a PostgreSQL database. Used inside a tokio runtime with I/O and time.
///
/// Dropping it gives its lease back if the runtime goes on for a moment; [`close`](SessionStore::close) waits for that.
#[derive(Debug)]
pub struct PostgresStore {
    inner: Arc<Inner>,
    link: Link,
}

#[derive(Debug)]
struct Inner {
    place: Place,
    pool: Pool,
    owner: OwnerId,
    channel: String,
    changes: Arc<Changes>,
    closed: AtomicBool,
}

/// A connection of the pool that goes back only when it is known to be in no transaction.
struct Borrowed(Option<Object>);

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            // Closed: the server undoes what was begun.
            drop(Object::take(object));
        }
    }
}

impl PostgresStore {
    /// Connects to the database; makes the schema and its tables where they are missing.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the server cannot be reached, after 3 s; [`StoreError::Unusable`] for one that
    /// does not let us in, is too old, or has other tables in our schema; [`StoreError::Newer`] and
    /// [`StoreError::InUse`] as for a file.
    pub async fn open(address: &PostgresAddress, options: PostgresOptions) -> Result<Self, StoreError> {
        let options = PostgresOptions { lease: options.lease.max(Duration::from_millis(100)), ..options };
        let place = Place { name: address.to_string(), patience: options.patience };
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let config = address.config(&[
            ("search_path", address.schema().to_owned()),
            ("client_min_messages", "warning".to_owned()),
            ("lock_timeout", milliseconds(options.patience)),
            // Whoever is stopped in a transaction lets go of the tree before its lease is over.
            ("idle_in_transaction_session_timeout", milliseconds(options.lease)),
        ]);
        let tls = tls::connector(address.is_verified(), address.roots())
            .map_err(|detail| place.unusable(detail))?;
        let manager = Manager::from_config(
            config.clone(),
            tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .runtime(Runtime::Tokio1)
            .max_size(options.connections.max(1))
            .wait_timeout(Some(options.patience))
            .create_timeout(Some(options.patience))
            .recycle_timeout(Some(options.patience))
            .build()
            .map_err(|error| place.unusable(error.to_string()))?;
        let owner = crate::ids::owner();
        let channel = Self::prepare(&pool, &place, address.schema(), &owner, options.lease).await?;
        let changes = Arc::new(Changes::new());
        let link = Link::start(link::Work {
            config,
            tls,
            owner: owner.clone(),
            lease: options.lease,
            channel: channel.clone(),
            changes: Arc::clone(&changes),
        });
        let inner = Inner { place, pool, owner, channel, changes, closed: AtomicBool::new(false) };
        Ok(Self { inner: Arc::new(inner), link })
    }

    /// Makes the tables, takes the lease, and gives the name of the channel.
    async fn prepare(
        pool: &Pool,
        place: &Place,
        schema: &str,
        owner: &OwnerId,
        lease: Duration,
    ) -> Result<String, StoreError> {
        let started = Instant::now();
        let deadline = started + OPENING.min(place.patience);
        let mut pause = PAUSES.0;
        loop {
            let attempt = async {
                let mut client = pool.get().await?;
                schema::migrate(&mut client, place, schema).await?;
                link::renew(&**client, owner, lease).await?;
                owners::forget(&client).await?;
                let oid = "SELECT oid::bigint FROM pg_namespace WHERE nspname = $1";
                let row = client.query_one(oid, &[&schema]).await?;
                Ok(format!("offspring_{}", read::get::<i64>(&row, 0)?))
            };
            match attempt.await {
                Ok(channel) => return Ok(channel),
                Err(Fault::Lost(_) | Fault::Again) if Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(fault) => return Err(place.fault(fault, started.elapsed())),
            }
        }
    }

    fn read<T, F>(&self, read: F) -> BoxFuture<'_, Result<T, StoreError>>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c Object) -> BoxFuture<'c, Result<T, Fault>> + Send + Sync + 'static,
    {
        Box::pin(self.inner.read(read))
    }

    /// In a task of its own: what was begun is finished, whoever asked.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        tokio::spawn(work).await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Inner {
    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    async fn borrow(&self) -> Result<Borrowed, Fault> {
        Ok(Borrowed(Some(self.pool.get().await?)))
    }

    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        F: for<'c> Fn(&'c Object) -> BoxFuture<'c, Result<T, Fault>>,
    {
        let started = Instant::now();
        let deadline = started + self.place.patience;
        let mut pause = PAUSES.0;
        loop {
            self.check_open()?;
            let attempt = async {
                let mut borrowed = self.borrow().await?;
                let Some(client) = &borrowed.0 else { return Err(Fault::Refused(StoreError::Closed)) };
                let found = read(client).await;
                if !matches!(found, Err(Fault::Lost(_))) {
                    drop(borrowed.0.take());
                }
                found
            };
            let fault = match timeout_at(deadline, attempt).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(fault)) => fault,
                Err(_) => Fault::Lost("the server does not answer".to_owned()),
            };
            match fault {
                Fault::Lost(_) | Fault::Again if Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                fault => return Err(self.place.fault(fault, started.elapsed())),
            }
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Committed, StoreError> {
        let started = Instant::now();
        let deletes = batch.writes.iter().any(|write| matches!(write, Write::Delete(_)));
        let deadline = started + self.place.patience * if deletes { DELETING } else { 1 };
        let mut pause = PAUSES.0;
        loop {
            self.check_open()?;
            let mut in_doubt = None;
            let fault = match timeout_at(deadline, self.attempt(batch, &mut in_doubt)).await {
                Ok(Ok(committed)) => {
                    self.tell(batch);
                    return Ok(committed);
                }
                Ok(Err(fault)) => fault,
                Err(_) => Fault::Lost("the server does not answer".to_owned()),
            };
            if let Some(in_doubt) = in_doubt
                && self.decide(batch, &in_doubt, deadline, started).await?
            {
                self.tell(batch);
                return Ok(in_doubt.committed);
            }
            match fault {
                Fault::Lost(_) | Fault::Again if Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                fault => return Err(self.place.fault(fault, started.elapsed())),
            }
        }
    }

    async fn attempt(&self, batch: &Batch, in_doubt: &mut Option<InDoubt>) -> Result<Committed, Fault> {
        let mut borrowed = self.borrow().await?;
        let Some(client) = &borrowed.0 else { return Err(Fault::Refused(StoreError::Closed)) };
        let done = commit::commit(client, batch, (&self.channel, &self.owner), in_doubt).await;
        let is_whole = match &done {
            Ok(_) => true,
            Err(Fault::Lost(_)) => false,
            Err(_) => client.batch_execute("ROLLBACK").await.is_ok(),
        };
        if is_whole {
            drop(borrowed.0.take());
        }
        done
    }

    /// Whether a transaction whose answer was lost is committed, as the server knows also after a restart.
    async fn decide(
        &self,
        batch: &Batch,
        in_doubt: &InDoubt,
        deadline: Instant,
        started: Instant,
    ) -> Result<bool, StoreError> {
        // The attempt may have taken all the time there was.
        let deadline = deadline.max(Instant::now() + self.place.patience);
        let mut pause = PAUSES.0;
        let detail = loop {
            let attempt = async {
                let client = self.pool.get().await?;
                let sql = "SELECT pg_xact_status($1::text::xid8)";
                let row = match client.query_one(sql, &[&in_doubt.transaction]).await {
                    Ok(row) => row,
                    // It has not given this number since it crashed: nothing that was committed had it.
                    Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {
                        return Ok((Some("aborted".to_owned()), None));
                    }
                    Err(error) => return Err(error.into()),
                };
                let state = read::get::<Option<String>>(&row, 0)?;
                let is_there = match state.as_deref() {
                    Some("committed") => commit::is_there(&client, batch, in_doubt).await?,
                    _ => None,
                };
                Ok::<_, Fault>((state, is_there))
            };
            let detail = match timeout_at(deadline, attempt).await {
                Ok(Ok((_, Some(is_there)))) => return Ok(is_there),
                Ok(Ok((Some(state), _))) if state == "aborted" => return Ok(false),
                Ok(Ok((Some(state), _))) if state == "committed" => {
                    break "others have written to the tree since".to_owned();
                }
                // The server has not noticed yet that we are gone.
                Ok(Ok((Some(state), _))) => format!("its transaction is {state}"),
                Ok(Ok((None, _))) => break "the server does not know the transaction any more".to_owned(),
                Ok(Err(Fault::Lost(detail))) => detail,
                Ok(Err(fault)) => break self.place.fault(fault, started.elapsed()).to_string(),
                Err(_) => "the server does not answer".to_owned(),
            };
            if Instant::now() + pause >= deadline {
                break detail;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        };
        Err(StoreError::Undecided { store: self.place.name.clone(), waited: started.elapsed(), detail })
    }

    /// Wakes who waits here; others are told by the database.
    fn tell(&self, batch: &Batch) {
        if let Some(fence) = &batch.fence {
            return self.changes.bump(fence.root.as_str());
        }
        for write in &batch.writes {
            if let Write::Command(command) = write {
                self.changes.bump(command.root.as_str());
            }
        }
    }
}

impl SessionStore for PostgresStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.finish(async move { inner.commit(&batch).await }))
    }

    fn claim(&self, root: SessionId, from_epoch: u64) -> BoxFuture<'_, Result<Fence, StoreError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.finish(async move {
            let owner = inner.owner.clone();
            let name = root.clone();
            let asked = AtomicBool::new(false);
            let fence = inner
                .read(move |client| {
                    let again = asked.swap(true, Ordering::Relaxed);
                    Box::pin(owners::claim(client, root.clone(), from_epoch, owner.clone(), again))
                })
                .await?;
            inner.changes.bump(name.as_str());
            Ok(fence)
        }))
    }

    fn session(&self, id: SessionId) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        self.read(move |client| Box::pin(read::session(client, id.clone())))
    }

    fn sessions(&self, query: SessionQuery) -> BoxFuture<'_, Result<Vec<SessionRecord>, StoreError>> {
        self.read(move |client| Box::pin(read::sessions(client, query.clone())))
    }

    fn origin(&self, root: SessionId) -> BoxFuture<'_, Result<Option<Origin>, StoreError>> {
        self.read(move |client| Box::pin(read::origin(client, root.clone())))
    }

    fn runs(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<RunRecord>, StoreError>> {
        self.read(move |client| Box::pin(read::runs(client, session.clone())))
    }

    fn trees(&self, query: TreeQuery) -> BoxFuture<'_, Result<Vec<TreeRecord>, StoreError>> {
        self.read(move |client| Box::pin(read::trees(client, query.clone())))
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'_, Result<Vec<LogRow>, StoreError>> {
        self.read(move |client| Box::pin(read::events(client, query.clone())))
    }

    fn open_commands(&self, root: SessionId) -> BoxFuture<'_, Result<Vec<CommandRow>, StoreError>> {
        self.read(move |client| Box::pin(read::open_commands(client, root.clone())))
    }

    fn command(&self, id: String) -> BoxFuture<'_, Result<Option<CommandRow>, StoreError>> {
        self.read(move |client| Box::pin(read::command(client, id.clone())))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn changes_of(&self, root: &SessionId) -> watch::Receiver<u64> {
        self.inner.changes.subscribe_to(root)
    }

    fn owner(&self) -> OwnerId {
        self.inner.owner.clone()
    }

    fn owner_state(&self, owner: OwnerId) -> BoxFuture<'_, Result<OwnerState, StoreError>> {
        if owner == self.inner.owner {
            return Box::pin(ready(Ok(OwnerState::Alive)));
        }
        self.read(move |client| Box::pin(owners::state(client, owner.clone())))
    }

    fn info(&self) -> StoreInfo {
        StoreInfo { kind: "postgres", path: None, server: Some(self.inner.place.name.clone()) }
    }

    fn space(&self) -> BoxFuture<'_, Result<Space, StoreError>> {
        self.read(|client| Box::pin(read::space(client)))
    }

    fn tree_size(&self, root: SessionId) -> BoxFuture<'_, Result<TreeSize, StoreError>> {
        self.read(move |client| Box::pin(read::tree_size(client, root.clone())))
    }

    fn reclaim(&self) -> BoxFuture<'_, Result<Reclaimed, StoreError>> {
        Box::pin(async {
            let before = self.space().await?;
            self.read(|client| {
                Box::pin(async move {
                    Ok(client
                        .batch_execute("VACUUM sessions, trees, runs, events, origins, commands")
                        .await?)
                })
            })
            .await?;
            Ok(Reclaimed { before, after: self.space().await?, left: Some(Unreclaimed::Server) })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            self.inner.closed.store(true, Ordering::Release);
            self.link.end().await;
            // Given back here and not by the link, which may not have been connected yet. Where the database cannot be
            // reached it runs out by itself.
            let _ = timeout(link::END, owners::give_back(&self.inner.pool, &self.inner.owner)).await;
            self.inner.pool.close();
            Ok(())
        })
    }
}
