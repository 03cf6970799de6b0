//! One turn of a root over the notifications routed to it (T12, and the pure part of T13).

use offspring_protocol::{MessageId, SessionId, SessionState};

/// A turn: from the durable receipt of its prompt to the next idle of its root (T13), or, for a turn of
/// [`Extent::Tree`], until its whole tree is at rest.
///
/// Decides for each notification whether it belongs to the turn and whether it enters the turn's `events`;
/// keeps the final response and the finish reason. It stores no notification: the caller keeps what it is
/// told to.
///
/// Only events of the root itself count (T12). What descendants say is [`Observed`](TurnStep::Observed),
/// and neither their text nor their idle ever becomes the root's, in any order of arrival.
///
/// ```
/// use offspring_protocol::{MessageId, SessionId, SessionState};
/// use offspring_tree::turn::{RootEventKind, Turn, TurnEnd, TurnStep};
///
/// let [root, child] = ["r", "c"].map(|id| SessionId::new(id).unwrap());
/// let prompt = MessageId::new("msg_1").unwrap();
/// let mut turn = Turn::new(root.clone(), prompt.clone());
///
/// turn.event(&root, RootEventKind::Receipt { ids: &[prompt] });
/// turn.event(&root, RootEventKind::AssistantText("from the root"));
/// turn.event(&child, RootEventKind::AssistantText("from a child"));
/// assert_eq!(turn.status(&child, SessionState::Idle), TurnStep::Observed);
/// assert_eq!(turn.status(&root, SessionState::Idle), TurnStep::Ended(TurnEnd::Idle));
/// assert_eq!(turn.final_response(), Some("from the root"));
/// ```
#[derive(Debug, Clone)]
pub struct Turn {
    root: SessionId,
    prompt: MessageId,
    extent: Extent,
    root_idle: bool,
    phase: Phase,
    final_response: Option<String>,
    finish_reason: Option<String>,
}

/// How far a turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// To the next idle of the root.
    Root,
    /// Until the root is idle and nothing below it is at work: the root may become idle and run again
    /// several times on the way, because a child's finish wakes it.
    Tree,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitingReceipt,
    Open,
    Ended(TurnEnd),
}

/// What an event of the root says, as far as a turn cares; of any other session nothing is looked at (T12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RootEventKind<'a> {
    /// These messages are durably in the session's inbox.
    Receipt {
        /// Their ids.
        ids: &'a [MessageId],
    },
    /// The text of a whole message of the assistant.
    AssistantText(&'a str),
    /// A model turn ended, for the reason given; not the end of a [`Turn`], which may hold several.
    TurnEnd(&'a str),
    /// Anything else.
    Other,
}

/// A notification that was routed to the root of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnInput<'a> {
    /// `session.event` of the root itself.
    RootEvent {
        /// What it says.
        kind: RootEventKind<'a>,
    },
    /// The root as a whole became idle or running.
    RootStatus(SessionState),
    /// Any notification that is not the root's own: of a descendant, or of the lifecycle of one.
    Descendant {
        /// Whose it is.
        session: &'a SessionId,
    },
    /// The root is idle and nothing below it is at work, by whoever knows that.
    TreeAtRest,
    /// The runtime is gone; nothing more will come.
    RuntimeGone,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// The root became idle after the receipt.
    Idle,
    /// The root was idle and nothing below it at work, after the receipt.
    TreeAtRest,
    /// The runtime went away before that: an error, with the runtime's diagnostics (T13).
    RuntimeGone {
        /// Whether the receipt had come, so that the prompt may have had effects.
        received: bool,
    },
}

/// What a notification is to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnStep {
    /// It came before the prompt's receipt and is not part of the turn (T13).
    BeforeReceipt,
    /// It enters the turn's `events` (T12): the receipt itself and every later event of the root.
    Collected,
    /// It is part of the turn's notifications and enters nothing else (T12).
    Observed,
    /// It ended the turn, and is part of it.
    Ended(TurnEnd),
    /// The turn had ended. Changes nothing.
    AfterEnd,
}

impl Turn {
    /// A turn that waits for the receipt of its prompt. To be made before the prompt is sent: the receipt
    /// comes before the reply.
    #[must_use]
    pub fn new(root: SessionId, prompt_receipt: MessageId) -> Self {
        Self::with_extent(root, prompt_receipt, Extent::Root)
    }

