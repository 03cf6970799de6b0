//! Which subscriptions a notification of a peer belongs to (T2–T8, T15).

use offspring_protocol::SessionId;

use crate::ancestry::{Ancestry, EdgeChange, InvalidStart, NONE};

/// Routes one peer's notifications to the subscriptions of one client.
///
/// One walk up from the session a notification names collects the subscriptions it meets, so that a step
/// costs the depth of the session, however many sessions and subscriptions there are (T15). A pure state
/// machine: it delivers nothing itself, and the order of its inputs is the order of the wire (T9).
///
/// ```
/// use offspring_protocol::SessionId;
/// use offspring_tree::router::{Notification, Router};
///
/// let mut router = Router::default();
/// let root = router.subscribe(&SessionId::new("r").unwrap());
/// router.route(Notification::Started { parent: "r", child: "a" });
/// router.route(Notification::Started { parent: "a", child: "b" });
///
/// let route = router.route(Notification::Session { session: "b" });
/// assert_eq!(route.matched(), [root]);
/// assert!(router.route(Notification::Session { session: "stranger" }).is_unmatched());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Router {
    ancestry: Ancestry,
    /// The subscriptions of one root each; a session's mark is the index of its group.
    groups: Vec<Group>,
    free: Vec<u32>,
    issued: u64,
    /// What the latest notification matched; kept for its memory.
    matched: Vec<SubscriptionKey>,
}

#[derive(Debug, Clone)]
struct Group {
    root: SessionId,
    /// In the order in which they were made; empty in a free slot.
    keys: Vec<SubscriptionKey>,
}

/// A subscription to a root and everything below it. Never given out twice by one router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionKey {
    serial: u64,
    group: u32,
}

/// What routing needs to know of a notification. Ids are the peer's, as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notification<'a> {
    /// `parent` started `child`.
    Started {
        /// Who started it.
        parent: &'a str,
        /// What was started.
        child: &'a str,
    },
    /// A child that `parent` started finished.
    Finished {
        /// Who had started it.
        parent: &'a str,
        /// What finished.
        child: &'a str,
    },
    /// Any other notification that names a session.
    Session {
        /// The session.
        session: &'a str,
    },
    /// A notification that names no session.
    Unrouted,
}

/// Where a notification goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<'a> {
    matched: &'a [SubscriptionKey],
    edge: Option<Result<EdgeChange, InvalidStart>>,
    cost: Cost,
}

/// What one routing step took. None of it depends on how many sessions or foreign subscriptions there are (T15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// Ids looked up.
    pub lookups: u64,
    /// Sessions visited on the way up, each once.
    pub hops: u64,
    /// Subscriptions found.
    pub deliveries: u64,
}

impl Cost {
    /// All of it.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.lookups + self.hops + self.deliveries
    }
}

