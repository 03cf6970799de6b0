//! The tokens of a run, each used up by the next: stored → announced → running → ended.
//!
//! [`RunContext`] has no public constructor and no `Clone`: only [`RootSession::start`] and
//! [`AnnouncedChild::start`] make one. So a child that runs was stored and announced (rules L1, L2),
//! because nothing else compiles.

use std::{path::Path, sync::Arc};

use offspring_protocol::{
    Event, External, MessageId, Outcome, RawEvent, RunId, RunState, SessionData, SessionInfo, SessionState,
    event::{Custom, MessageComplete, RunStarted, StatusChanged},
};
use offspring_tree::{lifecycle::Signal, rollup::Counted};
use smallvec::smallvec;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    children::Adopted,
    error::{Refused, RunError},
    ids,
    live::{LiveTree, OpenRun, lock},
    manager::SessionManager,
    silence::Waiting,
    store::{StoreError, Write},
    writer::{Line, Op, Then},
};

mod end;
mod wanted;

pub use end::{Answer, RunEnd};
pub use wanted::{NewChild, NewRoot};

/// One run of a stored session, as everything that acts for it shares it.
#[derive(Debug)]
pub(crate) struct Core {
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
            pub(crate) fn new(pending: Pending) -> Self {
                Self(pending)
            }

            /// The session.
            #[must_use]
            pub fn session(&self) -> &Arc<SessionInfo> {
                &self.0.core().info
            }

            /// Its row.
            #[must_use]
            pub fn data(&self) -> &Arc<SessionData> {
                &self.0.core().data
            }

            /// Its run, pending now.
            #[must_use]
            pub fn run_id(&self) -> &RunId {
                &self.0.core().open.id
            }

            /// Asks for the run to be stopped, also while it waits to start.
            #[must_use]
            pub fn stop_requested(&self) -> CancellationToken {
                self.0.core().open.stop.clone()
            }

            /// Opens the run: `RunStarted` with this prompt (rules L10, L12).
            ///
            /// # Errors
            /// When the tree's store failed before.
            pub async fn start(self, prompt: &str) -> Result<StartedRun, StoreError> {
                self.0.start(prompt, None).await
            }

            /// As [`start`](Self::start), as the answer to a prompt that was stored before
            /// ([`SessionManager::receive_prompt`]).
            ///
            /// # Errors
            /// When the tree's store failed before.
            pub async fn start_answering(
                self,
                prompt: &str,
                prompt_id: MessageId,
            ) -> Result<StartedRun, StoreError> {
                self.0.start(prompt, Some(prompt_id)).await
            }

            /// Ends the run before it started, as cancelled or failed.
            ///
            /// # Errors
            /// When the store cannot be written.
            pub async fn give_up(self, error: RunError) -> Result<Outcome, StoreError> {
                self.0.into_end().finish(Err(error)).await
            }
        }
    };
}

startable!(RootSession);
startable!(AnnouncedChild);

/// A run that has not begun. Dropped, it ends as interrupted.
#[derive(Debug)]
pub(crate) struct Pending(Option<Arc<Core>>);

impl Pending {
    pub(crate) fn new(core: Core) -> Self {
        Self(Some(Arc::new(core)))
    }

