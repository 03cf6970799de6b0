//! The schema, its versions, and whether a file is one of ours.

use rusqlite::{Connection, TransactionBehavior};
use sha2::{Digest, Sha256};

use super::fault::{Fault, Place};
use crate::store::StoreError;

/// `OFSP` in SQLite's header: the file is ours.
const APPLICATION_ID: i64 = 0x4F46_5350;

/// Name and SQL of each version, from 1; never changed once released, only added to.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_sessions", include_str!("../../../migrations/sqlite/0001_sessions.sql")),
    ("0002_origins", include_str!("../../../migrations/sqlite/0002_origins.sql")),
];

/// The newest schema this program knows.
fn supported() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Brings a file of ours, or an empty one, to the newest schema.
pub(super) fn migrate(conn: &mut Connection, place: &Place) -> Result<(), StoreError> {
    if check(conn, place)? == supported() {
        return Ok(());
    }
    apply_missing(conn, place).map_err(|fault| place.fault(fault))
}

/// The file's version; refuses what is not ours, or newer than we are.
fn check(conn: &Connection, place: &Place) -> Result<u32, StoreError> {
    let (version, ours) = versions(conn).map_err(|fault| place.fault(fault))?;
    if !ours {
        return Err(place
            .unusable("it is a database of another program; name another file with --db or OFFSPRING_DB"));
    }
    let found =
        u32::try_from(version).map_err(|_| place.corrupt(format!("its schema version is {version}")))?;
    if found > supported() {
        return Err(StoreError::Newer { store: place.name(), found, supported: supported() });
    }
    Ok(found)
}

/// The schema version, and whether the file is ours or still empty.
fn versions(conn: &Connection) -> Result<(i64, bool), Fault> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let empty = application == 0 && version == 0 && tables == 0;
    Ok((version, application == APPLICATION_ID || empty))
}

fn apply_missing(conn: &mut Connection, place: &Place) -> Result<(), Fault> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Again, now that nobody else can be at it.
    let present = check(&tx, place)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)",
    )?;
    for (version, (name, sql)) in (1_u32..).zip(MIGRATIONS) {
        let sum = sha256(sql);
        if version > present {
            tx.execute_batch(sql)?;
            tx.execute("INSERT INTO migrations VALUES (?1, ?2, ?3)", (version, name, &sum))?;
            continue;
        }
        let applied: String =
            tx.query_row("SELECT sha256 FROM migrations WHERE version = ?1", [version], |row| row.get(0))?;
        if applied != sum {
            return Err(Fault::Row(format!("migration {name} was applied in another form")));
        }
    }
    tx.pragma_update(None, "user_version", supported())?;
    tx.commit()?;
    Ok(())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_migration_changes_nothing_and_a_newer_schema_is_refused() {
        let place = Place { path: "x.db".into(), busy_timeout: Duration::ZERO };
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &place).unwrap();
        migrate(&mut conn, &place).unwrap();
        let applied: i64 = conn.query_row("SELECT count(*) FROM migrations", [], |row| row.get(0)).unwrap();
        assert_eq!(applied, i64::from(supported()));
        conn.pragma_update(None, "user_version", supported() + 1).unwrap();
        let refused = migrate(&mut conn, &place);
        assert!(matches!(refused, Err(StoreError::Newer { found, .. }) if found == supported() + 1));
    }

    #[test]
    fn a_database_of_another_program_is_left_alone() {
        let place = Place { path: "x.db".into(), busy_timeout: Duration::ZERO };
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(matches!(migrate(&mut conn, &place), Err(StoreError::Unusable { .. })));
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
    }
}
