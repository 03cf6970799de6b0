//! Giving room back: the file is built anew without what was deleted, and the log is emptied.
//!
//! What is deleted is overwritten with zeros at once. A copy of a row that SQLite made when it moved the row to
//! another page may remain in a gap of the first one; only building the file anew leaves none.

use std::{
    fs,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use offspring_protocol::OwnerId;
use rusqlite::{Connection, ErrorCode};

use super::{
    fault::{Fault, Place},
    owners,
    turnstile::Turnstile,
    writer::empty_log,
};
use crate::store::{Reclaimed, Space, StoreError, Unreclaimed};

/// How long readers may be in the way of emptying the log.
const READERS: Duration = Duration::from_secs(3);
/// How long the store is built anew while other programs use it: they wait 30 s for their turn, and moving the log
/// into the file takes some of that too.
const OTHERS: Duration = Duration::from_secs(10);
/// Up to here the new file is built in memory, beyond it in a nameless file in the directory for temporary files.
const IN_MEMORY: u64 = 64 << 20;

pub(super) struct Reclaim<'a> {
    pub(super) place: &'a Place,
    pub(super) conn: &'a Connection,
    pub(super) turnstile: &'a Turnstile,
    pub(super) owners: &'a Path,
    pub(super) owner: &'a OwnerId,
}

impl Reclaim<'_> {
    pub(super) fn run(&self) -> Result<Reclaimed, StoreError> {
        let fault = |fault: Fault| self.place.fault(fault);
        let before = space(self.conn, self.place).map_err(fault)?;
        let bound = self.place.busy_timeout;
        let Some(turn) = self.turnstile.enter(Instant::now() + bound)? else {
            return Err(self.place.busy(bound));
        };
        self.conn.busy_timeout(bound).map_err(|error| fault(error.into()))?;
        let mut left = match self.build_anew(before.used_bytes) {
            Ok(()) => None,
            Err(Fault::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                Some(Unreclaimed::Writers)
            }
            Err(other) => match self.place.fault(other) {
                full @ StoreError::Full { .. } => Some(Unreclaimed::NoRoom { detail: full.to_string() }),
                error => return Err(error),
            },
        };
        if !self.log_is_emptied() {
            left = Some(Unreclaimed::Reader);
        }
        drop(turn);
        Ok(Reclaimed { before, after: space(self.conn, self.place).map_err(fault)?, left })
    }

    fn build_anew(&self, used_bytes: u64) -> Result<(), Fault> {
        let (done, over) = mpsc::channel::<()>();
        let interrupt = self.conn.get_interrupt_handle();
        let others = owners::others(self.owners, self.owner);
        let built = thread::scope(|scope| {
            if others {
                scope.spawn(move || {
                    if over.recv_timeout(OTHERS) == Err(mpsc::RecvTimeoutError::Timeout) {
                        interrupt.interrupt();
                    }
                });
            }
            let place = if used_bytes > IN_MEMORY { "FILE" } else { "MEMORY" };
            let built = self
                .conn
                .pragma_update(None, "temp_store", place)
                .and_then(|()| self.conn.execute_batch("VACUUM"));
            drop(done);
            built
        });
        self.conn.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(built?)
    }

    fn log_is_emptied(&self) -> bool {
        let deadline = Instant::now() + READERS.min(self.place.busy_timeout);
        // Readers give way by themselves; what waits for them is this loop.
        let _ = self.conn.busy_timeout(Duration::ZERO);
        loop {
            if empty_log(self.conn) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How much room the store takes.
pub(super) fn space(conn: &Connection, place: &Place) -> Result<Space, Fault> {
    let pragma = |name: &str| {
        conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    };
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    let length = |suffix: &str| fs::metadata(place.beside(suffix)).map_or(0, |found| found.len());
    Ok(Space {
        file_bytes: ["", "-wal"].into_iter().map(length).sum(),
        used_bytes: pages.saturating_mul(pragma("page_size")?),
    })
}
