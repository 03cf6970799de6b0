//! Making and opening the file.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    SqliteOptions,
    fault::{Fault, INSTEAD, Place},
    owners::{DIRECTORY, open_private},
    private::{close_to_others, make_directory, refuse_others},
    schema,
    turnstile::lock_until,
    upgrade::{self, Upgraded},
};
use crate::store::StoreError;

/// Statements a connection keeps prepared; more than we have.
const STATEMENTS: usize = 64;

/// Locked by who makes or upgrades the file, in the directory of owners.
pub(super) const MAKING: &str = ".make";

/// Of every SQLite file.
const HEADER_BYTES: u64 = 100;

/// Makes the directories and the file where they are missing. Gives the place and the directory of owners.
pub(super) fn prepare(path: &Path, options: &SqliteOptions) -> Result<(Place, PathBuf), StoreError> {
    let mut place = Place { path: path.to_owned(), busy_timeout: options.busy_timeout };
    // A later change of the working directory must not move the store.
    place.path = std::path::absolute(path).map_err(|error| place.io("finding", path, &error))?;
    let parent = place.path.parent().map(Path::to_owned).unwrap_or_default();
    if place.path.file_name().is_none() || place.path.is_dir() {
        return Err(place.unusable(format!("it is a directory; {INSTEAD}")));
    }
    if fs::metadata(&place.path).is_ok_and(|found| !found.is_file()) {
        return Err(place.unusable(format!("it is no file; {INSTEAD}")));
    }
    if let Some(file) = parent.ancestors().find(|above| above.exists()).filter(|above| !above.is_dir()) {
        return Err(place.unusable(format!("{} is no directory; {INSTEAD}", file.display())));
    }
    make_directory(&place, &parent)?;
    refuse_network(&place, &parent)?;
    let owners = place.beside(DIRECTORY);
    if !owners.is_dir() && exists(&place)? {
        refuse_stranger(&place)?;
    }
    make_directory(&place, &owners)?;
    refuse_others(&place)?;
    if !exists(&place)? {
        create(&place, &owners, options)?;
    }
    check_length(&place)?;
    close_to_others(&place)?;
    Ok((place, owners))
}

/// Nothing is made beside a file that somebody has named by mistake. Only where no program of ours has been:
/// see [`check_length`].
fn refuse_stranger(place: &Place) -> Result<(), StoreError> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    let mut found = Vec::with_capacity(MAGIC.len());
    File::open(&place.path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut found))
        .map_err(|error| place.io("reading", &place.path, &error))?;
    check_length(place)?;
    if found == MAGIC {
        return Ok(());
    }
    Err(place.corrupt(format!("it is no SQLite database; {INSTEAD}")))
}

/// SQLite takes a file that is cut off before the end of its header for a new one; we do not.
///
/// Only its length is asked for. Whoever opens the file by other means than SQLite takes away, when closing
/// it, every lock that this process has on it (`fcntl` locks go with the first descriptor that is closed):
/// another process could then remove the log that two are writing to.
pub(super) fn check_length(place: &Place) -> Result<(), StoreError> {
    let bytes = fs::metadata(&place.path).map_err(|error| place.io("reading", &place.path, &error))?.len();
    if bytes >= HEADER_BYTES {
        return Ok(());
    }
    // The file gets its name only when it is whole, so no store of ours ever was as short.
    Err(place.corrupt(format!(
        "it has {bytes} bytes, so it was cut off or never was a store; remove it to start a new one"
    )))
}

/// SQLite reads zeros for the rest of a last page that is cut off; we do not.
pub(super) fn check_pages(conn: &Connection, place: &Place) -> Result<(), Fault> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let promised = pragma("page_size")?.saturating_mul(pragma("page_count")?);
    // With a log, pages that are missing here stand there. Asked before the length: whoever empties the log
    // has moved its pages into the file first.
    if fs::metadata(place.beside("-wal")).is_ok_and(|log| log.len() > 0) {
        return Ok(());
    }
    let found = fs::metadata(&place.path).map_err(|error| place.io("reading", &place.path, &error))?.len();
    if found < promised.unsigned_abs() {
        return Err(Fault::Row("it is shorter than its header says, so it was cut off".to_owned()));
    }
    Ok(())
}

fn exists(place: &Place) -> Result<bool, StoreError> {
    fs::exists(&place.path).map_err(|error| place.io("reading", &place.path, &error))
}

/// Builds a whole store under another name and gives it its own only then: nobody ever sees half of it.
fn create(place: &Place, owners: &Path, options: &SqliteOptions) -> Result<(), StoreError> {
    let lock_path = owners.join(MAKING);
    let lock = open_private(&lock_path).map_err(|error| place.io("creating", &lock_path, &error))?;
    if !lock_until(place, &lock, Instant::now() + options.busy_timeout)? {
        return Err(place.busy(options.busy_timeout));
    }
    if exists(place)? {
        return Ok(());
    }
    // What a removed store left behind would be replayed into the new one.
    for leftover in ["-wal", "-shm", "-journal"] {
        remove_if_there(place, &place.beside(leftover))?;
    }
    let unborn = Place { path: owners.join(".store"), ..place.clone() };
    for suffix in ["", "-wal", "-shm", "-journal"] {
        remove_if_there(place, &unborn.beside(suffix))?;
    }
    open_private(&unborn.path).map_err(|error| place.io("creating", &unborn.path, &error))?;
    let build = || -> Result<(), StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = |error: rusqlite::Error| place.fault(Fault::Sql(error));
        let mut conn = Connection::open_with_flags(&unborn.path, flags).map_err(sql)?;
        conn.pragma_update(None, "page_size", options.page_bytes).map_err(sql)?;
        // Deleted pages are used again; the file does not shrink by itself. Moving pages around to give
        // them back would cost every commit, and VACUUM by hand is there for who wants them.
        conn.pragma_update(None, "auto_vacuum", "NONE").map_err(sql)?;
        conn.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
        schema::migrate(&mut conn, place)?;
        conn.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
        conn.close().map_err(|(_, error)| sql(error))
    };
    build()?;
    fs::rename(&unborn.path, &place.path).map_err(|error| place.io("creating", &place.path, &error))
}