    #[expect(clippy::expect_used, reason = "only `into_end` empties it, and it takes the token by value")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        self.0.as_ref().expect("not used up")
    }

    fn into_end(mut self) -> RunEnd {
        RunEnd(self.0.take())
    }

    async fn start(self, prompt: &str, prompt_id: Option<MessageId>) -> Result<StartedRun, StoreError> {
        let core = Arc::clone(self.core());
        // From here on whatever happens, this future's drop included, ends the run.
        let end = self.into_end();
        let Core { tree, info, open, .. } = &*core;
        let started = RunStarted {
            session_id: info.id.clone(),
            run_id: open.id.clone(),
            agent_name: info.agent_name.clone(),
            parent_session_id: info.parent.clone(),
            prompt: String::new(),
            prompt_id,
        };
        let status = StatusChanged { state: SessionState::Running, outcome: None };
        let lines = smallvec![
            Line::raw(info, Some(&open.id), Signal::Started, RawEvent::run_started(&started, prompt)),
            Line::new(info, None, Event::StatusChanged(status)),
        ];
        let place = place(tree).await?;
        let mut changing = lock(&open.changing);
        changing.record.state = RunState::Running;
        open.heard.now();
        let writes = smallvec![Write::Run(Box::new(changing.record.clone()))];
        place.send(Op { writes, lines, ..Op::default() });
        drop(changing);
        Ok(StartedRun { context: RunContext(core), end })
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

/// Waits for a place in the queue of a tree's writer. What depends on a state that others change too is
/// decided with the place in hand and sent under that state's lock, so that the log has the same order.
async fn place(tree: &LiveTree) -> Result<mpsc::Permit<'_, Op>, StoreError> {
    let place = tree.writer.reserve().await.map_err(|_| StoreError::Closed)?;
    match tree.state().failed.clone() {
        Some(error) => Err(error),
        None => Ok(place),
    }
}

