//! How long a run has said nothing.
//!
//! A run that waits for somebody else (a child that is at work, an answer it asked for) is not silent: nothing is
//! expected of it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use offspring_protocol::{RunState, SessionId};
use tokio::time::Instant;

use crate::{
    live::{Member, lock},
    manager::SessionManager,
    run::Core,
};

/// The silence of a run that is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// How long it has said nothing.
    pub lasts: Duration,
    /// How long it may; `None` without a limit.
    pub limit: Option<Duration>,
}

/// What an open run was heard of.
#[derive(Debug)]
pub(crate) struct Heard {
    last: Mutex<Instant>,
    limit: Mutex<Option<Duration>>,
    /// Answers it waits for.
    waits: AtomicUsize,
}

impl Default for Heard {
    fn default() -> Self {
        Self { last: Mutex::new(Instant::now()), limit: Mutex::default(), waits: AtomicUsize::new(0) }
    }
}

impl Heard {
    /// It said something, or begins to be expected to.
    pub(crate) fn now(&self) {
        *lock(&self.last) = Instant::now();
    }

    pub(crate) fn set_limit(&self, limit: Duration) {
        *lock(&self.limit) = Some(limit);
    }
}

/// A run waits for somebody else; until this is dropped it is not silent.
#[derive(Debug)]
#[must_use = "dropped at once, the run waits for nobody"]
pub struct Waiting(Arc<Core>);

impl Waiting {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        core.open.heard.waits.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(core))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // From now on something is expected of it.
        self.0.open.heard.now();
        self.0.open.heard.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Member {
    /// `None` where nothing is expected: it is not at work, or waits for a child or an answer.
    pub(crate) fn silence(&self) -> Option<Silence> {
        let open = self.open.as_ref()?;
        let waits = self.live_children > 0 || open.heard.waits.load(Ordering::Relaxed) > 0;
        if waits || lock(&open.changing).record.state != RunState::Running {
            return None;
        }
        let (lasts, limit) = (lock(&open.heard.last).elapsed(), *lock(&open.heard.limit));
        Some(Silence { lasts, limit })
    }
}

impl SessionManager {
    /// How long a session of this process has said nothing; `None` while nothing is expected of it: it is not at
    /// work, or waits for a child or an answer.
    #[must_use]
    pub fn silence(&self, id: &SessionId) -> Option<Silence> {
        self.live_tree(id)?.state().members.get(id)?.silence()
    }
}
