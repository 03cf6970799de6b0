//! The runs of a session, one after another (rule L12).
//!
//! A run is pending, running, or ended once and for good. [`Runs`] keeps that for one session whose runs
//! have ids; [`Epochs`] numbers the runs of a wire that names none.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use offspring_protocol::{Outcome, RunId, RunState, SessionId, SessionState};

/// How many ended runs before the latest one [`Runs`] still recognises.
pub const EARLIER_RUNS: usize = 16;

/// The runs of one session (rule L12).
///
/// Holds the latest run and the ids of at most [`EARLIER_RUNS`] ended ones before it. What belongs to a
/// run older than that is reported as [`Transition::UnknownRun`] and, like a late one, changes nothing.
///
/// ```
/// use offspring_protocol::{Outcome, RunId, RunState, SessionState};
/// use offspring_tree::lifecycle::{Runs, Signal, Transition};
///
/// let run = RunId::new("run_1").unwrap();
/// let mut runs = Runs::default();
/// runs.open(run.clone())?;
/// assert_eq!(runs.state(), SessionState::Running);
///
/// let start = runs.observe(&run, Signal::Started);
/// assert_eq!(start, Transition::Applied { from: RunState::Pending, to: RunState::Running });
/// let end = runs.observe(&run, Signal::Terminal(Outcome::Completed));
/// assert_eq!(end, Transition::Applied { from: RunState::Running, to: RunState::Ended(Outcome::Completed) });
/// assert_eq!(runs.observe(&run, Signal::Event), Transition::Late);
/// assert_eq!(runs.last_outcome(), Some(Outcome::Completed));
/// # Ok::<(), offspring_tree::lifecycle::OpenError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Runs {
    latest: Option<(RunId, RunState)>,
    /// Ended before `latest`, oldest first.
    earlier: VecDeque<(RunId, RunState)>,
    ordinal: u32,
    last_outcome: Option<Outcome>,
    counters: Counters,
}

/// A run was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// 1 for the first run of the session, then counting.
    pub ordinal: u32,
}

/// Why a run was not opened. Nothing is changed then, except that a duplicate is counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The session had this run already.
    #[error("the run {run} was opened before and is {}", state.as_str())]
    Duplicate {
        /// The run.
        run: RunId,
        /// Where it stands.
        state: RunState,
    },
    /// Runs come one after another and one is still open.
    #[error("the session's run {open} is still {}; a new run can start when it has ended", state.as_str())]
    StillOpen {
        /// The open run.
        open: RunId,
        /// Where it stands.
        state: RunState,
    },
}

/// What happened in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// It began to work.
    Started,
    /// Anything that neither begins nor ends it.
    Event,
    /// Its terminal event, which alone decides the outcome (rule L12).
    Terminal(Outcome),
}

/// What a [`Signal`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Transition {
    /// The run changed its state.
    Applied {
        /// The state before.
        from: RunState,
        /// The state now.
        to: RunState,
    },
    /// It belongs to the open run and changes no state.
    Unchanged,
    /// The same start or end came before: counted, not applied.
    Duplicate,
    /// It came after the end of its run: counted, to be kept and marked late, changes nothing.
    Late,
    /// The session has no such run, or had it more than [`EARLIER_RUNS`] runs ago. Changes nothing.
    UnknownRun,
}

/// How often a signal was not applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Starts, openings and ends that came more than once.
    pub duplicates: u64,
    /// Signals that came after the end of their run.
    pub late: u64,
    /// Signals of a run that is not known.
    pub unknown: u64,
}

impl Runs {
    /// The runs of a session that was loaded: its last run, which may still be open.
    #[must_use]
    pub fn restored(last: RunId, ordinal: u32, state: RunState) -> Self {
        Self { latest: Some((last, state)), ordinal, last_outcome: state.outcome(), ..Self::default() }
    }