/// The right to act as one run: to emit its events and to make children of its session.
///
/// Nobody can make one but the start of a stored session (rule L1), and nobody can copy one:
///
/// ```compile_fail
/// fn twice(context: offspring_sessions::RunContext) -> [offspring_sessions::RunContext; 2] {
///     [context.clone(), context]
/// }
/// ```
///
/// A token is used up by the next one, so a child cannot be started twice:
///
/// ```compile_fail
/// async fn twice(child: offspring_sessions::AnnouncedChild) {
///     let _ = child.start("once").await;
///     let _ = child.start("twice").await;
/// }
/// ```
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

    /// Whether it is decided that the run ends as cancelled. Its agent is asked to stop only after
    /// everything below it has ended (rule L14); until then nothing should go on in its name.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.0.open.changing).forced == Some(Outcome::Cancelled)
    }

    /// Its agent gave a sign of life that is no event of the log.
    pub fn heard(&self) {
        self.0.open.heard.now();
    }

    /// Its agent waits for somebody else: until this is dropped it is not silent.
    pub fn waits(&self) -> Waiting {
        Waiting::new(&self.0)
    }

    /// Something that emits for this run.
    #[must_use]
    pub fn emitter(&self) -> Emitter {
        Emitter(Arc::clone(&self.0))
    }

    /// Emits an event: numbered once, in the order of the calls. Waits while the tree's queue is full.
    ///
    /// An agent reports, it does not announce: events that only the manager makes (a start, a spawn, an
    /// end, a status) are kept as [`Custom`] events named [`REPORTED`]`.<kind>` and change nothing.
    ///
    /// # Errors
    /// When the tree's store failed: the run should end.
    pub async fn emit(&self, event: Event) -> Result<(), StoreError> {
        self.0.emit(event).await
    }

    /// Says that the text deltas of this run are its answer, of so many bytes. One that is longer than
    /// [`MAX_REPEATED_BYTES`] gets a message that does not repeat it, for [`Answer::message`]; for a shorter one
    /// there is nothing to do.
    ///
    /// # Errors
    /// When the tree's store failed.
    pub async fn streamed(&self, bytes: usize) -> Result<Option<MessageId>, StoreError> {
        if bytes <= MAX_REPEATED_BYTES {
            return Ok(None);
        }
        let message_id = ids::message();
        let (text, streamed_bytes) = (String::new(), bytes as u64);
        let message = MessageComplete { message_id: message_id.clone(), text, streamed_bytes };
        self.emit(Event::MessageComplete(message)).await?;
        Ok(Some(message_id))
    }

    /// Makes a child of this session: its row, its pending run and its spawn are committed together,
    /// then announced (rules L1, L2).
    ///
    /// # Errors
    /// [`Refused`], and then nothing exists.
    pub async fn create_child(&self, new: NewChild) -> Result<AnnouncedChild, Refused> {
        let Core { manager, tree, info, open, .. } = &*self.0;
        // A cancelled run starts nothing any more, also after the gate of its session is open again (L14).
        if lock(&open.changing).forced == Some(Outcome::Cancelled) {
            return Err(Refused::Cancelled);
        }
        manager.create_child_in(tree, &info.id, new).await
    }

    /// Takes a session that a peer started below this one into the tree, as
    /// [`SessionManager::adopt_child`] does, and never in the name of a run that was cancelled.
    ///
    /// # Errors
    /// As [`SessionManager::adopt_child`]; [`Refused::Cancelled`].
    pub async fn adopt_child(&self, external: External, new: NewChild) -> Result<Adopted, Refused> {
        let Core { manager, info, open, .. } = &*self.0;
        // As for a child of our own: the gate may be open again (L14).
        if lock(&open.changing).forced == Some(Outcome::Cancelled) {
            return Err(Refused::Cancelled);
        }
        manager.adopt_child(&info.id, external, new).await
    }

    /// Adds to what is said not to be kept of this run's output
    /// ([`left_out_bytes`](offspring_protocol::RunRecord::left_out_bytes)). Stored with the next write of the
    /// run's record, at the latest with its end.
    pub fn left_out(&self, bytes: u64) {
        let record = &mut lock(&self.0.open.changing).record;
        record.left_out_bytes = record.left_out_bytes.saturating_add(bytes);
    }

    /// Records which process works for this run, so that a later start of the program can end it when
    /// this one dies (rule L14).
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn record_process(&self, identity: String) -> Result<(), StoreError> {
        let (ack, committed) = oneshot::channel();
        {
            let place = place(&self.0.tree).await?;
            let mut changing = lock(&self.0.open.changing);
            changing.record.process = Some(identity);
            let writes = smallvec![Write::Run(Box::new(changing.record.clone()))];
            place.send(Op { writes, then: Then::Tell(ack), ..Op::default() });
        }
        committed.await.unwrap_or(Err(StoreError::Closed)).map(drop)
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
        let event = own_words(event);
        let counted = match &event {
            Event::Usage(report) => Some(report.clone()),
            _ => None,
        };
        let line = Line::new(&self.info, Some(&self.open.id), event);
        let room = line.room(&self.tree.room).await;
        let place = place(&self.tree).await?;
        let mut state = self.tree.state();
        if !state.members.contains_key(&self.info.id) {
            // Deleted meanwhile.
            return Err(StoreError::Unknown { id: self.info.id.clone() });
        }
        if let Some(report) = counted {
            // Each provider message once, in the order of the log, so that a replay counts the same (L15).
            if state.rollup.record(&self.info.id, &report.message_id, report.usage) == Counted::New {
                lock(&self.open.changing).record.usage += report.usage;
            }
        }
        place.send(Op { lines: smallvec![line], room, ..Op::default() });
        self.open.heard.now();
        Ok(())
    }
}

/// An agent reports; it cannot announce. What only the manager says (that a run begins or ends, that a child
/// is stored) would otherwise be believed without a row behind it (L1, L2): it is kept as a
/// [`Custom`] event named `reported.<kind>`.
fn own_words(event: Event) -> Event {
    let event = match event {
        // A known kind that came as raw data counts as what it is.
        Event::Other(raw) => raw.parse().unwrap_or(Event::Other(raw)),
        event => event,
    };
    match event.kind() {
        kind @ ("run_started"
        | "spawn_session_start"
        | "stream_complete"
        | "run_error"
        | "status_changed"
        | "compacted") => {
            let name = format!("{REPORTED}.{kind}");
            Event::Custom(Custom { name, data: RawEvent::from(&event).data().to_owned() })
        }
        _ => event,
    }
}

/// An answer up to this length, in bytes, stands once more, as one message, behind the pieces in which it was
/// streamed.
pub const MAX_REPEATED_BYTES: usize = 64 << 10;

/// Begins the name of a [`Custom`] event that keeps an announcement an agent tried to make.
pub const REPORTED: &str = "reported";
