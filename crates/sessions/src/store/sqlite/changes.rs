//! Noticing commits of other processes.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::watch;

use super::{
    fault::{Fault, Place},
    file,
};

/// Counts commits; looks for those of other processes while somebody listens, and only then.
#[derive(Debug)]
pub(super) struct Changes {
    place: Place,
    count: watch::Sender<u64>,
    poller: Mutex<Poller>,
    wake: Condvar,
    period: Duration,
}

#[derive(Debug, Default)]
struct Poller {
    running: bool,
    closed: bool,
}

impl Changes {
    pub(super) fn new(place: &Place, period: Duration) -> Arc<Self> {
        let (poller, wake) = (Mutex::default(), Condvar::new());
        Arc::new(Self { place: place.clone(), count: watch::Sender::new(0), poller, wake, period })
    }

    fn lock(&self) -> MutexGuard<'_, Poller> {
        self.poller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bump(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    pub(super) fn subscribe(self: &Arc<Self>) -> watch::Receiver<u64> {
        let mut poller = self.lock();
        // Under the lock: a poller that is about to end sees this receiver, or we see that it ended.
        let receiver = self.count.subscribe();
        if !poller.running && !poller.closed {
            let changes = Arc::clone(self);
            let started = thread::Builder::new().name("store-changes".into()).spawn(move || changes.poll());
            match started {
                Ok(_) => poller.running = true,
                Err(error) => tracing::warn!(%error, "cannot watch for commits of other processes"),
            }
        }
        receiver
    }

    /// Ends the poller, now and for good.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    fn poll(&self) {
        let mut conn = None;
        let mut seen = None;
        loop {
            match self.look(&mut conn) {
                Ok(version) if seen != Some(version) => {
                    // Also for the first look: a commit may lie between the subscription and it.
                    seen = Some(version);
                    self.bump();
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::debug!(error = %self.place.fault(fault), "cannot look for commits of other processes");
                    (conn, seen) = (None, None);
                }
            }
            let mut poller = self.lock();
            if !poller.closed {
                let waited = self.wake.wait_timeout(poller, self.period);
                poller = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if poller.closed || self.count.receiver_count() == 0 {
                poller.running = false;
                return;
            }
        }
    }

    fn look(&self, conn: &mut Option<Connection>) -> Result<i64, Fault> {
        let conn = match conn {
            Some(conn) => conn,
            None => conn.insert(file::open_reader(&self.place)?),
        };
        Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
    }
}
