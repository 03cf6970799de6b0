//! What can be delegated to: an agent, a parallel team, a sequential team run.

use std::{
    fmt,
    ops::{BitAnd, BitOr},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use offspring_protocol::{AgentType, MessageId, NodeName, SessionLimits, SourceType};
use offspring_sessions::{Answer, RunContext, RunError};

/// What a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: Arc<str>,
    /// Names it, when it was stored before its run
    /// ([`receive_prompt`](offspring_sessions::SessionManager::receive_prompt)).
    pub id: Option<MessageId>,
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self { text: text.into(), id: None }
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self { text: text.into(), id: None }
    }
}

/// A node cannot be asked this; found out before anything exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{node}` cannot be asked this: {reason}")]
pub struct RefusedPrompt {
    /// The node.
    pub node: NodeName,
    /// Why, and what to do about it.
    pub reason: String,
}

/// What happens to children that still run when their agent has exited (rule L19).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExit {
    /// They are waited for: the root's run ends when the whole tree is at rest.
    #[default]
    Wait,
    /// They are cancelled.
    Cancel,
}

/// One agent: the only trait object among the nodes.
///
/// An agent is shared by all its sessions and keeps nothing of a session in itself, so that the same agent
/// twice in a team, or in two teams at once, mixes nothing up.
///
/// ```
/// use std::sync::Arc;
/// use futures_util::future::BoxFuture;
/// use offspring_delegation::{Agent, Prompt};
/// use offspring_protocol::NodeName;
/// use offspring_sessions::{Answer, RunContext, RunError};
///
/// struct Shout(NodeName);
///
/// impl Agent for Shout {
///     fn name(&self) -> &NodeName {
///         &self.0
///     }
///     fn run(self: Arc<Self>, prompt: Prompt, _cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
///         Box::pin(async move { Ok(prompt.text.to_uppercase().into()) })
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Its name in the pool.
    fn name(&self) -> &NodeName;

    /// What it is (rule L7).
    fn agent_type(&self) -> AgentType {
        AgentType::Native
    }

    /// What it does, for whoever chooses a node.
    fn description(&self) -> &str {
        ""
    }

    /// The model it uses, kept in the session's row.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Narrows what its sessions may do (rule L17).
    fn limits(&self) -> SessionLimits {
        SessionLimits::UNBOUNDED
    }

    /// How long its run may say nothing while nothing else is waited for; beyond, the run fails. By default as long
    /// as it likes.
    fn max_silence(&self) -> Option<Duration> {
        None
    }

    /// Whether its run counts among the active ones (`max_active`, rule L5): a process or a model request.
    fn takes_slot(&self) -> bool {
        false
    }

    /// How long it may take to stop by itself once it is asked to; then its future is dropped. Zero: at
    /// once, which is right for an agent that is nothing but a future.
    fn stop_grace(&self) -> Duration {
        Duration::ZERO
    }

    /// What happens to children that outlive it (rule L19).
    fn on_exit(&self) -> OnExit {
        Default::default()
    }

    /// Why it cannot be asked this, and what to do about it; `None` when it can. Asked before a session
    /// exists; must touch nothing.
    fn refuses(&self, _prompt: &Prompt) -> Option<String> {
        None
    }

    /// Does the work of one run and reports through `cx`.
    ///
    /// A panic is caught and ends the run as failed (`panicked`).
    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>>;
}

/// Something that can be delegated to. Cheap to clone.
#[derive(Clone)]
pub enum Node {
    /// One agent.
    Agent(Arc<dyn Agent>),
    /// Members that run at once.
    Team(Arc<Team>),
    /// Members that run one after another.
    TeamRun(Arc<TeamRun>),
}

/// Members that run at once on the same prompt (rule L11).
#[derive(Debug, Clone)]
pub struct Team {
    /// Its name.
    pub name: NodeName,
    /// What it does.
    pub description: String,
    /// Put before every member's prompt.
    pub shared_prompt: Option<String>,
    /// In the order of the result.
    pub members: Vec<Node>,
}

/// Members that run one after another, each on the output of the one before (rule L11).
#[derive(Debug, Clone)]
pub struct TeamRun {
    /// Its name.
    pub name: NodeName,
    /// What it does.
    pub description: String,
    /// Put before the first member's prompt.
    pub shared_prompt: Option<String>,
    /// In the order of the run.
    pub members: Vec<Node>,
    /// Whether the first failure ends it.
    pub require_all: bool,
}

