//! Listens to a log and says where a text was said.
//!
//! What an agent streams comes in pieces that end anywhere. Of each session the line that is not complete yet is
//! kept, up to [`MAX_LINE`], so that nothing between two pieces is missed and memory does not grow with the log.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use offspring_protocol::{Event, RunId, SessionId, Timestamp};
use offspring_sessions::store::LogRow;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// A text that is looked for has at most so many bytes.
const MAX_WANTED: usize = 4 << 10;
/// Of a line that is longer, the beginning is searched before its end has come.
const MAX_LINE: usize = 16 << 10;
/// Characters of a line that are shown before a match, and after it.
const SHOWN: [usize; 2] = [60, 140];
/// Hits of a run that are remembered, so that a message that repeats its pieces is not found twice.
const REMEMBERED: usize = 4_096;

/// What is looked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    text: Regex,
    /// Bytes that a match has at most: what is kept of a line that was searched in part.
    longest: usize,
}

impl Wanted {
    pub(crate) fn new(text: &str, case_sensitive: bool) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the text is empty: say what is looked for".to_owned());
        }
        if text.contains(['\n', '\r']) {
            return Err(
                "the text has a line break, and is looked for within a line: search for one of its lines"
                    .to_owned(),
            );
        }
        if text.len() > MAX_WANTED {
            return Err(format!("the text has {} bytes; at most {MAX_WANTED} can be looked for", text.len()));
        }
        let built = RegexBuilder::new(&regex::escape(text)).case_insensitive(!case_sensitive).build();
        let text_found = built.map_err(|_| "the text is too long to be looked for".to_owned())?;
        // A letter in the other case may have more bytes, and at most four.
        Ok(Self { text: text_found, longest: text.chars().count() * 4 })
    }

    /// The lines of a text that have it, each once, and where in them.
    fn lines<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, Range<usize>)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.text.find_at(text, from)?.range();
            let start = text[..found.start].rfind('\n').map_or(0, |before| before + 1);
            let end = text[found.end..].find('\n').map_or(text.len(), |length| found.end + length);
            from = end;
            let line = text[start..end].trim_end_matches('\r');
            Some((line, found.start - start..found.end - start))
        })
    }
}

/// As what something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SaidAs {
    Prompt,
    Answer,
    Thinking,
    Tool,
    Stderr,
    Error,
    Note,
}

impl SaidAs {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Answer => "answer",
            Self::Thinking => "thinking",
            Self::Tool => "tool",
            Self::Stderr => "stderr",
            Self::Error => "error",
            Self::Note => "note",
        }
    }

    /// What stands before it in a transcript.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Prompt => "> ",
            Self::Answer => "",
            Self::Thinking => "(thinking) ",
            Self::Tool => "~ ",
            Self::Stderr => "2> ",
            Self::Error => "error: ",
            Self::Note => "* ",
        }
    }
}

/// A line with the text in it, or the part of it around the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) session: SessionId,
    /// The event with which the line was found.
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
    pub(crate) said_as: SaidAs,
    line: String,
    found: Range<usize>,
}

impl Hit {
    /// What stands before the text, the text as it stands there, what stands behind it.
    pub(crate) fn parts(&self) -> (&str, &str, &str) {
        let (before, rest) = self.line.split_at(self.found.start);
        let (found, after) = rest.split_at(self.found.len());
        (before, found, after)
    }
}

/// Whose words they are, and where they stand.
#[derive(Debug, Clone)]
struct Place {
    session: SessionId,
    run: Option<RunId>,
    seq: u64,
    at: Timestamp,
    said_as: SaidAs,
}

impl Place {
    fn of(line: &LogRow, said_as: SaidAs) -> Self {
        Self { session: line.session.clone(), run: line.run.clone(), seq: line.seq, at: line.at, said_as }
    }

