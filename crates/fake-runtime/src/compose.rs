//! Frames as a runtime writes them.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use crate::script::{Emit, Message, Settings};
use crate::text::{Names, Taken, Text};

/// The time of the first event, in milliseconds since 1970. Times grow by one per event, so that two plays are equal.
const FIRST_TIME_MS: u64 = 1_796_000_000_000;
/// The first numbers of a child's events are written before it is announced.
const FIRST_SEQ_OF_A_CHILD: u64 = 3;

/// Makes the frames of a play and keeps the numbers that run on in it.
#[derive(Debug)]
pub(crate) struct Composer {
    seqs: HashMap<String, u64>,
    turns: HashMap<String, u64>,
    children: BTreeSet<String>,
    events: u64,
    messages: u64,
    asked: u64,
    /// Names of the variables of the environment.
    pub(crate) environment: Vec<String>,
}

/// A text as JSON.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Composer {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            seqs: HashMap::new(),
            turns: HashMap::new(),
            children: settings.children.clone(),
            events: 0,
            messages: 0,
            asked: 0,
            environment: Vec::new(),
        }
    }

    /// A new id of a message.
    pub(crate) fn message_id(&mut self) -> String {
        self.messages += 1;
        format!("message-{}", self.messages)
    }

    /// What one statement writes, line ends included.
    pub(crate) fn compose(&mut self, emit: &Emit, names: &mut Names, into: &mut Vec<u8>) {
        let plain = |text: &Text| text.plain(names);
        let json = |text: &Option<Text>| text.as_ref().map(|text| text.json(names));
        let line = match emit {
            Emit::Started { parent, child } => {
                let child = plain(child);
                self.children.insert(child.clone());
                notification("subagent.started", &lifecycle(&plain(parent), &child))
            }
            Emit::Finished { parent, child, status, stop, text } => {
                let (parent, child) = (plain(parent), plain(child));
                let mut params = lifecycle(&parent, &child);
                params.pop();
                let (status, stop) = (json_string(&plain(status)), json_string(&plain(stop)));
                let agent = json_string(&child);
                // Writing to a String cannot fail.
                let _ = write!(
                    params,
                    r#","provider":"spawn","agentId":{agent},"status":{status},"stopReason":{stop}"#
                );
                if let Some(text) = text {
                    let text = json_string(&plain(text));
                    let _ = write!(params, r#","lastAssistantMessage":[{{"type":"text","text":{text}}}]"#);
                }
                params.push('}');
                notification("subagent.finished", &params)
            }
            Emit::Status { session, status } => self.status(&plain(session), &plain(status)),
            Emit::Event { session, kind, data } => {
                self.event(&plain(session), &plain(kind), json(data).as_deref().unwrap_or("{}"))
            }
            Emit::Receipt { session, message } => {
                let (id, text) = match message {
                    Message::Of(name) => names
                        .request(name.as_deref())
                        .map(|taken| (taken.message.clone(), taken.text.clone()))
                        .unwrap_or_default(),
                    Message::Id(id) => (plain(id), String::new()),
                };
                self.receipt(&plain(session), &id, &text)
            }
            Emit::TurnStart { session } => self.turn_start(&plain(session)),
            Emit::TurnEnd { session, kind, error } => {
                let error = error.as_ref().map(|(code, message)| (plain(code), plain(message)));
                self.turn_end(&plain(session), &plain(kind), error)
            }
            Emit::Message { session, text } => self.message(&plain(session), &plain(text)),
            Emit::Notify { method, params } => match json(params) {
                Some(params) => notification(&plain(method), &params),
                None => format!(r#"{{"jsonrpc":"2.0","method":{}}}"#, json_string(&plain(method))),
            },
            Emit::Filler { session, bytes } => self.filler(&plain(session), *bytes),
            Emit::Environment { session } => {
                let variables: Vec<String> = self.environment.iter().map(|name| json_string(name)).collect();
                let data = format!(r#"{{"variables":[{}]}}"#, variables.join(","));
                self.event(&plain(session), "kit/environment", &data)
            }
            Emit::Line(text) => text.json(names),
            Emit::Bytes(bytes) => {
                into.extend_from_slice(bytes);
                return;
            }
            Emit::Fill { bytes, byte } => {
                into.resize(into.len().saturating_add(usize::try_from(*bytes).unwrap_or(usize::MAX)), *byte);
                return;
            }
            Emit::Reply { name, result } => {
                let id = id_of(names.request(name.as_deref()));
                reply(&id, &result.json(names))
            }
            Emit::Error { name, code, message, data } => {
                let id = id_of(names.request(name.as_deref()));
                error(&id, *code, &plain(message), json(data).as_deref())
            }
            Emit::Ask { method, params, name } => {
                self.asked += 1;
                let id = format!("\"kit-{}\"", self.asked);
                let method = json_string(&plain(method));
                let params = json(params).map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
                names.asked.insert(name.clone().unwrap_or_default(), id.clone());
                if let Some(name) = name {
                    names.asked.insert(name.clone(), id.clone());
                    names.asked.insert(String::new(), id.clone());
                }
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}{params}}}"#)
            }
        };
        into.extend_from_slice(line.as_bytes());
        into.push(b'\n');
    }

    /// What the real runtime writes when it takes a prompt, in its order: the receipt, the status, the begin of a turn.
    /// The reply comes after them.
    pub(crate) fn accept(&mut self, session: &str, taken: &Taken) -> Vec<String> {
        vec![
            self.receipt(session, &taken.message, &taken.text),
            self.status(session, "running"),
            self.turn_start(session),
        ]
    }

    /// The end of a turn that says one thing.
    pub(crate) fn answer(&mut self, session: &str, text: &str) -> Vec<String> {
        vec![
            self.message(session, text),
            self.turn_end(session, "completed", None),
            self.status(session, "idle"),
        ]
    }

    fn receipt(&mut self, session: &str, id: &str, text: &str) -> String {
        let (id, text) = (json_string(id), json_string(text));
        let data = format!(
            r#"{{"target":"next-turn","start":0,"inserted":[{{"content":[{{"type":"text","text":{text}}}],"source":{{"kind":"user"}},"role":"user","id":{id}}}]}}"#
        );
        self.event(session, "agent/inbox/spliced", &data)
    }

    fn status(&self, session: &str, status: &str) -> String {
        let (session, status) = (json_string(session), json_string(status));
        notification("session.status", &format!(r#"{{"sessionId":{session},"status":{status}}}"#))
    }

    fn turn_start(&mut self, session: &str) -> String {
        let turn = self.turns.entry(session.to_owned()).or_default();
        *turn += 1;
        let data = format!(r#"{{"turn":{turn}}}"#);
        self.event(session, "turn/start", &data)
    }

    fn turn_end(&mut self, session: &str, kind: &str, error: Option<(String, String)>) -> String {
        let (turn, kind) = (self.turn(session), json_string(kind));
        let error = error.map(|(code, message)| {
            let (code, message) = (json_string(&code), json_string(&message));
            format!(r#","error":{{"message":{message},"code":{code}}}"#)
        });
        let error = error.unwrap_or_default();
        self.event(session, "turn/end", &format!(r#"{{"turn":{turn},"reason":{{"kind":{kind}{error}}}}}"#))
    }

    fn message(&mut self, session: &str, text: &str) -> String {
        let (turn, text) = (self.turn(session), json_string(text));
        let id = self.events;
        let data = format!(
            r#"{{"turn":{turn},"step":1,"message":{{"role":"assistant","content":[{{"type":"text","text":{text}}}],"id":"said-{id}"}}}}"#
        );
        self.event(session, "assistant/message", &data)
    }

    fn turn(&self, session: &str) -> u64 {
        self.turns.get(session).copied().unwrap_or(1)
    }

    /// An event whose frame has just this many bytes, line end not counted.
    fn filler(&mut self, session: &str, bytes: u64) -> String {
        let frame = self.event(session, "kit/filler", r#"{"text":""}"#);
        let missing = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(frame.len());
        frame.replacen(r#""text":"""#, &format!(r#""text":"{}""#, "x".repeat(missing)), 1)
    }

    fn event(&mut self, session: &str, kind: &str, data: &str) -> String {
        let first = if self.children.contains(session) { FIRST_SEQ_OF_A_CHILD } else { 0 };
        let next = self.seqs.entry(session.to_owned()).or_insert(first);
        let seq = *next;
        *next += 1;
        self.events += 1;
        let (session, kind, time) = (json_string(session), json_string(kind), FIRST_TIME_MS + self.events);
        notification(
            "session.event",
            &format!(
                r#"{{"sessionId":{session},"event":{{"type":{kind},"seq":{seq},"time":{time},"data":{data}}}}}"#
            ),
        )
    }
}

fn lifecycle(parent: &str, child: &str) -> String {
    format!(r#"{{"parentSessionId":{},"childSessionId":{}}}"#, json_string(parent), json_string(child))
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, json_string(method))
}

/// The answer to a request: it succeeded.
pub(crate) fn reply(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The answer to a request: it failed.
pub(crate) fn error(id: &str, code: i64, message: &str, data: Option<&str>) -> String {
    let message = json_string(message);
    let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
}

fn id_of(taken: Option<&Taken>) -> String {
    taken.map_or_else(|| "null".to_owned(), |taken| taken.id.clone())
}
