//! `offspring run`.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use offspring_agents::{CommandFactory, DshFactory};
use offspring_delegation::{Delegator, Recall, RootOptions, RootResult, RootRun};
use offspring_pool::{
    Manifest, Pool, PromptError, Registry,
    manifest::{Problem, Storage},
};
use offspring_process::GuardProgram;
use offspring_protocol::{NodeName, Origin, Outcome, SessionId, SessionInfo, Timestamp};
use offspring_sessions::{ManagerOptions, SessionManager, SessionStore, ids};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    GUARD,
    args::VERSION,
    failure::{Failure, reason},
    live::{self, Live},
    load,
    prompt::{MaxPrompt, PromptArgs},
    signals::{Signals, Watched},
    store::{self, Place},
    summary::{FirstFailed, Summary, program_on},
    text::{for_stdout, out, out_json, tell},
    variables,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring run pool.yaml \"Review the change\"\n  \
    git diff | offspring run pool.yaml - --node reviewer --dir ../project\n  \
    offspring run pool.yaml --prompt-file question.md\n  \
    offspring run pool.yaml \"Ship it\" --json | jq -r 'select(.event.kind == \"answer\").event.data.text'")]
pub(crate) struct Run {
    /// The pool's manifest.
    pub(crate) manifest: PathBuf,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// The node to run instead of the manifest's entry.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// The directory the agents work in. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// How a run is shown, and where it may begin; the same for every command that runs a root.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shown {
    /// Print every event as a line of JSON, the last one the answer.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no live tree.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Start a new tree although this is called inside a session, outside its limits.
    #[arg(long)]
    pub(crate) new_root: bool,
}

/// How long a word beside the tree may take.
const SAYING: Duration = Duration::from_millis(200);

/// What is run, once everything that can be known before is known.
pub(crate) struct Job {
    pub(crate) manifest: Manifest,
    /// The node to run.
    pub(crate) node: NodeName,
    pub(crate) prompt: String,
    /// The directory to work in, absolute.
    pub(crate) dir: String,
    pub(crate) place: Place,
    pub(crate) shown: Shown,
    pub(crate) again: Option<Again>,
}

/// The root that is run again.
pub(crate) struct Again {
    pub(crate) of: SessionId,
    /// The store it is in, open.
    pub(crate) store: Arc<dyn SessionStore>,
    /// What is taken from its tree.
    pub(crate) recall: Option<Recall>,
}

pub(crate) async fn run(db: Option<PathBuf>, args: Run) -> Result<ExitCode, Failure> {
    refuse_inside(args.shown.new_root)?;
    load::refuse_swapped(&args.manifest, args.prompt.prompt.as_deref())?;
    let manifest = load::manifest(&args.manifest)?;
    let dir = directory(args.dir.as_deref())?;
    let node = args.node.as_deref().map(NodeName::new).transpose();
    let node = node.map_err(|bad| Failure::usage(format!("--node: {bad}")))?;
    if !args.prompt.is_given() {
        return Err(Failure::usage(format!(
            "there is no prompt: what should the pool be asked?\n\
             offspring run {} PROMPT; `-` reads it from stdin, --prompt-file FILE from a file",
            args.manifest.display()
        )));
    }
    let max = manifest.limits().max_prompt_bytes;
    let prompt = args.prompt.read(&MaxPrompt { bytes: max, set_by: "limits.max_prompt_bytes" })?;
    let node = asked(&manifest, node.as_ref())?.clone();
    check(&manifest, &node, &prompt)?;
    let place = Place::choose(db, of_manifest(&manifest))?;
    carry_out(Job { manifest, node, prompt, dir, place, shown: args.shown, again: None }).await
}

/// A tree of its own is not started from inside a session by mistake.
pub(crate) fn refuse_inside(new_root: bool) -> Result<(), Failure> {
    if !new_root && std::env::var_os(variables::SESSION).is_some() {
        return Err(Failure::usage(
            "this is inside a session: `offspring task NODE PROMPT` makes a child of it, within its limits; \
             to start a tree of its own all the same, add --new-root",
        ));
    }
    Ok(())
}

