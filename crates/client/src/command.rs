//! How a runtime is started.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use offspring_process::{Environment, GuardProgram, Ladder, ProcessSpec, RunMarker, Stdin, resolve_program};

use crate::{error::ClientError, limits::Limits};

/// A runtime as a child process: what to start, where, with what environment.
///
/// The environment is explicit (W10): the [small set](offspring_process::SMALL_SET) and what is added here. In
/// particular a key has to be passed on: `.inherit(["DEEPSEEK_API_KEY"])`.
///
/// ```
/// use offspring_client::RuntimeCommand;
///
/// let command = RuntimeCommand::new("dsh")
///     .profile("sdk-minimal")
///     .patch("delegate.patch.yml")
///     .home("runtime-home")
///     .inherit(["DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"]);
/// # let _ = command;
/// ```
#[derive(Debug, Clone)]
pub struct RuntimeCommand {
    program: OsString,
    args: Vec<OsString>,
    cwd: Option<PathBuf>,
    environment: Environment,
    guard: Option<GuardProgram>,
    marker: Option<RunMarker>,
}

impl RuntimeCommand {
    /// A program by path, or by name on the `PATH`.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            environment: Environment::empty().small_set(),
            guard: None,
            marker: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// `--profile NAME`: which plugins the runtime loads.
    #[must_use]
    pub fn profile(self, name: impl Into<OsString>) -> Self {
        self.arg("--profile").arg(name)
    }

    /// `--patch FILE`: changes to the profile. What of it does not load is an error of the start.
    #[must_use]
    pub fn patch(self, file: impl Into<OsString>) -> Self {
        self.arg("--patch").arg(file)
    }

    /// `DSH_HOME`: where the runtime keeps its sessions. Without it a runtime uses `~/.dsh`.
    #[must_use]
    pub fn home(self, directory: impl Into<OsString>) -> Self {
        self.env("DSH_HOME", directory)
    }

    /// The directory the process starts in (default: ours). Where sessions work is said by `initialize`.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cwd = Some(directory.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment = self.environment.set(name, value);
        self
    }

    /// Passes on variables of our own environment that are set.
    #[must_use]
    pub fn inherit(mut self, names: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        for name in names {
            if let Some(value) = std::env::var_os(name.as_ref()) {
                self.environment = self.environment.set(name.as_ref(), value);
            }
        }
        self
    }

    /// The whole environment instead of the small set.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// The guard that ends the runtime and all it started even when this process is killed (L14).
    #[must_use]
    pub fn guard(mut self, guard: GuardProgram) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The marker its processes carry, when it has to be stored before the start.
    #[must_use]
    pub fn marker(mut self, marker: RunMarker) -> Self {
        self.marker = Some(marker);
        self
    }

    pub(crate) fn spec(&self, limits: &Limits) -> Result<ProcessSpec, ClientError> {
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let cwd = self.cwd.clone().map_or_else(here, |cwd| here().join(cwd));
        let program = resolve_program(&self.program, Path::new(&cwd), self.environment.get("PATH"))
            .map_err(|error| ClientError::Program(Arc::new(error)))?;
        let mut spec = ProcessSpec::new(program, &cwd)
            .args(&self.args)
            .environment(self.environment.clone())
            .stdin(Stdin::Pipe)
            .stderr_tail_bytes(limits.stderr_tail_bytes)
            .grace(limits.terminate_within);
        if let Some(guard) = &self.guard {
            spec = spec.guard(guard.clone());
        }
        if let Some(marker) = self.marker {
            spec = spec.marker(marker);
        }
        Ok(spec)
    }
}

/// The steps after `shutdown` (W7).
pub(crate) fn ladder(limits: &Limits) -> Ladder {
    Ladder::default()
        .end_of_input_within(limits.end_of_input_within)
        .terminate_within(limits.terminate_within)
}
