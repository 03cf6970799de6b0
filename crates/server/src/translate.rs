//! What an event of ours is on the wire of dsh runtimes. Pure: envelopes in, lines out.
//!
//! The lines depend on the log alone, so that every reader of a tree gets the same, whenever it comes. What
//! the runtimes say and we cannot know (system prompts, request headers, steps) is left out: their own
//! clients take an open-ended list of event types. Kinds of ours that their wire has no word for go out as
//! events of type `offspring/<kind>` with their data as it is.
//!
//! | ours | on the wire |
//! |---|---|
//! | `prompt_received` | `agent/inbox/spliced` with the message: the receipt of a prompt (rule T13) |
//! | `spawn_session_start` | `subagent.started` |
//! | `run_started` | `subagent.started` again from a child's second run on; `session.status running`, `turn/start`, `user/message` |
//! | `message_complete` | `assistant/message` |
//! | `tool_call_start`, `tool_call_complete` | `tool/call`, `tool/result` |
//! | `stream_complete`, `run_error`, `prompt_dropped` | `turn/end` |
//! | `status_changed` idle | `session.status idle` unless another prompt waits; `subagent.finished` for a child |

use std::collections::{HashMap, VecDeque};

use offspring_protocol::{
    Envelope, Event, MessageId, Outcome, SessionId, SessionInfo, SessionState,
    dsh::{
        ASSISTANT_MESSAGE, INBOX_SPLICED, SESSION_EVENT, SESSION_STATUS, SUBAGENT_FINISHED, SUBAGENT_STARTED,
        TOOL_CALL, TOOL_RESULT, TURN_END, TURN_START, USER_MESSAGE,
    },
    event::{
        MessageComplete, PromptDropped, PromptReceived, RunFailed, RunStarted, StreamComplete,
        ToolCallComplete, ToolCallStart,
    },
    rpc,
};
use serde::Serialize;
use serde_json::value::RawValue;

mod wire;

use wire::{
    AssistantMessage, Content, EventBody, FinishedParams, Inbox, Message, Reason, ReasonError, SessionEvent,
    Source, StartedParams, StatusParams, ToolCall, ToolResult, Turn, TurnEnded,
};

/// Who finished, as the runtimes name it: `spawn` and `fork` are theirs.
const PROVIDER: &str = "offspring";

/// Translates one tree. Give it every envelope of the tree from number 1 on, in order.
#[derive(Debug)]
pub struct Translator {
    message_bytes: usize,
    sessions: HashMap<SessionId, Told>,
}

/// What was told of a session.
#[derive(Debug, Default)]
struct Told {
    /// The number of its next event.
    seq: u64,
    /// How many turns were numbered.
    turns: u64,
    /// The present turn, or the last.
    turn: u64,
    /// It was said to be running.
    running: bool,
    /// A run of it has begun and is not over. It is said to be running for longer: as long as a prompt waits.
    at_work: bool,
    /// What its run has said so far, for a message that does not repeat it.
    text: String,
    /// How much it said, when that is more than is kept.
    said_bytes: usize,
    /// Its last whole message of this run.
    answer: Option<String>,
    error: Option<ReasonError>,
    /// A turn was begun and not ended.
    in_turn: bool,
    /// Prompts that were taken in and have no run yet, first to last.
    waiting: VecDeque<MessageId>,
}

impl Translator {
    /// A translator that has seen nothing; a longer text than `message_bytes` is cut.
    #[must_use]
    pub fn new(message_bytes: usize) -> Self {
        Self { message_bytes, sessions: HashMap::new() }
    }

    /// The prompts of a session that were taken in and have neither a run nor a word why they get none.
    #[must_use]
    pub fn waiting(&self, session: &SessionId) -> Vec<MessageId> {
        self.sessions.get(session).map_or_else(Vec::new, |told| told.waiting.iter().cloned().collect())
    }

    /// Whether the session was told to be running.
    #[must_use]
    pub fn is_running(&self, session: &SessionId) -> bool {
        self.sessions.get(session).is_some_and(|told| told.running)
    }

