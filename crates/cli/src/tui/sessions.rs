//! The tree to walk through: which rows of it are shown, and which one is selected.

use std::collections::HashSet;

use offspring_protocol::{RunState, SessionId};
use offspring_sessions::SessionRecord;

use crate::{
    cells::{fit, tail, width},
    charset::glyphs,
    look::{branches, wall},
    paint::{Painted, Style},
    text::{counted, duration, plain, sign, word},
};

/// The sessions of a tree.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    records: Vec<SessionRecord>,
    /// As drawn, parents before children.
    rows: Vec<Row>,
    folded: HashSet<SessionId>,
    /// The place of the selected one among the rows.
    selected: usize,
    /// The first row that is seen.
    top: usize,
}

#[derive(Debug)]
struct Row {
    branch: String,
    /// Among the records.
    record: usize,
    /// Sessions below it that are not shown.
    hides: usize,
}

impl Sessions {
    /// Takes what is stored now; the same session stays selected.
    pub(super) fn update(&mut self, records: Vec<SessionRecord>) {
        let selected = self.selected().map(|record| record.data.id.clone());
        self.records = records;
        self.arrange(selected.as_ref());
    }

    fn arrange(&mut self, selected: Option<&SessionId>) {
        let drawn =
            branches(&self.records, |record| &record.data.id, |record| record.data.parent_id.as_ref());
        let places: std::collections::HashMap<&SessionId, usize> =
            self.records.iter().enumerate().map(|(place, record)| (&record.data.id, place)).collect();
        let mut rows: Vec<Row> = Vec::with_capacity(drawn.len());
        // Depth of the folded session above, while below it.
        let mut below: Option<u32> = None;
        let mut choose = 0;
        for (branch, record) in drawn {
            if let (Some(depth), Some(last)) = (below, rows.last_mut())
                && record.data.depth > depth
            {
                last.hides += 1;
                if Some(&record.data.id) == selected {
                    // Its nearest ancestor that is seen.
                    choose = rows.len() - 1;
                }
                continue;
            }
            below = self.folded.contains(&record.data.id).then_some(record.data.depth);
            if Some(&record.data.id) == selected {
                choose = rows.len();
            }
            rows.push(Row { branch, record: places[&record.data.id], hides: 0 });
        }
        (self.rows, self.selected) = (rows, choose);
    }

    pub(super) fn selected(&self) -> Option<&SessionRecord> {
        self.rows.get(self.selected).map(|row| &self.records[row.record])
    }

    /// So many rows down, or up when negative.
    pub(super) fn walk(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Hides what is below the selected session, or shows it again.
    pub(super) fn fold(&mut self) {
        let Some(id) = self.selected().map(|record| record.data.id.clone()) else { return };
        if !self.folded.remove(&id) && self.has_children(&id) {
            self.folded.insert(id.clone());
        }
        self.arrange(Some(&id));
    }

    /// Hides what is below the selected session; when nothing is, selects the one above it.
    pub(super) fn leave(&mut self) {
        let Some(record) = self.selected() else { return };
        let (id, parent) = (record.data.id.clone(), record.data.parent_id.clone());
        if self.has_children(&id) && self.folded.insert(id.clone()) {
            self.arrange(Some(&id));
        } else if let Some(parent) = parent
            && let Some(place) = self.rows.iter().position(|row| self.records[row.record].data.id == parent)
        {
            self.selected = place;
        }
    }

    /// Shows what is below the selected session; when it is shown, selects the first of it.
    pub(super) fn enter(&mut self) {
        let Some(id) = self.selected().map(|record| record.data.id.clone()) else { return };
        if self.folded.remove(&id) {
            self.arrange(Some(&id));
        } else if self.has_children(&id) {
            self.walk(1);
        }
    }

    fn has_children(&self, id: &SessionId) -> bool {
        self.records.iter().any(|record| record.data.parent_id.as_ref() == Some(id))
    }

    /// Whether anything is at work or waits.
    pub(super) fn is_open(&self) -> bool {
        self.records.iter().any(|record| record.run_state().is_some_and(RunState::is_open))
    }

    /// The rows of a window of so many, and which of them is selected.
    pub(super) fn visible(&mut self, rows: usize, columns: usize) -> Vec<(Painted, bool)> {
        self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(rows));
        self.top = self.top.min(self.rows.len().saturating_sub(rows));
        let shown = self.rows.iter().enumerate().skip(self.top).take(rows);
        shown.map(|(place, row)| (self.row(row, columns), place == self.selected)).collect()
    }

    fn row(&self, row: &Row, columns: usize) -> Painted {
        let record = &self.records[row.record];
        let (state, cut) = (record.run_state(), glyphs().cut);
        let mut line = Painted::default();
        let for_branch = columns / 5 * 2;
        if width(&row.branch) > for_branch {
            line.paint(Style::Faint, cut);
            line.paint(Style::Faint, tail(&row.branch, for_branch.saturating_sub(1)));
        } else {
            line.paint(Style::Faint, &row.branch);
        }
        line.paint(Style::of(state), sign(state));
        let used: usize = line.pieces().map(|(_, text)| width(text)).sum();
        let mut after = format!(" {}", word(state));
        if let Some(wall) = wall(record).filter(|_| state != Some(RunState::Pending)) {
            after.push_str(&format!(" {}", duration(wall)));
        }
        if row.hides > 0 {
            after.push_str(&format!(" [+{}]", row.hides));
        }
        let left = columns.saturating_sub(used + 1);
        let name = plain(record.data.agent_name.as_str());
        let name = fit(&name, left.saturating_sub(after.len()).max(6).min(left), cut);
        line.push_str(&fit(&format!(" {name}{after}"), left + 1, cut));
        line
    }

    /// `14 sessions, 3 running, 1 failed`.
    pub(super) fn summary(&self) -> String {
        let mut text = counted(self.records.len(), "session", "sessions");
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for record in &self.records {
            let word = word(record.run_state());
            match counts.iter_mut().find(|(counted, _)| *counted == word) {
                Some((_, count)) => *count += 1,
                None => counts.push((word, 1)),
            }
        }
        for (word, count) in counts {
            text.push_str(&format!(", {count} {word}"));
        }
        text
    }
}
