//! One run: a turn of the runtime, and what its tree becomes in ours.

use std::{collections::HashMap, sync::Arc};

use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use offspring_client::{ClientError, TurnResult, TurnStream};
use offspring_delegation::Prompt;
use offspring_protocol::{
    AgentType, Event, External, SessionId,
    event::{Custom, SpawnMechanism},
};
use offspring_sessions::{
    Adopted, Answer, CancelScope, NewChild, Refused, RunContext, RunEnd, RunError, StartedRun, StoreError,
};
use serde_json::{json, value::to_raw_value};

use super::{
    Dsh,
    runtime::Lease,
    translate::{Ending, Place, Step, Translation},
};

/// The name of the [`Custom`] event that says that the runtime works on although our run was stopped.
const NOT_STOPPED: &str = "dsh.not_stopped";

pub(super) async fn run(agent: Arc<Dsh>, prompt: Prompt, cx: RunContext) -> Result<Answer, RunError> {
    let no_directory = || RunError::failed("cwd", "the session has no working directory");
    let cwd = cx.cwd().ok_or_else(no_directory)?.to_owned();
    let stop = cx.stop_requested();
    let kill = agent.host.kill.clone();
    let peer = peer_session(&agent, &cx);
    let lease = Lease::take(&agent, &cwd).await.map_err(|error| failed(&agent, &error))?;
    if let Some(identity) = lease.identity() {
        cx.record_process(identity).await?;
    }
    let mut run = Run {
        translation: Translation::new(peer.clone(), agent.host.withheld(), agent.max_output_bytes),
        agent: Arc::clone(&agent),
        cx,
        children: HashMap::new(),
        stops: FuturesUnordered::new(),
        lease,
    };
    let asked_to_stop = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = kill.cancelled() => {}
        }
    };
    tokio::pin!(asked_to_stop);
    let worked = tokio::select! {
        biased;
        () = &mut asked_to_stop => Err(Stopped::Asked),
        worked = run.turn(&cwd, &peer, &prompt.text) => worked,
    };
    match worked {
        Ok(result) => run.rested(result).await,
        Err(Stopped::Asked) => {
            let killed = kill.is_cancelled();
            run.stopped(&peer, killed).await
        }
        Err(Stopped::Failed(error)) => run.lost(error).await,
    }
}

