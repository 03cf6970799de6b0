//! What all providers share: the manager, the nodes by name, the slots and the tasks; and the run of a root.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use offspring_protocol::{
    NodeName, Origin, Outcome, RunId, SessionId, SessionInfo, SessionLimits, control::MemberResult,
};
use offspring_sessions::{NewRoot, Refused, SessionManager};
use tokio::task::JoinHandle;

use crate::{
    drive,
    node::{Node, Prompt},
    recall::Recall,
    slots::{SlotLimits, Slots},
    tasks::Tasks,
};

/// Bounds of a delegator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegatorOptions {
    /// What works at once.
    pub slots: SlotLimits,
    /// What every root starts with (rule L5); the defaults of [`SessionLimits`] by default.
    pub limits: SessionLimits,
}

/// What all providers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Delegator {
    manager: SessionManager,
    nodes: Arc<RwLock<BTreeMap<NodeName, Node>>>,
    slots: Slots,
    tasks: Tasks,
    limits: Arc<SessionLimits>,
    recalls: Recalls,
}

/// What roots that are run again take from, while they run.
type Recalls = Arc<Mutex<HashMap<SessionId, Recall>>>;

/// Ends with the run of a root that is run again: what comes later is run like anything else.
pub(crate) struct Recalling {
    recalls: Recalls,
    root: SessionId,
}

impl Drop for Recalling {
    fn drop(&mut self) {
        self.recalls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.root);
    }
}

/// No node has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no node `{name}`; {}", what_there_is(suggestion.as_ref(), available))]
pub struct UnknownNode {
    /// The name.
    pub name: NodeName,
    /// The node whose name is closest, if one is close.
    pub suggestion: Option<NodeName>,
    /// Every node there is.
    pub available: Vec<NodeName>,
}

fn what_there_is(suggestion: Option<&NodeName>, available: &[NodeName]) -> String {
    // A pool may have hundreds.
    const LISTED: usize = 12;
    if let Some(name) = suggestion {
        return format!("did you mean `{name}`?");
    }
    let mut names: Vec<String> = available.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    if available.len() > LISTED {
        names.push(format!("{} more", available.len() - LISTED));
    }
    if names.is_empty() { "the pool has none".to_owned() } else { format!("there are: {}", names.join(", ")) }
}

/// How a root is run.
#[derive(Debug, Clone)]
pub struct RootOptions {
    /// Its working directory, absolute.
    pub cwd: Option<String>,
    /// A short name for people; the beginning of the prompt if unset.
    pub title: Option<String>,
    /// Narrows the bounds that every root has; unbounded by default, which leaves them as they are.
    pub limits: SessionLimits,
    /// Notes that its row keeps.
    pub metadata: BTreeMap<String, String>,
    /// An id given from outside.
    pub id: Option<SessionId>,
    /// What it is started with, kept with its row so that it can be started again.
    pub origin: Option<Origin>,
    /// An older tree of the same root whose results are taken instead of being made again.
    pub recall: Option<Recall>,
}

impl Default for RootOptions {
    fn default() -> Self {
        Self {
            cwd: None,
            title: None,
            limits: SessionLimits::UNBOUNDED,
            metadata: BTreeMap::new(),
            id: None,
            origin: None,
            recall: None,
        }
    }
}

/// A root that runs.
#[derive(Debug)]
pub struct RootRun {
    /// Its session.
    pub session: Arc<SessionInfo>,
    /// Its run.
    pub run: RunId,
    /// Ends with the run, when the whole tree is at rest (rule L19).
    pub result: JoinHandle<RootResult>,
}

/// What a root's run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootResult {
    /// How it ended.
    pub outcome: Outcome,
    /// Its answer; for a failed run what there was of one.
    pub answer: String,
    /// What went wrong.
    pub error: Option<String>,
}

impl From<MemberResult> for RootResult {
    fn from(result: MemberResult) -> Self {
        Self { outcome: result.outcome, answer: result.output, error: result.error }
    }
}

impl Delegator {
    /// A delegator without nodes.
    #[must_use]
    pub fn new(manager: SessionManager, options: DelegatorOptions) -> Self {
        let DelegatorOptions { slots, limits } = options;
        let slots = Slots::new(slots);
        let (nodes, tasks, recalls) = (Arc::default(), Tasks::default(), Recalls::default());
        Self { manager, nodes, slots, tasks, limits: Arc::new(limits), recalls }
    }

    /// A delegator outside a pool: nothing is stored (rule L8; RFC-0028, two-tier persistence).
    #[must_use]
    pub fn detached() -> Self {
        Self::new(SessionManager::detached(), DelegatorOptions::default())
    }

    /// The session manager.
    #[must_use]
    pub const fn manager(&self) -> &SessionManager {
        &self.manager
    }

