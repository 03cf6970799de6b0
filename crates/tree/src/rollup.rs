//! Usage, own and of a subtree, each provider message counted once (rule L15).

use std::collections::{HashMap, HashSet};

use offspring_protocol::{MessageId, SessionId, Usage};

use crate::SessionTree;

/// What every session used itself, and from that what a subtree used.
///
/// A message is known by its id within its session, so reading a log a second time changes no number.
/// That costs the id (16 bytes, its text and a few bytes of table) per counted message until the session
/// is [forgotten](Self::forget). How a session ended plays no part: failed and cancelled ones count.
///
/// ```
/// use offspring_protocol::{MessageId, SessionId, Usage};
/// use offspring_tree::{Rollup, SessionTree, rollup::Counted};
///
/// let [root, child] = ["root", "child"].map(|id| SessionId::new(id).unwrap());
/// let mut tree = SessionTree::default();
/// tree.insert(root.clone(), None)?;
/// tree.insert(child.clone(), Some(&root))?;
///
/// let message = MessageId::new("msg_1").unwrap();
/// let mut rollup = Rollup::default();
/// assert_eq!(rollup.record(&child, &message, Usage::message(7, 3)), Counted::New);
/// assert_eq!(rollup.record(&child, &message, Usage::message(7, 3)), Counted::AlreadyCounted);
/// assert_eq!(rollup.own(&root).total_tokens(), 0);
/// assert_eq!(rollup.subtree(&tree, &root).total_tokens(), 10);
/// # Ok::<(), offspring_tree::session_tree::InsertError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rollup {
    sessions: HashMap<SessionId, Own>,
}

#[derive(Debug, Clone, Default)]
struct Own {
    sum: Usage,
    counted: HashSet<MessageId>,
}

/// Whether a message changed the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// It was added.
    New,
    /// The session had it; its first report stands (rule L15).
    AlreadyCounted,
}

impl Rollup {
    /// Adds what one provider message cost to its session, unless the session had that message.
    ///
    /// A report that does not say how many messages it holds is one. A message whose price is unknown
    /// makes the price of every sum that holds it unknown.
    pub fn record(&mut self, session: &SessionId, message: &MessageId, mut usage: Usage) -> Counted {
        // Looked up first: an id is cloned only for a session that is new.
        let own = match self.sessions.get_mut(session) {
            Some(own) => own,
            None => self.sessions.entry(session.clone()).or_default(),
        };
        if !own.counted.insert(message.clone()) {
            return Counted::AlreadyCounted;
        }
        usage.messages = usage.messages.max(1);
        own.sum += usage;
        Counted::New
    }

    /// What the session used itself; nothing for one that reported nothing.
    #[must_use]
    pub fn own(&self, session: &SessionId) -> Usage {
        self.sessions.get(session).map_or_else(Usage::default, |own| own.sum)
    }

    /// What the session and everything below it in `tree` used.
    #[must_use]
    pub fn subtree(&self, tree: &SessionTree, session: &SessionId) -> Usage {
        tree.descendants(session).fold(self.own(session), |sum, below| sum + self.own(below))
    }

    /// Forgets what the session used, after it was deleted or unloaded.
    pub fn forget(&mut self, session: &SessionId) {
        self.sessions.remove(session);
    }
}

#[cfg(test)]
mod tests;
