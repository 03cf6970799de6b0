//! `offspring replay`: a recorded wire, through the same routing as a live one.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use offspring_client::{
    ChildReport, ChildRun, HarnessClient, Limits, Notification, SessionId, TreeReport,
    dsh::{self, PromptParams, notice},
};
use offspring_protocol::rpc::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;

use crate::{
    failure::{Failure, reason},
    text::{counted, finish, finish_json, plain},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring replay wire.jsonl\n  \
    offspring replay wire.jsonl --session review-1 --json | jq .tree\n\n\
    A trace is what `offspring drive --trace` writes: a line of JSON for each line of the wire, with `dir` (`c2s` to the \
    runtime, `s2c` from it) and `msg`, or `raw` for what is no JSON. Every notification is credited to sessions as it \
    would have been live.")]
pub(crate) struct Replay {
    /// The trace.
    pub(crate) trace: PathBuf,
    /// The root to look at. Default: the one that was prompted first.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// The same as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A line of a trace. Others than these are notes of a recorder.
#[derive(Deserialize)]
struct Line<'a> {
    dir: &'a str,
    #[serde(borrow)]
    msg: Option<&'a RawValue>,
    raw: Option<String>,
}

/// What a trace holds.
#[derive(Default)]
struct Trace {
    /// What the runtime wrote, but for its answers.
    said: Vec<String>,
    prompted: Vec<SessionId>,
    requests: u64,
    answers: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    session: &'a SessionId,
    /// Of the tree.
    notifications: usize,
    /// Of sessions outside of it.
    outside: usize,
    /// Lines that are no messages.
    junk: u64,
    requests: u64,
    answers: u64,
    final_response: Option<String>,
    finish_reason: Option<String>,
    tree: Vec<Session<'a>>,
}

#[derive(Serialize)]
struct Session<'a> {
    session: &'a str,
    parent: Option<&'a str>,
    depth: usize,
    events: usize,
    /// One word for each run; none for the root.
    runs: Vec<String>,
}

pub(crate) async fn replay(args: &Replay) -> Result<ExitCode, Failure> {
    let trace = read(&args.trace)?;
    let root = match &args.session {
        Some(id) => SessionId::new(id).map_err(|bad| Failure::usage(format!("--session: {bad}")))?,
        None => trace.prompted.first().cloned().ok_or_else(|| {
            Failure::usage(format!(
                "{}: no session is prompted in it; name one with --session",
                args.trace.display()
            ))
        })?,
    };
    let Routed { all, tree, junk } = route(&trace, &root).await?;
    let children = TreeReport::of(&tree);
    let sessions = nested(&root, children.children(), &tree);
    let own = |kind: &str| {
        let mut events = tree.iter().rev().filter(|one| one.session_id() == Some(root.as_str()));
        events
            .find(|one| one.event_type() == Some(kind))
            .and_then(|one| one.event_data().map(ToOwned::to_owned))
    };
    let report = Report {
        notifications: tree.len(),
        outside: all.saturating_sub(tree.len()),
        junk,
        requests: trace.requests,
        answers: trace.answers,
        final_response: own(dsh::ASSISTANT_MESSAGE).and_then(|data| notice::assistant_text(&data)),
        finish_reason: own(dsh::TURN_END).and_then(|data| notice::turn_end_kind(&data)),
        tree: sessions,
        session: &root,
    };
    if args.json { finish_json(&report) } else { finish(&picture(&report)) }
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let file = path.display();
    let failed = |error: std::io::Error| Failure::usage(format!("{file}: {}", reason(&error)));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Failure::usage(format!("{file}: this is no file")));
    }
    let text = std::fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let mut trace = Trace::default();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line<'_> = serde_json::from_str(line).map_err(|_| {
            Failure::usage(format!(
                "{file}, line {}: this is no line of a trace: it has to be a JSON object with `dir`, and `msg` or `raw`",
                at + 1
            ))
        })?;
        let said = line.msg.map(RawValue::get).or(line.raw.as_deref()).unwrap_or_default();
        let message = Message::classify(said.as_bytes()).map(|incoming| incoming.message);
        match (line.dir, message) {
            ("c2s", Ok(Message::Request { method, params, .. })) => {
                trace.requests += 1;
                let prompt = params.filter(|_| method == dsh::SESSION_PROMPT);
                let prompt =
                    prompt.and_then(|params| serde_json::from_str::<PromptParams>(params.get()).ok());
                trace.prompted.extend(prompt.map(|prompt| prompt.session_id));
            }
            ("s2c", Ok(Message::Response { .. })) => trace.answers += 1,
            // A line feed in it would make two lines of what was one.
            ("s2c", _) => trace.said.push(said.replace('\n', " ")),
            _ => {}
        }
    }
    Ok(trace)
}

