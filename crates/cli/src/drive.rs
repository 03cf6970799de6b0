//! `offspring drive`: one turn of a runtime that speaks the dsh wire.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    sync::PoisonError,
    time::{Duration, Instant},
};

use clap::Args;
use offspring_client::{
    ClientError, HarnessClient, Limits, RuntimeCommand, SessionId, dsh::InitializeParams,
};
use offspring_process::{GuardProgram, Ladder};

use crate::{
    GUARD,
    failure::{Failure, reason},
    prompt::{MaxPrompt, PromptArgs},
    signals::{Signals, Watched},
    text::{plain, tell},
    variables,
};

mod outcome;
mod output;
mod recorder;
mod secrets;
mod told;
mod turn;

use recorder::Recorder;
use turn::{Abandon, Course};

/// The longest prompt in bytes; a runtime takes any.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring drive --runtime dsh --profile sdk --tree \"Look into it, with helpers\"\n  \
    offspring drive --runtime \"python3 my_runtime.py\" --json \"hello\" | jq -c .method\n  \
    offspring drive --runtime dsh --session review-1 --resume \"And the tests?\" --trace wire.jsonl\n\n\
    A runtime gets a small environment (PATH, HOME, LANG, …), DSH_HOME, DSH_TELEMETRY_MODE, DSH_PERMISSION_MODE, \
    DEEPSEEK_API_KEY and DEEPSEEK_BASE_URL where they are set, and what --pass names.\n\n\
    Exit codes: 0 the turn ended and its model turn did not end as `error`, 1 it did, or the runtime failed, \
    2 wrong use, 130 interrupted (143 SIGTERM, 129 SIGHUP).")]
