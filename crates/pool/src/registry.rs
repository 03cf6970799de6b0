//! Node factories by node type, and the nodes a manifest describes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use offspring_delegation::{
    Agent, BuildError, Delegator, Node, NodeFactory, NodeSpec, Team, TeamRun, Variable, Worker,
};
use offspring_protocol::NodeName;

use crate::manifest::{
    AgentEntry, EnvironmentValue, Manifest, ManifestError, NodeSettings, Problem, TeamMode,
};

type Build =
    dyn Fn(&NodeSettings, NodeSpec, &Delegator) -> Result<Arc<dyn Agent>, ManifestError> + Send + Sync;

/// The node types of a program.
///
/// ```
/// use std::sync::Arc;
/// use futures_util::future::BoxFuture;
/// use offspring_delegation::{Agent, BuildError, Delegator, NodeFactory, NodeSpec, Prompt};
/// use offspring_pool::Registry;
/// use offspring_protocol::NodeName;
/// use offspring_sessions::{Answer, RunContext, RunError};
///
/// struct Repeat(NodeName, usize);
/// impl Agent for Repeat {
///     fn name(&self) -> &NodeName {
///         &self.0
///     }
///     fn run(self: Arc<Self>, prompt: Prompt, _cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
///         Box::pin(async move { Ok(prompt.text.repeat(self.1).into()) })
///     }
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Times {
///     times: usize,
/// }
///
/// struct Repeats;
/// impl NodeFactory for Repeats {
///     type Settings = Times;
///     fn kind(&self) -> &'static str {
///         "repeat"
///     }
///     fn build(&self, settings: Times, spec: NodeSpec, _: &Delegator) -> Result<Arc<dyn Agent>, BuildError> {
///         Ok(Arc::new(Repeat(spec.name, settings.times)))
///     }
/// }
///
/// let registry = Registry::default().with(Repeats);
/// assert_eq!(registry.kinds(), ["repeat"]);
/// ```
#[derive(Default)]
pub struct Registry {
    factories: BTreeMap<&'static str, Box<Build>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registry").field(&self.kinds()).finish()
    }
}

impl Registry {
    /// With one more node type; a type of the same name is replaced.
    #[must_use]
    pub fn with<F: NodeFactory>(mut self, factory: F) -> Self {
        let kind = factory.kind();
        let build = move |settings: &NodeSettings, spec: NodeSpec, delegator: &Delegator| {
            let own = settings.parse::<F::Settings>()?;
            factory.build(own, spec, delegator).map_err(|error| located(settings, error))
        };
        self.factories.insert(kind, Box::new(build));
        self
    }

    /// The node types, in the order of the alphabet.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        self.factories.keys().copied().collect()
    }

    /// Makes every node of a manifest; runs nothing.
    ///
    /// # Errors
    /// All that is wrong with the agents, with its place in the manifest.
    pub fn build(&self, manifest: &Manifest, delegator: &Delegator) -> Result<Vec<Node>, ManifestError> {
        manifest.check_kinds(&self.kinds())?;
        let mut nodes: BTreeMap<NodeName, Node> = BTreeMap::new();
        let mut problems = Vec::new();
        for entry in manifest.agents() {
            let Some(build) = self.factories.get(entry.kind.as_str()) else { continue };
            match build(&entry.settings, spec(manifest, entry), delegator) {
                Ok(agent) => {
                    nodes.insert(entry.name.clone(), Node::Agent(agent));
                }
                Err(error) => problems.extend(error.problems().to_vec()),
            }
        }
        if !problems.is_empty() {
            return Err(ManifestError::new(manifest.path(), problems));
        }
        for team in manifest.teams() {
            add_team(manifest, &team.name, &mut nodes);
        }
        Ok(nodes.into_values().collect())
    }
}

fn located(settings: &NodeSettings, error: BuildError) -> ManifestError {
    let BuildError { key, message, help } = error;
    let problem = Problem::at(settings.place_of(key.as_deref().unwrap_or_default()), message);
    settings.error(vec![match help {
        Some(help) => problem.suggest(help),
        None => problem,
    }])
}

fn spec(manifest: &Manifest, entry: &AgentEntry) -> NodeSpec {
    // Those of the whole pool are for the others: nobody asks itself.
    let of_pool = manifest.workers().iter().filter(|worker| worker.node != entry.name);
    let workers = entry.workers.iter().chain(of_pool);
    let mut names: Vec<Worker> = Vec::new();
    for worker in workers {
        if names.iter().all(|known| known.node != worker.node) {
            names.push(Worker { node: worker.node.clone() });
        }
    }
    let variable = |(name, value): &(String, EnvironmentValue)| match value {
        EnvironmentValue::Text(value) => {
            Some(Variable { name: name.clone(), value: value.clone(), secret: false })
        }
        EnvironmentValue::From(from) => {
            let value = std::env::var(from).ok()?;
            Some(Variable { name: name.clone(), value, secret: true })
        }
    };
    let limits = manifest.limits();
    NodeSpec {
        name: entry.name.clone(),
        description: entry.description.clone().unwrap_or_default(),
        workers: names,
        environment: entry.environment.iter().filter_map(variable).collect(),
        limits: entry.limits.clone(),
        manifest_dir: manifest.dir().to_owned(),
        max_silence: entry.run_limits.max_silence_ms.or(limits.max_silence_ms).map(Duration::from_millis),
        max_output_bytes: entry.run_limits.max_output_bytes.unwrap_or(limits.max_output_bytes),
        max_prompt_bytes: limits.max_prompt_bytes,
    }
}

/// Makes a team after the teams among its members; a checked manifest has no cycle.
fn add_team(manifest: &Manifest, name: &NodeName, nodes: &mut BTreeMap<NodeName, Node>) {
    if nodes.contains_key(name) {
        return;
    }
    let Some(entry) = manifest.team(name.as_str()) else { return };
    for member in &entry.members {
        add_team(manifest, member, nodes);
    }
    let members = entry.members.iter().filter_map(|member| nodes.get(member).cloned()).collect();
    let description = entry.description.clone().unwrap_or_default();
    let shared_prompt = entry.shared_prompt.clone();
    let node = match entry.mode {
        TeamMode::Parallel => {
            Node::Team(Arc::new(Team { description, shared_prompt, ..Team::new(name.clone(), members) }))
        }
        TeamMode::Sequential => Node::TeamRun(Arc::new(TeamRun {
            description,
            shared_prompt,
            require_all: entry.require_all,
            ..TeamRun::new(name.clone(), members)
        })),
    };
    nodes.insert(name.clone(), node);
}