    /// Adds the lines that this envelope is on the wire, in order.
    pub fn translate(&mut self, envelope: &Envelope, lines: &mut Vec<String>) {
        let info = &*envelope.session;
        let message_bytes = self.message_bytes;
        let told = self.sessions.entry(info.id.clone()).or_default();
        let mut out = Out { told, info, at: envelope.at.0, message_bytes, lines };
        if envelope.late {
            // It changes nothing (L12); whoever cares still sees it.
            return out.raw("offspring/late", envelope.event.data());
        }
        match envelope.event.parse() {
            Ok(Event::PromptReceived(prompt)) => out.received(prompt),
            Ok(Event::PromptDropped(dropped)) => out.dropped(dropped),
            Ok(Event::SpawnSessionStart(spawn)) => {
                out.line(
                    SUBAGENT_STARTED,
                    &StartedParams::new(&spawn.parent_session_id, &spawn.child_session_id),
                );
            }
            Ok(Event::RunStarted(run)) => out.run(&run),
            Ok(Event::TextDelta(delta)) => out.text(&delta.text),
            Ok(Event::MessageComplete(message)) => out.message(message),
            Ok(Event::ToolCallStart(call)) => out.call(&call),
            Ok(Event::ToolCallComplete(call)) => out.result(call),
            Ok(Event::StreamComplete(end)) => out.complete(&end),
            Ok(Event::RunError(failed)) => out.failed(failed),
            Ok(Event::StatusChanged(status)) => {
                if status.state == SessionState::Idle {
                    out.idle(status.outcome);
                }
            }
            Ok(_) | Err(_) => {
                let kind = format!("offspring/{}", envelope.event.kind());
                out.raw(&kind, envelope.event.data());
            }
        }
    }
}

/// The lines of one envelope.
struct Out<'a> {
    told: &'a mut Told,
    info: &'a SessionInfo,
    at: i64,
    message_bytes: usize,
    lines: &'a mut Vec<String>,
}

