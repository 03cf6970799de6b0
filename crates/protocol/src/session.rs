//! The stored row of a session, its runs and their states.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{
    Usage,
    id::{NodeName, PeerId, PoolId, ProjectId, RunId, SessionId, TaskKey},
};

/// Milliseconds since 1970-01-01T00:00:00Z. For people; order comes from `seq` alone (rule L16).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Milliseconds from `earlier` to this instant, 0 when the clock went back.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// An enum of words whose unknown values survive a round trip (rule L7).
macro_rules! open_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        ///
        /// A value this version does not know is kept as [`Other`](Self::Other) and written back unchanged.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
            /// A word of a later version, kept as it is.
            Other(Box<str>),
        }

        impl $name {
            /// Every value this version knows.
            pub const KNOWN: &[Self] = &[$(Self::$variant),*];

            /// The word on the wire and in the store.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $word,)* Self::Other(word) => word }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word { $($word => Self::$variant,)* other => Self::Other(other.into()) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }
    };
}

open_words! {
    /// What a node *is*: its implementation (rule L7). Never mixed with [`SourceType`].
    AgentType {
        /// An agent implemented in the program that runs the pool.
        Native = "native",
        /// A local program.
        Command = "command",
        /// A session of a DeepSeek Harness runtime.
        Dsh = "dsh",
        /// Any agent that speaks the Agent Client Protocol.
        Acp = "acp",
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
        /// A model called by the pool itself.
        Model = "model",
        /// A team or a team run that has a row of its own (rule L6).
        Team = "team",
    }
}

open_words! {
    /// How a node *was delegated to* (rule L7; RFC-0028 component 10). Never mixed with [`AgentType`].
    SourceType {
        /// A single agent.
        Agent = "agent",
        /// A parallel team.
        TeamParallel = "team_parallel",
        /// A sequential team run.
        TeamSequential = "team_sequential",
    }
}

/// How a run ended. Final: a later event of the run changes nothing (rule L12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It reached its terminal event without an error.
    Completed,
    /// It ended with an error of its own.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// Its owner, its process or its peer went away.
    Interrupted,
}

impl Outcome {
    /// The word on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where a run stands (rule L12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Opened, waiting for a free slot.
    Pending,
    /// At work.
    Running,
    /// Ended once and for good.
    Ended(Outcome),
}

impl RunState {
    /// The word on the wire and in the store: `pending`, `running` or the outcome.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "pending" => Self::Pending,
            "running" => Self::Running,
            "completed" => Self::Ended(Outcome::Completed),
            "failed" => Self::Ended(Outcome::Failed),
            "cancelled" => Self::Ended(Outcome::Cancelled),
            "interrupted" => Self::Ended(Outcome::Interrupted),
            _ => return None,
        })
    }

    /// Whether the run has not ended.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// How it ended, if it did.
    #[must_use]
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl Serialize for RunState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RunState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::from_word(&word).ok_or_else(|| serde::de::Error::custom(format!("unknown run state `{word}`")))
    }
}

/// Whether a session has an open run (rule L12).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// No run is open.
    #[default]
    Idle,
    /// A run is open.
    Running,
}

impl SessionState {
    /// The word on the wire and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
        }
    }
}

/// Bounds on what a session's subtree may do (rule L5); `None` means unbounded. A child's limits are
/// never wider than its parent's (rule L17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionLimits {
    /// The deepest session below a root; 10 by default. A delegation beyond it is refused.
    pub max_depth: Option<u32>,
    /// Sessions below a root over its whole life; 1,000 by default.
    pub max_descendants: Option<u32>,
    /// Children of one session that are running at the same time; 500 by default.
    pub max_live_children: Option<u32>,
    /// Wall time of one run in milliseconds; unbounded by default.
    pub max_wall_ms: Option<u64>,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_depth: Some(10),
            max_descendants: Some(1_000),
            max_live_children: Some(500),
            max_wall_ms: None,
        }
    }
}

impl SessionLimits {
    /// No bound at all; for tests and for programs that bound elsewhere.
    pub const UNBOUNDED: Self =
        Self { max_depth: None, max_descendants: None, max_live_children: None, max_wall_ms: None };

    /// The narrower of both, field by field (rule L17).
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        fn min<T: Ord + Copy>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Self {
            max_depth: min(self.max_depth, other.max_depth),
            max_descendants: min(self.max_descendants, other.max_descendants),
            max_live_children: min(self.max_live_children, other.max_live_children),
            max_wall_ms: min(self.max_wall_ms, other.max_wall_ms),
        }
    }
}

/// The session of a peer that a session of ours stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct External {
    /// Which peer.
    pub peer: PeerId,
    /// The id the peer uses.
    pub id: String,
}

/// A delegation: its key and the sessions it made, one for an agent, one per member for a team (rule L6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskId {
    /// The key; what `task status`, `task output` and `task cancel` take.
    pub task: TaskKey,
    /// The sessions, in member order.
    pub sessions: Vec<SessionId>,
}

