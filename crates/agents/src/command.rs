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
use offspring_delegation::{
    Agent, BuildError, Delegator, NodeFactory, NodeSpec, OnExit, Prompt, Variable, Worker,
};
use offspring_process::{Environment, GuardProgram, ProgramError, resolve_program};
use offspring_protocol::{AgentType, NodeName, SessionLimits};
use offspring_sessions::{Answer, RunContext, RunError};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use self::{host::CommandHost, withheld::Withheld};

pub mod host;
mod output;
mod run;
pub(crate) mod withheld;

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

    /// Each with what it means to an agent.
    pub const TABLE: &[(&str, &str)] = &[
        (SOCKET, "the private endpoint of the pool"),
        (TOKEN, "the right to delegate in the name of this run, and nothing else; void when the run ends"),
        (BIN, "the program, for scripts that set their own `PATH`"),
        (SESSION, "the id of the session it runs in"),
        (SCRATCH, "a private directory of the run, removed at its end"),
        (MANIFEST_DIR, "the directory of the manifest"),
        (DB, "the store, when it is a file"),
        (PROMPT_FILE, "the file with the prompt, for agents with `prompt: file`"),
    ];
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
    /// default, 8,000 at most.
    #[serde(default = "default_grace")]
    pub stop_grace_ms: u64,
}

const fn default_grace() -> u64 {
    2_000
}

/// The longest prompt with `prompt: argument`: systems allow 128 KiB for one argument, its end included.
pub const MAX_ARGUMENT_BYTES: usize = (128 << 10) - 1;
/// The longest `stop_grace_ms`: what a cancel waits for an agent has to hold it.
pub const MAX_GRACE_MS: u64 = 8_000;
/// What a stop may take beyond the program's own grace: the guard's last steps.
const STOP_SLACK: Duration = Duration::from_secs(12);

/// Makes agents of `type: command`.
///
/// Making them touches nothing: the private directory and the socket come with the first run, so that a
/// pool without commands, or one that is only checked, has none.
#[derive(Debug)]
pub struct CommandFactory {
    host: Arc<CommandHost>,
}

impl CommandFactory {
    /// See [`CommandHost::new`].
    #[must_use]
    pub fn new(program: PathBuf, guard: Option<GuardProgram>, db: Option<PathBuf>) -> Self {
        Self { host: CommandHost::new(program, guard, db) }
    }

    /// Kills every program that runs, with all it started, once it is cancelled. For whoever cannot wait any
    /// longer for a cancel that is on its way: how the runs end is decided by that.
    #[must_use]
    pub fn kill_switch(&self) -> CancellationToken {
        self.host.kill.clone()
    }

    /// What node types beside it share with it: the guard, the secrets, the kill switch.
    #[must_use]
    pub fn host(&self) -> Arc<CommandHost> {
        Arc::clone(&self.host)
    }

    /// Makes the private directory now, so that what keeps it from being made is known before a run is.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn prepare(&self) -> std::io::Result<()> {
        self.host.prepare()
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
        Ok(Arc::new(Command::new(settings, spec, Arc::clone(&self.host), delegator.clone())?))
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
    withheld: Withheld,
    workers: Vec<Worker>,
    limits: SessionLimits,
    manifest_dir: PathBuf,
    max_silence: Option<Duration>,
    max_output_bytes: u64,
    max_prompt_bytes: u64,
    host: Arc<CommandHost>,
    delegator: Delegator,
}

