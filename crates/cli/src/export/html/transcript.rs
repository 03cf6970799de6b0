//! What was said in a session, its head and its tail.

use std::collections::VecDeque;

use offspring_protocol::{Event, RunId};
use offspring_sessions::store::LogRow;

/// Something that was said.
#[derive(Debug, Clone)]
pub(super) struct Said {
    /// The class of its element: `prompt`, `answer`, `thinking`, `tool`, `stderr`, `error` or `note`.
    pub(super) class: &'static str,
    pub(super) text: String,
    run: Option<RunId>,
}

/// At most so many bytes of its beginning, and as many of its end.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) head: Vec<Said>,
    pub(super) tail: VecDeque<Said>,
    pub(super) left_out: u64,
    head_bytes: usize,
    tail_bytes: usize,
    /// Bytes that the present run has streamed: a message that repeats them is not shown again.
    streamed: usize,
}

impl Transcript {
    pub(super) fn hear(&mut self, line: &LogRow, limit: usize) {
        let Ok(event) = line.event.parse() else { return };
        let (class, text) = match event {
            Event::TextDelta(delta) => {
                self.streamed += delta.text.len();
                ("answer", delta.text)
            }
            Event::ThinkingDelta(delta) => ("thinking", delta.text),
            Event::MessageComplete(message) => {
                let streamed = std::mem::take(&mut self.streamed);
                if message.text.is_empty() || message.text.trim_end().len() <= streamed {
                    return;
                }
                ("answer", message.text)
            }
            Event::RunStarted(run) => {
                self.streamed = 0;
                ("prompt", run.prompt)
            }
            Event::RunError(error) => ("error", error.message),
            Event::Custom(custom) if custom.name == "stderr_line" => {
                ("stderr", serde_json::from_str(custom.data.get()).unwrap_or_default())
            }
            Event::ToolCallStart(_) | Event::ToolCallComplete(_) | Event::SpawnSessionStart(_) => {
                match crate::show::said(&event) {
                    Some(said) => ("tool", said),
                    None => return,
                }
            }
            other => match crate::show::said(&other) {
                Some(said) => ("note", said),
                None => return,
            },
        };
        self.add(Said { class, text, run: line.run.clone() }, limit);
    }

    fn add(&mut self, mut said: Said, limit: usize) {
        if self.tail.is_empty() {
            let room = limit.saturating_sub(self.head_bytes);
            let cut = said.text.floor_char_boundary(room.min(said.text.len()));
            let rest = said.text.split_off(cut);
            self.head_bytes += said.text.len();
            let class = said.class;
            let run = said.run.clone();
            if !said.text.is_empty() {
                match self.head.last_mut().filter(|last| continues(last, &said)) {
                    Some(last) => last.text.push_str(&said.text),
                    None => self.head.push(said),
                }
            }
            if rest.is_empty() {
                return;
            }
            said = Said { class, text: rest, run };
        }
        if said.text.len() > limit {
            let cut = said.text.ceil_char_boundary(said.text.len() - limit);
            self.left_out += cut as u64;
            said.text.drain(..cut);
        }
        self.tail_bytes += said.text.len();
        match self.tail.back_mut().filter(|last| continues(last, &said) && last.text.len() < 4 << 10) {
            Some(last) => last.text.push_str(&said.text),
            None => self.tail.push_back(said),
        }
        while self.tail_bytes > limit && self.tail.len() > 1 {
            let Some(first) = self.tail.pop_front() else { return };
            self.tail_bytes -= first.text.len();
            self.left_out += first.text.len() as u64;
        }
    }

    /// All of it, what was cut in two joined again where nothing is missing in between.
    pub(super) fn parts(self) -> (Vec<Said>, u64, Vec<Said>) {
        let Self { mut head, tail, left_out, .. } = self;
        let mut end: Vec<Said> = Vec::new();
        for said in tail {
            let to = if left_out == 0 && end.is_empty() { &mut head } else { &mut end };
            match to.last_mut().filter(|last| continues(last, &said)) {
                Some(last) => last.text.push_str(&said.text),
                None => to.push(said),
            }
        }
        (head, left_out, end)
    }
}

/// Streamed text goes on in the same element.
fn continues(last: &Said, next: &Said) -> bool {
    last.class == next.class && last.run == next.run && matches!(next.class, "answer" | "thinking")
}
