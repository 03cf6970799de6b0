//! How a run ends: once, whatever happens to whoever had the duty.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use offspring_protocol::{
    Event, MessageId, Outcome, RawEvent, RunState, SessionState,
    event::{RunFailed, StatusChanged, StreamComplete},
};
use offspring_tree::lifecycle::Signal;
use smallvec::{SmallVec, smallvec};
use tokio::sync::{mpsc, oneshot};

use super::Core;
use crate::{
    error::RunError,
    ids,
    live::lock,
    manager::SessionManager,
    silence::Silence,
    store::{Durability, StoreError, Write},
    writer::{Ack, Line, Op, Then},
};

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
pub struct RunEnd(pub(super) Option<Arc<Core>>);

impl RunEnd {
    /// Ends the run, once and for good (rule L12): emits the answer and the terminal event, and returns
    /// when both are committed. A run that was cancelled from outside ends as cancelled whatever the
    /// result.
    ///
    /// # Errors
    /// When the store cannot be written; the run is over in this process all the same.
    pub async fn finish(self, result: Result<Answer, RunError>) -> Result<Outcome, StoreError> {
        self.finish_as(&result).await
    }

    /// As [`finish`](Self::finish), of a result that somebody else gets too: a long answer is not copied.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub async fn finish_as(mut self, result: &Result<Answer, RunError>) -> Result<Outcome, StoreError> {
        let Some(core) = self.0.clone() else { return Err(StoreError::Closed) };
        // Dropped while it waits, it ends as interrupted: `self` still has the duty.
        let Ok(place) = core.tree.writer.reserve().await else { return Err(StoreError::Closed) };
        self.0 = None;
        let (ack, committed) = oneshot::channel();
        let outcome = core.end(place, result, Some(ack));
        committed.await.unwrap_or(Err(StoreError::Closed)).map(|_| outcome)
    }

    /// Waits until no other run is open in the whole tree (rule L19).
    pub async fn tree_at_rest(&self) {
        if let Some(core) = &self.0 {
            core.tree.at_rest_but_for(1).await;
        }
    }

    /// How long the run may say nothing: for whoever shows it. Nothing ends it but who drives it.
    pub fn limit_silence(&self, limit: Duration) {
        if let Some(core) = &self.0 {
            core.open.heard.set_limit(limit);
        }
    }

    /// How long the run has said nothing; `None` while it waits for a child or an answer.
    #[must_use]
    pub fn silence(&self) -> Option<Silence> {
        let core = self.0.as_ref()?;
        core.tree.state().members.get(&core.info.id)?.silence()
    }

    /// Whether the run was cancelled from outside.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|core| lock(&core.open.changing).forced == Some(Outcome::Cancelled))
    }

    /// Why the tree's store takes nothing more, if it does not: then everything in the tree was asked to stop.
    #[must_use]
    pub fn store_failure(&self) -> Option<StoreError> {
        self.0.as_ref().and_then(|core| core.tree.state().failed.clone())
    }

    /// The manager that keeps the session.
    #[must_use]
    pub fn manager(&self) -> Option<&SessionManager> {
        self.0.as_ref().map(|core| &core.manager)
    }
}

impl Drop for RunEnd {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        let lost = || Err(RunError::interrupted("dropped", "the run was dropped before it ended"));
        // No await in a drop: when the queue is full a task waits for room in it.
        let full = match core.tree.writer.try_reserve() {
            Ok(place) => {
                let _ = core.end(place, &lost(), None);
                return;
            }
            Err(refused) => matches!(refused, mpsc::error::TrySendError::Full(())),
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if full => drop(runtime.spawn(async move {
                match core.tree.writer.reserve().await {
                    Ok(place) => {
                        let _ = core.end(place, &lost(), None);
                    }
                    Err(_) => core.over(),
                }
            })),
            // Nothing reads the queue any more.
            _ => core.over(),
        }
    }
}

impl Core {
    /// Sends the last lines of the run and its record; the writer says when it is over.
    fn end(
        self: &Arc<Self>,
        place: mpsc::Permit<'_, Op>,
        result: &Result<Answer, RunError>,
        ack: Option<Ack>,
    ) -> Outcome {
        let Self { info, open, .. } = &**self;
        let run = Some(&open.id);
        let mut changing = lock(&open.changing);
        let cancelled = changing.forced == Some(Outcome::Cancelled);
        let mut lines = SmallVec::new();
        let (message, error) = match result {
            Ok(Answer { message: Some(message), .. }) => (Some(message.clone()), None),
            Ok(Answer { text, message: None }) if !(cancelled && text.is_empty()) => {
                let message_id = ids::message();
                lines.push(Line::raw(
                    info,
                    run,
                    Signal::Event,
                    RawEvent::message_complete(&message_id, text),
                ));
                (Some(message_id), None)
            }
            Ok(_) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let text = error.map(|error| error.message.clone());
        let terminal = match error {
            Some(RunError { message, code, interrupted, .. }) if !cancelled => Event::RunError(RunFailed {
                message: message.clone(),
                code: code.clone().into_owned(),
                interrupted: *interrupted,
            }),
            _ => Event::StreamComplete(StreamComplete { cancelled, message_id: message }),
        };
        // The terminal event decides, and nothing that was seen on the way (L12).
        let outcome = terminal.terminal().unwrap_or(Outcome::Failed);
        lines.push(Line::new(info, run, terminal));
        let status = StatusChanged { state: SessionState::Idle, outcome: Some(outcome) };
        lines.push(Line::new(info, None, Event::StatusChanged(status)));
        changing.record.state = RunState::Ended(outcome);
        changing.record.error = text;
        changing.record.ended_at = Some(ids::now());
        place.send(Op {
            writes: smallvec![Write::Run(Box::new(changing.record.clone()))],
            lines,
            durability: if info.parent.is_none() {
                self.manager.root_durability()
            } else {
                Durability::Process
            },
            then: Then::End(Arc::clone(self), ack),
            ..Op::default()
        });
        outcome
    }

    /// The run is over in memory: counts go down, waiters wake.
    pub(crate) fn over(&self) {
        let mut state = self.tree.state();
        let Some(member) = state.members.get_mut(&self.info.id) else { return };
        if member.open.take_if(|open| open.id == self.open.id).is_none() {
            return;
        }
        if self.manager.inner.detached {
            member.last_run = Some(Box::new(lock(&self.open.changing).record.clone()));
        }
        state.open_runs = state.open_runs.saturating_sub(1);
        if state.open_runs == 0 {
            state.resting_since = Some(Instant::now());
        }
        if let Some(parent) = self.info.parent.as_ref().and_then(|parent| state.members.get_mut(parent)) {
            parent.live_children = parent.live_children.saturating_sub(1);
            if let Some(open) = &parent.open {
                open.heard.now();
            }
        }
        drop(state);
        self.open.ended.cancel();
        self.tree.changed.notify_waiters();
    }
}
