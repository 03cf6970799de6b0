//! From SQLite's errors to ours.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// What to do about a place that cannot hold a store. No other place is ever taken instead.
pub(super) const INSTEAD: &str =
    "name another file with --db or OFFSPRING_DB, or keep nothing with --db memory:";

/// Why a statement or a row failed, before the store puts its name to it.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite refused.
    Sql(rusqlite::Error),
    /// A row holds what no version of ours wrote.
    Row(String),
    /// More than the schema can hold.
    Limit(String),
    /// A refusal of ours.
    Refused(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<offspring_protocol::BadId> for Fault {
    fn from(error: offspring_protocol::BadId) -> Self {
        Self::Refused(StoreError::BadId(error))
    }
}

impl Fault {
    /// Whether somebody else holds the file and waiting may help.
    pub(super) fn is_busy(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// Which file it is; names it in every error.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) busy_timeout: Duration,
}

impl Place {
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// `<db>` with something behind it, `-wal` for example.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    pub(super) fn busy(&self, waited: Duration) -> StoreError {
        StoreError::Busy { store: self.name(), waited }
    }

    pub(super) fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt { store: self.name(), detail: detail.into() }
    }

    pub(super) fn unusable(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Unusable { store: self.name(), detail: detail.into() }
    }

    /// What the file system said about a file or directory beside or above the store.
    pub(super) fn io(&self, what: &str, path: &Path, error: &std::io::Error) -> StoreError {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            return self.full(error.to_string());
        }
        self.unusable(format!(
            "{what} {} failed: {error}; make its directory writable, or {INSTEAD}",
            path.display()
        ))
    }

    fn full(&self, detail: String) -> StoreError {
        StoreError::Full { store: self.name(), free_bytes: self.free_bytes(), detail }
    }

    /// What its file system still takes from us.
    fn free_bytes(&self) -> Option<u64> {
        #[cfg(unix)]
        {
            let found = rustix::fs::statvfs(self.path.parent()?).ok()?;
            Some(found.f_bavail.saturating_mul(found.f_frsize))
        }
        #[cfg(not(unix))]
        None
    }

    pub(super) fn fault(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Refused(error) => error,
            Fault::Row(detail) => self.corrupt(detail),
            Fault::Limit(detail) => self.unusable(detail),
            Fault::Sql(error) => self.sql(&error),
        }
    }

    fn sql(&self, error: &rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => self.busy(self.busy_timeout),
            Some(ErrorCode::DiskFull) => self.full(error.to_string()),
            _ if refuses_to_write(error) => self.full(error.to_string()),
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::TypeMismatch
                | ErrorCode::ConstraintViolation,
            ) => self.corrupt(error.to_string()),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                self.unusable(format!("{error}; make the file and its directory writable, or {INSTEAD}"))
            }
            Some(ErrorCode::SystemIoFailure) => self.unusable(format!("{error}; the disk refuses it")),
            Some(_) => self.unusable(error.to_string()),
            // Not from SQLite: a column of another type than we write, an index out of range …
            None => self.corrupt(error.to_string()),
        }
    }
}

/// Errors of writing, which mean what "disk full" means: a limit on the size of files, a quota and some file
/// systems speak in these, the last only when what was written is synced.
fn refuses_to_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    let rusqlite::Error::SqliteFailure(error, _) = error else { return false };
    matches!(
        error.extended_code,
        ffi::SQLITE_IOERR_WRITE
            | ffi::SQLITE_IOERR_FSYNC
            | ffi::SQLITE_IOERR_DIR_FSYNC
            | ffi::SQLITE_IOERR_TRUNCATE
            | ffi::SQLITE_IOERR_SHMSIZE
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn every_refusal_to_write_is_a_lack_of_room_and_no_refusal_to_read_is() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place { path: directory.path().join("x.db"), busy_timeout: Duration::ZERO };
        let of = |code| place.sql(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_DIR_FSYNC,
            ffi::SQLITE_IOERR_TRUNCATE,
            ffi::SQLITE_IOERR_SHMSIZE,
        ] {
            let StoreError::Full { store, free_bytes, .. } = of(code) else { panic!("{code}: {}", of(code)) };
            assert!(store.ends_with("x.db") && free_bytes.is_some());
        }
        for code in [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ, ffi::SQLITE_IOERR_LOCK] {
            assert!(matches!(of(code), StoreError::Unusable { .. }), "{code}: {}", of(code));
        }
    }

    #[test]
    fn a_full_disk_says_so_and_a_refusal_with_room_says_what_it_could_be() {
        let full = |free_bytes| StoreError::Full {
            store: "/x.db".to_owned(),
            free_bytes,
            detail: "disk I/O error".to_owned(),
        };
        let said = full(Some(4_096)).to_string();
        assert!(
            said.starts_with("no room for the store /x.db, ")
                && said.ends_with(": 4.0 KiB free on its file system")
        );
        let said = full(Some(3 << 30)).to_string();
        assert!(said.contains("3.0 GiB are free") && said.contains("(disk I/O error)"), "{said}");
        assert!(said.contains("ulimit -f"), "{said}");
    }
}
