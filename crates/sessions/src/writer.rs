//! The one task that numbers, commits and announces the events of a tree (rules L1, L16).
//!
//! What waits while a commit is in flight goes into the next one together; consecutive deltas of one run
//! become one. Nothing is shown before its commit, so a number that was shown is never given again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use offspring_protocol::{Envelope, Event, RawEvent, RunId, SessionInfo, event::TextDelta};
use offspring_tree::lifecycle::{Signal, Transition};
use smallvec::SmallVec;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::DropGuard;

use crate::{
    bus::{Bus, Notice},
    children::{Made, Making},
    ids,
    live::{TreeState, lock},
    run::Core,
    store::{Batch, Durability, Fence, LogRow, SessionStore, StoreError, Write},
};

/// Operations that may wait for a tree's writer; whoever sends more waits (back-pressure, not refusal).
const QUEUE: usize = 256;
/// Bytes of long lines that may wait for a tree's writer or be in its commit; the same back-pressure.
pub(crate) const QUEUE_BYTES: u32 = 1 << 20;
/// A line up to this length is counted by [`QUEUE`] alone.
const LONG_LINE_BYTES: usize = 4 << 10;
/// Operations that go into one commit.
const MAX_OPS_PER_COMMIT: usize = 512;
/// How long lines that nobody waits for may wait for more before they are committed (rule L16 allows 50 ms):
/// a run's start for the process that is recorded right after it, the last output of a program for its end.
const LINGER: Duration = Duration::from_millis(4);
/// A merged delta is not longer than this (rule L16).
const MAX_MERGED_BYTES: usize = 4 << 10;

/// What is to be written and announced, all or nothing.
#[derive(Debug, Default)]
pub(crate) struct Op {
    pub(crate) writes: SmallVec<[Write; 2]>,
    pub(crate) lines: SmallVec<[Line; 2]>,
    pub(crate) durability: Durability,
    /// Might be refused for a reason of its own (an id given from outside): committed alone.
    pub(crate) alone: bool,
    pub(crate) then: Then,
    /// The room that its lines take until they are committed.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Who is told that an op was committed, with the number of the tree's last line then, or why not.
pub(crate) type Ack = oneshot::Sender<Result<u64, StoreError>>;

/// What follows a commit. The writer does it and not the one who asked, who may be gone by then: a dropped
/// future must leave no child without an owner and no ended run open.
#[derive(Debug, Default)]
pub(crate) enum Then {
    #[default]
    Nothing,
    Tell(Ack),
    /// A child is there: it becomes a member of its tree before anybody hears of it.
    Child(Box<Making>),
    /// A run is over, also when the store did not take its end.
    End(Arc<Core>, Option<Ack>),
}

/// An event that has no number yet.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) session: Arc<SessionInfo>,
    pub(crate) run: Option<RunId>,
    pub(crate) body: Body,
    pub(crate) signal: Signal,
}

/// Text is kept as text until it is numbered, so that it can still be merged.
#[derive(Debug)]
pub(crate) enum Body {
    Text(String),
    Thinking(String),
    Raw(RawEvent),
}

impl Line {
    pub(crate) fn new(session: &Arc<SessionInfo>, run: Option<&RunId>, event: Event) -> Self {
        let signal = match (&event, event.terminal()) {
            (_, Some(outcome)) => Signal::Terminal(outcome),
            (Event::RunStarted(_), None) => Signal::Started,
            _ => Signal::Event,
        };
        let body = match event {
            Event::TextDelta(delta) => Body::Text(delta.text),
            Event::ThinkingDelta(delta) => Body::Thinking(delta.text),
            other => Body::Raw(RawEvent::from(&other)),
        };
        Self { session: Arc::clone(session), run: run.cloned(), body, signal }
    }

    /// An event that is written already.
    pub(crate) fn raw(
        session: &Arc<SessionInfo>,
        run: Option<&RunId>,
        signal: Signal,
        event: RawEvent,
    ) -> Self {
        Self { session: Arc::clone(session), run: run.cloned(), body: Body::Raw(event), signal }
    }

    /// Waits for the room that this line takes in front of the writer; a short one takes none.
    pub(crate) async fn room(&self, room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let bytes = match &self.body {
            Body::Text(text) | Body::Thinking(text) => text.len(),
            Body::Raw(raw) => raw.data().get().len(),
        };
        if bytes <= LONG_LINE_BYTES {
            return None;
        }
        // One that is longer than all the room there is takes all of it.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(QUEUE_BYTES);
        // It is never closed.
        Arc::clone(room).acquire_many_owned(bytes).await.ok()
    }

