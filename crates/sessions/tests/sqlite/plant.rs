//! Small trees in a file.

use std::{path::Path, time::Duration};

use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

pub(crate) use crate::planted::*;

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

pub(crate) fn impatient(path: &Path, busy_timeout: Duration) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions { busy_timeout, ..SqliteOptions::default() }).unwrap()
}

/// SQLite's own look at the whole file.
pub(crate) fn check_integrity(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
