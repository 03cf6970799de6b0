//! A manifest as it is written: one struct per mapping, every key with its meaning. The JSON Schema and the reference
//! of keys are made from here; what the pool works with is in [`super`].

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::located::{Located, TEXT_OR_TABLE};

/// A pool: agents, the teams they form, and what bounds them. Paths resolve against the directory of this file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Manifest"))]
pub(super) struct ManifestFile {
    /// The name of the pool, kept with every session it makes. Default: the name of the file without its extension.
    pub(super) name: Option<Located<String>>,
    /// What the pool is for.
    pub(super) description: Option<String>,
    /// The agent or team that `offspring run` starts. May be left out when the pool has one node only.
    pub(super) entry: Option<Located<String>>,
    /// The agents by name; at least one. A name has no whitespace and no `/`, does not start with `-` or `ask_`,
    /// and is none of `nodes`, `status`, `output`, `cancel`.
    #[expect(dead_code, reason = "says that the key exists; the agents are read one by one")]
    pub(super) agents: AgentTable,
    /// The teams by name. Agents and teams share their names.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(super) teams: Named<TeamFile>,
    /// Agents and teams that every agent can ask, each through a tool `ask_<name>`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [])))]
    pub(super) workers: Vec<Located<WorkerFile>>,
    /// What bounds the trees of this pool.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(super) limits: LimitsFile,
    /// Where sessions are kept. The command line and the environment of `offspring` go before it. Default: a SQLite
    /// file in the user's state directory.
    pub(super) storage: Option<Located<StorageFile>>,
}

/// The keys that every agent has, whatever its type; those of its type stand beside them.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Agent"))]
pub(super) struct AgentFile {
    /// The node type, for example `command`: a local program. It decides which further keys there are.
    #[serde(rename = "type")]
    pub(super) kind: Located<String>,
    /// What the agent is good at; shown to those who may ask it.
    pub(super) description: Option<String>,
    /// Agents and teams that this agent can ask besides the pool's `workers`, each through a tool `ask_<name>`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [])))]
    pub(super) workers: Vec<Located<WorkerFile>>,
    /// Variables of the agent's environment, besides the small set that every process gets: a text, or
    /// `{from: NAME}` to pass one on from the environment of `offspring`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(super) environment: Named<Located<EnvironmentFile>>,
    /// Narrower limits for the sessions of this agent and everything below them.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(super) limits: AgentLimitsFile,
}

/// The keys of [`AgentFile`]; all others belong to the node type.
pub(super) const AGENT_KEYS: &[&str] = &["type", "description", "workers", "environment", "limits"];

/// Several nodes that work on one prompt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Team"))]
pub(super) struct TeamFile {
    /// `parallel`: all members get the prompt at once. `sequential`: each gets the output of the one before it.
    pub(super) mode: ModeFile,
    /// The members in order: agents and teams, also one of them several times. A team cannot contain itself.
    pub(super) members: Vec<Located<MemberFile>>,
    /// What the team is good at; shown to those who may ask it.
    pub(super) description: Option<String>,
    /// A text that every member gets in front of its prompt.
    pub(super) shared_prompt: Option<String>,
    /// Only for `mode: sequential`: the first failure ends the team. With `false` the last successful output goes on.
    #[cfg_attr(feature = "schema", schemars(extend("default" = true)))]
    pub(super) require_all: Option<Located<bool>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Mode", inline))]
pub(super) enum ModeFile {
    Parallel,
    Sequential,
}

/// A member with a name: the same as the name alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Member"))]
pub(super) struct MemberTable {
    /// The name of an agent or a team.
    pub(super) name: Located<String>,
}

/// A worker with its settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Worker"))]
pub(super) struct WorkerTable {
    /// The name of an agent or a team.
    pub(super) name: Located<String>,
    /// What the name has to be. Default: whatever it is.
    #[serde(rename = "type")]
    pub(super) kind: Option<Located<WorkerKindFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "WorkerType", inline))]
pub(super) enum WorkerKindFile {
    Agent,
    Team,
}

/// A variable that is passed on from the environment of `offspring`; unset there, it stays unset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Passed"))]
pub(super) struct PassedTable {
    /// The name of the variable there.
    pub(super) from: Located<String>,
}