    /// Appends `next` to this line if both are text of the same kind and run.
    fn merge(&mut self, next: &Self) -> bool {
        let same = self.run == next.run && self.session.id == next.session.id;
        match (&mut self.body, &next.body) {
            (Body::Text(text), Body::Text(more)) | (Body::Thinking(text), Body::Thinking(more))
                if same && text.len() + more.len() <= MAX_MERGED_BYTES =>
            {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }
}

impl From<Body> for RawEvent {
    fn from(body: Body) -> Self {
        match body {
            Body::Text(text) => Self::from(&Event::TextDelta(TextDelta { text })),
            Body::Thinking(text) => Self::from(&Event::ThinkingDelta(TextDelta { text })),
            Body::Raw(raw) => raw,
        }
    }
}

/// A channel for the writer of one tree.
pub(crate) fn channel() -> (mpsc::Sender<Op>, mpsc::Receiver<Op>) {
    mpsc::channel(QUEUE)
}

/// Writes until every sender is gone.
pub(crate) async fn write(
    state: Arc<Mutex<TreeState>>,
    fence: Fence,
    mut last_seq: u64,
    mut ops: mpsc::Receiver<Op>,
    store: Arc<dyn SessionStore>,
    bus: Arc<Bus>,
    _written: DropGuard,
) {
    let mut waiting: Vec<Op> = Vec::new();
    loop {
        if waiting.is_empty() && ops.recv_many(&mut waiting, MAX_OPS_PER_COMMIT).await == 0 {
            return;
        }
        linger(&mut waiting, &mut ops).await;
        refuse_after_failure(&state, &mut waiting);
        let later = split(&mut waiting);
        let mut followers: Vec<Then> = Vec::new();
        let batch = Numbered::new(&state, &fence, last_seq, &mut waiting, &mut followers);
        waiting = later;
        let taken = batch.taken;
        // With nothing to write somebody only wants to know that what came before is written.
        let written = match batch.batch.writes.is_empty() {
            true => Ok(()),
            false => store.commit(batch.batch).await.map(drop),
        };
        match written {
            Ok(()) => {
                last_seq = batch.last_seq;
                // Members first: whoever hears of a child finds it here too.
                let followers: Vec<Done> = followers.into_iter().map(Done::from).collect();
                bus.publish(&batch.envelopes);
                followers.into_iter().for_each(|done| done.tell(&bus, last_seq));
            }
            Err(error) => {
                tracing::warn!(root = %fence.root, %error, "a write to the store failed");
                if !matches!(error, StoreError::Taken { .. } | StoreError::BadId(_)) {
                    fail(&state, &error);
                }
                followers.into_iter().for_each(|then| then.refuse(&error));
            }
        }
        drop(taken);
    }
}

/// Takes more in, as long as nobody waits for an answer, for at most [`LINGER`].
async fn linger(waiting: &mut Vec<Op>, ops: &mut mpsc::Receiver<Op>) {
    let mut looked_at = 0;
    let until = Instant::now() + LINGER;
    loop {
        let urgent = waiting[looked_at..].iter().any(|op| op.alone || !matches!(op.then, Then::Nothing));
        looked_at = waiting.len();
        if urgent || looked_at >= QUEUE {
            return;
        }
        match timeout_at(until, ops.recv_many(waiting, MAX_OPS_PER_COMMIT)).await {
            // More came, and perhaps somebody who waits.
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Keeps in `waiting` what goes into this commit and gives back the rest: one that might be refused goes alone.
fn split(waiting: &mut Vec<Op>) -> Vec<Op> {
    match waiting.iter().position(|op| op.alone) {
        Some(0) => waiting.split_off(1),
        Some(first) => waiting.split_off(first),
        None => Vec::new(),
    }
}

/// After a failed commit the tree accepts nothing more, and everything in it is asked to stop: going on
/// without a record would be work that nobody can find again.
fn fail(state: &Mutex<TreeState>, error: &StoreError) {
    let mut state = lock(state);
    state.failed.get_or_insert_with(|| error.clone());
    for open in state.members.values().filter_map(|member| member.open.as_ref()) {
        open.stop.cancel();
    }
}

/// What was queued before the tree failed is refused too, or the log would have a hole in it. Ends of runs
/// are tried all the same: the store may have room again.
fn refuse_after_failure(state: &Mutex<TreeState>, waiting: &mut Vec<Op>) {
    let Some(error) = lock(state).failed.clone() else { return };
    let (ends, others): (Vec<Op>, Vec<Op>) =
        std::mem::take(waiting).into_iter().partition(|op| matches!(op.then, Then::End(..)));
    *waiting = ends;
    others.into_iter().for_each(|op| op.then.refuse(&error));
}

impl Then {
    fn refuse(self, error: &StoreError) {
        // Whoever asked may have gone away.
        match self {
            Self::Nothing => {}
            Self::Tell(ack) => drop(ack.send(Err(error.clone()))),
            Self::Child(making) => making.refuse(error),
            Self::End(core, ack) => {
                core.over();
                if let Some(ack) = ack {
                    let _ = ack.send(Err(error.clone()));
                }
            }
        }
    }
}

/// What is committed and not announced yet.
enum Done {
    Nothing,
    Tell(Ack),
    Child(Made, oneshot::Sender<Result<Made, StoreError>>),
    End(Arc<Core>, Option<Ack>),
}

impl From<Then> for Done {
    fn from(then: Then) -> Self {
        match then {
            Then::Nothing => Self::Nothing,
            Then::Tell(ack) => Self::Tell(ack),
            Then::Child(making) => {
                let (made, ack) = making.admit();
                Self::Child(made, ack)
            }
            Then::End(core, ack) => Self::End(core, ack),
        }
    }
}

impl Done {
    fn tell(self, bus: &Bus, last_seq: u64) {
        match self {
            Self::Nothing => {}
            Self::Tell(ack) => drop(ack.send(Ok(last_seq))),
            Self::Child(made, ack) => {
                bus.notice(Notice::Created(Arc::clone(&made.info)));
                // Given back when nobody waits any more: dropped here, its run ends.
                drop(ack.send(Ok(made)));
            }
            Self::End(core, ack) => {
                core.over();
                if let Some(ack) = ack {
                    let _ = ack.send(Ok(last_seq));
                }
            }
        }
    }
}

struct Numbered {
    batch: Batch,
    last_seq: u64,
    envelopes: Vec<Arc<Envelope>>,
    /// Given back after the commit.
    taken: Vec<OwnedSemaphorePermit>,
}

impl Numbered {
    fn new(
        state: &Mutex<TreeState>,
        fence: &Fence,
        last_seq: u64,
        ops: &mut Vec<Op>,
        followers: &mut Vec<Then>,
    ) -> Self {
        let at = ids::now();
        let mut lines: Vec<Line> = Vec::new();
        let mut writes: Vec<Write> = Vec::new();
        let mut durability = Durability::default();
        let mut taken = Vec::new();
        for op in ops.drain(..) {
            writes.extend(op.writes);
            durability = durability.max(op.durability);
            taken.extend(op.room);
            if !matches!(op.then, Then::Nothing) {
                followers.push(op.then);
            }
            for line in op.lines {
                if !lines.last_mut().is_some_and(|last| last.merge(&line)) {
                    lines.push(line);
                }
            }
        }
        let mut state = lock(state);
        let mut envelopes = Vec::with_capacity(lines.len());
        let mut seq = last_seq;
        for line in lines {
            seq += 1;
            let mut late = false;
            if let (Some(run), Some(member)) = (&line.run, state.members.get_mut(&line.session.id)) {
                // Kept, marked, changing nothing (L12).
                late = matches!(
                    member.runs.observe(run, line.signal),
                    Transition::Late | Transition::UnknownRun | Transition::Duplicate
                );
            }
            envelopes.push(Arc::new(Envelope {
                seq,
                at,
                run: line.run,
                late,
                session: line.session,
                event: line.body.into(),
            }));
        }
        drop(state);
        writes.extend(envelopes.iter().map(|envelope| Write::Append(row(envelope))));
        Self {
            batch: Batch { fence: Some(fence.clone()), writes, durability },
            last_seq: seq,
            envelopes,
            taken,
        }
    }
}

pub(crate) fn row(envelope: &Envelope) -> LogRow {
    LogRow {
        seq: envelope.seq,
        session: envelope.session.id.clone(),
        run: envelope.run.clone(),
        at: envelope.at,
        late: envelope.late,
        event: envelope.event.clone(),
    }
}