pub(crate) struct Drive {
    /// The runtime's command line, split into words as a shell does; nothing else of a shell is done.
    #[arg(long, value_name = "CMD")]
    pub(crate) runtime: String,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// The session to prompt; made if it is new. Default: a new one.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// The session is one that the runtime stored.
    #[arg(long, requires = "session")]
    pub(crate) resume: bool,
    /// Wait until nothing below the session is at work, not only for its own idle.
    #[arg(long)]
    pub(crate) tree: bool,
    /// `--profile` of the runtime.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// `--patch` of the runtime; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Vec<PathBuf>,
    /// DSH_HOME of the runtime: where it keeps its sessions.
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Who serves the model.
    #[arg(long, value_name = "NAME", default_value = "deepseek-official")]
    pub(crate) provider: String,
    /// Which model.
    #[arg(long, value_name = "NAME", default_value = "deepseek-v4-flash")]
    pub(crate) model: String,
    /// How much the model thinks; the words are the provider's.
    #[arg(long, value_name = "WORD")]
    pub(crate) reasoning_effort: Option<String>,
    /// The longest answer of the model, in tokens.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// The directory the session works in. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// A variable of this environment to pass on to the runtime; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) pass: Vec<OsString>,
    /// Go on with a runtime that says it did not load all it was told to.
    #[arg(long)]
    pub(crate) allow_inactive_plugins: bool,
    /// End the turn as failed when it is not over after so many seconds; with `--tree`: the tree's.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,
    /// Record every line that is sent and received; values of passed variables are taken out.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print every notification of the turn as `{"method": …, "params": …}` on a line of its own, and a `result` last, also when it fails.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing about the tree on stderr.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

pub(crate) async fn drive(args: Drive) -> Result<ExitCode, Failure> {
    if !args.prompt.is_given() {
        return Err(Failure::usage(
            "there is no prompt: what should the session be asked?\n\
             offspring drive --runtime CMD PROMPT; `-` reads it from stdin, --prompt-file FILE from a file",
        ));
    }
    let command = command(&args)?;
    check_passed(&args.pass)?;
    let session = args.session.as_deref().map(SessionId::new).transpose();
    let session = session.map_err(|bad| Failure::usage(format!("--session: {bad}")))?;
    let prompt = args.prompt.read(&MaxPrompt { bytes: MAX_PROMPT_BYTES, set_by: "`drive` itself" })?;
    let params = InitializeParams {
        cwd: crate::run::directory(args.dir.as_deref())?,
        provider: args.provider.clone(),
        model: args.model.clone(),
        reasoning_effort: args.reasoning_effort.clone(),
        max_tokens: args.max_tokens,
    };
    let mut limits = Limits::default();
    if let Some(seconds) = args.timeout {
        let bound = Duration::from_secs(seconds);
        limits.turn_within = bound;
        // Nothing on the way to the turn's end may take longer than the turn.
        limits.initialize_within = limits.initialize_within.min(bound);
        limits.request_within = limits.request_within.min(bound);
        limits.receipt_within = limits.receipt_within.min(bound);
        limits.tree_silence = limits.tree_silence.min(bound);
    }
    let secrets = secrets::secrets(&args.pass);
    let mut builder =
        HarnessClient::builder().limits(limits).allow_inactive_plugins(args.allow_inactive_plugins);
    let recorder = args.trace.as_deref().map(|file| Recorder::create(file, secrets.clone())).transpose()?;
    if let Some(recorder) = recorder.clone() {
        builder = builder.on_frame(move |direction, frame| recorder.frame(direction, frame));
    }

    let started = Instant::now();
    let signals = Signals::listen()?;
    let client = builder.start(&command).map_err(failed)?;
    let abandon = Abandon::default();
    let watched = watched(signals, &client, abandon.clone());
    let course = Course {
        args: &args,
        client: client.clone(),
        params,
        session,
        prompt,
        secrets: &secrets,
        abandon,
        started,
    };
    let done = tokio::select! {
        done = course.run() => Ok(done),
        ending = watched.first() => Err(ending),
    };
    if done.is_err() {
        tell("stopping the runtime; once more kills it");
    }
    client.close().await;
    watched.over();
    let recorded = recorder.map_or(Ok(()), |recorder| recorder.finish());
    match done {
        // W10: a runtime may have said on its stderr what it was given.
        Ok(Err(failure)) => Err(failure.without(&secrets)),
        Ok(Ok(code)) => recorded.map(|()| ExitCode::from(code)),
        Err(ending) => Ok(ExitCode::from(ending.exit_code())),
    }
}

/// A second signal, or one that is not obeyed in time, kills the runtime at once.
fn watched(signals: Signals, client: &HarnessClient, abandon: Abandon) -> Watched {
    let (client, tasks) = (client.clone(), tokio::runtime::Handle::current());
    let force = move || {
        tasks.spawn(async move {
            if let Some(process) = client.process() {
                process.stop(Ladder::at_once()).await;
            }
        });
    };
    let last_words = move || {
        let abandon = abandon.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(abandon) = abandon {
            abandon();
        }
    };
    signals.watched(force, last_words)
}

fn command(args: &Drive) -> Result<RuntimeCommand, Failure> {
    let words = shlex::split(&args.runtime).unwrap_or_default();
    let Some((program, rest)) = words.split_first() else {
        return Err(Failure::usage(format!(
            "--runtime {:?} is no command line: it is empty, or a quote in it is not closed",
            args.runtime
        )));
    };
    let own = std::env::current_exe()?;
    let mut command = RuntimeCommand::new(program).args(rest).inherit(variables::RUNTIME).inherit(&args.pass);
    if GuardProgram::SUPPORTED {
        command = command.guard(GuardProgram::new(own).arg(GUARD));
    }
    if let Some(profile) = &args.profile {
        command = command.profile(profile);
    }
    for patch in &args.patch {
        let file = std::fs::canonicalize(patch);
        let file =
            file.map_err(|error| Failure::usage(format!("--patch {}: {}", patch.display(), reason(&error))))?;
        command = command.patch(file);
    }
    if let Some(home) = &args.home {
        command = command.home(std::path::absolute(home)?);
    }
    Ok(command)
}

/// A variable to pass that is not there is said and no error, as for a node of a pool.
fn check_passed(names: &[OsString]) -> Result<(), Failure> {
    for name in names {
        let shown = name.to_string_lossy();
        if name.is_empty() || shown.contains(['=', '\0']) {
            return Err(Failure::usage(
                "--pass takes the name of a variable alone; its value is the one that it has here",
            ));
        }
        if std::env::var_os(name).is_none() {
            tell(&format!(
                "warning: --pass: {} is not set here, so the runtime will have none",
                plain(&shown)
            ));
        }
    }
    Ok(())
}

fn failed(error: ClientError) -> Failure {
    match &error {
        ClientError::Program(_) | ClientError::Spawn(_) => Failure::usage(format!("--runtime: {error}")),
        ClientError::NotActivated { .. } => {
            Failure::new(error).and("with `offspring drive` that is --allow-inactive-plugins")
        }
        _ => Failure::new(error),
    }
}
