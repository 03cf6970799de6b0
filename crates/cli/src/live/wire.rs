//! The live tree of a runtime's session, told by what comes over its wire.

use std::{
    collections::HashSet,
    sync::{Arc, MutexGuard},
};

use offspring_client::{
    Notification,
    dsh::{ASSISTANT_MESSAGE, SUBAGENT_FINISHED, SUBAGENT_STARTED, notice},
};
use offspring_process::Secrets;
use offspring_protocol::{AgentType, NodeName, Outcome, RunState, SessionId, SessionInfo, SourceType};
use offspring_sessions::ids;

use super::{Live, Seen, Tree, can_redraw, lock};

/// The view of one turn.
pub(crate) struct OfWire {
    live: Live,
    root: SessionId,
    secrets: Secrets,
}

impl OfWire {
    /// Shows a turn; `None` where nothing can be redrawn, and lines have to do. What is secret is not shown (W10).
    pub(crate) fn start(root: &SessionId, secrets: Secrets) -> Option<Self> {
        if !can_redraw() {
            return None;
        }
        let info = info(root, root, None, 0, &secrets)?;
        let live = Live::over(&Arc::new(info), None, false);
        lock(&live.tree).enter(root, RunState::Running, ids::now());
        Some(Self { live, root: root.clone(), secrets })
    }

    /// What leaves the terminal as it was, at once.
    pub(crate) fn abandoning(&self) -> impl FnOnce() + Send + 'static {
        self.live.abandoning()
    }

    /// Takes what the runtime says.
    pub(crate) fn take(&self, one: &Notification) {
        match one.method() {
            SUBAGENT_STARTED => self.started(one),
            SUBAGENT_FINISHED => {
                let outcome = if one.status() == Some("ok") { Outcome::Completed } else { Outcome::Failed };
                // T4: it is of the run under the parent that it names.
                if let (Some(child), Some(parent)) = (id(one.child_session_id()), one.parent_session_id()) {
                    let mut tree = self.tree();
                    let stands = tree.info(&child).and_then(|info| info.parent.as_ref());
                    if stands.is_some_and(|stands| stands.as_str() == parent) {
                        tree.enter(&child, RunState::Ended(outcome), ids::now());
                    }
                }
            }
            _ if one.event_type() == Some(ASSISTANT_MESSAGE) => {
                let text = one.event_data().and_then(notice::assistant_text);
                if let (Some(session), Some(text)) = (id(one.session_id()), text) {
                    self.tree().say(&session, &self.secrets.redact(&text));
                }
            }
            _ => {}
        }
    }

    /// Stops drawing; the root has ended as it is said here.
    pub(crate) async fn finish(self, outcome: Outcome) -> Seen {
        self.tree().enter(&self.root, RunState::Ended(outcome), ids::now());
        self.live.finish().await
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.live.tree)
    }

    fn started(&self, one: &Notification) {
        let (Some(parent), Some(child)) = (id(one.parent_session_id()), id(one.child_session_id())) else {
            return;
        };
        let mut tree = self.tree();
        // T7: who is above its own parent already stays where it is, so that what is drawn is a tree.
        let mut above = HashSet::new();
        let mut at = Some(parent.clone());
        while let Some(next) = at.filter(|next| above.insert(next.clone())) {
            at = tree.info(&next).and_then(|info| info.parent.clone());
        }
        if !above.contains(&child) {
            let depth = u32::try_from(above.len()).unwrap_or(u32::MAX);
            if let Some(info) = info(&self.root, &child, Some(parent), depth, &self.secrets) {
                tree.place(&Arc::new(info), ids::now());
            }
        }
        tree.enter(&child, RunState::Running, ids::now());
    }
}

fn id(text: Option<&str>) -> Option<SessionId> {
    SessionId::new(text?).ok()
}

fn info(
    root: &SessionId,
    session: &SessionId,
    parent: Option<SessionId>,
    depth: u32,
    secrets: &Secrets,
) -> Option<SessionInfo> {
    Some(SessionInfo {
        id: session.clone(),
        root: root.clone(),
        path: [session.clone()].into(),
        depth,
        // A runtime gives its sessions no names.
        agent_name: NodeName::new(secrets.redact(session.as_str())).ok()?,
        agent_type: AgentType::Dsh,
        source_type: parent.is_some().then_some(SourceType::Agent),
        parent,
    })
}
