//! Which sessions are at work, seen from what was written.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

/// Follows starts, finishes and statuses, so that `session/wait` can be answered as the real runtime does: when
/// the root is idle and none of its descendants is at work.
#[derive(Debug, Default)]
pub(super) struct AtWork {
    parents: HashMap<String, String>,
    /// Starts without a finish, per child.
    open: HashMap<String, u64>,
    running: HashSet<String>,
}

#[derive(Deserialize)]
struct Frame {
    method: Option<String>,
    params: Option<Params>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Params {
    session_id: Option<String>,
    status: Option<String>,
    parent_session_id: Option<String>,
    child_session_id: Option<String>,
}

impl AtWork {
    /// Takes what is about to be written.
    pub(super) fn observe(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            // Most frames are events, which change nothing here.
            let is_of_interest = line.windows(9).any(|part| part == b"subagent." || part == b"on.status");
            if !is_of_interest {
                continue;
            }
            let Ok(Frame { method: Some(method), params: Some(params) }) = serde_json::from_slice(line)
            else {
                continue;
            };
            match method.as_str() {
                "session.status" => {
                    if let (Some(session), Some(status)) = (params.session_id, params.status) {
                        if status == "running" {
                            self.running.insert(session);
                        } else {
                            self.running.remove(&session);
                        }
                    }
                }
                "subagent.started" => {
                    if let (Some(parent), Some(child)) = (params.parent_session_id, params.child_session_id) {
                        *self.open.entry(child.clone()).or_default() += 1;
                        self.parents.insert(child, parent);
                    }
                }
                "subagent.finished" => {
                    if let Some(open) = params.child_session_id.and_then(|child| self.open.get_mut(&child)) {
                        *open = open.saturating_sub(1);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether nobody in this tree is at work.
    pub(super) fn is_at_rest(&self, root: &str) -> bool {
        let open = self.open.iter().filter(|(_, open)| **open > 0).map(|(child, _)| child);
        !open.chain(&self.running).any(|session| self.is_below(session, root))
    }

    /// Whether the way up from a session meets the root. A cycle ends it.
    fn is_below(&self, session: &str, root: &str) -> bool {
        let mut seen = HashSet::new();
        let mut at = session;
        while seen.insert(at) {
            if at == root {
                return true;
            }
            match self.parents.get(at) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_at_rest_when_root_and_descendants_are() {
        let mut work = AtWork::default();
        let mut says = |line: &str, rests: bool| {
            let (method, rest) = line.split_once(' ').unwrap();
            let (a, b) = rest.split_once(' ').unwrap();
            let params = match method {
                "session.status" => format!(r#"{{"sessionId":"{a}","status":"{b}"}}"#),
                _ => format!(r#"{{"parentSessionId":"{a}","childSessionId":"{b}"}}"#),
            };
            work.observe(format!("{{\"method\":\"{method}\",\"params\":{params}}}\n").as_bytes());
            assert_eq!(work.is_at_rest("root"), rests, "{line}");
        };
        says("session.status root running", false);
        says("subagent.started root a", false);
        says("session.status root idle", false);
        says("subagent.started a b", false);
        says("subagent.finished root a", false);
        says("subagent.finished a b", true);
        says("subagent.started a root", false);
        says("subagent.finished a root", true);
        says("session.status other running", true);
    }
}
