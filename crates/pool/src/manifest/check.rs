//! From what a manifest says to what a pool works with: names, references, cycles, limits.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use offspring_protocol::{BadId, NodeName, PoolId, SessionLimits};

use super::{
    AgentEntry, EnvironmentValue, Limits, Located, Manifest, NodeSettings, Place, Problem, RunLimits,
    Storage, TeamEntry, TeamMode, WorkerEntry,
    file::{
        AgentFile, AgentLimitsFile, EnvironmentFile, LimitsFile, ManifestFile, ModeFile, NameOr, Named,
        StorageFile, StorageKindFile, TeamFile, WorkerFile, WorkerKindFile,
    },
    problem::{shown, suggestion},
    read,
    settings::Source,
    yaml::{self, Key, Value, Yaml},
};

/// Reads and checks a manifest. `None`, or problems, when it cannot be used.
pub(super) fn manifest(text: &str, source: &Arc<Source>, problems: &mut Vec<Problem>) -> Option<Manifest> {
    let mut root = yaml::parse(text, problems)?;
    let start = Place { line: 1, column: 1 };
    match root.value {
        Value::Table(_) => {}
        Value::Null => {
            let example = "a pool needs at least `agents: {NAME: {type: command, …}}`";
            problems.push(Problem::at(start, "the manifest is empty").suggest(example));
            return None;
        }
        _ => {
            let found = format!("expected a mapping with `agents`, found {}", root.found());
            problems.push(Problem::at(root.place, found));
            return None;
        }
    }
    let file: Option<ManifestFile> = read::read(&root, "", &[], problems);
    let nodes = Nodes::of(&root, problems);
    // Taken out only now, since the file's reader has to see that the key is there.
    let (agents, limits) = (take(&mut root, "agents"), file.as_ref().map(|file| &file.limits));
    let limits = limits.map_or_else(Limits::default, |limits| pool_limits(limits, problems));
    let given_limits = root.entry("limits").map(|(_, yaml)| yaml.entries()).unwrap_or_default();
    let given_limits = given_limits
        .iter()
        .filter(|(_, value)| !matches!(value.value, Value::Null))
        .map(|(key, _)| key.text.clone())
        .collect();
    if let Some(Yaml { place, value: Value::Table(_) | Value::Null, .. }) = &agents
        && nodes.agents.is_empty()
    {
        problems.push(Problem::at(*place, "there is no agent").suggest("a pool needs at least one"));
    }
    let agents = agents.map(table).unwrap_or_default();
    let agents =
        agents.into_iter().filter_map(|(key, entry)| agent(&key, entry, &nodes, &limits, source, problems));
    let agents = agents.collect();
    let file = file?;
    let teams = teams(file.teams, &nodes, problems);
    let workers = workers(file.workers, &nodes, problems);
    let entry = entry(file.entry, &nodes, problems);
    let name = pool_name(file.name, &source.path, problems);
    let storage_says_nothing = root.entry("storage").is_some_and(|(_, yaml)| yaml.entries().is_empty());
    let storage = file.storage.and_then(|file| storage(file, storage_says_nothing, source, problems));
    Some(Manifest {
        source: Arc::clone(source),
        name: name?,
        description: file.description,
        entry: entry?,
        agents,
        teams,
        workers,
        limits,
        given_limits,
        storage,
    })
}

fn table(yaml: Yaml) -> Vec<(Key, Yaml)> {
    match yaml.value {
        Value::Table(entries) => entries,
        _ => Vec::new(),
    }
}

fn take(root: &mut Yaml, key: &str) -> Option<Yaml> {
    let Value::Table(entries) = &mut root.value else { return None };
    let index = entries.iter().position(|(known, _)| known.text == key)?;
    Some(entries.remove(index).1)
}

/// The names of a manifest, from the document itself: an entry that cannot be read still has a name, and nobody who
/// refers to it is to blame.
struct Nodes {
    agents: Vec<String>,
    teams: Vec<String>,
}

