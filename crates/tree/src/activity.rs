//! What of a peer's sessions is still at work, by what its wire says.

use std::collections::HashSet;

use offspring_protocol::{SessionId, SessionState};

use crate::Ancestry;

/// Which sessions of a peer are at work, for a runtime that cannot be asked when a tree is at rest.
///
/// A session is at work from its start to its finish (each start opens a run, also of a child that had
/// finished), and while its status is running. A finish settles the child it names under the parent it
/// names, and no other (rule T4): a child that was moved to another parent meanwhile is still at work there.
///
/// Holds one entry per session at work, nothing of the others. It is fed after the [`Ancestry`] it is asked
/// with, in the order of the wire (rule T9).
///
/// ```
/// use offspring_protocol::{SessionId, SessionState};
/// use offspring_tree::{Activity, Ancestry};
///
/// let [root, child] = ["r", "c"].map(|id| SessionId::new(id).unwrap());
/// let (mut ancestry, mut activity) = (Ancestry::default(), Activity::default());
/// activity.status(&root, SessionState::Running);
/// ancestry.start("r", "c")?;
/// activity.started(&root, &child);
/// activity.status(&root, SessionState::Idle);
/// assert_eq!(activity.open_within(&root, &mut ancestry), [child.clone()]);
/// activity.finished(&root, &child);
/// assert!(activity.is_at_rest(&root, &mut ancestry));
/// # Ok::<(), offspring_tree::ancestry::InvalidStart>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// Started and not finished: parent and child, as the start named them.
    open: HashSet<(SessionId, SessionId)>,
    running: HashSet<SessionId>,
}

impl Activity {
    /// The wire says that `parent` started `child`. Repeated while the child is at work it changes nothing.
    pub fn started(&mut self, parent: &SessionId, child: &SessionId) {
        self.open.insert((parent.clone(), child.clone()));
    }

    /// The wire says that the child that `parent` had started finished. One that was never started changes
    /// nothing.
    pub fn finished(&mut self, parent: &SessionId, child: &SessionId) {
        let ended = self.open.remove(&(parent.clone(), child.clone()));
        // Its idle comes before its finish; a peer that leaves it out means it all the same.
        if ended && !self.open.iter().any(|(_, other)| other == child) {
            self.running.remove(child);
        }
    }

    /// The wire says what a session is now.
    pub fn status(&mut self, session: &SessionId, status: SessionState) {
        match status {
            SessionState::Running => _ = self.running.insert(session.clone()),
            SessionState::Idle => _ = self.running.remove(session),
        }
    }

    /// Whether the session is idle and nothing below it is at work.
    #[must_use]
    pub fn is_at_rest(&self, root: &SessionId, ancestry: &mut Ancestry) -> bool {
        !self.running.contains(root)
            && !self.open.iter().any(|(parent, _)| ancestry.is_within(parent.as_str(), root))
            && !self.running.iter().any(|session| ancestry.is_within(session.as_str(), root))
    }

    /// The sessions at work that are the root or below it, by their ids.
    #[must_use]
    pub fn open_within(&self, root: &SessionId, ancestry: &mut Ancestry) -> Vec<SessionId> {
        let started = self.open.iter().filter(|(parent, _)| ancestry.is_within(parent.as_str(), root));
        let mut open: HashSet<SessionId> = started.map(|(_, child)| child.clone()).collect();
        open.extend(
            self.running.iter().filter(|session| ancestry.is_within(session.as_str(), root)).cloned(),
        );
        let mut open: Vec<SessionId> = open.into_iter().collect();
        open.sort_unstable();
        open
    }

    /// Everything at work, by its ids: what a runtime that died leaves behind.
    #[must_use]
    pub fn open(&self) -> Vec<SessionId> {
        let started = self.open.iter().map(|(_, child)| child);
        let all: HashSet<&SessionId> = started.chain(&self.running).collect();
        let mut open: Vec<SessionId> = all.into_iter().cloned().collect();
        open.sort_unstable();
        open
    }

    /// Whether a session is at work.
    #[must_use]
    pub fn is_open(&self, session: &SessionId) -> bool {
        self.running.contains(session) || self.open.iter().any(|(_, child)| child == session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    struct World {
        ancestry: Ancestry,
        activity: Activity,
    }

    impl World {
        fn new() -> Self {
            Self { ancestry: Ancestry::default(), activity: Activity::default() }
        }

        fn started(&mut self, parent: &str, child: &str) {
            self.ancestry.start(parent, child).unwrap();
            self.activity.started(&id(parent), &id(child));
        }

        fn finished(&mut self, parent: &str, child: &str) {
            self.activity.finished(&id(parent), &id(child));
        }

        fn open(&mut self, root: &str) -> Vec<String> {
            let open = self.activity.open_within(&id(root), &mut self.ancestry);
            assert_eq!(open.is_empty(), self.activity.is_at_rest(&id(root), &mut self.ancestry));
            open.iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn t4_a_late_finish_settles_the_run_under_the_parent_it_names() {
        let mut world = World::new();
        world.started("a", "c");
        world.started("b", "c");
        assert_eq!((world.open("a"), world.open("b")), (vec!["c".to_owned()], vec!["c".to_owned()]));
        world.finished("a", "c");
        assert_eq!((world.open("a"), world.open("b")), (vec![], vec!["c".to_owned()]));
        world.finished("b", "c");
        assert_eq!(world.open("b"), Vec::<String>::new());
    }

    #[test]
    fn a_child_that_is_started_again_is_at_work_again() {
        let mut world = World::new();
        world.started("r", "c");
        world.finished("r", "c");
        world.finished("r", "c");
        assert!(world.open("r").is_empty());
        world.started("r", "c");
        world.started("r", "c");
        assert_eq!(world.open("r"), ["c"]);
        world.finished("r", "c");
        assert!(world.open("r").is_empty());
    }

    #[test]
    fn a_finish_counts_as_the_idle_that_was_left_out_and_a_later_running_counts_again() {
        let mut world = World::new();
        world.started("r", "c");
        world.activity.status(&id("c"), SessionState::Running);
        world.finished("r", "c");
        assert!(world.open("r").is_empty());
        world.activity.status(&id("c"), SessionState::Running);
        assert_eq!(world.open("r"), ["c"]);
        assert!(world.activity.is_open(&id("c")) && !world.activity.is_open(&id("r")));
        assert_eq!(world.activity.open(), [id("c")]);
    }

    #[test]
    fn t7_a_cycle_of_starts_is_counted_once_and_ends() {
        let mut world = World::new();
        world.started("a", "b");
        world.started("b", "a");
        assert_eq!(
            (world.open("a"), world.open("b")),
            (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
        );
        world.finished("a", "b");
        world.finished("b", "a");
        assert!(world.open("a").is_empty() && world.open("b").is_empty());
    }

    #[test]
    fn what_is_at_work_elsewhere_is_no_concern_of_a_root() {
        let mut world = World::new();
        world.started("other", "x");
        world.activity.status(&id("other"), SessionState::Running);
        assert!(world.open("r").is_empty());
        assert_eq!(world.open("other"), ["other", "x"]);
    }
}
