//! A pool that runs: nodes, limits, a session manager, recovery.

use std::{path::Path, sync::Arc};

use offspring_delegation::{
    Delegator, DelegatorOptions, Node, Prompt, RefusedPrompt, RootOptions, RootRun, SlotLimits, UnknownNode,
};
use offspring_protocol::{NodeName, SessionId, SessionInfo, SessionLimits, control::MemberResult};
use offspring_sessions::{
    Cancelled, ManagerOptions, Recovered, Refused, SessionManager, SessionStore, StoreError,
};

use crate::{
    manifest::{Limits, Manifest, ManifestError},
    registry::Registry,
};

/// A running pool. Close it with [`close`](Self::close); a pool that is only dropped leaves its runs to the
/// next recovery.
#[derive(Debug)]
pub struct Pool {
    delegator: Delegator,
    limits: Limits,
    entry: Option<NodeName>,
    recovered: Recovered,
}

/// Why a pool did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The manifest describes no pool.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a prompt did not start a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The pool has no such node.
    #[error(transparent)]
    UnknownNode(#[from] UnknownNode),
    /// The node cannot be asked this.
    #[error(transparent)]
    Prompt(#[from] RefusedPrompt),
    /// Refused, and nothing was made.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Longer than the limit.
    #[error("the prompt has {bytes} bytes and the limit is {max} (limits.max_prompt_bytes)")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: u64,
    },
    /// The pool has no entry node and none was named.
    #[error("name a node: the pool has no entry")]
    NoEntry,
}

impl From<StoreError> for PromptError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Pool {
    /// Starts the pool of a manifest over a store: runs whose owner is gone end as interrupted (rule L13).
    ///
    /// # Errors
    /// [`OpenError`]; the store is left as it was.
    pub async fn open(
        manifest: &Manifest,
        registry: &Registry,
        store: Arc<dyn SessionStore>,
        mut options: ManagerOptions,
    ) -> Result<Self, OpenError> {
        options.pool_id.get_or_insert_with(|| manifest.name().clone());
        options.default_agent = options.default_agent.or_else(|| manifest.entry().cloned());
        let mut pool = Self::with_limits(SessionManager::new(store, options), manifest.limits().clone());
        for node in registry.build(manifest, &pool.delegator)? {
            pool.delegator.add(node);
        }
        pool.entry = manifest.entry().cloned();
        pool.recovered = pool.manager().recover().await?;
        Ok(pool)
    }

    /// A pool without nodes and without recovery, for programs that bring their own.
    #[must_use]
    pub fn new(manager: SessionManager) -> Self {
        Self::with_limits(manager, Limits::default())
    }

    /// As [`new`](Self::new), with these limits.
    #[must_use]
    pub fn with_limits(manager: SessionManager, limits: Limits) -> Self {
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let slots = SlotLimits { max_active: size(limits.max_active), max_queued: size(limits.max_queued) };
        let options = DelegatorOptions { slots, limits: limits.session.clone() };
        let delegator = Delegator::new(manager, options);
        Self { delegator, limits, entry: None, recovered: Recovered::default() }
    }

    /// Adds a node of the program's own; one of the same name is replaced.
    pub fn add(&self, node: Node) {
        self.delegator.add(node);
    }

    /// What nodes of the program's own need to delegate.
    #[must_use]
    pub const fn delegator(&self) -> &Delegator {
        &self.delegator
    }

