//! `offspring show`: a session's row and transcript.

use std::{collections::HashSet, path::PathBuf, process::ExitCode};

use clap::Args;
use offspring_protocol::{Event, RunId, RunRecord, SessionData, SessionId};
use offspring_sessions::{
    SessionManager, SessionRecord,
    store::{EventQuery, LogRow},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    find, look,
    paint::Painted,
    rerun, store,
    text::{finish_json, finish_painted, instant, plain, plain_lines, tell},
};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring show latest")]
pub(crate) struct Show {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// One JSON object with row, runs and transcript.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Log lines read at once.
const PAGE: usize = 1_024;

#[derive(Serialize)]
struct ShowJson<'a> {
    session: &'a SessionData,
    state: &'static str,
    /// The root that this root repeats.
    rerun_of: Option<&'a SessionId>,
    runs: &'a [RunRecord],
    transcript: Vec<LineJson<'a>>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    seq: u64,
    at: offspring_protocol::Timestamp,
    run: Option<&'a RunId>,
    late: bool,
    event: &'a offspring_protocol::RawEvent,
}

impl<'a> From<&'a LogRow> for LineJson<'a> {
    fn from(line: &'a LogRow) -> Self {
        Self { seq: line.seq, at: line.at, run: line.run.as_ref(), late: line.late, event: &line.event }
    }
}

pub(crate) async fn show(db: Option<PathBuf>, args: &Show) -> Result<ExitCode, Failure> {
    let (manager, place) = store::manager(db).await?;
    let record = find::session(&manager, &args.session).await?;
    let runs = manager.store().runs(record.data.id.clone()).await?;
    let lines = transcript(&manager, &record).await?;
    if args.json {
        let transcript = lines.iter().map(LineJson::from).collect();
        let shown = ShowJson {
            session: &record.data,
            state: record.state().as_str(),
            rerun_of: record.rerun_of.as_ref(),
            runs: &runs,
            transcript,
        };
        return finish_json(&shown);
    }
    let hint = rerun::hint(&manager, &place, std::slice::from_ref(&record)).await?;
    let mut text = header(&record, &runs);
    text.push_str(&format!("\n{}", words(&lines)));
    let code = finish_painted(&text)?;
    hint.iter().for_each(|hint| tell(hint));
    Ok(code)
}

async fn transcript(manager: &SessionManager, record: &SessionRecord) -> Result<Vec<LogRow>, Failure> {
    let mut lines: Vec<LogRow> = Vec::new();
    loop {
        let after = lines.last().map_or(0, |line| line.seq);
        let (root, session) = (record.data.root_id.clone(), Some(record.data.id.clone()));
        let page = manager.events(EventQuery { root, session, after, limit: PAGE }).await?;
        // A page ends early when its lines are long.
        if page.is_empty() {
            return Ok(lines);
        }
        lines.extend(page);
    }
}

fn header(record: &SessionRecord, runs: &[RunRecord]) -> Painted {
    let data = &record.data;
    let mut text = look::line(record);
    text.push_str("\n");
    let mut row = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            text.push_str(&format!("  {name:<9} {}\n", plain(value)));
        }
    };
    row("session", Some(data.id.as_str()));
    row("parent", data.parent_id.as_ref().map(|id| id.as_str()));
    row("root", Some(data.root_id.as_str()));
    row("rerun of", record.rerun_of.as_ref().map(SessionId::as_str));
    row("taken", look::taken_from(record).map(|from| format!("from {from}")).as_deref());
    row("depth", Some(&data.depth.to_string()));
    row("type", Some(data.agent_type.as_str()));
    row("delegated", data.source_type.as_ref().map(|source| source.as_str()));
    row("task", data.task.as_ref().map(|task| task.as_str()));
    row("title", data.title.as_deref());
    row("directory", data.cwd.as_deref());
    row("project", data.project_id.as_ref().map(|id| id.as_str()));
    row("pool", data.pool_id.as_ref().map(|id| id.as_str()));
    row("created", Some(&instant(data.created_at)));
    row("runs", Some(&runs.len().to_string()));
    text
}

/// The transcript for people: whole messages where there are, pieces where a run ended without one or where a message
/// does not repeat them.
fn words(lines: &[LogRow]) -> String {
    let is_whole = |line: &&LogRow| match line.event.kind() {
        "message_complete" => {
            matches!(line.event.parse(), Ok(Event::MessageComplete(message)) if !message.text.is_empty())
        }
        _ => false,
    };
    let whole: HashSet<&RunId> = lines.iter().filter(is_whole).filter_map(|line| line.run.as_ref()).collect();
    let mut text = String::new();
    let mut open = false;
    for line in lines {
        let late = if line.late { " (late)" } else { "" };
        let event = line.event.parse();
        if let Ok(Event::TextDelta(delta)) = &event {
            if line.run.as_ref().is_some_and(|run| whole.contains(run)) {
                continue;
            }
            text.push_str(&plain_lines(&delta.text));
            open = true;
            continue;
        }
        if std::mem::take(&mut open) && !text.ends_with('\n') {
            text.push('\n');
        }
        let said = match &event {
            Ok(event) => said(event),
            Err(error) => Some(format!("? {error}")),
        };
        if let Some(said) = said {
            text.push_str(&plain_lines(&said));
            text.push_str(late);
            text.push('\n');
        }
    }
    if open && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// One event in words; `None` for what a reader of a transcript does not miss.
pub(crate) fn said(event: &Event) -> Option<String> {
    Some(match event {
        Event::RunStarted(run) => format!("> {}", run.prompt.trim_end().replace('\n', "\n> ")),
        Event::SpawnSessionStart(spawn) => format!(
            "+ {} ({}) {} {}",
            spawn.source_name, spawn.source_type, spawn.child_session_id, spawn.description
        )
        .trim_end()
        .to_owned(),
        Event::ToolCallStart(call) => {
            let input = call.input.as_ref().map_or("", |input| input.get());
            format!("~ {} {input}", call.tool_name)
        }
        Event::ToolCallComplete(call) if call.is_error => {
            format!("~ {} failed: {}", call.tool_name, call.output)
        }
        Event::MessageComplete(message) if message.streamed_bytes > 0 => return None,
        Event::MessageComplete(message) => message.text.trim_end_matches('\n').to_owned(),
        Event::RunError(error) => format!("✗ {}", error.message),
        Event::StreamComplete(end) if end.cancelled => "⊘ cancelled".to_owned(),
        Event::Custom(custom) if custom.name == "stderr_line" => {
            format!("2> {}", serde_json::from_str::<String>(custom.data.get()).unwrap_or_default())
        }
        Event::Custom(custom) => format!("* {} {}", custom.name, custom.data.get()),
        Event::PermissionRequested(request) => format!("? {}", request.title),
        Event::Other(raw) => format!("* {} {}", raw.kind(), raw.data().get()),
        _ => return None,
    })
}