impl Nodes {
    fn of(root: &Yaml, problems: &mut Vec<Problem>) -> Self {
        let keys = |key| root.entry(key).map_or(&[][..], |(_, yaml)| yaml.entries());
        let mut agents: HashMap<&str, Place> = HashMap::new();
        for (key, _) in keys("agents") {
            check_name(&key.text, key.place, problems);
            agents.insert(&key.text, key.place);
        }
        for (key, _) in keys("teams") {
            check_name(&key.text, key.place, problems);
            if let Some(first) = agents.get(key.text.as_str()) {
                let name = shown(&key.text);
                problems.push(
                    Problem::at(key.place, format!("`{name}` is the name of an agent and of a team"))
                        .suggest(format!("rename one of them; the agent is in line {}", first.line)),
                );
            }
        }
        let names = |key| keys(key).iter().map(|(key, _)| key.text.clone()).collect();
        Self { agents: names("agents"), teams: names("teams") }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().chain(&self.teams).map(String::as_str)
    }

    /// The name of a node that is there; else a problem.
    fn find(&self, name: &Located<String>, role: &str, problems: &mut Vec<Problem>) -> Option<NodeName> {
        if self.all().any(|known| known == name.value) {
            // Whatever is wrong with the name itself was said where it is defined.
            return NodeName::new(&name.value).ok();
        }
        problems.push(
            Problem::at(
                name.place,
                format!("{role} `{}` is no agent and no team of this pool", shown(&name.value)),
            )
            .maybe_suggest(suggestion(&name.value, "there are", self.all())),
        );
        None
    }

    fn is_team(&self, name: &NodeName) -> bool {
        // A name of both was reported; it counts as an agent from there on.
        let among = |names: &[String]| names.iter().any(|known| known == name.as_str());
        among(&self.teams) && !among(&self.agents)
    }
}

/// Words that `offspring task` understands itself: a node of this name could not be asked there.
const WORDS_OF_TASK: [&str; 4] = ["nodes", "status", "output", "cancel"];

/// Whether a node can have this name: it becomes part of tools and paths and is typed on command lines.
fn check_name(name: &str, place: Place, problems: &mut Vec<Problem>) {
    let wrong = if name.is_empty() {
        "is empty"
    } else if NodeName::new(name)
        .is_ok_and(|name| matches!(name.check_storable(), Err(BadId::TooLong { .. })))
    {
        "is longer than a stored name may be"
    } else if name.contains('/') {
        "contains `/`"
    } else if name.chars().any(char::is_whitespace) {
        "contains whitespace"
    } else if name.chars().any(char::is_control) {
        "contains a control character"
    } else if name.starts_with('-') {
        "starts with `-` and would be taken for an option"
    } else if name.starts_with("ask_") {
        "starts with `ask_`, as the tools that ask a worker do"
    } else if WORDS_OF_TASK.contains(&name) {
        "is a word of `offspring task`, which could not ask it"
    } else {
        return;
    };
    let fixed: String = name
        .trim_start_matches("ask_")
        .trim_start_matches('-')
        .chars()
        .map(|c| if c == '/' || c.is_whitespace() { '_' } else { c })
        .filter(|c| !c.is_control())
        .take(40)
        .collect();
    let fixed = if WORDS_OF_TASK.contains(&name) { format!("the-{name}") } else { fixed };
    let hint = (!fixed.is_empty()).then(|| format!("for example `{}`", shown(&fixed)));
    problems.push(Problem::at(place, format!("the name `{}` {wrong}", shown(name))).maybe_suggest(hint));
}

fn agent(
    key: &Key,
    entry: Yaml,
    nodes: &Nodes,
    pool: &Limits,
    source: &Arc<Source>,
    problems: &mut Vec<Problem>,
) -> Option<AgentEntry> {
    if !matches!(entry.value, Value::Table(_) | Value::Null) {
        let message = format!("`agents.{}`: expected a mapping, found {}", shown(&key.text), entry.found());
        problems
            .push(Problem::at(entry.place, message).suggest("write `type: command` and what belongs to it"));
        return None;
    }
    let path = format!("agents.{}", key.text);
    let (common, settings) = NodeSettings::split(entry, &key.text, source);
    let file: AgentFile = read::read(&common, &path, &[], problems)?;
    if file.kind.value.is_empty() {
        problems.push(Problem::at(file.kind.place, format!("`{}.type` is empty", shown(&path))));
    }
    let limits = agent_limits(&file.limits, &pool.session, problems);
    let run_limits = run_limits(&file.limits, pool, problems);
    Some(AgentEntry {
        // A name that is none was reported with the others.
        name: NodeName::new(&key.text).ok()?,
        kind: file.kind.value,
        kind_place: file.kind.place,
        description: file.description,
        workers: workers(file.workers, nodes, problems),
        environment: environment(file.environment, problems),
        limits,
        run_limits,
        settings,
    })
}