    /// The session manager.
    #[must_use]
    pub const fn manager(&self) -> &SessionManager {
        self.delegator.manager()
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the start ended because its owner was gone.
    #[must_use]
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The node of this name, or the entry.
    ///
    /// # Errors
    /// [`PromptError::UnknownNode`] or [`PromptError::NoEntry`].
    pub fn node(&self, name: Option<&NodeName>) -> Result<Node, PromptError> {
        let name = name.or(self.entry.as_ref()).ok_or(PromptError::NoEntry)?;
        Ok(self.delegator.node(name)?)
    }

    /// Runs a node (the entry if none is named) as the root of a new tree; it is stored when this returns.
    /// The bounds of `options` narrow the pool's own.
    ///
    /// # Errors
    /// [`PromptError`], and then nothing exists.
    pub async fn run(
        &self,
        node: Option<&NodeName>,
        prompt: Prompt,
        options: RootOptions,
    ) -> Result<RootRun, PromptError> {
        let node = self.node(node)?;
        self.check(&node, &prompt)?;
        Ok(self.delegator.run_root(node, prompt, options).await?)
    }

    /// Makes the root of a new tree for a node (the entry if none is named); it waits for its first
    /// [`prompt`](Self::prompt). The bounds of `options` narrow the pool's own.
    ///
    /// # Errors
    /// [`PromptError`], and then nothing exists.
    pub async fn create(
        &self,
        node: Option<&NodeName>,
        options: RootOptions,
    ) -> Result<Arc<SessionInfo>, PromptError> {
        let node = self.node(node)?;
        Ok(self.delegator.create_root(&node, options).await?)
    }

    /// Whether the node of a session can be asked this, without asking it.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub async fn check_prompt(&self, session: &SessionId, prompt: &Prompt) -> Result<(), PromptError> {
        let node = self.node_of(session).await?;
        self.check(&node, prompt)
    }

    /// The node to which a prompt goes that names none.
    #[must_use]
    pub const fn entry(&self) -> Option<&NodeName> {
        self.entry.as_ref()
    }

    /// A follow-up to a root that is at rest (rule L12).
    ///
    /// # Errors
    /// [`PromptError`]; `UnknownNode` when the manifest no longer has the node of the session.
    pub async fn prompt(&self, session: &SessionId, prompt: Prompt) -> Result<RootRun, PromptError> {
        let node = self.node_of(session).await?;
        self.check(&node, &prompt)?;
        Ok(self.delegator.prompt_root(session, node, prompt).await?)
    }

    /// A follow-up to a child that is at rest (rule L12).
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub async fn prompt_child(
        &self,
        session: &SessionId,
        prompt: Prompt,
    ) -> Result<MemberResult, PromptError> {
        let node = self.node_of(session).await?;
        self.check(&node, &prompt)?;
        Ok(self.delegator.prompt_child(session, node, prompt).await?)
    }

    async fn node_of(&self, session: &SessionId) -> Result<Node, PromptError> {
        let record = self.manager().session(session).await?;
        let record = record.ok_or_else(|| Refused::UnknownSession { id: session.clone() })?;
        Ok(self.delegator.node(&record.data.agent_name)?)
    }

    fn check(&self, node: &Node, prompt: &Prompt) -> Result<(), PromptError> {
        let (bytes, max) = (prompt.text.len(), self.limits.max_prompt_bytes);
        if bytes as u64 > max {
            return Err(PromptError::TooLong { bytes, max });
        }
        Ok(node.takes(prompt)?)
    }

    /// The bounds a root gets when its caller asks for none.
    #[must_use]
    pub const fn session_limits(&self) -> &SessionLimits {
        &self.limits.session
    }

    /// Refuses what is new, cancels what runs, children first, and closes the store last (rule L14).
    ///
    /// # Errors
    /// When the store cannot be closed well.
    pub async fn close(self) -> Result<Cancelled, StoreError> {
        let cancelled = self.manager().close().await;
        self.delegator.clear();
        cancelled
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nodes hold the delegator and the delegator holds the nodes.
        self.delegator.clear();
    }
}

/// Reads a manifest and says everything that is wrong with it, without running anything.
///
/// # Errors
/// All that is wrong, with its place.
pub fn check(path: &Path, registry: &Registry) -> Result<Manifest, ManifestError> {
    let manifest = Manifest::load(path)?;
    registry.build(&manifest, &Delegator::detached())?;
    Ok(manifest)
}
