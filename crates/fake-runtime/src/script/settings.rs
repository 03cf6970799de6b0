//! What holds for a whole script.

use std::collections::BTreeSet;

/// What a script does at the end of its input (`on stdin-end …`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnStdinEnd {
    /// Exits with this code; 0 unless it says otherwise.
    Exit(u8),
    /// Goes on.
    Ignore,
}

/// What a script does on SIGTERM (`on sigterm …`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnSigterm {
    /// Exits with this code; 0 unless it says otherwise.
    Exit(u8),
    /// Goes on.
    Ignore,
}

/// What a script does on a request `shutdown` that it does not take itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnShutdown {
    /// Answers and exits with this code.
    Exit(u8),
    /// Answers and stays.
    Stay,
    /// Does not answer.
    Ignore,
}

/// When a request `session/wait` is answered that the script does not take itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswersWait {
    /// When root and descendants are at rest.
    AtRest,
    /// When everything was written.
    AtTheEnd,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) shutdown: OnShutdown,
    pub(crate) stdin_end: OnStdinEnd,
    pub(crate) sigterm: OnSigterm,
    pub(crate) wait: AnswersWait,
    /// Methods that this runtime does not know.
    pub(crate) without: BTreeSet<String>,
    /// Whether a line of the client that is no strict message ends the play.
    pub(crate) strict: bool,
    /// Whether the prompts of the drive are sent all at once.
    pub(crate) prompts_at_once: bool,
    /// Methods that some statement takes.
    pub(crate) taken: BTreeSet<String>,
    /// Sessions whose prompts some statement takes; `None` as soon as one takes any.
    pub(crate) prompted: Option<BTreeSet<String>>,
    /// Sessions that the requests of a trace name.
    pub(crate) recorded_sessions: BTreeSet<String>,
    /// Variables of the environment that some text names.
    pub(crate) variables: BTreeSet<String>,
    /// Sessions that are started as children somewhere: their events do not begin at 0.
    pub(crate) children: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shutdown: OnShutdown::Exit(0),
            stdin_end: OnStdinEnd::Exit(0),
            sigterm: OnSigterm::Exit(0),
            wait: AnswersWait::AtRest,
            without: BTreeSet::new(),
            strict: false,
            prompts_at_once: false,
            taken: BTreeSet::new(),
            prompted: Some(BTreeSet::new()),
            recorded_sessions: BTreeSet::new(),
            variables: BTreeSet::new(),
            children: BTreeSet::new(),
        }
    }
}
