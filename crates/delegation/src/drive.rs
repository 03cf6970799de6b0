//! Drives one run from its token to its end: slot, start, work, stop, wall time, panic, rest.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, pending},
};
use offspring_protocol::{
    Event, MessageId, Outcome, RunId, SessionInfo, SessionLimits, control::MemberResult, event::TextDelta,
};
use offspring_sessions::{
    AnnouncedChild, Answer, CancelScope, MAX_REPEATED_BYTES, RootSession, RunContext, RunEnd, RunError,
    StartedRun, StoreError,
};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    delegator::{Delegator, Recalling, RootResult, RootRun},
    node::{Node, OnExit, Prompt},
    slots::Slot,
    team,
};

/// A long answer is told in pieces of this length.
const PIECE_BYTES: usize = 16 << 10;

/// A run that ends by itself, whoever waits for it or not.
pub(crate) struct Driven {
    pub(crate) session: Arc<SessionInfo>,
    handle: JoinHandle<MemberResult>,
}

/// What a token can do before its run starts; the same for roots and children.
enum Token {
    Root(RootSession),
    Child(AnnouncedChild),
}

impl Token {
    fn session(&self) -> &Arc<SessionInfo> {
        match self {
            Self::Root(root) => root.session(),
            Self::Child(child) => child.session(),
        }
    }

    fn run_id(&self) -> &RunId {
        match self {
            Self::Root(root) => root.run_id(),
            Self::Child(child) => child.run_id(),
        }
    }

    fn limits(&self) -> &SessionLimits {
        match self {
            Self::Root(root) => &root.data().limits,
            Self::Child(child) => &child.data().limits,
        }
    }

    fn stop_requested(&self) -> CancellationToken {
        match self {
            Self::Root(root) => root.stop_requested(),
            Self::Child(child) => child.stop_requested(),
        }
    }

    async fn start(self, prompt: &str, prompt_id: Option<MessageId>) -> Result<StartedRun, StoreError> {
        match (self, prompt_id) {
            (Self::Root(root), Some(id)) => root.start_answering(prompt, id).await,
            (Self::Root(root), None) => root.start(prompt).await,
            (Self::Child(child), Some(id)) => child.start_answering(prompt, id).await,
            (Self::Child(child), None) => child.start(prompt).await,
        }
    }

    async fn give_up(self, error: RunError) -> Result<Outcome, StoreError> {
        match self {
            Self::Root(root) => root.give_up(error).await,
            Self::Child(child) => child.give_up(error).await,
        }
    }
}

/// Starts the run of a root; it ends when its whole tree is at rest (L19).
pub(crate) fn root(
    delegator: Delegator,
    root: RootSession,
    node: Node,
    prompt: Prompt,
    recalling: Option<Recalling>,
) -> RootRun {
    let session = Arc::clone(root.session());
    let run = root.run_id().clone();
    let driven = Driven::start(delegator, Token::Root(root), node, prompt);
    let result = tokio::spawn(async move {
        let result = finished(driven).await;
        drop(recalling);
        RootResult::from(result)
    });
    RootRun { session, run, result }
}

/// Starts the run of a child.
pub(crate) fn child(delegator: Delegator, child: AnnouncedChild, node: Node, prompt: Prompt) -> Driven {
    Driven::start(delegator, Token::Child(child), node, prompt)
}

impl Driven {
    fn start(delegator: Delegator, token: Token, node: Node, prompt: Prompt) -> Self {
        let session = Arc::clone(token.session());
        // Boxed: a team's run starts runs, so the type would contain itself.
        let driven: BoxFuture<'static, MemberResult> = Box::pin(drive(delegator, token, node, prompt));
        Self { session, handle: tokio::spawn(driven) }
    }
}

/// Waits for the end of a run.
pub(crate) async fn finished(driven: Driven) -> MemberResult {
    let Driven { session, handle } = driven;
    handle.await.unwrap_or_else(|error| lost(&session, &error))
}

/// The runtime shuts down under a run; its token's drop has ended it.
fn lost(session: &SessionInfo, error: &JoinError) -> MemberResult {
    MemberResult {
        node: session.agent_name.clone(),
        session: Some(session.id.clone()),
        outcome: Outcome::Interrupted,
        output: String::new(),
        error: Some(format!("the run was lost: {error}")),
    }
}

