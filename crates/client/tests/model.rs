//! Random wires to a client and to a naive model of the rules.

use std::cell::Cell;

use crate::naive::{self, Played, Step};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

/// T2–T7, T9, T10, T12 and T13: each listener got what the model says, in the order of the wire, and so did the queue
/// of what is nobody's; each turn ended where, and with what, the model says.
#[test]
fn t2_t3_t4_t5_t6_t7_t9_t10_t12_t13_every_wire_is_what_a_naive_model_makes_of_it() {
    let all = Cell::new(Played::default());
    let wires = prop::collection::vec([any::<u8>(), any::<u8>(), any::<u8>()], 10..90)
        .prop_map(|pieces| Step::read(&pieces.concat()));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(384) });
    let outcome = runner.run(&wires, |steps| {
        let (one, sum) = (naive::play(&steps), all.get());
        all.set(Played {
            root_turns: sum.root_turns + one.root_turns,
            tree_turns: sum.tree_turns + one.tree_turns,
            open_turns: sum.open_turns + one.open_turns,
            unmatched: sum.unmatched + one.unmatched,
            delivered: sum.delivered + one.delivered,
            cycles: sum.cycles + one.cycles,
        });
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
    // Fewer of anything would be a smaller test than its name says.
    let Played { root_turns, tree_turns, open_turns, unmatched, delivered, cycles } = all.get();
    let least = [root_turns, tree_turns, open_turns, unmatched / 10, delivered / 10, cycles];
    assert!(least.iter().all(|count| *count >= 15), "{:?}", all.get());
}

#[test]
fn t13_a_tree_comes_to_rest_when_the_last_at_work_is_moved_away() {
    let steps = [
        Step::Subscribe(1),
        Step::Prompt { root: 1, tree: true },
        Step::Receipt(1, 0),
        Step::Answer(0),
        Step::Started(1, 2),
        Step::Started(2, 3),
        Step::Text(3),
        Step::Text(1),
        Step::TurnEnd(1),
        Step::Status(1, true),
        Step::Finished(2, 3),
        Step::Finished(1, 2),
        Step::Prompt { root: 1, tree: false },
        Step::Answer(0),
        Step::Receipt(1, 1),
        Step::Text(2),
        Step::Status(1, true),
        Step::Prompt { root: 1, tree: true },
        Step::Answer(0),
        Step::Receipt(1, 2),
        Step::Status(3, false),
        Step::Status(1, true),
        Step::Started(4, 3),
        Step::Unrouted,
    ];
    let played = naive::play(&steps);
    assert_eq!((played.tree_turns, played.root_turns, played.open_turns), (2, 1, 0));
}
