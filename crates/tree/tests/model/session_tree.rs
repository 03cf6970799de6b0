use std::collections::HashMap;

use offspring_protocol::SessionId;
use offspring_tree::{
    SessionTree,
    session_tree::{InsertError, Inserted},
};
use proptest::prelude::*;

use crate::{cases, session};

const SESSIONS: usize = 9;

#[derive(Debug, Clone)]
enum Step {
    Insert(usize, Option<usize>),
    Remove(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..SESSIONS, prop::option::weighted(0.85, 0..SESSIONS))
            .prop_map(|(id, parent)| Step::Insert(id, parent)),
        1 => (0..SESSIONS).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..40)
}

fn id(n: usize) -> SessionId {
    session(&format!("s{n}"))
}

/// Who is there in the order of insertion, with the parent as given and whether it was known then.
#[derive(Default)]
struct Naive {
    rows: Vec<(usize, Option<usize>, bool)>,
}

impl Naive {
    fn row(&self, n: usize) -> Option<(Option<usize>, bool)> {
        self.rows.iter().find(|row| row.0 == n).map(|row| (row.1, row.2))
    }

    fn parent(&self, n: usize) -> Option<usize> {
        let (parent, known) = self.row(n)?;
        parent.filter(|_| known)
    }

    fn path(&self, n: usize) -> Vec<usize> {
        let mut path = self.parent(n).map_or_else(Vec::new, |parent| self.path(parent));
        path.push(n);
        path
    }

    fn depth(&self, n: usize) -> u32 {
        match self.row(n) {
            Some((Some(parent), true)) => self.depth(parent) + 1,
            Some((Some(_), false)) => 1,
            _ => 0,
        }
    }

    fn children(&self, n: usize) -> Vec<usize> {
        self.rows.iter().map(|row| row.0).filter(|&child| self.parent(child) == Some(n)).collect()
    }

    fn descendants(&self, n: usize) -> Vec<usize> {
        let below = |child| [vec![child], self.descendants(child)].concat();
        self.children(n).into_iter().flat_map(below).collect()
    }

    fn leaves_first(&self, n: usize) -> Vec<usize> {
        let mut order: Vec<_> = self.children(n).into_iter().flat_map(|c| self.leaves_first(c)).collect();
        order.push(n);
        order
    }

    fn insert(&mut self, n: usize, parent: Option<usize>) -> Result<Inserted, InsertError> {
        if self.row(n).is_some() {
            return Err(InsertError::Taken { id: id(n), root: id(self.path(n)[0]) });
        }
        if parent == Some(n) {
            return Err(InsertError::OwnParent { id: id(n) });
        }
        let known = parent.is_some_and(|parent| self.row(parent).is_some());
        self.rows.push((n, parent, known));
        Ok(Inserted { depth: self.depth(n), parent_known: known || parent.is_none() })
    }
}

fn ids(numbers: Vec<usize>) -> Vec<SessionId> {
    numbers.into_iter().map(id).collect()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn l3_l4_t14_the_tree_agrees_with_a_list_of_rows(steps in steps()) {
        let mut tree = SessionTree::default();
        let mut naive = Naive::default();
        for step in steps {
            match step {
                Step::Insert(n, parent) => {
                    let parent_id = parent.map(id);
                    prop_assert_eq!(tree.insert(id(n), parent_id.as_ref()), naive.insert(n, parent));
                }
                Step::Remove(n) if naive.row(n).is_some() => {
                    let doomed = naive.leaves_first(n);
                    naive.rows.retain(|row| !doomed.contains(&row.0));
                    prop_assert_eq!(tree.remove_subtree(&id(n)), ids(doomed));
                }
                Step::Remove(n) => prop_assert_eq!(tree.remove_subtree(&id(n)), []),
            }
            prop_assert_eq!(tree.len(), naive.rows.len());
            prop_assert_eq!(tree.is_empty(), naive.rows.is_empty());
            let roots = naive.rows.iter().map(|row| row.0).filter(|&n| naive.parent(n).is_none());
            prop_assert_eq!(tree.roots().cloned().collect::<Vec<_>>(), ids(roots.collect()));
            for n in 0..SESSIONS {
                let there = naive.row(n);
                let this = id(n);
                prop_assert_eq!(tree.contains(&this), there.is_some());
                prop_assert_eq!(tree.depth(&this), there.map(|_| naive.depth(n)));
                prop_assert_eq!(tree.parent(&this).cloned(), naive.parent(n).map(id));
                prop_assert_eq!(tree.parent_as_given(&this).cloned(), there.and_then(|row| row.0).map(id));
                prop_assert_eq!(tree.path(&this), there.map(|_| ids(naive.path(n))));
                prop_assert_eq!(tree.root(&this).cloned(), there.map(|_| id(naive.path(n)[0])));
                prop_assert_eq!(tree.children(&this).cloned().collect::<Vec<_>>(), ids(naive.children(n)));
                let below = tree.descendants(&this).cloned().collect::<Vec<_>>();
                prop_assert_eq!(below, ids(naive.descendants(n)));
                let leaves_first = there.map_or_else(Vec::new, |_| naive.leaves_first(n));
                prop_assert_eq!(tree.leaves_first(&this), ids(leaves_first));
                let mut above = there.map_or_else(Vec::new, |_| naive.path(n));
                for top in 0..SESSIONS {
                    prop_assert_eq!(tree.is_within(&this, &id(top)), above.contains(&top));
                }
                above.pop();
                above.reverse();
                prop_assert_eq!(tree.ancestors(&this).cloned().collect::<Vec<_>>(), ids(above));
            }
        }
    }

    #[test]
    fn l14_leaves_first_puts_every_session_after_all_it_has_below(parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40)) {
        let mut tree = SessionTree::default();
        tree.insert(id(0), None).unwrap();
        for (n, parent) in parents.iter().enumerate() {
            tree.insert(id(n + 1), Some(&id(parent.index(n + 1)))).unwrap();
        }
        let order = tree.leaves_first(&id(0));
        let place: HashMap<_, _> = order.iter().enumerate().map(|(place, id)| (id.clone(), place)).collect();
        prop_assert_eq!(place.len(), tree.len());
        for session in &order {
            for below in tree.descendants(session) {
                prop_assert!(place[below] < place[session]);
            }
        }
    }
}
