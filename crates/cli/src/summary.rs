//! What stands at the end of a run on stderr: the failure that came first, and one line about the whole.

use std::{path::Path, time::Duration};

use offspring_delegation::RootResult;
use offspring_protocol::{Event, Outcome, SessionId};
use offspring_sessions::{SessionManager, SessionRecord, StoreError, store::EventQuery};
use serde::Serialize;

use crate::{
    look, rerun,
    store::Place,
    text::{counted, duration, plain, shell_word, tell},
    variables,
};

/// Log lines read at once.
const PAGE: usize = 1_024;
/// A line of the block has at most so many characters.
const LONGEST: usize = 400;

/// The session of a tree that failed first, in the order of ends.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FirstFailed {
    pub(crate) session: SessionId,
    pub(crate) node: String,
    /// What went wrong: for a program its exit status or signal and the last line it wrote to stderr.
    pub(crate) error: String,
    /// That line, where the error does not hold it.
    #[serde(skip)]
    said: Option<String>,
}

impl FirstFailed {
    /// Looks for it among the sessions of a tree, parents first.
    pub(crate) async fn find(manager: &SessionManager, records: &[SessionRecord]) -> Option<Self> {
        let failed = records.iter().filter_map(|record| {
            let run = record.last_run.as_ref()?;
            let outcome = run.state.outcome()?;
            matches!(outcome, Outcome::Failed | Outcome::Interrupted).then_some((record, run))
        });
        // Of those that ended in one millisecond the deepest: what is above it failed because of it.
        let (record, run) =
            failed.min_by_key(|(record, run)| (run.ended_at, std::cmp::Reverse(record.data.depth)))?;
        let error = run.error.clone().unwrap_or_else(|| run.state.as_str().to_owned());
        // A summary without that line is better than none.
        let said = last_line(manager, record).await.unwrap_or_default();
        Some(Self {
            session: record.data.id.clone(),
            node: record.data.agent_name.to_string(),
            said: said.filter(|said| !error.contains(said.as_str())),
            error,
        })
    }

    /// `broken exited with status 3: no paper`.
    fn what(&self) -> String {
        let Self { node, error, .. } = self;
        let names_itself = error.strip_prefix(node.as_str()).is_some_and(|rest| rest.starts_with(' '));
        if names_itself { error.clone() } else { format!("{node}: {error}") }
    }
}

/// The last line a session's program wrote to stderr.
async fn last_line(manager: &SessionManager, record: &SessionRecord) -> Result<Option<String>, StoreError> {
    let (mut after, mut said) = (0, None);
    loop {
        let (root, session) = (record.data.root_id.clone(), Some(record.data.id.clone()));
        let page = manager.events(EventQuery { root, session, after, limit: PAGE }).await?;
        let full = page.len() == PAGE;
        for line in page {
            after = line.seq;
            if line.event.kind() == "custom"
                && let Ok(Event::Custom(custom)) = line.event.parse()
                && custom.name == "stderr_line"
            {
                said = serde_json::from_str::<String>(custom.data.get()).ok().or(said);
            }
        }
        if !full {
            return Ok(said);
        }
    }
}

/// How to call this program on a store: by its name where it is on PATH.
pub(crate) fn program_on(place: &Place) -> String {
    match place.file() {
        Some(file) if Place::choose(None, None).ok().as_ref() != Some(place) => {
            format!("{} --db {}", program(), shell_word(&file.to_string_lossy()))
        }
        // The password, if there is one, is where it was.
        None if *place != Place::Memory && Place::choose(None, None).ok().as_ref() != Some(place) => {
            format!("{} --db {}", program(), shell_word(&place.said()))
        }
        _ => program(),
    }
}

/// How to call this program.
pub(crate) fn program() -> String {
    let ours = std::env::current_exe().ok();
    let on_path = std::env::var_os(variables::PATH).and_then(|path| {
        std::env::split_paths(&path).map(|dir| dir.join("offspring")).find(|found| found.is_file())
    });
    match (on_path.and_then(|found| found.canonicalize().ok()), ours) {
        (Some(found), Some(ours)) if found == ours => "offspring".to_owned(),
        (_, Some(ours)) => {
            let here = std::env::current_dir().ok();
            // With its `./`: a shell looks for a bare name on PATH only.
            let short =
                here.and_then(|here| ours.strip_prefix(here).map(|short| Path::new(".").join(short)).ok());
            shell_word(&short.unwrap_or(ours).to_string_lossy()).into_owned()
        }
        (_, None) => "offspring".to_owned(),
    }
}

