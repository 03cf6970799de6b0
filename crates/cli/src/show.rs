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
    text::{finish, finish_json, finish_painted, instant, plain, plain_lines, tell},
};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring show latest\n\n\
    The first line says how the session stands, the block below it what its row holds, the rest what was said. Marks in \
    front of a line: `> ` what it was asked, `2> ` a line it wrote to stderr, `+ ` a child it started (node, how it was \
    delegated to, id, what for), `~ ` a tool it called or the call that failed, `✗ ` what went wrong, `⊘ ` it was \
    cancelled, `? ` a permission it asked for, `* ` a note or an event of a later version; no mark: its answer. \
    `(late)`: it came after the end of the run.")]
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
    if args.json {
        let lines = transcript(&manager, &record).await?;
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
    let mut words = Words { whole: whole_messages(&manager, &record).await?, open: false };
    let mut text = header(&record, &runs);
    text.push_str("\n");
    // Page by page: a transcript may be long.
    let mut code = finish_painted(&text)?;
    let mut pages = Pages::of(&record);
    while let Some(page) = pages.next(&manager).await? {
        code = finish(&words.of(&page))?;
    }
    finish(words.end())?;
    hint.iter().for_each(|hint| tell(hint));
    Ok(code)
}

/// The log of one session, a page at a time.
struct Pages {
    query: EventQuery,
}

impl Pages {
    fn of(record: &SessionRecord) -> Self {
        let (root, session) = (record.data.root_id.clone(), Some(record.data.id.clone()));
        Self { query: EventQuery { root, session, after: 0, limit: PAGE } }
    }

    async fn next(&mut self, manager: &SessionManager) -> Result<Option<Vec<LogRow>>, Failure> {
        let page = manager.events(self.query.clone()).await?;
        // A page ends early when its lines are long.
        let Some(last) = page.last() else { return Ok(None) };
        self.query.after = last.seq;
        Ok(Some(page))
    }
}

async fn transcript(manager: &SessionManager, record: &SessionRecord) -> Result<Vec<LogRow>, Failure> {
    let mut lines: Vec<LogRow> = Vec::new();
    let mut pages = Pages::of(record);
    while let Some(page) = pages.next(manager).await? {
        lines.extend(page);
    }
    Ok(lines)
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
    row("model", data.model.as_deref());
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

/// The runs whose answer stands in the log as one message.
async fn whole_messages(manager: &SessionManager, record: &SessionRecord) -> Result<HashSet<RunId>, Failure> {
    let mut whole = HashSet::new();
    let mut pages = Pages::of(record);
    while let Some(page) = pages.next(manager).await? {
        for line in page.into_iter().filter(|line| line.event.kind() == "message_complete") {
            if let (Ok(Event::MessageComplete(message)), Some(run)) = (line.event.parse(), line.run)
                && !message.text.is_empty()
            {
                whole.insert(run);
            }
        }
    }
    Ok(whole)
}

/// The transcript for people: whole messages where there are, pieces where a run ended without one or where a message
/// does not repeat them.
struct Words {
    whole: HashSet<RunId>,
    /// Pieces were the last that was said, and they did not end a line.
    open: bool,
}

impl Words {
    fn of(&mut self, lines: &[LogRow]) -> String {
        let mut text = String::new();
        for line in lines {
            let late = if line.late { " (late)" } else { "" };
            let event = line.event.parse();
            if let Ok(Event::TextDelta(delta)) = &event {
                if line.run.as_ref().is_some_and(|run| self.whole.contains(run)) || delta.text.is_empty() {
                    continue;
                }
                text.push_str(&plain_lines(&delta.text));
                self.open = !delta.text.ends_with('\n');
                continue;
            }
            text.push_str(self.end());
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
        text
    }

    /// Ends the line that pieces left open.
    fn end(&mut self) -> &'static str {
        if std::mem::take(&mut self.open) { "\n" } else { "" }
    }
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
