//! What of a runtime's words may be stored: nothing withheld (W10), nothing longer than is kept.
//!
//! [`record`](super::record) is the only way to the store, and it sends everything through here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use offspring_process::REDACTED;
use offspring_protocol::{
    Event, MessageId, RawEvent, Text, ToolCallId, event::Custom, id::MAX_STORED_ID_BYTES, rewrite_texts,
};
use offspring_sessions::{Answer, RunError};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use crate::command::withheld::Withheld;

/// The longest output or input of a tool, the largest data of an event without a kind of ours, and the longest prompt
/// or error, that the log keeps.
pub(super) const KEPT_BYTES: usize = 64 << 10;
/// The longest name of a tool, of an event, or of an error.
pub(super) const NAME_BYTES: usize = 256;
/// Ids that had to be replaced and are remembered, and the longest of them.
const KNOWN_IDS: usize = 4_096;
const KNOWN_ID_BYTES: usize = 4 << 10;

/// Takes out what is withheld, then cuts what is too long: the other way round a piece of a secret could be left at a
/// cut.
#[derive(Debug)]
pub(super) struct Clean {
    withheld: Withheld,
    max_text_bytes: usize,
    ids: Arc<Ids>,
}

/// What stands for the ids that cannot be stored as they are. In memory only: it knows what is withheld.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<HashMap<String, String>>);

impl Clean {
    pub(super) fn new(withheld: Withheld, max_text_bytes: u64, ids: Arc<Ids>) -> Self {
        Self { withheld, max_text_bytes: usize::try_from(max_text_bytes).unwrap_or(usize::MAX), ids }
    }

    /// Bytes of text that are kept of a run.
    pub(super) const fn max_text_bytes(&self) -> usize {
        self.max_text_bytes
    }

    /// An event of a run. Its text, if it is one, is not cut yet.
    pub(super) fn event(&self, mut event: Event) -> Event {
        match &mut event {
            // Beside its id there are only numbers in it.
            Event::Usage(report) => {
                let id = MessageId::new(self.id(report.message_id.as_str()));
                report.message_id = id.unwrap_or_else(|_| report.message_id.clone());
                return event;
            }
            // Before they are made alike.
            Event::ToolCallStart(call) => call.tool_call_id = self.tool_call_id(&call.tool_call_id),
            Event::ToolCallComplete(call) => call.tool_call_id = self.tool_call_id(&call.tool_call_id),
            _ => {}
        }
        match self.redacted(event) {
            Event::ToolCallStart(mut call) => {
                call.tool_name = cut(call.tool_name, NAME_BYTES);
                call.input = call.input.map(kept);
                Event::ToolCallStart(call)
            }
            Event::ToolCallComplete(mut call) => {
                call.tool_name = cut(call.tool_name, NAME_BYTES);
                call.output = cut(call.output, KEPT_BYTES);
                Event::ToolCallComplete(call)
            }
            Event::Custom(Custom { name, data }) => {
                Event::Custom(Custom { name: cut(name, NAME_BYTES), data: kept(data) })
            }
            event => event,
        }
    }

    /// Every text in it, whatever it is and wherever it comes from.
    fn redacted(&self, event: Event) -> Event {
        if self.withheld.is_empty() {
            return event;
        }
        let raw = RawEvent::from(&event);
        let hide = |Text { text, .. }: Text<'_>| {
            let shown = self.withheld.text(text);
            (shown != text).then_some(shown)
        };
        let Some(new) = rewrite_texts(raw.data().get(), hide) else { return event };
        let data = RawValue::from_string(new).unwrap_or_default();
        let new = Event::parse(raw.kind(), &data);
        new.unwrap_or_else(|_| Event::Other(RawEvent::new(raw.kind().to_owned(), data)))
    }

    /// How a run ended.
    pub(super) fn result(&self, result: Result<Answer, RunError>) -> Result<Answer, RunError> {
        match result {
            Ok(Answer { text, message }) => {
                Ok(Answer { text: self.text(&text, self.max_text_bytes), message })
            }
            Err(RunError { message, code, interrupted, partial }) => Err(RunError {
                // It quotes lines, which were cut before we saw them.
                message: cut(self.withheld.quoting(&message), KEPT_BYTES),
                code: self.text(&code, NAME_BYTES).into(),
                interrupted,
                partial: self.text(&partial, self.max_text_bytes),
            }),
        }
    }

    /// What a run was asked, or what else is said of it.
    pub(super) fn shown(&self, text: &str) -> String {
        self.text(text, KEPT_BYTES)
    }

    fn text(&self, text: &str, max_bytes: usize) -> String {
        cut(self.withheld.text(text), max_bytes)
    }

    /// An id as it can be stored: itself, or what stands for it from now on (T1, W10).
    pub(super) fn id(&self, id: &str) -> String {
        let shown = self.withheld.text(id);
        if shown == id && id.len() <= MAX_STORED_ID_BYTES && !id.contains('\0') {
            return shown;
        }
        let mut known = self.ids.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(id) {
            return known.clone();
        }
        let mut random = [0; 8];
        // Without randomness two ids may become one, and nothing is told of either.
        let _ = getrandom::fill(&mut random);
        let begin = shown[..shown.floor_char_boundary(NAME_BYTES)].replace('\0', "");
        let new = format!("{begin}~{:016x}", u64::from_ne_bytes(random));
        if known.len() >= KNOWN_IDS {
            known.clear();
        }
        if id.len() <= KNOWN_ID_BYTES {
            known.insert(id.to_owned(), new.clone());
        }
        new
    }

    fn tool_call_id(&self, id: &ToolCallId) -> ToolCallId {
        ToolCallId::new(self.id(id.as_str())).unwrap_or_else(|_| id.clone())
    }
}

impl Ids {
    /// The id that this stands for.
    ///
    /// # Errors
    /// When it is not known any more.
    pub(super) fn given(&self, shown: &str) -> Result<String, RunError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = known.iter().find(|(_, new)| *new == shown).map(|(id, _)| id.clone());
        match given {
            None if shown.contains(REDACTED) => Err(RunError::failed(
                "unknown_session",
                "the runtime's id of this session holds a value that is withheld, and is not known any more",
            )),
            given => Ok(given.unwrap_or_else(|| shown.to_owned())),
        }
    }
}

/// JSON, or how much of it is left out.
fn kept(data: Box<RawValue>) -> Box<RawValue> {
    match data.get().len() {
        0..=KEPT_BYTES => data,
        bytes => to_raw_value(&json!({ "left_out_bytes": bytes })).unwrap_or_default(),
    }
}

/// A text, or its begin and how much of it is left out.
fn cut(mut text: String, max_bytes: usize) -> String {
    let end = text.floor_char_boundary(max_bytes);
    if end < text.len() {
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("… ({left_out} bytes left out)"));
    }
    text
}

#[cfg(test)]
mod tests;
