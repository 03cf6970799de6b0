//! How a session looks to people and programs.

use std::time::Duration;

use offspring_delegation::recall::TAKEN_FROM;
use offspring_protocol::{SessionId, Timestamp};
use offspring_sessions::{SessionRecord, ids};
use serde::Serialize;

use crate::{
    charset::glyphs,
    paint::{Painted, Style},
    text::{duration, plain, sign, word},
};

/// A session as JSON, the same in `ls`, `tree` and `show`.
#[derive(Debug, Serialize)]
pub(crate) struct SessionJson<'a> {
    id: &'a SessionId,
    parent_id: Option<&'a SessionId>,
    root_id: &'a SessionId,
    depth: u32,
    agent_name: &'a str,
    agent_type: &'a str,
    source_type: Option<&'a str>,
    /// `idle` or `running`.
    state: &'static str,
    /// How the last run ended.
    outcome: Option<&'static str>,
    /// Where the last run stands: `pending`, `running` or its outcome.
    run_state: Option<&'static str>,
    error: Option<&'a str>,
    title: Option<&'a str>,
    project_id: Option<&'a str>,
    cwd: Option<&'a str>,
    pool_id: Option<&'a str>,
    task: Option<&'a str>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
    duration_ms: Option<u64>,
    /// Bytes of the last run's output that were not kept.
    left_out_bytes: u64,
    /// The root that this root repeats.
    rerun_of: Option<&'a SessionId>,
    /// The session of an older tree whose result this one has.
    taken_from: Option<&'a str>,
}

impl<'a> From<&'a SessionRecord> for SessionJson<'a> {
    fn from(record: &'a SessionRecord) -> Self {
        let (data, run) = (&record.data, record.last_run.as_ref());
        Self {
            id: &data.id,
            parent_id: data.parent_id.as_ref(),
            root_id: &data.root_id,
            depth: data.depth,
            agent_name: data.agent_name.as_str(),
            agent_type: data.agent_type.as_str(),
            source_type: data.source_type.as_ref().map(|source| source.as_str()),
            state: record.state().as_str(),
            outcome: run.and_then(|run| run.state.outcome()).map(|outcome| outcome.as_str()),
            run_state: run.map(|run| run.state.as_str()),
            error: run.and_then(|run| run.error.as_deref()),
            title: data.title.as_deref(),
            project_id: data.project_id.as_ref().map(|id| id.as_str()),
            cwd: data.cwd.as_deref(),
            pool_id: data.pool_id.as_ref().map(|id| id.as_str()),
            task: data.task.as_ref().map(|task| task.as_str()),
            created_at: data.created_at,
            ended_at: run.and_then(|run| run.ended_at),
            duration_ms: wall(record).map(|wall| u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
            left_out_bytes: run.map_or(0, |run| run.left_out_bytes),
            rerun_of: record.rerun_of.as_ref(),
            taken_from: taken_from(record),
        }
    }
}

/// The session of an older tree whose result was taken instead of running.
pub(crate) fn taken_from(record: &SessionRecord) -> Option<&str> {
    record.data.metadata.get(TAKEN_FROM).map(String::as_str)
}

/// How long the last run took, or has taken so far: from when it was opened, so that waiting for its turn counts. The
/// live line, `tree`, `ls` and the summary all say this.
pub(crate) fn wall(record: &SessionRecord) -> Option<Duration> {
    let run = record.last_run.as_ref()?;
    Some(Duration::from_millis(run.ended_at.unwrap_or_else(ids::now).since_ms(run.opened_at)))
}

/// `✓ markers completed 1.2 s`, with the error of a run that went wrong.
pub(crate) fn line(record: &SessionRecord) -> Painted {
    let state = record.run_state();
    let mut line = Painted::default();
    line.paint(Style::of(state), sign(state));
    line.push_str(&format!(" {} {}", plain(record.data.agent_name.as_str()), word(state)));
    if let Some(wall) = wall(record) {
        line.push_str(&format!(" {}", duration(wall)));
    }
    if let Some(from) = taken_from(record) {
        line.push_str(&format!("  taken from {}", plain(from)));
    }
    if let Some(error) = record.last_run.as_ref().and_then(|run| run.error.as_deref()) {
        line.push_str(&format!(": {}", plain(error.lines().next().unwrap_or_default())));
    }
    if let Some(run) = record.last_run.as_ref().filter(|run| run.left_out_bytes > 0) {
        line.push_str(&format!(" ({} bytes of its output left out)", run.left_out_bytes));
    }
    line
}

/// The rows of a tree with its branches drawn, from records in which parents come before children.
pub(crate) fn branches<'a, T>(
    rows: &'a [T],
    id: impl Fn(&'a T) -> &'a SessionId,
    parent: impl Fn(&'a T) -> Option<&'a SessionId>,
) -> Vec<(String, &'a T)> {
    let known: std::collections::HashSet<&SessionId> = rows.iter().map(&id).collect();
    let mut children: std::collections::HashMap<&SessionId, Vec<&'a T>> = std::collections::HashMap::new();
    let mut stack: Vec<(String, String, &'a T)> = Vec::new();
    for row in rows {
        match parent(row).filter(|parent| known.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(row),
            None => stack.push((String::new(), String::new(), row)),
        }
    }
    stack.reverse();
    let glyphs = glyphs();
    let mut drawn = Vec::with_capacity(rows.len());
    while let Some((branch, indent, row)) = stack.pop() {
        drawn.push((branch, row));
        let below = children.remove(id(row)).unwrap_or_default();
        let last = below.len().saturating_sub(1);
        for (index, child) in below.into_iter().enumerate().rev() {
            let (knee, rest) = if index == last { (glyphs.last, "   ") } else { (glyphs.knee, glyphs.bar) };
            stack.push((format!("{indent}{knee}"), format!("{indent}{rest}"), child));
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_drawn_for_any_order_of_siblings() {
        let id = |id: &str| SessionId::new(id).unwrap();
        let rows = [
            (id("r"), None),
            (id("a"), Some(id("r"))),
            (id("b"), Some(id("r"))),
            (id("c"), Some(id("a"))),
            (id("d"), Some(id("a"))),
        ];
        let drawn = branches(&rows, |row| &row.0, |row| row.1.as_ref());
        let lines: Vec<String> = drawn.iter().map(|(branch, row)| format!("{branch}{}", row.0)).collect();
        assert_eq!(lines, ["r", "├─ a", "│  ├─ c", "│  └─ d", "└─ b"]);
    }
}
