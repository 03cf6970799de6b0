//! What a correct client makes of a script.

use serde_json::Value;

use crate::compose::Composer;
use crate::script::{Emit, Expect, Script, Session, Signal, Statement, Step};
use crate::text::{Names, Taken};

/// The text of each prompt of the drive.
pub const PROMPT: &str = "go";

/// What a correct client makes of a script that is played to it in the *drive*:
///
/// 1. start the runtime, `initialize`, and subscribe to each of [`subscriptions`](Self::subscriptions), in order;
/// 2. for each of [`turns`](Self::turns), prompt its session with [`PROMPT`] and wait for the end of the turn; with
///    [`prompts_at_once`](Self::prompts_at_once) send all prompts first;
/// 3. send each of [`requests`](Self::requests), in order, with `{"sessionId":"root"}`;
/// 4. send `fake-runtime/rest`, which is answered once the script has come to its end.
///
/// Then each subscription and the queue of unmatched notifications hold what stands here, no more and no less.
/// A list is empty where the script says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expectations {
    /// Every notification that the script says anything about, in the order of the wire.
    pub notifications: Vec<ExpectedNotification>,
    /// What each subscription sees, in order.
    pub subscriptions: Vec<ExpectedSubscription>,
    /// What matches no subscription, in order.
    pub unmatched: Vec<ExpectedNotification>,
    /// The turns, in the order of their prompts.
    pub turns: Vec<ExpectedTurn>,
    /// Whether the prompts are sent at once.
    pub prompts_at_once: bool,
    /// Sessions that are still open below a root when a wait for its tree reaches its bound.
    pub open: Vec<(String, Vec<String>)>,
    /// The path of a session, root first, at the end.
    pub paths: Vec<(String, Vec<String>)>,
    /// Requests of the client and what comes of them.
    pub requests: Vec<(String, RequestOutcome)>,
    /// Counts of the client's diagnostics, by name: `blank`, `not-utf8`, `not-json`, `not-rpc`, `too-large`,
    /// `unterminated`, `unknown-id`, `invalid-start`.
    pub diagnostics: Vec<(String, u64)>,
    /// Texts that the error about a runtime that is gone quotes from its stderr.
    pub stderr: Vec<String>,
    /// How the runtime ended, as that error says.
    pub end: Option<RuntimeEnd>,
}

/// What a subscription sees.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedSubscription {
    /// The session it is for.
    pub root: String,
    /// Its notifications, in order.
    pub notifications: Vec<ExpectedNotification>,
}

/// A notification.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedNotification {
    /// The line of the script that writes it.
    pub line: u32,
    /// Its method.
    pub method: String,
    /// Its params, if it has any.
    pub params: Option<Value>,
    /// Whether only a play knows all of its params (`environment`): what stands here is a sample.
    pub is_sample: bool,
}

/// A turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedTurn {
    /// The session that is prompted.
    pub session: String,
    /// The id of the message that the prompt is answered with.
    pub message: String,
    /// From the receipt to the idle of the session, both included: what the turn's notifications are.
    pub notifications: Vec<ExpectedNotification>,
    /// The text of the root's last message; `None` when the script does not say.
    pub final_response: Option<String>,
    /// Why its last model turn ended; `None` when the script does not say.
    pub finish_reason: Option<String>,
    /// How the turn ends.
    pub end: TurnEnd,
}

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// The session became idle.
    Idle,
    /// The runtime went away.
    Gone,
    /// The receipt of its prompt did not come within the client's bound.
    NoReceipt,
}

/// What comes of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestOutcome {
    /// This result.
    Result(Value),
    /// An error of the peer.
    Error {
        /// Its code.
        code: i64,
        /// Its message, if the script says.
        message: Option<String>,
    },
    /// No answer within the client's bound; the error names the method.
    Timeout,
    /// The runtime went away first.
    Gone,
}

/// How a runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeEnd {
    /// With this exit code.
    Exit(u8),
    /// By this signal.
    Signal(Signal),
}

impl Expectations {
    /// What a subscription to this session sees.
    #[must_use]
    pub fn subscription(&self, root: &str) -> Option<&[ExpectedNotification]> {
        let found = self.subscriptions.iter().find(|subscription| subscription.root == root);
        found.map(|subscription| subscription.notifications.as_slice())
    }