/// Runs a root to its end: shows its tree, hears signals, prints its answer and the line at the end.
pub(crate) async fn carry_out(job: Job) -> Result<ExitCode, Failure> {
    let Job { manifest, node, prompt, dir, place, shown: Shown { json, quiet, .. }, again } = job;
    let mut signals = Signals::listen()?;
    let (pool, kill_switch) = tokio::select! {
        opened = open(&manifest, &place, again.as_ref()) => opened?,
        // Nothing is there yet that would have to be cancelled.
        ending = signals.next() => return Ok(ExitCode::from(ending.exit_code())),
    };

    let stored_in = place.identity();
    // Subscribed before anything happens.
    let heard = live::hear(pool.manager());
    let (rerun_of, recall) = again.map(|again| (again.of, again.recall)).unzip();
    let origin = Origin { rerun_of, ..origin(&manifest, &node, &prompt, &dir) };
    let options = RootOptions {
        cwd: Some(dir),
        origin: Some(origin),
        recall: recall.flatten(),
        ..RootOptions::default()
    };
    let RootRun { session, result, .. } = tokio::select! {
        begun = pool.run(Some(&node), prompt.into(), options) => begun.map_err(|error| match error {
            PromptError::Refused(refused) => Failure::new(refused),
            usage => Failure::usage(usage),
        })?,
        // The store keeps us waiting, and what it may still take is interrupted from the start (L13).
        ending = signals.next() => std::process::exit(i32::from(ending.exit_code())),
    };
    // Away from the threads of the runtime: whoever does not read holds up nothing but what it should read.
    let lines = print_lines(pool.manager().clone(), session.id.clone());
    let runtime = tokio::runtime::Handle::current();
    let lines = json.then(|| tokio::task::spawn_blocking(move || runtime.block_on(lines)));
    let live = Live::start(pool.manager(), &session, heard, quiet);
    let last_words = {
        let (abandon, root, program) = (live.abandoning(), session.id.clone(), program_on(&place));
        move || {
            abandon();
            tell(&format!("left as it is; look at it with: {program} tree {root}"));
        }
    };
    let signals = signals.watched(move || kill_switch.cancel(), last_words);
    let say = |text| if quiet { tokio::task::spawn_blocking(move || tell(text)) } else { live.say(text) };
    let result = finished(&pool, &session.id, result, &signals, say).await?;
    let ending = signals.over();
    let seen = live.finish().await;

    let records = pool.manager().subtree(&session.id).await;
    let first_failed = match &records {
        Ok(records) => FirstFailed::find(pool.manager(), records).await,
        Err(_) => None,
    };
    let answered = match lines {
        Some(lines) => lines
            .await
            .unwrap_or(Ok(0))
            .and_then(|seq| out_json(&AnswerLine::new(&session, seq, &result, first_failed.as_ref()))),
        None => print_answer(&result.answer),
    };
    let stored = (&place, pool.manager().store().info().to_string());
    let records = records?;
    let mut summary = Summary::new(&records, &session.id, &result, first_failed, stored);
    if place.identity() != stored_in {
        summary.is_lost();
    }
    pool.close().await?;
    if !quiet {
        seen.print_tree(&records);
    }
    summary.print();
    match answered {
        // `run … | head -1` goes on and is stored.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(match (ending, result.outcome) {
        (Some(ending), _) => ExitCode::from(ending.exit_code()),
        (None, Outcome::Completed) => ExitCode::SUCCESS,
        (None, _) => ExitCode::FAILURE,
    })
}

/// The directory to work in, absolute and without links.
pub(crate) fn directory(named: Option<&Path>) -> Result<String, Failure> {
    let dir = named.unwrap_or(Path::new("."));
    let shown = dir.display();
    let what_to_do = "name the directory the agents work in, or leave --dir out for the current one";
    let wrong = |why: &str| Failure::usage(format!("--dir {shown}: {why}\n{what_to_do}"));
    let found = dir.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong("no such directory"),
        _ => wrong(&reason(&error)),
    })?;
    if !found.is_dir() {
        return Err(wrong("it is not a directory"));
    }
    let not_text = |_| wrong("the path is not UTF-8 and cannot be stored");
    found.into_os_string().into_string().map_err(not_text)
}

/// The node that is run: the one that is named, else the manifest's entry.
pub(crate) fn asked<'a>(manifest: &'a Manifest, node: Option<&'a NodeName>) -> Result<&'a NodeName, Failure> {
    const LISTED: usize = 8;
    node.or(manifest.entry()).ok_or_else(|| {
        let mut names: Vec<&str> = manifest.node_names().take(LISTED).map(NodeName::as_str).collect();
        if manifest.node_names().nth(LISTED).is_some() {
            names.push("…");
        }
        Failure::usage(format!(
            "{}: it has several nodes and no `entry`, so a run has to name one\nadd --node NAME; there are: {}",
            manifest.path().display(),
            names.join(", ")
        ))
    })
}

/// What the root is started with, so that it can be started again.
fn origin(manifest: &Manifest, node: &NodeName, prompt: &str, dir: &str) -> Origin {
    let path = std::path::absolute(manifest.path()).ok();
    Origin {
        manifest: manifest.text().to_owned(),
        manifest_path: path.and_then(|path| path.into_os_string().into_string().ok()),
        node: node.clone(),
        prompt: prompt.to_owned(),
        cwd: Some(dir.to_owned()),
        program_version: VERSION.to_owned(),
        rerun_of: None,
    }
}

pub(crate) fn of_manifest(manifest: &Manifest) -> Option<Place> {
    match manifest.storage()? {
        Storage::Memory => Some(Place::Memory),
        Storage::Sqlite { path } => path.clone().map(Place::File),
    }
}

/// The node types of this program.
pub(crate) fn node_types(commands: CommandFactory) -> Registry {
    let runtimes = DshFactory::new(commands.host());
    Registry::default().with(commands).with(runtimes)
}

