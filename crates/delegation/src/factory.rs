//! How a pool makes nodes from its manifest: one factory per node type.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use offspring_protocol::{NodeName, SessionLimits};
use serde::de::DeserializeOwned;

use crate::{delegator::Delegator, node::Agent, workers::Worker};

/// What a manifest says about an agent, apart from what only its type understands.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name.
    pub name: NodeName,
    /// What it does.
    pub description: String,
    /// Its workers, as tools `ask_<worker>`.
    pub workers: Vec<Worker>,
    /// Environment it gets on top of the small set (rule W10).
    pub environment: Vec<Variable>,
    /// Narrows what its sessions may do (rule L17).
    pub limits: SessionLimits,
    /// Where relative paths of the manifest start.
    pub manifest_dir: PathBuf,
    /// How long a run of it may say nothing; `None`: as long as it likes.
    pub max_silence: Option<Duration>,
    /// The longest answer that is kept, in bytes.
    pub max_output_bytes: u64,
    /// The longest prompt that may be given to a child, in bytes.
    pub max_prompt_bytes: u64,
}

/// A variable of an agent's environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether the value was taken from our own environment: then it is shown to nobody (rule W10).
    pub secret: bool,
}

impl fmt::Debug for Variable {
    /// Never the value (W10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

/// A node cannot be made of what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// The key it is about, if one.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl BuildError {
    /// An error about one key.
    pub fn key(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: Some(key.into()), message: message.into(), help: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Makes agents of one type. A program registers one for each type it offers; a stranger's program
/// registers its own.
pub trait NodeFactory: Send + Sync + 'static {
    /// The keys of this type beside those every agent has. What is not among them is refused.
    type Settings: DeserializeOwned;

    /// The word after `type:` in a manifest.
    fn kind(&self) -> &'static str;

    /// Makes the agent. Must not run anything.
    ///
    /// # Errors
    /// [`BuildError`].
    fn build(
        &self,
        settings: Self::Settings,
        spec: NodeSpec,
        delegator: &Delegator,
    ) -> Result<Arc<dyn Agent>, BuildError>;
}