    pub(crate) fn of(script: &Script) -> Self {
        let mut walk = Walk {
            composer: Composer::new(&script.settings),
            names: Names::default(),
            expected: Self { prompts_at_once: script.settings.prompts_at_once, ..Self::default() },
            phases: Vec::new(),
        };
        walk.steps(&script.body);
        let mut expected = walk.expected;
        for expect in &script.expects {
            expected.add(expect);
        }
        expected
    }

    fn add(&mut self, expect: &Expect) {
        match expect {
            Expect::Turn { session, response, finish, end } => {
                // The first turn of this session that nothing was said about.
                let is_open = |turn: &&mut ExpectedTurn| {
                    turn.session == *session
                        && turn.final_response.is_none()
                        && turn.finish_reason.is_none()
                        && turn.end == TurnEnd::Idle
                };
                let turn = match self.turns.iter_mut().find(is_open) {
                    Some(turn) => turn,
                    None => {
                        // A turn that the script does not answer at all.
                        self.turns.push(ExpectedTurn::new(session.clone(), String::new()));
                        let Some(turn) = self.turns.last_mut() else { return };
                        turn
                    }
                };
                turn.final_response.clone_from(response);
                turn.finish_reason.clone_from(finish);
                turn.end = *end;
            }
            Expect::Open { root, children } => self.open.push((root.clone(), children.clone())),
            Expect::Path { session, path } => self.paths.push((session.clone(), path.clone())),
            Expect::Request { method, outcome } => self.requests.push((method.clone(), outcome.clone())),
            Expect::Diagnostic { name, count } => self.diagnostics.push((name.clone(), *count)),
            Expect::Stderr(text) => self.stderr.push(text.clone()),
            Expect::Exit(end) => self.end = Some(*end),
        }
    }
}

impl ExpectedTurn {
    fn new(session: String, message: String) -> Self {
        Self {
            session,
            message,
            notifications: Vec::new(),
            final_response: None,
            finish_reason: None,
            end: TurnEnd::Idle,
        }
    }

    /// Those of its notifications that are events of the session itself.
    pub fn events(&self) -> impl Iterator<Item = &Value> {
        self.notifications.iter().filter_map(|notification| {
            let params = notification.params.as_ref()?;
            let is_own = params.get("sessionId").and_then(Value::as_str) == Some(&self.session);
            (notification.method == "session.event" && is_own).then(|| params.get("event"))?
        })
    }
}

/// Where a turn is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    BeforeReceipt,
    Open,
    Over,
}

/// The way through a script without a client.
struct Walk {
    composer: Composer,
    names: Names,
    expected: Expectations,
    phases: Vec<Phase>,
}

