//! What one peer's wire says about who started whom.
//!
//! The ids are the peer's, the latest start wins (T3), and the peer may build cycles (T7). One client owns
//! one [`Ancestry`]; what *we* stored is a [`SessionTree`](crate::SessionTree) and is never mixed with it.

use std::collections::HashMap;

use offspring_protocol::SessionId;

/// No node, no mark.
pub(crate) const NONE: u32 = u32::MAX;

/// Child → parent edges of one peer, kept until its process is a new one (T8).
///
/// A start is the only thing that changes an edge; a finish never does (T4), and an edge outlives every
/// subscription and turn. Ids are interned: a session costs 32 bytes, 24 to 57 of the index, and its id
/// once. There is room for `u32::MAX` sessions.
///
/// ```
/// use offspring_protocol::SessionId;
/// use offspring_tree::ancestry::{Ancestry, EdgeChange};
///
/// let mut ancestry = Ancestry::default();
/// assert_eq!(ancestry.start("r", "a"), Ok(EdgeChange::New));
/// assert_eq!(ancestry.start("a", "b"), Ok(EdgeChange::New));
/// assert_eq!(ancestry.path("b"), ["r", "a", "b"].map(|id| SessionId::new(id).unwrap()));
///
/// // A reused id moves to its new parent.
/// let from = SessionId::new("a").unwrap();
/// assert_eq!(ancestry.start("r", "b"), Ok(EdgeChange::Moved { from }));
/// assert_eq!(ancestry.path("b").len(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Ancestry {
    /// Ids are short and looked up at every step: the hash is seeded per process, and quick.
    index: HashMap<SessionId, u32>,
    nodes: Vec<Node>,
    /// The number of the latest walk.
    walk: u64,
    diagnostics: Diagnostics,
}

#[derive(Debug, Clone)]
struct Node {
    id: SessionId,
    /// The latest walk that came by (T7).
    visited: u64,
    parent: u32,
    /// Whatever the owner of the ancestry wants to find on a walk.
    mark: u32,
}

/// What a valid start did to the edge of its child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeChange {
    /// The child had no parent.
    New,
    /// The child had this parent already.
    Same,
    /// The child had another parent (T3).
    Moved {
        /// The parent before.
        from: SessionId,
    },
}

/// Why a start recorded nothing (T2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStart {
    /// The parent id is empty.
    #[error("the start names an empty parent id")]
    EmptyParent,
    /// The child id is empty.
    #[error("the start names an empty child id")]
    EmptyChild,
    /// Parent and child are the same session.
    #[error("the start names one session as its own parent")]
    OwnParent,
    /// No more sessions can be told apart.
    #[error("more sessions were started than can be told apart")]
    Full,
}

/// What starts there were beside new ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// Starts that recorded nothing (T2).
    pub invalid_starts: u64,
    /// Starts that said what was known: repeated, or a re-activated child.
    pub repeated_starts: u64,
    /// Starts that moved their child to another parent (T3).
    pub moves: u64,
}

impl Ancestry {
    /// Records that `parent` started `child`. The latest valid start wins (T3).
    ///
    /// # Errors
    /// [`InvalidStart`]: nothing is recorded, and it is counted (T2).
    pub fn start(&mut self, parent: &str, child: &str) -> Result<EdgeChange, InvalidStart> {
        self.record(parent, child).map(|(change, _)| change)
    }

    /// [`start`](Self::start), with the child's node.
    pub(crate) fn record(&mut self, parent: &str, child: &str) -> Result<(EdgeChange, u32), InvalidStart> {
        let recorded = self.try_record(parent, child);
        match &recorded {
            Ok((EdgeChange::New, _)) => {}
            Ok((EdgeChange::Same, _)) => self.diagnostics.repeated_starts += 1,
            Ok((EdgeChange::Moved { .. }, _)) => self.diagnostics.moves += 1,
            Err(_) => self.diagnostics.invalid_starts += 1,
        }
        recorded
    }