    /// Opens a run; it is pending until it [`Started`](Signal::Started).
    ///
    /// # Errors
    /// [`OpenError::Duplicate`] for a run the session had, [`OpenError::StillOpen`] while another is open.
    pub fn open(&mut self, run: RunId) -> Result<Opened, OpenError> {
        let known = self.known_mut().find(|(known, _)| *known == run).map(|(_, state)| *state);
        if let Some(state) = known {
            // O5: a repeated start is counted, not applied.
            self.counters.duplicates += 1;
            return Err(OpenError::Duplicate { run, state });
        }
        if let Some((open, state)) = self.open_run() {
            return Err(OpenError::StillOpen { open: open.clone(), state });
        }
        if let Some(ended) = self.latest.replace((run, RunState::Pending)) {
            if self.earlier.len() == EARLIER_RUNS {
                self.earlier.pop_front();
            }
            self.earlier.push_back(ended);
        }
        self.ordinal = self.ordinal.saturating_add(1);
        Ok(Opened { ordinal: self.ordinal })
    }

    /// Applies what happened in a run, once, in whatever order it arrives.
    pub fn observe(&mut self, run: &RunId, signal: Signal) -> Transition {
        let transition = match self.known_mut().find(|(known, _)| known == run) {
            Some((_, state)) => advance(state, signal),
            None => Transition::UnknownRun,
        };
        match transition {
            Transition::Applied { to: RunState::Ended(outcome), .. } => self.last_outcome = Some(outcome),
            Transition::Applied { .. } | Transition::Unchanged => {}
            Transition::Duplicate => self.counters.duplicates += 1,
            Transition::Late => self.counters.late += 1,
            Transition::UnknownRun => self.counters.unknown += 1,
        }
        transition
    }

    /// Running while a run is open, else idle (rule L12).
    #[must_use]
    pub fn state(&self) -> SessionState {
        if self.open_run().is_some() { SessionState::Running } else { SessionState::Idle }
    }

    /// How the last run that ended ended.
    #[must_use]
    pub fn last_outcome(&self) -> Option<Outcome> {
        self.last_outcome
    }

    /// The run that has not ended, pending or running.
    #[must_use]
    pub fn open_run(&self) -> Option<(&RunId, RunState)> {
        self.latest.as_ref().filter(|(_, state)| state.is_open()).map(|(run, state)| (run, *state))
    }

    /// How many runs the session had, the open one included.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// What was not applied.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The latest run, then the ended ones that are still recognised.
    fn known_mut(&mut self) -> impl Iterator<Item = &mut (RunId, RunState)> {
        self.latest.iter_mut().chain(&mut self.earlier)
    }
}

/// L12: pending → running → ended, and an ended run is final: a second end is a duplicate, anything else
/// that comes after it is late.
fn advance(state: &mut RunState, signal: Signal) -> Transition {
    let to = match (*state, signal) {
        (RunState::Ended(_), Signal::Terminal(_)) => return Transition::Duplicate,
        (RunState::Ended(_), Signal::Started | Signal::Event) => return Transition::Late,
        (_, Signal::Event) => return Transition::Unchanged,
        (RunState::Running, Signal::Started) => return Transition::Duplicate,
        (RunState::Pending, Signal::Started) => RunState::Running,
        (_, Signal::Terminal(outcome)) => RunState::Ended(outcome),
    };
    Transition::Applied { from: mem::replace(state, to), to }
}

