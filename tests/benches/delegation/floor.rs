//! The floor: the rows of a finished run written again by bare rusqlite, nothing else.
//!
//! The same file (made by the store, so with its schema and settings), the same rows, each run written three
//! times, the tree's row once per commit, as many commits, one of each tree synced to the disk.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, Statement, params_from_iter, types::Value};

use crate::{Failed, report::Report};

/// One tree as its rows are in the tables.
#[derive(Default)]
struct Tree {
    key: i64,
    row: Vec<Value>,
    sessions: Vec<Vec<Value>>,
    runs: Vec<Vec<Value>>,
    events: Vec<Vec<Value>>,
}

/// Writes what is in `from` into `to`. Gives the time for that.
pub(crate) fn replay(from: &Path, to: &Path, commits: u64, report: &mut Report) -> Result<Duration, Failed> {
    let source = Connection::open(from)?;
    let trees = read(&source)?;
    drop(SqliteStore::open(to, SqliteOptions::default())?);
    let target = Connection::open(to)?;
    for setting in ["secure_delete = ON", "wal_autocheckpoint = 4000", "temp_store = MEMORY"] {
        target.query_row(&format!("PRAGMA {setting}"), [], |_| Ok(())).or_else(done)?;
    }
    target.pragma_update(None, "cache_size", -8_000)?;
    let per_tree = usize::try_from(commits)?.div_ceil(trees.len().max(1)).max(1);
    let began = Instant::now();
    for tree in &trees {
        write(&target, tree, per_tree)?;
    }
    let took = began.elapsed();
    let rows = |conn: &Connection| -> Result<i64, rusqlite::Error> {
        let counts = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM runs) + (SELECT count(*) FROM sessions)";
        conn.query_row(counts, [], |row| row.get(0))
    };
    let (there, here) = (rows(&source)?, rows(&target)?);
    let same = if there == here { Ok(()) } else { Err(format!("{there} rows there, {here} here")) };
    report.check("the floor writes the same rows", same);
    Ok(took)
}

/// A setting without an answer is no error.
fn done(error: rusqlite::Error) -> Result<(), rusqlite::Error> {
    if matches!(error, rusqlite::Error::QueryReturnedNoRows) { Ok(()) } else { Err(error) }
}

fn read(conn: &Connection) -> Result<Vec<Tree>, rusqlite::Error> {
    let mut trees: Vec<Tree> = rows(conn, "SELECT * FROM trees ORDER BY key", ())?
        .into_iter()
        .map(|row| Tree { key: key(&row), row, ..Tree::default() })
        .collect();
    for tree in &mut trees {
        let of = [tree.key];
        tree.sessions = rows(conn, "SELECT * FROM sessions WHERE coalesce(tree, key) = ?1 ORDER BY key", of)?;
        let runs = "SELECT r.* FROM sessions s JOIN runs r ON r.session = s.key WHERE coalesce(s.tree, s.key) = ?1 ORDER BY s.key";
        tree.runs = rows(conn, runs, of)?;
        tree.events = rows(conn, "SELECT * FROM events WHERE key >> 32 = ?1 ORDER BY key", of)?;
    }
    Ok(trees)
}

fn key(row: &[Value]) -> i64 {
    match row.first() {
        Some(Value::Integer(key)) => *key,
        _ => 0,
    }
}

fn rows(
    conn: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<Vec<Value>>, rusqlite::Error> {
    let mut statement = conn.prepare(sql)?;
    let columns = statement.column_count();
    let rows = statement.query_map(parameters, |row| (0..columns).map(|column| row.get(column)).collect())?;
    rows.collect()
}

/// Rows and their runs first, then per child of the log its run's second and third state, as a team does it.
fn write(conn: &Connection, tree: &Tree, commits: usize) -> Result<(), rusqlite::Error> {
    let mut session = insert(conn, "INSERT INTO sessions", tree.sessions.first())?;
    let mut run = insert(conn, "INSERT OR REPLACE INTO runs", tree.runs.first())?;
    let mut event = insert(conn, "INSERT INTO events", tree.events.first())?;
    let mut row = insert(conn, "INSERT OR REPLACE INTO trees", Some(&tree.row))?;
    // Each part of the list of events takes its share of the other rows with it.
    let share = |of: usize, part: usize| of * part / commits..of * (part + 1) / commits;
    for part in 0..commits {
        if part + 1 == commits {
            // The end of the root is synced.
            conn.pragma_update(None, "synchronous", "FULL")?;
        } else if part == 0 {
            conn.pragma_update(None, "synchronous", "NORMAL")?;
        }
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for place in share(tree.sessions.len(), part) {
            session.execute(params_from_iter(&tree.sessions[place]))?;
        }
        for _ in 0..3 {
            for place in share(tree.runs.len(), part) {
                run.execute(params_from_iter(&tree.runs[place]))?;
            }
        }
        for place in share(tree.events.len(), part) {
            event.execute(params_from_iter(&tree.events[place]))?;
        }
        row.execute(params_from_iter(&tree.row))?;
        conn.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn insert<'a>(
    conn: &'a Connection,
    into: &str,
    like: Option<&Vec<Value>>,
) -> Result<Statement<'a>, rusqlite::Error> {
    let places: Vec<String> = (1..=like.map_or(1, Vec::len)).map(|place| format!("?{place}")).collect();
    conn.prepare(&format!("{into} VALUES ({})", places.join(", ")))
}
