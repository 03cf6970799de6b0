//! `type: command`: a local program as an agent.
//!
//! The prompt goes in (stdin, an argument or a file), stdout is streamed as the answer, the exit status is
//! the outcome. It gets an explicit environment (rule W10), a process group and a guard of its own (rule
//! L14), the session's working directory, and the means to delegate.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, BuildError, Delegator, NodeFactory, NodeSpec, OnExit, Prompt, Variable, Worker};
use offspring_process::{Environment, GuardProgram, Secrets, resolve_program};
use offspring_protocol::{AgentType, NodeName, SessionLimits};
use offspring_sessions::{Answer, RunContext, RunError};
use serde::Deserialize;

use crate::{endpoint::Endpoint, home::Home};

mod output;
mod run;

/// The variables an agent finds beside the small set and those of its manifest.
pub mod variables {
    /// The program, so that agents find it although nobody installed it.
    pub const BIN: &str = "OFFSPRING_BIN";
    /// The session it runs in.
    pub const SESSION: &str = "OFFSPRING_SESSION";
    /// The pool's private endpoint.
    pub const SOCKET: &str = "OFFSPRING_SOCKET";
    /// The run's token for it.
    pub const TOKEN: &str = "OFFSPRING_TOKEN";
    /// Where the manifest is.
    pub const MANIFEST_DIR: &str = "OFFSPRING_MANIFEST_DIR";
    /// A private directory of the run, removed at its end.
    pub const SCRATCH: &str = "OFFSPRING_SCRATCH";
    /// The store of the pool, when it is a file.
    pub const DB: &str = "OFFSPRING_DB";
    /// The file that holds the prompt, for `prompt: file`.
    pub const PROMPT_FILE: &str = "OFFSPRING_PROMPT_FILE";
}

/// How the prompt reaches the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PromptBy {
    /// On its stdin, which then ends.
    #[default]
    Stdin,
    /// As its last argument; at most 128 KiB, which is what systems allow.
    Argument,
    /// In a file whose path is its last argument, and in `OFFSPRING_PROMPT_FILE`.
    File,
}

/// What happens to children that still run when the program has exited (rule L19).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChildrenOnExit {
    /// They are waited for.
    #[default]
    Wait,
    /// They are cancelled.
    Cancel,
}

/// The keys of `type: command`.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommandSettings {
    /// The program and its arguments. An argument that names an existing file relative to the manifest's directory
    /// becomes that file's path; a program with a slash is relative to that directory, any other is found on PATH.
    pub command: Vec<String>,
    /// How the prompt reaches the program: stdin (default), argument or file.
    #[serde(default)]
    pub prompt: PromptBy,
    /// What happens to children that still run when the program has exited: wait (default) or cancel.
    #[serde(default)]
    pub on_exit: ChildrenOnExit,
    /// How long the program may take to stop by itself after SIGTERM before it is killed, in milliseconds; 2,000 by
    /// default.
    #[serde(default = "default_grace")]
    pub stop_grace_ms: u64,
}

const fn default_grace() -> u64 {
    2_000
}

/// Systems allow 128 KiB for one argument, its end included.
const MAX_ARGUMENT_BYTES: usize = (128 << 10) - 1;
/// What a stop may take beyond the program's own grace: the guard's last steps.
const STOP_SLACK: Duration = Duration::from_secs(12);

/// What all commands of one process share: the private directory, the endpoint, the guard.
#[derive(Debug)]
pub struct CommandHost {
    home: Home,
    endpoint: Endpoint,
    program: PathBuf,
    guard: Option<GuardProgram>,
    db: Option<PathBuf>,
}

impl CommandHost {
    /// For the program at `program`, which agents call as `offspring`, guarded by `guard` where there are
    /// guards; `db` is the store's file.
    ///
    /// # Errors
    /// When the private directory or the socket in it cannot be made.
    pub fn new(
        delegator: Delegator,
        program: &Path,
        guard: Option<GuardProgram>,
        db: Option<PathBuf>,
    ) -> std::io::Result<Arc<Self>> {
        let home = Home::new(program)?;
        let endpoint = Endpoint::listen(&home.socket(), delegator)?;
        let guard = guard.filter(|_| GuardProgram::SUPPORTED);
        Ok(Arc::new(Self { home, endpoint, program: program.to_owned(), guard, db }))
    }
}

/// Makes agents of `type: command`.
///
/// The host is made with the first of them: a pool without commands has no socket.
#[derive(Debug)]
pub struct CommandFactory {
    program: PathBuf,
    guard: Option<GuardProgram>,
    db: Option<PathBuf>,
    host: std::sync::Mutex<Option<Arc<CommandHost>>>,
}

