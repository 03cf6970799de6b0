//! One line after another: what a runtime writes, and what it never should.

use super::World;
use crate::streams::{
    Frame, Meaning, Step,
    frames::{self, Built},
    json::Json,
    wanted::Wanted,
};

const TEXTS: &[&str] = &[
    "hello",
    "",
    "two\nlines\ttabbed",
    "line\u{2028}separator and paragraph\u{2029}, next\u{85}line",
    "über 🌳 日本語 \u{1F468}\u{200D}\u{1F469}",
    "quote \" backslash \\ slash / end",
    "control \u{1} \u{1f} \u{7f} and \u{0}",
    "\u{feff}with a mark",
    "{\"jsonrpc\":\"2.0\",\"method\":\"session.status\"}",
];

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890",
    "0.1",
    "1e5",
    "-2.5E-3",
    "1.7976931348623157e308",
    "1e400",
    "5e-324",
    "100.0",
];

impl World {
    /// Any line that may stand anywhere.
    pub(super) fn any_frame(&mut self) {
        if self.wild && self.random.one_in(25) {
            return self.wild_frame();
        }
        match self.random.weighted(&[34, 9, 14, 11, 2, 4, 4, 2, 3]) {
            0 => self.some_event(),
            1 => self.some_status(),
            2 => self.some_start(),
            3 => self.some_finish(),
            4 => self.invalid_start(),
            5 => self.other_notification(),
            6 => self.junk(),
            7 => self.no_notification(),
            _ => self.again(),
        }
    }

    /// In the plain spelling, or now and then in another.
    pub(super) fn spelled(&mut self, built: &Built) {
        let frame = if self.random.one_in(10) { built.odd(&mut self.random) } else { built.plain() };
        self.push(frame);
    }

    fn some_session(&mut self) -> String {
        match self.random.below(10) {
            0 => "foreign".to_owned(),
            1 => format!("stranger-{}", self.random.below(3)),
            2 | 3 => self.random.of(&self.roots).clone(),
            _ => self.random.of(&self.sessions).clone(),
        }
    }

