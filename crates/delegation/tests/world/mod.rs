//! Agents that do what a test says, and the tree they leave.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_delegation::{
    Agent, Delegator, DelegatorOptions, Node, OnExit, Prompt, RootOptions, RootResult, SlotLimits, Subagent,
    TaskRequest, Team, TeamRun,
};
use offspring_protocol::{
    AgentType, Envelope, Event, NodeName, Outcome, SessionId, SessionLimits,
    control::TaskResult,
    event::{RunStarted, SpawnSessionStart},
};
use offspring_sessions::{
    Answer, ManagerOptions, MemoryStore, RunContext, RunError, Scope, SessionManager, SessionRecord,
    SessionStore, Subscription,
};
use tokio::sync::Semaphore;

/// Longer than anything here takes; a test that reaches it hangs.
const BOUND: Duration = Duration::from_secs(20);

/// Nothing in a test waits without a bound.
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

/// An agent that does what it is told.
pub(crate) struct Scripted {
    name: NodeName,
    work: Box<dyn Fn(Prompt, RunContext) -> Done + Send + Sync>,
    pub(crate) takes_slot: bool,
    pub(crate) stop_grace: Duration,
    pub(crate) on_exit: OnExit,
    pub(crate) limits: SessionLimits,
    pub(crate) max_silence: Option<Duration>,
    pub(crate) model: Option<String>,
    pub(crate) description: String,
}

impl Scripted {
    pub(crate) fn new<F, Fut>(called: &str, work: F) -> Self
    where
        F: Fn(Prompt, RunContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, RunError>> + Send + 'static,
    {
        Self {
            name: name(called),
            work: Box::new(move |prompt, cx| Box::pin(work(prompt, cx))),
            takes_slot: false,
            stop_grace: Duration::ZERO,
            on_exit: OnExit::Wait,
            limits: SessionLimits::UNBOUNDED,
            max_silence: None,
            model: None,
            description: String::new(),
        }
    }

    pub(crate) fn node(self) -> Node {
        Node::agent(self)
    }
}

impl Agent for Scripted {
    fn name(&self) -> &NodeName {
        &self.name
    }
    fn agent_type(&self) -> AgentType {
        AgentType::Native
    }
    fn description(&self) -> &str {
        &self.description
    }
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
    fn limits(&self) -> SessionLimits {
        self.limits.clone()
    }
    fn max_silence(&self) -> Option<Duration> {
        self.max_silence
    }
    fn takes_slot(&self) -> bool {
        self.takes_slot
    }
    fn stop_grace(&self) -> Duration {
        self.stop_grace
    }
    fn on_exit(&self) -> OnExit {
        self.on_exit
    }
    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> Done {
        (self.work)(prompt, cx)
    }
}

/// Answers `<name>(<prompt>)`.
pub(crate) fn echo(called: &str) -> Node {
    let own = called.to_owned();
    Scripted::new(called, move |prompt, _cx| {
        let answer = format!("{own}({})", prompt.text);
        async move { Ok(answer.into()) }
    })
    .node()
}

/// Always fails with `<name> broke`.
pub(crate) fn fails(called: &str) -> Node {
    let text = format!("{called} broke");
    Scripted::new(called, move |_, _cx| {
        let error = RunError::failed("broken", text.clone());
        async move { Err(error) }
    })
    .node()
}

/// Never ends by itself.
pub(crate) fn hangs(called: &str) -> Node {
    Scripted::new(called, |_, _cx| std::future::pending()).node()
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

    pub(crate) fn waiting_to_be_seen(&self) -> usize {
        self.arrived.available_permits()
    }

    pub(crate) fn let_go(&self, agents: usize) {
        self.go.add_permits(agents);
    }
}

/// Arrives on the stage, then answers `<name>`.
pub(crate) fn plays(called: &str, stage: &Stage) -> Node {
    let (stage, own) = (stage.clone(), called.to_owned());
    Scripted::new(called, move |_, _cx| {
        let (stage, own) = (stage.clone(), own.clone());
        async move {
            stage.play().await;
            Ok(own.into())
        }
    })
    .node()
}

/// Delegates its prompt to `to` and answers what comes back, or the error's text.
pub(crate) fn asks(called: &str, delegator: &Delegator, to: &str) -> Node {
    let (delegator, to) = (delegator.clone(), name(to));
    Scripted::new(called, move |prompt, cx| {
        let (delegator, to) = (delegator.clone(), to.clone());
        async move {
            let cx = Arc::new(cx);
            match Subagent::new(&delegator).task(&cx, TaskRequest::new(to, prompt)).await {
                Ok(result) => Ok(result.output.into()),
                Err(refused) => Ok(format!("refused: {refused}").into()),
            }
        }
    })
    .node()
}

/// Delegates its prompt to `to` in the background and ends at once.
pub(crate) fn starts(called: &str, delegator: &Delegator, to: &str) -> Scripted {
    let (delegator, to) = (delegator.clone(), name(to));
    Scripted::new(called, move |prompt, cx| {
        let (delegator, to) = (delegator.clone(), to.clone());
        async move {
            let cx = Arc::new(cx);
            let task = Subagent::new(&delegator).task_async(&cx, TaskRequest::new(to, prompt)).await;
            Ok(task.map_or_else(|refused| refused.to_string(), |task| task.task.to_string()).into())
        }
    })
}

/// A team with a name.
pub(crate) fn team(called: &str, members: Vec<Node>) -> Node {
    Node::Team(Arc::new(Team::new(name(called), members)))
}

/// A team run with a name.
pub(crate) fn chain(called: &str, members: Vec<Node>) -> Node {
    Node::TeamRun(Arc::new(TeamRun::new(name(called), members)))
}

/// A team run that goes on after a failure.
pub(crate) fn lenient(called: &str, members: Vec<Node>) -> Node {
    Node::TeamRun(Arc::new(TeamRun { require_all: false, ..TeamRun::new(name(called), members) }))
}

/// A delegator over a store in memory, and a subscription that hears everything.
pub(crate) struct World {
    pub(crate) manager: SessionManager,
    pub(crate) delegator: Delegator,
    heard: Subscription,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(DelegatorOptions::default())
    }