impl Node {
    /// A node of this agent.
    pub fn agent(agent: impl Agent) -> Self {
        Self::Agent(Arc::new(agent))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        match self {
            Self::Agent(agent) => agent.name(),
            Self::Team(team) => &team.name,
            Self::TeamRun(run) => &run.name,
        }
    }

    /// What it does.
    #[must_use]
    pub fn description(&self) -> &str {
        match self {
            Self::Agent(agent) => agent.description(),
            Self::Team(team) => &team.description,
            Self::TeamRun(run) => &run.description,
        }
    }

    /// What it is (rule L7; RFC-0028 component 10).
    #[must_use]
    pub fn agent_type(&self) -> AgentType {
        match self {
            Self::Agent(agent) => agent.agent_type(),
            Self::Team(_) | Self::TeamRun(_) => AgentType::Team,
        }
    }

    /// Why it cannot be asked this: see [`Agent::refuses`]. A member of a team that cannot fails alone (rule L11).
    ///
    /// # Errors
    /// [`RefusedPrompt`].
    pub fn takes(&self, prompt: &Prompt) -> Result<(), RefusedPrompt> {
        match self {
            Self::Agent(agent) => agent
                .refuses(prompt)
                .map_or(Ok(()), |reason| Err(RefusedPrompt { node: agent.name().clone(), reason })),
            Self::Team(_) | Self::TeamRun(_) => Ok(()),
        }
    }

    /// How it is delegated to (rule L7): exhaustive, so that no node is silently taken for an agent.
    #[must_use]
    pub const fn source_type(&self) -> SourceType {
        match self {
            Self::Agent(_) => SourceType::Agent,
            Self::Team(_) => SourceType::TeamParallel,
            Self::TeamRun(_) => SourceType::TeamSequential,
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => write!(f, "{}", agent.name()),
            Self::Team(team) => write!(f, "({:?})", Joined(&team.members, " & ")),
            Self::TeamRun(run) => write!(f, "({:?})", Joined(&run.members, " | ")),
        }
    }
}

struct Joined<'a>(&'a [Node], &'a str);

impl fmt::Debug for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(self.1)?;
            }
            write!(f, "{node:?}")?;
        }
        Ok(())
    }
}

impl Team {
    /// A team of these members.
    #[must_use]
    pub fn new(name: NodeName, members: Vec<Node>) -> Self {
        Self { name, description: String::new(), shared_prompt: None, members }
    }
}

impl TeamRun {
    /// A team run of these members in which the first failure ends it.
    #[must_use]
    pub fn new(name: NodeName, members: Vec<Node>) -> Self {
        Self { name, description: String::new(), shared_prompt: None, members, require_all: true }
    }
}

/// Whether an operator made this team: only such a one is extended by the same operator.
fn made_by(operator: &str, name: &NodeName, description: &str, members: &[Node]) -> bool {
    description.is_empty() && *name.as_str() == joined_name(operator, members)
}

/// A team among the members stands in parentheses: `(a | b) & c` and `a | (b & c)` are two names.
fn joined_name(operator: &str, members: &[Node]) -> String {
    let written = |member: &Node| match member {
        Node::Agent(agent) => agent.name().to_string(),
        Node::Team(team) => format!("({})", team.name),
        Node::TeamRun(run) => format!("({})", run.name),
    };
    members.iter().map(written).collect::<Vec<_>>().join(operator)
}

/// A joined name is never empty: every member has a name.
fn name(operator: &str, members: &[Node]) -> NodeName {
    NodeName::new(joined_name(operator, members)).unwrap_or_else(|_| members[0].name().clone())
}

/// `a & b`: a parallel team. `(a & b) & c` is one team of three; a team with a name of its own, a team run,
/// and the operands themselves stay what they are.
impl BitAnd for Node {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        let mut members = match &self {
            Self::Team(team)
                if team.shared_prompt.is_none()
                    && made_by(" & ", &team.name, &team.description, &team.members) =>
            {
                team.members.clone()
            }
            _ => vec![self],
        };
        members.push(other);
        Self::Team(Arc::new(Team::new(name(" & ", &members), members)))
    }
}

/// `a | b`: a sequential team run. `(a | b) | c` is one run of three; a team run with a name of its own, a
/// team, and the operands themselves stay what they are.
impl BitOr for Node {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        let mut members = match &self {
            Self::TeamRun(run)
                if run.shared_prompt.is_none()
                    && run.require_all
                    && made_by(" | ", &run.name, &run.description, &run.members) =>
            {
                run.members.clone()
            }
            _ => vec![self],
        };
        members.push(other);
        Self::TeamRun(Arc::new(TeamRun::new(name(" | ", &members), members)))
    }
}
