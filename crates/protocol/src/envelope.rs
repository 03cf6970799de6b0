//! An event with its place in a tree.

use std::sync::Arc;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    event::RawEvent,
    id::{NodeName, RunId, SessionId},
    session::{AgentType, SourceType, Timestamp},
};

/// What never changes about a session and every reader of its events wants to know. Shared per session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session.
    pub id: SessionId,
    /// The root of its tree.
    pub root: SessionId,
    /// Who started it.
    pub parent: Option<SessionId>,
    /// Root … self (rule T14).
    pub path: Arc<[SessionId]>,
    /// Parent edges above it (rule L4).
    pub depth: u32,
    /// The node it runs.
    pub agent_name: NodeName,
    /// What that node is (rule L7).
    pub agent_type: AgentType,
    /// How it was delegated to (rule L7); `None` for a root.
    pub source_type: Option<SourceType>,
}

/// An event of a tree: flat, numbered by the owner of the tree (rule L16), never wrapped in another.
///
/// As JSON: `{ "seq", "at", "session", "root", "parent", "path", "depth", "agent", "run", "late", "event":
/// { "kind", "data" } }`; `parent`, `run` and `late` only where they say something.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// 1, 2, 3 … within the tree, in the order of commit (rule L16).
    pub seq: u64,
    /// When it was numbered; for people.
    pub at: Timestamp,
    /// The run it belongs to, if any.
    pub run: Option<RunId>,
    /// Whether it came after the end of its run (rule L12): kept, changing nothing.
    pub late: bool,
    /// Whose event it is.
    pub session: Arc<SessionInfo>,
    /// What happened.
    pub event: RawEvent,
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let session = &*self.session;
        let mut map = serializer.serialize_struct("Envelope", 11)?;
        map.serialize_field("seq", &self.seq)?;
        map.serialize_field("at", &self.at)?;
        map.serialize_field("session", &session.id)?;
        map.serialize_field("root", &session.root)?;
        match &session.parent {
            Some(parent) => map.serialize_field("parent", parent)?,
            None => map.skip_field("parent")?,
        }
        map.serialize_field("path", &*session.path)?;
        map.serialize_field("depth", &session.depth)?;
        map.serialize_field("agent", &session.agent_name)?;
        match &self.run {
            Some(run) => map.serialize_field("run", run)?,
            None => map.skip_field("run")?,
        }
        if self.late {
            map.serialize_field("late", &true)?;
        } else {
            map.skip_field("late")?;
        }
        map.serialize_field("event", &self.event)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, TextDelta};

    #[test]
    fn t14_an_envelope_as_json_names_the_whole_path() {
        let ids = ["r", "a", "b"].map(|id| SessionId::new(id).unwrap());
        let envelope = Envelope {
            seq: 7,
            at: Timestamp(1),
            run: None,
            late: false,
            session: Arc::new(SessionInfo {
                id: ids[2].clone(),
                root: ids[0].clone(),
                parent: Some(ids[1].clone()),
                path: ids.to_vec().into(),
                depth: 2,
                agent_name: NodeName::new("n").unwrap(),
                agent_type: AgentType::Native,
                source_type: Some(SourceType::Agent),
            }),
            event: RawEvent::from(&Event::TextDelta(TextDelta { text: "x".into() })),
        };
        assert_eq!(
            serde_json::to_string(&envelope).unwrap(),
            r#"{"seq":7,"at":1,"session":"b","root":"r","parent":"a","path":["r","a","b"],"depth":2,"agent":"n","event":{"kind":"text_delta","data":{"text":"x"}}}"#
        );
    }
}
