//! One turn as the reader of the wire fills it (T11–T13). Pure: no I/O, no clock.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, task::Waker, time::Duration};

use offspring_protocol::{
    MessageId, SessionId, SessionState,
    dsh::{
        ASSISTANT_MESSAGE, INBOX_SPLICED, SESSION_EVENT, SESSION_STATUS, SUBAGENT_FINISHED, SUBAGENT_STARTED,
        TURN_END, notice,
    },
};
use offspring_tree::turn::{Extent, RootEventKind, Turn, TurnEnd, TurnInput, TurnStep};
use tokio::time::Instant;

use crate::{
    error::{ClientError, Gone},
    notification::{Blocks, Line, Notification},
    result::{TreeReport, TurnResult},
};

/// What a turn keeps of the notifications it matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// All of them, in its result (default); bounded by `turn_bytes`.
    #[default]
    Everything,
    /// None: the result has the final response, the finish reason and the tree. Memory stays flat.
    Nothing,
}

/// Who reads a turn as it comes, and what becomes of it when they are slow (T11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follower {
    /// Nobody.
    Nobody,
    /// Somebody who has to keep up: a turn that keeps nothing ends when its queue is full.
    LeftBehind,
    /// Somebody who is waited for: nothing more is read from the runtime while that queue is full, for as long as
    /// they need, or at most for so long at a time.
    WaitedFor(Option<Duration>),
}

/// What one turn may hold, by kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) turn_bytes: usize,
    pub(crate) queue_items: usize,
    pub(crate) queue_bytes: usize,
}

/// A turn that is being filled.
#[derive(Debug)]
pub(crate) struct Collector {
    root: SessionId,
    extent: Extent,
    keep: Keep,
    room: Room,
    /// `None` until the answer to the prompt has told its message.
    turn: Option<Turn>,
    /// What came before that: the receipt comes before the answer.
    before: Vec<Notification>,
    /// Readable once `blocks` is closed.
    notifications: Vec<Notification>,
    events: Vec<Notification>,
    blocks: Blocks,
    /// For a reader that takes them as they come and keeps none here.
    unread: Option<VecDeque<Notification>>,
    missed: u64,
    bytes: usize,
    report: TreeReport,
    /// When the last came, as far as the root was idle then: a silence is counted from here.
    heard_at: Option<Instant>,
    end: Option<CollectorEnd>,
    /// Woken at each step when somebody follows, else at the steps that change what is waited for.
    waker: Option<Waker>,
    follower: Follower,
    /// The queue was full, and is not half empty yet: the reader of the wire waits.
    is_holding: bool,
    pub(crate) rest: Rest,
}

/// How a turn of a tree learns that the tree is at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Not yet asked.
    Unasked,
    /// `session/wait` is about to be sent for it.
    Asking,
    /// `session/wait` was sent and is not answered.
    Asked,
    /// By what the wire says of starts, finishes and statuses.
    Bookkeeping,
}

/// Why nothing more enters a turn.
#[derive(Debug, Clone)]
pub(crate) enum CollectorEnd {
    Turn(TurnEnd),
    TooLarge,
    Lagged,
    Gone(Arc<Gone>),
}

/// What a turn waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Awaits {
    Receipt,
    RootIdle,
    TreeRest,
    #[default]
    Nothing,
}

impl Collector {
    pub(crate) fn new(root: SessionId, extent: Extent, keep: Keep, follower: Follower, room: Room) -> Self {
        Self {
            root,
            extent,
            keep,
            room,
            turn: None,
            before: Vec::new(),
            notifications: Vec::new(),
            events: Vec::new(),
            blocks: Blocks::default(),
            unread: (follower != Follower::Nobody && keep == Keep::Nothing).then(VecDeque::new),
            missed: 0,
            bytes: 0,
            report: TreeReport::default(),
            heard_at: None,
            end: None,
            waker: None,
            follower,
            is_holding: false,
            rest: Rest::Unasked,
        }
    }

    pub(crate) fn root(&self) -> &SessionId {
        &self.root
    }

    /// Takes the next notification of the tree, in wire order (T9).
    pub(crate) fn take(&mut self, line: &Line<'_>) {
        if self.end.is_some() {
            self.missed += u64::from(matches!(self.end, Some(CollectorEnd::Lagged)));
            return;
        }
        if self.turn.is_some() {
            self.feed(line);
        } else if self.add(line) {
            self.before.push(Notification::alone(line));
        }
    }

