//! What the live tree knows of each session, and which rows of it there is room for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use offspring_delegation::recall::TAKEN_FROM;
use offspring_protocol::{Envelope, Event, Outcome, RunState, SessionId, SessionInfo, Timestamp};
use offspring_sessions::{SessionRecord, Silence, ids};

use crate::{
    cells::{fit, tail, width},
    charset::glyphs,
    look::{branches, wall},
    paint::{Painted, Style},
    silence,
    text::{duration, plain, sign, word},
};

/// Bytes of a line of output that are looked at: no window is wider.
const MAX_LAST: usize = 2_000;
/// Columns that a name keeps, however narrow the window is.
const MIN_NAME: usize = 8;
/// Columns below which it is not worth to begin with the last line of output.
const MIN_LAST: usize = 6;

/// The sessions of a run.
#[derive(Default)]
pub(super) struct Tree {
    rows: Vec<Row>,
    places: HashMap<SessionId, usize>,
    /// Rows by their places, as they are drawn, with their branches; empty when that has to be found out again.
    drawn: Vec<(String, usize)>,
}

struct Row {
    info: Arc<SessionInfo>,
    state: RunState,
    /// When its last run was opened: as in every other place, waiting for its turn counts.
    since: Timestamp,
    took: Option<Duration>,
    last: String,
    /// Whether it only says again what another session said: then `last` tells which.
    is_taken: bool,
    /// That it says nothing, in words, once that is worth one.
    silent: Option<String>,
}

impl Tree {
    /// A session that was not there before `since`.
    pub(super) fn add(&mut self, info: &Arc<SessionInfo>, since: Timestamp) -> usize {
        if let Some(place) = self.places.get(&info.id) {
            return *place;
        }
        let place = self.rows.len();
        self.drawn.clear();
        self.places.insert(info.id.clone(), place);
        self.rows.push(Row {
            info: Arc::clone(info),
            state: RunState::Pending,
            since,
            took: None,
            last: String::new(),
            is_taken: false,
            silent: None,
        });
        place
    }