fn workers(items: Vec<Located<WorkerFile>>, nodes: &Nodes, problems: &mut Vec<Problem>) -> Vec<WorkerEntry> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for item in items {
        let (name, kind) = match item.value {
            NameOr::Name(value) => (Located { value, place: item.place }, None),
            NameOr::Table(table) => (table.name, table.kind),
        };
        let Some(node) = nodes.find(&name, "worker", problems) else { continue };
        if !seen.insert(node.clone()) {
            let twice = format!("worker `{}` stands here for the second time", shown(&name.value));
            problems.push(Problem::at(name.place, twice).suggest("once is enough"));
        }
        let is_team = nodes.is_team(&node);
        if let Some(kind) = kind
            && is_team != (kind.value == WorkerKindFile::Team)
        {
            let (is, says) = if is_team { ("a team", "agent") } else { ("an agent", "team") };
            let message = format!("`{}` is {is}, and `type` says `{says}`", shown(&name.value));
            problems.push(Problem::at(kind.place, message).suggest("leave `type` out"));
        }
        out.push(WorkerEntry { node });
    }
    out
}

/// What begins so is set by the pool itself: the token of a run and where its private endpoint is.
const RESERVED: &str = "OFFSPRING_";

fn environment(
    file: Named<Located<EnvironmentFile>>,
    problems: &mut Vec<Problem>,
) -> Vec<(String, EnvironmentValue)> {
    let mut out = Vec::new();
    let mut check = |name: &str, place: Place| {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{}` cannot be the name of a variable", shown(name));
            problems.push(Problem::at(place, message).suggest("no `=`, not empty"));
        } else if name.starts_with(RESERVED) {
            problems.push(
                Problem::at(place, format!("the variable `{}` is set by the pool itself", shown(name)))
                    .suggest("choose a name that does not start with `OFFSPRING_`"),
            );
        }
    };
    let mut nul = Vec::new();
    for (name, value) in file.0 {
        check(&name.value, name.place);
        let value = match value.value {
            NameOr::Name(text) => {
                if text.contains('\0') {
                    nul.push(Problem::at(value.place, "a variable cannot hold a NUL character"));
                }
                EnvironmentValue::Text(text)
            }
            NameOr::Table(passed) => {
                check(&passed.from.value, passed.from.place);
                EnvironmentValue::From(passed.from.value)
            }
        };
        out.push((name.value, value));
    }
    problems.append(&mut nul);
    out
}

fn teams(file: Named<TeamFile>, nodes: &Nodes, problems: &mut Vec<Problem>) -> Vec<TeamEntry> {
    let mut teams = Vec::new();
    let mut edges: BTreeMap<String, Vec<Located<String>>> = BTreeMap::new();
    for (name, team) in file.0 {
        let mode = match team.mode {
            ModeFile::Parallel => TeamMode::Parallel,
            ModeFile::Sequential => TeamMode::Sequential,
        };
        // L11: a parallel team fails only when every member fails.
        if let (TeamMode::Parallel, Some(setting)) = (mode, &team.require_all) {
            let message =
                format!("`require_all` has no meaning for the parallel team `{}`", shown(&name.value));
            problems
                .push(Problem::at(setting.place, message).suggest("leave it out, or say `mode: sequential`"));
        }
        let mut members = Vec::new();
        for member in team.members {
            let member = match member.value {
                NameOr::Name(value) => Located { value, place: member.place },
                NameOr::Table(table) => table.name,
            };
            let Some(node) = nodes.find(&member, "member", problems) else { continue };
            if nodes.is_team(&node) {
                edges.entry(name.value.clone()).or_default().push(member);
            }
            members.push(node);
        }
        let Ok(node) = NodeName::new(&name.value) else { continue };
        teams.push(TeamEntry {
            name: node,
            mode,
            members,
            description: team.description,
            shared_prompt: team.shared_prompt,
            require_all: team.require_all.is_none_or(|setting| setting.value),
        });
    }
    cycles(&edges, problems);
    teams
}

/// Every team that contains itself, each cycle once, at the member that closes it.
fn cycles(edges: &BTreeMap<String, Vec<Located<String>>>, problems: &mut Vec<Problem>) {
    let mut done: HashSet<&str> = HashSet::new();
    for start in edges.keys() {
        // Depth first without recursion: the teams on the way, each with the members still to look at.
        let mut way: Vec<(&str, std::slice::Iter<'_, Located<String>>)> = Vec::new();
        let members = |team: &str| edges.get(team).map_or(&[][..], Vec::as_slice).iter();
        if done.insert(start) {
            way.push((start, members(start)));
        }
        while let Some((_, rest)) = way.last_mut() {
            let Some(member) = rest.next() else {
                way.pop();
                continue;
            };
            if let Some(from) = way.iter().position(|(team, _)| *team == member.value) {
                let mut names: Vec<String> = way[from..].iter().map(|(team, _)| shown(team)).collect();
                names.push(shown(&member.value));
                let message =
                    format!("team `{}` contains itself: {}", shown(&member.value), names.join(" → "));
                problems.push(Problem::at(member.place, message).suggest("take this member out"));
            } else if done.insert(&member.value) {
                way.push((&member.value, members(&member.value)));
            }
        }
    }
}

fn entry(
    entry: Option<Located<String>>,
    nodes: &Nodes,
    problems: &mut Vec<Problem>,
) -> Option<Option<NodeName>> {
    match (entry, nodes.agents.as_slice(), nodes.teams.as_slice()) {
        (Some(entry), ..) => nodes.find(&entry, "entry", problems).map(Some),
        (None, [only], []) => NodeName::new(only).ok().map(Some),
        // Whoever runs it has to name one. That there is no agent at all is reported where they should be.
        (None, ..) => Some(None),
    }
}

fn pool_name(name: Option<Located<String>>, path: &Path, problems: &mut Vec<Problem>) -> Option<PoolId> {
    let stem = || path.file_stem().map_or_else(|| "pool".into(), |stem| stem.to_string_lossy().into_owned());
    let (name, place) = match name {
        Some(name) => (name.value, name.place),
        None => (stem(), Place { line: 1, column: 1 }),
    };
    let id = PoolId::new(&name).and_then(|id| id.check_storable().map(|()| id));
    match id {
        Ok(id) if !name.chars().any(char::is_control) => Some(id),
        Ok(_) => {
            problems.push(Problem::at(place, "the name of the pool contains a control character"));
            None
        }
        Err(error) => {
            let wrong = match error {
                BadId::Empty { .. } => "is empty",
                BadId::TooLong { .. } => "is too long",
                _ => "contains a control character",
            };
            problems
                .push(Problem::at(place, format!("the name of the pool {wrong}")).suggest("say `name: …`"));
            None
        }
    }
}

/// Zero is no limit: nothing could ever run.
fn positive<N: Copy + From<u8> + PartialEq>(
    key: &str,
    limit: Option<Located<N>>,
    problems: &mut Vec<Problem>,
) -> Option<N> {
    let limit = limit?;
    if limit.value == N::from(0) {
        let message = format!("`{key}` is 0, and nothing could run");
        problems.push(
            Problem::at(limit.place, message).suggest("say 1 or more, or leave it out for the default"),
        );
        return None;
    }
    Some(limit.value)
}

fn pool_limits(file: &LimitsFile, problems: &mut Vec<Problem>) -> Limits {
    let default = Limits::default();
    Limits {
        session: SessionLimits {
            max_depth: positive("max_depth", file.max_depth, problems).or(default.session.max_depth),
            max_descendants: positive("max_descendants", file.max_descendants, problems)
                .or(default.session.max_descendants),
            max_live_children: positive("max_live_children", file.max_live_children, problems)
                .or(default.session.max_live_children),
            max_wall_ms: positive("max_wall_ms", file.max_wall_ms, problems).or(default.session.max_wall_ms),
        },
        max_silence_ms: positive("max_silence_ms", file.max_silence_ms, problems).or(default.max_silence_ms),
        max_active: positive("max_active", file.max_active, problems).unwrap_or(default.max_active),
        max_queued: positive("max_queued", file.max_queued, problems).unwrap_or(default.max_queued),
        max_prompt_bytes: positive("max_prompt_bytes", file.max_prompt_bytes, problems)
            .unwrap_or(default.max_prompt_bytes),
        max_output_bytes: positive("max_output_bytes", file.max_output_bytes, problems)
            .unwrap_or(default.max_output_bytes),
    }
}

fn agent_limits(file: &AgentLimitsFile, pool: &SessionLimits, problems: &mut Vec<Problem>) -> SessionLimits {
    SessionLimits {
        max_depth: narrower("max_depth", file.max_depth, pool.max_depth, problems),
        max_descendants: narrower("max_descendants", file.max_descendants, pool.max_descendants, problems),
        max_live_children: narrower(
            "max_live_children",
            file.max_live_children,
            pool.max_live_children,
            problems,
        ),
        max_wall_ms: narrower("max_wall_ms", file.max_wall_ms, pool.max_wall_ms, problems),
    }
}

fn run_limits(file: &AgentLimitsFile, pool: &Limits, problems: &mut Vec<Problem>) -> RunLimits {
    let most = Some(pool.max_output_bytes);
    RunLimits {
        max_silence_ms: narrower("max_silence_ms", file.max_silence_ms, pool.max_silence_ms, problems),
        max_output_bytes: narrower("max_output_bytes", file.max_output_bytes, most, problems),
    }
}

/// L17: what an agent may do is never more than what its pool may do.
fn narrower<N: Copy + From<u8> + PartialOrd + std::fmt::Display>(
    key: &str,
    limit: Option<Located<N>>,
    pool: Option<N>,
    problems: &mut Vec<Problem>,
) -> Option<N> {
    let place = limit.as_ref()?.place;
    let value = positive(key, limit, problems)?;
    if let Some(most) = pool.filter(|most| value > *most) {
        let message = format!("`{key}` is {value}, and the pool allows {most}");
        problems.push(
            Problem::at(place, message).suggest("an agent can only narrow; raise the limit of the pool"),
        );
        return None;
    }
    Some(value)
}

fn storage(
    file: Located<StorageFile>,
    says_nothing: bool,
    source: &Source,
    problems: &mut Vec<Problem>,
) -> Option<Storage> {
    let StorageFile { kind, path } = file.value;
    match (kind, path) {
        (Some(StorageKindFile::Memory), None) => Some(Storage::Memory),
        (Some(StorageKindFile::Memory), Some(path)) => {
            let problem = Problem::at(path.place, "storage in memory has no path");
            problems.push(problem.suggest("leave `path` out, or say `type: sqlite`"));
            None
        }
        (Some(StorageKindFile::Sqlite), None) => Some(Storage::Sqlite { path: None }),
        // What it said was reported.
        (None, None) if !says_nothing => None,
        (None, None) => {
            problems.push(
                Problem::at(file.place, "`storage` says nothing")
                    .suggest("say `path: FILE` or `type: memory`"),
            );
            None
        }
        (_, Some(path)) if path.value.is_empty() || path.value.contains('\0') => {
            problems.push(Problem::at(path.place, "`storage.path` is no path").suggest("name a file"));
            None
        }
        (_, Some(path)) if path.value.starts_with('~') => {
            let problem = Problem::at(path.place, "`~` is not replaced in a manifest");
            problems.push(problem.suggest("write the path in full, or one relative to this file"));
            None
        }
        (_, Some(path)) => Some(Storage::Sqlite { path: Some(source.resolve(&path.value)) }),
    }
}
