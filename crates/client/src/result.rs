//! What a turn gave.

use std::collections::HashMap;

use offspring_protocol::{
    SessionId,
    dsh::{Finished, FinishedStatus, Notice},
};
use offspring_tree::turn::TurnEnd;

use crate::notification::{Line, Notification};

/// A turn, from the receipt of its prompt to its end (T13).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TurnResult {
    /// The root.
    pub session_id: SessionId,
    /// The text of the root's last message within the turn; `None` when it wrote none (T12).
    pub final_response: Option<String>,
    /// Why the root's last model turn ended: `completed`, `error`, `max-tokens`, …; `None` when none did.
    pub finish_reason: Option<String>,
    /// Every `session.event` of the root itself (T12), the receipt first. Empty when nothing was to be kept.
    pub events: Vec<Notification>,
    /// Everything of the whole tree in wire order (T9), `events` included. Empty when nothing was to be kept.
    pub notifications: Vec<Notification>,
    /// Who was started within the turn, and how it went.
    pub tree: TreeReport,
    /// How it ended: at the root's idle, or with the whole tree at rest. `None` when it did not, in
    /// [`TurnError::partial`](crate::TurnError).
    pub end: Option<TurnEnd>,
}

impl TurnResult {
    pub(crate) fn empty(session_id: SessionId) -> Self {
        Self {
            session_id,
            final_response: None,
            finish_reason: None,
            events: Vec::new(),
            notifications: Vec::new(),
            tree: TreeReport::default(),
            end: None,
        }
    }
}

/// The sessions below a root that were started within a turn, in the order of their first starts.
#[derive(Debug, Clone, Default)]
pub struct TreeReport {
    children: Vec<ChildReport>,
    index: HashMap<(SessionId, SessionId), usize>,
}

/// One child under one parent. A child id that was reused under another parent is another child (T4).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChildReport {
    /// Who started it.
    pub parent: SessionId,
    /// Its id.
    pub session: SessionId,
    /// Its runs, one per start (L12).
    pub runs: Vec<ChildRun>,
}

/// One run of a child.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChildRun {
    /// No finish of it has come.
    Open,
    /// The runtime went away before it finished.
    Interrupted,
    /// It finished.
    Finished(Box<Finished>),
}

impl ChildRun {
    /// Whether it finished with the status `ok`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Finished(finished) if finished.status == Some(FinishedStatus::Ok))
    }
}

impl TreeReport {
    /// Every child.
    #[must_use]
    pub fn children(&self) -> &[ChildReport] {
        &self.children
    }

    /// The children whose last run is open or was interrupted.
    pub fn unfinished(&self) -> impl Iterator<Item = &ChildReport> {
        self.children.iter().filter(|child| !matches!(child.runs.last(), Some(ChildRun::Finished(_))))
    }

    /// What these notifications say, in wire order.
    #[must_use]
    pub fn of<'a>(notifications: impl IntoIterator<Item = &'a Notification>) -> Self {
        let mut report = Self::default();
        for notification in notifications {
            report.observe(&notification.line());
        }
        report
    }

    /// Takes in a start or a finish; anything else says nothing here.
    pub(crate) fn observe(&mut self, line: &Line<'_>) {
        match line.notice() {
            Ok(Notice::Started(started)) if started.parent_session_id != started.child_session_id => {
                let child = self.child(started.parent_session_id, started.child_session_id);
                // A start that is repeated while its run is open says nothing new.
                if !matches!(child.runs.last(), Some(ChildRun::Open)) {
                    child.runs.push(ChildRun::Open);
                }
            }
            Ok(Notice::Finished(finished)) => {
                let child = self.child(finished.parent_session_id.clone(), finished.child_session_id.clone());
                let run = ChildRun::Finished(Box::new(finished));
                match child.runs.last_mut() {
                    Some(last @ ChildRun::Open) => *last = run,
                    // The end of a run that was started before the turn.
                    None => child.runs.push(run),
                    // A second finish of one run changes nothing.
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }

    /// The runtime is gone: what is open will not finish.
    pub(crate) fn interrupt(&mut self) {
        for run in self.children.iter_mut().flat_map(|child| &mut child.runs) {
            if matches!(run, ChildRun::Open) {
                *run = ChildRun::Interrupted;
            }
        }
    }

    fn child(&mut self, parent: SessionId, session: SessionId) -> &mut ChildReport {
        let at = *self.index.entry((parent.clone(), session.clone())).or_insert_with(|| {
            self.children.push(ChildReport { parent, session, runs: Vec::new() });
            self.children.len() - 1
        });
        &mut self.children[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::tests::notification;

    fn report(lines: &[&str]) -> TreeReport {
        let mut report = TreeReport::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let (method, more) = if words[0] == "started" {
                ("started", String::new())
            } else {
                ("finished", format!(r#","status":"{}""#, words[3]))
            };
            let line = format!(
                r#"{{"method":"subagent.{method}","params":{{"parentSessionId":"{}","childSessionId":"{}"{more}}}}}"#,
                words[1], words[2]
            );
            report.observe(&notification(1, &line).line());
        }
        report
    }

    fn picture(report: &TreeReport) -> Vec<String> {
        let run = |run: &ChildRun| match run {
            ChildRun::Open => "open",
            ChildRun::Interrupted => "interrupted",
            ChildRun::Finished(_) if run.is_ok() => "ok",
            ChildRun::Finished(_) => "error",
        };
        let child = |child: &ChildReport| {
            let runs: Vec<&str> = child.runs.iter().map(run).collect();
            format!("{} {} {}", child.parent, child.session, runs.join(","))
        };
        report.children().iter().map(child).collect()
    }

    #[test]
    fn l12_each_start_of_a_child_is_a_run_of_it() {
        let report = report(&[
            "started r c",
            "started r c",
            "finished r c ok",
            "finished r c error",
            "started r c",
            "started r r",
            "finished r d error",
        ]);
        assert_eq!(picture(&report), ["r c ok,open", "r d error"]);
        assert_eq!(report.unfinished().count(), 1);
    }

    #[test]
    fn t4_a_late_finish_belongs_to_the_child_of_its_old_parent() {
        let mut report = report(&["started a c", "started b c", "finished a c ok"]);
        assert_eq!(picture(&report), ["a c ok", "b c open"]);
        report.interrupt();
        assert_eq!(picture(&report), ["a c ok", "b c interrupted"]);
    }
}
