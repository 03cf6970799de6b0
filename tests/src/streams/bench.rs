//! The deterministic stream of `cargo xtask bench client`: a tree of 50 sessions under one root, or several roots.
//!
//! The shape is that of recorded traffic: the receipt of the prompt and the root's `running`; within the first twentieth
//! the start of every child, each before its first event; events and states of all sessions mixed; a finish of every
//! child, grandchildren first; last the root's message, the end of its turn and its `idle`.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::streams::{
    canonical::canonical,
    frames::{self, Built},
    json::{Json, quoted},
    random::Random,
};

/// How large the events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// A mean of about 350 bytes: the steady state of recorded traffic.
    Small,
    /// A mean of about 1.4 kB: sizes weighted like recorded traffic, with a request of 20 kB now and then.
    Real,
}

/// What stream is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Lines, all of them notifications.
    pub lines: usize,
    /// Their sizes.
    pub mix: Mix,
    /// Trees, each with a root of its own; one has 7 children with 6 children each, several have 2 with 2 each.
    pub roots: usize,
    /// Of a thousand lines between, how many are of a session outside of every tree.
    pub foreign_per_thousand: usize,
}

/// The id of a root.
#[must_use]
pub fn root(number: usize, of: usize) -> String {
    if of == 1 { "bench-root".to_owned() } else { format!("bench-root-{number}") }
}

/// The id of the message that prompts a root.
#[must_use]
pub fn message(number: usize, of: usize) -> String {
    if of == 1 { "bench-message".to_owned() } else { format!("bench-message-{number}") }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Lines.
    pub lines: usize,
    /// Bytes, line feeds included.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
}

/// Lines that go before the answers to the prompts: receipt and state of each root.
///
/// # Errors
/// As the writers do.
pub fn write(wanted: Wanted, head: &mut dyn Write, rest: &mut dyn Write) -> io::Result<Written> {
    let mut made = Made {
        random: Random::new(20_260_101),
        wanted,
        roots: (0..wanted.roots).map(|number| root(number, wanted.roots)).collect(),
        seqs: std::collections::HashMap::new(),
        running: std::collections::HashSet::new(),
        time: 0,
        count: 0,
        bytes: 0,
        hash: Sha256::new(),
    };
    made.head(head)?;
    made.rest(rest)?;
    let sha256 = made.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Written { lines: made.count, bytes: made.bytes, sha256 })
}

/// The script by which [`player`](super::player) plays it: `head` once all roots were prompted, the answers, the rest.
#[must_use]
pub fn script(roots: usize, head: &str, rest: &str) -> String {
    let mut script = String::new();
    for number in 0..roots {
        script.push_str(&format!("<{number} session/prompt {}\n", quoted(&root(number, roots))));
    }
    script.push_str(&format!("@{head}\n"));
    for number in 0..roots {
        let id = quoted(&message(number, roots));
        script.push_str(&format!(">{number} \"result\":{{\"messageId\":{id}}}\n"));
    }
    script.push_str(&format!("@{rest}\n"));
    script
}

/// Sums up notifications in order, over method, session and canonical params of each.
#[derive(Debug, Clone, Default)]
pub struct Checksum(Sha256);

impl Checksum {
    /// Takes the next one; `params` as JSON.
    pub fn add(&mut self, method: &str, session: Option<&str>, params: &str) {
        let canonical = canonical(params);
        let params = canonical.as_deref().unwrap_or(params);
        for part in [method, "\t", session.unwrap_or("-"), "\t", params, "\n"] {
            self.0.update(part);
        }
    }

    /// In hexadecimal.
    #[must_use]
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

struct Made {
    random: Random,
    wanted: Wanted,
    roots: Vec<String>,
    seqs: std::collections::HashMap<String, u64>,
    running: std::collections::HashSet<String>,
    time: u64,
    count: usize,
    bytes: u64,
    hash: Sha256,
}

impl Made {
    fn put(&mut self, out: &mut dyn Write, built: &Built) -> io::Result<()> {
        let mut line = built.json.plain();
        line.push('\n');
        self.count += 1;
        self.bytes += u64::try_from(line.len()).unwrap_or(0);
        self.hash.update(&line);
        out.write_all(line.as_bytes())
    }

    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (number, root) in self.roots.clone().iter().enumerate() {
            let id = message(number, self.roots.len());
            let receipt = self.event(root, "agent/inbox/spliced", frames::inbox(&[&id], "go"));
            self.put(out, &receipt)?;
            self.put(out, &frames::status(root, "running"))?;
        }
        Ok(())
    }