pub(super) fn remove_if_there(place: &Place, path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(place.io("removing", path, &error)),
        _ => Ok(()),
    }
}

/// A new name in the directory of the store survives a power cut.
pub(super) fn sync_directory(place: &Place) -> Result<(), StoreError> {
    let Some(directory) = place.path.parent() else { return Ok(()) };
    // Elsewhere a directory cannot be opened, and its names are as safe as they get.
    if cfg!(unix) {
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| place.io("syncing", directory, &error))?;
    }
    Ok(())
}

/// The one connection that writes; brings the file to our version first.
pub(super) fn open_writer(
    place: &Place,
    owners: &Path,
    options: &SqliteOptions,
) -> Result<(Connection, Option<Upgraded>), StoreError> {
    let deadline = Instant::now() + options.busy_timeout;
    let mut conn =
        open(place, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|error| place.fault(error.into()))?;
    loop {
        match configure_writer(&conn, place, options) {
            Ok(()) => break,
            // The change to WAL does not wait by itself.
            Err(fault) if fault.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(fault) => return Err(place.fault(fault)),
        }
    }
    let read_only = conn.is_readonly("main").map_err(|error| place.fault(error.into()))?;
    if read_only {
        return Err(place
            .unusable(format!("it is read-only; make the file and its directory writable, or {INSTEAD}")));
    }
    let upgraded = match schema::check(&conn, place)? {
        // Ours, but nothing is in it: there is nothing to lose.
        0 => schema::migrate(&mut conn, place).map(|()| None)?,
        schema::VERSION => None,
        _ => upgrade::upgrade(&mut conn, place, owners)?,
    };
    Ok((conn, upgraded))
}

fn configure_writer(conn: &Connection, place: &Place, options: &SqliteOptions) -> Result<(), Fault> {
    // Reading the header comes first: it is where a file that is no store is refused.
    let read = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    read.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Fault::Row(format!("it is no SQLite database; {INSTEAD}")),
        _ => error.into(),
    })?;
    check_pages(conn, place)?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Fault::Refused(StoreError::Unusable {
            store: conn.path().unwrap_or_default().to_owned(),
            detail: format!("this disk cannot share memory between programs; {INSTEAD}"),
        }));
    }
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // No byte of what was deleted stays in the file.
    conn.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
    conn.query_row("PRAGMA wal_autocheckpoint = 16000", [], |_| Ok(()))?;
    conn.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    conn.pragma_update(None, "cache_size", -8_000)?;
    if let Some(bytes) = options.max_bytes {
        let pages = (bytes / u64::from(options.page_bytes)).max(1).min(u64::from(u32::MAX - 1));
        conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    Ok(())
}

/// A connection that can only read.
pub(super) fn open_reader(place: &Place) -> Result<Connection, Fault> {
    let conn = open(place, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.pragma_update(None, "query_only", "ON")?;
    Ok(conn)
}

pub(super) fn open(place: &Place, mode: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let conn = Connection::open_with_flags(&place.path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(place.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite parses and plans some statements anew for each value that is bound to them.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// SQLite's WAL needs memory shared between all its users, which no network file system gives.
pub(super) fn refuse_network(place: &Place, directory: &Path) -> Result<(), StoreError> {
    #[cfg(target_os = "linux")]
    {
        let found = rustix::fs::statfs(directory)
            .map_err(|error| place.io("looking at the file system of", directory, &error.into()))?;
        // The type is 32 bits wide; some systems sign-extend it.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "only the low 32 bits name it"
        )]
        let kind = found.f_type as u32;
        if let Some(name) = network_file_system(kind) {
            return Err(place.unusable(format!(
                "{} is on a network file system ({name}), where SQLite loses data; {INSTEAD}",
                directory.display()
            )));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (place, directory);
    Ok(())
}

/// The numbers are the kernel's (`statfs(2)`).
#[cfg(target_os = "linux")]
fn network_file_system(kind: u32) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x517B => "SMB",
        0xFE53_4D42 => "SMB2",
        0xFF53_4D42 => "CIFS",
        0x564C => "NCP",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x0102_1997 => "9p",
        0x7375_7245 => "Coda",
        0x00C3_6400 => "Ceph",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        _ => return None,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        for (kind, name) in
            [(0x6969, "NFS"), (0xFF53_4D42, "CIFS"), (0x0102_1997, "9p"), (0x6B41_4653, "AFS")]
        {
            assert_eq!(network_file_system(kind), Some(name));
        }
        // ext4, tmpfs, btrfs, xfs, overlayfs
        for kind in [0xEF53, 0x0102_1994, 0x9123_683E, 0x5846_5342, 0x794C_7630] {
            assert_eq!(network_file_system(kind), None);
        }
    }
}
