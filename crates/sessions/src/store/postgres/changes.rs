//! Who waits for commits, of any tree or of one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use offspring_protocol::SessionId;
use tokio::sync::watch;

/// From so many trees on that somebody waited for, those that nobody waits for any more are forgotten.
const FORGET_FROM: usize = 64;

/// Counts commits. A count is a hint to look; it says neither how many there were nor what they did.
#[derive(Debug)]
pub(super) struct Changes {
    all: watch::Sender<u64>,
    trees: Mutex<Trees>,
}

#[derive(Debug, Default)]
struct Trees {
    of: HashMap<SessionId, watch::Sender<u64>, RandomState>,
    /// How many there were after the last time some were forgotten.
    kept: usize,
}

impl Changes {
    pub(super) fn new() -> Self {
        Self { all: watch::Sender::new(0), trees: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.all.subscribe()
    }

    pub(super) fn subscribe_to(&self, root: &SessionId) -> watch::Receiver<u64> {
        let mut trees = self.lock();
        if trees.of.len() >= FORGET_FROM.max(2 * trees.kept) {
            trees.of.retain(|_, count| count.receiver_count() > 0);
            trees.kept = trees.of.len();
        }
        trees.of.entry(root.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Something of this tree was committed.
    pub(super) fn bump(&self, root: &str) {
        self.all.send_modify(|count| *count += 1);
        if let Some(count) = self.lock().of.get(root) {
            count.send_modify(|count| *count += 1);
        }
    }

    /// Something may have been committed anywhere.
    pub(super) fn bump_all(&self) {
        self.all.send_modify(|count| *count += 1);
        self.lock().of.values().for_each(|count| count.send_modify(|count| *count += 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l18_a_reader_of_one_tree_is_woken_by_it_alone_and_by_a_new_connection() {
        let changes = Changes::new();
        let id = |name: String| SessionId::new(name).unwrap();
        let (mut a, mut b, mut all) = (
            changes.subscribe_to(&id("a".into())),
            changes.subscribe_to(&id("b".into())),
            changes.subscribe(),
        );
        let mut woken = || {
            let woken = (a.has_changed().unwrap(), b.has_changed().unwrap(), all.has_changed().unwrap());
            a.mark_unchanged();
            b.mark_unchanged();
            all.mark_unchanged();
            woken
        };
        changes.bump("a");
        assert_eq!(woken(), (true, false, true));
        changes.bump("elsewhere");
        assert_eq!(woken(), (false, false, true));
        changes.bump_all();
        assert_eq!(woken(), (true, true, true));
        for number in 0..1_000 {
            changes.subscribe_to(&id(format!("tree {number}")));
        }
        assert!(changes.lock().of.len() <= FORGET_FROM, "trees that nobody waits for are kept");
        changes.bump("b");
        assert_eq!(woken(), (false, true, true));
    }
}
