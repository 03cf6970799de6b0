use std::collections::HashMap;

use offspring_protocol::{MessageId, SessionId, Usage};
use offspring_tree::{Rollup, SessionTree, rollup::Counted};
use proptest::prelude::*;

use crate::{cases, session};

const SESSIONS: usize = 8;

fn id(n: usize) -> SessionId {
    session(&n.to_string())
}

fn usage() -> impl Strategy<Value = Usage> {
    (0..1_000_u64, 0..1_000_u64, 0..100_u64, prop::option::weighted(0.9, 0..1_000_u64)).prop_map(
        |(input_tokens, output_tokens, cached_tokens, cost_micro_usd)| Usage {
            input_tokens,
            output_tokens,
            cached_tokens,
            cost_micro_usd,
            messages: 1,
        },
    )
}

/// The sum, number by number; the price is known when every part's is.
fn sum<'a>(parts: impl IntoIterator<Item = &'a Usage>) -> Usage {
    let parts: Vec<_> = parts.into_iter().collect();
    let costs: Option<Vec<_>> = parts.iter().map(|part| part.cost_micro_usd).collect();
    Usage {
        input_tokens: parts.iter().map(|part| part.input_tokens).sum(),
        output_tokens: parts.iter().map(|part| part.output_tokens).sum(),
        cached_tokens: parts.iter().map(|part| part.cached_tokens).sum(),
        cost_micro_usd: costs.filter(|costs| !costs.is_empty()).map(|costs| costs.iter().sum()),
        messages: parts.len() as u64,
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn l15_own_and_subtree_are_sums_over_distinct_messages_and_a_replay_changes_nothing(
        // The parent of session n + 1 is one of 0 … n; with no parent it is a root.
        parents in prop::collection::vec(prop::option::weighted(0.9, any::<prop::sample::Index>()), SESSIONS - 1),
        log in prop::collection::vec((0..SESSIONS, 0..10_u32, usage()), 0..60),
    ) {
        let mut tree = SessionTree::default();
        tree.insert(id(0), None).unwrap();
        let mut above = vec![None];
        for (n, parent) in parents.iter().enumerate() {
            let parent = parent.map(|parent| parent.index(n + 1));
            tree.insert(id(n + 1), parent.map(id).as_ref()).unwrap();
            above.push(parent);
        }
        let is_within = |mut n: usize, top: usize| loop {
            match above[n] {
                _ if n == top => break true,
                Some(parent) => n = parent,
                None => break false,
            }
        };

        let mut rollup = Rollup::default();
        let mut naive: HashMap<(usize, u32), Usage> = HashMap::new();
        for pass in 0..2 {
            for (n, m, usage) in &log {
                let new = !naive.contains_key(&(*n, *m));
                prop_assert!(pass == 0 || !new);
                naive.entry((*n, *m)).or_insert(*usage);
                let message = MessageId::new(format!("m{m}")).unwrap();
                let counted = rollup.record(&id(*n), &message, *usage);
                prop_assert_eq!(counted, if new { Counted::New } else { Counted::AlreadyCounted });
            }
            for top in 0..SESSIONS {
                let of = |wanted: &dyn Fn(usize) -> bool| {
                    sum(naive.iter().filter(|((n, _), _)| wanted(*n)).map(|(_, usage)| usage))
                };
                prop_assert_eq!(rollup.own(&id(top)), of(&|n| n == top));
                prop_assert_eq!(rollup.subtree(&tree, &id(top)), of(&|n| is_within(n, top)));
            }
        }
    }
}