async fn drive(delegator: Delegator, token: Token, node: Node, mut prompt: Prompt) -> MemberResult {
    let session = Arc::clone(token.session());
    let stop = token.stop_requested();
    let wall = token.limits().max_wall_ms.map(Duration::from_millis);

    let slot = match turn(&delegator, &token, &node).await {
        Ok(slot) => slot,
        Err(error) => {
            let ended = token.give_up(error.clone()).await;
            return result(&session, ended, Err(error));
        }
    };
    let StartedRun { context, end } = match token.start(&prompt.text, prompt.id.take()).await {
        Ok(started) => started,
        Err(error) => return result(&session, Err(error.clone()), Err(error.into())),
    };
    // A limit beyond what the clock can say is none.
    let deadline = wall.and_then(|wall| Instant::now().checked_add(wall));
    let too_long = || {
        let limit = wall.unwrap_or_default();
        RunError::failed("timeout", format!("it ran longer than its limit of {limit:?} (max_wall_ms)"))
    };
    let (grace, on_exit) = match &node {
        Node::Agent(agent) => (agent.stop_grace(), agent.on_exit()),
        // Nothing but a future that waits: its members end by themselves.
        Node::Team(_) | Node::TeamRun(_) => (Duration::ZERO, OnExit::Wait),
    };

    let max_silence = match &node {
        Node::Agent(agent) => agent.max_silence(),
        Node::Team(_) | Node::TeamRun(_) => None,
    };
    if let Some(limit) = max_silence {
        end.limit_silence(limit);
    }

    let mut work =
        Box::pin(AssertUnwindSafe(execute(delegator.clone(), node, prompt, context)).catch_unwind());
    let mut timed_out = false;
    let mut worked = tokio::select! {
        // Asked to stop, it gets its grace and no more, whether it has just ended or not.
        biased;
        () = stop.cancelled() => match timeout(grace, &mut work).await {
            Ok(worked) => caught(worked),
            Err(_) => Err(RunError::interrupted("cancelled", "cancelled")),
        },
        worked = &mut work => caught(worked),
        error = async {
            tokio::select! {
                () = passed(deadline) => too_long(),
                error = silent_too_long(&end, max_silence) => error,
            }
        } => {
            timed_out = true;
            stop_below(&delegator, &session).await;
            stop.cancel();
            // What it still gives is not asked for: the limit decides.
            let _ = timeout(grace, &mut work).await;
            Err(error)
        }
    };
    // Whatever the agent still held (a process, for one) is gone before its run is over (L14).
    drop(work);
    drop(slot);
    // One run that was cancelled alone leaves its children alone; with its subtree, they have ended before.
    if (timed_out || on_exit == OnExit::Cancel) && !end.is_cancelled() {
        stop_below(&delegator, &session).await;
    }
    if session.root == session.id {
        let rest = Rest { delegator: &delegator, session: &session, end: &end, stop: &stop };
        if rest.until(deadline.filter(|_| !timed_out)).await == Rested::TooLate {
            worked = Err(too_long());
        }
    }
    if let Some(error) = end.store_failure().filter(|_| stop.is_cancelled() && !end.is_cancelled()) {
        // Asked to stop by a failing store and not by anybody: no success of a tree that was not stored, and no
        // word of a cancel. What there is of an answer is given all the same.
        let stopped = match &mut worked {
            Ok(answer) if session.root == session.id => Some(std::mem::take(&mut answer.text)),
            Err(error) if error.interrupted && error.code == "cancelled" => {
                Some(std::mem::take(&mut error.partial))
            }
            _ => None,
        };
        if let Some(partial) = stopped {
            let message = format!("the store failed while the run was going on: {error}");
            worked = Err(RunError::interrupted("store", message).with_partial(partial));
        }
    }
    let ended = end.finish_as(&worked).await;
    result(&session, ended, worked)
}

