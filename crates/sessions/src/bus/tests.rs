use offspring_protocol::{AgentType, Event, NodeName, RawEvent, Timestamp, event::TextDelta};
use proptest::prelude::*;

use super::*;

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// A session at the end of this path.
fn info(path: &[&str]) -> Arc<SessionInfo> {
    let path: Vec<SessionId> = path.iter().map(|text| id(text)).collect();
    Arc::new(SessionInfo {
        id: path.last().unwrap().clone(),
        root: path[0].clone(),
        parent: path.len().checked_sub(2).map(|at| path[at].clone()),
        depth: u32::try_from(path.len() - 1).unwrap(),
        path: path.into(),
        agent_name: NodeName::new("n").unwrap(),
        agent_type: AgentType::Native,
        source_type: None,
    })
}

fn said(session: &Arc<SessionInfo>, seq: u64, text: &str) -> Arc<Envelope> {
    let event = RawEvent::from(&Event::TextDelta(TextDelta { text: text.to_owned() }));
    Arc::new(Envelope { seq, at: Timestamp(0), run: None, late: false, session: Arc::clone(session), event })
}

fn held(subscription: &Subscription) -> Vec<u64> {
    lock(&subscription.queue.held).envelopes.iter().map(|envelope| envelope.seq).collect()
}

#[tokio::test]
async fn t6_t9_each_scope_hears_what_belongs_to_it_in_order() {
    let bus = Arc::new(Bus::default());
    let scopes = [
        Scope::All,
        Scope::Subtree(id("r")),
        Scope::Subtree(id("a")),
        Scope::Session(id("r")),
        Scope::Session(id("b")),
        Scope::Subtree(id("other")),
    ];
    let subscriptions = scopes.map(|scope| bus.subscribe(scope, QueueLimits::default()));
    let (r, a, b) = (info(&["r"]), info(&["r", "a"]), info(&["r", "a", "b"]));
    bus.publish(&[said(&r, 1, "r"), said(&a, 2, "a"), said(&b, 3, "b")]);
    bus.publish(&[said(&info(&["q"]), 1, "q"), said(&r, 4, "r")]);
    let expected: [&[u64]; 6] = [&[1, 2, 3, 1, 4], &[1, 2, 3, 4], &[2, 3], &[1, 4], &[3], &[]];
    for (subscription, expected) in subscriptions.iter().zip(expected) {
        assert_eq!(held(subscription), expected, "{:?}", subscription.scope);
    }
}

#[tokio::test]
async fn t11_a_full_queue_gives_what_it_holds_then_tells_and_harms_nobody_else() {
    let bus = Arc::new(Bus::default());
    let mut slow = bus.subscribe(Scope::All, QueueLimits { items: 2, bytes: 1 << 20 });
    let mut well = bus.subscribe(Scope::All, QueueLimits::default());
    let r = info(&["r"]);
    for seq in 1..=5 {
        bus.publish(&[said(&r, seq, "x")]);
    }
    assert_eq!(well.recv_many().await.unwrap().unwrap().len(), 5);
    assert_eq!(slow.recv().await.unwrap().unwrap().seq, 1);
    // There is room again, and nothing is taken: a gap in the middle would look like a whole stream.
    bus.publish(&[said(&r, 6, "x")]);
    assert_eq!(slow.recv().await.unwrap().unwrap().seq, 2);
    assert_eq!(slow.recv().await.unwrap_err(), Lagged { missed: 4 });
    assert_eq!(slow.recv_many().await.unwrap_err(), Lagged { missed: 4 });
    assert_eq!(well.recv().await.unwrap().unwrap().seq, 6);
}

#[tokio::test]
async fn t11_a_queue_is_bounded_by_bytes_but_for_one_envelope() {
    let bus = Arc::new(Bus::default());
    let mut subscription = bus.subscribe(Scope::All, QueueLimits { items: 100, bytes: 1_000 });
    let r = info(&["r"]);
    bus.publish(&[said(&r, 1, &"x".repeat(5_000)), said(&r, 2, "x")]);
    assert_eq!(held(&subscription), [1], "one that is larger than the queue still gets through alone");
    subscription.recv().await.unwrap();
    assert_eq!(lock(&subscription.queue.held).bytes, 0);
    assert_eq!(subscription.recv().await.unwrap_err().missed, 1);
}

#[tokio::test]
async fn t11_a_dropped_subscription_leaves_nothing_behind() {
    let bus = Arc::new(Bus::default());
    let kept = bus.subscribe(Scope::Subtree(id("r")), QueueLimits::default());
    for scope in [Scope::All, Scope::Subtree(id("r")), Scope::Session(id("r"))] {
        drop(bus.subscribe(scope, QueueLimits::default()));
    }
    let (all, session, subtree) = {
        let routes = lock(&bus.routes);
        (routes.all.len(), routes.session.len(), routes.subtree[&id("r")].len())
    };
    assert_eq!((all, session, subtree), (0, 0, 1));
    drop(kept);
    assert!(lock(&bus.routes).subtree.is_empty());
}

