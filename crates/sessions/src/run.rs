//! The tokens of a run, each used up by the next: stored → announced → running → ended.
//!
//! [`RunContext`] has no public constructor and no `Clone`: only [`RootSession::start`] and
//! [`AnnouncedChild::start`] make one. So a child that runs was stored and announced (rules L1, L2),
//! because nothing else compiles.

use std::{path::Path, sync::Arc};

use offspring_protocol::{
    AgentType, Event, External, MessageId, NodeName, Outcome, RunId, RunState, SessionData, SessionId, SessionInfo,
    SessionLimits, SessionState, SourceType, TaskKey, ToolCallId,
    event::{MessageComplete, RunFailed, RunStarted, SpawnMechanism, StatusChanged, StreamComplete},
};
use offspring_tree::rollup::Counted;
use smallvec::smallvec;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Refused, RunError},
    ids,
    live::{LiveTree, OpenRun, lock},
    manager::SessionManager,
    store::{Durability, StoreError, Write},
    writer::{Line, Op},
};

/// A root to be.
#[derive(Debug, Clone)]
pub struct NewRoot {
    /// The node it runs.
    pub agent_name: NodeName,
    /// What that node is.
    pub agent_type: AgentType,
    /// Its working directory, absolute.
    pub cwd: Option<String>,
    /// A short name for people.
    pub title: Option<String>,
    /// The bounds of its whole tree.
    pub limits: SessionLimits,
    /// Notes that its row keeps.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// An id given from outside; refused when it is taken.
    pub id: Option<SessionId>,
}

impl NewRoot {
    /// A root of this node with the default limits.
    #[must_use]
    pub fn new(agent_name: NodeName, agent_type: AgentType) -> Self {
        Self {
            agent_name,
            agent_type,
            cwd: None,
            title: None,
            limits: SessionLimits::default(),
            metadata: std::collections::BTreeMap::new(),
            id: None,
        }
    }
}

/// A child to be.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// The node that is delegated to.
    pub agent_name: NodeName,
    /// What that node is (rule L7).
    pub agent_type: AgentType,
    /// How it is delegated to (rule L7).
    pub source_type: SourceType,
    /// Tool call or team member.
    pub mechanism: SpawnMechanism,
    /// What for, in a few words.
    pub description: String,
    /// The tool call that delegates.
    pub tool_call: Option<ToolCallId>,
    /// The delegation it belongs to.
    pub task: Option<TaskKey>,
    /// Its own directory; relative to the parent's (rule L3). Unset: the parent's.
    pub cwd: Option<String>,
    /// The model it uses.
    pub model: Option<String>,
    /// Narrows its parent's bounds (rule L17).
    pub limits: SessionLimits,
    /// Notes that its row keeps.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// An id given from outside; refused when it is taken (report O6).
    pub id: Option<SessionId>,
    /// The peer's session it stands for.
    pub external: Option<External>,
}

impl NewChild {
    /// A child that runs one agent, made by a tool call.
    #[must_use]
    pub fn new(agent_name: NodeName, agent_type: AgentType) -> Self {
        Self {
            agent_name,
            agent_type,
            source_type: SourceType::Agent,
            mechanism: SpawnMechanism::Task,
            description: String::new(),
            tool_call: None,
            task: None,
            cwd: None,
            model: None,
            limits: SessionLimits::UNBOUNDED,
            metadata: std::collections::BTreeMap::new(),
            id: None,
            external: None,
        }
    }
}

/// A stored session with a pending run.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) manager: SessionManager,
    pub(crate) tree: Arc<LiveTree>,
    pub(crate) info: Arc<SessionInfo>,
    pub(crate) data: Arc<SessionData>,
    pub(crate) open: Arc<OpenRun>,
}

/// A root that is stored. Start it, or drop it: then its pending run ends as interrupted.
#[derive(Debug)]
#[must_use = "a root that is not started ends as interrupted"]
pub struct RootSession(Pending);

/// A child that is stored and announced. Start it, or drop it: then its pending run ends as interrupted.
#[derive(Debug)]
#[must_use = "a child that is not started ends as interrupted"]
pub struct AnnouncedChild(Pending);

