//! What a notification of the runtime does to our tree. Pure: no I/O, no clock, no async. What it says is said as the
//! runtime said it: [`clean`](super::clean) comes after it.
//!
//! A *place* is a session of ours: one per peer's session *and* place it was started from, so that an id that is
//! reused elsewhere is another one (T3, T4). Place 0 is the session our run belongs to.

use std::collections::HashMap;

use offspring_protocol::{
    Event, MessageId, SessionId,
    dsh::{ASSISTANT_MESSAGE, Finished, FinishedStatus, Notice, Started, TURN_END, notice::EventBody},
    event::{Custom, TextDelta, ToolCallComplete, ToolCallStart, UsageReport},
};
use serde_json::value::RawValue;

use super::payload::{self, Message, TurnFault};

/// Open tool calls of one session whose names are remembered.
const OPEN_CALLS: usize = 1_024;

/// Event types that say nothing which our tree does not say in its own words, or that only the runtime needs:
/// what it sent to the model (20 kB each), where its steps begin, what it could do.
const LEFT_OUT: [&str; 12] = [
    "agent/inbox/spliced",
    "turn/start",
    "step/start",
    "step/end",
    "request/header",
    "request/context",
    "system/message",
    "subagent/catalog",
    "permission/preset",
    "sandbox/mode",
    "approval/policy",
    "session-log-deepseek/delivery-accepted",
];

/// A session of ours in the translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(usize);

impl Place {
    /// That of our own run.
    pub(super) const ROOT: Self = Self(0);
}

/// What is to be done to our tree, in this order.
#[derive(Debug)]
pub(super) enum Step {
    /// A run is announced: of a new session, or of one that had ended (L12).
    Adopt {
        /// From now on.
        place: Place,
        /// Its parent.
        under: Place,
        /// Its id at the peer.
        peer: SessionId,
    },
    /// It begins, with what it was asked: before anything is said of it.
    Begin(Place, String),
    /// A run says something. A text is a message, whole.
    Say(Place, Event),
    /// The terminal event of a run (L12).
    End(Place, Ending),
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// With this answer.
    Completed(String),
    /// With an error of its own, and what there is of an answer.
    Failed {
        /// A word for programs.
        code: String,
        /// For people.
        message: String,
        /// Of the answer.
        partial: String,
    },
    /// It was stopped by the runtime.
    Aborted {
        /// Of the answer.
        partial: String,
    },
}

#[derive(Debug)]
struct Seat {
    peer: SessionId,
    parent: Option<Place>,
    open: bool,
    /// Its run is announced, and nothing was heard of it that says what it was asked.
    waits: bool,
    /// What it says, and what it starts, is dropped.
    muted: bool,
    /// Names of tool calls without a result.
    calls: HashMap<String, String>,
    fault: Option<TurnFault>,
    messages: u64,
}

/// The state of one turn of the runtime.
#[derive(Debug)]
pub(super) struct Translation {
    seats: Vec<Seat>,
    edges: HashMap<(Place, SessionId), Place>,
    /// Where a peer's session was started last (T3).
    current: HashMap<SessionId, Place>,
    dropped: u64,
}

impl Translation {
    /// For a turn of this session of the runtime.
    pub(super) fn new(root: SessionId) -> Self {
        let mut translation =
            Self { seats: Vec::new(), edges: HashMap::new(), current: HashMap::new(), dropped: 0 };
        translation.seat(root, None, false);
        translation
    }

