//! Texts that are too long to be handed over: SQLite copies what is bound to a statement, and once more into the row.
//!
//! A long one is given a place of its size first and is written into that, so that a prompt of 16 MiB is not held three
//! times. It stands there as a blob; short ones are text. Readers take both.

use rusqlite::{
    Connection, MAIN_DB, Row,
    types::{ToSqlOutput, ValueRef},
};

use super::fault::Fault;

/// From this length on, in bytes, a text is long.
const LONG_BYTES: usize = 1 << 20;

/// What to bind for a text; [`fill`] follows.
pub(super) fn place(text: &str) -> ToSqlOutput<'_> {
    if text.len() >= LONG_BYTES { ToSqlOutput::ZeroBlob(text.len() as u64) } else { ToSqlOutput::from(text) }
}

/// Writes a long text into the place it was given.
pub(super) fn fill(conn: &Connection, table: &str, column: &str, key: i64, text: &str) -> Result<(), Fault> {
    if text.len() >= LONG_BYTES {
        let mut place = conn.blob_open(MAIN_DB, table, column, key, false)?;
        place.write_all_at(text.as_bytes(), 0)?;
        place.close()?;
    }
    Ok(())
}

/// A text, however it stands there.
pub(super) fn read(row: &Row<'_>, column: usize) -> Result<String, Fault> {
    match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Fault::Row(format!("column {column} is not UTF-8"))),
        },
        other => Err(Fault::Row(format!("column {column} holds {:?}, not text", other.data_type()))),
    }
}