    fn rest(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let (children, grandchildren) = if self.roots.len() == 1 { (7, 6) } else { (2, 2) };
        let mut below = Vec::new();
        for root in &self.roots {
            for child in 0..children {
                below.push((root.clone(), format!("{root}/{child}-5c1e8e1c-8f8f-5f0e")));
            }
        }
        for place in 0..below.len() {
            let child = below[place].1.clone();
            for grandchild in 0..grandchildren {
                below.push((child.clone(), format!("{child}/{grandchild}")));
            }
        }
        let mut live = self.roots.clone();
        let step = (self.wanted.lines / 20 / below.len()).max(1);
        let tail = below.len() + 3 * self.roots.len();
        let mut started = 0;
        while self.count + tail < self.wanted.lines || started < below.len() {
            if started < below.len() && self.count / step >= started {
                let (parent, child) = &below[started];
                self.put(out, &frames::started(parent, child))?;
                live.push(child.clone());
                started += 1;
            } else {
                let foreign = self.random.below(1000) < self.wanted.foreign_per_thousand;
                let session = if foreign { "foreign-root".to_owned() } else { self.random.of(&live).clone() };
                let built = self.one(&session);
                self.put(out, &built)?;
            }
        }
        for (parent, child) in below.iter().rev() {
            self.put(out, &frames::finished(parent, child, false, Some("leaf done")))?;
        }
        for root in self.roots.clone() {
            let said = self.said("bench done", false);
            let message = self.event(&root, "assistant/message", said);
            self.put(out, &message)?;
            let end = self.event(&root, "turn/end", frames::turn_end("completed"));
            self.put(out, &end)?;
            self.put(out, &frames::status(&root, "idle"))?;
        }
        Ok(())
    }

    fn one(&mut self, session: &str) -> Built {
        let weights: &[usize] = match self.wanted.mix {
            Mix::Small => &[10, 10, 10, 16, 14, 14, 6, 6, 4, 4, 6, 0, 0, 0],
            Mix::Real => &[18, 18, 17, 17, 6, 6, 28, 23, 13, 12, 25, 8, 9, 8],
        };
        let big = self.wanted.mix == Mix::Real;
        let step = u64::try_from(self.random.between(1, 9)).unwrap_or(1);
        let in_step = |step| ("step", Json::number(step));
        let turn = ("turn", Json::number(1));
        match self.random.weighted(weights) {
            place @ 0..=1 => {
                let kind = if place == 0 { "step/start" } else { "step/end" };
                self.event(session, kind, Json::Object(vec![turn, in_step(step)]))
            }
            2 => {
                let data = vec![
                    ("sessionId", Json::text(session)),
                    ("sessionFormatVersion", Json::number(4)),
                    ("throughSeq", Json::number(step)),
                ];
                self.event(session, "session-log-deepseek/delivery-accepted", Json::Object(data))
            }
            3 => {
                let text = self.words(if big { 40 } else { 10 });
                let said = self.said(&text, big);
                self.event(session, "assistant/message", said)
            }
            4 => {
                let arguments = Json::Object(vec![
                    ("description", Json::text(&self.words(3))),
                    ("command", Json::text(&self.words(6))),
                ]);
                let data = vec![
                    turn,
                    in_step(1),
                    ("callId", self.id("call")),
                    ("name", Json::text("bash")),
                    ("arguments", Json::text(&arguments.plain())),
                ];
                self.event(session, "tool/call", Json::Object(data))
            }
            5 => {
                let call = self.id("call");
                let message = Json::Object(vec![
                    ("role", Json::text("tool")),
                    ("source", Json::Object(vec![("kind", Json::text("tool")), ("callId", call.clone())])),
                    ("toolCallId", call),
                    ("content", Json::List(vec![frames::text_block(&self.words(12))])),
                    ("isError", Json::Raw("false".to_owned())),
                    ("id", self.id("result")),
                ]);
                self.event(session, "tool/result", Json::Object(vec![turn, in_step(1), ("message", message)]))
            }
            6 => {
                let id = format!("inbox-{}", self.count);
                let text = self.words(8);
                self.event(session, "agent/inbox/spliced", frames::inbox(&[&id], &text))
            }
            7 => {
                let text = self.words(if big { 90 } else { 20 });
                let data = vec![
                    ("content", Json::List(vec![frames::text_block(&text)])),
                    ("source", Json::Object(vec![("kind", Json::text("user"))])),
                    ("role", Json::text("user")),
                    ("id", self.id("user")),
                ];
                self.event(session, "user/message", Json::Object(data))
            }
            8 => self.event(session, "turn/start", Json::Object(vec![("turn", Json::number(2))])),
            9 => self.event(session, "turn/end", frames::turn_end("completed")),
            // The root must not rest before the end.
            10 if self.roots.iter().any(|root| root == session) => {
                self.event(session, "step/start", Json::Object(vec![turn, in_step(1)]))
            }
            10 => {
                let rests = !self.running.insert(session.to_owned());
                if rests {
                    self.running.remove(session);
                }
                frames::status(session, if rests { "idle" } else { "running" })
            }
            11 => {
                let message = Json::Object(vec![
                    ("role", Json::text("system")),
                    ("content", Json::List(vec![frames::text_block(&self.words(450))])),
                ]);
                self.event(
                    session,
                    "system/message",
                    Json::Object(vec![turn, in_step(1), ("message", message)]),
                )
            }
            12 => {
                let tools = (0..16).map(|_| Json::text(&"{{tool schema}}".repeat(80))).collect();
                let header =
                    Json::Object(vec![("model", Json::text("a-model")), ("tools", Json::List(tools))]);
                let data = vec![("header", header), ("reason", Json::text("initial"))];
                self.event(session, "request/header", Json::Object(data))
            }
            _ => {
                let data = vec![("model", Json::text("a-model")), ("contextWindow", Json::number(1_000_000))];
                self.event(session, "request/context", Json::Object(data))
            }
        }
    }