impl Route<'_> {
    /// Each matching subscription once: those of the session first, then its parent's and so on, for one
    /// root in the order in which they were made.
    #[must_use]
    pub fn matched(&self) -> &[SubscriptionKey] {
        self.matched
    }

    /// Whether it matched none, and so belongs to the client's global queue (T10).
    #[must_use]
    pub fn is_unmatched(&self) -> bool {
        self.matched.is_empty()
    }

    /// What a start did; `None` for any other notification.
    #[must_use]
    pub fn edge(&self) -> Option<&Result<EdgeChange, InvalidStart>> {
        self.edge.as_ref()
    }

    /// What the step took.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl Router {
    /// Subscribes to a session and everything below it, now and later. The session need not be known yet.
    pub fn subscribe(&mut self, root: &SessionId) -> SubscriptionKey {
        let group = self.group_of(root);
        self.issued += 1;
        let key = SubscriptionKey { serial: self.issued, group };
        if let Some(group) = self.groups.get_mut(group as usize) {
            group.keys.push(key);
        }
        key
    }

    /// Ends a subscription; the edges stay (T8). `false` when it has ended before.
    pub fn unsubscribe(&mut self, key: SubscriptionKey) -> bool {
        let Some(group) = self.groups.get_mut(key.group as usize) else { return false };
        let Some(place) = group.keys.iter().position(|&other| other == key) else { return false };
        group.keys.remove(place);
        if group.keys.is_empty() {
            if let Some(at) = self.ancestry.find(group.root.as_str()) {
                self.ancestry.set_mark(at, NONE);
            }
            self.free.push(key.group);
        }
        true
    }

    /// Finds the subscriptions that a notification belongs to.
    ///
    /// - A start records its edge first (T2), then belongs to every root on its child's new path. An invalid
    ///   one records nothing and belongs to the roots on the paths of the ids it does name.
    /// - A finish belongs to every root on the path of the parent it *carries*, whoever the child's parent
    ///   is by now (T4), and changes no edge.
    /// - Both also belong to a subscription whose root is the child itself (T5).
    /// - Anything else belongs to every root on its session's path, itself included (T6).
    pub fn route(&mut self, notification: Notification<'_>) -> Route<'_> {
        self.matched.clear();
        self.ancestry.begin_walk();
        let mut cost = Cost::default();
        let mut edge = None;
        match notification {
            Notification::Started { parent, child } => match self.ancestry.record(parent, child) {
                Ok((change, at)) => {
                    edge = Some(Ok(change));
                    cost.lookups += 2;
                    self.collect_upwards(at, &mut cost);
                }
                Err(invalid) => {
                    edge = Some(Err(invalid));
                    self.reach(child, &mut cost);
                    self.reach(parent, &mut cost);
                }
            },
            Notification::Finished { parent, child } => {
                self.reach(parent, &mut cost);
                self.reach_only(child, &mut cost);
            }
            Notification::Session { session } => self.reach(session, &mut cost),
            Notification::Unrouted => {}
        }
        cost.deliveries = self.matched.len() as u64;
        Route { matched: &self.matched, edge, cost }
    }

    /// Root … self of a session, as the wire has it (T14); see [`Ancestry::path`].
    #[must_use]
    pub fn path(&mut self, session: &str) -> Vec<SessionId> {
        self.ancestry.path(session)
    }

    /// Forgets every edge, before the first byte of a new process is read (T8). Subscriptions stay.
    pub fn clear(&mut self) {
        self.ancestry.clear();
        for (mark, group) in (0..).zip(&self.groups) {
            if group.keys.is_empty() {
                continue;
            }
            if let Some(at) = self.ancestry.intern(group.root.as_str()) {
                self.ancestry.set_mark(at, mark);
            }
        }
    }

    /// How many subscriptions there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.groups.iter().map(|group| group.keys.len()).sum()
    }

    /// As [`ancestry`](Self::ancestry), for the questions that walk.
    #[must_use]
    pub fn ancestry_mut(&mut self) -> &mut Ancestry {
        &mut self.ancestry
    }

    /// What the wire said about who started whom.
    #[must_use]
    pub fn ancestry(&self) -> &Ancestry {
        &self.ancestry
    }

    /// The group of a root, made if need be.
    fn group_of(&mut self, root: &SessionId) -> u32 {
        // Without room for the session nothing could be routed to it: its group then has no mark.
        let at = self.ancestry.intern(root.as_str());
        if let Some(mark) = at.map(|at| self.ancestry.mark(at)).filter(|&mark| mark != NONE) {
            return mark;
        }
        let group = Group { root: root.clone(), keys: Vec::new() };
        let mark = match self.free.pop() {
            Some(mark) => {
                self.groups[mark as usize] = group;
                mark
            }
            None => {
                self.groups.push(group);
                u32::try_from(self.groups.len() - 1).unwrap_or(NONE)
            }
        };
        if let Some(at) = at {
            self.ancestry.set_mark(at, mark);
        }
        mark
    }

    /// Collects from a session upwards (T6).
    fn reach(&mut self, id: &str, cost: &mut Cost) {
        cost.lookups += 1;
        if let Some(at) = self.ancestry.find(id) {
            self.collect_upwards(at, cost);
        }
    }

    /// Collects the subscriptions whose root is this very session (T5). The last step of a walk: it does
    /// not count as a visit.
    fn reach_only(&mut self, id: &str, cost: &mut Cost) {
        cost.lookups += 1;
        if let Some(mark) = self.ancestry.find(id).and_then(|at| self.ancestry.unvisited_mark(at)) {
            cost.hops += 1;
            collect(&self.groups, mark, &mut self.matched);
        }
    }

    fn collect_upwards(&mut self, at: u32, cost: &mut Cost) {
        let Self { ancestry, groups, matched, .. } = self;
        ancestry.climb(at, |_, mark| {
            cost.hops += 1;
            collect(groups, mark, matched);
        });
    }
}

fn collect(groups: &[Group], mark: u32, matched: &mut Vec<SubscriptionKey>) {
    if let Some(group) = groups.get(mark as usize) {
        matched.extend_from_slice(&group.keys);
    }
}

#[cfg(test)]
mod tests;