    /// As [`new`](Self::new), for a turn that goes as far as given.
    #[must_use]
    pub fn with_extent(root: SessionId, prompt_receipt: MessageId, extent: Extent) -> Self {
        Self {
            root,
            prompt: prompt_receipt,
            extent,
            root_idle: false,
            phase: Phase::AwaitingReceipt,
            final_response: None,
            finish_reason: None,
        }
    }

    /// Takes a `session.event` of any session of the tree. Only the root's own can be collected (T12).
    pub fn event(&mut self, session: &SessionId, kind: RootEventKind<'_>) -> TurnStep {
        self.observe(if *session == self.root {
            TurnInput::RootEvent { kind }
        } else {
            TurnInput::Descendant { session }
        })
    }

    /// Takes a status of any session of the tree. Only the root's own can end the turn (T13).
    pub fn status(&mut self, session: &SessionId, state: SessionState) -> TurnStep {
        self.observe(if *session == self.root {
            TurnInput::RootStatus(state)
        } else {
            TurnInput::Descendant { session }
        })
    }

    /// Takes the next notification in wire order (T9).
    pub fn observe(&mut self, input: TurnInput<'_>) -> TurnStep {
        match self.phase {
            Phase::Ended(_) => TurnStep::AfterEnd,
            Phase::AwaitingReceipt => self.before_receipt(input),
            Phase::Open => self.within(input),
        }
    }

    fn before_receipt(&mut self, input: TurnInput<'_>) -> TurnStep {
        match input {
            TurnInput::RootEvent { kind: RootEventKind::Receipt { ids } } if ids.contains(&self.prompt) => {
                self.phase = Phase::Open;
                TurnStep::Collected
            }
            TurnInput::RuntimeGone => self.end(TurnEnd::RuntimeGone { received: false }),
            // T13: also an idle, which belongs to an earlier turn.
            TurnInput::RootEvent { .. }
            | TurnInput::RootStatus(_)
            | TurnInput::TreeAtRest
            | TurnInput::Descendant { .. } => TurnStep::BeforeReceipt,
        }
    }

    fn within(&mut self, input: TurnInput<'_>) -> TurnStep {
        match input {
            TurnInput::RootEvent { kind } => {
                match kind {
                    RootEventKind::AssistantText(text) => self.final_response = Some(text.to_owned()),
                    RootEventKind::TurnEnd(reason) => self.finish_reason = Some(reason.to_owned()),
                    RootEventKind::Receipt { .. } | RootEventKind::Other => {}
                }
                TurnStep::Collected
            }
            TurnInput::RootStatus(SessionState::Idle) if self.extent == Extent::Root => {
                self.root_idle = true;
                self.end(TurnEnd::Idle)
            }
            TurnInput::RootStatus(state) => {
                self.root_idle = state == SessionState::Idle;
                TurnStep::Observed
            }
            TurnInput::Descendant { .. } => TurnStep::Observed,
            // Nothing that was at rest before the root's own idle can end its turn (T13).
            TurnInput::TreeAtRest if self.extent == Extent::Tree && self.root_idle => {
                self.end(TurnEnd::TreeAtRest)
            }
            TurnInput::TreeAtRest => TurnStep::Observed,
            TurnInput::RuntimeGone => self.end(TurnEnd::RuntimeGone { received: true }),
        }
    }

    fn end(&mut self, end: TurnEnd) -> TurnStep {
        self.phase = Phase::Ended(end);
        TurnStep::Ended(end)
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &SessionId {
        &self.root
    }

    /// Whether the receipt of the prompt has come.
    #[must_use]
    pub fn is_received(&self) -> bool {
        match self.phase {
            Phase::AwaitingReceipt => false,
            Phase::Open | Phase::Ended(TurnEnd::Idle | TurnEnd::TreeAtRest) => true,
            Phase::Ended(TurnEnd::RuntimeGone { received }) => received,
        }
    }

    /// Whether the latest status of the root within the turn is idle.
    #[must_use]
    pub fn is_root_idle(&self) -> bool {
        self.root_idle
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<TurnEnd> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            Phase::AwaitingReceipt | Phase::Open => None,
        }
    }

    /// The text of the root's last message within the turn; `None` when it wrote none (T12).
    #[must_use]
    pub fn final_response(&self) -> Option<&str> {
        self.final_response.as_deref()
    }

    /// Why the root's last model turn within the turn ended (T12).
    #[must_use]
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }
}

#[cfg(test)]
mod tests;
