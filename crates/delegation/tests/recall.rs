//! A root that is run again takes from its older tree what completed there, each result once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use offspring_delegation::{
    Delegator, Node, Recall, RootOptions, RootResult, Subagent, TaskError, TaskRequest, recall::TAKEN_FROM,
};
use offspring_protocol::{Event, Outcome, RunState, SessionId, SessionLimits};
use offspring_sessions::{
    Answer, CancelScope, MAX_REPEATED_BYTES, Refused, RunContext, RunError, SessionRecord,
};
use proptest::prelude::*;
use world::*;

/// What is broken, and how often an agent was at work.
#[derive(Clone, Default)]
struct Shop {
    mended: Arc<AtomicBool>,
    worked: Arc<AtomicUsize>,
}

impl Shop {
    /// Answers `<name>(<prompt>)`; of its runs those whose bit is set fail until all is mended.
    fn leaf(&self, called: &str, broken: u8) -> Node {
        let (shop, own, calls) = (self.clone(), called.to_owned(), AtomicUsize::new(0));
        Scripted::new(called, move |prompt, _cx| {
            shop.worked.fetch_add(1, Ordering::SeqCst);
            let call = calls.fetch_add(1, Ordering::SeqCst);
            let fails = !shop.mended.load(Ordering::SeqCst) && broken & (1 << (call % 8)) != 0;
            let answer = format!("{own}({})", prompt.text);
            async move { if fails { Err(RunError::failed("broken", "broken")) } else { Ok(answer.into()) } }
        })
        .node()
    }

    fn mend(&self) -> usize {
        self.mended.store(true, Ordering::SeqCst);
        self.worked.swap(0, Ordering::SeqCst)
    }

    fn worked(&self) -> usize {
        self.worked.swap(0, Ordering::SeqCst)
    }
}

/// Asks each of its nodes `times` times at once, one node after the other, and answers all they said; with
/// `strict` it fails when one of them did.
fn boss(called: &str, delegator: &Delegator, staff: Vec<Node>, times: usize, strict: bool) -> Node {
    let names: Vec<_> = staff.iter().map(|node| node.name().clone()).collect();
    staff.into_iter().for_each(|node| delegator.add(node));
    let delegator = delegator.clone();
    Scripted::new(called, move |prompt, cx| {
        let (delegator, names) = (delegator.clone(), names.clone());
        async move {
            let cx = Arc::new(cx);
            let (mut said, mut failed) = (String::new(), false);
            for name in names {
                let ask = || TaskRequest::new(name.clone(), prompt.clone());
                let subagent = Subagent::new(&delegator);
                for result in join_all((0..times).map(|_| subagent.task(&cx, ask()))).await {
                    let result = result.unwrap();
                    failed |= result.state != RunState::Ended(Outcome::Completed);
                    said.push_str(&result.output);
                }
            }
            if failed && strict { Err(RunError::failed("staff", "staff")) } else { Ok(said.into()) }
        }
    })
    .node()
}

fn taken_from(records: &[SessionRecord]) -> Vec<SessionId> {
    let noted = records.iter().filter_map(|record| record.data.metadata.get(TAKEN_FROM));
    noted.map(|from| id(from)).collect()
}

async fn again(world: &World, node: Node, prompt: &str, old: &SessionId) -> (SessionId, RootResult) {
    let recall = Recall::read(&world.manager, old).await.unwrap();
    let options = RootOptions { recall: Some(recall), ..RootOptions::default() };
    let run = world.delegator.run_root(node, prompt.into(), options).await.unwrap();
    (run.session.id.clone(), bounded(run.result).await.unwrap())
}

/// A tree to be; names are given when it is made.
#[derive(Debug, Clone)]
enum Plan {
    Leaf { name: u8, broken: u8 },
    Team(Vec<Plan>),
    Chain(Vec<Plan>),
    Boss { staff: Vec<Plan>, times: usize, strict: bool },
}

