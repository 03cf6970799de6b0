//! What is asked for: a root, a child.

use offspring_protocol::{
    AgentType, External, NodeName, Origin, SessionId, SessionLimits, SourceType, TaskKey, ToolCallId,
    event::SpawnMechanism,
};

/// A root to be.
#[derive(Debug, Clone)]
pub struct NewRoot {
    /// The node it runs.
    pub agent_name: NodeName,
    /// What that node is.
    pub agent_type: AgentType,
    /// Its working directory, absolute.
    pub cwd: Option<String>,
    /// A short name for people.
    pub title: Option<String>,
    /// The model it uses.
    pub model: Option<String>,
    /// The bounds of its whole tree.
    pub limits: SessionLimits,
    /// Notes that its row keeps.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// An id given from outside; refused when it is taken.
    pub id: Option<SessionId>,
    /// What it is started with, for whoever wants to start it again; kept with its row.
    pub origin: Option<Origin>,
}

impl NewRoot {
    /// A root of this node with the default limits.
    #[must_use]
    pub fn new(agent_name: NodeName, agent_type: AgentType) -> Self {
        Self {
            agent_name,
            agent_type,
            cwd: None,
            title: None,
            model: None,
            limits: SessionLimits::default(),
            metadata: std::collections::BTreeMap::new(),
            id: None,
            origin: None,
        }
    }
}

/// A child to be.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// The node that is delegated to.
    pub agent_name: NodeName,
    /// What that node is (rule L7).
    pub agent_type: AgentType,
    /// How it is delegated to (rule L7).
    pub source_type: SourceType,
    /// Tool call or team member.
    pub mechanism: SpawnMechanism,
    /// What for, in a few words.
    pub description: String,
    /// The tool call that delegates.
    pub tool_call: Option<ToolCallId>,
    /// The delegation it belongs to.
    pub task: Option<TaskKey>,
    /// Its own directory; relative to the parent's (rule L3). Unset: the parent's.
    pub cwd: Option<String>,
    /// The model it uses.
    pub model: Option<String>,
    /// Narrows its parent's bounds (rule L17).
    pub limits: SessionLimits,
    /// Notes that its row keeps.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// An id given from outside; refused when it is taken (report O6).
    pub id: Option<SessionId>,
    /// The peer's session it stands for.
    pub external: Option<External>,
}

impl NewChild {
    /// A child that runs one agent, made by a tool call.
    #[must_use]
    pub fn new(agent_name: NodeName, agent_type: AgentType) -> Self {
        Self {
            agent_name,
            agent_type,
            source_type: SourceType::Agent,
            mechanism: SpawnMechanism::Task,
            description: String::new(),
            tool_call: None,
            task: None,
            cwd: None,
            model: None,
            limits: SessionLimits::UNBOUNDED,
            metadata: std::collections::BTreeMap::new(),
            id: None,
            external: None,
        }
    }
}
