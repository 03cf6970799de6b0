//! Looking at a store without opening it as one: what a person who asks whether all is well wants to know. Nothing is
//! made, migrated, recovered or locked for long.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access, statvfs};

use super::{
    fault::{Fault, INSTEAD, Place},
    file::{check_length, check_pages, refuse_network},
    owners,
    private::refuse_others,
    schema,
};
use crate::store::{OwnerState, StoreError};

/// What there is at the place of a store, see [`look`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreLook {
    /// The file; `None` when there is none yet.
    pub file: Option<FileLook>,
    /// Other files of the store: its log and index (`-wal`, `-shm`), copies that a migration kept.
    pub beside: Vec<(PathBuf, u64)>,
    /// Bytes that are left where the file is or would be, for us; `None` when that cannot be told.
    pub free_bytes: Option<u64>,
    /// Programs that have it open.
    pub open_by: usize,
    /// What of it others than its user may read or write.
    pub open_to_others: Vec<PathBuf>,
}

/// The file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLook {
    /// Its length.
    pub bytes: u64,
    /// The version of its schema.
    pub schema: u32,
    /// The newest version this program knows; an older file is brought to it by the next command that opens it.
    pub newest_schema: u32,
    /// How many roots it holds.
    pub roots: u64,
    /// How many sessions it holds, roots too.
    pub sessions: u64,
    /// Whether it was checked to its end; else the bound came first.
    pub is_checked: bool,
}

impl StoreLook {
    /// All bytes that belong to it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let beside: u64 = self.beside.iter().map(|(_, bytes)| bytes).sum();
        self.file.as_ref().map_or(0, |file| file.bytes) + beside
    }
}

/// Looks at the store at this path, and checks its pages for as long as `bound`.
///
/// # Errors
/// What [`SqliteStore::open`](super::SqliteStore::open) would say: [`StoreError::Unusable`] for a place that cannot
/// hold a store or be written to, [`StoreError::Corrupt`], [`StoreError::Newer`], [`StoreError::Busy`].
pub fn look(path: &Path, bound: Duration) -> Result<StoreLook, StoreError> {
    let mut place = Place { path: path.to_owned(), busy_timeout: Duration::from_secs(1) };
    place.path = std::path::absolute(path).map_err(|error| place.io("finding", path, &error))?;
    let found = match fs::metadata(&place.path) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(place.io("looking at", &place.path, &error)),
    };
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return Err(place.unusable(format!("it is no file; {INSTEAD}")));
    }
    refuse_others(&place)?;
    let directory = nearest(&place)?;
    refuse_network(&place, &directory)?;
    let mut look = beside(&place);
    look.free_bytes = statvfs(&directory).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    look.open_by = programs(&place.beside(owners::DIRECTORY));
    if let Some(found) = found {
        writable(&place, &place.path, Access::READ_OK | Access::WRITE_OK)?;
        if found.permissions().mode() & 0o077 != 0 {
            look.open_to_others.insert(0, place.path.clone());
        }
        check_length(&place)?;
        look.file = Some(file(&place, found.len(), bound)?);
    }
    Ok(look)
}

/// The directory of the file, or the one above it that is there: writable, so that the file can be.
fn nearest(place: &Place) -> Result<PathBuf, StoreError> {
    let above = place.path.ancestors().skip(1).find(|path| fs::symlink_metadata(path).is_ok());
    let directory = above.unwrap_or_else(|| Path::new("/")).to_owned();
    if !directory.is_dir() {
        let why = std::io::Error::from(std::io::ErrorKind::NotADirectory);
        return Err(place.io("writing to", &directory, &why));
    }
    writable(place, &directory, Access::WRITE_OK | Access::EXEC_OK)?;
    Ok(directory)
}

fn writable(place: &Place, path: &Path, wanted: Access) -> Result<(), StoreError> {
    access(path, wanted).map_err(|error| place.io("writing to", path, &error.into()))
}

/// The files whose names begin with the store's, and which of them others may read.
fn beside(place: &Place) -> StoreLook {
    let mut look = StoreLook::default();
    let prefix = place.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = place.path.parent().and_then(|parent| fs::read_dir(parent).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix(&prefix).filter(|rest| rest.starts_with(['.', '-']));
        if let (Some(_), Ok(found)) = (rest, entry.metadata()) {
            if found.mode() & 0o077 != 0 {
                look.open_to_others.push(entry.path());
            }
            if found.is_file() {
                look.beside.push((entry.path(), found.len()));
            }
        }
    }
    look.beside.sort();
    look.open_to_others.sort();
    look
}

/// How many owners of trees live. Their files are left as they are.
fn programs(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let locks = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "lock"));
    locks.filter(|lock| owners::is_held(&lock.path()) == OwnerState::Alive).count()
}

fn file(place: &Place, bytes: u64, bound: Duration) -> Result<FileLook, StoreError> {
    let log = || fs::metadata(place.beside("-wal")).map_or(0, |log| log.len());
    loop {
        // Without a log nobody has it open, and the file alone is the store. Opened as what may change, SQLite would
        // make a log and an index beside it, and leave them.
        let alone = log() == 0;
        match read(place, alone, bytes, bound) {
            // Somebody has begun to write meanwhile.
            Err(_) if alone && log() > 0 => {}
            read => return read,
        }
    }
}

fn read(place: &Place, alone: bool, bytes: u64, bound: Duration) -> Result<FileLook, StoreError> {
    let sql = |error: rusqlite::Error| place.fault(Fault::Sql(error));
    let conn = open(&place.path, alone).map_err(sql)?;
    conn.busy_timeout(place.busy_timeout).map_err(sql)?;
    let schema = schema::check(&conn, place)?;
    check_pages(&conn, place).map_err(|fault| place.fault(fault))?;
    let is_checked = check(place, &conn, bound)?;
    let count = |condition: &str| -> Result<u64, StoreError> {
        let counted = format!("SELECT count(*) FROM sessions {condition}");
        conn.query_row(&counted, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs).map_err(sql)
    };
    let (roots, sessions) = (count("WHERE depth = 0")?, count("")?);
    Ok(FileLook { bytes, schema, newest_schema: schema::VERSION, roots, sessions, is_checked })
}

fn open(path: &Path, alone: bool) -> Result<Connection, rusqlite::Error> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if !alone {
        return Connection::open_with_flags(path, flags);
    }
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
}

/// Whether every page is what it should be; `false` when the bound came first.
fn check(place: &Place, conn: &Connection, bound: Duration) -> Result<bool, StoreError> {
    let interrupt = conn.get_interrupt_handle();
    let (done, ended) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(bound) == Err(mpsc::RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    });
    let found: Result<String, _> = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    drop(done);
    let _ = watch.join();
    match found {
        Ok(found) if found == "ok" => Ok(true),
        // The first line only says which database it is.
        Ok(found) => Err(place.corrupt(found.lines().last().unwrap_or_default())),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok(false),
        Err(error) => Err(place.fault(Fault::Sql(error))),
    }
}