impl Command {
    /// The agent a manifest describes.
    ///
    /// # Errors
    /// [`BuildError`] for an empty command, a program that is not there or may not be executed, a grace that
    /// is too long, or a variable that no process can be given.
    pub fn new(
        settings: CommandSettings,
        spec: NodeSpec,
        host: Arc<CommandHost>,
        delegator: Delegator,
    ) -> Result<Self, BuildError> {
        let CommandSettings { command, prompt, on_exit, stop_grace_ms } = settings;
        let [program, arguments @ ..] = command.as_slice() else {
            let empty = BuildError::key("command", "`command` is empty");
            return Err(empty.help("name a program: command: [sh, script.sh]"));
        };
        if stop_grace_ms > MAX_GRACE_MS {
            let message =
                format!("`stop_grace_ms` is {stop_grace_ms}, and a cancel waits for {MAX_GRACE_MS} at most");
            return Err(BuildError::key("stop_grace_ms", message).help(format!("say {MAX_GRACE_MS} or less")));
        }
        if let Some(argument) = command.iter().find(|argument| argument.contains('\0')) {
            let message = format!("an argument holds a NUL byte: {argument:?}");
            return Err(BuildError::key("command", message).help("no program can be given one"));
        }
        let mut environment = Environment::empty().small_set();
        let withheld = host.withheld();
        for Variable { name, value, secret } in &spec.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("no process can be given the variable {name:?}");
                let help = "a name has no `=`, and neither name nor value a NUL byte";
                return Err(BuildError::key("environment", message).help(help));
            }
            environment = environment.set(name, value);
            if *secret {
                withheld.add(value);
            }
        }
        let program = resolve_program(program.as_ref(), &spec.manifest_dir, environment.get("PATH"))
            .map_err(|error| no_program(program, &spec.manifest_dir, &error))?;
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
            withheld,
            workers: spec.workers,
            limits: spec.limits,
            manifest_dir: spec.manifest_dir,
            max_silence: spec.max_silence,
            max_output_bytes: spec.max_output_bytes,
            max_prompt_bytes: spec.max_prompt_bytes,
            host,
            delegator,
        })
    }
}

/// Why a program cannot be run, with the name as the manifest has it.
pub(crate) fn no_program(program: &str, manifest_dir: &Path, error: &ProgramError) -> BuildError {
    let is_path = program.contains('/');
    let beside = manifest_dir.join(program.trim_start_matches("./"));
    let (message, help) = match error {
        ProgramError::NotFound { .. } if is_path => (
            format!("there is no program `{program}`"),
            format!("a path is seen from the manifest's directory, {}", manifest_dir.display()),
        ),
        ProgramError::NotFound { .. } if !program.is_empty() && beside.is_file() => (
            format!("the program `{program}` is not on PATH"),
            format!("write `./{program}` for the file beside the manifest"),
        ),
        ProgramError::NotFound { looked_in, .. } if program.is_empty() || looked_in.contains("no PATH") => {
            (error.to_string(), "name a program by its path".to_owned())
        }
        ProgramError::NotFound { .. } => (
            format!("the program `{program}` is not on PATH"),
            "look for a misspelling, install it, or name it by its path".to_owned(),
        ),
        ProgramError::NotExecutable { path } => {
            let path = if is_path { &beside } else { path };
            (format!("`{program}` is not executable"), format!("try: chmod +x {}", path.display()))
        }
        ProgramError::IsDirectory { .. } => {
            (format!("`{program}` is a directory, not a program"), "name the program in it".to_owned())
        }
        other => return BuildError::key("command", other.to_string()),
    };
    BuildError::key("command", message).help(help)
}

/// Why a prompt cannot be an argument: systems allow neither a NUL byte nor more than 128 KiB.
fn no_argument(prompt: &str) -> Option<String> {
    let why = if prompt.len() > MAX_ARGUMENT_BYTES {
        format!("the prompt has {} bytes and an argument may have {MAX_ARGUMENT_BYTES}", prompt.len())
    } else if prompt.contains('\0') {
        "the prompt holds a NUL byte, which no argument may".to_owned()
    } else {
        return None;
    };
    Some(format!("{why}; use `prompt: stdin` or `prompt: file` for this agent"))
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

    fn max_silence(&self) -> Option<Duration> {
        self.max_silence
    }

    fn takes_slot(&self) -> bool {
        true
    }

    fn stop_grace(&self) -> Duration {
        self.stop_grace + STOP_SLACK
    }

    fn refuses(&self, prompt: &Prompt) -> Option<String> {
        if self.prompt == PromptBy::Argument { no_argument(&prompt.text) } else { None }
    }

    fn on_exit(&self) -> OnExit {
        self.on_exit
    }

    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(run::run(self, prompt, cx))
    }
}