    fn hit(&self, line: &str, found: Range<usize>, is_cut: bool) -> Hit {
        let before = &line[..found.start];
        let start = before.char_indices().rev().nth(SHOWN[0] - 1).map_or(0, |(start, _)| start);
        let after = &line[found.end..];
        let end = after.char_indices().nth(SHOWN[1]).map_or(line.len(), |(end, _)| found.end + end);
        let head = if start > 0 || is_cut { "…" } else { "" };
        let tail = if end < line.len() { "…" } else { "" };
        let at = head.len() + found.start - start;
        Hit {
            session: self.session.clone(),
            seq: self.seq,
            at: self.at,
            said_as: self.said_as,
            line: format!("{head}{}{tail}", &line[start..end]),
            found: at..at + found.len(),
        }
    }
}

/// The line of a session that is not complete yet.
#[derive(Debug)]
struct Open {
    place: Place,
    text: String,
    /// It was found already: the rest of the line says nothing new.
    is_done: bool,
    /// Something before the kept text is missing.
    is_cut: bool,
}

/// Hears the log of one tree.
pub(crate) struct Listener<'a, F> {
    wanted: &'a Wanted,
    take: F,
    /// By session, text and reasoning apart.
    open: HashMap<(SessionId, SaidAs), Open>,
    /// Lines that were found in what a run streamed.
    streamed: HashMap<RunId, HashSet<u64>>,
    hash: RandomState,
}

impl<'a, F: FnMut(Hit)> Listener<'a, F> {
    /// Gives each line that it finds to `take`, in the order of the log.
    pub(crate) fn new(wanted: &'a Wanted, take: F) -> Self {
        Self { wanted, take, open: HashMap::new(), streamed: HashMap::new(), hash: RandomState::new() }
    }