    /// Looks who says nothing; gives the lines of those of whom that was not known.
    pub(super) fn listen(&mut self, silence: impl Fn(&SessionId) -> Option<Silence>) -> Vec<Painted> {
        let mut news = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.state == RunState::Running) {
            let silent = silence(&row.info.id).as_ref().and_then(silence::words);
            let new = row.silent.is_none() && silent.is_some();
            row.silent = silent;
            if new {
                news.push(row.report());
            }
        }
        news
    }

    /// What a session's state is, whatever was heard of it; gives the line when that is news.
    pub(super) fn correct(
        &mut self,
        info: &Arc<SessionInfo>,
        state: RunState,
        opened: Timestamp,
        took: Option<Duration>,
    ) -> Option<Painted> {
        let place = self.add(info, opened);
        let row = &mut self.rows[place];
        row.since = opened;
        if row.state == state {
            return None;
        }
        row.state = state;
        row.took = took;
        Some(row.report())
    }

    /// A session that stands in another place from now on, with its row.
    pub(super) fn place(&mut self, info: &Arc<SessionInfo>, since: Timestamp) {
        let place = self.add(info, since);
        if self.rows[place].info != *info {
            self.rows[place].info = Arc::clone(info);
            self.drawn.clear();
        }
    }

    /// The state of a session from now on; a run that begins after another has a time of its own.
    pub(super) fn enter(&mut self, session: &SessionId, state: RunState, at: Timestamp) {
        let Some(place) = self.places.get(session) else { return };
        let row = &mut self.rows[*place];
        match state {
            RunState::Ended(_) => row.took = Some(between(row.since, at)),
            _ if row.took.take().is_some() => row.since = at,
            _ => {}
        }
        row.state = state;
    }

    /// A session of the tree.
    pub(super) fn info(&self, session: &SessionId) -> Option<&Arc<SessionInfo>> {
        self.places.get(session).map(|place| &self.rows[*place].info)
    }

    /// The last line of what a session said.
    pub(super) fn say(&mut self, session: &SessionId, text: &str) {
        if let Some(place) = self.places.get(session) {
            self.rows[*place].say(text);
        }
    }

    /// What is stored of each run: how long it took is the same wherever it is shown.
    pub(super) fn settle(&mut self, records: &[SessionRecord]) {
        for record in records {
            if let (Some(place), Some(took)) = (self.places.get(&record.data.id), wall(record)) {
                self.rows[*place].took = Some(took);
            }
        }
    }

    /// Takes what happened; gives the line for whoever reads lines, when there is one.
    pub(super) fn take(&mut self, envelope: &Envelope) -> Option<Painted> {
        let event = envelope.event.parse().ok()?;
        if let Event::SpawnSessionStart(spawn) = &event {
            let info = SessionInfo {
                id: spawn.child_session_id.clone(),
                root: envelope.session.root.clone(),
                parent: Some(spawn.parent_session_id.clone()),
                path: spawn.path.clone().into(),
                depth: spawn.depth,
                agent_name: spawn.source_name.clone(),
                agent_type: spawn.agent_type.clone(),
                source_type: Some(spawn.source_type.clone()),
            };
            let place = self.add(&Arc::new(info), envelope.at);
            if let Some(from) = spawn.metadata.get(TAKEN_FROM) {
                let row = &mut self.rows[place];
                (row.is_taken, row.last) = (true, harmless(&format!("taken from {from}")));
            }
            return None;
        }
        let place = self.add(&envelope.session, envelope.at);
        let row = &mut self.rows[place];
        if envelope.late {
            return None;
        }
        match event {
            Event::RunStarted(_) => {
                if row.took.take().is_some() {
                    // Another run of the same session.
                    row.since = envelope.at;
                }
                row.state = RunState::Running;
                Some(row.report())
            }
            Event::TextDelta(delta) => row.say(&delta.text),
            Event::Custom(custom) if custom.name == "stderr_line" => {
                let line: String = serde_json::from_str(custom.data.get()).unwrap_or_default();
                row.say(&line)
            }
            Event::RunError(error) => {
                row.last = harmless(error.message.lines().next().unwrap_or_default());
                None
            }
            Event::StatusChanged(status) => {
                let outcome: Outcome = status.outcome?;
                row.state = RunState::Ended(outcome);
                row.took = Some(between(row.since, envelope.at));
                Some(row.report())
            }
            _ => None,
        }
    }

    /// At most `height` lines, none wider than `width`: the tree, or of a tree that is too long what is at work and as
    /// much of the rest as there is room for.
    pub(super) fn lines(&mut self, height: usize, width: usize) -> Vec<Painted> {
        if self.drawn.is_empty() {
            let drawn = branches(&self.rows, |row| &row.info.id, |row| row.info.parent.as_ref());
            let place = |row: &Row| self.places.get(&row.info.id).copied().unwrap_or_default();
            self.drawn = drawn.into_iter().map(|(branch, row)| (branch, place(row))).collect();
        }
        let is_folded = self.drawn.len() > height;
        let mut room = Room::new(if is_folded { height.saturating_sub(1) } else { height }, &self.rows);
        let mut folded = Folded::default();
        let mut lines = Vec::new();
        for (branch, place) in &self.drawn {
            let row = &self.rows[*place];
            if room.takes(row.state) {
                lines.push(row.line(branch, width));
            } else {
                folded.count(row.state);
            }
        }
        if is_folded {
            lines.push(folded.line(width));
        }
        lines
    }
}

/// The lines that are left, by what they are for: what is at work comes first, then what went wrong, then what waits,
/// then what is done.
struct Room([usize; 4]);

impl Room {
    fn new(lines: usize, rows: &[Row]) -> Self {
        let mut left = lines;
        let mut room = [0; 4];
        for row in rows {
            room[Self::rank(row.state)] += 1;
        }
        for wanted in &mut room {
            *wanted = (*wanted).min(left);
            left -= *wanted;
        }
        Self(room)
    }