impl Plan {
    fn has_chain(&self) -> bool {
        match self {
            Self::Leaf { .. } => false,
            Self::Chain(_) => true,
            Self::Team(members) | Self::Boss { staff: members, .. } => members.iter().any(Self::has_chain),
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    // Few names, so that members are asked the same.
    let leaf = (0..2_u8, prop_oneof![3 => Just(0_u8), 1 => any::<u8>()])
        .prop_map(|(name, broken)| Plan::Leaf { name, broken });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let some = prop::collection::vec(inner, 1..4);
        prop_oneof![
            some.clone().prop_map(Plan::Team),
            some.clone().prop_map(Plan::Chain),
            (some, 1..3_usize, any::<bool>()).prop_map(|(staff, times, strict)| Plan::Boss {
                staff,
                times,
                strict
            }),
        ]
    })
}

/// Makes the nodes of a plan. Whom a boss asks by name has a name of its own.
struct Maker<'a> {
    delegator: &'a Delegator,
    shop: &'a Shop,
    made: usize,
}

impl Maker<'_> {
    fn node(&mut self, plan: &Plan, unique: bool) -> Node {
        self.made += 1;
        let own = if unique { self.made } else { 0 };
        match plan {
            Plan::Leaf { name, broken } => self.shop.leaf(&format!("leaf{name}-{own}"), *broken),
            Plan::Team(members) => team(&format!("team-{own}"), self.nodes(members, false)),
            Plan::Chain(members) => chain(&format!("chain-{own}"), self.nodes(members, false)),
            Plan::Boss { staff, times, strict } => {
                let called = format!("boss-{own}");
                boss(&called, self.delegator, self.nodes(staff, true), *times, *strict)
            }
        }
    }

    fn nodes(&mut self, plans: &[Plan], unique: bool) -> Vec<Node> {
        plans.iter().map(|plan| self.node(plan, unique)).collect()
    }
}

fn is_leaf(record: &SessionRecord) -> bool {
    record.data.agent_name.as_str().starts_with("leaf")
}

fn completed(record: &SessionRecord) -> bool {
    record.run_state() == Some(RunState::Ended(Outcome::Completed))
}

