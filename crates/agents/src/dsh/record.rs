//! What a run of ours is to the rest of this module: the tokens of a run, which nothing of a runtime can get past
//! without [`Clean`]. Nothing else here holds one of them.

use std::sync::Arc;

use offspring_protocol::{
    Event, External, Outcome, PeerId, SessionId,
    event::{SpawnMechanism, TextDelta},
};
use offspring_sessions::{
    Adopted, AnnouncedChild, Answer, CancelScope, NewChild, Refused, RunContext, RunEnd, RunError,
    StartedRun, StoreError,
};
use tokio_util::sync::CancellationToken;

use super::{Dsh, clean::Clean};

/// Text is told in pieces of this length.
const PIECE_BYTES: usize = 16 << 10;

/// A run that has begun.
#[derive(Debug)]
pub(super) struct Record {
    context: RunContext,
    clean: Arc<Clean>,
    /// Bytes of text it has told.
    said_bytes: usize,
}

/// A child that waits to be told what it was asked.
#[derive(Debug)]
pub(super) struct Announced {
    child: AnnouncedChild,
    clean: Arc<Clean>,
}

/// The duty to end the run of a child.
#[derive(Debug)]
pub(super) struct End {
    end: RunEnd,
    clean: Arc<Clean>,
}

impl Record {
    pub(super) const fn new(context: RunContext, clean: Arc<Clean>) -> Self {
        Self { context, clean, said_bytes: 0 }
    }

    /// Tells an event. Each text is a message of its own; what is too long of all of them is counted.
    pub(super) async fn say(&mut self, event: Event) -> Result<(), StoreError> {
        let mut text = match self.clean.event(event) {
            Event::TextDelta(TextDelta { text }) if text.is_empty() => return Ok(()),
            Event::TextDelta(TextDelta { text }) => text,
            event => return self.context.emit(event).await,
        };
        if self.said_bytes > 0 {
            text.insert_str(0, "\n\n");
        }
        let room = self.clean.max_text_bytes().saturating_sub(self.said_bytes);
        let (mut rest, beyond) = text.split_at(text.floor_char_boundary(room));
        self.said_bytes += rest.len();
        self.context.left_out(beyond.len() as u64);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            self.context.emit(Event::TextDelta(TextDelta { text: piece.to_owned() })).await?;
            rest = after;
        }
        Ok(())
    }

    /// A sign of life that is no event.
    pub(super) fn heard(&self) {
        self.context.heard();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    /// The third door: stored and announced (L1–L4), with the limit it breaches.
    pub(super) async fn adopt(
        &self,
        agent: &Dsh,
        peer: &SessionId,
    ) -> Result<(Announced, Option<Refused>), Refused> {
        let external = external(&agent.peer, peer, &self.clean);
        let new = NewChild {
            mechanism: SpawnMechanism::Spawn,
            model: Some(agent.model.clone()),
            ..NewChild::new(agent.name.clone(), offspring_protocol::AgentType::Dsh)
        };
        let Adopted { child, breach, .. } = self.context.adopt_child(external, new).await?;
        Ok((Announced { child, clean: Arc::clone(&self.clean) }, breach))
    }
}

fn external(agent: &PeerId, peer: &SessionId, clean: &Clean) -> External {
    External { peer: agent.clone(), id: clean.id(peer.as_str()) }
}

impl Announced {
    pub(super) fn stop_requested(&self) -> CancellationToken {
        self.child.stop_requested()
    }

    /// Begins the run, with what it was asked where that is known.
    pub(super) async fn start(self, prompt: &str) -> Result<(Record, End), StoreError> {
        let Self { child, clean } = self;
        let StartedRun { context, end } = child.start(&clean.shown(prompt)).await?;
        Ok((Record::new(context, Arc::clone(&clean)), End { end, clean }))
    }

    /// Ends the run before it began.
    pub(super) async fn give_up(self, error: RunError) -> Result<(), StoreError> {
        match self.clean.result(Err(error)) {
            Err(error) => self.child.give_up(error).await.map(drop),
            Ok(_) => Ok(()),
        }
    }
}

impl End {
    pub(super) async fn finish(self, result: Result<Answer, RunError>) -> Result<Outcome, StoreError> {
        self.end.finish(self.clean.result(result)).await
    }

    /// As [`finish`](Self::finish), after it is decided that the run ends as cancelled.
    pub(super) async fn finish_cancelled(self, of: &Record, error: RunError) -> Result<Outcome, StoreError> {
        let session = of.context.session().id.clone();
        let cancel = of.context.manager().cancel(&session, CancelScope::Run);
        let (_, finished) = tokio::join!(cancel, self.finish(Err(error)));
        finished
    }
}