macro_rules! startable {
    ($name:ident) => {
        impl $name {
            pub(crate) fn new(stored: Stored) -> Self {
                Self(Pending(Some(stored)))
            }

            /// The session.
            #[must_use]
            pub fn session(&self) -> &Arc<SessionInfo> {
                &self.0.stored().info
            }

            /// Its row.
            #[must_use]
            pub fn data(&self) -> &Arc<SessionData> {
                &self.0.stored().data
            }

            /// Its run, pending now.
            #[must_use]
            pub fn run_id(&self) -> &RunId {
                &self.0.stored().open.id
            }

            /// Asks for the run to be stopped, also while it waits to start.
            #[must_use]
            pub fn stop_requested(&self) -> CancellationToken {
                self.0.stored().open.stop.clone()
            }

            /// Opens the run: `RunStarted` with this prompt (rules L10, L12).
            ///
            /// # Errors
            /// When the tree's store failed before.
            pub async fn start(mut self, prompt: &str) -> Result<StartedRun, StoreError> {
                self.0.take().start(prompt).await
            }

            /// Ends the run before it started, as cancelled or failed.
            ///
            /// # Errors
            /// When the store cannot be written.
            pub async fn give_up(mut self, error: RunError) -> Result<Outcome, StoreError> {
                RunEnd(Some(self.0.take())).finish(Err(error)).await
            }
        }
    };
}

startable!(RootSession);
startable!(AnnouncedChild);

/// Ends the run when nobody starts it.
#[derive(Debug)]
struct Pending(Option<Stored>);

impl Pending {
    #[expect(clippy::expect_used, reason = "only `take` empties it, and `take` is called by value only")]
    fn stored(&self) -> &Stored {
        self.0.as_ref().expect("not taken")
    }

    #[expect(clippy::expect_used, reason = "only `take` empties it, and `take` is called by value only")]
    fn take(&mut self) -> Stored {
        self.0.take().expect("not taken")
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        drop(RunEnd(self.0.take()));
    }
}

/// A run that has begun: what its agent gets, and the duty to end it.
#[derive(Debug)]
pub struct StartedRun {
    /// For the agent.
    pub context: RunContext,
    /// For whoever drives the agent.
    pub end: RunEnd,
}

impl Stored {
    async fn start(self, prompt: &str) -> Result<StartedRun, StoreError> {
        let Self { manager, tree, info, data, open } = &self;
        let record = {
            let mut changing = lock(&open.changing);
            changing.record.state = RunState::Running;
            changing.record.clone()
        };
        let started = RunStarted {
            session_id: info.id.clone(),
            run_id: open.id.clone(),
            agent_name: info.agent_name.clone(),
            parent_session_id: info.parent.clone(),
            prompt: prompt.to_owned(),
        };
        let status = StatusChanged { state: SessionState::Running, outcome: None };
        let op = Op {
            writes: smallvec![Write::Run(Box::new(record))],
            lines: smallvec![
                Line::new(info, Some(&open.id), Event::RunStarted(started)),
                Line::new(info, None, Event::StatusChanged(status)),
            ],
            ..Op::default()
        };
        send(tree, op).await?;
        let core = Arc::new(Core {
            manager: manager.clone(),
            tree: Arc::clone(tree),
            info: Arc::clone(info),
            data: Arc::clone(data),
            open: Arc::clone(open),
        });
        Ok(StartedRun { context: RunContext(core), end: RunEnd(Some(self)) })
    }
}

async fn send(tree: &LiveTree, op: Op) -> Result<(), StoreError> {
    if let Some(error) = &tree.state().failed {
        return Err(error.clone());
    }
    tree.writer.send(op).await.map_err(|_| StoreError::Closed)
}

#[derive(Debug)]
struct Core {
    manager: SessionManager,
    tree: Arc<LiveTree>,
    info: Arc<SessionInfo>,
    data: Arc<SessionData>,
    open: Arc<OpenRun>,
}

/// The right to act as one run: to emit its events and to make children of its session.
#[derive(Debug)]
pub struct RunContext(Arc<Core>);