    /// The prompt was answered: from its receipt on, what came before is part of the turn.
    pub(crate) fn attach(&mut self, message: MessageId) {
        self.turn = Some(Turn::with_extent(self.root.clone(), message, self.extent));
        // The runtime may have gone before its answer was taken in: what it had said until then counts.
        let gone = self.end.take_if(|end| matches!(end, CollectorEnd::Gone(_)));
        for notification in std::mem::take(&mut self.before) {
            self.bytes -= notification.cost_bytes();
            if self.end.is_none() {
                self.feed(&notification.line());
            }
        }
        if let (Some(gone), None) = (gone, &self.end) {
            self.report.interrupt();
            self.finish(gone);
        }
        self.wake();
    }

    /// Whoever knows says that the tree is at rest; whether that ended the turn.
    pub(crate) fn tree_at_rest(&mut self) -> bool {
        if self.end.is_some() {
            return true;
        }
        let Some(turn) = &mut self.turn else { return false };
        let TurnStep::Ended(end) = turn.observe(TurnInput::TreeAtRest) else { return false };
        self.finish(CollectorEnd::Turn(end));
        true
    }

    pub(crate) fn gone(&mut self, gone: &Arc<Gone>) {
        self.report.interrupt();
        if self.end.is_none() {
            self.finish(CollectorEnd::Gone(gone.clone()));
        }
    }

    fn feed(&mut self, line: &Line<'_>) {
        let Some(turn) = &mut self.turn else { return };
        let step = observe(turn, &self.root, line);
        match step {
            TurnStep::BeforeReceipt | TurnStep::AfterEnd => return,
            TurnStep::Collected | TurnStep::Observed | TurnStep::Ended(_) => {}
        }
        if matches!(line.method(), SUBAGENT_STARTED | SUBAGENT_FINISHED) {
            self.report.observe(line);
        }
        let of_root = line.session_id() == Some(self.root.as_str());
        let is_root_status = of_root && line.method() == SESSION_STATUS;
        self.keep(line, step == TurnStep::Collected);
        // Only here: while the root works nobody asks for it, and a clock costs more than the rest of a step.
        if self.awaits() == Awaits::TreeRest {
            self.heard_at = Some(Instant::now());
        }
        match step {
            TurnStep::Ended(end) if self.end.is_none() => self.finish(CollectorEnd::Turn(end)),
            // A status of the root changes which bound is waited with; those of others need nobody.
            _ if self.follower != Follower::Nobody || is_root_status => self.wake(),
            _ => {}
        }
    }

    fn keep(&mut self, line: &Line<'_>, is_event: bool) {
        if let Some(unread) = &mut self.unread {
            let cost = line.cost_bytes();
            let fits =
                unread.len() < self.room.queue_items && self.bytes + cost <= self.room.queue_bytes.max(cost);
            let waits = matches!(self.follower, Follower::WaitedFor(_));
            if fits || waits {
                self.bytes += cost;
                unread.push_back(Notification::alone(line));
                let is_full = unread.len() >= self.room.queue_items || self.bytes >= self.room.queue_bytes;
                self.is_holding |= waits && is_full;
            } else {
                self.missed += 1;
                self.finish(CollectorEnd::Lagged);
            }
            return;
        }
        if self.keep == Keep::Everything && self.add(line) {
            // Whoever follows reads them as they come.
            let kept = match self.follower {
                Follower::Nobody => self.blocks.keep(line),
                Follower::LeftBehind | Follower::WaitedFor(_) => Notification::alone(line),
            };
            if is_event {
                self.events.push(kept.clone());
            }
            self.notifications.push(kept);
        }
    }

    /// Counts the bytes of what is to be kept; too many end the turn.
    fn add(&mut self, line: &Line<'_>) -> bool {
        self.bytes += line.cost_bytes();
        if self.bytes > self.room.turn_bytes {
            self.finish(CollectorEnd::TooLarge);
            return false;
        }
        true
    }