    fn try_record(&mut self, parent: &str, child: &str) -> Result<(EdgeChange, u32), InvalidStart> {
        // T2: both non-empty and different; checked before either id is kept.
        if parent.is_empty() {
            return Err(InvalidStart::EmptyParent);
        }
        if child.is_empty() {
            return Err(InvalidStart::EmptyChild);
        }
        if parent == child {
            return Err(InvalidStart::OwnParent);
        }
        let above = self.intern(parent).ok_or(InvalidStart::Full)?;
        let at = self.intern(child).ok_or(InvalidStart::Full)?;
        let before = self.nodes[at as usize].parent;
        self.nodes[at as usize].parent = above;
        let change = match self.nodes.get(before as usize) {
            None => EdgeChange::New,
            Some(_) if before == above => EdgeChange::Same,
            Some(old) => EdgeChange::Moved { from: old.id.clone() },
        };
        Ok((change, at))
    }

    /// The latest parent of a session, if it was started.
    #[must_use]
    pub fn parent(&self, id: &str) -> Option<&SessionId> {
        let above = self.nodes[self.find(id)? as usize].parent;
        self.nodes.get(above as usize).map(|node| &node.id)
    }

    /// Root … self, for whoever did not see the starts (T14). On a cycle the path stops before the first
    /// repeat. A session nobody started is its own root; an empty id has no path.
    ///
    /// Takes `&mut self` because a walk leaves its number on what it visits (T7).
    #[must_use]
    pub fn path(&mut self, id: &str) -> Vec<SessionId> {
        let Some(from) = self.find(id) else {
            return SessionId::new(id).into_iter().collect();
        };
        let mut path = Vec::new();
        self.begin_walk();
        self.climb(from, |id, _| path.push(id.clone()));
        path.reverse();
        path
    }

    /// Whether a session is `root` or below it, as far as the wire has said (T6).
    #[must_use]
    pub fn is_within(&mut self, id: &str, root: &SessionId) -> bool {
        if id == root.as_str() {
            return true;
        }
        let (Some(from), Some(root)) = (self.find(id), self.find(root.as_str())) else { return false };
        self.begin_walk();
        let mut at = from;
        while let Some(node) = self.nodes.get_mut(at as usize) {
            if at == root || node.visited == self.walk {
                break;
            }
            node.visited = self.walk;
            at = node.parent;
        }
        at == root
    }

    /// Forgets every edge, before the first byte of a new process is read (T8). The diagnostics stay.
    pub fn clear(&mut self) {
        self.index.clear();
        self.nodes.clear();
    }

    /// How many sessions were named by a valid start or watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no session is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What starts there were beside new ones.
    #[must_use]
    pub fn diagnostics(&self) -> Diagnostics {
        self.diagnostics
    }

    /// The node of a known id.
    pub(crate) fn find(&self, id: &str) -> Option<u32> {
        self.index.get(id).copied()
    }

    /// The node of an id, made if need be; `None` for an empty id or when there is no room.
    pub(crate) fn intern(&mut self, id: &str) -> Option<u32> {
        if let Some(at) = self.find(id) {
            return Some(at);
        }
        let id = SessionId::new(id).ok()?;
        let at = u32::try_from(self.nodes.len()).ok().filter(|&at| at != NONE)?;
        self.nodes.push(Node { id: id.clone(), visited: 0, parent: NONE, mark: NONE });
        self.index.insert(id, at);
        Some(at)
    }

    pub(crate) fn mark(&self, at: u32) -> u32 {
        self.nodes[at as usize].mark
    }

    pub(crate) fn set_mark(&mut self, at: u32, mark: u32) {
        self.nodes[at as usize].mark = mark;
    }

    /// From here on every session counts as unvisited.
    pub(crate) fn begin_walk(&mut self) {
        self.walk += 1;
    }

    /// Gives each session from `from` upwards that this walk has not visited yet, with its mark, and ends
    /// at the first it has (T7): whatever stands above that one was visited too.
    pub(crate) fn climb(&mut self, from: u32, mut visit: impl FnMut(&SessionId, u32)) {
        let mut at = from;
        while let Some(node) = self.nodes.get_mut(at as usize) {
            if node.visited == self.walk {
                break;
            }
            node.visited = self.walk;
            visit(&node.id, node.mark);
            at = node.parent;
        }
    }

    /// The mark of one session, unless this walk has visited it.
    pub(crate) fn unvisited_mark(&self, at: u32) -> Option<u32> {
        self.nodes.get(at as usize).filter(|node| node.visited != self.walk).map(|node| node.mark)
    }
}

#[cfg(test)]
mod tests;
