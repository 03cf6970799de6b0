//! The keys of an agent that belong to its node type.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::de::DeserializeOwned;

use super::{
    file::AGENT_KEYS,
    problem::{ManifestError, Place, Problem},
    read,
    yaml::{Value, Yaml},
};

/// A manifest's text and where it is: as its path was given, and the directory that paths in it resolve against.
#[derive(PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) text: Box<str>,
}

impl fmt::Debug for Source {
    /// The text itself is not shown: a value in it may be a secret (W10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Source {
    /// A path of the manifest, seen from its own directory.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.dir.join(path.strip_prefix("./").unwrap_or(path))
    }
}

/// What an agent says besides the keys that every agent has, for the factory of its node type to read.
///
/// ```
/// use offspring_pool::manifest::Manifest;
///
/// #[derive(serde::Deserialize)]
/// struct Echo {
///     repeat: u32,
/// }
///
/// let manifest = Manifest::from_str("agents: {parrot: {type: echo, repeat: 2}}", "pool.yaml".as_ref())?;
/// let agent = &manifest.agents()[0];
/// assert_eq!(agent.settings.parse::<Echo>()?.repeat, 2);
///
/// let wrong = Manifest::from_str("agents: {parrot: {type: echo, repeat: two}}", "pool.yaml".as_ref())?;
/// let error = wrong.agents()[0].settings.parse::<Echo>().err().map(|error| error.to_string());
/// assert_eq!(
///     error.as_deref(),
///     Some("pool.yaml:1:39: `agents.parrot.repeat`: expected a whole number, found text")
/// );
/// # Ok::<(), offspring_pool::manifest::ManifestError>(())
/// ```
#[derive(Clone)]
pub struct NodeSettings {
    source: Arc<Source>,
    /// Without the keys that every agent has.
    yaml: Arc<Yaml>,
    path: Arc<str>,
}

impl NodeSettings {
    /// Takes the entry of an agent apart: what every agent has, and the rest.
    pub(super) fn split(entry: Yaml, agent: &str, source: &Arc<Source>) -> (Yaml, Self) {
        let Yaml { id, place, value } = entry;
        let (common, own) = match value {
            Value::Table(entries) => {
                entries.into_iter().partition(|(key, _)| AGENT_KEYS.contains(&key.text.as_str()))
            }
            _ => (Vec::new(), Vec::new()),
        };
        let own = Yaml { id, place, value: Value::Table(own) };
        let path = format!("agents.{agent}").into();
        let settings = Self { source: Arc::clone(source), yaml: Arc::new(own), path };
        (Yaml { id, place, value: Value::Table(common) }, settings)
    }

    /// Reads the settings. Every key that `T` does not know is refused, whether or not `T` asks for that.
    /// [`Located`](super::Located) fields know their place.
    ///
    /// # Errors
    /// Everything that is wrong, with its place in the manifest.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        let mut problems = Vec::new();
        match read::read(&self.yaml, &self.path, AGENT_KEYS, &mut problems) {
            Some(value) if problems.is_empty() => Ok(value),
            _ => Err(ManifestError::new(&self.source.path, problems)),
        }
    }

    /// The keys that are there, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.yaml.entries().iter().map(|(key, _)| key.text.as_str())
    }

    /// The place of one of the keys; of the whole entry when the key is not there.
    #[must_use]
    pub fn place_of(&self, key: &str) -> Place {
        self.yaml.entry(key).map_or(self.yaml.place, |(key, _)| key.place)
    }

    /// An error about these settings, for what only the node type can check.
    #[must_use]
    pub fn error(&self, problems: Vec<Problem>) -> ManifestError {
        ManifestError::new(&self.source.path, problems)
    }

    /// The directory of the manifest.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.source.dir
    }

    /// A path of the settings, seen from the directory of the manifest.
    #[must_use]
    pub fn resolve(&self, path: &str) -> PathBuf {
        self.source.resolve(path)
    }
}

impl fmt::Debug for NodeSettings {
    /// Keys only: values may be secrets (W10).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeSettings").field(&self.keys().collect::<Vec<_>>()).finish()
    }
}