    /// The next line of the log.
    pub(crate) fn hear(&mut self, line: &LogRow) {
        // What this version cannot read it cannot search either.
        let Ok(event) = line.event.parse() else { return };
        match &event {
            Event::TextDelta(delta) => return self.piece(&Place::of(line, SaidAs::Answer), &delta.text),
            Event::ThinkingDelta(delta) => {
                return self.piece(&Place::of(line, SaidAs::Thinking), &delta.text);
            }
            // Between these an agent goes on with its sentence.
            Event::Usage(_) | Event::ToolCallProgress(_) | Event::Custom(_) | Event::StatusChanged(_) => {}
            _ => self.complete(&line.session),
        }
        let mut say = |said_as, text: &str| self.whole(&Place::of(line, said_as), text);
        match &event {
            Event::RunStarted(run) => say(SaidAs::Prompt, &run.prompt),
            Event::MessageComplete(message) => say(SaidAs::Answer, &message.text),
            Event::ToolCallStart(call) => {
                say(SaidAs::Tool, &call.title);
                if let Some(input) = &call.input {
                    strings(input.get(), &mut |text| say(SaidAs::Tool, text));
                }
            }
            Event::ToolCallComplete(call) => say(SaidAs::Tool, &call.output),
            Event::RunError(error) => say(SaidAs::Error, &error.message),
            Event::Custom(custom) => {
                let said_as = if custom.name == "stderr_line" { SaidAs::Stderr } else { SaidAs::Note };
                strings(custom.data.get(), &mut |text| say(said_as, text));
            }
            Event::PermissionRequested(request) => say(SaidAs::Note, &request.title),
            Event::Other(raw) => strings(raw.data().get(), &mut |text| say(SaidAs::Note, text)),
            _ => {}
        }
        if let (Some(_), Some(run)) = (event.terminal(), &line.run) {
            self.streamed.remove(run);
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(mut self) {
        let sessions: Vec<SessionId> = self.open.keys().map(|(session, _)| session.clone()).collect();
        sessions.iter().for_each(|session| self.complete(session));
    }

    /// A text that is whole.
    fn whole(&mut self, place: &Place, text: &str) {
        let known = place.run.as_ref().and_then(|run| self.streamed.get(run));
        for (line, found) in self.wanted.lines(text) {
            let hit = place.hit(line, found, false);
            // A message that repeats what was streamed.
            let is_known = place.said_as == SaidAs::Answer
                && known.is_some_and(|known| known.contains(&self.hash.hash_one(&hit.line)));
            if !is_known {
                (self.take)(hit);
            }
        }
    }

    /// A piece of a text, which ends anywhere.
    fn piece(&mut self, place: &Place, piece: &str) {
        let key = (place.session.clone(), place.said_as);
        if self.open.get(&key).is_some_and(|open| open.place.run != place.run) {
            self.complete(&place.session);
        }
        let open = self.open.entry(key).or_insert_with(|| Open {
            place: place.clone(),
            text: String::new(),
            is_done: false,
            is_cut: false,
        });
        open.place = place.clone();
        let mut hits = Vec::new();
        let mut rest = piece;
        if let Some(end) = piece.rfind('\n') {
            // The line that is open ends with the first one of the piece; the others are whole.
            let first = piece.find('\n').unwrap_or(end);
            open.text.push_str(&piece[..first]);
            hits.extend(open.close(self.wanted));
            let whole = self.wanted.lines(&piece[first..end]);
            hits.extend(whole.map(|(line, found)| place.hit(line, found, false)));
            rest = &piece[end + 1..];
        }
        open.text.push_str(rest);
        if open.text.len() > MAX_LINE {
            hits.extend(open.cut(self.wanted));
        }
        self.found(place.run.as_ref(), hits);
    }

    /// Whatever a session has not ended with a line break ends here.
    fn complete(&mut self, session: &SessionId) {
        for said_as in [SaidAs::Answer, SaidAs::Thinking] {
            if let Some(mut open) = self.open.remove(&(session.clone(), said_as)) {
                let hit = open.close(self.wanted);
                self.found(open.place.run.as_ref(), hit);
            }
        }
    }

    fn found(&mut self, run: Option<&RunId>, hits: impl IntoIterator<Item = Hit>) {
        for hit in hits {
            if let Some(run) = run.filter(|_| hit.said_as == SaidAs::Answer) {
                let known = self.streamed.entry(run.clone()).or_default();
                if known.len() < REMEMBERED {
                    known.insert(self.hash.hash_one(&hit.line));
                }
            }
            (self.take)(hit);
        }
    }
}

impl Open {
    /// The line is complete: searches it, and begins the next one.
    fn close(&mut self, wanted: &Wanted) -> Option<Hit> {
        let line = std::mem::take(&mut self.text);
        let is_cut = std::mem::take(&mut self.is_cut);
        if std::mem::take(&mut self.is_done) {
            return None;
        }
        let found = wanted.text.find(&line)?.range();
        Some(self.place.hit(line.trim_end_matches('\r'), found, is_cut))
    }

    /// Searches what there is of a long line, and keeps no more of it than a match may still begin in.
    fn cut(&mut self, wanted: &Wanted) -> Option<Hit> {
        let found = wanted.text.find(&self.text).filter(|_| !self.is_done).map(|found| found.range());
        let hit = found.map(|found| self.place.hit(&self.text, found, self.is_cut));
        self.is_done |= hit.is_some();
        self.is_cut = true;
        let keep = wanted.longest + SHOWN[0] * 4;
        let start = self.text.floor_char_boundary(self.text.len().saturating_sub(keep));
        self.text.drain(..start);
        hit
    }
}

/// Every text in a piece of JSON, keys left out.
fn strings(json: &str, take: &mut impl FnMut(&str)) {
    fn all(value: &Value, take: &mut impl FnMut(&str)) {
        match value {
            Value::String(text) => take(text),
            Value::Array(items) => items.iter().for_each(|item| all(item, take)),
            Value::Object(items) => items.values().for_each(|item| all(item, take)),
            _ => {}
        }
    }
    if let Ok(value) = serde_json::from_str(json) {
        all(&value, take);
    }
}

#[cfg(test)]
mod tests;