/// Emits events of one run and can do nothing else; may be cloned and outlive the run: what it emits then
/// is kept and marked late (rule L12).
#[derive(Debug, Clone)]
pub struct Emitter(Arc<Core>);

impl RunContext {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &Arc<SessionInfo> {
        &self.0.info
    }

    /// Its row.
    #[must_use]
    pub fn data(&self) -> &Arc<SessionData> {
        &self.0.data
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.0.open.id
    }

    /// Parent edges above the session (rule L4).
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.0.info.depth
    }

    /// Its working directory.
    #[must_use]
    pub fn cwd(&self) -> Option<&Path> {
        self.0.data.cwd.as_deref().map(Path::new)
    }

    /// The manager that keeps it.
    #[must_use]
    pub fn manager(&self) -> &SessionManager {
        &self.0.manager
    }

    /// Asks the agent to stop. An agent that does not look is dropped at its next await.
    #[must_use]
    pub fn stop_requested(&self) -> CancellationToken {
        self.0.open.stop.clone()
    }

    /// Something that emits for this run.
    #[must_use]
    pub fn emitter(&self) -> Emitter {
        Emitter(Arc::clone(&self.0))
    }

    /// Emits an event: numbered once, in the order of the calls. Waits while the tree's queue is full.
    ///
    /// # Errors
    /// When the tree's store failed: the run should end.
    pub async fn emit(&self, event: Event) -> Result<(), StoreError> {
        self.0.emit(event).await
    }

    /// Makes a child of this session: its row, its pending run and its spawn are committed together,
    /// then announced (rules L1, L2).
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn create_child(&self, new: NewChild) -> Result<AnnouncedChild, Refused> {
        self.0.manager.create_child_in(&self.0.tree, &self.0.info.id, new).await
    }

    /// Records which process works for this run, so that a later start of the program can end it when
    /// this one dies (rule L14).
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn record_process(&self, identity: String) -> Result<(), StoreError> {
        let record = {
            let mut changing = lock(&self.0.open.changing);
            changing.record.process = Some(identity);
            changing.record.clone()
        };
        let (done, committed) = oneshot::channel();
        let op = Op { writes: smallvec![Write::Run(Box::new(record))], done: Some(done), ..Op::default() };
        send(&self.0.tree, op).await?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Emitter {
    /// As [`RunContext::emit`].
    ///
    /// # Errors
    /// When the tree's store failed.
    pub async fn emit(&self, event: Event) -> Result<(), StoreError> {
        self.0.emit(event).await
    }
}

impl Core {
    async fn emit(&self, event: Event) -> Result<(), StoreError> {
        if let Event::Usage(report) = &event {
            // Each provider message once (L15).
            let counted = self.tree.state().rollup.record(&self.info.id, &report.message_id, report.usage);
            if counted == Counted::New {
                lock(&self.open.changing).record.usage += report.usage;
            }
        }
        let op = Op { lines: smallvec![Line::new(&self.info, Some(&self.open.id), event)], ..Op::default() };
        send(&self.tree, op).await
    }
}

/// What an agent gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// The message that text is, when the agent emitted it itself.
    pub message: Option<MessageId>,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, message: None }
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// The duty to end a run. Dropped without [`finish`](Self::finish), the run ends as interrupted.
#[derive(Debug)]
#[must_use = "a run that is not finished ends as interrupted"]
pub struct RunEnd(Option<Stored>);

impl RunEnd {
    /// Ends the run, once and for good (rule L12): emits the answer and the terminal event, and returns
    /// when both are committed. A run that was cancelled from outside ends as cancelled whatever the
    /// result.
    ///
    /// # Errors
    /// When the store cannot be written; the run is over in this process all the same.
    pub async fn finish(mut self, result: Result<Answer, RunError>) -> Result<Outcome, StoreError> {
        let Some(stored) = self.0.take() else { return Err(StoreError::Closed) };
        let (mut op, outcome) = stored.ending(result);
        let (done, committed) = oneshot::channel();
        op.done = Some(done);
        let written = match stored.tree.writer.send(op).await {
            Ok(()) => committed.await.unwrap_or(Err(StoreError::Closed)),
            Err(_) => Err(StoreError::Closed),
        };
        stored.over();
        written.map(|()| outcome)
    }

