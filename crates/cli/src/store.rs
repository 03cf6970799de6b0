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

fn state_directory() -> Result<PathBuf, Failure> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let base = absolute(variables::STATE_HOME)
        .or_else(|| absolute(variables::HOME).map(|home| home.join(".local/state")));
    let none = "there is no place for sessions: neither XDG_STATE_HOME nor HOME is set\n\
        name a file with --db FILE or OFFSPRING_DB, or keep nothing with --db memory:";
    base.map(|base| base.join("offspring")).ok_or_else(|| Failure::usage(none))
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