/// The stored row of a session (RFC-0028 `SessionData`; `facts` of AgentPool's model: every field of it
/// survives a round trip through every store).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionData {
    /// Its id.
    pub id: SessionId,
    /// The session that started it, as given; `None` for a root. May name a session no store knows (rule L3).
    pub parent_id: Option<SessionId>,
    /// The root of its tree; itself for a root.
    pub root_id: SessionId,
    /// Parent edges above it: 0 for a root (rule L4).
    pub depth: u32,
    /// Inherited from the parent; unset stays unset (rule L3).
    pub project_id: Option<ProjectId>,
    /// Absolute working directory, inherited from the parent (rule L3).
    pub cwd: Option<String>,
    /// The node it runs.
    pub agent_name: NodeName,
    /// What that node is.
    pub agent_type: AgentType,
    /// How it was delegated to; `None` for a root.
    pub source_type: Option<SourceType>,
    /// The pool's manifest name.
    pub pool_id: Option<PoolId>,
    /// The delegation that made it.
    pub task: Option<TaskKey>,
    /// A short name for people.
    pub title: Option<String>,
    /// The model it uses, so that a resumed session keeps it.
    pub model: Option<String>,
    /// Settings of its node, as the node wrote them; opaque to everybody else.
    pub settings: Option<Box<RawValue>>,
    /// The bounds in force for its subtree.
    pub limits: SessionLimits,
    /// The peer's session it stands for, if it was adopted.
    pub external: Option<External>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row was last written.
    pub last_active_at: Timestamp,
    /// Free-form notes of the caller.
    pub metadata: BTreeMap<String, String>,
    /// Version of this row's format: `"1"`.
    pub version: String,
}

/// One run of a session (rule L12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Whose run it is.
    pub session_id: SessionId,
    /// 1 for the first run of the session, then counting.
    pub ordinal: u32,
    /// Where it stands.
    pub state: RunState,
    /// What went wrong, when it did not complete.
    pub error: Option<String>,
    /// Own usage of the run, each provider message once (rule L15).
    pub usage: Usage,
    /// The process that works for it: pid, start time and boot id in the form of the `process` crate.
    pub process: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it ended; for a run whose owner vanished, the time of its last event (rule L13).
    pub ended_at: Option<Timestamp>,
    /// Bytes of its output that were not kept: of more than the limit, head and tail are. 0 for a run that
    /// was kept whole, and for one of a version that kept all.
    #[serde(default)]
    pub left_out_bytes: u64,
}

/// What a root was started with, so that it can be started again. Stored once, together with its row.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The manifest's text, as it was read.
    pub manifest: String,
    /// The absolute path of the manifest; `None` when it was no file, or its path is not UTF-8.
    pub manifest_path: Option<String>,
    /// The node that was run.
    pub node: NodeName,
    /// What was asked.
    pub prompt: String,
    /// The absolute directory it worked in.
    pub cwd: Option<String>,
    /// The version of the program that started it.
    pub program_version: String,
    /// The root it repeats. That one may have been deleted since.
    pub rerun_of: Option<SessionId>,
}

impl fmt::Debug for Origin {
    /// The manifest itself is not shown: a value in it may be a secret (rule W10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("manifest", &format_args!("{} bytes", self.manifest.len()))
            .field("manifest_path", &self.manifest_path)
            .field("node", &self.node)
            .field("prompt", &self.prompt)
            .field("cwd", &self.cwd)
            .field("program_version", &self.program_version)
            .field("rerun_of", &self.rerun_of)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l7_agent_type_and_source_type_are_two_enums_and_keep_unknown_words() {
        for word in ["native", "command", "dsh", "acp", "claude", "codex", "model", "team", "agui", ""] {
            let json = format!("\"{word}\"");
            let value: AgentType = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        assert_eq!(AgentType::from("agui"), AgentType::Other("agui".into()));
        // A word of the one enum is unknown to the other: they cannot be confused.
        for known in SourceType::KNOWN {
            assert!(matches!(AgentType::from(known.as_str()), AgentType::Other(_)));
        }
    }

    #[test]
    fn l17_limits_narrow_and_never_widen() {
        let parent = SessionLimits { max_depth: Some(5), max_wall_ms: None, ..SessionLimits::default() };
        let wish = SessionLimits { max_depth: Some(9), max_wall_ms: Some(10), ..SessionLimits::UNBOUNDED };
        let child = parent.narrowed_by(&wish);
        assert_eq!(child.max_depth, Some(5));
        assert_eq!(child.max_wall_ms, Some(10));
        assert_eq!(child.max_descendants, parent.max_descendants);
    }

    #[test]
    fn run_states_have_one_word_each() {
        for state in [RunState::Pending, RunState::Running].into_iter().chain(
            [Outcome::Completed, Outcome::Failed, Outcome::Cancelled, Outcome::Interrupted]
                .map(RunState::Ended),
        ) {
            assert_eq!(RunState::from_word(state.as_str()), Some(state));
        }
        assert_eq!(RunState::from_word("done"), None);
    }
}