impl CommandFactory {
    /// See [`CommandHost::new`].
    #[must_use]
    pub const fn new(program: PathBuf, guard: Option<GuardProgram>, db: Option<PathBuf>) -> Self {
        Self { program, guard, db, host: std::sync::Mutex::new(None) }
    }

    fn host(&self, delegator: &Delegator) -> std::io::Result<Arc<CommandHost>> {
        let mut host = self.host.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(host) = &*host {
            return Ok(Arc::clone(host));
        }
        let new = CommandHost::new(delegator.clone(), &self.program, self.guard.clone(), self.db.clone())?;
        Ok(Arc::clone(host.insert(new)))
    }
}

impl NodeFactory for CommandFactory {
    type Settings = CommandSettings;

    fn kind(&self) -> &'static str {
        "command"
    }

    fn build(
        &self,
        settings: CommandSettings,
        spec: NodeSpec,
        delegator: &Delegator,
    ) -> Result<Arc<dyn Agent>, BuildError> {
        let host = self.host(delegator).map_err(|error| BuildError {
            key: None,
            message: format!("no directory for the agents' socket: {error}"),
            help: Some("set TMPDIR to a directory you can write to".to_owned()),
        })?;
        Ok(Arc::new(Command::new(settings, spec, host)?))
    }
}

/// A local program as an agent.
#[derive(Debug)]
pub struct Command {
    name: NodeName,
    description: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    prompt: PromptBy,
    on_exit: OnExit,
    stop_grace: Duration,
    environment: Environment,
    secrets: Secrets,
    workers: Vec<Worker>,
    limits: SessionLimits,
    manifest_dir: PathBuf,
    max_output_bytes: u64,
    host: Arc<CommandHost>,
}

impl Command {
    /// The agent a manifest describes.
    ///
    /// # Errors
    /// [`BuildError`] for an empty command or a program that is not there or may not be executed.
    pub fn new(settings: CommandSettings, spec: NodeSpec, host: Arc<CommandHost>) -> Result<Self, BuildError> {
        let CommandSettings { command, prompt, on_exit, stop_grace_ms } = settings;
        let [program, arguments @ ..] = command.as_slice() else {
            let empty = BuildError::key("command", "`command` is empty");
            return Err(empty.help("name a program: command: [sh, script.sh]"));
        };
        let mut environment = Environment::empty().small_set();
        let mut secrets = Secrets::none();
        for Variable { name, value, secret } in &spec.environment {
            environment = environment.set(name, value);
            if *secret {
                secrets = secrets.with(value);
            }
        }
        let program = resolve_program(program.as_ref(), &spec.manifest_dir, environment.get("PATH"))
            .map_err(|error| BuildError::key("command", error.to_string()))?;
        let path = std::env::join_paths(
            std::iter::once(host.home.bin())
                .chain(environment.get("PATH").into_iter().flat_map(std::env::split_paths)),
        );
        if let Ok(path) = path {
            environment = environment.set("PATH", path);
        }
        // Nothing of a run we are ourselves in reaches ours.
        for ours in [variables::SOCKET, variables::TOKEN, variables::SESSION] {
            environment = environment.without(ours);
        }
        let in_manifest = |argument: &String| {
            let path = spec.manifest_dir.join(argument);
            if !argument.is_empty() && path.is_file() { path.into_os_string() } else { argument.into() }
        };
        Ok(Self {
            name: spec.name,
            description: spec.description,
            program,
            arguments: arguments.iter().map(in_manifest).collect(),
            prompt,
            on_exit: match on_exit {
                ChildrenOnExit::Wait => OnExit::Wait,
                ChildrenOnExit::Cancel => OnExit::Cancel,
            },
            stop_grace: Duration::from_millis(stop_grace_ms),
            environment,
            secrets,
            workers: spec.workers,
            limits: spec.limits,
            manifest_dir: spec.manifest_dir,
            max_output_bytes: spec.max_output_bytes,
            host,
        })
    }
}

impl Agent for Command {
    fn name(&self) -> &NodeName {
        &self.name
    }

    fn agent_type(&self) -> AgentType {
        AgentType::Command
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn limits(&self) -> SessionLimits {
        self.limits.clone()
    }

    fn takes_slot(&self) -> bool {
        true
    }

    fn stop_grace(&self) -> Duration {
        self.stop_grace + STOP_SLACK
    }

    fn on_exit(&self) -> OnExit {
        self.on_exit
    }

    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(run::run(self, prompt, cx))
    }
}
