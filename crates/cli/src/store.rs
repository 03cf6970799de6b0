//! Which store, and the manager over it.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use offspring_agents::reap;
use offspring_sessions::{
    ManagerOptions, MemoryStore, Recovered, SessionManager, SessionStore,
    store::{
        postgres::{PostgresAddress, PostgresOptions, PostgresStore},
        sqlite::{SqliteOptions, SqliteStore, Upgraded},
    },
};

use crate::{
    failure::Failure,
    text::{plain, tell},
    variables,
};

/// No file.
const MEMORY: &str = "memory:";

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    File(PathBuf),
    Database(Box<PostgresAddress>),
}

impl Place {
    /// The command line, else `OFFSPRING_DB`, else what the file of `OFFSPRING_DB_FILE` says, else `manifest`, else the
    /// user's state directory.
    pub(crate) fn choose(db: Option<PathBuf>, manifest: Option<Self>) -> Result<Self, Failure> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(address) = db.as_deref().and_then(Path::to_str).filter(|db| PostgresAddress::is_meant(db))
        {
            return Self::database(address, true);
        }
        let named = db.or_else(|| set(variables::DB));
        if let Some(address) =
            named.as_deref().and_then(Path::to_str).filter(|db| PostgresAddress::is_meant(db))
        {
            return Self::database(address, false);
        }
        if let (None, Some(file)) = (&named, set(variables::DB_FILE)) {
            return Self::of_file(&file);
        }
        match (named, manifest) {
            (Some(db), _) if db == Path::new(MEMORY) => Ok(Self::Memory),
            (Some(db), _) => match std::path::absolute(&db) {
                Ok(path) => Ok(Self::File(path)),
                Err(error) => Err(Failure::usage(format!("--db {}: {error}", db.display()))),
            },
            (None, Some(place)) => Ok(place),
            (None, None) => Ok(Self::File(state_directory()?.join("sessions.db"))),
        }
    }

    /// A database, with the password from where it is kept.
    fn database(address: &str, is_argument: bool) -> Result<Self, Failure> {
        let address: PostgresAddress = address.parse().map_err(Failure::usage)?;
        if is_argument && address.has_password() {
            return Err(Failure::usage(
                "a password in the command line can be read by every user of this machine\n\
                 put the address into OFFSPRING_DB or a file named by OFFSPRING_DB_FILE, or the password into a file \
                 named by PGPASSFILE",
            ));
        }
        let address = address.with_password(|name| std::env::var_os(name)).map_err(Failure::usage)?;
        Ok(Self::Database(Box::new(address)))
    }

    /// The first line of a file.
    fn of_file(file: &Path) -> Result<Self, Failure> {
        let name = variables::DB_FILE;
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{name} {}: {error}", file.display())))?;
        let address = text.lines().next().unwrap_or_default().trim();
        if !PostgresAddress::is_meant(address) {
            return Err(Failure::usage(format!(
                "{name} {}: its first line does not begin with postgres://",
                file.display()
            )));
        }
        Self::database(address, false)
    }

    /// What and where it is, for people; without a password.
    pub(crate) fn said(&self) -> String {
        match self {
            Self::Memory => "kept nowhere (memory)".to_owned(),
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Database(address) => address.to_string(),
        }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Database(_) => None,
            Self::File(path) => Some(path),
        }
    }

    /// Which file it is, whatever the name names later; `None` for memory, and for a file that is not there.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let found = self.file()?.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Opens it; a file, or the tables in a database, are made and migrated by themselves.
    pub(crate) async fn open(&self) -> Result<Arc<dyn SessionStore>, Failure> {
        match self {
            Self::Memory => Ok(Arc::new(MemoryStore::new())),
            Self::Database(address) => {
                Ok(Arc::new(PostgresStore::open(address, PostgresOptions::default()).await?))
            }
            Self::File(path) => {
                let path = path.clone();
                // It waits for others who write.
                let opening =
                    tokio::task::spawn_blocking(move || SqliteStore::open(path, SqliteOptions::default()));
                let store = opening.await.map_err(Failure::new)??;
                if let Some(Upgraded { from, to, copy }) = store.upgraded() {
                    tell(&format!(
                        "the store was brought from schema {from} to {to}; as it was it is kept in {}",
                        plain(&copy.to_string_lossy())
                    ));
                }
                Ok(Arc::new(store))
            }
        }
    }
}

/// What to do about it; no other place is ever taken instead.
const INSTEAD: &str = "name a file with --db FILE or OFFSPRING_DB, or keep nothing with --db memory:";

/// Where sessions are kept when nobody says where.
fn state_directory() -> Result<PathBuf, Failure> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let base = absolute(variables::STATE_HOME)
        .or_else(|| absolute(variables::HOME).map(|home| home.join(".local/state")));
    let none = || {
        Failure::new(format!(
            "there is no place for sessions: neither XDG_STATE_HOME nor HOME is set\n{INSTEAD}"
        ))
    };
    let directory = base.map(|base| base.join("offspring")).ok_or_else(none)?;
    refuse_of_others(&directory)?;
    Ok(directory)
}

/// A directory of somebody else is no place for what we keep by ourselves: with the HOME of another user, as `sudo`
/// leaves it, it would be made in theirs. Whoever names a file has decided.
fn refuse_of_others(directory: &Path) -> Result<(), Failure> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o002;
    let Some((there, found)) = directory.ancestors().find_map(|above| Some((above, above.metadata().ok()?)))
    else {
        return Ok(());
    };
    let us = rustix::process::geteuid().as_raw();
    let why = if found.uid() != us {
        format!("belongs to user {}, and this program runs as user {us}", found.uid())
    } else if found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0 {
        "can be changed by everybody".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "sessions cannot be kept in {}: {} {why}\n{INSTEAD}",
        directory.display(),
        there.display()
    )))
}

/// The manager of a command that looks at sessions. Runs whose program is gone are ended first (rule L13).
pub(crate) async fn manager(db: Option<PathBuf>) -> Result<(SessionManager, Place), Failure> {
    let place = Place::choose(db, None)?;
    if place == Place::Memory {
        return Err(Failure::usage(
            "nothing is kept in `memory:` once a run is over, so there is nothing to look at\n\
             name the file of a store with --db FILE or OFFSPRING_DB",
        ));
    }
    if let Some(path) = place.file().filter(|path| !path.exists()) {
        return Err(Failure::new(format!(
            "no sessions yet: {} does not exist\n\
             `offspring run MANIFEST PROMPT` starts the first; --db FILE or OFFSPRING_DB names another store",
            path.display()
        )));
    }
    let manager = SessionManager::new(place.open().await?, ManagerOptions::default());
    end_leftovers(manager.recover().await?).await;
    Ok((manager, place))
}

/// Ends the processes of runs whose program is gone (rule L14).
pub(crate) async fn end_leftovers(recovered: Recovered) {
    if recovered.processes.is_empty() {
        return;
    }
    let ended = tokio::task::spawn_blocking(move || reap::leftovers(&recovered)).await.unwrap_or_default();
    tracing::info!(ended, "processes of interrupted runs were ended");
}