/// Runs a plan with what is broken, mends it, runs it again with what completed, and once more whole.
async fn check(plan: Plan) {
    let world = World::new();
    let shop = Shop::default();
    let node = Maker { delegator: &world.delegator, shop: &shop, made: 0 }.node(&plan, true);
    let (old, _) = world.run(node.clone(), "x").await;
    let older = world.manager.subtree(&old).await.unwrap();
    shop.mend();

    let (new, result) = again(&world, node.clone(), "x", &old).await;
    let worked = shop.worked();
    let (_, whole) = world.run(node, "x").await;
    assert_eq!((result.outcome, &result.answer), (whole.outcome, &whole.answer), "as if all had run");

    let newer = world.manager.subtree(&new).await.unwrap();
    let taken = taken_from(&newer);
    let distinct: BTreeSet<_> = taken.iter().collect();
    assert_eq!(distinct.len(), taken.len(), "each result once: {taken:?}");
    let of: BTreeMap<_, _> = older.iter().map(|record| (&record.data.id, record)).collect();
    for record in newer.iter().filter(|record| record.data.metadata.contains_key(TAKEN_FROM)) {
        let from = of[&id(&record.data.metadata[TAKEN_FROM])];
        assert!(completed(from) && completed(record));
        assert_eq!(record.data.agent_name, from.data.agent_name);
        assert_eq!(record.data.source_type, from.data.source_type);
        assert_eq!(world.descendants(&record.data.id).await.len(), 0, "nothing below it is run");
    }
    let all = shop.worked();
    let mut spared = 0;
    for from in taken {
        spared += world.manager.subtree(&from).await.unwrap().iter().filter(|record| is_leaf(record)).count();
    }
    assert_eq!(worked + spared, all, "what was taken did not run, and the rest did");
    if !plan.has_chain() {
        // Where no answer becomes a prompt, everything below the root that completed is taken.
        let below = older.iter().skip(1).filter(|record| is_leaf(record) && completed(record)).count();
        assert_eq!(spared, below);
    }
    assert!(newer.iter().all(completed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn whatever_failed_is_run_again_and_nothing_else_and_each_result_is_taken_once(plan in plan()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(plan));
    }
}

/// The sessions below a root by name, with what they were taken from.
async fn below(world: &World, root: &SessionId) -> Vec<(String, Option<SessionId>)> {
    let from = |record: &SessionRecord| record.data.metadata.get(TAKEN_FROM).map(|from| id(from));
    let records = world.descendants(root).await;
    records.iter().map(|record| (record.data.agent_name.to_string(), from(record))).collect()
}

#[tokio::test]
async fn l1_l10_a_taken_result_is_a_child_like_any_other_that_says_what_was_said_then() {
    let world = World::new();
    let shop = Shop::default();
    let node = team("t", vec![shop.leaf("a", 0), shop.leaf("broken", 1)]);
    let (old, _) = world.run(node.clone(), "x").await;
    shop.mend();
    let (new, result) = again(&world, node, "x", &old).await;
    assert_eq!(result.answer, "### a (completed)\na(x)\n### broken (completed)\nbroken(x)\n");
    let from = world.children(&old).await[0].data.id.clone();
    let child = world.children(&new).await[0].data.clone();
    assert_eq!(child.metadata[TAKEN_FROM], from.to_string());
    let log = world.log().await;
    let spawn = log.spawns().into_iter().find(|spawn| spawn.child_session_id == child.id).unwrap();
    assert_eq!(spawn.metadata[TAKEN_FROM], from.to_string(), "whoever follows knows it too");
    let started = log.starts().into_iter().find(|start| start.session_id == child.id).unwrap();
    assert_eq!(started.prompt, "x");
    let said: Vec<String> = log
        .events()
        .filter(|(envelope, _)| envelope.session.id == child.id && !envelope.late)
        .map(|(_, event)| match event {
            Event::TextDelta(delta) => delta.text,
            Event::MessageComplete(message) => message.text,
            other => other.kind().to_owned(),
        })
        .collect();
    assert_eq!(said, ["run_started", "status_changed", "a(x)", "a(x)", "stream_complete", "status_changed"]);
}

#[tokio::test]
async fn a_long_result_is_taken_whole_whether_its_message_repeats_it_or_not() {
    let world = World::new();
    let shop = Shop::default();
    let prompt = "ä€".repeat(MAX_REPEATED_BYTES / 4);
    let node = team("t", vec![shop.leaf("a", 0), shop.leaf("b", u8::MAX)]);
    let (mut root, _) = world.run(node.clone(), &prompt).await;
    // The first one's message is whole, a taken one's is not.
    for round in 0..3 {
        let child = world.children(&root).await[0].data.id.clone();
        assert_eq!(world.manager.answer(&child).await.unwrap(), Some(format!("a({prompt})")), "{round}");
        root = again(&world, node.clone(), &prompt, &root).await.0;
    }
    assert_eq!(shop.worked(), 1 + 4, "`a` once");
}

#[tokio::test]
async fn a_result_that_was_taken_before_is_its_first_owners() {
    let world = World::new();
    let shop = Shop::default();
    let node = team("t", vec![shop.leaf("a", 0), shop.leaf("b", 0b111)]);
    let (first, _) = world.run(node.clone(), "x").await;
    let owner = world.children(&first).await[0].data.id.clone();
    let (second, _) = again(&world, node.clone(), "x", &first).await;
    let (third, _) = again(&world, node, "x", &second).await;
    assert_ne!(owner, world.children(&second).await[0].data.id);
    assert_eq!(below(&world, &third).await, [("a".into(), Some(owner)), ("b".into(), None)]);
}

#[tokio::test]
async fn what_did_not_complete_or_was_cut_or_followed_up_is_run_again() {
    let world = World::new();
    let shop = Shop::default();
    let cut = Scripted::new("cut", |_, cx| async move {
        cx.left_out(1);
        Ok::<Answer, _>("head and tail".into())
    });
    let stage = Stage::new();
    let stops = plays("stops", &stage);
    let node = team("t", vec![shop.leaf("whole", 0), cut.node(), stops, shop.leaf("asked", 0)]);
    let run = world.delegator.run_root(node.clone(), "x".into(), RootOptions::default()).await.unwrap();
    stage.arrived(1).await;
    let children = world.children(&run.session.id).await;
    world.manager.cancel(&children[2].data.id, CancelScope::Subtree).await.unwrap();
    bounded(run.result).await.unwrap();
    let asked = children[3].data.id.clone();
    world.delegator.prompt_child(&asked, shop.leaf("asked", 0), "and now?".into()).await.unwrap();
    shop.worked();

    stage.let_go(1);
    let (new, result) = again(&world, node, "x", &run.session.id).await;
    assert_eq!(result.outcome, Outcome::Completed);
    let taken = [Some(children[0].data.id.clone()), None, None, None];
    let names = ["whole", "cut", "stops", "asked"].map(str::to_owned);
    assert_eq!(below(&world, &new).await, names.into_iter().zip(taken).collect::<Vec<_>>());
    assert_eq!(shop.worked(), 1, "`asked` alone");
}

/// Does this with a delegator and fails, so that it is run again.
fn fails_after<F: Future<Output = ()> + Send + 'static>(
    delegator: &Delegator,
    work: impl Fn(Delegator, Arc<RunContext>) -> F + Send + Sync + 'static,
) -> Scripted {
    let delegator = delegator.clone();
    Scripted::new("root", move |_, cx| {
        let work = work(delegator.clone(), Arc::new(cx));
        async move {
            work.await;
            Err(RunError::failed("root", "on purpose"))
        }
    })
}