    /// Waits until no other run is open in the whole tree (rule L19).
    pub async fn tree_at_rest(&self) {
        if let Some(stored) = &self.0 {
            stored.tree.at_rest_but_for(1).await;
        }
    }

    /// Whether the run was cancelled from outside.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|stored| lock(&stored.open.changing).forced == Some(Outcome::Cancelled))
    }

    /// The manager that keeps the session.
    #[must_use]
    pub fn manager(&self) -> Option<&SessionManager> {
        self.0.as_ref().map(|stored| &stored.manager)
    }
}

impl Drop for RunEnd {
    fn drop(&mut self) {
        let Some(stored) = self.0.take() else { return };
        let lost = RunError::interrupted("dropped", "the run was dropped before it ended");
        let (op, _) = stored.ending(Err(lost));
        // No await in a drop: when the queue is full a task waits for room in it.
        match stored.tree.writer.try_send(op) {
            Ok(()) => stored.over(),
            Err(tokio::sync::mpsc::error::TrySendError::Closed(_)) => stored.over(),
            Err(tokio::sync::mpsc::error::TrySendError::Full(op)) => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    runtime.spawn(async move {
                        let _ = stored.tree.writer.send(op).await;
                        stored.over();
                    });
                }
                // Outside a runtime nothing reads the queue any more either.
                Err(_) => stored.over(),
            },
        }
    }
}

impl Stored {
    /// The last lines of the run and its record.
    fn ending(&self, result: Result<Answer, RunError>) -> (Op, Outcome) {
        let Self { info, open, .. } = self;
        let run = Some(&open.id);
        let mut changing = lock(&open.changing);
        let mut lines = smallvec::SmallVec::new();
        let mut message = None;
        let result = match result {
            Ok(answer) => {
                let id = answer.message.clone().unwrap_or_else(ids::message);
                if answer.message.is_none() && !(changing.forced.is_some() && answer.text.is_empty()) {
                    let complete = MessageComplete { message_id: id.clone(), text: answer.text };
                    lines.push(Line::new(info, run, Event::MessageComplete(complete)));
                }
                message = Some(id);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let (terminal, error) = match (changing.forced, result) {
            (Some(Outcome::Cancelled), result) => {
                let end = StreamComplete { cancelled: true, message_id: message };
                (Event::StreamComplete(end), result.err().map(|error| error.message))
            }
            (_, Ok(())) => (Event::StreamComplete(StreamComplete { cancelled: false, message_id: message }), None),
            (_, Err(error)) => {
                let RunError { message, code, interrupted } = error;
                let failed = RunFailed { message: message.clone(), code: code.into_owned(), interrupted };
                (Event::RunError(failed), Some(message))
            }
        };
        // The terminal event decides, and nothing that was seen on the way (L12).
        let outcome = terminal.terminal().unwrap_or(Outcome::Failed);
        lines.push(Line::new(info, run, terminal));
        let status = StatusChanged { state: SessionState::Idle, outcome: Some(outcome) };
        lines.push(Line::new(info, None, Event::StatusChanged(status)));
        changing.record.state = RunState::Ended(outcome);
        changing.record.error = error;
        changing.record.ended_at = Some(ids::now());
        let op = Op {
            writes: smallvec![Write::Run(Box::new(changing.record.clone()))],
            lines,
            durability: if info.parent.is_none() { self.manager.root_durability() } else { Durability::Process },
            ..Op::default()
        };
        (op, outcome)
    }

    /// The run is over in memory: counts go down, waiters wake.
    fn over(&self) {
        let mut state = self.tree.state();
        state.open_runs = state.open_runs.saturating_sub(1);
        if let Some(member) = state.members.get_mut(&self.info.id) {
            if member.open.as_ref().is_some_and(|open| open.id == self.open.id) {
                member.open = None;
            }
        }
        if let Some(parent) = self.info.parent.as_ref().and_then(|parent| state.members.get_mut(parent)) {
            parent.live_children = parent.live_children.saturating_sub(1);
        }
        drop(state);
        self.open.ended.cancel();
        self.tree.run_ended.notify_waiters();
    }
}
