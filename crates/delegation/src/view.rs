//! The RFC's `SubAgentEvent` as a view of envelopes, for those who want that shape.

use offspring_protocol::{Envelope, NodeName, RawEvent, SessionId, SourceType};

/// An event of a descendant as its ancestor's stream shows it (RFC-0028).
///
/// A view: nothing of ours wraps an event in an event. The depth is the session's own, absolute (rule L4);
/// the RFC's pseudocode would count it again at each level.
#[derive(Debug, Clone, Copy)]
pub struct SubAgentEvent<'a> {
    /// The node that was delegated to.
    pub source_name: &'a NodeName,
    /// How it was delegated to.
    pub source_type: &'a SourceType,
    /// The event.
    pub event: &'a RawEvent,
    /// Parent edges above the session.
    pub depth: u32,
    /// The session.
    pub child_session_id: &'a SessionId,
    /// Who started it.
    pub parent_session_id: &'a SessionId,
    /// Root … self.
    pub path: &'a [SessionId],
}

impl<'a> SubAgentEvent<'a> {
    /// The view of an envelope from a session above it; `None` for the session's own events and foreign ones.
    #[must_use]
    pub fn seen_from(observer: &SessionId, envelope: &'a Envelope) -> Option<Self> {
        let session = &*envelope.session;
        if session.id == *observer || !session.path.contains(observer) {
            return None;
        }
        Some(Self {
            source_name: &session.agent_name,
            source_type: session.source_type.as_ref()?,
            event: &envelope.event,
            depth: session.depth,
            child_session_id: &session.id,
            parent_session_id: session.parent.as_ref()?,
            path: &session.path,
        })
    }
}