#[tokio::test]
async fn l5_a_child_that_is_refused_gives_its_result_back() {
    let world = World::new();
    let shop = Shop::default();
    world.delegator.add(shop.leaf("leaf", 0));
    world.delegator.add(hangs("hangs"));
    let leaf = || TaskRequest::new(name("leaf"), "x");
    let first = fails_after(&world.delegator, move |delegator, cx| async move {
        Subagent::new(&delegator).task(&cx, leaf()).await.unwrap();
    });
    let (old, _) = world.run(first.node(), "x").await;
    let from = world.children(&old).await[0].data.id.clone();
    let mut second = fails_after(&world.delegator, move |delegator, cx| async move {
        let (subagent, id) = (Subagent::new(&delegator), cx.session().id.clone());
        let busy = subagent.task_async(&cx, TaskRequest::new(name("hangs"), "x")).await.unwrap();
        let refused = subagent.task(&cx, leaf()).await;
        assert!(matches!(refused, Err(TaskError::Refused(Refused::LiveChildren { .. }))), "{refused:?}");
        delegator.tasks().cancel(&busy.task, &id, delegator.manager()).await.unwrap();
        subagent.task(&cx, leaf()).await.unwrap();
    });
    second.limits = SessionLimits { max_live_children: Some(1), ..SessionLimits::UNBOUNDED };
    let (new, result) = again(&world, second.node(), "x", &old).await;
    assert_eq!(result.error.as_deref(), Some("on purpose"));
    assert_eq!(below(&world, &new).await, [("hangs".into(), None), ("leaf".into(), Some(from))]);
}

