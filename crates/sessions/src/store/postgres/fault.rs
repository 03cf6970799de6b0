//! From PostgreSQL's errors to ours.

use std::{error::Error as _, time::Duration};

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use crate::store::StoreError;

/// Why a statement or a row failed, before the store puts its name to it.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is gone, or there is none: what was not committed is not there. Another one may do.
    Lost(String),
    /// The transaction lost against another one; the same once more may do.
    Again,
    /// Others held what we need for as long as we wait.
    Busy,
    /// The server refused.
    Sql(tokio_postgres::Error),
    /// A row holds what no version of ours wrote.
    Row(String),
    /// More than the schema can hold, or what the server says about our place in it.
    Unusable(String),
    /// A refusal of ours.
    Refused(StoreError),
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

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(code) if ends_connection(code) => Self::Lost(said(&error)),
            // Somebody took the id between our look and our write: the next look finds it.
            Some(&SqlState::UNIQUE_VIOLATION)
                if error.as_db_error().and_then(|db| db.constraint()) == Some("sessions_id") =>
            {
                Self::Again
            }
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => Self::Again,
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Busy,
            Some(_) => Self::Sql(error),
            None if breaks_connection(&error) => Self::Lost(said(&error)),
            None => Self::Sql(error),
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(TimeoutType::Wait) => Self::Busy,
            PoolError::Timeout(_) => Self::Lost("connecting took too long".to_owned()),
            PoolError::Closed => Self::Refused(StoreError::Closed),
            other => Self::Unusable(other.to_string()),
        }
    }
}

/// The server has ended the connection, or takes none now.
fn ends_connection(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code)
        // idle_session_timeout
        || code.code() == "57P05"
}

/// Not the server speaks, but what is between it and us.
fn breaks_connection(error: &tokio_postgres::Error) -> bool {
    if error.is_closed() || error.to_string().starts_with("timeout") {
        return true;
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            // A certificate that is not right comes as an I/O error too, and does not get better.
            return !io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        }
        cause = inner.source();
    }
    false
}

/// What the server or the system said, on one line. No value of ours is in it: neither a password nor a row.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Which database it is; names it in every error.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Without a password.
    pub(super) name: String,
    pub(super) patience: Duration,
}

impl Place {
    pub(super) fn unusable(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Unusable { store: self.name.clone(), detail: detail.into() }
    }

    pub(super) fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt { store: self.name.clone(), detail: detail.into() }
    }

    pub(super) fn fault(&self, fault: Fault, waited: Duration) -> StoreError {
        let store = self.name.clone();
        match fault {
            Fault::Refused(error) => error,
            Fault::Row(detail) => self.corrupt(detail),
            Fault::Unusable(detail) => self.unusable(detail),
            Fault::Lost(detail) => StoreError::Unreachable { store, waited, detail },
            Fault::Again | Fault::Busy => StoreError::Busy { store, waited: waited.max(self.patience) },
            Fault::Sql(error) => self.sql(&error),
        }
    }

    fn sql(&self, error: &tokio_postgres::Error) -> StoreError {
        let detail = said(error);
        match error.code() {
            Some(&SqlState::DISK_FULL) => {
                StoreError::Full { store: self.name.clone(), free_bytes: None, detail }
            }
            Some(
                &SqlState::DATA_CORRUPTED
                | &SqlState::INDEX_CORRUPTED
                | &SqlState::UNDEFINED_TABLE
                | &SqlState::UNDEFINED_COLUMN,
            ) => self.corrupt(detail),
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => self.unusable(format!(
                "{detail}; it is a standby or was made read-only: name the primary server"
            )),
            Some(&SqlState::INVALID_CATALOG_NAME) => {
                self.unusable(format!("{detail}; make the database first: createdb NAME"))
            }
            Some(code) if code.code().starts_with("28") => self
                .unusable(format!("{detail}; give the password in PGPASSWORD or a file named by PGPASSFILE")),
            Some(_) => self.unusable(detail),
            // Not from the server: a column of another type than we write, an answer that cannot be read …
            None if error.source().is_some_and(|cause| cause.is::<tokio_postgres::types::WasNull>()) => {
                self.corrupt(detail)
            }
            None => self.unusable(detail),
        }
    }
}