    /// Takes the next notification, in wire order.
    pub(super) fn take(&mut self, notice: Notice) -> Vec<Step> {
        match notice {
            Notice::Started(started) => self.started(&started),
            Notice::Finished(finished) => self.finished(&finished),
            Notice::Event(event) => match self.current.get(&event.session_id).copied() {
                Some(place) => {
                    let EventBody { kind, data, .. } = &event.event;
                    let asked = data.as_deref().and_then(|data| payload::asked(kind, data));
                    let begun = self.begin(place, asked);
                    begun.into_iter().chain(self.event(place, event.event)).collect()
                }
                None => self.drop_one(),
            },
            // Our runs say when a session works.
            Notice::Status(status) => {
                let place = self.current.get(&status.session_id).copied();
                place.and_then(|place| self.begin(place, None)).into_iter().collect()
            }
            Notice::Other { method, params } => {
                let named = params.as_deref().and_then(payload::session_of);
                let place = named.and_then(|id| self.current.get(id.as_str()).copied());
                match place {
                    Some(place) => {
                        let begun = self.begin(place, None);
                        begun.into_iter().chain(self.say_custom(place, &method, params.as_deref())).collect()
                    }
                    None => self.drop_one(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// From now on nothing of this session is told, nor of what it starts; its run is over for us.
    pub(super) fn mute(&mut self, place: Place) {
        let seat = &mut self.seats[place.0];
        (seat.muted, seat.open, seat.waits) = (true, false, false);
    }

    /// The places below our own whose runs are open, deepest first.
    pub(super) fn open(&self) -> Vec<Place> {
        let open = |place: &usize| self.seats[*place].open;
        (1..self.seats.len()).rev().filter(open).map(Place).collect()
    }

    /// Its id at the peer.
    pub(super) fn peer(&self, place: Place) -> &SessionId {
        &self.seats[place.0].peer
    }

    /// Notifications that belong to nobody here, or to who is not heard any more.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How our own run ends, by what the turn gave (T12).
    pub(super) fn root_ending(&self, response: Option<String>, reason: Option<&str>) -> Ending {
        let text = response.unwrap_or_default();
        match reason {
            Some("error") => self.failed(Place::ROOT, "error", text),
            Some("aborted" | "interrupted" | "cancelled") => Ending::Aborted { partial: text },
            _ => Ending::Completed(text),
        }
    }

    fn seat(&mut self, peer: SessionId, parent: Option<Place>, muted: bool) -> Place {
        let place = Place(self.seats.len());
        self.current.insert(peer.clone(), place);
        if let Some(parent) = parent {
            self.edges.insert((parent, peer.clone()), place);
        }
        self.seats.push(Seat {
            peer,
            parent,
            open: !muted,
            waits: !muted && parent.is_some(),
            muted,
            calls: HashMap::new(),
            fault: None,
            messages: 0,
        });
        place
    }

    fn drop_one(&mut self) -> Vec<Step> {
        self.dropped += 1;
        Vec::new()
    }

    fn started(
        &mut self,
        Started { parent_session_id: parent, child_session_id: child }: &Started,
    ) -> Vec<Step> {
        // T2; and our own session stays where it is, whoever claims to have started it.
        if parent == child || *child == self.seats[0].peer {
            return self.drop_one();
        }
        let Some(&under) = self.current.get(parent) else { return self.drop_one() };
        let muted = self.seats[under.0].muted;
        let place = match self.edges.get(&(under, child.clone())) {
            Some(&place) => {
                self.current.insert(child.clone(), place);
                let seat = &mut self.seats[place.0];
                if seat.open {
                    // A start that is repeated while its run is open says nothing new.
                    return Vec::new();
                }
                seat.muted = muted;
                (seat.open, seat.waits) = (!muted, !muted);
                seat.fault = None;
                seat.calls.clear();
                place
            }
            None => self.seat(child.clone(), Some(under), muted),
        };
        if muted {
            return self.drop_one();
        }
        let begun = self.begin(under, None);
        begun.into_iter().chain([Step::Adopt { place, under, peer: child.clone() }]).collect()
    }

    /// The first that is heard of a run that is announced.
    fn begin(&mut self, place: Place, asked: Option<String>) -> Option<Step> {
        let waits = std::mem::take(&mut self.seats[place.0].waits);
        waits.then(|| Step::Begin(place, asked.unwrap_or_default()))
    }

    fn finished(&mut self, finished: &Finished) -> Vec<Step> {
        let (parent, child) = (&finished.parent_session_id, &finished.child_session_id);
        // T4: by its own parent. Where that one was moved meanwhile, the run that is open below its old place.
        let at = |place: Place| {
            let seat = &self.seats[place.0];
            let below = seat.parent.is_some_and(|under| self.seats[under.0].peer == *parent);
            seat.open && seat.peer == *child && below
        };
        let under = self.current.get(parent);
        let usual = under.and_then(|under| self.edges.get(&(*under, child.clone()))).copied();
        let place =
            usual.filter(|place| at(*place)).or_else(|| (1..self.seats.len()).map(Place).find(|p| at(*p)));
        // A second finish of one run changes nothing, and a run that was not started here has none to end.
        let Some(place) = place else { return self.drop_one() };
        self.seats[place.0].open = false;
        let begun = self.begin(place, None);
        let text = finished.last_text().unwrap_or_default();
        let reason = finished.stop_reason.as_deref();
        let ending = match (&finished.status, reason) {
            (Some(FinishedStatus::Ok), _) | (None, Some("completed")) => Ending::Completed(text),
            (_, Some("aborted")) => Ending::Aborted { partial: text },
            (_, reason) => self.failed(place, reason.unwrap_or("error"), text),
        };
        begun.into_iter().chain([Step::End(place, ending)]).collect()
    }

    /// As an error: what its last model turn said, where it said something.
    fn failed(&self, place: Place, reason: &str, partial: String) -> Ending {
        let (code, message) = match &self.seats[place.0].fault {
            Some(TurnFault { code, message }) => {
                let code = code.clone().unwrap_or_else(|| reason.to_owned());
                let said =
                    if message.is_empty() { format!("the turn ended with {code}") } else { message.clone() };
                (code, said)
            }
            None => (reason.to_owned(), format!("the session of the runtime ended with `{reason}`")),
        };
        Ending::Failed { code, message, partial }
    }

    fn event(&mut self, place: Place, event: EventBody) -> Vec<Step> {
        if self.seats[place.0].muted {
            return self.drop_one();
        }
        let EventBody { kind, data, seq, .. } = event;
        let data = data.as_deref();
        match (kind.as_str(), data) {
            (ASSISTANT_MESSAGE, Some(data)) => self.message(place, payload::message(data), seq),
            ("tool/call", Some(data)) => match payload::tool_call(data) {
                Some(call) => {
                    let calls = &mut self.seats[place.0].calls;
                    if calls.len() < OPEN_CALLS {
                        calls.insert(call.id.as_str().to_owned(), call.name.clone());
                    }
                    let start = ToolCallStart {
                        tool_call_id: call.id,
                        tool_name: call.name,
                        title: String::new(),
                        input: call.input,
                    };
                    vec![Step::Say(place, Event::ToolCallStart(start))]
                }
                None => self.say_custom(place, &kind, Some(data)),
            },
            ("tool/result", Some(data)) => match payload::tool_result(data) {
                Some(result) => {
                    let name = self.seats[place.0].calls.remove(result.id.as_str());
                    let complete = ToolCallComplete {
                        tool_call_id: result.id,
                        tool_name: name.unwrap_or_default(),
                        output: result.output,
                        is_error: result.is_error,
                        sessions: Vec::new(),
                    };
                    vec![Step::Say(place, Event::ToolCallComplete(complete))]
                }
                None => self.say_custom(place, &kind, Some(data)),
            },
            (TURN_END, data) => {
                // What came last counts: an error that a later turn made good is none.
                self.seats[place.0].fault = data.and_then(payload::turn_fault);
                if self.seats[place.0].fault.is_some() {
                    return self.say_custom(place, &kind, data);
                }
                Vec::new()
            }
            (kind, _) if LEFT_OUT.contains(&kind) => Vec::new(),
            (kind, data) => self.say_custom(place, kind, data),
        }
    }

    fn message(&mut self, place: Place, message: Message, seq: Option<u64>) -> Vec<Step> {
        let Message { id, text, usage } = message;
        self.seats[place.0].messages += 1;
        let mut steps = Vec::new();
        if !text.is_empty() {
            steps.push(Step::Say(place, Event::TextDelta(TextDelta { text })));
        }
        if let Some(usage) = usage {
            // Counted once by its id (L15); one without an id is told by its number in its session.
            let nth = self.seats[place.0].messages;
            let id = id.or_else(|| MessageId::new(format!("message-{}", seq.unwrap_or(nth))).ok());
            let report = id.map(|message_id| Event::Usage(UsageReport { message_id, usage }));
            steps.extend(report.map(|report| Step::Say(place, report)));
        }
        steps
    }

    fn say_custom(&mut self, place: Place, kind: &str, data: Option<&RawValue>) -> Vec<Step> {
        if self.seats[place.0].muted {
            return self.drop_one();
        }
        let data = data.unwrap_or(RawValue::NULL).to_owned();
        vec![Step::Say(place, Event::Custom(Custom { name: format!("dsh.{kind}"), data }))]
    }
}

#[cfg(test)]
mod tests;