#[tokio::test]
async fn l14_a_closed_bus_gives_what_it_holds_and_ends_also_for_whoever_comes_later() {
    let bus = Arc::new(Bus::default());
    let mut before = bus.subscribe(Scope::All, QueueLimits::default());
    bus.publish(&[said(&info(&["r"]), 1, "x")]);
    bus.close();
    bus.close();
    assert_eq!(before.recv().await.unwrap().unwrap().seq, 1);
    assert!(before.recv().await.unwrap().is_none());
    assert!(bus.subscribe(Scope::All, QueueLimits::default()).recv().await.unwrap().is_none());
}

#[tokio::test]
async fn a_waiting_subscriber_is_woken_by_one_publish() {
    let bus = Arc::new(Bus::default());
    let mut subscription = bus.subscribe(Scope::All, QueueLimits::default());
    let waits = tokio::spawn(async move { subscription.recv().await.unwrap().unwrap().seq });
    tokio::task::yield_now().await;
    bus.publish(&[said(&info(&["r"]), 1, "x")]);
    assert_eq!(waits.await.unwrap(), 1);
}

/// What one event of depth 3 costs in a forest of `sessions` sessions, each heard by somebody.
fn cost_among(sessions: usize) -> RoutingCost {
    let bus = Arc::new(Bus::default());
    let few = QueueLimits { items: 1, bytes: 1 };
    let forest: Vec<Subscription> =
        (0..sessions).map(|n| bus.subscribe(Scope::Subtree(id(&format!("other{n}"))), few)).collect();
    let path = info(&["r", "a", "b", "c"]);
    let ours = [Scope::All, Scope::Subtree(id("r")), Scope::Subtree(id("b")), Scope::Session(id("c"))]
        .map(|scope| bus.subscribe(scope, few));
    bus.publish(&[said(&path, 1, "x")]);
    assert!(ours.iter().all(|subscription| held(subscription) == [1]));
    assert_eq!(forest.len(), sessions);
    bus.cost()
}

#[test]
fn t15_routing_costs_the_depth_and_never_the_number_of_sessions() {
    let costs = [10, 1_000, 100_000].map(cost_among);
    assert_eq!(costs[0], RoutingCost { lookups: 5, hops: 4, deliveries: 4 });
    assert_eq!(costs, [costs[0]; 3]);
}

#[test]
fn t15_without_a_subscriber_routing_costs_nothing() {
    let bus = Bus::default();
    bus.publish(&[said(&info(&["r", "a"]), 1, "x")]);
    assert_eq!(bus.cost(), RoutingCost::default());
}

#[derive(Debug, Clone)]
enum Step {
    Subscribe(u8, usize),
    Drop(usize),
    Publish(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u8..3, 0_usize..6).prop_map(|(how, at)| Step::Subscribe(how, at)),
        (0_usize..8).prop_map(Step::Drop),
        (0_usize..6).prop_map(Step::Publish),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Against a model that asks every subscription about every event.
    #[test]
    fn t6_t9_t15_any_history_delivers_what_a_naive_model_delivers(steps in steps(), items in 1_usize..6) {
        let sessions = [
            info(&["r"]), info(&["r", "a"]), info(&["r", "b"]), info(&["r", "a", "c"]), info(&["q"]), info(&["q", "d"]),
        ];
        let bus = Arc::new(Bus::default());
        let mut live: Vec<(Subscription, Vec<u64>, u64)> = Vec::new();
        let mut seq = 0;
        for step in steps {
            match step {
                Step::Subscribe(how, at) => {
                    let of = sessions[at].id.clone();
                    let scope = match how { 0 => Scope::All, 1 => Scope::Subtree(of), _ => Scope::Session(of) };
                    live.push((bus.subscribe(scope, QueueLimits { items, bytes: 1 << 20 }), Vec::new(), 0));
                }
                Step::Drop(at) if !live.is_empty() => drop(live.swap_remove(at % live.len())),
                Step::Drop(_) => {}
                Step::Publish(at) => {
                    seq += 1;
                    bus.publish(&[said(&sessions[at], seq, "x")]);
                    for (subscription, expected, missed) in &mut live {
                        let hears = match &subscription.scope {
                            Scope::All => true,
                            Scope::Subtree(top) => sessions[at].path.contains(top),
                            Scope::Session(id) => sessions[at].id == *id,
                        };
                        if hears && expected.len() < items {
                            expected.push(seq);
                        } else if hears {
                            *missed += 1;
                        }
                    }
                }
            }
        }
        for (subscription, expected, missed) in &live {
            prop_assert_eq!(&held(subscription), expected);
            prop_assert_eq!(lock(&subscription.queue.held).missed, *missed);
        }
    }
}