    /// The data of a message; a big one brings the pieces it came in.
    fn said(&mut self, text: &str, big: bool) -> Json {
        let id = format!("c9f0f895-fb98-5b91-99f1-{:012}", self.count);
        let mut data = frames::assistant(vec![frames::text_block(text)], &id);
        if let (true, Json::Object(members)) = (big, &mut data) {
            let pieces: Vec<Json> = text.split_inclusive(' ').map(Json::text).collect();
            let pauses = pieces.iter().map(|_| Json::number(1)).collect();
            let chunks = Json::Object(vec![
                ("type", Json::text("text-chunks")),
                ("dt", Json::List(pauses)),
                ("texts", Json::List(pieces)),
            ]);
            members.push(("stream", Json::List(vec![chunks])));
        }
        data
    }

    fn id(&self, of: &str) -> Json {
        Json::Text(format!("{of}-45c48cce-2e2d-5fbd-b4d1-{:012}", self.count))
    }

    fn words(&mut self, count: usize) -> String {
        const WORDS: &[&str] = &["alpha ", "beta ", "gamma ", "delta ", "epsilon ", "über ", "zeta\n"];
        (0..count).map(|_| self.random.pick(WORDS)).collect()
    }

    fn event(&mut self, session: &str, kind: &str, data: Json) -> Built {
        self.time += u64::try_from(self.random.below(4)).unwrap_or(0);
        let seq = self.seqs.entry(session.to_owned()).or_insert(0);
        *seq += 1;
        let event = Json::Object(vec![
            ("type", Json::text(kind)),
            ("seq", Json::number(*seq)),
            ("time", Json::number(1_796_048_659_923 + self.time)),
            ("data", data),
            ("surfaceOp", Json::text("append")),
        ]);
        frames::event_of(session, event, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_same_in_every_run() {
        let wanted = Wanted { lines: 2_000, mix: Mix::Small, roots: 1, foreign_per_thousand: 0 };
        let (mut head, mut rest) = (Vec::new(), Vec::new());
        let written = write(wanted, &mut head, &mut rest).unwrap();
        assert_eq!(written.lines, 2_000);
        assert_eq!(written.bytes, u64::try_from(head.len() + rest.len()).unwrap());
        let again = write(wanted, &mut Vec::new(), &mut Vec::new()).unwrap();
        assert_eq!(written, again);
        let mean = written.bytes / 2_000;
        assert!((250..450).contains(&mean), "{mean}");
    }
}