struct Routed {
    /// How many notifications there were.
    all: usize,
    /// Those of the tree.
    tree: Vec<Notification>,
    junk: u64,
}

async fn route(trace: &Trace, root: &SessionId) -> Result<Routed, Failure> {
    let room = usize::MAX / 4;
    let limits = Limits { queue_items: room, queue_bytes: room, frame_bytes: room, ..Limits::default() };
    let (mut runtime, output) = tokio::io::duplex(64 * 1024);
    let client = HarnessClient::builder().limits(limits).connect(output, tokio::io::sink());
    let mut of_tree = client.subscribe(root);
    let mut of_all = client.subscribe_filtered(|_| true);
    let say = async {
        for line in &trace.said {
            runtime.write_all(line.as_bytes()).await?;
            runtime.write_all(b"\n").await?;
        }
        runtime.shutdown().await?;
        drop(runtime);
        std::io::Result::Ok(())
    };
    let hear = async {
        let mut tree = Vec::new();
        while let Some(Ok(one)) = of_tree.next().await {
            tree.push(one);
        }
        let mut all = 0;
        while let Some(Ok(_)) = of_all.next().await {
            all += 1;
        }
        (tree, all)
    };
    let (said, (tree, all)) = tokio::join!(say, hear);
    said?;
    let junk = client.diagnostics().junk.counts().total();
    Ok(Routed { all, tree, junk })
}

/// The root and what is below it, each child under its parent.
fn nested<'a>(root: &'a SessionId, children: &'a [ChildReport], tree: &[Notification]) -> Vec<Session<'a>> {
    let mut events: HashMap<&str, usize> = HashMap::new();
    for one in tree.iter().filter(|one| one.event_type().is_some()) {
        *events.entry(one.session_id().unwrap_or_default()).or_default() += 1;
    }
    let mut below: HashMap<&str, Vec<&ChildReport>> = HashMap::new();
    for child in children {
        below.entry(child.parent.as_str()).or_default().push(child);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root.as_str()]);
    let mut open: Vec<(&str, Option<&ChildReport>, usize)> = vec![(root.as_str(), None, 0)];
    while let Some((id, child, depth)) = open.pop() {
        found.push(Session {
            session: id,
            parent: child.map(|child| child.parent.as_str()),
            depth,
            events: events.get(id).copied().unwrap_or_default(),
            runs: child.map(|child| child.runs.iter().map(word).collect()).unwrap_or_default(),
        });
        // T7: a session stands once, also on a cycle.
        let next = below.get(id).into_iter().flatten().rev();
        open.extend(
            next.filter(|child| seen.insert(child.session.as_str()))
                .map(|child| (child.session.as_str(), Some(*child), depth + 1)),
        );
    }
    found
}

fn word(run: &ChildRun) -> String {
    match run {
        // What it says of its status counts, whatever it stopped for.
        ChildRun::Finished(_) if !run.is_ok() => "error".to_owned(),
        ChildRun::Finished(finished) => finished.stop_reason.clone().unwrap_or_else(|| "finished".to_owned()),
        ChildRun::Interrupted => "interrupted".to_owned(),
        _ => "open".to_owned(),
    }
}

fn picture(report: &Report<'_>) -> String {
    let mut text = String::new();
    for session in &report.tree {
        let runs = if session.depth == 0 {
            report.finish_reason.clone().unwrap_or_default()
        } else {
            session.runs.join(", ")
        };
        let _ = writeln!(
            text,
            "{}{}  {}  {}",
            "  ".repeat(session.depth),
            plain(session.session),
            counted(session.events, "event", "events"),
            plain(&runs)
        );
    }
    let _ = writeln!(
        text,
        "{} of the tree, {} of others, {} of junk",
        counted(report.notifications, "notification", "notifications"),
        report.outside,
        counted(usize::try_from(report.junk).unwrap_or(usize::MAX), "line", "lines"),
    );
    text
}