/// Waits for a slot, if the node takes one.
async fn turn(delegator: &Delegator, token: &Token, node: &Node) -> Result<Option<Slot>, RunError> {
    let stop = token.stop_requested();
    let takes_slot = matches!(node, Node::Agent(agent) if agent.takes_slot());
    let slot = async {
        if !takes_slot {
            return Ok(None);
        }
        let parent = token.session().parent.as_ref();
        let slot = delegator.slots().acquire(token.run_id(), parent).await;
        slot.map(Some).map_err(|full| RunError::failed("queue_full", full.to_string()))
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(RunError::interrupted("cancelled", "cancelled before it started")),
        slot = slot => slot,
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Waits until the run has said nothing for as long as it may.
async fn silent_too_long(end: &RunEnd, max: Option<Duration>) -> RunError {
    let Some(max) = max else { return pending().await };
    loop {
        // One that waits for somebody is as if it had spoken: its silence begins when that is over.
        let lasts = end.silence().map_or(Duration::ZERO, |silence| silence.lasts);
        let Some(rest) = max.checked_sub(lasts).filter(|rest| !rest.is_zero()) else {
            let message = format!(
                "timeout: it said nothing for {lasts:.1?}, and its limit is {max:?} (max_silence_ms)"
            );
            return RunError::failed("timeout", message);
        };
        // A limit beyond what the clock can say is none.
        passed(Instant::now().checked_add(rest)).await;
    }
}

/// A root whose agent is done waits for its tree: nothing of it is left unowned (L19).
struct Rest<'a> {
    delegator: &'a Delegator,
    session: &'a SessionInfo,
    end: &'a RunEnd,
    stop: &'a CancellationToken,
}

#[derive(Debug, PartialEq, Eq)]
enum Rested {
    InTime,
    /// What ran beyond the limit of the root's wall time was stopped.
    TooLate,
}

impl Rest<'_> {
    async fn until(&self, deadline: Option<Instant>) -> Rested {
        let at_rest = self.at_rest();
        tokio::pin!(at_rest);
        let rested = tokio::select! {
            biased;
            () = &mut at_rest => return Rested::InTime,
            () = self.cancelled_alone() => return Rested::InTime,
            () = passed(deadline) => Rested::TooLate,
        };
        stop_below(self.delegator, self.session).await;
        tokio::select! {
            () = at_rest => {}
            () = self.cancelled_alone() => {}
        }
        rested
    }

    /// Neither a run nor a delegation of the tree is open: between two members of a sequence that was
    /// started in the background there is no run.
    async fn at_rest(&self) {
        let tasks = self.delegator.tasks();
        loop {
            tasks.none_open(&self.session.root).await;
            self.end.tree_at_rest().await;
            if !tasks.any_open(&self.session.root) {
                return;
            }
        }
    }

    /// Its run was cancelled and its children were not: they go on, and it does not wait for them. When all
    /// was cancelled they have ended before, and only the ends of delegations are still to be told.
    async fn cancelled_alone(&self) {
        self.stop.cancelled().await;
        if !self.end.is_cancelled() || self.end.tree_at_rest().now_or_never().is_some() {
            pending::<()>().await;
        }
    }
}

/// Stops what a session started: its delegations, so that no sequence goes on, then its children.
async fn stop_below(delegator: &Delegator, session: &SessionInfo) {
    let (manager, id) = (delegator.manager(), &session.id);
    delegator.tasks().cancel_of(session, manager).await;
    let children = match manager.children(id).await {
        Ok(children) => children,
        Err(error) => {
            tracing::warn!(session = %id, %error, "the children to be stopped cannot be read");
            return;
        }
    };
    let stops = children.iter().map(|child| manager.cancel(&child.data.id, CancelScope::Subtree));
    for stopped in futures_util::future::join_all(stops).await {
        if let Err(refused) = stopped {
            tracing::warn!(session = %id, %refused, "a child was not stopped");
        }
    }
}

fn caught(
    worked: Result<Result<Answer, RunError>, Box<dyn std::any::Any + Send>>,
) -> Result<Answer, RunError> {
    worked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(RunError::failed("panicked", format!("the agent panicked: {text}")))
    })
}

/// Does what the node is: the work of an agent, or the members of a team as children of this run's session.
async fn execute(
    delegator: Delegator,
    node: Node,
    prompt: Prompt,
    context: RunContext,
) -> Result<Answer, RunError> {
    match node {
        Node::Agent(agent) => agent.run(prompt, context).await,
        Node::Team(_) | Node::TeamRun(_) => {
            let how = team::How::default();
            let mut answer = team::run(&delegator, &context, &node, prompt, &how).await?.into_answer()?;
            if answer.text.len() > MAX_REPEATED_BYTES {
                answer = stream(&context, answer.text).await?;
            }
            Ok(answer)
        }
    }
}

/// Tells a whole answer in pieces; a long one is not repeated behind them.
pub(crate) async fn stream(context: &RunContext, text: String) -> Result<Answer, StoreError> {
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        context.emit(Event::TextDelta(TextDelta { text: piece.to_owned() })).await?;
        rest = after;
    }
    let message = context.streamed(text.len()).await?;
    Ok(Answer { text, message })
}

fn result(
    session: &SessionInfo,
    ended: Result<Outcome, StoreError>,
    worked: Result<Answer, RunError>,
) -> MemberResult {
    let (outcome, store_error) = match ended {
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::Failed, Some(error.to_string())),
    };
    let (output, error) = match worked {
        Ok(answer) => (answer.text, None),
        Err(error) => (error.partial, Some(error.message)),
    };
    let error = match outcome {
        Outcome::Completed => None,
        Outcome::Cancelled => Some("cancelled".to_owned()),
        Outcome::Failed | Outcome::Interrupted => store_error.or(error),
    };
    MemberResult {
        node: session.agent_name.clone(),
        session: Some(session.id.clone()),
        outcome,
        output,
        error,
    }
}