/// Whatever can be known before anything is made: programs, the node, the length of the prompt.
pub(crate) fn check(manifest: &Manifest, node: &NodeName, prompt: &str) -> Result<(), Failure> {
    let known = Delegator::detached();
    for node in
        node_types(CommandFactory::new(std::env::current_exe()?, None, None)).build(manifest, &known)?
    {
        known.add(node);
    }
    let asked = known.node(node);
    // Nodes hold what knows them.
    known.clear();
    let in_manifest =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", manifest.path().display()));
    let (bytes, max) = (prompt.len(), manifest.limits().max_prompt_bytes);
    if bytes as u64 > max {
        return Err(in_manifest(&PromptError::TooLong { bytes, max }));
    }
    let asked = asked.map_err(|unknown| in_manifest(&unknown))?;
    asked.takes(&prompt.into()).map_err(|refused| {
        match manifest.agents().iter().find(|agent| agent.name == refused.node) {
            Some(agent) => {
                let place = agent.settings.place_of("prompt");
                agent.settings.error(vec![Problem::at(place, refused.to_string())]).into()
            }
            None => in_manifest(&refused),
        }
    })
}

/// The pool, and what kills all its programs at once.
pub(crate) async fn open(
    manifest: &Manifest,
    place: &Place,
    again: Option<&Again>,
) -> Result<(Pool, CancellationToken), Failure> {
    let program = std::env::current_exe()?;
    let guard = GuardProgram::new(&program).arg(GUARD);
    let commands = CommandFactory::new(program, Some(guard), place.file().map(Path::to_owned));
    commands.prepare().map_err(|error| {
        Failure::new(format!(
            "no private directory for the agents' socket: {}\nset TMPDIR to a directory you can write to",
            reason(&error)
        ))
    })?;
    let kill_switch = commands.kill_switch();
    let registry = node_types(commands);
    let store = match again {
        Some(again) => Arc::clone(&again.store),
        None => place.open().await?,
    };
    let opened = Pool::open(manifest, &registry, store, ManagerOptions::default()).await;
    let pool = opened.map_err(|error| match error {
        offspring_pool::OpenError::Manifest(error) => error.into(),
        other => Failure::new(other),
    })?;
    store::end_leftovers(pool.recovered().clone()).await;
    Ok((pool, kill_switch))
}

/// Waits for the run. The first signal cancels it, leaves first (rule L14).
async fn finished(
    pool: &Pool,
    root: &SessionId,
    mut result: JoinHandle<RootResult>,
    signals: &Watched,
    say: impl Fn(&'static str) -> JoinHandle<()>,
) -> Result<RootResult, Failure> {
    tokio::select! {
        done = &mut result => return done.map_err(Failure::new),
        _ = signals.first() => {}
    }
    let said = say("cancelling; once more to force");
    if let Err(refused) = pool.manager().request_cancel(root).await {
        tracing::warn!(%refused, "the run was not cancelled");
    }
    let done = result.await.map_err(Failure::new);
    // Said by now, unless nobody reads.
    let _ = tokio::time::timeout(SAYING, said).await;
    done
}

/// Prints every envelope of the tree; gives the number of the last one.
async fn print_lines(manager: SessionManager, root: SessionId) -> io::Result<u64> {
    let mut follow = manager.follow(&root, 1);
    let mut listening = true;
    loop {
        match follow.next().await {
            Ok(Some(envelope)) if listening => match out_json(&*envelope) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => listening = false,
                written => written?,
            },
            Ok(Some(_)) => {}
            Ok(None) => return Ok(follow.cursor()),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// The last line of `--json`: shaped like an envelope of the root, with the number of the last one before
/// it, because it is no line of the log.
#[derive(Serialize)]
struct AnswerLine<'a> {
    seq: u64,
    at: Timestamp,
    session: &'a SessionId,
    root: &'a SessionId,
    path: &'a [SessionId],
    depth: u32,
    agent: &'a NodeName,
    event: AnswerEvent<'a>,
}

#[derive(Serialize)]
struct AnswerEvent<'a> {
    kind: &'static str,
    data: AnswerData<'a>,
}

#[derive(Serialize)]
struct AnswerData<'a> {
    outcome: Outcome,
    text: &'a str,
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failed: Option<&'a FirstFailed>,
}

impl<'a> AnswerLine<'a> {
    fn new(
        root: &'a SessionInfo,
        seq: u64,
        result: &'a RootResult,
        first_failed: Option<&'a FirstFailed>,
    ) -> Self {
        let RootResult { outcome, answer, error } = result;
        let data = AnswerData { outcome: *outcome, text: answer, error: error.as_deref(), first_failed };
        Self {
            seq,
            at: ids::now(),
            session: &root.id,
            root: &root.root,
            path: &root.path,
            depth: root.depth,
            agent: &root.agent_name,
            event: AnswerEvent { kind: "answer", data },
        }
    }
}

/// The answer, ended with a line's end.
fn print_answer(text: &str) -> io::Result<()> {
    out(&for_stdout(text))?;
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { out("\n") }
}
