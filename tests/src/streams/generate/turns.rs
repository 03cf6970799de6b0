//! Turns: prompts, their receipts and answers in any order that a runtime could choose, and their ends.

use std::collections::HashMap;

use super::{LENGTHS, World};
use crate::streams::{
    NEXT, Operation, Step,
    frames::{self, Built},
    json::quoted,
};

/// One turn of one root.
pub(super) struct Run {
    pub(super) root: String,
    number: usize,
    tag: u32,
    message: String,
    /// At which line of the turn what happens.
    receipt_at: usize,
    reply_at: usize,
    idle_at: usize,
    received: bool,
    replied: bool,
    idle: bool,
    /// Its end was awaited, so that its subscription is gone.
    joined: bool,
    refused: bool,
}

impl Run {
    pub(super) fn is_live(&self) -> bool {
        !self.joined
    }

    /// Whether the root may become idle at present without ending the turn.
    fn may_idle(&self) -> bool {
        !self.received || self.idle
    }

    /// Whether what this session says comes into the open turn and is not of the root.
    pub(super) fn is_below(&self, session: &str, parents: &HashMap<String, String>) -> bool {
        if !self.received || self.idle || session == self.root {
            return false;
        }
        let mut at = session;
        for _ in 0..=parents.len() {
            match parents.get(at) {
                Some(parent) if *parent == self.root => return true,
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }
}

impl World {
    /// Whether no open turn ends when this session becomes idle.
    pub(super) fn may_idle(&self, session: &str) -> bool {
        self.runs.iter().all(|run| run.joined || run.root != session || run.may_idle())
    }

    /// `at_once` turns of different roots, over about this many lines.
    pub(super) fn turn(&mut self, at_once: usize, lines: usize) {
        let mut roots = self.roots.clone();
        let first = self.runs.len();
        for _ in 0..at_once {
            let root = roots.remove(self.random.below(roots.len().min(3)));
            self.begin(root, lines);
        }
        let dies_at = (self.dies && self.random.one_in(2)).then(|| self.random.below(lines));
        let start = self.frames();
        while self.runs[first..].iter().any(|run| !run.joined) {
            let line = (self.frames() - start).min(lines);
            if dies_at.is_some_and(|dies_at| dies_at <= line) && self.frames() > LENGTHS.0 {
                self.die();
                return;
            }
            for number in first..self.runs.len() {
                self.advance(number, line);
            }
            if line < lines {
                self.any_frame();
            }
        }
    }

    fn begin(&mut self, root: String, lines: usize) {
        self.operations.push(Operation::Run { root: root.clone() });
        let tag = self.await_request("session/prompt", Some(&root));
        // Mostly as the runtime does it: receipt, then the reply, then the turn.
        let receipt_at =
            if self.random.one_in(3) { self.random.below(lines / 2 + 1) } else { self.random.below(4) };
        let idle_at = if self.random.one_in(4) {
            self.random.between(receipt_at, lines)
        } else {
            self.random.between(receipt_at.max(lines - lines / 8), lines)
        };
        let reply_at = match self.random.below(8) {
            0 => 0,
            1 => self.random.between(idle_at, lines),
            2 => self.random.between(receipt_at, idle_at),
            _ => receipt_at + self.random.below(3),
        };
        let message = self.message_id();
        let run = Run {
            root,
            number: self.runs.len(),
            tag,
            message,
            receipt_at,
            reply_at,
            idle_at,
            received: false,
            replied: false,
            idle: false,
            joined: false,
            refused: false,
        };
        self.runs.push(run);
    }

    /// What is due at this line.
    fn advance(&mut self, number: usize, line: usize) {
        let run = &self.runs[number];
        if run.joined {
            return;
        }
        let root = run.root.clone();
        if !run.received && line >= run.receipt_at {
            let message = run.message.clone();
            let seq = self.seq(&root);
            let receipt = if self.random.one_in(4) {
                let data = frames::inbox(&["another", &message, "and-another"], "go");
                frames::event(&root, "agent/inbox/spliced", seq, data)
            } else {
                frames::receipt(&root, seq, &message)
            };
            self.needed(&receipt);
            self.runs[number].received = true;
            self.push(frames::status(&root, "running").plain());
        }
        if !self.runs[number].replied && line >= self.runs[number].reply_at {
            self.reply(number);
        }
        let run = &self.runs[number];
        if run.received && !run.idle && line >= run.idle_at {
            if !run.refused {
                self.last_words(&root);
            }
            self.needed(&frames::status(&root, "idle"));
            self.runs[number].idle = true;
        }
        let run = &self.runs[number];
        if run.replied && (run.idle || run.refused) {
            self.join(number);
        }
    }

    fn reply(&mut self, number: usize) {
        let (tag, message) = (self.runs[number].tag, self.runs[number].message.clone());
        self.runs[number].replied = true;
        match self.random.below(60) {
            0 => {
                self.answer(tag, r#""error":{"code":-32603,"message":"SDK server is shutting down"}"#);
                self.runs[number].refused = true;
            }
            1 => {
                self.answer(tag, r#""result":{"messageId":7}"#);
                self.runs[number].refused = true;
            }
            _ => self.answer(tag, &format!(r#""result":{{"messageId":{}}}"#, quoted(&message))),
        }
    }

    /// What the root says before it rests, and often a descendant after it.
    fn last_words(&mut self, root: &str) {
        if self.random.percent(80) {
            let message = self.assistant_message(root);
            self.spelled(&message);
        }
        if self.random.percent(90) {
            let end = self.turn_end(root);
            self.spelled(&end);
        }
        if self.random.percent(60) {
            let below: Vec<String> = self
                .sessions
                .iter()
                .filter(|id| *id != root && self.path(id).0.contains(&root))
                .cloned()
                .collect();
            if !below.is_empty() {
                let session = self.random.of(&below).clone();
                let message = self.assistant_message(&session);
                self.spelled(&message);
                let end = self.turn_end(&session);
                self.spelled(&end);
            }
        }
    }

    /// Waits for the end of a turn; nothing is written until the client has its result.
    fn join(&mut self, number: usize) {
        self.runs[number].joined = true;
        self.operations.push(Operation::JoinRun { run: self.runs[number].number });
        self.operations.push(Operation::Next);
        let tag = self.await_request(NEXT, None);
        self.answer(tag, r#""result":{}"#);
    }

    /// The runtime goes away in the middle.
    fn die(&mut self) {
        self.dead = true;
        self.steps.push(Step::Exit);
        for run in &mut self.runs {
            if !run.joined {
                run.joined = true;
                self.operations.push(Operation::JoinRun { run: run.number });
            }
        }
    }

    fn needed(&mut self, built: &Built) {
        let mut frame = if self.random.one_in(8) { built.odd(&mut self.random) } else { built.plain() };
        frame.needed = true;
        self.push(frame);
    }
}
