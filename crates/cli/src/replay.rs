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
use offspring_protocol::rpc::{Id, Message};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;

use crate::{
    failure::{Failure, reason},
    text::{counted, finish, finish_json, plain, tell},
};

/// So many lines of junk are shown, the last of them, and so many bytes of each.
const JUNK_LINES: usize = 10;
const JUNK_BYTES: usize = 80;
/// Sessions that are deeper are told by a number.
const INDENTED_AT_MOST: usize = 40;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring replay wire.jsonl\n  \
    offspring replay wire.jsonl --session review-1 --json | jq .tree\n\n\
    A trace is what `offspring drive --trace` writes: a line of JSON for each line of the wire, with `dir` (`c2s` to the \
    runtime, `s2c` from it) and `msg`, or `raw` for what is no JSON. Every notification is credited to sessions as it \
    would have been live. A last line that was cut off is said and left out.\n\n\
    Exit codes: 0 it was replayed, also without a last line that was cut off, 1 it did not work, 2 wrong use, or what is given \
    is no trace.")]
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
    /// What the runtime wrote, but for its answers, and in which lines of the file.
    said: Vec<(usize, String)>,
    /// Prompts that were not refused, by the ids of their requests.
    prompted: Vec<(Id, SessionId)>,
    requests: u64,
    answers: u64,
    /// The last line of the file, when it was cut off.
    cut: Option<usize>,
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
    /// The last of them.
    junk_lines: Vec<JunkLine>,
    /// The last line of the file, when it was cut off and left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_line: Option<usize>,
    requests: u64,
    answers: u64,
    final_response: Option<String>,
    finish_reason: Option<String>,
    tree: Vec<Session<'a>>,
}

/// A line that is no message.
#[derive(Serialize)]
struct JunkLine {
    /// Of the file.
    line: usize,
    why: String,
    /// Its beginning.
    excerpt: String,
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
        None => trace.prompted.first().map(|(_, session)| session.clone()).ok_or_else(|| {
            Failure::usage(format!(
                "{}: no session is prompted in it, or each prompt was refused; name one with --session",
                args.trace.display()
            ))
        })?,
    };
    if let Some(line) = trace.cut {
        tell(&format!(
            "warning: {}: line {line}, the last, was cut off and is left out",
            args.trace.display()
        ));
    }
    let Routed { all, tree, junk, junk_lines } = route(&trace, &root).await?;
    if let (Some(id), true) = (&args.session, tree.is_empty()) {
        let mut there: Vec<&str> = trace.prompted.iter().map(|(_, session)| session.as_str()).collect();
        there.dedup();
        let there = if there.is_empty() { "no session".to_owned() } else { there.join(", ") };
        return Err(Failure::usage(format!(
            "{}: nothing in it is of the session {}; what is prompted in it: {}",
            args.trace.display(),
            plain(id),
            plain(&there)
        )));
    }
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
        junk_lines,
        cut_line: trace.cut,
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
    let lines = text.lines().count();
    let is_ended = text.ends_with('\n');
    let mut trace = Trace::default();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = at + 1;
        let line: Line<'_> = match serde_json::from_str(line) {
            Ok(line) => line,
            // Whoever wrote it was ended in the middle of it.
            Err(error) if error.is_eof() && number == lines && !is_ended && number > 1 => {
                trace.cut = Some(number);
                break;
            }
            Err(_) => {
                return Err(Failure::usage(format!(
                    "{file}, line {number}: this is no line of a trace: it has to be a JSON object with `dir`, and `msg` or `raw`"
                )));
            }
        };
        let said = line.msg.map(RawValue::get).or(line.raw.as_deref()).unwrap_or_default();
        let message = Message::classify(said.as_bytes()).map(|incoming| incoming.message);
        match (line.dir, message) {
            ("c2s", Ok(Message::Request { id, method, params })) => {
                trace.requests += 1;
                let prompt = params.filter(|_| method == dsh::SESSION_PROMPT);
                let prompt =
                    prompt.and_then(|params| serde_json::from_str::<PromptParams>(params.get()).ok());
                trace.prompted.extend(prompt.map(|prompt| (id, prompt.session_id)));
            }
            ("s2c", Ok(Message::Response { id, outcome })) => {
                trace.answers += 1;
                if outcome.is_err() {
                    trace.prompted.retain(|(prompt, _)| *prompt != id);
                }
            }
            // A line feed in it would make two lines of what was one.
            ("s2c", _) => trace.said.push((number, said.replace('\n', " "))),
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
    junk_lines: Vec<JunkLine>,
}

async fn route(trace: &Trace, root: &SessionId) -> Result<Routed, Failure> {
    let room = usize::MAX / 4;
    let mut limits = Limits { queue_items: room, queue_bytes: room, frame_bytes: room, ..Limits::default() };
    (limits.diagnostics.lines, limits.diagnostics.line_bytes) = (JUNK_LINES, JUNK_BYTES);
    let (mut runtime, output) = tokio::io::duplex(64 * 1024);
    let client = HarnessClient::builder().limits(limits).connect(output, tokio::io::sink());
    let mut of_tree = client.subscribe(root);
    let mut of_all = client.subscribe_filtered(|_| true);
    let say = async {
        for (_, line) in &trace.said {
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
    let junk = client.diagnostics().junk;
    let kept = junk.last_lines().filter_map(|kept| {
        let said = usize::try_from(kept.line).ok()?.checked_sub(1)?;
        let excerpt = String::from_utf8_lossy(&kept.head);
        Some(JunkLine {
            line: trace.said.get(said)?.0,
            why: kept.why.to_string(),
            excerpt: if kept.cut { format!("{excerpt}…") } else { excerpt.into_owned() },
        })
    });
    Ok(Routed { all, tree, junk: junk.counts().total(), junk_lines: kept.collect() })
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

/// A chain of ten thousand is shown in a hundred thousand columns by nobody.
fn indent(depth: usize) -> String {
    let spaces = "  ".repeat(depth.min(INDENTED_AT_MOST));
    if depth > INDENTED_AT_MOST { format!("{spaces}[{depth}] ") } else { spaces }
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
            indent(session.depth),
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
    let more = usize::try_from(report.junk).unwrap_or(usize::MAX).saturating_sub(report.junk_lines.len());
    if more > 0 {
        let _ = writeln!(text, "  and {} before these:", counted(more, "line", "lines"));
    }
    for JunkLine { line, why, excerpt } in &report.junk_lines {
        let _ = writeln!(text, "  line {line}: {}: {}", plain(why), plain(excerpt));
    }
    text
}
