//! `offspring drive`: one turn of a runtime that speaks the dsh wire.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use offspring_client::{
    ClientError, Harness, HarnessClient, Limits, Notification, RuntimeCommand, SessionId, TurnError,
    TurnResult,
    dsh::{InitializeParams, SUBAGENT_FINISHED, SUBAGENT_STARTED},
};
use offspring_process::{GuardProgram, Ladder, Secrets};

use crate::{
    GUARD, exit,
    failure::{Failure, reason},
    prompt::{MaxPrompt, PromptArgs},
    signals::{Ending, Signals, Watched},
    text::{counted, duration, for_stdout, out, out_json, plain, tell},
    variables,
};

mod outcome;
mod recorder;

use outcome::Outcome;
use recorder::Recorder;

/// The longest prompt in bytes; a runtime takes any.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring drive --runtime dsh --profile sdk --tree \"Look into it, with helpers\"\n  \
    offspring drive --runtime \"python3 my_runtime.py\" --json \"hello\" | jq -c .method\n  \
    offspring drive --runtime dsh --session review-1 --resume \"And the tests?\" --trace wire.jsonl\n\n\
    A runtime gets a small environment (PATH, HOME, LANG, …), DSH_HOME, DSH_TELEMETRY_MODE, DSH_PERMISSION_MODE, \
    DEEPSEEK_API_KEY and DEEPSEEK_BASE_URL where they are set, and what --pass names.\n\n\
    Exit codes: 0 the turn ended and its model turn did not end as `error`, 1 it did, or the runtime failed.")]
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
    /// End the turn as failed when the session is not idle after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,
    /// Record every line that is sent and received; values of passed variables are taken out.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print every notification of the turn as `{"method": …, "params": …}` on a line of its own, and a `result` last.
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
    let mut builder = HarnessClient::builder().limits(limits);
    let recorder = args.trace.as_deref().map(|file| Recorder::create(file, secrets(&args))).transpose()?;
    if let Some(recorder) = recorder.clone() {
        builder = builder.on_frame(move |direction, frame| recorder.frame(direction, frame));
    }

    let started = Instant::now();
    let signals = Signals::listen()?;
    let client = builder.start(&command).map_err(failed)?;
    let watched = watched(signals, &client);
    let work = turn(&args, client.clone(), &params, session, &prompt, started);
    let done = tokio::select! {
        done = work => done,
        ending = watched.first() => Err(Stop::Signal(ending)),
    };
    if let Err(Stop::Signal(_)) = &done {
        tell("stopping the runtime; once more kills it");
    }
    client.close().await;
    watched.over();
    let recorded = recorder.map_or(Ok(()), |recorder| recorder.finish());
    let code = match done {
        Ok(code) => code,
        Err(Stop::Signal(ending)) => return Ok(ExitCode::from(ending.exit_code())),
        // W10: a runtime may have said on its stderr what it was given.
        Err(Stop::Failure(failure)) => return Err(failure.without(&secrets(&args))),
    };
    recorded.map(|()| ExitCode::from(code))
}

