//! What all commands of one process share.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use offspring_delegation::Delegator;
use offspring_process::GuardProgram;
use tokio_util::sync::CancellationToken;

use super::withheld::Withheld;
use crate::{endpoint::Endpoint, home::Home};

/// What all commands of one process share: the program they call, the guard, the store, the secrets; and,
/// once one of them runs, the private directory and the endpoint.
#[derive(Debug)]
pub struct CommandHost {
    pub(super) program: PathBuf,
    pub(crate) guard: Option<GuardProgram>,
    pub(super) db: Option<PathBuf>,
    /// Once it is cancelled, whatever runs is killed.
    pub(crate) kill: CancellationToken,
    withheld: Withheld,
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    /// Prepared, and nobody listens yet.
    Home(Home),
    Open(Arc<Open>),
}

/// The private directory with the endpoint in it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) endpoint: Endpoint,
    pub(super) home: Home,
}

impl CommandHost {
    /// For the program at `program`, which agents call as `offspring`, guarded by `guard` where there are
    /// guards; `db` is the store's file. Makes nothing yet.
    #[must_use]
    pub fn new(program: PathBuf, guard: Option<GuardProgram>, db: Option<PathBuf>) -> Arc<Self> {
        let guard = guard.filter(|_| GuardProgram::SUPPORTED);
        let place = Mutex::new(Place::Nowhere);
        Arc::new(Self {
            program,
            guard,
            db,
            kill: CancellationToken::new(),
            withheld: Withheld::default(),
            place,
        })
    }

    pub(crate) fn withheld(&self) -> Withheld {
        self.withheld.clone()
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the private directory.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn prepare(&self) -> io::Result<()> {
        let mut place = self.place();
        if matches!(*place, Place::Nowhere) {
            *place = Place::Home(Home::new(&self.program)?);
        }
        Ok(())
    }

    /// The private directory and the endpoint, made if need be; on a tokio runtime.
    pub(super) fn open(&self, delegator: &Delegator) -> io::Result<Arc<Open>> {
        let mut place = self.place();
        let home = match std::mem::replace(&mut *place, Place::Nowhere) {
            Place::Open(open) => {
                *place = Place::Open(Arc::clone(&open));
                return Ok(open);
            }
            Place::Home(home) => home,
            Place::Nowhere => Home::new(&self.program)?,
        };
        let endpoint = Endpoint::listen(&home.socket(), delegator.clone())?;
        let open = Arc::new(Open { endpoint, home });
        *place = Place::Open(Arc::clone(&open));
        Ok(open)
    }

    /// The program agents call.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }
}
