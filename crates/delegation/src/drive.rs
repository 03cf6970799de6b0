//! Drives one run from its token to its end: slot, start, work, stop, wall time, panic, rest.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use offspring_protocol::{
    Outcome, RunId, SessionId, SessionInfo, SessionLimits,
    control::MemberResult,
};
use offspring_sessions::{
    AnnouncedChild, Answer, CancelScope, RootSession, RunContext, RunEnd, RunError, StartedRun, StoreError,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    delegator::{Delegator, RootResult, RootRun},
    node::{Node, OnExit, Prompt},
    team,
};

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

    async fn start(self, prompt: &str) -> Result<StartedRun, StoreError> {
        match self {
            Self::Root(root) => root.start(prompt).await,
            Self::Child(child) => child.start(prompt).await,
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
pub(crate) fn root(delegator: Delegator, root: RootSession, node: Node, prompt: Prompt) -> RootRun {
    let session = Arc::clone(root.session());
    let run = root.run_id().clone();
    let driven = tokio::spawn(drive(delegator, Token::Root(root), node, prompt, true));
    let (lost_session, lost_node) = (session.id.clone(), session.agent_name.clone());
    let result = tokio::spawn(async move {
        let result = driven.await;
        RootResult::from(result.unwrap_or_else(|error| lost(lost_node, lost_session, &error)))
    });
    RootRun { session, run, result }
}

/// Starts the run of a child.
pub(crate) fn child(delegator: Delegator, child: AnnouncedChild, node: Node, prompt: Prompt) -> Driven {
    let session = Arc::clone(child.session());
    let driven: BoxFuture<'static, MemberResult> = Box::pin(drive(delegator, Token::Child(child), node, prompt, false));
    Driven { session, handle: tokio::spawn(driven) }
}

/// Waits for the end of a run.
pub(crate) async fn finished(driven: Driven) -> MemberResult {
    let Driven { session, handle } = driven;
    handle.await.unwrap_or_else(|error| lost(session.agent_name.clone(), session.id.clone(), &error))
}

/// The runtime shuts down under a run; its token's drop has ended it.
fn lost(node: offspring_protocol::NodeName, session: SessionId, error: &tokio::task::JoinError) -> MemberResult {
    let (outcome, error) = (Outcome::Interrupted, Some(format!("the run was lost: {error}")));
    MemberResult { node, session: Some(session), outcome, output: String::new(), error }
}

async fn drive(delegator: Delegator, token: Token, node: Node, prompt: Prompt, is_root: bool) -> MemberResult {
    let session = Arc::clone(token.session());
    let run_id = token.run_id().clone();
    let stop = token.stop_requested();
    let max_wall = token.limits().max_wall_ms.map(Duration::from_millis);

    let takes_slot = matches!(&node, Node::Agent(agent) if agent.takes_slot());
    let slot = if takes_slot {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                let stopped = RunError::interrupted("cancelled", "cancelled before it started");
                let ended = token.give_up(stopped.clone()).await;
                return result(&session, ended, Err(stopped));
            }
            slot = delegator.slots().acquire(&run_id, session.parent.as_ref()) => match slot {
                Ok(slot) => Some(slot),
                Err(full) => {
                    let refused = RunError::failed("queue_full", full.to_string());
                    let ended = token.give_up(refused.clone()).await;
                    return result(&session, ended, Err(refused));
                }
            },
        }
    } else {
        None
    };

    let StartedRun { context, end } = match token.start(&prompt.text).await {
        Ok(started) => started,
        Err(error) => return result(&session, Err(error.clone()), Err(error.into())),
    };
    let (grace, on_exit) = match &node {
        Node::Agent(agent) => (agent.stop_grace(), agent.on_exit()),
        Node::Team(_) | Node::TeamRun(_) => (TEAM_GRACE, OnExit::Wait),
    };
    let work = AssertUnwindSafe(execute(delegator.clone(), node, prompt, context)).catch_unwind();
    tokio::pin!(work);
    let wall = async {
        match max_wall {
            Some(wall) => tokio::time::sleep(wall).await,
            None => std::future::pending().await,
        }
    };
    let mut worked = tokio::select! {
        worked = &mut work => caught(worked),
        () = stop.cancelled() => match tokio::time::timeout(grace, &mut work).await {
            Ok(worked) => caught(worked),
            Err(_) => Err(RunError::interrupted("cancelled", "cancelled")),
        },
        () = wall => {
            stop_below(&delegator, &session.id).await;
            stop.cancel();
            // What it still gives is not asked for: the limit decides.
            let _ = tokio::time::timeout(grace, &mut work).await;
            let limit = max_wall.unwrap_or_default();
            Err(RunError::failed("timeout", format!("it ran longer than its limit of {limit:?}")))
        }
    };
    drop(slot);
    if on_exit == OnExit::Cancel {
        stop_below(&delegator, &session.id).await;
    }
    if is_root {
        rest(&end, &stop, &mut worked).await;
    }
    let ended = end.finish(worked.clone()).await;
    result(&session, ended, worked)
}

/// A team stops by itself: its members are stopped before it, each with a grace of its own.
const TEAM_GRACE: Duration = Duration::from_secs(20);

/// Nothing of the tree is left unowned (L19).
async fn rest(end: &RunEnd, stop: &CancellationToken, worked: &mut Result<Answer, RunError>) {
    end.tree_at_rest().await;
    if stop.is_cancelled() && !end.is_cancelled() && worked.is_ok() {
        // Asked to stop by a failing store and not by anybody: no answer that was not stored.
        *worked = Err(RunError::interrupted("store", "the store failed while the run was going on"));
    }
}

async fn stop_below(delegator: &Delegator, session: &SessionId) {
    let children = match delegator.manager().children(session).await {
        Ok(children) => children,
        Err(error) => {
            tracing::warn!(%session, %error, "the children to be stopped cannot be read");
            return;
        }
    };
    let stops = children.iter().map(|child| delegator.manager().cancel(&child.data.id, CancelScope::Subtree));
    for stopped in futures_util::future::join_all(stops).await {
        if let Err(refused) = stopped {
            tracing::warn!(%session, %refused, "a child was not stopped");
        }
    }
}

fn caught(worked: Result<Result<Answer, RunError>, Box<dyn std::any::Any + Send>>) -> Result<Answer, RunError> {
    worked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(RunError::failed("panicked", format!("the agent panicked: {text}")))
    })
}

/// Does what the node is: the work of an agent, or the members of a team as children of this run's session.
async fn execute(delegator: Delegator, node: Node, prompt: Prompt, context: RunContext) -> Result<Answer, RunError> {
    match node {
        Node::Agent(agent) => agent.run(prompt, context).await,
        Node::Team(_) | Node::TeamRun(_) => {
            let how = team::How::default();
            team::run(&delegator, &context, &node, prompt, &how).await?.into_answer()
        }
    }
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
        Err(error) => (String::new(), Some(error.message)),
    };
    let error = match outcome {
        Outcome::Completed => None,
        Outcome::Cancelled => Some("cancelled".to_owned()),
        Outcome::Failed | Outcome::Interrupted => store_error.or(error),
    };
    MemberResult { node: session.agent_name.clone(), session: Some(session.id.clone()), outcome, output, error }
}
