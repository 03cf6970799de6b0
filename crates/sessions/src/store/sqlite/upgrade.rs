//! A store of an older version becomes one of ours: first a copy of it is kept beside it, then everything
//! changes in one transaction.
//!
//! Killed at any moment, the file is of the old version whole or of the new one whole. Nobody else writes
//! meanwhile: from the first look to the end we hold SQLite's write lock, which older versions respect too.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Instant,
};

use offspring_protocol::{OwnerId, SessionId};
use rusqlite::{
    Connection, OpenFlags, Transaction, TransactionBehavior,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    code,
    fault::{Fault, Place},
    file::{self, MAKING, remove_if_there, sync_directory},
    owners::{self, open_private},
    schema,
    turnstile::lock_until,
};
use crate::store::{OwnerState, StoreError};

/// A store of an older version was brought to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgraded {
    /// The schema version it had.
    pub from: u32,
    /// The schema version it has now.
    pub to: u32,
    /// The store as it was, whole: the version that wrote it opens this file. Nothing deletes it by itself.
    pub copy: PathBuf,
}

/// The name of a copy before it is whole, in the directory of owners.
const UNBORN: &str = ".copy";

/// Moments between two steps; a test ends the process at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Locked,
    CopyBegun,
    CopyWritten,
    CopySynced,
    CopyNamed,
    Changed,
    Committed,
}

#[cfg(not(test))]
const fn reached(_: Step) {}
#[cfg(test)]
use tests::reached;

/// Brings the file of `conn` to the newest schema. `None` when another process was as quick.
pub(super) fn upgrade(
    conn: &mut Connection,
    place: &Place,
    owners: &Path,
) -> Result<Option<Upgraded>, StoreError> {
    // Two that want the same would make two copies.
    let path = owners.join(MAKING);
    let lock = open_private(&path).map_err(|error| place.io("creating", &path, &error))?;
    if !lock_until(place, &lock, Instant::now() + place.busy_timeout)? {
        return Err(place.busy(place.busy_timeout));
    }
    let tx = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| place.fault(error.into()))?;
    let from = schema::check(&tx, place)?;
    if from == schema::VERSION {
        return Ok(None);
    }
    refuse_in_use(&tx, place, owners, from)?;
    reached(Step::Locked);
    let (copy, is_new) = keep_copy(place, owners, from)?;
    let changed = schema::apply_missing(&tx, place).and_then(|()| {
        reached(Step::Changed);
        Ok(tx.commit()?)
    });
    match changed {
        Ok(()) => {
            reached(Step::Committed);
            Ok(Some(Upgraded { from, to: schema::VERSION, copy }))
        }
        Err(fault) => {
            // Nothing changed, so the copy is of no use; another attempt would add one more.
            if is_new && schema::check(conn, place).is_ok_and(|version| version == from) {
                remove_if_there(place, &copy)?;
            }
            Err(place.fault(fault))
        }
    }
}

/// An older version that is at work would go on in its own way in tables that are no longer its own.
fn refuse_in_use(
    tx: &Transaction<'_>,
    place: &Place,
    directory: &Path,
    found: u32,
) -> Result<(), StoreError> {
    let open = open_trees(tx).map_err(|fault| place.fault(fault))?;
    match open.into_iter().find(|(_, owner)| owners::state(directory, owner) == OwnerState::Alive) {
        None => Ok(()),
        Some((root, _)) => {
            Err(StoreError::InUse { store: place.name(), found, supported: schema::VERSION, root })
        }
    }
}

/// The roots of trees with open runs, and their owners. In words that every version so far understands.
fn open_trees(conn: &Connection) -> Result<Vec<(SessionId, OwnerId)>, Fault> {
    let mut statement = conn.prepare(
        "SELECT s.id, t.owner FROM trees t JOIN sessions s ON s.key = t.key WHERE t.open_runs > 0 ORDER BY t.key",
    )?;
    let mut rows = statement.query([])?;
    let mut open = Vec::new();
    while let Some(row) = rows.next()? {
        let (root, owner): (String, String) = (row.get(0)?, row.get(1)?);
        open.push((code::id(SessionId::new(root))?, code::id(OwnerId::new(owner))?));
    }
    Ok(open)
}

/// A copy of the store, whole and on the disk before it has its name, which no other copy had. Says whether
/// it was made now: one with the same content may be there, from an attempt that came no further.
fn keep_copy(place: &Place, owners: &Path, version: u32) -> Result<(PathBuf, bool), StoreError> {
    let unborn = owners.join(UNBORN);
    let made = make_copy(place, &unborn).map_err(|error| about_the_copy(error, version));
    let made = made.and_then(|()| name_copy(place, &unborn, version));
    if !matches!(made, Ok((_, true))) {
        // Half of a copy takes room, which may be what there is too little of.
        let removed = remove_if_there(place, &unborn);
        return made.and_then(|named| removed.map(|()| named));
    }
    sync_directory(place)?;
    reached(Step::CopyNamed);
    made
}

/// It is the copy that there is no room for, not the store.
fn about_the_copy(error: StoreError, version: u32) -> StoreError {
    match error {
        StoreError::Full { store, free_bytes, detail } => {
            let store =
                format!("{store}, of which a copy is kept before it is upgraded from schema {version}");
            StoreError::Full { store, free_bytes, detail }
        }
        other => other,
    }
}

fn make_copy(place: &Place, unborn: &Path) -> Result<(), StoreError> {
    let io = |error: std::io::Error| place.io("writing", unborn, &error);
    // What an attempt that was killed left behind; SQLite writes into no file that has something in it.
    remove_if_there(place, unborn)?;
    let file = open_private(unborn).map_err(io)?;
    reached(Step::CopyBegun);
    // SQLite's own copy, from a connection that is in no transaction: consistent, without what was deleted,
    // and every row is read for it, so that a damaged store is found before it is changed.
    let reader =
        file::open(place, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| place.fault(error.into()))?;
    let target = ToSqlOutput::Borrowed(ValueRef::Text(unborn.as_os_str().as_encoded_bytes()));
    reader.execute("VACUUM INTO ?1", [target]).map_err(|error| place.fault(error.into()))?;
    reached(Step::CopyWritten);
    file.sync_all().map_err(io)?;
    reached(Step::CopySynced);
    Ok(())
}

/// Gives the copy the first name that is free, or finds one that is the same.
fn name_copy(place: &Place, unborn: &Path, version: u32) -> Result<(PathBuf, bool), StoreError> {
    let io = |error: std::io::Error| place.io("keeping a copy of", &place.path, &error);
    let mut name = place.beside(&format!(".v{version}-backup"));
    for number in 2_u32.. {
        if !fs::exists(&name).map_err(io)? {
            break;
        }
        if same_bytes(&name, unborn).map_err(io)? {
            return Ok((name, false));
        }
        name = place.beside(&format!(".v{version}-backup-{number}"));
    }
    fs::rename(unborn, &name).map_err(io)?;
    Ok((name, true))
}

fn same_bytes(a: &Path, b: &Path) -> std::io::Result<bool> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (BufReader::new(a), BufReader::new(b));
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let shared = left.len().min(right.len());
        if left[..shared] != right[..shared] {
            return Ok(false);
        }
        if shared == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        a.consume(shared);
        b.consume(shared);
    }
}

#[cfg(test)]
mod tests;