    const fn rank(state: RunState) -> usize {
        match state {
            RunState::Running => 0,
            RunState::Ended(Outcome::Failed | Outcome::Interrupted) => 1,
            RunState::Pending => 2,
            RunState::Ended(Outcome::Completed | Outcome::Cancelled) => 3,
        }
    }

    fn takes(&mut self, state: RunState) -> bool {
        let left = &mut self.0[Self::rank(state)];
        let takes = *left > 0;
        *left = left.saturating_sub(1);
        takes
    }
}

/// What is not shown.
#[derive(Default)]
struct Folded {
    /// Per state, in the order in which they were met.
    counts: Vec<(RunState, usize)>,
}

impl Folded {
    fn count(&mut self, state: RunState) {
        match self.counts.iter_mut().find(|(counted, _)| *counted == state) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((state, 1)),
        }
    }

    fn line(mut self, columns: usize) -> Painted {
        self.counts.sort_by_key(|(state, _)| Room::rank(*state));
        let all: usize = self.counts.iter().map(|(_, count)| count).sum();
        let each: Vec<String> =
            self.counts.iter().map(|(state, count)| format!("{count} {}", word(Some(*state)))).collect();
        let cut = glyphs().cut;
        let text = format!("{cut} and {all} more: {}", each.join(", "));
        let mut line = Painted::default();
        line.paint(Style::Faint, &fit(&text, columns, cut));
        line
    }
}

impl Row {
    /// Its last line of output; nothing to print: a line for each would drown the rest.
    fn say(&mut self, text: &str) -> Option<Painted> {
        if self.is_taken {
            return None;
        }
        if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
            self.last = harmless(line.trim());
        }
        None
    }

    /// The line of its own that a change gets: without branches the depth says where it stands.
    fn report(&self) -> Painted {
        let indent = "  ".repeat(usize::try_from(self.info.depth).unwrap_or_default());
        let mut line = Painted::from(indent);
        line.append(self.line("", usize::MAX));
        line
    }

    /// The session in so many columns. Its state and time are there however long its name is, and the end of its branch
    /// however deep it is.
    fn line(&self, branch: &str, columns: usize) -> Painted {
        let state = Some(self.state);
        let cut = glyphs().cut;
        let mut line = Painted::default();
        let mut left = columns;
        let mut put = |style, text: &str| {
            let text = fit(text, left, cut);
            left -= width(&text).min(left);
            line.paint(style, &text);
            left
        };
        let for_branch = columns / 5 * 2;
        if width(branch) > for_branch {
            put(Style::Faint, cut);
            put(Style::Faint, tail(branch, for_branch.saturating_sub(1)));
        } else {
            put(Style::Faint, branch);
        }
        let left_for_name = put(Style::of(state), sign(state)).saturating_sub(1);
        let took = self.took.unwrap_or_else(|| between(self.since, ids::now()));
        let took =
            if self.state == RunState::Pending { String::new() } else { format!(" {}", duration(took)) };
        let silent = self.silent.as_ref().filter(|_| self.state == RunState::Running);
        let silent = silent.map_or(String::new(), |silent| format!("  {silent}"));
        let after = format!(" {}{took}{silent}", word(state));
        let name = plain(self.info.agent_name.as_str());
        let name = fit(&name, left_for_name.saturating_sub(after.len()).max(MIN_NAME), cut);
        let left = put(Style::Plain, &format!(" {name}{after}"));
        if !self.last.is_empty() && left >= MIN_LAST {
            put(Style::Plain, &format!("  {}", self.last));
        }
        line
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_millis(to.since_ms(from))
}

/// A line of output for a row: its beginning, and nothing that steers the terminal (W11).
fn harmless(line: &str) -> String {
    plain(&line[..line.floor_char_boundary(MAX_LAST)]).into_owned()
}

#[cfg(test)]
mod tests;
