//! The manifest of a pool: a YAML file with agents, teams, workers, limits and storage.
//!
//! [`Manifest::load`] reads a file, [`Manifest::from_str`] a text. Either gives a manifest in which every name is one
//! that a node can have, every member, worker and entry exists, no team contains itself and no limit is zero, or a
//! [`ManifestError`] with everything that is wrong, each problem with line, column and what to do.
//!
//! What only the program knows comes later: which node types there are ([`Manifest::check_kinds`]) and what their
//! settings mean ([`NodeSettings::parse`]), with errors of the same kind.

mod check;
mod fault;
mod file;
#[cfg(feature = "schema")]
mod keys;
mod limits;
mod located;
mod problem;
mod read;
mod settings;
mod yaml;

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf, absolute},
    sync::Arc,
};

use offspring_protocol::{NodeName, PoolId, SessionLimits};

#[cfg(feature = "schema")]
pub use self::keys::{KeyReference, keys, schema};
pub use self::{
    limits::{LimitInForce, Limits, RunLimits},
    located::Located,
    problem::{ManifestError, Place, Problem},
    settings::NodeSettings,
};
use self::{problem::suggestion, settings::Source};

/// The largest manifest that is read, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// A checked manifest.
#[derive(Debug, Clone)]
pub struct Manifest {
    source: Arc<Source>,
    name: PoolId,
    description: Option<String>,
    entry: Option<NodeName>,
    agents: Vec<AgentEntry>,
    teams: Vec<TeamEntry>,
    workers: Vec<WorkerEntry>,
    limits: Limits,
    given_limits: Vec<String>,
    storage: Option<Storage>,
}

/// One agent of a manifest.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    /// Its name.
    pub name: NodeName,
    /// Its node type, as written; [`Manifest::check_kinds`] says whether a program has it.
    pub kind: String,
    /// Where the node type stands.
    pub kind_place: Place,
    /// What the agent is good at.
    pub description: Option<String>,
    /// Whom it can ask besides the pool's workers.
    pub workers: Vec<WorkerEntry>,
    /// Its variables, besides the small set that every process gets (rule W10), in the order of the file.
    pub environment: Vec<(String, EnvironmentValue)>,
    /// What narrows the pool's limits for its sessions (rule L17); `None` where it says nothing.
    pub limits: SessionLimits,
    /// The same for its runs.
    pub run_limits: RunLimits,
    /// The keys of its node type.
    pub settings: NodeSettings,
}

impl AgentEntry {
    /// The limits that it narrows, by their keys.
    pub fn narrowed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let RunLimits { max_silence_ms, max_output_bytes } = self.run_limits;
        let of_run = [("max_silence_ms", max_silence_ms), ("max_output_bytes", max_output_bytes)];
        let all = limits::session_limits(&self.limits).into_iter().chain(of_run);
        all.filter_map(|(key, value)| Some((key, value?)))
    }
}

/// Where the value of a variable comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// The text that stands in the manifest.
    Text(String),
    /// The variable of this name in our own environment; unset there, it stays unset.
    From(String),
}

impl fmt::Debug for EnvironmentValue {
    /// The text itself is not shown: it may be a secret (W10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::From(name) => f.debug_tuple("From").field(name).finish(),
        }
    }
}

/// Somebody who can be asked through a tool `ask_<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEntry {
    /// The agent or team.
    pub node: NodeName,
}

/// One team of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamEntry {
    /// Its name.
    pub name: NodeName,
    /// How its members work.
    pub mode: TeamMode,
    /// Its members in order; the same node may be there several times, and nobody at all (rule L11).
    pub members: Vec<NodeName>,
    /// What the team is good at.
    pub description: Option<String>,
    /// What every member gets in front of its prompt.
    pub shared_prompt: Option<String>,
    /// For sequential teams: the first failure ends the team (rule L11).
    pub require_all: bool,
}

/// How the members of a team work (rule L11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamMode {
    /// All at once on the same prompt.
    Parallel,
    /// One after another, each on the output of the one before.
    Sequential,
}

/// Where a pool keeps its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// Nowhere: gone with the process.
    Memory,
    /// In a SQLite file; `None` for the one in the user's state directory.
    Sqlite {
        /// The file, seen from the directory of the manifest.
        path: Option<PathBuf>,
    },
}