    fn text(&mut self) -> &'static str {
        self.random.pick(TEXTS)
    }

    fn some_event(&mut self) {
        let session = self.some_session();
        let built = match self.random.below(9) {
            0 | 1 => self.assistant_message(&session),
            2 => self.turn_end(&session),
            3 => {
                let message = self.message_id();
                let seq = self.seq(&session);
                let data = frames::inbox(&[&message], self.text());
                frames::event(&session, "agent/inbox/spliced", seq, data)
            }
            4 => {
                let event = self.random.pick(&["{}", "{\"type\":7}", "{\"type\":\"x\"}"]);
                frames::event_of(&session, Json::Raw(event.to_owned()), false)
            }
            5 => {
                let numbers = (0..3).map(|_| Json::Raw(self.random.pick(NUMBERS).to_owned())).collect();
                let seq = self.seq(&session);
                frames::event(&session, "big/numbers", seq, Json::List(numbers))
            }
            _ => {
                let kind = self.random.pick(&[
                    "step/start",
                    "step/end",
                    "tool/call",
                    "tool/result",
                    "not/known-yet",
                ]);
                let text = self.text();
                let step = self.random.between(1, 9).to_string();
                let data = Json::Object(vec![
                    ("turn", Json::number(1)),
                    ("step", Json::Raw(step)),
                    ("text", Json::text(text)),
                    ("nothing", Json::null()),
                ]);
                let seq = self.seq(&session);
                frames::event(&session, kind, seq, data)
            }
        };
        self.spelled(&built);
    }

    /// A message of the assistant, its content of any shape that occurs or might.
    pub(super) fn assistant_message(&mut self, session: &str) -> Built {
        let id = self.message_id();
        let seq = self.seq(session);
        let said = format!("{} says {} in {id}", session, self.text());
        let call = Json::Object(vec![("type", Json::text("tool-call")), ("name", Json::text("bash"))]);
        let thought = Json::Object(vec![("type", Json::text("thinking")), ("text", Json::text("a thought"))]);
        let data = match self.random.below(12) {
            0 => frames::assistant(vec![call], &id),
            1 => frames::assistant(vec![], &id),
            2 => frames::assistant(vec![thought, frames::text_block(&said), call], &id),
            3 => frames::assistant(vec![frames::text_block(&said), frames::text_block(" and more")], &id),
            4 => Json::Object(vec![("content", Json::List(vec![frames::text_block(&said)]))]),
            5 => {
                let shapes = ["null", "{}", "{\"message\":{}}", "{\"message\":null,\"content\":7}", "[]"];
                Json::Raw(self.random.pick(&shapes).to_owned())
            }
            6 => frames::assistant(
                vec![
                    Json::Object(vec![("type", Json::text("text"))]),
                    Json::null(),
                    frames::text_block(&said),
                ],
                &id,
            ),
            _ => frames::assistant(vec![frames::text_block(&said)], &id),
        };
        frames::event(session, "assistant/message", seq, data)
    }

    pub(super) fn turn_end(&mut self, session: &str) -> Built {
        let kind = self.random.pick(&["completed", "completed", "error", "max-tokens", "aborted", "ended é"]);
        let seq = self.seq(session);
        frames::event(session, "turn/end", seq, frames::turn_end(kind))
    }

    fn some_status(&mut self) {
        let session = self.some_session();
        let status = if self.may_idle(&session) {
            self.random.pick(&["idle", "running", "idle", "paused"])
        } else {
            self.random.pick(&["running", "paused", "Idle"])
        };
        self.spelled(&frames::status(&session, status));
    }

    fn some_start(&mut self) {
        let parent = self.random.of(&self.sessions).clone();
        let roots = self.roots.len();
        let child = match self.random.below(10) {
            // A new session, while there are few.
            0..=3 if self.sessions.len() < 24 => format!("s{}", self.sessions.len()),
            // Known again, as its parent has it.
            4 => match self.parents.keys().min() {
                Some(child) => child.clone(),
                None => format!("s{}", self.sessions.len()),
            },
            // An ancestor below its own descendant.
            5 => self.parents.get(&parent).cloned().unwrap_or_else(|| self.roots[0].clone()),
            // Another's child, or with luck a root.
            _ => {
                let from = if self.random.one_in(12) { 0 } else { roots };
                let place = self.random.between(from, self.sessions.len() - 1);
                self.sessions[place].clone()
            }
        };
        if parent != child {
            self.spelled(&frames::started(&parent, &child));
        } else {
            self.some_event();
        }
    }

    fn some_finish(&mut self) {
        let mut children: Vec<&String> = self.parents_ever.keys().collect();
        children.sort();
        if children.is_empty() {
            return self.some_start();
        }
        let child = self.random.pick(&children).clone();
        let parents = self.parents_ever[&child].clone();
        let parent = match self.random.below(10) {
            // The latest start's, an older one's, or nobody's.
            0..=4 => parents[parents.len() - 1].clone(),
            5..=8 => self.random.of(&parents).clone(),
            _ => self.some_session(),
        };
        let failed = self.random.one_in(5);
        let last = self.random.one_in(2).then(|| self.text());
        self.spelled(&frames::finished(&parent, &child, failed, last));
    }

    /// Starts that record nothing (T2), of ids that reach nobody but a root that is their own child or parent.
    fn invalid_start(&mut self) {
        let session = self.random.of(&self.sessions).clone();
        let same = Json::text(&session);
        let params = match self.random.below(5) {
            0 => frames::edge(same.clone(), same),
            1 => frames::edge(same, Json::text("")),
            2 => frames::edge(same, Json::number(5)),
            3 => Json::Object(vec![("parentSessionId", same)]),
            _ => Json::Object(vec![]),
        };
        self.spelled(&frames::notification("subagent.started", params, Meaning::Nothing));
    }

    fn other_notification(&mut self) {
        let session = self.some_session();
        let of_session = Meaning::Session { session: session.clone(), says: false };
        let named = |value: Json| Json::Object(vec![("sessionId", value), ("extra", Json::text("…"))]);
        let built = match self.random.below(6) {
            0 => frames::notification("session.title", named(Json::text(&session)), of_session),
            1 => frames::notification("subagent.progress", named(Json::text(&session)), of_session),
            2 => frames::notification("runtime.note", Json::Object(vec![]), Meaning::Nothing),
            3 => frames::notification("session.event", named(Json::number(5)), Meaning::Nothing),
            4 => frames::notification("session.status", named(Json::text("")), Meaning::Nothing),
            _ => {
                let json = Json::Object(vec![("method", Json::text("runtime.tick"))]);
                Built { json, meaning: Meaning::Nothing }
            }
        };
        self.spelled(&built);
    }

    /// Lines that are no message.
    fn junk(&mut self) {
        let line: &[u8] = self.random.pick(&[
            &b""[..],
            b"   ",
            b"\t",
            b"\r",
            b"Server listening on port 4",
            b"{",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"session.status\",\"params\":{\"sessionId\":\"root\"",
            b"[]",
            b"[{\"jsonrpc\":\"2.0\",\"method\":\"session.status\",\"params\":{\"sessionId\":\"root\",\"status\":\"idle\"}}]",
            b"null",
            b"7",
            b"\"text\"",
            b"{}",
            b"{\"jsonrpc\":\"2.0\"}",
            b"{\"method\":7}",
            b"{'single':'quotes'}",
            b"{\"a\":1}{\"b\":2}",
            b"{\"control\":\"\x01\"}",
            "\u{feff}{\"method\":\"with.a.mark\"}".as_bytes(),
        ]);
        self.push(Frame { line: line.to_vec(), needed: false, meaning: Meaning::Nothing });
    }

    /// Responses that nobody waits for, and requests of the runtime.
    fn no_notification(&mut self) {
        let line = self.random.pick(&[
            r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1234567,"result":{"messageId":"message-1"}}"#,
            r#"{"jsonrpc":"2.0","id":"nobody","error":{"code":-32603,"message":"late"}}"#,
            r#"{"jsonrpc":"2.0","id":"ask-1","method":"approval/request","params":{"sessionId":"root"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"session.status","params":{"sessionId":"root","status":"idle"}}"#,
        ]);
        self.push(Frame { line: line.as_bytes().to_vec(), needed: false, meaning: Meaning::Nothing });
    }

    /// The latest line again, one to four times.
    fn again(&mut self) {
        let last = self.steps.iter().rev().find_map(|step| match step {
            Step::Frame(frame) if !frame.needed => Some(frame.clone()),
            _ => None,
        });
        let Some(frame) = last else { return self.junk() };
        // What was a harmless idle then may end a turn now.
        if let Meaning::Session { session, .. } = &frame.meaning
            && !self.may_idle(session)
        {
            return self.some_start();
        }
        for _ in 0..self.random.between(1, 4) {
            self.push(frame.clone());
        }
    }

    /// What two clients take differently on purpose.
    fn wild_frame(&mut self) {
        let wanted = self.random.pick(Wanted::IN_RANDOM_STREAMS);
        let session = self.random.of(&self.sessions).clone();
        let line = wanted.line(&session);
        self.push(Frame { line, needed: false, meaning: Meaning::Wild(wanted) });
    }
}