/// Why there is no result.
enum Stop {
    Signal(Ending),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// A second signal, or one that is not obeyed in time, kills the runtime at once.
fn watched(signals: Signals, client: &HarnessClient) -> Watched {
    let (client, tasks) = (client.clone(), tokio::runtime::Handle::current());
    let force = move || {
        tasks.spawn(async move {
            if let Some(process) = client.process() {
                process.stop(Ladder::at_once()).await;
            }
        });
    };
    signals.watched(force, || {})
}

async fn turn(
    args: &Drive,
    client: HarnessClient,
    params: &InitializeParams,
    session: Option<SessionId>,
    prompt: &str,
    started: Instant,
) -> Result<u8, Stop> {
    let harness = Harness::over(client, params).await.map_err(failed)?;
    let session = match session {
        Some(id) if args.resume => harness.resume(id).await.map_err(failed)?,
        Some(id) => harness.session(id),
        None => harness.new_session().map_err(failed)?,
    };
    let turn = session.turn(prompt);
    let begun = if args.tree { turn.stream_tree().await } else { turn.stream().await };
    let mut stream = begun.map_err(turn_failed)?;
    let mut count = 0_u64;
    let mut listening = true;
    let told = !args.quiet && !args.json;
    while let Some(next) = stream.next().await {
        let notification = next.map_err(turn_failed)?;
        count += 1;
        if args.json {
            // The bytes of the payload are the runtime's own.
            listening = listening && is_read(out_json(&notification))?;
        } else if told {
            say(&notification, session.id());
        }
    }
    let result = stream.finish().map_err(turn_failed)?;
    let code = if result.finish_reason.as_deref() == Some("error") { exit::FAILED } else { exit::DONE };
    if args.json {
        if listening {
            is_read(out_json(&Outcome::new(&result, count)))?;
        }
        return Ok(code);
    }
    if let Some(text) = &result.final_response {
        is_read(out(&format!("{}\n", for_stdout(text).trim_end_matches('\n'))))?;
    }
    if !args.quiet {
        tell(&summary(&result, count, started));
    }
    Ok(code)
}

/// Whether somebody still reads. The turn goes on when nobody does: what its agents do is not for our reader alone.
fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// One line for who starts and who finishes.
fn say(notification: &Notification, root: &SessionId) {
    let (Some(parent), Some(child)) = (notification.parent_session_id(), notification.child_session_id())
    else {
        return;
    };
    let parent = if parent == root.as_str() { "the session" } else { parent };
    match notification.method() {
        SUBAGENT_STARTED => tell(&format!("+ {} started by {}", plain(child), plain(parent))),
        SUBAGENT_FINISHED => {
            let status = notification.status().unwrap_or("?");
            tell(&format!("- {} finished: {}", plain(child), plain(status)));
        }
        _ => {}
    }
}

fn summary(result: &TurnResult, count: u64, started: Instant) -> String {
    let children = result.tree.children();
    let runs = children.iter().flat_map(|child| &child.runs);
    let failed = runs.filter(|run| !run.is_ok()).count();
    format!(
        "{}: {}, {failed} failed or open, {}, {}; session {}",
        plain(result.finish_reason.as_deref().unwrap_or("no model turn")),
        counted(children.len() + 1, "session", "sessions"),
        counted(usize::try_from(count).unwrap_or(usize::MAX), "notification", "notifications"),
        duration(started.elapsed()),
        plain(result.session_id.as_str()),
    )
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

/// The values that neither a trace nor an error may hold (W10).
fn secrets(args: &Drive) -> Secrets {
    let secret = |name: &&str| {
        ["key", "token", "secret", "password"].iter().any(|word| name.to_ascii_lowercase().contains(word))
    };
    let known = variables::RUNTIME.iter().copied().filter(secret).map(OsString::from);
    let values = known.chain(args.pass.iter().cloned()).filter_map(std::env::var_os);
    values.fold(Secrets::none(), |secrets, value| {
        let value = value.to_string_lossy().into_owned();
        // In a string of JSON a quote, a backslash or a line feed of it is spelled otherwise, and once more where an
        // error quotes a line of the wire.
        let in_json = serde_json::to_string(&value).unwrap_or_default();
        let in_json = in_json.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default();
        let quoted = in_json.escape_debug().to_string();
        secrets.with(quoted).with(in_json).with(value)
    })
}

fn failed(error: ClientError) -> Failure {
    match &error {
        ClientError::Program(_) | ClientError::Spawn(_) => Failure::usage(format!("--runtime: {error}")),
        _ => Failure::new(error),
    }
}

fn turn_failed(error: TurnError) -> Failure {
    let children = error.partial.tree.children().len();
    let failure = failed(error.reason);
    match children {
        0 => failure,
        _ => failure.and(format!("until then {} had been started", counted(children, "session", "sessions"))),
    }
}