impl Manifest {
    /// Reads and checks a manifest file.
    ///
    /// A relative path is one that a person has typed: it is taken from the current directory, once; nothing in the
    /// manifest is.
    ///
    /// # Errors
    /// Everything that is wrong with the file or its content, with the path as it was given.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ManifestError> {
        let path = path.as_ref();
        let of_file = |problem| ManifestError::new(path, vec![problem]);
        let unreadable =
            |error: io::Error| of_file(Problem::of_file(format!("cannot be read: {}", reason(&error))));
        let whole_path = absolute(path).map_err(unreadable)?;
        // Before it is opened: a named pipe would keep us waiting for somebody who writes.
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            return Err(of_file(Problem::of_file("is a directory").suggest("name the manifest in it")));
        }
        if !found.is_file() {
            let hint = "write it into one, because its paths are seen from its directory";
            return Err(of_file(Problem::of_file("is no regular file").suggest(hint)));
        }
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            let too_long = format!("is longer than {MAX_MANIFEST_BYTES} bytes");
            return Err(of_file(
                Problem::of_file(too_long).suggest("a manifest holds no data; put it in files beside it"),
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| of_file(no_text(&error)))?;
        Self::read(&text, path, &whole_path)
    }

    /// Checks a manifest that is in memory; `path` is where it stands or would stand.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_str(text: &str, path: &Path) -> Result<Self, ManifestError> {
        Self::read(text, path, path)
    }

    fn read(text: &str, path: &Path, whole_path: &Path) -> Result<Self, ManifestError> {
        let dir = match whole_path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let source = Arc::new(Source { path: path.to_owned(), dir, text: text.into() });
        let mut problems = Vec::new();
        match check::manifest(text, &source, &mut problems) {
            Some(manifest) if problems.is_empty() => Ok(manifest),
            _ => Err(ManifestError::new(path, problems)),
        }
    }

    /// Whether every agent's node type is one of these.
    ///
    /// # Errors
    /// Every agent whose node type is not, with the closest one or all of them.
    pub fn check_kinds(&self, known: &[&str]) -> Result<(), ManifestError> {
        let problems: Vec<Problem> = self
            .agents
            .iter()
            .filter(|agent| !known.contains(&agent.kind.as_str()))
            .map(|agent| {
                Problem::at(agent.kind_place, format!("unknown node type `{}`", problem::shown(&agent.kind)))
                    .maybe_suggest(suggestion(&agent.kind, "this program has", known.iter().copied()))
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(ManifestError::new(self.path(), problems)) }
    }

    /// Its text, as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// The path of the manifest, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The directory of the manifest, which its paths resolve against.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.source.dir
    }

    /// A path of the manifest, seen from its directory; an absolute one stays as it is.
    #[must_use]
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.source.resolve(path)
    }

    /// The name of the pool: its `name`, or the name of the file without extension.
    #[must_use]
    pub fn name(&self) -> &PoolId {
        &self.name
    }

    /// What the pool is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The node that a run starts when nobody names one: the one that is named, or the only one. `None` in a pool of
    /// several that names none, where each run has to.
    #[must_use]
    pub fn entry(&self) -> Option<&NodeName> {
        self.entry.as_ref()
    }

    /// The agents in the order of the file; at least one.
    #[must_use]
    pub fn agents(&self) -> &[AgentEntry] {
        &self.agents
    }

    /// The teams in the order of the file.
    #[must_use]
    pub fn teams(&self) -> &[TeamEntry] {
        &self.teams
    }

    /// Those whom every agent can ask.
    #[must_use]
    pub fn workers(&self) -> &[WorkerEntry] {
        &self.workers
    }

    /// The agent of this name.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&AgentEntry> {
        self.agents.iter().find(|agent| agent.name.as_str() == name)
    }

    /// The team of this name.
    #[must_use]
    pub fn team(&self, name: &str) -> Option<&TeamEntry> {
        self.teams.iter().find(|team| team.name.as_str() == name)
    }

    /// The names of all nodes: agents, then teams.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.agents.iter().map(|agent| &agent.name).chain(self.teams.iter().map(|team| &team.name))
    }

    /// What bounds the trees of the pool.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same one by one, each with whether the manifest says it.
    pub fn limits_in_force(&self) -> impl Iterator<Item = LimitInForce> {
        self.limits.values().into_iter().map(|(key, value)| {
            let is_given = self.given_limits.iter().any(|given| given == key);
            LimitInForce { key, value, is_given }
        })
    }

    /// Where the pool wants its sessions kept, when it says so.
    #[must_use]
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }
}

/// An error of the system without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.find(" (os error").map_or(text.as_str(), |end| &text[..end]).to_lowercase()
}

fn no_text(error: &std::string::FromUtf8Error) -> Problem {
    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let valid = String::from_utf8_lossy(valid);
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let last_line = valid.rsplit('\n').next().unwrap_or_default();
    let place = Place {
        line: number(valid.matches('\n').count() + 1),
        column: number(last_line.chars().count() + 1),
    };
    Problem::at(place, "this byte is no UTF-8").suggest("save the file as UTF-8")
}
