//! The tree as we stored it: our own ids, a parent set once.
//!
//! A parent is given when a session is inserted and never changes, and it must be there already, so no
//! cycle can be built. What a *peer's* wire says is another matter and lives in
//! [`Ancestry`](crate::ancestry::Ancestry); the two are never mixed.

use std::{collections::HashMap, iter};

use offspring_protocol::SessionId;

/// No node: the end of a list, the parent of a root.
const NONE: u32 = u32::MAX;

/// Every session this process owns or watches, with its place.
///
/// Roots and children are kept in the order in which they were inserted. Ids are interned: a node costs
/// 40 bytes plus about 28 of the index, and its id once. `path`, `root` and `ancestors` cost the depth of
/// the session; `insert`, `contains`, `depth` and `parent` one look-up.
///
/// ```
/// use offspring_protocol::SessionId;
/// use offspring_tree::SessionTree;
///
/// let [r, a, b] = ["r", "a", "b"].map(|id| SessionId::new(id).unwrap());
/// let mut tree = SessionTree::default();
/// tree.insert(r.clone(), None)?;
/// tree.insert(a.clone(), Some(&r))?;
/// tree.insert(b.clone(), Some(&a))?;
///
/// assert_eq!(tree.path(&b), Some(vec![r.clone(), a.clone(), b.clone()]));
/// assert_eq!(tree.depth(&b), Some(2));
/// assert_eq!(tree.leaves_first(&r), [b, a, r]);
/// # Ok::<(), offspring_tree::session_tree::InsertError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionTree {
    index: HashMap<SessionId, u32>,
    nodes: Vec<Node>,
    /// Slots of removed nodes.
    free: Vec<u32>,
    /// Parents that were named but unknown, by the session that named them (L3).
    unknown_parents: HashMap<SessionId, SessionId>,
    roots: List,
}

/// First and last of a list of siblings.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

#[derive(Debug, Clone)]
struct Node {
    /// `None` in a slot that is free.
    id: Option<SessionId>,
    depth: u32,
    parent: u32,
    previous: u32,
    next: u32,
    children: List,
}

/// Where an inserted session came to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// Parent edges above it (rule L4); 1 for a session whose parent is unknown (rule L3).
    pub depth: u32,
    /// Whether it has a parent in this tree, or named none. `false`: it named one that nobody knows,
    /// and became the root of a tree of its own (rule L3), which is worth a warning.
    pub parent_known: bool,
}

/// Why a session was not inserted. The tree is then as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// A session has this id already; it keeps its place.
    #[error("the session id {id} is taken by a session of the tree of {root}")]
    Taken {
        /// The id.
        id: SessionId,
        /// The root of the session that holds it.
        root: SessionId,
    },
    /// A session cannot be its own parent.
    #[error("the session {id} names itself as its parent")]
    OwnParent {
        /// The id.
        id: SessionId,
    },
    /// There is no room for more than `u32::MAX` sessions.
    #[error("the tree holds as many sessions as it can; remove trees that ended")]
    Full,
}

impl Default for SessionTree {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            unknown_parents: HashMap::new(),
            roots: List::EMPTY,
        }
    }
}

