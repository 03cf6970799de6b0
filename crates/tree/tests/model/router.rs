use std::collections::{HashMap, HashSet};

use offspring_tree::{Notification, Router, SubscriptionKey};
use proptest::{prelude::*, sample::select};

use crate::{cases, session};

/// Few ids, so that histories are full of re-starts and cycles; the first is no id.
const IDS: &[&str] = &["", "a", "b", "c", "d", "e", "f", "g"];

#[derive(Debug, Clone)]
enum Step {
    Start(&'static str, &'static str),
    Finish(&'static str, &'static str),
    Session(&'static str),
    Unrouted,
    Subscribe(&'static str),
    /// Of all keys ever given out, so that ended ones are tried again.
    Unsubscribe(prop::sample::Index),
    NewProcess,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || select(IDS);
    let step = prop_oneof![
        8 => (id(), id()).prop_map(|(parent, child)| Step::Start(parent, child)),
        4 => (id(), id()).prop_map(|(parent, child)| Step::Finish(parent, child)),
        6 => id().prop_map(Step::Session),
        1 => Just(Step::Unrouted),
        3 => select(&IDS[1..]).prop_map(Step::Subscribe),
        2 => any::<prop::sample::Index>().prop_map(Step::Unsubscribe),
        1 => Just(Step::NewProcess),
    ];
    prop::collection::vec(step, 1..80)
}

/// A parent map, a list of subscriptions, and one whole walk per subscription.
#[derive(Default)]
struct Naive {
    parents: HashMap<&'static str, &'static str>,
    subscriptions: Vec<(SubscriptionKey, &'static str)>,
    invalid: u64,
    repeated: u64,
    moves: u64,
}

impl Naive {
    /// Self … root, until there is no parent or the walk comes back.
    fn upwards(&self, from: &'static str) -> Vec<&'static str> {
        let mut seen = HashSet::new();
        let mut walk = Vec::new();
        let mut at = Some(from).filter(|id| !id.is_empty());
        while let Some(id) = at.filter(|id| seen.insert(*id)) {
            walk.push(id);
            at = self.parents.get(id).copied();
        }
        walk
    }

    fn reaches(&self, from: &'static str, root: &str) -> bool {
        self.upwards(from).contains(&root)
    }

    fn start(&mut self, parent: &'static str, child: &'static str) -> bool {
        if parent.is_empty() || child.is_empty() || parent == child {
            self.invalid += 1;
            return false;
        }
        match self.parents.insert(child, parent) {
            None => {}
            Some(before) if before == parent => self.repeated += 1,
            Some(_) => self.moves += 1,
        }
        true
    }

    fn expected(&mut self, step: &Step) -> Vec<SubscriptionKey> {
        let valid = match *step {
            Step::Start(parent, child) => self.start(parent, child),
            _ => true,
        };
        let belongs = |root: &str| match *step {
            Step::Start(parent, child) if valid => self.reaches(parent, root) || child == root,
            Step::Start(parent, child) => self.reaches(parent, root) || self.reaches(child, root),
            Step::Finish(parent, child) => self.reaches(parent, root) || child == root,
            Step::Session(session) => self.reaches(session, root),
            _ => false,
        };
        self.subscriptions.iter().filter(|(_, root)| belongs(root)).map(|(key, _)| *key).collect()
    }
}

fn notification(step: &Step) -> Option<Notification<'static>> {
    Some(match *step {
        Step::Start(parent, child) => Notification::Started { parent, child },
        Step::Finish(parent, child) => Notification::Finished { parent, child },
        Step::Session(session) => Notification::Session { session },
        Step::Unrouted => Notification::Unrouted,
        Step::Subscribe(_) | Step::Unsubscribe(_) | Step::NewProcess => return None,
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn t2_t3_t4_t5_t6_t7_t8_t15_routing_agrees_with_one_whole_walk_per_subscription(steps in steps()) {
        let mut router = Router::default();
        let mut naive = Naive::default();
        let mut issued = Vec::new();
        for step in steps {
            if let Some(notification) = notification(&step) {
                let mut expected = naive.expected(&step);
                let route = router.route(notification);
                let mut matched = route.matched().to_vec();
                prop_assert_eq!(route.is_unmatched(), expected.is_empty());
                prop_assert_eq!(route.cost().deliveries, matched.len() as u64);
                prop_assert!(route.cost().lookups <= 2);
                prop_assert!(route.cost().hops < IDS.len() as u64);
                matched.sort();
                expected.sort();
                // Sorted lists, not sets: a subscription that matched twice would show.
                prop_assert_eq!(matched, expected);
            }
            match step {
                Step::Subscribe(root) => {
                    let key = router.subscribe(&session(root));
                    prop_assert!(!issued.contains(&key));
                    issued.push(key);
                    naive.subscriptions.push((key, root));
                }
                Step::Unsubscribe(of) if !issued.is_empty() => {
                    let key = *of.get(&issued);
                    let before = naive.subscriptions.len();
                    naive.subscriptions.retain(|(other, _)| *other != key);
                    prop_assert_eq!(router.unsubscribe(key), naive.subscriptions.len() < before);
                }
                Step::NewProcess => {
                    router.clear();
                    naive.parents.clear();
                }
                _ => {}
            }
            prop_assert_eq!(router.subscriptions(), naive.subscriptions.len());
        }
        let diagnostics = router.ancestry().diagnostics();
        prop_assert_eq!(diagnostics.invalid_starts, naive.invalid);
        prop_assert_eq!(diagnostics.repeated_starts, naive.repeated);
        prop_assert_eq!(diagnostics.moves, naive.moves);
    }

    #[test]
    fn t7_t14_every_path_is_the_walk_up_turned_round_and_stops_before_a_repeat(steps in steps()) {
        let mut router = Router::default();
        let mut naive = Naive::default();
        for step in steps {
            naive.expected(&step);
            if let Some(notification) = notification(&step) {
                router.route(notification);
            }
            if matches!(step, Step::NewProcess) {
                router.clear();
                naive.parents.clear();
            }
            for id in IDS {
                let mut walk: Vec<_> = naive.upwards(id).into_iter().map(session).collect();
                walk.reverse();
                prop_assert_eq!(router.path(id), walk);
                let parent = naive.parents.get(id).map(|parent| session(parent));
                prop_assert_eq!(router.ancestry().parent(id), parent.as_ref());
            }
        }
    }
}
