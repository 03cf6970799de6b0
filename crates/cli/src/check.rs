//! `offspring check`: what can be said of a manifest without running anything.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use offspring_agents::{CommandFactory, CommandSettings, DshSettings};
use offspring_pool::{
    Manifest, ManifestError,
    manifest::{AgentEntry, EnvironmentValue, LimitInForce, Place as At, TeamEntry, TeamMode, WorkerEntry},
};
use offspring_process::resolve_program;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    exit,
    failure::Failure,
    load, run,
    store::Place,
    text::{counted, finish, finish_json, plain, shell_word},
    variables,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring check pool.yaml\n  \
    offspring check pool.yaml --json | jq .limits")]
pub(crate) struct Check {
    /// The pool's manifest: a file, because its paths are seen from its directory.
    pub(crate) manifest: PathBuf,
    /// One JSON object; also about a manifest with mistakes.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn check(db: Option<PathBuf>, args: &Check) -> Result<ExitCode, Failure> {
    if args.manifest == Path::new("-") {
        return Err(Failure::usage(
            "a manifest is not read from stdin, because its paths are seen from its directory\n\
             name a file: offspring check pool.yaml",
        ));
    }
    let registry = run::node_types(CommandFactory::new(std::env::current_exe()?, None, None));
    let manifest = match offspring_pool::check(&args.manifest, &registry) {
        Ok(manifest) => manifest,
        Err(error) if args.json => {
            finish_json(&mistakes(&error))?;
            Failure::from(error).report();
            return Ok(ExitCode::from(exit::USAGE));
        }
        Err(error) => {
            load::refuse_missing(&args.manifest)?;
            return Err(error.into());
        }
    };
    let found = Found::of(&manifest, db);
    if args.json { finish_json(&found.json()) } else { finish(&found.text()) }
}

fn mistakes(error: &ManifestError) -> Value {
    let problems: Vec<Value> = error
        .problems()
        .iter()
        .map(|problem| {
            json!({
                "line": problem.line, "column": problem.column, "message": problem.message,
                "suggestion": problem.suggestion,
            })
        })
        .collect();
    json!({ "manifest": error.path().to_string_lossy(), "valid": false, "problems": problems })
}

/// A manifest that can be run, and what there is to say about it.
struct Found<'m> {
    manifest: &'m Manifest,
    agents: Vec<Program<'m>>,
    sessions: Result<Place, String>,
    notes: Vec<Note>,
}

/// An agent with the program it is.
struct Program<'m> {
    entry: &'m AgentEntry,
    /// The program's file, then its arguments.
    line: Vec<String>,
}

/// Nothing that is wrong, and perhaps not what was meant.
#[derive(Serialize)]
struct Note {
    line: u32,
    column: u32,
    message: String,
}

impl<'m> Found<'m> {
    fn of(manifest: &'m Manifest, db: Option<PathBuf>) -> Self {
        let mut notes = Vec::new();
        let agents = manifest.agents().iter().map(|entry| program(manifest, entry, &mut notes)).collect();
        let sessions = Place::choose(db, run::of_manifest(manifest)).map_err(|failure| failure.to_string());
        Self { manifest, agents, sessions, notes }
    }

    fn json(&self) -> Value {
        let Self { manifest, .. } = self;
        let agents: Vec<Value> = self.agents.iter().map(Program::json).collect();
        let teams: Vec<Value> = manifest
            .teams()
            .iter()
            .map(|team| {
                json!({
                    "name": team.name, "mode": mode(team), "members": team.members,
                    "description": team.description, "require_all": team.require_all,
                })
            })
            .collect();
        let limits: Map<String, Value> = manifest
            .limits_in_force()
            .map(|LimitInForce { key, value, is_given }| {
                (key.to_owned(), json!({ "value": value, "default": !is_given }))
            })
            .collect();
        let sessions = match &self.sessions {
            Ok(Place::Memory) => json!({ "kind": "memory" }),
            Ok(Place::File(path)) => json!({ "kind": "sqlite", "path": path.to_string_lossy() }),
            Ok(Place::Database(address)) => json!({ "kind": "postgres", "server": address.to_string() }),
            Err(why) => json!({ "kind": null, "problem": why }),
        };
        json!({
            "manifest": manifest.path().to_string_lossy(), "valid": true, "problems": [], "notes": self.notes,
            "name": manifest.name(), "description": manifest.description(), "entry": manifest.entry(),
            "agents": agents, "teams": teams, "workers": names(manifest.workers()), "limits": limits,
            "sessions": sessions,
        })
    }

    fn text(&self) -> String {
        let Self { manifest, .. } = self;
        let path = manifest.path().display();
        let mut text = format!(
            "{path}: {}: {}, {}\n",
            match self.notes.len() {
                0 => "nothing is wrong".to_owned(),
                notes => format!("it can be run, with {}", counted(notes, "note", "notes")),
            },
            counted(manifest.agents().len(), "agent", "agents"),
            counted(manifest.teams().len(), "team", "teams")
        );
        for Note { line, column, message } in &self.notes {
            text.push_str(&format!("{path}:{line}:{column}: note: {message}\n"));
        }
        let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<9} {value}\n"));
        row("pool", manifest.name().as_str());
        if let Some(description) = manifest.description() {
            row("", description);
        }
        row("entry", manifest.entry().map_or("none; a run names a node with --node", |entry| entry.as_str()));
        let workers = names(manifest.workers());
        if !workers.is_empty() {
            row("workers", &workers.join(", "));
        }
        match &self.sessions {
            Ok(place) => row("sessions", &place.said()),
            Err(why) => row("sessions", why.lines().next().unwrap_or_default()),
        }