/// The runs of a wire that names none: one per started … finished epoch of a child (rule L12).
///
/// A child that settled and is started again is re-activated: a new epoch of the same session. A start
/// while its epoch is open is a duplicate. Children are *our* sessions: a peer's id that was started under
/// two parents is two of them, so that the end of the older run, which names the older parent, ends that
/// one (rule T4).
///
/// Holds one entry of 24 bytes plus its id per child, until [`forget`](Self::forget) or
/// [`clear`](Self::clear).
///
/// ```
/// use offspring_protocol::{Outcome, SessionId};
/// use offspring_tree::lifecycle::{EpochChange, Epochs};
///
/// let child = SessionId::new("c").unwrap();
/// let mut epochs = Epochs::default();
/// assert_eq!(epochs.epoch_started(&child), EpochChange::Opened { epoch: 1 });
/// assert_eq!(
///     epochs.epoch_finished(&child, Outcome::Completed),
///     EpochChange::Ended { epoch: 1, outcome: Outcome::Completed }
/// );
/// assert_eq!(epochs.epoch_event(&child), EpochChange::Late { epoch: 1 });
/// assert_eq!(epochs.epoch_started(&child), EpochChange::Opened { epoch: 2 });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Epochs {
    children: HashMap<SessionId, Epoch>,
    counters: Counters,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    number: u32,
    state: RunState,
}

/// What a notification did to a child's epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum EpochChange {
    /// A new run of the child.
    Opened {
        /// 1 for the child's first run, then counting.
        epoch: u32,
    },
    /// The open run ended.
    Ended {
        /// Which.
        epoch: u32,
        /// How.
        outcome: Outcome,
    },
    /// It belongs to the open run and changes nothing.
    Within {
        /// Which.
        epoch: u32,
    },
    /// The same start or end came before: counted, not applied.
    Duplicate {
        /// Of which run.
        epoch: u32,
    },
    /// It came after the end of the child's last run: to be kept and marked late, changes nothing.
    Late {
        /// After which run.
        epoch: u32,
    },
    /// The child was never started. Changes nothing.
    Unknown,
}

impl Epochs {
    /// The wire says that the child was started.
    pub fn epoch_started(&mut self, child: &SessionId) -> EpochChange {
        let number = match self.children.get(child) {
            Some(Epoch { number, state }) if state.is_open() => {
                self.counters.duplicates += 1;
                return EpochChange::Duplicate { epoch: *number };
            }
            Some(Epoch { number, .. }) => number.saturating_add(1),
            None => 1,
        };
        self.children.insert(child.clone(), Epoch { number, state: RunState::Running });
        EpochChange::Opened { epoch: number }
    }

    /// The wire says that the child finished.
    pub fn epoch_finished(&mut self, child: &SessionId, outcome: Outcome) -> EpochChange {
        self.observe(child, Signal::Terminal(outcome))
    }

    /// Anything else that the wire says of the child.
    pub fn epoch_event(&mut self, child: &SessionId) -> EpochChange {
        self.observe(child, Signal::Event)
    }

    fn observe(&mut self, child: &SessionId, signal: Signal) -> EpochChange {
        let Some(Epoch { number, state }) = self.children.get_mut(child) else {
            self.counters.unknown += 1;
            return EpochChange::Unknown;
        };
        let epoch = *number;
        match advance(state, signal) {
            Transition::Applied { to: RunState::Ended(outcome), .. } => EpochChange::Ended { epoch, outcome },
            Transition::Duplicate => {
                self.counters.duplicates += 1;
                EpochChange::Duplicate { epoch }
            }
            Transition::Late => {
                self.counters.late += 1;
                EpochChange::Late { epoch }
            }
            Transition::Applied { .. } | Transition::Unchanged | Transition::UnknownRun => {
                EpochChange::Within { epoch }
            }
        }
    }

    /// The child's latest epoch and where it stands.
    #[must_use]
    pub fn latest(&self, child: &SessionId) -> Option<(u32, RunState)> {
        self.children.get(child).map(|epoch| (epoch.number, epoch.state))
    }

    /// The children whose run is open, in no order.
    pub fn open(&self) -> impl Iterator<Item = &SessionId> {
        self.children.iter().filter(|(_, epoch)| epoch.state.is_open()).map(|(child, _)| child)
    }

    /// Forgets a child; a later start is its first again.
    pub fn forget(&mut self, child: &SessionId) {
        self.children.remove(child);
    }

    /// Forgets every child, when the peer's process is a new one (rule T8). The counters stay.
    pub fn clear(&mut self) {
        self.children.clear();
    }

    /// What was not applied.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
