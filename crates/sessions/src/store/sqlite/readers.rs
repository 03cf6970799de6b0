//! The connections that only read.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{
    fault::{Fault, Place},
    file,
};
use crate::store::StoreError;

/// A few connections, each used by one blocking task at a time.
#[derive(Debug)]
pub(super) struct Readers {
    place: Place,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    closed: AtomicBool,
}

impl Readers {
    pub(super) fn new(place: &Place, count: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(count.max(1)));
        Arc::new(Self {
            place: place.clone(),
            idle: Mutex::default(),
            permits,
            closed: AtomicBool::new(false),
        })
    }

    /// Reads one state of the store: the whole of `read` sees the same commits.
    pub(super) async fn read<T: Send + 'static>(
        self: Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permits = Arc::clone(&self.permits);
        // Reads never wait for a writer (WAL), so this wait is as long as the reads before it.
        let permit = permits.acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let reading = tokio::task::spawn_blocking(move || {
            let done = self.read_now(read);
            drop(permit);
            done
        });
        match reading.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::Closed),
        }
    }

    fn read_now<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reading = || -> Result<(T, Connection), Fault> {
            let conn = match idle {
                Some(conn) => conn,
                None => file::open_reader(&self.place)?,
            };
            conn.prepare_cached("BEGIN")?.execute([])?;
            let found = read(&conn)?;
            conn.prepare_cached("COMMIT")?.execute([])?;
            Ok((found, conn))
        };
        // A connection that failed is not used again.
        let (found, conn) = reading().map_err(|fault| self.place.fault(fault))?;
        if !self.closed.load(Ordering::Acquire) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        }
        Ok(found)
    }

    /// Refuses every later read and closes what is idle.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