        let width = manifest.node_names().map(|name| name.as_str().chars().count()).max().unwrap_or(0);
        text.push_str("\nagents\n");
        for agent in &self.agents {
            text.push_str(&agent.text(width));
        }
        if !manifest.teams().is_empty() {
            text.push_str("\nteams\n");
        }
        for team in manifest.teams() {
            let members: Vec<&str> = team.members.iter().map(|member| member.as_str()).collect();
            let members = if members.is_empty() { "nobody".to_owned() } else { members.join(", ") };
            let goes_on = if team.require_all { "" } else { "  (goes on after a failure)" };
            text.push_str(&format!(
                "  {:<width$}  {:<10}  {members}{goes_on}\n",
                team.name.as_str(),
                mode(team)
            ));
        }

        text.push_str("\nlimits\n");
        for LimitInForce { key, value, is_given } in manifest.limits_in_force() {
            let value = value.map_or("none".to_owned(), |value| value.to_string());
            let from = if is_given { "" } else { "  default" };
            text.push_str(&format!("  {key:<18} {value:>10}{from}\n"));
        }
        text.lines().map(|line| plain(line).into_owned() + "\n").collect()
    }
}

impl Program<'_> {
    fn json(&self) -> Value {
        let entry = self.entry;
        let variables: Vec<&str> = entry.environment.iter().map(|(name, _)| name.as_str()).collect();
        let limits: Map<String, Value> =
            entry.narrowed().map(|(key, value)| (key.to_owned(), value.into())).collect();
        let (program, arguments) = self.line.split_first().unzip();
        json!({
            "name": entry.name, "type": entry.kind, "description": entry.description,
            "program": program, "arguments": arguments.unwrap_or_default(), "workers": names(&entry.workers),
            "environment": variables, "limits": limits,
        })
    }

    fn text(&self, width: usize) -> String {
        let entry = self.entry;
        let line: Vec<_> = self.line.iter().map(|word| shell_word(word)).collect();
        let mut text = format!("  {:<width$}  {}  {}\n", entry.name.as_str(), entry.kind, line.join(" "));
        let mut below = |name: &str, value: String| {
            if !value.is_empty() {
                text.push_str(&format!("  {:<width$}    {name} {value}\n", ""));
            }
        };
        below("asks", names(&entry.workers).join(", "));
        let limits: Vec<String> = entry.narrowed().map(|(key, value)| format!("{key} {value}")).collect();
        below("narrower:", limits.join(", "));
        text
    }
}

fn names(workers: &[WorkerEntry]) -> Vec<&str> {
    workers.iter().map(|worker| worker.node.as_str()).collect()
}

fn mode(team: &TeamEntry) -> &'static str {
    match team.mode {
        TeamMode::Parallel => "parallel",
        TeamMode::Sequential => "sequential",
    }
}

/// Endings of the names of scripts: an argument that has one is meant to be a file.
const SCRIPTS: [&str; 10] = ["sh", "bash", "py", "pl", "rb", "js", "ts", "awk", "lua", "php"];

fn program<'m>(manifest: &Manifest, entry: &'m AgentEntry, notes: &mut Vec<Note>) -> Program<'m> {
    let mut note = |place: At, message: String| {
        notes.push(Note { line: place.line, column: place.column, message });
    };
    for (name, value) in &entry.environment {
        if let EnvironmentValue::From(from) = value
            && std::env::var_os(from).is_none()
        {
            note(
                entry.kind_place,
                format!("{from} is not set here, so `{}` will have no {name}", entry.name),
            );
        }
    }
    // It was parsed and found before.
    let command = match entry.kind.as_str() {
        "dsh" => entry.settings.parse::<DshSettings>().map(|settings| settings.line()),
        _ => entry.settings.parse::<CommandSettings>().map(|settings| settings.command),
    };
    let Ok([program, arguments @ ..]) = command.as_deref() else {
        return Program { entry, line: Vec::new() };
    };
    let path = entry.environment.iter().rev().find(|(name, _)| name == variables::PATH);
    let path = match path.map(|(_, value)| value) {
        Some(EnvironmentValue::Text(path)) => Some(path.into()),
        Some(EnvironmentValue::From(from)) => std::env::var_os(from),
        None => std::env::var_os(variables::PATH),
    };
    let found = resolve_program(program.as_ref(), manifest.dir(), path.as_deref());
    let found = found.map_or_else(|_| program.clone(), |found| found.to_string_lossy().into_owned());
    for argument in arguments {
        let path = Path::new(argument);
        let is_script = path.extension().is_some_and(|ending| SCRIPTS.iter().any(|script| ending == *script));
        if is_script && !argument.contains(char::is_whitespace) && !manifest.dir().join(path).exists() {
            let shown = plain(argument);
            note(
                entry.settings.place_of("command"),
                format!(
                    "there is no {shown} beside the manifest: `{}` gets the name as it stands",
                    entry.name
                ),
            );
        }
    }
    Program { entry, line: std::iter::once(found).chain(arguments.iter().cloned()).collect() }
}