    pub(crate) fn with_slots(max_active: usize) -> Self {
        let slots = SlotLimits { max_active, ..SlotLimits::default() };
        Self::with(DelegatorOptions { slots, ..DelegatorOptions::default() })
    }

    pub(crate) fn with(options: DelegatorOptions) -> Self {
        Self::over(Arc::new(MemoryStore::new()), options)
    }

    pub(crate) fn over(store: Arc<dyn SessionStore>, options: DelegatorOptions) -> Self {
        let manager = SessionManager::new(store, ManagerOptions::default());
        let heard = manager.subscribe(Scope::All);
        Self { delegator: Delegator::new(manager.clone(), options), manager, heard }
    }

    /// Runs a node as a root to its end.
    pub(crate) async fn run(&self, node: Node, prompt: &str) -> (SessionId, RootResult) {
        let run = self.delegator.run_root(node, prompt.into(), RootOptions::default()).await.unwrap();
        (run.session.id.clone(), bounded(run.result).await.unwrap())
    }

    /// Runs a root that delegates once, and gives what its tool got.
    pub(crate) async fn task(&self, request: TaskRequest) -> (SessionId, TaskResult) {
        let (sender, mut results) = tokio::sync::mpsc::channel(1);
        let delegator = self.delegator.clone();
        let root = Scripted::new("root", move |_, cx| {
            let (delegator, request, sender) = (delegator.clone(), request.clone(), sender.clone());
            async move {
                let cx = Arc::new(cx);
                let result = Subagent::new(&delegator).task(&cx, request).await;
                sender.send(result).await.unwrap();
                Ok("done".into())
            }
        });
        let (id, result) = self.run(root.node(), "").await;
        assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
        (id, results.recv().await.unwrap().unwrap())
    }

    pub(crate) async fn children(&self, id: &SessionId) -> Vec<SessionRecord> {
        self.manager.children(id).await.unwrap()
    }

    pub(crate) async fn descendants(&self, id: &SessionId) -> Vec<SessionRecord> {
        self.manager.descendants(id).await.unwrap()
    }

    /// Closes the manager and gives everything that was announced.
    pub(crate) async fn log(mut self) -> Log {
        bounded(self.manager.close()).await.unwrap();
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

    /// Where the first envelope is for which this holds.
    pub(crate) fn position(&self, holds: impl Fn(&Envelope, &Event) -> bool) -> Option<usize> {
        self.events().position(|(envelope, event)| holds(envelope, &event))
    }
}
