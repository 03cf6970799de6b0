//! The schema, its versions, and whether a file is one of ours.

use rusqlite::{Connection, Transaction, TransactionBehavior};
use sha2::{Digest, Sha256};

use super::fault::{Fault, INSTEAD, Place};
use crate::store::StoreError;

/// `OFSP` in SQLite's header: the file is ours.
const APPLICATION_ID: i64 = 0x4F46_5350;

/// Name and SQL of each version, from 1; never changed once released, only added to.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_sessions", include_str!("../../../migrations/sqlite/0001_sessions.sql")),
    ("0002_origins", include_str!("../../../migrations/sqlite/0002_origins.sql")),
];

/// The newest schema this program knows, and the one of every store it has opened.
#[expect(clippy::cast_possible_truncation, reason = "a handful")]
pub const VERSION: u32 = MIGRATIONS.len() as u32;

/// Makes the tables of an empty file.
pub(super) fn migrate(conn: &mut Connection, place: &Place) -> Result<(), StoreError> {
    let made = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Fault::from);
    made.and_then(|tx| {
        // Again, now that nobody else can be at it.
        check(&tx, place)?;
        apply_missing(&tx, place)?;
        Ok(tx.commit()?)
    })
    .map_err(|fault| place.fault(fault))
}

/// The file's version, 0 when it is empty; refuses what is not ours, or newer than we are.
pub(super) fn check(conn: &Connection, place: &Place) -> Result<u32, StoreError> {
    let (version, ours) = versions(conn).map_err(|fault| place.fault(fault))?;
    if !ours {
        return Err(place.unusable(format!("it is a database of another program; {INSTEAD}")));
    }
    let found =
        u32::try_from(version).map_err(|_| place.corrupt(format!("its schema version is {version}")))?;
    if found > VERSION {
        return Err(StoreError::Newer { store: place.name(), found, supported: VERSION });
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

/// Applies what a file does not have yet, in the caller's transaction.
pub(super) fn apply_missing(tx: &Transaction<'_>, place: &Place) -> Result<(), Fault> {
    let present = check(tx, place)?;
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
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tables of the first version, in an empty file.
#[cfg(test)]
pub(super) fn make_first_version(conn: &Connection) {
    let (name, sql) = MIGRATIONS[0];
    conn.execute_batch(sql).unwrap();
    conn.execute_batch(
        "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL)",
    )
    .unwrap();
    conn.execute("INSERT INTO migrations VALUES (1, ?1, ?2)", (name, sha256(sql))).unwrap();
    conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;

    #[test]
    fn a_second_migration_changes_nothing_and_a_newer_schema_is_refused() {
        let place = Place { path: "x.db".into(), busy_timeout: Duration::ZERO };
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, &place).unwrap();
        migrate(&mut conn, &place).unwrap();
        let applied: i64 = conn.query_row("SELECT count(*) FROM migrations", [], |row| row.get(0)).unwrap();
        assert_eq!(applied, i64::from(VERSION));
        conn.pragma_update(None, "user_version", VERSION + 1).unwrap();
        let refused = migrate(&mut conn, &place);
        assert!(matches!(refused, Err(StoreError::Newer { found, .. }) if found == VERSION + 1));
    }

    /// A file that was migrated is never migrated again by the same number: a change of a released one would
    /// reach new files and no old one. Add a migration instead, and its sum here.
    #[test]
    fn a_released_migration_never_changes() {
        let released = [
            ("0001_sessions", "db1445824cd4bb7c81bbd663a7b906425d01bbebb8506be5f836c72b36835e4c"),
            ("0002_origins", "b0faba2a499c61e60b75b590882fd5a3207a19ca7d2a94179c0ec65ab2616e21"),
        ];
        let found: Vec<(&str, String)> = MIGRATIONS.iter().map(|(name, sql)| (*name, sha256(sql))).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, sum)| (*name, sum.as_str())).collect();
        assert_eq!(found, released);
    }

    /// What wrote the stores of old is what makes them today, to the byte.
    #[test]
    fn the_stores_of_every_version_were_made_by_these_migrations() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/stores");
        let dir = tempfile::tempdir().unwrap();
        for version in 1..=VERSION {
            let copy = dir.path().join(format!("v{version}.db"));
            std::fs::copy(fixtures.join(format!("v{version}.db")), &copy).unwrap();
            let conn = Connection::open(&copy).unwrap();
            let mut statement =
                conn.prepare("SELECT name || ' ' || sha256 FROM migrations ORDER BY version").unwrap();
            let applied = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
            let applied: Vec<String> = applied.map(Result::unwrap).collect();
            let ours = MIGRATIONS.iter().map(|(name, sql)| format!("{name} {}", sha256(sql)));
            let ours: Vec<String> = ours.take(version as usize).collect();
            assert_eq!(applied, ours, "v{version}.db");
        }
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
