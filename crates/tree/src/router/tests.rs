use super::*;

fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn started<'a>(parent: &'a str, child: &'a str) -> Notification<'a> {
    Notification::Started { parent, child }
}

fn finished<'a>(parent: &'a str, child: &'a str) -> Notification<'a> {
    Notification::Finished { parent, child }
}

fn session(session: &str) -> Notification<'_> {
    Notification::Session { session }
}

/// A router with these edges, `parent>child` separated by spaces.
fn router(edges: &str) -> Router {
    let mut router = Router::default();
    for (parent, child) in edges.split(' ').filter_map(|edge| edge.split_once('>')) {
        assert!(matches!(router.route(started(parent, child)).edge(), Some(Ok(_))));
    }
    router
}

#[test]
fn t2_the_edge_is_recorded_before_the_start_is_delivered() {
    let mut router = Router::default();
    let [r, a, b] = ["r", "a", "b"].map(|root| router.subscribe(&id(root)));
    let route = router.route(started("r", "a"));
    assert_eq!((route.matched(), route.edge()), (&[a, r][..], Some(&Ok(EdgeChange::New))));
    // The start of a grandchild is attributed to the root by the edge it brings itself.
    assert_eq!(router.route(started("a", "b")).matched(), [b, a, r]);
    assert_eq!(router.route(session("b")).edge(), None);
}

#[test]
fn t2_an_invalid_start_is_delivered_to_whoever_its_ids_reach() {
    let mut router = router("r>a a>b");
    let [r, b] = ["r", "b"].map(|root| router.subscribe(&id(root)));
    let before = router.ancestry().len();
    let route = router.route(started("", "b"));
    assert_eq!((route.matched(), route.edge()), (&[b, r][..], Some(&Err(InvalidStart::EmptyParent))));
    assert_eq!(router.route(started("a", "")).matched(), [r]);
    let own = router.route(started("b", "b"));
    assert_eq!((own.matched(), own.edge()), (&[b, r][..], Some(&Err(InvalidStart::OwnParent))));
    assert!(router.route(started("", "stranger")).is_unmatched());
    assert!(router.route(started("", "")).is_unmatched());
    assert_eq!(router.ancestry().len(), before);
    assert_eq!(router.ancestry().diagnostics().invalid_starts, 5);
    assert_eq!(router.ancestry().parent("b"), Some(&id("a")));
}

#[test]
fn t3_a_reused_child_moves_from_that_notification_on() {
    let mut router = router("r>c s>d c>e");
    let [r, s] = ["r", "s"].map(|root| router.subscribe(&id(root)));
    assert_eq!(router.route(session("c")).matched(), [r]);
    let route = router.route(started("d", "c"));
    assert_eq!((route.matched(), route.edge()), (&[s][..], Some(&Ok(EdgeChange::Moved { from: id("r") }))));
    // What stands below it moves with it.
    assert_eq!(router.route(session("e")).matched(), [s]);
}

#[test]
fn t4_a_finish_routes_by_the_parent_it_carries_and_moves_nothing() {
    let mut router = router("r>c s>c");
    let [r, s] = ["r", "s"].map(|root| router.subscribe(&id(root)));
    // The older run of c settles late: its old tree hears of it, the new holder of the id is not displaced.
    let late = router.route(finished("r", "c"));
    assert_eq!((late.matched(), late.edge()), (&[r][..], None));
    assert_eq!(router.ancestry().parent("c"), Some(&id("s")));
    assert_eq!(router.route(session("c")).matched(), [s]);
    assert_eq!(router.route(finished("s", "c")).matched(), [s]);
    // A finish of sessions nobody started makes none.
    let before = router.ancestry().len();
    assert!(router.route(finished("p", "q")).is_unmatched());
    assert!(router.route(finished("", "")).is_unmatched());
    assert_eq!(router.ancestry().len(), before);
}

#[test]
fn t5_lifecycle_also_reaches_a_subscription_to_the_child_it_names() {
    let mut router = router("r>c s>c c>d");
    let [r, c, d] = ["r", "c", "d"].map(|root| router.subscribe(&id(root)));
    assert_eq!(router.route(started("r", "c")).matched(), [c, r]);
    assert_eq!(router.route(finished("r", "c")).matched(), [r, c]);
    assert_eq!(router.route(finished("", "c")).matched(), [c]);
    assert_eq!(router.route(finished("unknown", "d")).matched(), [d]);
    // Only the child itself: what is above it now is reached by the parent it carries alone (T4).
    router.route(started("s", "c"));
    assert_eq!(router.route(finished("unknown", "d")).matched(), [d]);
}

#[test]
fn t6_any_other_notification_belongs_to_each_root_on_the_path_of_its_session() {
    let mut router = router("r>a a>b b>c s>x");
    let [r, b, s, c] = ["r", "b", "s", "c"].map(|root| router.subscribe(&id(root)));
    assert_eq!(router.route(session("c")).matched(), [c, b, r]);
    assert_eq!(router.route(session("b")).matched(), [b, r]);
    assert_eq!(router.route(session("r")).matched(), [r]);
    assert_eq!(router.route(session("x")).matched(), [s]);
}

