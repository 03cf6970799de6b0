//! `ensure_session`: a session under a given id, whether anybody has heard of it or not (rule L9).

use std::sync::Arc;

use offspring_protocol::{NodeName, SessionId, SessionInfo};

use crate::{bus::Notice, error::Refused, manager::SessionManager, store::StoreError};

/// How the session was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// This process had it: notice *updated*.
    Memory,
    /// The store had it and nothing was written: notices *created* and *updated*.
    Store,
    /// Nobody had it; it was stored once: notice *created*.
    Created,
}

/// The node a prompt to the session would go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// A root binds its node by name; whether the manifest has it, shows at the first prompt.
    Node(NodeName),
    /// A child binds none: whoever delegated runs it.
    None,
}

/// A session that is there now.
#[derive(Debug, Clone)]
pub struct EnsuredSession {
    /// The session.
    pub info: Arc<SessionInfo>,
    /// How it was found.
    pub how: How,
    /// What it runs.
    pub binding: Binding,
}

impl EnsuredSession {
    fn new(info: Arc<SessionInfo>, how: How) -> Self {
        let binding = match info.parent {
            None => Binding::Node(info.agent_name.clone()),
            Some(_) => Binding::None,
        };
        Self { info, how, binding }
    }
}

impl SessionManager {
    /// The session of this id: from memory, from the store, or made now, a root or a child of `parent`.
    /// Racing calls for one id give one session.
    ///
    /// # Errors
    /// [`Refused`] when it cannot be made, or the store cannot be read.
    pub async fn ensure_session(
        &self,
        id: &SessionId,
        parent: Option<&SessionId>,
    ) -> Result<EnsuredSession, Refused> {
        let _one = self.inner.ensuring.lock().await;
        let known = self.known(id);
        if let Some(info) = known {
            self.inner.bus.notice(Notice::Updated(Arc::clone(&info)));
            return Ok(EnsuredSession::new(info, How::Memory));
        }
        if let Some(found) = self.found_in_store(id).await? {
            return Ok(found);
        }
        let agent = match &self.inner.options.default_agent {
            Some(agent) => agent.clone(),
            None => NodeName::new("default")?,
        };
        match self.create_idle(parent, id, agent).await {
            Ok(info) => Ok(EnsuredSession::new(info, How::Created)),
            // Another door or another process was faster by a moment.
            Err(refused @ Refused::Store(StoreError::Taken { .. })) => {
                self.found_in_store(id).await?.ok_or(refused)
            }
            Err(refused) => Err(refused),
        }
    }

    async fn found_in_store(&self, id: &SessionId) -> Result<Option<EnsuredSession>, StoreError> {
        let Some(info) = self.stored_info(id).await? else { return Ok(None) };
        self.remember(&info);
        self.inner.bus.notice(Notice::Created(Arc::clone(&info)));
        self.inner.bus.notice(Notice::Updated(Arc::clone(&info)));
        Ok(Some(EnsuredSession::new(info, How::Store)))
    }
}
