//! `type: dsh`: a session of a DeepSeek Harness runtime as an agent.
//!
//! A run of ours is one turn of a session of the runtime, from its prompt until everything below it is at rest.
//! What the runtime starts meanwhile becomes sessions of our tree: `translate` decides what (pure), `run` does
//! it, `runtime` starts and ends the process.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_client::{Environment, RuntimeCommand};
use offspring_delegation::{Agent, BuildError, Delegator, NodeFactory, NodeSpec, Prompt, Variable};
use offspring_process::resolve_program;
use offspring_protocol::{AgentType, NodeName, PeerId, SessionLimits};
use offspring_sessions::{Answer, RunContext, RunError};
use serde::Deserialize;

use self::{
    clean::{Clean, Ids},
    runtime::Shared,
};
use crate::command::{host::CommandHost, no_program};

mod clean;
mod payload;
mod record;
mod run;
mod runtime;
mod translate;

/// What a stop may take: the steps of the client's close, and the guard's last ones.
const STOP_GRACE: Duration = Duration::from_secs(16);

/// The keys of `type: dsh`.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DshSettings {
    /// The runtime and its first arguments; `dsh` by default. Found as the program of `type: command` is.
    #[serde(default = "default_command")]
    pub command: Vec<String>,
    /// Which plugins it loads, as `--profile`; `sdk` by default. An empty text leaves the option out.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Files with changes to the profile, relative to the manifest's directory, each as `--patch`.
    #[serde(default)]
    pub patches: Vec<PathBuf>,
    /// Where it keeps its sessions, relative to the manifest's directory, as `DSH_HOME`; by default its own `~/.dsh`.
    #[serde(default)]
    pub home: Option<PathBuf>,
    /// Which model.
    pub model: String,
    /// Who serves the model; `deepseek-official` by default.
    #[serde(default = "default_provider")]
    pub provider: String,
    /// How much the model thinks, in the provider's words.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// The longest answer of the model, in tokens.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Whether all runs of this agent in one working directory share a process (default: each run has its own). It is
    /// started for the first and closed when none is open any more.
    #[serde(default)]
    pub shared: bool,
}

impl DshSettings {
    /// The command line, as the manifest has its words.
    #[must_use]
    pub fn line(&self) -> Vec<String> {
        let mut line = self.command.clone();
        if !self.profile.is_empty() {
            line.extend(["--profile".to_owned(), self.profile.clone()]);
        }
        for patch in &self.patches {
            line.extend(["--patch".to_owned(), patch.to_string_lossy().into_owned()]);
        }
        line
    }
}

fn default_command() -> Vec<String> {
    vec!["dsh".to_owned()]
}

fn default_profile() -> String {
    "sdk".to_owned()
}

fn default_provider() -> String {
    "deepseek-official".to_owned()
}

/// Makes agents of `type: dsh`. Making them starts nothing.
#[derive(Debug)]
pub struct DshFactory {
    host: Arc<CommandHost>,
}

impl DshFactory {
    /// With the guard, the secrets and the kill switch that the commands of the same pool have.
    #[must_use]
    pub fn new(host: Arc<CommandHost>) -> Self {
        Self { host }
    }
}

impl NodeFactory for DshFactory {
    type Settings = DshSettings;

    fn kind(&self) -> &'static str {
        "dsh"
    }

    fn build(
        &self,
        settings: DshSettings,
        spec: NodeSpec,
        _delegator: &Delegator,
    ) -> Result<Arc<dyn Agent>, BuildError> {
        Ok(Arc::new(Dsh::new(settings, spec, Arc::clone(&self.host))?))
    }
}

/// A session of a runtime as an agent.
#[derive(Debug)]
pub struct Dsh {
    name: NodeName,
    description: String,
    peer: PeerId,
    command: RuntimeCommand,
    model: String,
    provider: String,
    reasoning_effort: Option<String>,
    max_tokens: Option<u64>,
    limits: SessionLimits,
    max_silence: Option<Duration>,
    max_output_bytes: u64,
    /// `None`: a process for each run.
    shared: Option<Arc<Shared>>,
    host: Arc<CommandHost>,
    ids: Arc<Ids>,
}

impl Dsh {
    /// The agent a manifest describes.
    ///
    /// # Errors
    /// [`BuildError`] for a program or a patch that is not there, or a variable that no process can be given.
    pub fn new(settings: DshSettings, spec: NodeSpec, host: Arc<CommandHost>) -> Result<Self, BuildError> {
        let [program, arguments @ ..] = settings.command.as_slice() else {
            let empty = BuildError::key("command", "`command` is empty");
            return Err(empty.help("name the runtime: command: [dsh]"));
        };
        let mut environment = Environment::empty().small_set();
        for Variable { name, value, secret } in &spec.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("no process can be given the variable {name:?}");
                let help = "a name has no `=`, and neither name nor value a NUL byte";
                return Err(BuildError::key("environment", message).help(help));
            }
            environment = environment.set(name, value);
            if *secret {
                host.withheld().add(value);
            }
        }
        if settings.max_tokens == Some(0) {
            return Err(
                BuildError::key("max_tokens", "`max_tokens` is 0").help("say 1 or more, or leave it out")
            );
        }
        let path = environment.get("PATH").map(ToOwned::to_owned);
        let program = resolve_program(program.as_ref(), &spec.manifest_dir, path.as_deref())
            .map_err(|error| no_program(program, &spec.manifest_dir, &error))?;
        let beside = |argument: &String| -> OsString {
            let path = spec.manifest_dir.join(argument);
            if !argument.is_empty() && path.is_file() { path.into_os_string() } else { argument.into() }
        };
        let mut command =
            RuntimeCommand::new(program).args(arguments.iter().map(beside)).environment(environment);
        if !settings.profile.is_empty() {
            command = command.profile(&settings.profile);
        }
        for patch in &settings.patches {
            let file = spec.manifest_dir.join(patch);
            if !file.is_file() {
                let message = format!("there is no file `{}`", patch.display());
                let help =
                    format!("a path is seen from the manifest's directory, {}", spec.manifest_dir.display());
                return Err(BuildError::key("patches", message).help(help));
            }
            command = command.patch(file);
        }
        if let Some(home) = &settings.home {
            command = command.home(spec.manifest_dir.join(home));
        }
        if let Some(guard) = &host.guard {
            command = command.guard(guard.clone());
        }
        let peer = PeerId::new(spec.name.as_str());
        let peer = peer.map_err(|error| BuildError::key("type", error.to_string()))?;
        Ok(Self {
            name: spec.name,
            description: spec.description,
            peer,
            command,
            model: settings.model,
            provider: settings.provider,
            reasoning_effort: settings.reasoning_effort,
            max_tokens: settings.max_tokens,
            limits: spec.limits,
            max_silence: spec.max_silence,
            max_output_bytes: spec.max_output_bytes,
            shared: settings.shared.then(Arc::default),
            host,
            ids: Arc::default(),
        })
    }

    fn clean(&self) -> Arc<Clean> {
        Arc::new(Clean::new(self.host.withheld(), self.max_output_bytes, Arc::clone(&self.ids)))
    }
}

impl Agent for Dsh {
    fn name(&self) -> &NodeName {
        &self.name
    }

    fn agent_type(&self) -> AgentType {
        AgentType::Dsh
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
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
        STOP_GRACE
    }

    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(run::run(self, prompt, cx))
    }
}