impl SessionTree {
    /// Adds a session below `parent`, or as a root.
    ///
    /// A parent that is not in the tree is no error (rule L3): the session becomes the root of a tree of
    /// its own with depth 1, and [`parent_as_given`](Self::parent_as_given) keeps what it named. It stays
    /// there when that parent is inserted later: a parent is set once.
    ///
    /// # Errors
    /// [`InsertError`]; nothing is changed then.
    pub fn insert(&mut self, id: SessionId, parent: Option<&SessionId>) -> Result<Inserted, InsertError> {
        if let Some(root) = self.root(&id).cloned() {
            return Err(InsertError::Taken { id, root });
        }
        if parent == Some(&id) {
            return Err(InsertError::OwnParent { id });
        }
        let above = parent.and_then(|parent| self.index.get(parent).copied());
        // L4: absolute depth; L3: a child of an unknown parent has depth 1.
        let depth = match above {
            Some(above) => self.nodes[above as usize].depth.saturating_add(1),
            None => u32::from(parent.is_some()),
        };
        let parent_known = above.is_some() || parent.is_none();
        let node = Node {
            id: Some(id.clone()),
            depth,
            parent: above.unwrap_or(NONE),
            previous: NONE,
            next: NONE,
            children: List::EMPTY,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                let slot = u32::try_from(self.nodes.len()).ok().filter(|&slot| slot != NONE);
                let slot = slot.ok_or(InsertError::Full)?;
                self.nodes.push(node);
                slot
            }
        };
        self.link(slot);
        if let (None, Some(parent)) = (above, parent) {
            self.unknown_parents.insert(id.clone(), parent.clone());
        }
        self.index.insert(id, slot);
        Ok(Inserted { depth, parent_known })
    }

    /// Whether the session is in the tree.
    #[must_use]
    pub fn contains(&self, id: &SessionId) -> bool {
        self.index.contains_key(id)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Parent edges above the session (rule L4).
    #[must_use]
    pub fn depth(&self, id: &SessionId) -> Option<u32> {
        Some(self.node(id)?.depth)
    }

    /// The session's parent in this tree; `None` for a root, also for one whose parent is unknown.
    #[must_use]
    pub fn parent(&self, id: &SessionId) -> Option<&SessionId> {
        self.id_at(self.node(id)?.parent)
    }

    /// The parent the session was inserted with, known or not (rule L3).
    #[must_use]
    pub fn parent_as_given(&self, id: &SessionId) -> Option<&SessionId> {
        self.parent(id).or_else(|| self.unknown_parents.get(id))
    }

    /// The root of the session's tree; itself for a root.
    #[must_use]
    pub fn root(&self, id: &SessionId) -> Option<&SessionId> {
        self.id_at(self.root_of(*self.index.get(id)?))
    }

    /// Root … self (rule T14).
    #[must_use]
    pub fn path(&self, id: &SessionId) -> Option<Vec<SessionId>> {
        let at = *self.index.get(id)?;
        let mut path: Vec<_> = self.upwards(at).cloned().collect();
        path.reverse();
        Some(path)
    }

    /// The session's parent, its parent's parent … up to the root.
    pub fn ancestors(&self, id: &SessionId) -> impl Iterator<Item = &SessionId> {
        self.upwards(self.node(id).map_or(NONE, |node| node.parent))
    }

    /// Whether `session` is `top` or descends from it.
    #[must_use]
    pub fn is_within(&self, session: &SessionId, top: &SessionId) -> bool {
        let (Some(&session), Some(&top)) = (self.index.get(session), self.index.get(top)) else {
            return false;
        };
        self.indices_upwards(session).any(|at| at == top)
    }

    /// The session's children, in the order in which they were inserted.
    pub fn children(&self, id: &SessionId) -> impl Iterator<Item = &SessionId> {
        self.siblings(self.node(id).map_or(NONE, |node| node.children.first))
    }

    /// The roots, in the order in which they were inserted.
    pub fn roots(&self) -> impl Iterator<Item = &SessionId> {
        self.siblings(self.roots.first)
    }

    /// Everything below the session, each before its own children and siblings in the order of insertion.
    pub fn descendants(&self, id: &SessionId) -> impl Iterator<Item = &SessionId> {
        let top = self.index.get(id).copied().unwrap_or(NONE);
        iter::successors(self.next_below(top, top), move |&at| self.next_below(at, top))
            .filter_map(|at| self.id_at(at))
    }

    /// The session and everything below it, each after its own children: the order in which a subtree is
    /// stopped or deleted (rule L14). The session itself is last; an unknown one gives nothing.
    #[must_use]
    pub fn leaves_first(&self, id: &SessionId) -> Vec<SessionId> {
        self.indices_leaves_first(id).into_iter().filter_map(|at| self.id_at(at).cloned()).collect()
    }

    /// Takes the session and everything below it out, and gives it back leaves first.
    pub fn remove_subtree(&mut self, id: &SessionId) -> Vec<SessionId> {
        let doomed = self.indices_leaves_first(id);
        if let Some(&top) = doomed.last() {
            self.unlink(top);
        }
        let mut removed = Vec::with_capacity(doomed.len());
        for at in doomed {
            if let Some(id) = self.nodes[at as usize].id.take() {
                self.index.remove(&id);
                self.unknown_parents.remove(&id);
                removed.push(id);
            }
            self.free.push(at);
        }
        removed
    }

    fn node(&self, id: &SessionId) -> Option<&Node> {
        self.nodes.get(*self.index.get(id)? as usize)
    }

    /// The id in a slot; nothing for `NONE`.
    fn id_at(&self, at: u32) -> Option<&SessionId> {
        self.nodes.get(at as usize)?.id.as_ref()
    }

    fn root_of(&self, at: u32) -> u32 {
        self.indices_upwards(at).last().unwrap_or(at)
    }

    /// From `at` to its root. Ends because a parent is inserted before its children.
    fn indices_upwards(&self, at: u32) -> impl Iterator<Item = u32> {
        let existing = |at: u32| (at != NONE).then_some(at);
        iter::successors(existing(at), move |&at| existing(self.nodes[at as usize].parent))
    }

    fn upwards(&self, at: u32) -> impl Iterator<Item = &SessionId> {
        self.indices_upwards(at).filter_map(|at| self.id_at(at))
    }

    fn siblings(&self, first: u32) -> impl Iterator<Item = &SessionId> {
        iter::successors(self.nodes.get(first as usize), |node| self.nodes.get(node.next as usize))
            .filter_map(|node| node.id.as_ref())
    }

    /// The node after `at` in a walk that takes each node before its children and stays below `top`.
    fn next_below(&self, at: u32, top: u32) -> Option<u32> {
        let mut node = self.nodes.get(at as usize)?;
        if node.children.first != NONE {
            return Some(node.children.first);
        }
        let mut at = at;
        while at != top {
            if node.next != NONE {
                return Some(node.next);
            }
            at = node.parent;
            node = self.nodes.get(at as usize)?;
        }
        None
    }

    fn indices_leaves_first(&self, id: &SessionId) -> Vec<u32> {
        let Some(&top) = self.index.get(id) else { return Vec::new() };
        // Each node before its children and later siblings first, read backwards, is each node after its
        // children with earlier siblings first.
        let mut order = Vec::new();
        let mut open = vec![top];
        while let Some(at) = open.pop() {
            order.push(at);
            let mut child = self.nodes[at as usize].children.first;
            while child != NONE {
                open.push(child);
                child = self.nodes[child as usize].next;
            }
        }
        order.reverse();
        order
    }

    /// The list of siblings that belongs to a parent.
    fn list(&mut self, parent: u32) -> &mut List {
        match self.nodes.get_mut(parent as usize) {
            Some(parent) => &mut parent.children,
            None => &mut self.roots,
        }
    }

    /// Appends the node to its parent's children.
    fn link(&mut self, at: u32) {
        let list = self.list(self.nodes[at as usize].parent);
        let previous = list.last;
        list.last = at;
        if previous == NONE {
            list.first = at;
        } else {
            self.nodes[previous as usize].next = at;
        }
        self.nodes[at as usize].previous = previous;
    }

    /// Takes the node out of its parent's children.
    fn unlink(&mut self, at: u32) {
        let Node { parent, previous, next, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.list(parent).first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.list(parent).last = previous,
        }
    }
}

#[cfg(test)]
mod tests;
