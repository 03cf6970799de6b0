//! Streams: what a runtime writes to its client, frame by frame, and what the client does meanwhile.
//!
//! A [`Stream`] is played by a program ([`player`]) to any client: to the Python SDK through a driver of ours, and to
//! `offspring-client`. Both do the same operations in the same order, and the player goes on only when the client has
//! reached the next of them, so that what each side sees does not depend on the speed of threads.

pub mod bench;
pub mod canonical;
pub mod frames;
pub mod generate;
pub mod json;
pub mod player;
pub mod random;
pub mod trace;
pub mod wanted;

use std::fmt::Write as _;

/// The request that a client makes to learn that everything written so far has been read: the answer is behind it.
pub const NEXT: &str = "stream/next";

/// What a runtime writes and what its client does.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// Where it comes from: a seed, or the file of a trace.
    pub name: String,
    /// What the player does, in order.
    pub steps: Vec<Step>,
    /// What the client does, in order.
    pub operations: Vec<Operation>,
    /// What occurs in it; counted while it is made.
    pub features: Features,
}

/// One step of the player.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Wait for a request, and remember it under a number.
    Await {
        /// Its number within the stream.
        tag: u32,
        /// Its method.
        method: String,
        /// The `sessionId` of its params, if it must have a certain one.
        session: Option<String>,
    },
    /// Write a line.
    Frame(Frame),
    /// Answer the request of this number.
    Answer {
        /// The number.
        tag: u32,
        /// `"result":…` or `"error":…`, as it is written.
        members: String,
    },
    /// End without a word.
    Exit,
}

/// A line, without its line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its bytes, which need not be a frame at all.
    pub line: Vec<u8>,
    /// Whether an operation never ends without it, so that a smaller stream has to keep it.
    pub needed: bool,
    /// What it is for whoever routes it.
    pub meaning: Meaning,
}

/// What a line is, as far as attribution goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A valid start: two different ids that are not empty.
    Started {
        /// Who started.
        parent: String,
        /// What was started.
        child: String,
    },
    /// A finish with two ids.
    Finished {
        /// The parent it carries.
        parent: String,
        /// What finished.
        child: String,
    },
    /// Any other notification with a session.
    Session {
        /// The session.
        session: String,
        /// Whether it is a message of the assistant or the end of a turn, which enter a result when it is the root's.
        says: bool,
    },
    /// Whatever names no session, or is no notification at all.
    Nothing,
    /// Something that two clients take differently on purpose.
    Wild(wanted::Wanted),
}

/// One operation of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Subscribe to a session's tree; the subscription lives until the end of the stream or its [`Self::Unwatch`].
    Watch {
        /// The session.
        root: String,
    },
    /// Drop a subscription; what it got until then counts.
    Unwatch {
        /// Which, counted from 0 in the order of [`Self::Watch`].
        watch: usize,
    },
    /// Begin a turn.
    Run {
        /// Its session.
        root: String,
    },
    /// Begin another request.
    Request {
        /// Its method.
        method: String,
        /// Its params, as JSON.
        params: Option<String>,
    },
    /// Ask for the next part of the stream and wait for the answer, which follows it.
    Next,
    /// Wait for the end of a turn.
    JoinRun {
        /// Which, counted from 0 in the order of [`Self::Run`].
        run: usize,
    },
    /// Wait for the answer to a request.
    JoinRequest {
        /// Which, counted from 0 in the order of [`Self::Request`].
        request: usize,
    },
}

/// What occurs in a stream, each with how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Lines that the runtime writes by itself.
    pub frames: u32,
    /// Starts that move a known child to another parent (T3).
    pub reused_ids: u32,
    /// Finishes whose carried parent reaches other live subscriptions than the child's present one would (T4).
    pub late_finishes: u32,
    /// Notifications whose path upwards comes back to where it was (T7).
    pub on_a_cycle: u32,
    /// Notifications of a session that no live subscription reaches.
    pub foreign: u32,
    /// Lines that were written while at least three subscriptions were live.
    pub under_three_subscriptions: u32,
    /// Messages and ends of turns of a descendant, after the last word of the root in an open turn (T12).
    pub last_words_of_a_descendant: u32,
    /// Lines that two clients take differently on purpose.
    pub wild: u32,
}

impl Stream {
    /// How many lines there are.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Frame(_))).count()
    }

    /// What [`player::play`] reads: a line per step, its first byte saying which.
    #[must_use]
    pub fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        for step in &self.steps {
            match step {
                Step::Await { tag, method, session } => {
                    let session = session.as_ref().map_or_else(|| "null".to_owned(), |id| json::quoted(id));
                    script.extend_from_slice(format!("<{tag} {method} {session}").as_bytes());
                }
                Step::Frame(frame) => {
                    script.push(b'=');
                    script.extend_from_slice(&frame.line);
                }
                Step::Answer { tag, members } => {
                    script.extend_from_slice(format!(">{tag} {members}").as_bytes());
                }
                Step::Exit => script.push(b'!'),
            }
            script.push(b'\n');
        }
        script
    }

    /// The operations as one line of JSON, for the driver of another client.
    #[must_use]
    pub fn plan(&self) -> String {
        let mut plan = String::from("[");
        for operation in &self.operations {
            if plan.len() > 1 {
                plan.push(',');
            }
            let written = match operation {
                Operation::Watch { root } => write!(plan, r#"["watch",{}]"#, json::quoted(root)),
                Operation::Unwatch { watch } => write!(plan, r#"["unwatch",{watch}]"#),
                Operation::Run { root } => write!(plan, r#"["run",{}]"#, json::quoted(root)),
                Operation::Request { method, params } => write!(
                    plan,
                    r#"["request",{},{}]"#,
                    json::quoted(method),
                    params.as_deref().unwrap_or("null")
                ),
                Operation::Next => write!(plan, r#"["next"]"#),
                Operation::JoinRun { run } => write!(plan, r#"["join run",{run}]"#),
                Operation::JoinRequest { request } => write!(plan, r#"["join request",{request}]"#),
            };
            written.unwrap();
        }
        plan.push(']');
        plan
    }

    /// The same stream without the lines at these places (counted over lines only).
    #[must_use]
    pub fn without(&self, left_out: &dyn Fn(usize, &Frame) -> bool) -> Self {
        let mut place = 0;
        let mut stream = self.clone();
        stream.steps.retain(|step| {
            let Step::Frame(frame) = step else { return true };
            place += 1;
            !left_out(place - 1, frame)
        });
        stream
    }
}
