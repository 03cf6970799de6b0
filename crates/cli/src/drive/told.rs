//! What people see of a turn while it goes on: a live tree on a terminal, elsewhere a line for who starts and who finishes.

use offspring_client::{
    Notification, SessionId,
    dsh::{SUBAGENT_FINISHED, SUBAGENT_STARTED},
};
use offspring_process::Secrets;
use offspring_protocol::Outcome;

use crate::{
    live::wire::OfWire,
    text::{plain, tell},
};

/// How a turn is told.
pub(super) enum Told {
    Not,
    Tree(OfWire),
    Lines { root: SessionId, secrets: Secrets },
}

impl Told {
    pub(super) fn start(root: &SessionId, secrets: &Secrets) -> Self {
        match OfWire::start(root, secrets.clone()) {
            Some(tree) => Self::Tree(tree),
            None => Self::Lines { root: root.clone(), secrets: secrets.clone() },
        }
    }

    pub(super) fn take(&self, one: &Notification) {
        match self {
            Self::Not => {}
            Self::Tree(tree) => tree.take(one),
            Self::Lines { root, secrets } => {
                if let Some(line) = line(one, root) {
                    tell(&secrets.redact(&line));
                }
            }
        }
    }

    /// Leaves the terminal as it was, with the whole tree on it.
    pub(super) async fn finish(self, succeeded: bool) {
        if let Self::Tree(tree) = self {
            let outcome = if succeeded { Outcome::Completed } else { Outcome::Failed };
            tree.finish(outcome).await.print_tree(&[]);
        }
    }
}

fn line(one: &Notification, root: &SessionId) -> Option<String> {
    let (parent, child) = (one.parent_session_id()?, plain(one.child_session_id()?));
    let parent = if parent == root.as_str() { "the session" } else { parent };
    match one.method() {
        SUBAGENT_STARTED => Some(format!("+ {child} started by {}", plain(parent))),
        SUBAGENT_FINISHED => Some(format!("- {child} finished: {}", plain(one.status().unwrap_or("?")))),
        _ => None,
    }
}
