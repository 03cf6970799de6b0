//! How a pool makes nodes from its manifest: one factory per node type.

use std::{path::PathBuf, sync::Arc};

use offspring_protocol::{NodeName, SessionLimits};

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
    pub environment: Vec<(String, String)>,
    /// Narrows what its sessions may do (rule L17).
    pub limits: SessionLimits,
    /// Where relative paths of the manifest start.
    pub manifest_dir: PathBuf,
    /// The keys of its type, as JSON.
    pub settings: serde_json::Value,
}

/// A node cannot be made of what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// The key it is about, if one.
    pub key: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl BuildError {
    /// An error about one key.
    pub fn key(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: Some(key.into()), message: message.into() }
    }
}

/// Makes agents of one type. A program registers one for each type it offers; a stranger's program
/// registers its own.
pub trait NodeFactory: Send + Sync + 'static {
    /// The word after `type:` in a manifest.
    fn kind(&self) -> &'static str;

    /// The keys of this type beside the common ones, each with what it means: what is not among them is
    /// refused.
    fn keys(&self) -> &'static [(&'static str, &'static str)];

    /// Makes the agent. Must not run anything.
    ///
    /// # Errors
    /// [`BuildError`].
    fn build(&self, spec: NodeSpec, delegator: &Delegator) -> Result<Arc<dyn Agent>, BuildError>;
}