    /// The slots.
    #[must_use]
    pub const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The delegations that were named.
    #[must_use]
    pub const fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Makes a node known by its name; a node of the same name is replaced.
    pub fn add(&self, node: Node) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(node.name().clone(), node);
    }

    /// Forgets every node, so that nodes which hold this delegator can go.
    pub fn clear(&self) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The node of this name.
    ///
    /// # Errors
    /// [`UnknownNode`], with what there is and what was probably meant.
    pub fn node(&self, name: &NodeName) -> Result<Node, UnknownNode> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(name).cloned().ok_or_else(|| UnknownNode {
            name: name.clone(),
            suggestion: closest(name, nodes.keys()),
            available: nodes.keys().cloned().collect(),
        })
    }

    /// Every node, by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Runs a node as the root of a new tree. Its session is stored when this returns.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn run_root(
        &self,
        node: Node,
        prompt: Prompt,
        options: RootOptions,
    ) -> Result<RootRun, Refused> {
        let recall = options.recall.clone();
        let title = options.title.clone().or_else(|| Some(title(&prompt.text)));
        let new = self.new_root(&node, RootOptions { title, ..options });
        let root = self.manager.create_root(new).await?;
        let recalling = recall.map(|recall| self.recall(root.session().id.clone(), recall));
        Ok(drive::root(self.clone(), root, node, prompt, recalling))
    }

    /// Makes the root of a new tree that waits for its first prompt
    /// ([`prompt_root`](Self::prompt_root)). There is nothing in it to take results from again.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn create_root(&self, node: &Node, options: RootOptions) -> Result<Arc<SessionInfo>, Refused> {
        self.manager.create_resting_root(self.new_root(node, options)).await
    }

    fn new_root(&self, node: &Node, options: RootOptions) -> NewRoot {
        let limits = self.limits.narrowed_by(&options.limits);
        let (limits, model) = match node {
            Node::Agent(agent) => (limits.narrowed_by(&agent.limits()), agent.model().map(ToOwned::to_owned)),
            Node::Team(_) | Node::TeamRun(_) => (limits, None),
        };
        NewRoot {
            model,
            cwd: options.cwd,
            title: options.title,
            limits,
            metadata: options.metadata,
            id: options.id,
            origin: options.origin,
            ..NewRoot::new(node.name().clone(), node.agent_type())
        }
    }

    fn recall(&self, root: SessionId, recall: Recall) -> Recalling {
        recall.begin(&root);
        self.recalls.lock().unwrap_or_else(PoisonError::into_inner).insert(root.clone(), recall);
        Recalling { recalls: Arc::clone(&self.recalls), root }
    }

    /// What this tree takes its results from, if it is run again.
    pub(crate) fn recall_of(&self, root: &SessionId) -> Option<Recall> {
        self.recalls.lock().unwrap_or_else(PoisonError::into_inner).get(root).cloned()
    }

    /// A new prompt to a root that is at rest: a new run of the same session (rule L12). Of a child it is a
    /// new run as by [`prompt_child`](Self::prompt_child), which does not wait for the tree.
    ///
    /// # Errors
    /// [`Refused`]: unknown, running, or owned by another process.
    pub async fn prompt_root(&self, id: &SessionId, node: Node, prompt: Prompt) -> Result<RootRun, Refused> {
        let root = self.manager.resume_root(id).await?;
        Ok(drive::root(self.clone(), root, node, prompt, None))
    }

    /// A follow-up to a child that is at rest: a new run of the same session, no second spawn (rule L12).
    ///
    /// # Errors
    /// [`Refused`]: unknown, running, cancelled from above, or owned by another process.
    pub async fn prompt_child(
        &self,
        id: &SessionId,
        node: Node,
        prompt: Prompt,
    ) -> Result<MemberResult, Refused> {
        let child = self.manager.resume_child(id).await?;
        Ok(drive::finished(drive::child(self.clone(), child, node, prompt)).await)
    }
}

/// The first line of a prompt, shortened, as a title for its session.
#[must_use]
pub fn title(prompt: &str) -> String {
    const LONGEST: usize = 80;
    let line = prompt.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match line.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}

/// The name that differs least, if it differs by no more than a third of its length.
fn closest<'a>(name: &NodeName, names: impl Iterator<Item = &'a NodeName>) -> Option<NodeName> {
    let distance = |other: &NodeName| strsim::osa_distance(name.as_str(), other.as_str());
    let (least, other) = names.map(|other| (distance(other), other)).min_by_key(|(distance, _)| *distance)?;
    let length = name.as_str().chars().count();
    // Of a name of one letter every letter would be the only one that differs.
    (least <= length.div_ceil(3) && least < length).then(|| other.clone())
}
