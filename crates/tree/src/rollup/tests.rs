use super::*;

fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn message(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

/// r > a, r > b > c, and a foreign root x.
fn tree() -> SessionTree {
    let mut tree = SessionTree::default();
    for (child, parent) in [("r", None), ("a", Some("r")), ("b", Some("r")), ("c", Some("b")), ("x", None)] {
        tree.insert(id(child), parent.map(id).as_ref()).unwrap();
    }
    tree
}

#[test]
fn o16_own_and_subtree_count_failed_and_cancelled_children_and_a_replay_changes_nothing() {
    let tree = tree();
    let mut rollup = Rollup::default();
    // b failed and c was cancelled: the roll-up has no way to leave them out.
    let log = [("r", "m1", 100), ("a", "m2", 10), ("b", "m3", 20), ("c", "m4", 5), ("x", "m5", 9)];
    for (counted, times) in [(Counted::New, 1), (Counted::AlreadyCounted, 2)] {
        for (session, m, tokens) in log {
            assert_eq!(rollup.record(&id(session), &message(m), Usage::message(tokens, 0)), counted);
        }
        let total = |usage: Usage| usage.total_tokens();
        assert_eq!(total(rollup.own(&id("r"))), 100, "pass {times}");
        assert_eq!(total(rollup.subtree(&tree, &id("r"))), 135);
        assert_eq!(total(rollup.subtree(&tree, &id("b"))), 25);
        assert_eq!(rollup.subtree(&tree, &id("r")).messages, 4);
        let sum: u64 = ["r", "a", "b", "c"].map(|s| total(rollup.own(&id(s)))).iter().sum();
        assert_eq!(sum, 135);
    }
}

#[test]
fn l15_each_message_counts_once_per_session() {
    let mut rollup = Rollup::default();
    assert_eq!(rollup.record(&id("r"), &message("m"), Usage::message(1, 2)), Counted::New);
    // The first report stands, and the same id in another session is another message.
    assert_eq!(rollup.record(&id("r"), &message("m"), Usage::message(50, 50)), Counted::AlreadyCounted);
    assert_eq!(rollup.record(&id("a"), &message("m"), Usage::message(3, 4)), Counted::New);
    assert_eq!(rollup.own(&id("r")), Usage::message(1, 2));
    assert_eq!(rollup.own(&id("a")), Usage::message(3, 4));
    assert_eq!(rollup.own(&id("nobody")), Usage::default());
}

#[test]
fn l15_an_unknown_price_stays_unknown() {
    let tree = tree();
    let mut rollup = Rollup::default();
    let priced = Usage { cost_micro_usd: Some(7), ..Usage::message(1, 1) };
    rollup.record(&id("r"), &message("m1"), priced);
    rollup.record(&id("a"), &message("m2"), priced);
    assert_eq!(rollup.subtree(&tree, &id("r")).cost_micro_usd, Some(14));
    // A report that does not count itself is still one message, so its unknown price is not lost.
    rollup.record(&id("c"), &message("m3"), Usage { messages: 0, ..Usage::message(1, 1) });
    assert_eq!(rollup.subtree(&tree, &id("r")).cost_micro_usd, None);
    assert_eq!(rollup.subtree(&tree, &id("r")).messages, 3);
    assert_eq!(rollup.own(&id("r")).cost_micro_usd, Some(7));
    // A report that stands for several messages says so.
    rollup.record(&id("x"), &message("m4"), Usage { messages: 3, ..priced });
    assert_eq!(rollup.own(&id("x")).messages, 3);
}

#[test]
fn l15_a_forgotten_session_is_counted_anew() {
    let mut rollup = Rollup::default();
    rollup.record(&id("r"), &message("m"), Usage::message(1, 2));
    rollup.forget(&id("r"));
    assert_eq!(rollup.own(&id("r")), Usage::default());
    assert_eq!(rollup.record(&id("r"), &message("m"), Usage::message(1, 2)), Counted::New);
}

#[test]
fn l15_a_session_outside_the_tree_has_only_its_own() {
    let mut rollup = Rollup::default();
    rollup.record(&id("r"), &message("m"), Usage::message(1, 2));
    assert_eq!(rollup.subtree(&SessionTree::default(), &id("r")), Usage::message(1, 2));
}