/// Why a turn was not followed to its end.
enum Stopped {
    /// Somebody asked for it.
    Asked,
    Failed(RunError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// The runtime's session that ours stands for: one it started itself, or one that bears our id.
fn peer_session(agent: &Dsh, cx: &RunContext) -> SessionId {
    let external = cx.data().external.as_ref().filter(|external| external.peer == agent.peer);
    let named = external.and_then(|external| SessionId::new(&external.id).ok());
    named.unwrap_or_else(|| cx.session().id.clone())
}

/// What went wrong between us and the runtime, as the end of a run. Nothing withheld is in it (W10).
fn failed(agent: &Dsh, error: &ClientError) -> RunError {
    let text = agent.host.withheld().text(&error.to_string());
    let code = match error {
        ClientError::RuntimeGone(_) => return RunError::interrupted("runtime_gone", text),
        ClientError::Program(_) | ClientError::Spawn(_) => "spawn",
        ClientError::NotActivated { .. } => "not_activated",
        ClientError::Timeout { .. } => "timeout",
        ClientError::TreeOpen { .. } => "tree_open",
        ClientError::Refused { .. } => "refused_by_runtime",
        _ => "runtime",
    };
    RunError::failed(code, text)
}

/// A session of the runtime in our tree, while its run is open and after that.
struct Child {
    context: RunContext,
    end: Option<RunEnd>,
}

struct Run {
    agent: Arc<Dsh>,
    cx: RunContext,
    translation: Translation,
    children: HashMap<Place, Child>,
    /// Those of our runs that are asked to stop. As many as children were started.
    stops: FuturesUnordered<BoxFuture<'static, Place>>,
    lease: Lease,
}

impl Run {
    async fn turn(
        &mut self,
        cwd: &std::path::Path,
        peer: &SessionId,
        prompt: &str,
    ) -> Result<TurnResult, Stopped> {
        let agent = Arc::clone(&self.agent);
        let broken = |error: &ClientError| Stopped::Failed(failed(&agent, error));
        let mut stream: TurnStream =
            self.lease.prompt(&agent, cwd, peer, prompt).await.map_err(|error| broken(&error))?;
        loop {
            tokio::select! {
                biased;
                Some(place) = self.stops.next(), if !self.stops.is_empty() => self.child_stopped(place).await?,
                next = stream.next() => match next {
                    Some(Ok(notification)) => {
                        self.cx.heard();
                        match notification.notice() {
                            Ok(notice) => {
                                for step in self.translation.take(notice) {
                                    self.apply(step).await?;
                                }
                            }
                            Err(error) => {
                                tracing::debug!(agent = %agent.name, %error, "a notification cannot be read");
                            }
                        }
                    }
                    Some(Err(error)) => {
                        let partial = error.partial.final_response.clone().unwrap_or_default();
                        let partial = self.translation.shown(&partial);
                        return Err(Stopped::Failed(failed(&agent, &error.reason).with_partial(partial)));
                    }
                    None => return stream.finish().map_err(|error| broken(&error.reason)),
                },
            }
        }
    }

    async fn apply(&mut self, step: Step) -> Result<(), Stopped> {
        match step {
            Step::Adopt { place, under, peer } => self.adopt(place, under, peer).await,
            Step::Say(place, event) => match self.context(place) {
                Some(context) => Ok(context.emit(event).await?),
                None => Ok(()),
            },
            Step::LeftOut(place, bytes) => {
                if let Some(context) = self.context(place) {
                    context.left_out(bytes);
                }
                Ok(())
            }
            Step::End(place, ending) => self.end_child(place, ending).await,
        }
    }

    fn context(&self, place: Place) -> Option<&RunContext> {
        if place == Place::ROOT {
            Some(&self.cx)
        } else {
            self.children.get(&place).map(|child| &child.context)
        }
    }

    /// The third door: store, announce, run (L1–L4, L12).
    async fn adopt(&mut self, place: Place, under: Place, peer: SessionId) -> Result<(), Stopped> {
        let external = External { peer: self.agent.peer.clone(), id: peer.as_str().to_owned() };
        let new = NewChild {
            mechanism: SpawnMechanism::Spawn,
            model: Some(self.agent.model.clone()),
            ..NewChild::new(self.agent.name.clone(), AgentType::Dsh)
        };
        let Some(parent) = self.context(under) else {
            self.translation.mute(place);
            return Ok(());
        };
        let Adopted { child, breach, .. } = match parent.adopt_child(external, new).await {
            Ok(adopted) => adopted,
            Err(Refused::Store(error)) => return Err(error.into()),
            // It is being cancelled, with us or above us: what is still started there is nobody's any more.
            Err(refused) => {
                tracing::debug!(agent = %self.agent.name, session = %peer, %refused, "not adopted");
                self.translation.mute(place);
                return Ok(());
            }
        };
        if let Some(breach) = breach {
            return self.refuse(place, &peer, child, breach).await;
        }
        let stop = child.stop_requested();
        let StartedRun { context, end } = child.start("").await?;
        self.stops.push(
            async move {
                stop.cancelled_owned().await;
                place
            }
            .boxed(),
        );
        self.children.insert(place, Child { context, end: Some(end) });
        Ok(())
    }

    /// A child beyond a limit (L5): it exists, and it is stopped; with it the whole run, where that is the only way.
    async fn refuse(
        &mut self,
        place: Place,
        peer: &SessionId,
        child: offspring_sessions::AnnouncedChild,
        breach: Refused,
    ) -> Result<(), Stopped> {
        self.translation.mute(place);
        child.give_up(RunError::failed("refused", breach.to_string())).await?;
        match self.lease.cancel(peer).await {
            Ok(()) => Ok(()),
            Err(why) if self.lease.is_shared() => Ok(self.say_not_stopped(peer, &why).await?),
            Err(_) => Err(Stopped::Failed(RunError::failed("limit", breach.to_string()))),
        }
    }

    async fn end_child(&mut self, place: Place, ending: Ending) -> Result<(), Stopped> {
        let Some(child) = self.children.get_mut(&place) else { return Ok(()) };
        let Some(end) = child.end.take() else { return Ok(()) };
        let aborted = matches!(ending, Ending::Aborted { .. });
        let session = child.context.session().id.clone();
        let finishing = end.finish(result(ending));
        if aborted {
            // First it is decided that it ends as cancelled, then it ends.
            let (_, finished) = tokio::join!(self.cx.manager().cancel(&session, CancelScope::Run), finishing);
            finished?;
        } else {
            finishing.await?;
        }
        Ok(())
    }

    /// Somebody cancelled a session of the runtime, alone or with everything (L14).
    async fn child_stopped(&mut self, place: Place) -> Result<(), Stopped> {
        let Some(end) = self.children.get_mut(&place).and_then(|child| child.end.take()) else {
            return Ok(());
        };
        // With everything, the process of our own run ends next, and nothing has to be asked of it.
        if self.lease.is_shared() || !self.cx.is_cancelled() {
            let peer = self.translation.peer(place).clone();
            if let Err(why) = self.lease.cancel(&peer).await {
                self.say_not_stopped(&peer, &why).await?;
            }
        }
        self.translation.mute(place);
        end.finish(Err(RunError::interrupted("cancelled", "cancelled"))).await?;
        Ok(())
    }

    async fn say_not_stopped(&mut self, peer: &SessionId, why: &str) -> Result<(), StoreError> {
        let why = self.translation.shown(why);
        tracing::warn!(agent = %self.agent.name, session = %peer, why, "the runtime goes on with a session that was cancelled");
        let data = to_raw_value(&json!({
            "session": peer,
            "message": format!("the runtime goes on with it: {why}; what it still says is dropped"),
        }));
        let data = data.unwrap_or_default();
        self.cx.emit(Event::Custom(Custom { name: NOT_STOPPED.to_owned(), data })).await
    }

    /// The whole tree is at rest.
    async fn rested(mut self, turn: TurnResult) -> Result<Answer, RunError> {
        // Where a finish never comes, as of a child that was resumed, its run is not left open.
        let lost = self.interrupt("no_finish", "the runtime came to rest and did not say how it ended").await;
        let ending = self.translation.root_ending(turn.final_response, turn.finish_reason.as_deref());
        self.close().await;
        lost?;
        result(ending)
    }

    /// The runtime is gone, or does not do what it should.
    async fn lost(mut self, error: RunError) -> Result<Answer, RunError> {
        let lost = if self.lease.is_shared() && !error.interrupted {
            let peer = self.translation.peer(Place::ROOT).clone();
            match self.lease.cancel(&peer).await {
                Ok(()) => Ok(()),
                Err(why) => self.say_not_stopped(&peer, &why).await,
            }
        } else {
            Ok(())
        };
        let interrupted = self.interrupt(&error.code, &error.message).await;
        self.close().await;
        lost.and(interrupted)?;
        Err(error)
    }

    /// We are asked to stop, after everything below us was (L14).
    async fn stopped(mut self, peer: &SessionId, killed: bool) -> Result<Answer, RunError> {
        let stopped = RunError::interrupted("cancelled", "cancelled");
        if killed {
            self.lease.runtime().kill().await;
        } else if self.lease.is_shared()
            && let Err(why) = self.lease.cancel(peer).await
        {
            self.say_not_stopped(peer, &why).await?;
        }
        let kill = self.agent.host.kill.clone();
        let interrupted = self.interrupt("cancelled", "its parent was stopped").await;
        let Self { lease, agent, .. } = self;
        let runtime = lease.runtime();
        let ending = lease.end();
        tokio::pin!(ending);
        let closed = tokio::select! {
            closed = &mut ending => closed,
            // Somebody cannot wait any longer for the polite way.
            () = kill.cancelled(), if !killed => {
                runtime.kill().await;
                ending.await
            }
        };
        warn_of_survivors(&agent, closed);
        interrupted?;
        Err(stopped)
    }

    /// Ends what is open below us, deepest first.
    async fn interrupt(&mut self, code: &str, message: &str) -> Result<(), StoreError> {
        for place in self.translation.open() {
            self.translation.mute(place);
            let Some(end) = self.children.get_mut(&place).and_then(|child| child.end.take()) else {
                continue;
            };
            end.finish(Err(RunError::interrupted(code.to_owned(), message))).await?;
        }
        let dropped = self.translation.dropped();
        if dropped > 0 {
            tracing::debug!(agent = %self.agent.name, dropped, "notifications that belong to no session of ours");
        }
        Ok(())
    }

    async fn close(self) {
        let Self { lease, agent, .. } = self;
        warn_of_survivors(&agent, lease.end().await);
    }
}

fn warn_of_survivors(agent: &Dsh, closed: Option<offspring_client::Closed>) {
    if let Some(exit) = closed.and_then(|closed| closed.exit)
        && !exit.survivors.is_empty()
    {
        tracing::warn!(agent = %agent.name, pids = ?exit.survivors, "processes of a runtime could not be ended");
    }
}

fn result(ending: Ending) -> Result<Answer, RunError> {
    match ending {
        Ending::Completed(text) => Ok(text.into()),
        Ending::Failed { code, message, partial } => {
            Err(RunError::failed(code, message).with_partial(partial))
        }
        Ending::Aborted { partial } => {
            Err(RunError::interrupted("aborted", "the runtime stopped it").with_partial(partial))
        }
    }
}
