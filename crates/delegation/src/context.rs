//! `AgentContext::create_child_session` with the RFC's fallbacks (RFC-0028 component 1).

use offspring_protocol::{AgentType, NodeName, SessionId};
use offspring_sessions::{AnnouncedChild, NewChild, Refused, RunContext, SessionManager, ids};

/// What a tool knows about where it is called: perhaps a run, perhaps a pool, perhaps neither.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentContext<'a> {
    /// The run it is called in.
    pub run: Option<&'a RunContext>,
    /// The pool's manager; outside a pool nothing is stored (rule L8).
    pub manager: Option<&'a SessionManager>,
}

impl AgentContext<'_> {
    /// The depth a child made here gets: one more than the run's; 1 outside a run (RFC-0028 EC-4).
    #[must_use]
    pub fn child_depth(&self) -> u32 {
        self.run.map_or(0, RunContext::depth) + 1
    }

    /// Makes a child session of, in this order: the given parent, the run's session, an id nobody knows
    /// (EC-8). Stored by the run's manager, else by the pool's; without either it exists in memory only.
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn create_child_session(
        &self,
        agent_name: NodeName,
        agent_type: AgentType,
        parent: Option<&SessionId>,
    ) -> Result<AnnouncedChild, Refused> {
        let new = NewChild::new(agent_name, agent_type);
        match self.run {
            Some(run) if parent.is_none_or(|parent| *parent == run.session().id) => {
                run.create_child(new).await
            }
            run => {
                let manager = run.map(RunContext::manager).or(self.manager).cloned();
                let manager = manager.unwrap_or_else(SessionManager::detached);
                let parent = parent.cloned().unwrap_or_else(ids::session);
                manager.create_child(&parent, new).await
            }
        }
    }
}
