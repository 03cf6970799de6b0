//! A pool that runs: from a manifest to nodes, roots and follow-ups, with its limits, and its end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use offspring_delegation::{
    Agent, BuildError, Delegator, Node, NodeFactory, NodeSpec, Prompt, RootOptions, RootRun,
};
use offspring_pool::{Limits, Manifest, OpenError, Pool, PromptError, Registry, check};
use offspring_protocol::{NodeName, Outcome, RunState, SessionId, SessionLimits};
use offspring_sessions::{
    Answer, ManagerOptions, MemoryStore, Refused, RunContext, RunError, SessionManager, SessionStore,
};
use serde::Deserialize;
use tokio::sync::Notify;

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it takes too long")
}

/// Answers what its manifest tells it to say, and the prompt.
struct Says {
    name: NodeName,
    says: String,
    /// Keeps the delegator, as nodes that delegate do.
    _delegator: Delegator,
}

impl Agent for Says {
    fn name(&self) -> &NodeName {
        &self.name
    }
    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            if self.says == "nothing" {
                cx.stop_requested().cancelled().await;
            }
            Ok(format!("{} {}", self.says, prompt.text).into())
        })
    }
}

/// The node type `says`; keeps what the pool told it about each agent.
#[derive(Default, Clone)]
struct Sayers(Arc<Mutex<Vec<NodeSpec>>>);

#[derive(Deserialize)]
struct Words {
    says: String,
}

impl NodeFactory for Sayers {
    type Settings = Words;
    fn kind(&self) -> &'static str {
        "says"
    }
    fn build(
        &self,
        words: Words,
        spec: NodeSpec,
        delegator: &Delegator,
    ) -> Result<Arc<dyn Agent>, BuildError> {
        match words.says.as_str() {
            "" => return Err(BuildError::key("says", "says nothing").help("write a word")),
            "?" => return Err(BuildError { key: None, message: "is a question".to_owned(), help: None }),
            _ => {}
        }
        let name = spec.name.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(spec);
        Ok(Arc::new(Says { name, says: words.says, _delegator: delegator.clone() }))
    }
}

