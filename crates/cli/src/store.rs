//! Which store, and the manager over it.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use offspring_agents::reap;
use offspring_sessions::{
    ManagerOptions, MemoryStore, Recovered, SessionManager, SessionStore,
    store::sqlite::{SqliteOptions, SqliteStore, Upgraded},
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
}

impl Place {
    /// The command line, else `OFFSPRING_DB`, else `manifest`, else the user's state directory.
    pub(crate) fn choose(db: Option<PathBuf>, manifest: Option<Self>) -> Result<Self, Failure> {
        let named =
            db.or_else(|| std::env::var_os(variables::DB).filter(|db| !db.is_empty()).map(PathBuf::from));
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

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Memory => None,
            Self::File(path) => Some(path),
        }
    }

    /// Which file it is, whatever the name names later; `None` for memory, and for a file that is not there.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        let found = self.file()?.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Opens it; a file is created and migrated by itself.
    pub(crate) async fn open(&self) -> Result<Arc<dyn SessionStore>, Failure> {
        match self {
            Self::Memory => Ok(Arc::new(MemoryStore::new())),
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
    let Place::File(path) = &place else {
        return Err(Failure::usage(
            "nothing is kept in `memory:` once a run is over, so there is nothing to look at\n\
             name the file of a store with --db FILE or OFFSPRING_DB",
        ));
    };
    if !path.exists() {
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