impl Walk {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match &step.what {
                Statement::Take { method, session, name } => {
                    let is_prompt = method == "session/prompt";
                    let session = session.as_ref().map(|session| self.session(session));
                    let message = if is_prompt { self.composer.message_id() } else { String::new() };
                    if let (true, Some(session)) = (is_prompt, &session) {
                        self.turn(session, &message);
                    }
                    self.take(session, message, name.as_deref());
                }
                Statement::Prompt { session, name } => {
                    let session = self.session(session);
                    let message = self.composer.message_id();
                    self.turn(&session, &message);
                    self.take(Some(session.clone()), message, name.as_deref());
                    let taken = self.names.request(None).cloned().unwrap_or_default();
                    for line in self.composer.accept(&session, &taken) {
                        self.written(step, line.as_bytes(), false);
                    }
                }
                Statement::Emit(emit) => self.emit(step, emit),
                Statement::Together(body) | Statement::Split { body, .. } => self.steps(body),
                Statement::Repeat { count, body } => {
                    for round in 1..=*count {
                        self.names.rounds.push(round);
                        self.steps(body);
                        self.names.rounds.pop();
                    }
                }
                _ => {}
            }
        }
    }

    fn emit(&mut self, step: &Step, emit: &Emit) {
        // What is no notification in one piece is expected by nobody.
        if matches!(emit, Emit::Fill { .. }) {
            return;
        }
        let mut bytes = Vec::new();
        self.composer.compose(emit, &mut self.names, &mut bytes);
        self.written(step, &bytes, matches!(emit, Emit::Environment { .. }));
    }

    fn take(&mut self, session: Option<String>, message: String, name: Option<&str>) {
        let id = "null".to_owned();
        let taken = Taken { id, session, message, text: PROMPT.to_owned() };
        self.names.take(name, taken);
    }

    fn turn(&mut self, session: &str, message: &str) {
        self.expected.turns.push(ExpectedTurn::new(session.to_owned(), message.to_owned()));
        self.phases.push(Phase::BeforeReceipt);
    }

    fn session(&self, session: &Session) -> String {
        match session {
            Session::Named(text) => text.plain(&self.names),
            Session::Bound(name) => name.clone(),
        }
    }

    /// A frame that a play would write, to where the script says it goes.
    fn written(&mut self, step: &Step, frame: &[u8], is_sample: bool) {
        let Some(to) = &step.to else { return };
        let Ok(Value::Object(mut frame)) = serde_json::from_slice(frame) else { return };
        if frame.contains_key("id") {
            return;
        }
        let Some(Value::String(method)) = frame.remove("method") else { return };
        let params = frame.remove("params");
        let notification = ExpectedNotification { line: step.line, method, params, is_sample };
        self.expected.notifications.push(notification.clone());
        if to.is_empty() {
            self.expected.unmatched.push(notification);
            return;
        }
        for root in to.iter().map(|root| root.plain(&self.names)).collect::<Vec<_>>() {
            self.enter_turns(&root, &notification);
            let known = self.expected.subscriptions.iter_mut().find(|subscription| subscription.root == root);
            match known {
                Some(subscription) => subscription.notifications.push(notification.clone()),
                None => {
                    let notifications = vec![notification.clone()];
                    self.expected.subscriptions.push(ExpectedSubscription { root, notifications });
                }
            }
        }
    }

    fn enter_turns(&mut self, root: &str, notification: &ExpectedNotification) {
        let text = |at: &str| notification.params.as_ref()?.pointer(at)?.as_str();
        for (turn, phase) in self.expected.turns.iter_mut().zip(&mut self.phases) {
            if turn.session != root || *phase == Phase::Over {
                continue;
            }
            if text("/event/data/inserted/0/id") == Some(&turn.message) {
                *phase = Phase::Open;
            }
            if *phase == Phase::Open {
                turn.notifications.push(notification.clone());
                let is_own = text("/sessionId") == Some(root);
                if is_own && notification.method == "session.status" && text("/status") == Some("idle") {
                    *phase = Phase::Over;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(notifications: &[ExpectedNotification]) -> Vec<u32> {
        notifications.iter().map(|notification| notification.line).collect()
    }

    #[test]
    fn tags_say_who_sees_what_and_turns_are_cut_out_of_it() {
        let script = Script::parse(
            "status root idle -> root\nprompt root\n-> root\nstarted root a -> root, a\nevent x y -> unmatched\n\
             message root \"four\"\nstatus root idle\nevent a late\nexpect turn root final \"four\" finish done\n",
        )
        .unwrap();
        let expected = script.expectations();
        assert_eq!(lines(expected.subscription("root").unwrap()), [1, 4, 6, 7, 8]);
        assert_eq!(lines(expected.subscription("a").unwrap()), [4]);
        assert_eq!(lines(&expected.unmatched), [5]);
        // The prompt itself says nothing of where it goes, so its receipt opens no turn here.
        assert_eq!(lines(&expected.turns[0].notifications), [0; 0]);
        assert_eq!(expected.turns[0].final_response.as_deref(), Some("four"));
    }

    #[test]
    fn a_turn_goes_from_its_receipt_to_its_idle() {
        let script = Script::parse(
            "-> root\nprompt root\nrepeat 2\n message root \"${i}\"\nend\nstatus root idle\nevent root x\n",
        )
        .unwrap();
        let turn = &script.expectations().turns[0];
        assert_eq!(lines(&turn.notifications), [2, 2, 2, 4, 4, 6]);
        assert_eq!(turn.events().count(), 4);
        assert_eq!(turn.message, "message-1");
    }
}