/// The limits of a pool. Zero is no limit's value; a limit that is left out has its default.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Limits"))]
pub(super) struct LimitsFile {
    /// The deepest session below a root. A delegation beyond it is refused.
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 10)))]
    pub(super) max_depth: Option<Located<u32>>,
    /// Sessions below one root over its whole life.
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 1000)))]
    pub(super) max_descendants: Option<Located<u32>>,
    /// Children of one session that run at the same time.
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 500)))]
    pub(super) max_live_children: Option<Located<u32>>,
    /// Wall time of one run in milliseconds. Default: no bound.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_wall_ms: Option<Located<u64>>,
    /// How long a run may say nothing, on stdout or stderr, in milliseconds; beyond it the run fails. The time in which
    /// it waits for a child does not count. Default: no bound.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_silence_ms: Option<Located<u64>>,
    /// Processes and model requests at work at the same time; further ones wait in turn. Default: twice the number of
    /// processors, at least 4.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_active: Option<Located<u32>>,
    /// Runs that may wait for their turn; one more ends as failed (`queue_full`).
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 10_000)))]
    pub(super) max_queued: Option<Located<u32>>,
    /// The longest prompt in bytes. A longer one is refused.
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 16_777_216)))]
    pub(super) max_prompt_bytes: Option<Located<u64>>,
    /// The longest output that is kept of one run, in bytes: half of it of the beginning, half of the end. What lies
    /// between is left out, and the output says how much.
    #[cfg_attr(feature = "schema", schemars(range(min = 1), extend("default" = 16_777_216)))]
    pub(super) max_output_bytes: Option<Located<u64>>,
}

/// The limits of an agent: never wider than those of the pool. One that is left out is the pool's.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "AgentLimits"))]
pub(super) struct AgentLimitsFile {
    /// The deepest session below a root. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_depth: Option<Located<u32>>,
    /// Sessions below a session of this agent. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_descendants: Option<Located<u32>>,
    /// Children of one session that run at the same time. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_live_children: Option<Located<u32>>,
    /// Wall time of one run in milliseconds. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_wall_ms: Option<Located<u64>>,
    /// How long a run of this agent may say nothing, in milliseconds. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_silence_ms: Option<Located<u64>>,
    /// The longest output that is kept of one run of this agent, in bytes. Default: the pool's.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub(super) max_output_bytes: Option<Located<u64>>,
}

/// Where sessions are kept.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Storage"))]
pub(super) struct StorageFile {
    /// `sqlite`: a file. `memory`: nowhere; gone with the process.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "sqlite")))]
    pub(super) kind: Option<StorageKindFile>,
    /// The SQLite file. Default: a file in the user's state directory.
    pub(super) path: Option<Located<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StorageType", inline))]
pub(super) enum StorageKindFile {
    Sqlite,
    Memory,
}

/// A name, or a mapping with more.
pub(super) enum NameOr<T> {
    Name(String),
    Table(T),
}

pub(super) type WorkerFile = NameOr<WorkerTable>;
pub(super) type MemberFile = NameOr<MemberTable>;
/// A value of the environment, or where it comes from. No `Debug` here: values may be secrets (W10).
pub(super) type EnvironmentFile = NameOr<PassedTable>;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NameOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for NameVisitor<T> {
            type Value = NameOr<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a mapping")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<NameOr<T>, E> {
                Ok(NameOr::Name(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(NameOr::Table)
            }
        }
        deserializer.deserialize_newtype_struct(TEXT_OR_TABLE, NameVisitor(PhantomData))
    }
}

/// A mapping from names to values, in the order of the file.
pub(super) struct Named<T>(pub(super) Vec<(Located<String>, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

/// The agents are read one by one, since some of their keys belong to their node type: here only that they are there.
pub(super) struct AgentTable;

impl<'de> Deserialize<'de> for AgentTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Named::<de::IgnoredAny>::deserialize(deserializer).map(|_| Self)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use std::{borrow::Cow, collections::BTreeMap};

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{AgentFile, AgentTable, MemberTable, NameOr, Named, PassedTable, WorkerTable};

    /// What stands for the text that a mapping is the long form of.
    trait LongForm: JsonSchema {
        const SHORT: &[&str] = &["string"];
    }

    impl LongForm for MemberTable {}
    impl LongForm for WorkerTable {}
    impl LongForm for PassedTable {
        /// The reader takes scalars as they are written.
        const SHORT: &[&str] = &["string", "number", "boolean"];
    }

    impl<T: LongForm> JsonSchema for NameOr<T> {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            format!("NameOr{}", T::schema_name()).into()
        }
        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let table = generator.subschema_for::<T>();
            let short = match T::SHORT {
                [only] => json_schema!({ "type": only }),
                several => json_schema!({ "type": several }),
            };
            json_schema!({ "anyOf": [short, table] })
        }
    }

    impl<T: JsonSchema> JsonSchema for Named<T> {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            format!("Named{}", T::schema_name()).into()
        }
        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            <BTreeMap<String, T>>::json_schema(generator)
        }
    }

    impl JsonSchema for AgentTable {
        fn inline_schema() -> bool {
            true
        }
        fn schema_name() -> Cow<'static, str> {
            "Agents".into()
        }
        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let mut schema = <BTreeMap<String, AgentFile>>::json_schema(generator);
            schema.insert("minProperties".to_owned(), 1.into());
            schema
        }
    }
}
