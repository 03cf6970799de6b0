//! Pools of agents that do what a test says, over each store.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_delegation::{
    Agent, BuildError, Delegator, Node, NodeFactory, NodeSpec, Prompt, RootOptions, RootResult, RootRun,
    Subagent, TaskRequest, Team, TeamRun,
};
use offspring_pool::{Limits, Manifest, Pool, Registry};
use offspring_protocol::{
    AgentType, Envelope, Event, NodeName, Outcome, SessionId,
    event::{RunStarted, SpawnSessionStart},
};
use offspring_sessions::{
    Answer, ManagerOptions, MemoryStore, RunContext, RunError, Scope, SessionManager, SessionRecord,
    SessionStore, Subscription,
    store::sqlite::{SqliteOptions, SqliteStore},
};
use tokio::sync::Semaphore;

/// Longer than anything here takes; a test that reaches it hangs.
const BOUND: Duration = Duration::from_secs(30);

/// The name of the pool that [`House::open`] makes.
pub(crate) const POOL: &str = "house";

pub(crate) async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("it takes too long")
}

pub(crate) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(crate) fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

type Done = BoxFuture<'static, Result<Answer, RunError>>;
type Script = dyn Fn(Prompt, RunContext) -> Done + Send + Sync;

/// An agent in this process.
pub(crate) struct InProcess {
    name: NodeName,
    agent_type: AgentType,
    work: Box<Script>,
}

impl Agent for InProcess {
    fn name(&self) -> &NodeName {
        &self.name
    }
    fn agent_type(&self) -> AgentType {
        self.agent_type.clone()
    }
    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> Done {
        (self.work)(prompt, cx)
    }
}

pub(crate) fn agent<F, Fut>(called: &str, work: F) -> Node
where
    F: Fn(Prompt, RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, RunError>> + Send + 'static,
{
    typed(called, AgentType::Native, work)
}

pub(crate) fn typed<F, Fut>(called: &str, agent_type: AgentType, work: F) -> Node
where
    F: Fn(Prompt, RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, RunError>> + Send + 'static,
{
    let work = Box::new(move |prompt, cx| Box::pin(work(prompt, cx)) as Done);
    Node::agent(InProcess { name: name(called), agent_type, work })
}

/// Answers `<name>(<prompt>)`.
pub(crate) fn echo(called: &str) -> Node {
    let own = called.to_owned();
    agent(called, move |prompt, _cx| {
        let answer = format!("{own}({})", prompt.text);
        async move { Ok(answer.into()) }
    })
}

pub(crate) fn fails(called: &str) -> Node {
    let text = format!("{called} broke");
    agent(called, move |_, _cx| {
        let error = RunError::failed("broken", text.clone());
        async move { Err(error) }
    })
}

/// Waits until the starts of so many runs are committed.
pub(crate) async fn begun(heard: &mut Subscription, runs: usize) {
    let mut begun = 0;
    while begun < runs {
        let envelope = bounded(heard.recv()).await.unwrap().unwrap();
        begun += usize::from(envelope.event.kind() == "run_started");
    }
}

/// Where agents arrive and wait until they are let go.
#[derive(Clone)]
pub(crate) struct Stage {
    arrived: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), go: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) async fn play(&self) {
        self.arrived.add_permits(1);
        self.go.acquire().await.unwrap().forget();
    }

    pub(crate) async fn arrived(&self, agents: u32) {
        bounded(self.arrived.acquire_many(agents)).await.unwrap().forget();
    }

    pub(crate) fn let_go(&self, agents: usize) {
        self.go.add_permits(agents);
    }
}

/// Arrives on the stage, then answers its name.
pub(crate) fn plays(called: &str, stage: &Stage) -> Node {
    let (stage, own) = (stage.clone(), called.to_owned());
    agent(called, move |_, _cx| {
        let (stage, own) = (stage.clone(), own.clone());
        async move {
            stage.play().await;
            Ok(own.into())
        }
    })
}

/// Delegates its prompt to each of these in turn; answers the last output, or the text of the refusal.
pub(crate) fn asks(called: &str, delegator: &Delegator, nodes: &[&str]) -> Node {
    let (delegator, nodes) = (delegator.clone(), nodes.iter().copied().map(name).collect::<Vec<_>>());
    agent(called, move |prompt, cx| {
        let (delegator, nodes) = (delegator.clone(), nodes.clone());
        async move {
            let cx = Arc::new(cx);
            let mut answer = String::new();
            for node in nodes {
                let request = TaskRequest::new(node, prompt.clone());
                answer = match Subagent::new(&delegator).task(&cx, request).await {
                    Ok(result) => result.output,
                    Err(refused) => format!("refused: {refused}"),
                };
            }
            Ok(answer.into())
        }
    })
}

pub(crate) fn team(called: &str, members: Vec<Node>) -> Node {
    Node::Team(Arc::new(Team::new(name(called), members)))
}

pub(crate) fn chain(called: &str, members: Vec<Node>) -> Node {
    Node::TeamRun(Arc::new(TeamRun::new(name(called), members)))
}

pub(crate) fn sqlite(path: &Path) -> Arc<dyn SessionStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

/// The node type of a manifest whose agents answer `<name>(<prompt>)`.
struct Echoes;

#[derive(serde::Deserialize)]
struct Nothing {}