    fn finish(&mut self, end: CollectorEnd) {
        self.end = Some(end);
        self.is_holding = false;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn wake_with(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    pub(crate) fn awaits(&self) -> Awaits {
        match &self.turn {
            _ if self.end.is_some() => Awaits::Nothing,
            Some(turn) if !turn.is_received() => Awaits::Receipt,
            Some(turn) if self.extent == Extent::Tree && turn.is_root_idle() => Awaits::TreeRest,
            Some(_) => Awaits::RootIdle,
            None => Awaits::Receipt,
        }
    }

    /// Whether the reader of the wire has to wait for whoever reads this turn.
    pub(crate) fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// From now on nobody is waited for.
    pub(crate) fn hold_no_more(&mut self) {
        self.is_holding = false;
        if matches!(self.follower, Follower::WaitedFor(_)) {
            self.follower = Follower::LeftBehind;
        }
    }

    /// How long it may hold up the reader of the wire at a time.
    pub(crate) fn holds_at_most(&self) -> Option<Duration> {
        match self.follower {
            Follower::WaitedFor(at_most) => at_most,
            Follower::Nobody | Follower::LeftBehind => None,
        }
    }

    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// What a follower, if there is one, has not seen yet. Without keeping it is taken out; `cursor` counts what
    /// was given.
    pub(crate) fn follow_if_wanted(&mut self, cursor: &mut usize) -> Option<Notification> {
        if self.follower == Follower::Nobody {
            return None;
        }
        let next = match &mut self.unread {
            Some(unread) => {
                let next = unread.pop_front()?;
                self.bytes -= next.cost_bytes();
                let Room { queue_items, queue_bytes, .. } = self.room;
                // Half of it at a time, so that the two do not take turns for every line.
                if self.is_holding && unread.len() <= queue_items / 2 && self.bytes <= queue_bytes / 2 {
                    self.is_holding = false;
                    // While nothing was read nobody was silent.
                    self.heard_at = self.heard_at.map(|_| Instant::now());
                }
                next
            }
            None => self.notifications.get(*cursor)?.clone(),
        };
        *cursor += 1;
        Some(next)
    }

    /// Why it did not end as it should.
    pub(crate) fn failure(&self) -> Option<ClientError> {
        match &self.end {
            Some(CollectorEnd::Turn(_)) | None => None,
            Some(CollectorEnd::TooLarge) => Some(ClientError::TurnTooLarge {
                session: self.root.clone(),
                limit_bytes: self.room.turn_bytes,
            }),
            Some(CollectorEnd::Lagged) => Some(ClientError::Lagged { missed: self.missed }),
            Some(CollectorEnd::Gone(gone)) => Some(ClientError::RuntimeGone(gone.clone())),
        }
    }

    /// The turn as it stands.
    pub(crate) fn into_result(mut self) -> TurnResult {
        self.blocks.close();
        let end = match self.end {
            Some(CollectorEnd::Turn(end)) => Some(end),
            _ => None,
        };
        let turn = self.turn.as_ref();
        TurnResult {
            final_response: turn.and_then(Turn::final_response).map(ToOwned::to_owned),
            finish_reason: turn.and_then(Turn::finish_reason).map(ToOwned::to_owned),
            session_id: self.root,
            events: self.events,
            notifications: self.notifications,
            tree: self.report,
            end,
        }
    }
}

/// Gives a turn what a notification says, as far as it cares.
fn observe(turn: &mut Turn, root: &SessionId, line: &Line<'_>) -> TurnStep {
    let of_root = line.session_id() == Some(root.as_str());
    match line.method() {
        SESSION_EVENT if of_root => {}
        SESSION_STATUS if of_root => {
            let state = match line.status() {
                Some("idle") => SessionState::Idle,
                _ => SessionState::Running,
            };
            return turn.observe(TurnInput::RootStatus(state));
        }
        // T12: whoever it is, it is not the root's own.
        _ => return turn.observe(TurnInput::Descendant { session: root }),
    }
    let data = || line.event_data();
    match line.event_type() {
        Some(INBOX_SPLICED) if !turn.is_received() => {
            let ids = data().map(notice::inbox_message_ids).unwrap_or_default();
            turn.observe(TurnInput::RootEvent { kind: RootEventKind::Receipt { ids: &ids } })
        }
        Some(ASSISTANT_MESSAGE) if turn.is_received() => {
            let text = data().and_then(notice::assistant_text);
            let kind = text.as_deref().map_or(RootEventKind::Other, RootEventKind::AssistantText);
            turn.observe(TurnInput::RootEvent { kind })
        }
        Some(TURN_END) if turn.is_received() => {
            let reason = data().and_then(notice::turn_end_kind);
            let kind = reason.as_deref().map_or(RootEventKind::Other, RootEventKind::TurnEnd);
            turn.observe(TurnInput::RootEvent { kind })
        }
        _ => turn.observe(TurnInput::RootEvent { kind: RootEventKind::Other }),
    }
}
