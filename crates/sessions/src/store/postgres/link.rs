//! The one connection of a process that listens and renews its lease.
//!
//! A notification is a hint and may be missed while the connection is away, so that everybody looks again once it is
//! back. The lease is measured by the clock of the database alone: a process that was stopped for longer can be taken
//! for dead, and the epoch in every commit keeps it from writing then (rule L13).

use std::{future::poll_fn, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use offspring_protocol::OwnerId;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client, GenericClient, config::Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::sync::CancellationToken;

use super::{changes::Changes, fault::Fault};

/// Whether owner `o` lives. After the server has started each has a whole lease to renew, as nobody could before.
pub(super) const LIVES: &str = "greatest(o.expires_at, \
     pg_postmaster_start_time() + o.lease_ms * interval '1 millisecond') > clock_timestamp()";

/// Between attempts to connect again; doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long the end waits for the lease to be given back.
pub(super) const END: Duration = Duration::from_secs(2);

/// What the connection needs.
pub(super) struct Work {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) owner: OwnerId,
    pub(super) lease: Duration,
    pub(super) channel: String,
    pub(super) changes: Arc<Changes>,
}

/// The handle of the task that has the connection.
#[derive(Debug)]
pub(super) struct Link {
    stop: CancellationToken,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Link {
    pub(super) fn start(work: Work) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(work.run(stop.clone()));
        Self { stop, task: tokio::sync::Mutex::new(Some(task)) }
    }

    /// Ends; nothing renews the lease any more.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // Bounded by itself; an error is a panic, which was told.
            let _ = task.await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Takes or renews a lease.
pub(super) async fn renew(
    client: &impl GenericClient,
    owner: &OwnerId,
    lease: Duration,
) -> Result<(), Fault> {
    let milliseconds = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    client
        .execute(
            "INSERT INTO owners AS o (id, lease_ms, expires_at) \
             VALUES ($1, $2::bigint, clock_timestamp() + $2::bigint * interval '1 millisecond') \
             ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at",
            &[&owner.as_str(), &milliseconds],
        )
        .await?;
    Ok(())
}

impl Work {
    async fn run(self, stop: CancellationToken) {
        let mut pause = PAUSES.0;
        while !stop.is_cancelled() {
            let fault = match self.hold(&stop, &mut pause).await {
                Ok(()) => return,
                Err(fault) => fault,
            };
            tracing::debug!(?fault, "the connection that listens was lost");
            if stop.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// One connection, from its beginning to its end. `Ok` when it was asked to end.
    async fn hold(&self, stop: &CancellationToken, pause: &mut Duration) -> Result<(), Fault> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, mut connection) = match stop.run_until_cancelled(connecting).await {
            None => return Ok(()),
            Some(connected) => connected?,
        };
        let hear = Box::pin(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(heard) = message? {
                    self.hear(heard.payload());
                }
            }
            Err(Fault::Lost("the server has closed the connection".to_owned()))
        });
        let keep = Box::pin(self.keep(client, stop, pause));
        match select(hear, keep).await {
            Either::Left((lost, _)) => lost,
            Either::Right((kept, _)) => kept,
        }
    }

    fn hear(&self, payload: &str) {
        // Our own commits were told when they were answered.
        match payload.split_once(' ') {
            Some((owner, _)) if owner == self.owner.as_str() => {}
            Some((_, root)) => self.changes.bump(root),
            None => self.changes.bump_all(),
        }
    }

    async fn keep(
        &self,
        client: Client,
        stop: &CancellationToken,
        pause: &mut Duration,
    ) -> Result<(), Fault> {
        client.batch_execute(&format!("LISTEN {}", self.channel)).await?;
        // What was committed while nobody listened was not heard.
        self.changes.bump_all();
        *pause = PAUSES.0;
        loop {
            match timeout(self.lease, renew(&client, &self.owner, self.lease)).await {
                Ok(renewed) => renewed?,
                Err(_) => return Err(Fault::Lost("no answer for as long as a lease".to_owned())),
            }
            if stop.run_until_cancelled(sleep(self.lease / 3)).await.is_none() {
                return Ok(());
            }
        }
    }
}