/// The block at the end.
pub(crate) struct Summary {
    outcome: Outcome,
    error: Option<String>,
    root: SessionId,
    sessions: usize,
    depth: u32,
    failures: usize,
    cancelled: usize,
    /// How many results were taken, and the tree they were taken from.
    taken: Option<(usize, SessionId)>,
    wall: Duration,
    stored: String,
    first_failed: Option<FirstFailed>,
    /// What begins every command that looks at it; `None` when nothing is kept.
    program: Option<String>,
}

impl Summary {
    pub(crate) fn new(
        records: &[SessionRecord],
        root: &SessionId,
        result: &RootResult,
        first_failed: Option<FirstFailed>,
        (place, stored): (&Place, String),
    ) -> Self {
        let count = |outcomes: &[Outcome]| {
            let ends = records.iter().filter_map(|record| record.run_state()?.outcome());
            ends.filter(|outcome| outcomes.contains(outcome)).count()
        };
        Self {
            outcome: result.outcome,
            error: result.error.clone(),
            root: root.clone(),
            sessions: records.len(),
            depth: records.iter().map(|record| record.data.depth).max().unwrap_or_default(),
            failures: count(&[Outcome::Failed, Outcome::Interrupted]),
            cancelled: count(&[Outcome::Cancelled]),
            taken: records
                .first()
                .and_then(|record| record.rerun_of.clone())
                .map(|old| (records.iter().filter(|record| look::taken_from(record).is_some()).count(), old)),
            wall: records.first().and_then(look::wall).unwrap_or_default(),
            stored,
            first_failed,
            program: (*place != Place::Memory).then(|| program_on(place)),
        }
    }

    /// Somebody took the file away: what was written is in no file that has a name.
    pub(crate) fn is_lost(&mut self) {
        self.stored.push_str(", which was removed or replaced meanwhile: nothing of this run is kept");
        self.program = None;
    }

    pub(crate) fn print(&self) {
        // In one piece, so that nothing stands between its lines.
        tell(&self.lines().join("\n"));
    }

    /// At most six lines, the one about the whole last.
    fn lines(&self) -> Vec<String> {
        let outcome = self.outcome.as_str();
        let mut lines = Vec::new();
        let root_failed_first = self.first_failed.as_ref().is_some_and(|first| first.session == self.root);
        let why = self.error.as_deref().filter(|error| *error != outcome);
        if let (Some(error), false, false) = (why, self.outcome == Outcome::Completed, root_failed_first) {
            lines.push(line(&format!("{outcome}: {error}")));
        }
        if let Some(first) = &self.first_failed {
            let what = if root_failed_first { outcome } else { "first failed" };
            lines.push(line(&format!("{what}: {}", first.what())));
            if let Some(said) = &first.said {
                lines.push(line(&format!("  its last line on stderr: {said}")));
            }
            if let Some(program) = &self.program {
                lines.push(format!("  what it said: {program} show {}", first.session));
            }
        }
        // What a completed run cancelled it meant to cancel.
        let again = self.outcome != Outcome::Completed || self.failures > 0;
        if let (Some(program), true) = (&self.program, again) {
            let indent = if self.first_failed.is_some() { "  " } else { "" };
            lines.push(format!("{indent}{}", rerun::command(program, &self.root, self.outcome)));
        }
        let Self { depth, failures, stored, .. } = self;
        let wall = duration(self.wall);
        let sessions = counted(self.sessions, "session", "sessions");
        let cancelled =
            if self.cancelled == 0 { String::new() } else { format!(", {} cancelled", self.cancelled) };
        let taken = match &self.taken {
            Some((taken @ 1.., old)) => format!(", {taken} taken from {old}"),
            _ => String::new(),
        };
        let look = self
            .program
            .as_ref()
            .map_or(String::new(), |program| format!("; look at it with: {program} tree {}", self.root));
        lines.push(format!(
            "{outcome}: {sessions}, depth {depth}, {failures} failed{cancelled}{taken}, {wall}, stored in {}{look}",
            plain(stored)
        ));
        lines
    }
}

/// The first line of a text, harmless (W11) and not too long.
fn line(text: &str) -> String {
    let first = plain(text.lines().next().unwrap_or_default()).into_owned();
    match first.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &first[..cut]),
        None => first,
    }
}