fn manifest(text: &str) -> Manifest {
    Manifest::from_str(text, Path::new("/pools/house.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

const HOUSE: &str = "\
name: house
entry: outer
agents:
  a: {type: says, says: A, workers: [b, inner], environment: {LEVEL: '3', HERE: {from: PATH}, GONE: {from: NO_SUCH_VARIABLE_HERE}}}
  b: {type: says, says: B, description: the second, limits: {max_depth: 2, max_output_bytes: 7, max_silence_ms: 50}}
teams:
  outer: {mode: parallel, members: [inner, a], description: both}
  inner: {mode: sequential, members: [a, b], shared_prompt: S, require_all: false}
workers: [b]
limits: {max_depth: 40, max_descendants: 5_000, max_output_bytes: 77, max_silence_ms: 5_000}
";

async fn open(text: &str, store: Arc<dyn SessionStore>) -> Result<Pool, OpenError> {
    let registry = Registry::default().with(Sayers::default());
    Pool::open(&manifest(text), &registry, store, ManagerOptions::default()).await
}

async fn house() -> Pool {
    open(HOUSE, Arc::new(MemoryStore::new())).await.unwrap()
}

async fn answer(run: RootRun) -> String {
    bounded(run.result).await.unwrap().answer
}

#[tokio::test]
async fn the_entry_of_a_manifest_runs_with_its_teams_as_they_are_written() {
    let pool = house().await;
    let run = pool.run(None, "x".into(), RootOptions::default()).await.unwrap();
    let id = run.session.id.clone();
    let said = "### inner (completed)\nB A S\n\nx\n### a (completed)\nA x\n";
    assert_eq!(answer(run).await, said);
    let row = pool.manager().session(&id).await.unwrap().unwrap().data;
    assert_eq!((row.pool_id.unwrap().as_str(), row.agent_name), ("house", name("outer")));
    let named = pool.run(Some(&name("a")), "x".into(), RootOptions::default()).await.unwrap();
    assert_eq!(answer(named).await, "A x");
    let Node::TeamRun(inner) = pool.node(Some(&name("inner"))).unwrap() else { panic!() };
    assert_eq!(
        (inner.require_all, inner.shared_prompt.as_deref(), inner.members.len()),
        (false, Some("S"), 2)
    );
    assert_eq!(pool.node(None).unwrap().description(), "both");
    assert!(pool.recovered().trees.is_empty());
}

#[tokio::test]
async fn l9_the_entry_is_the_node_of_a_session_that_is_made_on_demand() {
    let pool = house().await;
    let made = pool.manager().ensure_session(&"asked".parse().unwrap(), None).await.unwrap();
    assert_eq!(made.info.agent_name, name("outer"));
    let options = ManagerOptions {
        pool_id: Some("own".parse().unwrap()),
        default_agent: Some(name("b")),
        ..ManagerOptions::default()
    };
    let registry = Registry::default().with(Sayers::default());
    let pool = Pool::open(&manifest(HOUSE), &registry, Arc::new(MemoryStore::new()), options).await.unwrap();
    let made = pool.manager().ensure_session(&"asked".parse().unwrap(), None).await.unwrap();
    assert_eq!(made.info.agent_name, name("b"), "what the program says itself comes first");
    let row = pool.manager().session(&made.info.id).await.unwrap().unwrap().data;
    assert_eq!(row.pool_id.unwrap().as_str(), "own");
}

#[tokio::test]
async fn l5_the_limits_of_a_manifest_hold_also_where_they_are_wider_than_the_defaults() {
    let pool = house().await;
    let limits = |run: RootRun| {
        let pool = &pool;
        async move {
            let id = run.session.id.clone();
            bounded(run.result).await.unwrap();
            pool.manager().session(&id).await.unwrap().unwrap().data.limits
        }
    };
    let run = pool.run(Some(&name("a")), "x".into(), RootOptions::default()).await.unwrap();
    let of_root = limits(run).await;
    assert_eq!((of_root.max_depth, of_root.max_descendants), (Some(40), Some(5_000)));
    assert_eq!(&of_root, pool.session_limits());
    let narrow =
        SessionLimits { max_depth: Some(3), max_descendants: Some(9_999), ..SessionLimits::UNBOUNDED };
    let options = RootOptions { limits: narrow, ..RootOptions::default() };
    let narrowed = limits(pool.run(Some(&name("a")), "x".into(), options).await.unwrap()).await;
    assert_eq!((narrowed.max_depth, narrowed.max_descendants), (Some(3), Some(5_000)));
}

#[tokio::test]
async fn l5_a_pool_has_as_many_slots_as_its_limits_say() {
    let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
    let pool = Pool::with_limits(manager, Limits { max_active: 1, max_queued: 0, ..Limits::default() });
    assert_eq!((pool.limits().max_active, pool.limits().max_queued), (1, 0));
    let slots = pool.delegator().slots();
    let _one = slots.acquire(&"run1".parse().unwrap(), None).await.unwrap();
    assert_eq!(slots.acquire(&"run2".parse().unwrap(), None).await.unwrap_err().max, 0);
}

#[tokio::test]
async fn a_prompt_that_cannot_be_run_says_why_and_makes_nothing() {
    let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
    let pool = Pool::with_limits(manager, Limits { max_prompt_bytes: 3, ..Limits::default() });
    let run = async |node: Option<&str>, prompt: &str| {
        let node = node.map(name);
        pool.run(node.as_ref(), prompt.into(), RootOptions::default()).await
    };
    assert!(matches!(run(None, "x").await, Err(PromptError::NoEntry)));
    assert!(matches!(run(Some("a"), "x").await, Err(PromptError::UnknownNode(_))));
    let says = Says { name: name("a"), says: "A".to_owned(), _delegator: pool.delegator().clone() };
    pool.add(Node::agent(says));
    let too_long = run(Some("a"), "four").await.unwrap_err();
    assert_eq!(too_long.to_string(), "the prompt has 4 bytes and the limit is 3 (limits.max_prompt_bytes)");
    assert!(pool.manager().roots(9).await.unwrap().is_empty());
    let run = run(Some("a"), "xyz").await.unwrap();
    let id = run.session.id.clone();
    assert_eq!(answer(run).await, "A xyz");
    for too_long in [pool.prompt(&id, "four".into()).await.unwrap_err(), {
        pool.prompt_child(&id, "four".into()).await.unwrap_err()
    }] {
        assert!(matches!(too_long, PromptError::TooLong { bytes: 4, max: 3 }));
    }
    let nobody: SessionId = "nobody".parse().unwrap();
    for unknown in [pool.prompt(&nobody, "x".into()).await.unwrap_err(), {
        pool.prompt_child(&nobody, "x".into()).await.unwrap_err()
    }] {
        assert!(matches!(unknown, PromptError::Refused(Refused::UnknownSession { .. })), "{unknown}");
    }
}

#[tokio::test]
async fn l12_follow_ups_go_to_the_node_of_the_session() {
    let pool = house().await;
    let run = pool.run(None, "x".into(), RootOptions::default()).await.unwrap();
    let id = run.session.id.clone();
    answer(run).await;
    let children = pool.manager().children(&id).await.unwrap();
    let again = bounded(pool.prompt_child(&children[1].data.id, "more".into())).await.unwrap();
    assert_eq!(again.output, "A more");
    let again = pool.prompt(&id, "more".into()).await.unwrap();
    assert_eq!(again.session.id, id);
    assert!(answer(again).await.ends_with("A more\n"));
    assert_eq!(pool.manager().children(&id).await.unwrap().len(), 4, "the team asked its members again");
}

#[tokio::test]
async fn l14_closing_cancels_what_runs_refuses_what_is_new_and_forgets_the_nodes() {
    let pool =
        open("name: p\nagents: {q: {type: says, says: nothing}}\n", Arc::new(MemoryStore::new())).await;
    let pool = pool.unwrap();
    let (manager, delegator) = (pool.manager().clone(), pool.delegator().clone());
    let mut heard = manager.subscribe(offspring_sessions::Scope::All);
    let run = pool.run(None, "x".into(), RootOptions::default()).await.unwrap();
    while bounded(heard.recv()).await.unwrap().unwrap().event.kind() != "run_started" {}
    let node = pool.node(None).unwrap();
    let cancelled = bounded(pool.close()).await.unwrap();
    assert_eq!(cancelled.ended, std::slice::from_ref(&run.session.id));
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Cancelled);
    assert!(delegator.nodes().is_empty(), "nodes hold the delegator that holds them");
    let late = delegator.run_root(node, "x".into(), RootOptions::default()).await;
    assert!(matches!(late, Err(Refused::Closing)));
}

#[tokio::test]
async fn a_pool_that_is_dropped_lets_its_nodes_go() {
    struct Told(NodeName, Arc<Notify>, #[allow(dead_code)] Delegator);
    impl Drop for Told {
        fn drop(&mut self) {
            self.1.notify_one();
        }
    }
    impl Agent for Told {
        fn name(&self) -> &NodeName {
            &self.0
        }
        fn run(self: Arc<Self>, _: Prompt, _: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
            Box::pin(async { Ok("x".into()) })
        }
    }
    let gone = Arc::new(Notify::new());
    let pool = Pool::new(SessionManager::detached());
    pool.add(Node::agent(Told(name("a"), Arc::clone(&gone), pool.delegator().clone())));
    drop(pool);
    bounded(gone.notified()).await;
}

#[tokio::test]
async fn l13_opening_a_pool_over_a_store_in_use_leaves_living_runs_alone() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let text = "name: p\nagents: {q: {type: says, says: nothing}}\n";
    let first = open(text, Arc::clone(&store)).await.unwrap();
    let run = first.run(None, "x".into(), RootOptions::default()).await.unwrap();
    let second = open(text, store).await.unwrap();
    assert!(second.recovered().trees.is_empty());
    let state = second.manager().session(&run.session.id).await.unwrap().unwrap().run_state().unwrap();
    assert!(matches!(state, RunState::Pending | RunState::Running));
    bounded(first.close()).await.unwrap();
}

#[test]
fn a_factory_hears_what_the_manifest_says_about_its_agent() {
    let sayers = Sayers::default();
    let registry = Registry::default().with(sayers.clone());
    let nodes = registry.build(&manifest(HOUSE), &Delegator::detached()).unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node.name().to_string()).collect();
    assert_eq!(names, ["a", "b", "inner", "outer"]);
    assert_eq!(format!("{:?}", nodes[3]), "((a | b) & a)");
    let specs = sayers.0.lock().unwrap();
    let workers =
        |n: usize| specs[n].workers.iter().map(|worker| worker.node.to_string()).collect::<Vec<_>>();
    assert_eq!(workers(0), ["b", "inner"], "once, though the pool has it too");
    assert!(workers(1).is_empty(), "nobody asks itself");
    let variables: Vec<_> =
        specs[0].environment.iter().map(|v| (v.name.as_str(), v.value.as_str(), v.secret)).collect();
    let path = std::env::var("PATH").unwrap();
    assert_eq!(variables, [("LEVEL", "3", false), ("HERE", path.as_str(), true)], "unset stays unset");
    assert_eq!((specs[1].description.as_str(), specs[1].limits.max_depth), ("the second", Some(2)));
    assert_eq!(specs[0].manifest_dir.as_path(), Path::new("/pools"));
    let run_limits = |n: usize| (specs[n].max_output_bytes, specs[n].max_silence);
    assert_eq!(run_limits(0), (77, Some(Duration::from_secs(5))), "those of the pool");
    assert_eq!(run_limits(1), (7, Some(Duration::from_millis(50))), "its own");
}

#[test]
fn w10_a_variable_never_shows_its_value() {
    let sayers = Sayers::default();
    let text = "name: p\nagents: {a: {type: says, says: A, environment: {KEY: hush}}}\n";
    Registry::default().with(sayers.clone()).build(&manifest(text), &Delegator::detached()).unwrap();
    let shown = format!("{:?}", sayers.0.lock().unwrap()[0]);
    assert!(shown.contains("KEY") && !shown.contains("hush"), "{shown}");
}

#[test]
fn what_a_factory_refuses_is_said_with_its_place_for_all_agents_at_once() {
    let text = "\
name: p
entry: c
agents:
  a:
    type: says
    says: ''
  b:
    type: says
    says: '?'
  c: {type: says, says: C}
";
    let registry = Registry::default().with(Sayers::default());
    assert_eq!(format!("{registry:?}"), r#"Registry(["says"])"#);
    let refused = registry.build(&manifest(text), &Delegator::detached()).unwrap_err();
    let problems: Vec<String> = refused.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{refused}");
    let whole = refused.to_string();
    assert!(
        whole.contains("6:") && whole.contains("says nothing") && whole.contains("write a word"),
        "{whole}"
    );
    assert!(whole.contains("is a question"), "{whole}");
    let unknown = Registry::default().build(&manifest(text), &Delegator::detached()).unwrap_err();
    assert!(unknown.to_string().contains("unknown node type `says`"), "{unknown}");
}

#[tokio::test]
async fn a_manifest_is_checked_without_running_anything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("house.yaml");
    let registry = Registry::default().with(Sayers::default());
    std::fs::write(&path, HOUSE).unwrap();
    assert_eq!(check(&path, &registry).unwrap().name().as_str(), "house");
    std::fs::write(&path, "name: p\nagents: {a: {type: says, says: ''}}\n").unwrap();
    assert!(check(&path, &registry).unwrap_err().to_string().contains("says nothing"));
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let refused = open("name: p\nagents: {a: {type: says, says: ''}}\n", store).await;
    assert!(matches!(refused, Err(OpenError::Manifest(_))));
}
