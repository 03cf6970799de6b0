//! From SQLite's errors to ours.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::ErrorCode;

use crate::store::StoreError;

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
        if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
            return StoreError::Full { store: self.name() };
        }
        self.unusable(format!(
            "{what} {} failed: {error}; make its directory writable, or name another file with --db or \
             OFFSPRING_DB",
            path.display()
        ))
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
            Some(ErrorCode::DiskFull) => StoreError::Full { store: self.name() },
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::TypeMismatch
                | ErrorCode::ConstraintViolation,
            ) => self.corrupt(error.to_string()),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                self.unusable(format!(
                    "{error}; make the file and its directory writable, or name another file with --db or \
                     OFFSPRING_DB"
                ))
            }
            Some(ErrorCode::SystemIoFailure) => self.unusable(format!("{error}; the disk refuses it")),
            Some(_) => self.unusable(error.to_string()),
            // Not from SQLite: a column of another type than we write, an index out of range …
            None => self.corrupt(error.to_string()),
        }
    }
}