impl Out<'_> {
    fn line<P: Serialize>(&mut self, method: &str, params: &P) {
        match rpc::notification(method, params) {
            Ok(line) => self.lines.push(line),
            // Strings and numbers always are JSON.
            Err(error) => tracing::error!(%error, "a notification was not written"),
        }
    }

    fn event<D: Serialize>(&mut self, kind: &str, data: &D) {
        self.event_with(kind, data, None);
    }

    /// An event that changes what the model sees.
    fn appended<D: Serialize>(&mut self, kind: &str, data: &D) {
        self.event_with(kind, data, Some("append"));
    }

    fn event_with<D: Serialize>(&mut self, kind: &str, data: &D, surface_op: Option<&'static str>) {
        let event = EventBody { kind, seq: self.told.seq, time: self.at, data, surface_op };
        self.told.seq += 1;
        let params = SessionEvent { session_id: &self.info.id, event };
        self.line(SESSION_EVENT, &params);
    }

    fn raw(&mut self, kind: &str, data: &RawValue) {
        self.event(kind, &data);
    }

    fn status(&mut self, status: SessionState) {
        self.told.running = status == SessionState::Running;
        let params = StatusParams { session_id: &self.info.id, status };
        self.line(SESSION_STATUS, &params);
    }

    fn received(&mut self, prompt: PromptReceived) {
        let message = user_message(prompt.prompt_id.as_str(), &prompt.text, self.message_bytes);
        self.event(INBOX_SPLICED, &Inbox::inserted(&message));
        self.told.waiting.push_back(prompt.prompt_id);
    }

    /// A turn that ends before it began, so that nobody waits for it for ever. The turn that goes on
    /// meanwhile keeps its number.
    fn dropped(&mut self, dropped: PromptDropped) {
        self.told.waiting.retain(|id| *id != dropped.prompt_id);
        if !self.told.running {
            self.status(SessionState::Running);
        }
        let turn = self.turn_start();
        let kind = if matches!(&*dropped.code, "cancelled" | "closing") { "aborted" } else { "error" };
        let error = ReasonError { message: dropped.message, code: dropped.code };
        self.event(TURN_END, &TurnEnded { turn, reason: Reason { kind, error: Some(&error) } });
        self.rest();
    }

    /// Queued prompts are one activity: two turns, one idle.
    fn rest(&mut self) {
        if self.told.running && !self.told.at_work && self.told.waiting.is_empty() {
            self.status(SessionState::Idle);
        }
    }

    fn run(&mut self, run: &RunStarted) {
        let first = self.told.turns == 0;
        if let Some(parent) = self.info.parent.as_ref().filter(|_| !first) {
            // A re-activation: the same ids, a second start (T3).
            self.line(SUBAGENT_STARTED, &StartedParams::new(parent, &self.info.id));
        }
        let waiting = self.told.waiting.len();
        self.told.waiting.retain(|id| run.prompt_id.as_ref() != Some(id));
        let known = self.told.waiting.len() < waiting;
        // A prompt that nothing was told of before, a child's for one, goes by the name of its run.
        let id = run.prompt_id.as_ref().map_or(run.run_id.as_str(), MessageId::as_str);
        let message = user_message(id, &run.prompt, self.message_bytes);
        if !known {
            self.event(INBOX_SPLICED, &Inbox::inserted(&message));
        }
        if !self.told.running {
            self.status(SessionState::Running);
        }
        self.told.text.clear();
        self.told.said_bytes = 0;
        self.told.answer = None;
        self.told.error = None;
        self.told.in_turn = true;
        self.told.at_work = true;
        self.told.turn = self.turn_start();
        self.event(INBOX_SPLICED, &Inbox::removed());
        self.appended(USER_MESSAGE, &message);
    }

    fn turn_start(&mut self) -> u64 {
        self.told.turns += 1;
        let turn = self.told.turns;
        self.event(TURN_START, &Turn { turn });
        turn
    }

    fn turn_end(&mut self, kind: &'static str, error: Option<&ReasonError>) {
        if !std::mem::take(&mut self.told.in_turn) {
            // A run that ended before it began: its prompt is answered all the same.
            self.told.waiting.pop_front();
            if !self.told.running {
                self.status(SessionState::Running);
            }
            self.told.turn = self.turn_start();
        }
        let turn = self.told.turn;
        self.event(TURN_END, &TurnEnded { turn, reason: Reason { kind, error } });
    }

    fn text(&mut self, text: &str) {
        self.told.said_bytes += text.len();
        let room = self.message_bytes.saturating_sub(self.told.text.len());
        self.told.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn message(&mut self, message: MessageComplete) {
        let text = if message.streamed_bytes > 0 {
            let said = std::mem::take(&mut self.told.text);
            cut(said, self.told.said_bytes, self.message_bytes)
        } else {
            let bytes = message.text.len();
            cut(message.text, bytes, self.message_bytes)
        };
        let data = AssistantMessage {
            turn: self.told.turn,
            step: 1,
            message: Message {
                role: "assistant",
                content: [Content::text(&text)],
                source: Source::Model { provider: PROVIDER, model: self.info.agent_name.as_str() },
                id: message.message_id.as_str(),
            },
            stream: &[],
        };
        self.appended(ASSISTANT_MESSAGE, &data);
        self.told.answer = Some(text);
    }

    fn call(&mut self, call: &ToolCallStart) {
        let arguments = call.input.as_ref().map_or("{}", |input| input.get());
        let (turn, call_id, name) = (self.told.turn, call.tool_call_id.as_str(), call.tool_name.as_str());
        self.event(TOOL_CALL, &ToolCall { turn, step: 1, call_id, name, arguments });
    }

    fn result(&mut self, call: ToolCallComplete) {
        let bytes = call.output.len();
        let text = cut(call.output, bytes, self.message_bytes);
        let data = ToolResult {
            turn: self.told.turn,
            step: 1,
            message: wire::ToolMessage {
                role: "tool",
                source: Source::Tool { call_id: call.tool_call_id.as_str() },
                tool_call_id: call.tool_call_id.as_str(),
                content: [Content::text(&text)],
                is_error: call.is_error,
                sessions: &call.sessions,
            },
        };
        self.appended(TOOL_RESULT, &data);
    }

    fn complete(&mut self, end: &StreamComplete) {
        let kind = if end.cancelled { "aborted" } else { "completed" };
        self.turn_end(kind, None);
    }

    fn failed(&mut self, failed: RunFailed) {
        // Interrupted by nobody's wish, by a runtime that is gone for one, it did not do what it was asked: a
        // client that looks for errors has to see it.
        let kind = if failed.code == "cancelled" { "aborted" } else { "error" };
        let error = ReasonError { message: failed.message, code: failed.code };
        self.turn_end(kind, Some(&error));
        self.told.error = Some(error);
    }

    fn idle(&mut self, outcome: Option<Outcome>) {
        self.told.at_work = false;
        self.rest();
        let Some(parent) = &self.info.parent else { return };
        let (status, stop_reason) = match outcome {
            Some(Outcome::Completed) | None => ("ok", "completed"),
            Some(Outcome::Failed) => ("error", "error"),
            Some(Outcome::Cancelled | Outcome::Interrupted) => ("error", "aborted"),
        };
        let answer = self.told.answer.take();
        let said = answer.or_else(|| self.told.error.take().map(|error| error.message));
        let params = FinishedParams {
            provider: PROVIDER,
            agent_id: &self.info.id,
            parent_session_id: parent,
            child_session_id: &self.info.id,
            status,
            stop_reason,
            last_assistant_message: said.as_deref().map(|text| [Content::text(text)]),
        };
        self.line(SUBAGENT_FINISHED, &params);
    }
}

fn user_message<'a>(id: &'a str, text: &'a str, message_bytes: usize) -> Message<'a> {
    let text = &text[..text.floor_char_boundary(message_bytes)];
    Message { content: [Content::text(text)], source: Source::User, role: "user", id }
}

/// The beginning of a text, with a line that says how much there is, when it is longer than it may be.
fn cut(mut text: String, bytes: usize, max: usize) -> String {
    if bytes <= max && text.len() <= max {
        return text;
    }
    text.truncate(text.floor_char_boundary(max));
    text.push_str(&format!("\n[cut: {bytes} bytes; `session/get` and `tree/subscribe` have all of it]"));
    text
}

#[cfg(test)]
mod tests;
