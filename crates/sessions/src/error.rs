//! Why a delegation was refused, and how a run fails.

use offspring_protocol::{BadId, SessionId};

use crate::store::StoreError;

/// Why no session or run was made. Nothing exists then: no id, no row, no event (rule L5). It is an error
/// for the tool that asked, not the end of its run.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Deeper than the limit.
    #[error(
        "delegation depth {depth} exceeds the maximum of {max}: do this work yourself instead of delegating it"
    )]
    DelegationDepth {
        /// What the child's depth would have been.
        depth: u32,
        /// The limit.
        max: u32,
    },
    /// Too many children at work at once.
    #[error("{max} children of this session are at work, which is the limit: wait for one to end")]
    LiveChildren {
        /// The limit.
        max: u32,
    },
    /// Too many sessions below one.
    #[error(
        "the session {session} has {max} descendants, which is the limit: do this work yourself instead of delegating it"
    )]
    Descendants {
        /// Whose descendants were counted.
        session: SessionId,
        /// The limit.
        max: u32,
    },
    /// The session or one above it is being cancelled (rule L14).
    #[error("the session is cancelled: nothing new starts below it")]
    Cancelled,
    /// The pool is closing (rule L14).
    #[error("the pool is closing: nothing new starts")]
    Closing,
    /// The session has a run that has not ended (rule L12).
    #[error("the session {id} is running: wait for its run to end")]
    StillRunning {
        /// The session.
        id: SessionId,
    },
    /// The working directory is none (rule L3).
    #[error("the working directory {cwd} {problem}")]
    Cwd {
        /// The directory.
        cwd: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No such session.
    #[error("no session {id} is known")]
    UnknownSession {
        /// The id.
        id: SessionId,
    },
    /// The tree belongs to another process that lives.
    #[error("the session {id} belongs to another program that is running")]
    Foreign {
        /// The session.
        id: SessionId,
    },
    /// What was to be written as a copy of a tree is none.
    #[error("this is no tree of sessions: {problem}")]
    BadCopy {
        /// What is wrong with it.
        problem: String,
    },
    /// The id cannot be stored (rule T1).
    #[error(transparent)]
    BadId(#[from] BadId),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a run fails. The text is for people, the code for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// What went wrong.
    pub message: String,
    /// A stable word: `failed`, `exit_status`, `signal`, `timeout`, `refused`, `panicked`, `store` …
    pub code: std::borrow::Cow<'static, str>,
    /// Whether it was interrupted from outside: its process, owner or peer went away.
    pub interrupted: bool,
    /// What there was of an answer, for whoever delegated. It is in the log already, as it was streamed.
    pub partial: String,
}

impl RunError {
    /// A failure with this code.
    pub fn failed(code: impl Into<std::borrow::Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { message: message.into(), code: code.into(), interrupted: false, partial: String::new() }
    }

    /// An interruption from outside.
    pub fn interrupted(code: impl Into<std::borrow::Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { message: message.into(), code: code.into(), interrupted: true, partial: String::new() }
    }

    /// With what there was of an answer.
    #[must_use]
    pub fn with_partial(self, partial: impl Into<String>) -> Self {
        Self { partial: partial.into(), ..self }
    }
}

impl From<Refused> for RunError {
    fn from(refused: Refused) -> Self {
        Self::failed("refused", refused.to_string())
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::failed("store", error.to_string())
    }
}
