//! One run: a turn of the runtime, and what its tree becomes in ours.

use std::{collections::HashMap, sync::Arc};

use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use offspring_client::{ClientError, TurnResult, TurnStream};
use offspring_delegation::Prompt;
use offspring_protocol::{Event, SessionId, event::Custom};
use offspring_sessions::{Answer, Refused, RunContext, RunError, StoreError};
use serde_json::{json, value::to_raw_value};

use super::{
    Dsh,
    clean::Clean,
    record::{Announced, End, Record},
    runtime::Lease,
    translate::{Ending, Place, Step, Translation},
};

/// The name of the [`Custom`] event that says that the runtime works on although our run was stopped.
const NOT_STOPPED: &str = "dsh.not_stopped";

pub(super) async fn run(agent: Arc<Dsh>, prompt: Prompt, cx: RunContext) -> Result<Answer, RunError> {
    let clean = agent.clean();
    let result = attempt(agent, prompt, cx, &clean).await;
    clean.result(result)
}

async fn attempt(
    agent: Arc<Dsh>,
    prompt: Prompt,
    cx: RunContext,
    clean: &Arc<Clean>,
) -> Result<Answer, RunError> {
    let no_directory = || RunError::failed("cwd", "the session has no working directory");
    let cwd = cx.cwd().ok_or_else(no_directory)?.to_owned();
    let stop = cx.stop_requested();
    let kill = agent.host.kill.clone();
    let peer = peer_session(&agent, &cx)?;
    let lease = Lease::take(&agent, &cwd).map_err(|error| failed(&error))?;
    if let Some(identity) = lease.identity() {
        cx.record_process(identity).await?;
    }
    let mut run = Run {
        translation: Translation::new(peer.clone()),
        agent,
        root: Record::new(cx, Arc::clone(clean)),
        clean: Arc::clone(clean),
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
fn peer_session(agent: &Dsh, cx: &RunContext) -> Result<SessionId, RunError> {
    let own = cx.session().id.clone();
    match cx.data().external.as_ref().filter(|external| external.peer == agent.peer) {
        Some(external) => Ok(SessionId::new(agent.ids.given(&external.id)?).unwrap_or(own)),
        None => Ok(own),
    }
}

/// What went wrong between us and the runtime, as the end of a run.
fn failed(error: &ClientError) -> RunError {
    let code = match error {
        ClientError::RuntimeGone(_) => return RunError::interrupted("runtime_gone", error.to_string()),
        ClientError::Program(_) | ClientError::Spawn(_) => "spawn",
        ClientError::NotActivated { .. } => "not_activated",
        ClientError::Timeout { .. } => "timeout",
        ClientError::TreeOpen { .. } => "tree_open",
        ClientError::Refused { .. } => "refused_by_runtime",
        _ => "runtime",
    };
    RunError::failed(code, error.to_string())
}

impl From<&ClientError> for Stopped {
    fn from(error: &ClientError) -> Self {
        Self::Failed(failed(error))
    }
}

/// A session of the runtime in our tree: announced, then at work, then over.
struct Child {
    announced: Option<Announced>,
    record: Option<Record>,
    end: Option<End>,
}

impl Child {
    /// Ends its run from outside, if that is open.
    async fn interrupt(&mut self, code: &str, message: &str) -> Result<(), StoreError> {
        let error = RunError::interrupted(code.to_owned(), message);
        match (self.announced.take(), self.end.take()) {
            (Some(announced), _) => announced.give_up(error).await,
            (None, Some(end)) => end.finish(Err(error)).await.map(drop),
            (None, None) => Ok(()),
        }
    }
}

struct Run {
    agent: Arc<Dsh>,
    root: Record,
    clean: Arc<Clean>,
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
        let mut stream: TurnStream =
            self.lease.prompt(&agent, cwd, peer, prompt).await.map_err(|e| Stopped::from(&e))?;
        loop {
            // What it started is silent with it: whoever waits for a child of this runtime waits for the runtime.
            let silent = async {
                match agent.max_silence {
                    Some(max) => tokio::time::sleep(max).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(place) = self.stops.next(), if !self.stops.is_empty() => self.child_stopped(place).await?,
                next = stream.next() => match next {
                    Some(Ok(notification)) => {
                        self.root.heard();
                        match notification.notice() {
                            Ok(notice) => {
                                for step in self.translation.take(notice) {
                                    self.apply(step).await?;
                                }
                            }
                            Err(error) => {
                                let error = self.clean.shown(&error.to_string());
                                tracing::debug!(agent = %agent.name, error, "a notification cannot be read");
                            }
                        }
                    }
                    Some(Err(error)) => {
                        let partial = error.partial.final_response.clone().unwrap_or_default();
                        return Err(Stopped::Failed(failed(&error.reason).with_partial(partial)));
                    }
                    None => return stream.finish().map_err(|error| Stopped::from(&error.reason)),
                },
                () = silent => {
                    let max = agent.max_silence.unwrap_or_default();
                    let message =
                        format!("timeout: the runtime said nothing for its limit of {max:?} (max_silence_ms)");
                    return Err(Stopped::Failed(RunError::failed("timeout", message)));
                }
            }
        }
    }

    async fn apply(&mut self, step: Step) -> Result<(), Stopped> {
        match step {
            Step::Adopt { place, under, peer } => self.adopt(place, under, &peer).await,
            Step::Begin(place, asked) => self.begin(place, &asked).await,
            Step::Say(place, event) => match self.record(place) {
                Some(record) => Ok(record.say(event).await?),
                None => Ok(()),
            },
            Step::End(place, ending) => self.end_child(place, ending).await,
        }
    }

    fn record(&mut self, place: Place) -> Option<&mut Record> {
        if place == Place::ROOT {
            Some(&mut self.root)
        } else {
            self.children.get_mut(&place)?.record.as_mut()
        }
    }

    /// The third door: store, announce, run (L1–L4, L12).
    async fn adopt(&mut self, place: Place, under: Place, peer: &SessionId) -> Result<(), Stopped> {
        let agent = Arc::clone(&self.agent);
        let Some(parent) = self.record(under) else {
            self.translation.mute(place);
            return Ok(());
        };
        let (announced, breach) = match parent.adopt(&agent, peer).await {
            Ok(adopted) => adopted,
            Err(Refused::Store(error)) => return Err(error.into()),
            // It is being cancelled, with us or above us: what is still started there is nobody's any more.
            Err(refused) => {
                let session = self.clean.shown(peer.as_str());
                tracing::debug!(agent = %agent.name, session, %refused, "not adopted");
                self.translation.mute(place);
                return Ok(());
            }
        };
        if let Some(breach) = breach {
            return self.refuse(place, peer, announced, breach).await;
        }
        let stop = announced.stop_requested();
        self.stops.push(
            async move {
                stop.cancelled_owned().await;
                place
            }
            .boxed(),
        );
        self.children.insert(place, Child { announced: Some(announced), record: None, end: None });
        Ok(())
    }

    async fn begin(&mut self, place: Place, asked: &str) -> Result<(), Stopped> {
        let Some(child) = self.children.get_mut(&place) else { return Ok(()) };
        if let Some(announced) = child.announced.take() {
            let (record, end) = announced.start(asked).await?;
            (child.record, child.end) = (Some(record), Some(end));
        }
        Ok(())
    }

    /// A child beyond a limit (L5): it exists, and it is stopped; with it the whole run, where that is the only way.
    async fn refuse(
        &mut self,
        place: Place,
        peer: &SessionId,
        child: Announced,
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
        let Some(Child { record: Some(record), end, .. }) = self.children.get_mut(&place) else {
            return Ok(());
        };
        let Some(end) = end.take() else { return Ok(()) };
        let aborted = matches!(ending, Ending::Aborted { .. });
        match result(ending) {
            Err(error) if aborted => end.finish_cancelled(record, error).await?,
            result => end.finish(result).await?,
        };
        Ok(())
    }

    /// Somebody cancelled a session of the runtime, alone or with everything (L14).
    async fn child_stopped(&mut self, place: Place) -> Result<(), Stopped> {
        let open = |child: &Child| child.announced.is_some() || child.end.is_some();
        if !self.children.get(&place).is_some_and(open) {
            return Ok(());
        }
        // With everything, the process of our own run ends next, and nothing has to be asked of it.
        if self.lease.is_shared() || !self.root.is_cancelled() {
            let peer = self.translation.peer(place).clone();
            if let Err(why) = self.lease.cancel(&peer).await {
                self.say_not_stopped(&peer, &why).await?;
            }
        }
        self.translation.mute(place);
        if let Some(child) = self.children.get_mut(&place) {
            child.interrupt("cancelled", "cancelled").await?;
        }
        Ok(())
    }

    async fn say_not_stopped(&mut self, peer: &SessionId, why: &str) -> Result<(), StoreError> {
        let (session, why) = (self.clean.shown(peer.as_str()), self.clean.shown(why));
        tracing::warn!(agent = %self.agent.name, session, why, "the runtime goes on with a session that was cancelled");
        let data = to_raw_value(&json!({
            "session": session,
            "message": format!("the runtime goes on with it: {why}; what it still says is dropped"),
        }));
        let data = data.unwrap_or_default();
        self.root.say(Event::Custom(Custom { name: NOT_STOPPED.to_owned(), data })).await
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
            if let Some(child) = self.children.get_mut(&place) {
                child.interrupt(code, message).await?;
            }
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