#[test]
fn t7_on_a_cycle_each_subscription_matches_once() {
    let mut router = router("a>b b>c c>a");
    let [a, b, c] = ["a", "b", "c"].map(|root| router.subscribe(&id(root)));
    assert_eq!(router.route(session("a")).matched(), [a, c, b]);
    assert_eq!(router.route(finished("a", "b")).matched(), [a, c, b]);
    assert_eq!(router.route(started("a", "b")).matched(), [b, a, c]);
    assert_eq!(router.route(started("", "b")).matched(), [b, a, c]);
    assert_eq!(router.route(finished("a", "b")).cost().hops, 3);
}

#[test]
fn t8_edges_outlive_subscriptions_and_end_with_the_process() {
    let mut router = router("r>a a>b");
    let first = router.subscribe(&id("r"));
    assert!(router.unsubscribe(first));
    assert!(router.route(session("b")).is_unmatched());
    // A descendant that still talks during a later turn is still attributed.
    let later = router.subscribe(&id("r"));
    assert_ne!(first, later);
    assert_eq!(router.route(session("b")).matched(), [later]);

    let other = router.subscribe(&id("s"));
    let gone = router.subscribe(&id("t"));
    router.unsubscribe(gone);
    router.clear();
    assert!(router.route(session("b")).is_unmatched());
    assert_eq!(router.route(session("r")).matched(), [later]);
    assert_eq!(router.route(started("s", "b")).matched(), [other]);
    // A root whose subscription had ended is not brought back.
    assert_eq!(router.ancestry().len(), 3);
    assert!(router.unsubscribe(later));
    assert!(router.route(session("r")).is_unmatched());
}

#[test]
fn t10_what_matches_none_is_told_apart() {
    let mut router = router("r>a");
    assert!(router.route(session("a")).is_unmatched());
    let r = router.subscribe(&id("r"));
    assert!(!router.route(session("a")).is_unmatched());
    assert!(router.route(Notification::Unrouted).is_unmatched());
    assert!(router.route(session("")).is_unmatched());
    assert!(router.unsubscribe(r));
    assert!(router.route(session("a")).is_unmatched());
}

#[test]
fn t14_o2_a_subscriber_that_comes_late_gets_the_whole_path() {
    let mut router = router("r>a a>b");
    let late = router.subscribe(&id("r"));
    assert_eq!(router.route(session("b")).matched(), [late]);
    assert_eq!(router.path("b"), [id("r"), id("a"), id("b")]);
}

#[test]
fn o1_error_and_permission_of_a_grandchild_reach_the_root_with_its_path() {
    let mut router = router("r>a a>b");
    let [r, a] = ["r", "a"].map(|root| router.subscribe(&id(root)));
    for _ in ["error", "permission"] {
        assert_eq!(router.route(session("b")).matched(), [a, r]);
        assert_eq!(router.path("b").len(), 3);
    }
}

#[test]
fn each_subscription_ends_alone_and_once() {
    let mut router = router("r>a");
    let [one, two, three] = [(); 3].map(|()| router.subscribe(&id("r")));
    assert_eq!(router.subscriptions(), 3);
    assert_eq!(router.route(session("a")).matched(), [one, two, three]);
    assert!(router.unsubscribe(two));
    assert!(!router.unsubscribe(two));
    assert_eq!(router.route(session("a")).matched(), [one, three]);
    assert!(router.unsubscribe(one) && router.unsubscribe(three));
    assert_eq!(router.subscriptions(), 0);
    // The freed place is used again, and the old keys do not name what stands there now.
    let [s, a] = ["s", "a"].map(|root| router.subscribe(&id(root)));
    assert_eq!(router.groups.len(), 2);
    assert!(!router.unsubscribe(one) && !router.unsubscribe(three));
    assert!(router.route(session("r")).is_unmatched());
    assert_eq!(router.route(session("s")).matched(), [s]);
    assert_eq!(router.route(session("a")).matched(), [a]);
}

#[test]
fn t15_one_step_costs_the_depth_of_the_session_and_nothing_else() {
    /// A tree of `sessions` in which one chain has depth 10, with a tenth of them subscribed to.
    fn costs(sessions: usize) -> [Cost; 5] {
        let mut router = Router::default();
        let root = router.subscribe(&id("0"));
        for n in 1..10 {
            router.route(started(&(n - 1).to_string(), &n.to_string()));
        }
        for n in 10..sessions {
            let child = n.to_string();
            router.route(started(&(n % 9).to_string(), &child));
            if n % 10 == 0 {
                router.subscribe(&id(&child));
            }
        }
        assert_eq!(router.route(session("9")).matched(), [root]);
        [session("9"), started("8", "9"), finished("8", "9"), finished("0", "9"), started("", "9")]
            .map(|notification| router.route(notification).cost())
    }
    let few = costs(10);
    assert_eq!(few[0], Cost { lookups: 1, hops: 10, deliveries: 1 });
    assert_eq!(few[1], Cost { lookups: 2, hops: 10, deliveries: 1 });
    assert_eq!(few[2], Cost { lookups: 2, hops: 10, deliveries: 1 });
    assert_eq!(few[3], Cost { lookups: 2, hops: 2, deliveries: 1 });
    assert_eq!(few[4], Cost { lookups: 2, hops: 10, deliveries: 1 });
    assert_eq!(few[0].total(), 12);
    assert_eq!(costs(1_000), few);
    assert_eq!(costs(100_000), few);
}