impl NodeFactory for Echoes {
    type Settings = Nothing;
    fn kind(&self) -> &'static str {
        "echo"
    }
    fn build(&self, _: Nothing, spec: NodeSpec, _: &Delegator) -> Result<Arc<dyn Agent>, BuildError> {
        let own = spec.name.clone();
        let work = move |prompt: Prompt, _cx| {
            let answer = format!("{own}({})", prompt.text);
            Box::pin(async move { Ok(answer.into()) }) as Done
        };
        Ok(Arc::new(InProcess { name: spec.name, agent_type: AgentType::Native, work: Box::new(work) }))
    }
}

/// A pool, and what it announces from its start.
pub(crate) struct House {
    pub(crate) pool: Pool,
    heard: Subscription,
}

impl House {
    /// A pool from a manifest named [`POOL`] over this store; its entry is an agent `coder`.
    pub(crate) async fn open(store: Arc<dyn SessionStore>) -> Self {
        Self::named(POOL, store).await
    }

    pub(crate) async fn named(pool: &str, store: Arc<dyn SessionStore>) -> Self {
        let text = format!("name: {pool}\nentry: coder\nagents:\n  coder: {{type: echo}}\n");
        let manifest = Manifest::from_str(&text, Path::new("/pools/house.yaml")).unwrap();
        let registry = Registry::default().with(Echoes);
        let pool = Pool::open(&manifest, &registry, store, ManagerOptions::default()).await.unwrap();
        Self::of(pool)
    }

    pub(crate) async fn in_memory() -> Self {
        Self::open(Arc::new(MemoryStore::new())).await
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
        Self::of(Pool::with_limits(manager, limits))
    }

    /// A pool outside of any store (rule L8).
    pub(crate) fn detached() -> Self {
        Self::of(Pool::new(SessionManager::detached()))
    }

    fn of(pool: Pool) -> Self {
        let heard = pool.manager().subscribe(Scope::All);
        Self { pool, heard }
    }

    pub(crate) fn manager(&self) -> &SessionManager {
        self.pool.manager()
    }

    pub(crate) fn delegator(&self) -> &Delegator {
        self.pool.delegator()
    }

    pub(crate) async fn start(&self, node: Node, prompt: &str) -> RootRun {
        self.start_with(node, prompt, RootOptions::default()).await
    }

    pub(crate) async fn start_with(&self, node: Node, prompt: &str, options: RootOptions) -> RootRun {
        let called = node.name().clone();
        self.pool.add(node);
        self.pool.run(Some(&called), prompt.into(), options).await.unwrap()
    }

    /// Runs a node as a root to its end.
    pub(crate) async fn run(&self, node: Node, prompt: &str) -> (SessionId, RootResult) {
        let run = self.start(node, prompt).await;
        (run.session.id.clone(), bounded(run.result).await.unwrap())
    }

    /// Runs a root that delegates to these in turn.
    pub(crate) async fn delegate(&self, nodes: Vec<Node>, prompt: &str) -> (SessionId, RootResult) {
        let names: Vec<NodeName> = nodes.iter().map(|node| node.name().clone()).collect();
        nodes.into_iter().for_each(|node| self.pool.add(node));
        let names: Vec<&str> = names.iter().map(NodeName::as_str).collect();
        let (root, result) = self.run(asks("coordinator", self.delegator(), &names), prompt).await;
        assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
        (root, result)
    }

    /// Runs this with the context of a root's run.
    pub(crate) async fn in_a_run<F, Fut>(&self, what: F) -> SessionId
    where
        F: Fn(Arc<RunContext>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let what = Arc::new(what);
        let root = agent("root", move |_, cx| {
            let what = Arc::clone(&what);
            async move {
                what(Arc::new(cx)).await;
                Ok("done".into())
            }
        });
        let (id, result) = self.run(root, "x").await;
        assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
        id
    }

    pub(crate) async fn row(&self, id: &SessionId) -> SessionRecord {
        self.manager().session(id).await.unwrap().unwrap()
    }

    pub(crate) async fn children(&self, id: &SessionId) -> Vec<SessionRecord> {
        self.manager().children(id).await.unwrap()
    }

    pub(crate) async fn descendants(&self, id: &SessionId) -> Vec<SessionRecord> {
        self.manager().descendants(id).await.unwrap()
    }

    /// Closes the pool and gives everything that was announced.
    pub(crate) async fn log(mut self) -> Log {
        bounded(self.pool.close()).await.unwrap();
        let mut all = Vec::new();
        while let Some(envelope) = bounded(self.heard.recv()).await.unwrap() {
            all.push(envelope);
        }
        Log(all)
    }
}

/// Everything that was announced, in order.
pub(crate) struct Log(pub(crate) Vec<Arc<Envelope>>);

impl Log {
    pub(crate) fn events(&self) -> impl Iterator<Item = (&Envelope, Event)> {
        self.0.iter().map(|envelope| (&**envelope, envelope.event.parse().unwrap()))
    }

    pub(crate) fn spawns(&self) -> Vec<SpawnSessionStart> {
        self.events()
            .filter_map(|(_, event)| match event {
                Event::SpawnSessionStart(spawn) => Some(spawn),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn starts(&self) -> Vec<RunStarted> {
        self.events()
            .filter_map(|(_, event)| match event {
                Event::RunStarted(started) => Some(started),
                _ => None,
            })
            .collect()
    }

    /// The sessions in the order of the ends of their runs.
    pub(crate) fn ends(&self) -> Vec<(SessionId, Outcome)> {
        self.events()
            .filter_map(|(envelope, event)| Some((envelope.session.id.clone(), event.terminal()?)))
            .collect()
    }
}