#[tokio::test]
async fn the_same_question_in_another_directory_is_another_one() {
    let world = World::new();
    let shop = Shop::default();
    world.delegator.add(shop.leaf("leaf", 0));
    let asks = |directories: &'static [&'static str]| {
        let asks = fails_after(&world.delegator, move |delegator, cx| async move {
            for cwd in directories {
                let request = TaskRequest { cwd: Some((*cwd).into()), ..TaskRequest::new(name("leaf"), "x") };
                Subagent::new(&delegator).task(&cx, request).await.unwrap();
            }
        });
        asks.node()
    };
    let in_root = || RootOptions { cwd: Some("/".to_owned()), ..RootOptions::default() };
    let run = world.delegator.run_root(asks(&["usr", "/tmp"]), "x".into(), in_root()).await.unwrap();
    bounded(run.result).await.unwrap();
    let old = run.session.id.clone();
    let from: Vec<_> = world.children(&old).await.into_iter().map(|child| child.data.id).collect();
    let recall = Recall::read(&world.manager, &old).await.unwrap();
    let options = RootOptions { recall: Some(recall), ..in_root() };
    let node = asks(&["tmp/.", "/tmp", "/usr/../usr", "/usr"]);
    let run = world.delegator.run_root(node, "x".into(), options).await.unwrap();
    bounded(run.result).await.unwrap();
    let taken = [Some(&from[1]), None, None, Some(&from[0])].map(|from| ("leaf".to_owned(), from.cloned()));
    assert_eq!(below(&world, &run.session.id).await, taken);
}

#[tokio::test]
async fn nobody_else_can_say_that_a_result_was_taken() {
    let world = World::new();
    world.delegator.add(echo("leaf"));
    let metadata = BTreeMap::from([(TAKEN_FROM.to_owned(), "ses_x".to_owned()), ("a".into(), "b".into())]);
    let (root, _) = world.task(TaskRequest { metadata, ..TaskRequest::new(name("leaf"), "x") }).await;
    let child = world.children(&root).await[0].clone();
    assert_eq!(child.data.metadata, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
}

#[tokio::test]
async fn a_result_that_was_removed_meanwhile_is_an_error_of_its_member() {
    let world = World::new();
    let shop = Shop::default();
    let node = team("t", vec![shop.leaf("a", 0), shop.leaf("b", 1)]);
    let (old, _) = world.run(node.clone(), "x").await;
    let recall = Recall::read(&world.manager, &old).await.unwrap();
    assert!(!recall.is_complete());
    world.manager.delete(&old).await.unwrap();
    let options = RootOptions { recall: Some(recall), ..RootOptions::default() };
    let run = world.delegator.run_root(node, "x".into(), options).await.unwrap();
    let result = bounded(run.result).await.unwrap();
    assert!(result.answer.contains("### a (failed)\nthe result of "), "{result:?}");
    assert!(result.answer.contains("### b (completed)\n"), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_ask_the_same_at_once_each_result_is_taken_once() {
    const ASKED: usize = 40;
    let world = World::new();
    let shop = Shop::default();
    world.delegator.add(shop.leaf("leaf", 0b0101_0101));
    let node = fails_after(&world.delegator, |delegator, cx| async move {
        let asks = (0..ASKED).map(|_| {
            let (delegator, cx) = (delegator.clone(), Arc::clone(&cx));
            tokio::spawn(async move {
                Subagent::new(&delegator).task(&cx, TaskRequest::new(name("leaf"), "x")).await.unwrap();
            })
        });
        join_all(asks.collect::<Vec<_>>()).await;
    });
    let node = node.node();
    let (old, _) = world.run(node.clone(), "x").await;
    shop.mend();
    let (new, _) = again(&world, node, "x", &old).await;
    let done: BTreeSet<_> =
        world.children(&old).await.into_iter().filter(completed).map(|child| child.data.id).collect();
    let taken = taken_from(&world.children(&new).await);
    assert_eq!((done.len(), taken.len(), shop.worked()), (ASKED / 2, ASKED / 2, ASKED / 2));
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), done);
}
