//! The transcript of one session in rows of a given width, of which a few pages are held.
//!
//! A log may be as long as it likes: rows are made from a page of it, pages beside the visible one are read before they
//! are needed, and those further away are forgotten. What is remembered of them is the number before their first event.

use std::{
    collections::{HashSet, VecDeque},
    ops::Range,
};

use offspring_protocol::{Event, RunId};
use offspring_sessions::store::LogRow;

use crate::{
    cells::characters,
    charset,
    paint::Style,
    show::said,
    text::{counted, plain},
};

/// Events of a page.
pub(super) const PAGE_EVENTS: usize = 256;
/// Bytes of text after which a page is full.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes of one event that are shown; the whole of it is in `offspring show`.
const EVENT_BYTES: usize = 1 << 20;
/// Pages that are held.
const HELD: usize = 4;
/// Columns that a tab takes.
const TAB: &str = "    ";

/// Rows of a session's transcript.
#[derive(Debug)]
pub(super) struct Transcript {
    columns: usize,
    /// Held, one after the other.
    pages: VecDeque<Page>,
    /// The page of the log that the first held one is.
    first: usize,
    /// Per page of the log, the number after which it begins.
    starts: Vec<u64>,
    /// Runs whose pieces were shown.
    streamed: HashSet<RunId>,
    top: Place,
    /// The end is shown, also when more comes.
    follows: bool,
    /// The last held page was the last of the log when it was looked for.
    is_complete: bool,
    /// There may be more since.
    is_stale: bool,
}

/// The first visible row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Of the log.
    page: usize,
    row: usize,
}

#[derive(Debug, Default)]
struct Page {
    events: usize,
    /// The number of its last event.
    last: u64,
    text: String,
    rows: Vec<Row>,
    /// The style of the line that is open, which more may come for.
    open: Option<Style>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    start: usize,
    end: usize,
    style: Style,
}

/// Whether no line is open after this event.
pub(super) fn ends_line(line: &LogRow) -> bool {
    line.event.kind() != "text_delta"
        || matches!(line.event.parse(), Ok(Event::TextDelta(delta)) if delta.text.ends_with('\n'))
}

/// What has to be read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// What comes after this number.
    After(u64),
    /// The page before the held ones: what lies after the first number, up to the second.
    Between(usize, u64, u64),
}

impl Transcript {
    /// Of a log whose pages begin after these numbers, at its end.
    pub(super) fn new(columns: usize, starts: Vec<u64>) -> Self {
        let starts = if starts.is_empty() { vec![0] } else { starts };
        let first = starts.len() - 1;
        Self {
            columns: columns.max(1),
            pages: VecDeque::new(),
            first,
            starts,
            streamed: HashSet::new(),
            top: Place { page: first, row: 0 },
            follows: true,
            is_complete: false,
            is_stale: false,
        }
    }

    /// Something was written to the store since.
    pub(super) fn look_again(&mut self) {
        self.is_stale = true;
    }

    /// The rows for so many columns; the page that is seen stays.
    pub(super) fn resize(&mut self, columns: usize) {
        let columns = columns.max(1);
        if columns == self.columns {
            return;
        }
        self.columns = columns;
        let at =
            self.page(self.top.page).and_then(|page| page.rows.get(self.top.row)).map_or(0, |row| row.start);
        for page in &mut self.pages {
            page.wrap_again(columns);
        }
        if let Some(page) = self.page(self.top.page) {
            self.top.row = page.rows.partition_point(|row| row.start <= at).saturating_sub(1);
        }
    }

    fn page(&self, page: usize) -> Option<&Page> {
        self.pages.get(page.checked_sub(self.first)?)
    }

    /// What should be read for a window of so many rows, if anything.
    pub(super) fn wanted(&self, rows: usize) -> Option<Wanted> {
        let behind = self.pages.len().saturating_sub(1) + self.first;
        if (!self.is_complete || self.is_stale) && (self.top.page + 1 >= behind || self.follows) {
            return Some(Wanted::After(self.pages.back().map_or(self.starts[self.first], |page| page.last)));
        }
        let lacks = if self.follows {
            // The window may be higher than the last page.
            self.rows_held() < rows
        } else {
            self.top.page <= self.first && self.top.row < rows
        };
        let before = self.first.checked_sub(1).filter(|_| lacks)?;
        Some(Wanted::Between(before, self.starts[before], self.starts[before + 1]))
    }

    fn rows_held(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// Takes what comes after the last held page, if anything does.
    pub(super) fn append(&mut self, lines: &[LogRow]) {
        self.is_complete = lines.is_empty();
        self.is_stale = false;
        for line in lines {
            let is_full = self.pages.back().is_none_or(Page::is_full);
            if is_full {
                if let Some(last) = self.pages.back().map(|page| page.last) {
                    let next = self.first + self.pages.len();
                    // Where it began when it was read before may be elsewhere.
                    if self.starts.get(next) != Some(&last) {
                        self.starts.truncate(next);
                        self.starts.push(last);
                    }
                }
                self.pages.push_back(Page::default());
            }
            let columns = self.columns;
            if let Some(page) = self.pages.back_mut() {
                page.push(line, columns, &mut self.streamed);
            }
        }
        while self.pages.len() > HELD && (self.follows || self.top.page > self.first + 1) {
            self.pages.pop_front();
            self.first += 1;
        }
        if self.top.page < self.first {
            self.top = Place { page: self.first, row: 0 };
        }
    }

    /// Takes the page before the held ones.
    pub(super) fn prepend(&mut self, page: usize, lines: &[LogRow]) {
        if page + 1 != self.first {
            return;
        }
        let mut made = Page::default();
        for line in lines {
            made.push(line, self.columns, &mut self.streamed);
        }
        self.pages.push_front(made);
        self.first = page;
        while !self.follows && self.pages.len() > HELD && self.top.page + 2 < self.first + self.pages.len() {
            self.pages.pop_back();
            self.is_complete = false;
        }
    }

    /// To its beginning, which has to be read.
    pub(super) fn go_to_beginning(&mut self) {
        self.follows = false;
        self.top = Place { page: 0, row: 0 };
        if self.first > 0 {
            self.pages.clear();
            self.first = 0;
            self.is_complete = false;
        }
    }

    /// To its end; `false` when that has to be looked for: reading on to it could take long.
    pub(super) fn go_to_end(&mut self) -> bool {
        self.follows = self.is_complete;
        self.is_complete
    }

    /// So many rows down, or up when negative, in a window of so many rows.
    pub(super) fn scroll(&mut self, by: isize, rows: usize) {
        if self.follows {
            self.top = self.place_at_end(rows);
        }
        let mut left = by.unsigned_abs();
        while left > 0 {
            let next = if by > 0 { self.below(self.top) } else { self.above(self.top) };
            let Some(next) = next else { break };
            self.top = next;
            left -= 1;
        }
        let end = self.place_at_end(rows);
        self.follows = by > 0 && self.top >= end && self.is_complete;
        self.top = self.top.min(end);
    }

    fn below(&self, place: Place) -> Option<Place> {
        let mut next = Place { row: place.row + 1, ..place };
        loop {
            if next.row < self.page(next.page)?.rows.len() {
                return Some(next);
            }
            next = Place { page: next.page + 1, row: 0 };
        }
    }

    fn above(&self, place: Place) -> Option<Place> {
        if let Some(row) = place.row.checked_sub(1) {
            return Some(Place { row, ..place });
        }
        let mut page = place.page;
        loop {
            page = page.checked_sub(1)?;
            if let Some(row) = self.page(page)?.rows.len().checked_sub(1) {
                return Some(Place { page, row });
            }
        }
    }

    /// Where a window of so many rows begins that ends with the last row held.
    fn place_at_end(&self, rows: usize) -> Place {
        let mut left = rows;
        for (held, page) in self.pages.iter().enumerate().rev() {
            match page.rows.len().checked_sub(left) {
                Some(row) => return Place { page: self.first + held, row },
                None => left -= page.rows.len(),
            }
        }
        Place { page: self.first, row: 0 }
    }

    /// The rows of a window of so many.
    pub(super) fn visible(&self, rows: usize) -> Vec<(Style, &str)> {
        let top = if self.follows { self.place_at_end(rows) } else { self.top };
        let mut seen = Vec::with_capacity(rows);
        let mut place =
            Some(top).filter(|top| self.page(top.page).is_some_and(|page| top.row < page.rows.len()));
        if place.is_none() {
            place = self.below(top);
        }
        while let (Some(at), true) = (place, seen.len() < rows) {
            if let Some(page) = self.page(at.page) {
                let row = page.rows[at.row];
                seen.push((row.style, &page.text[row.start..row.end]));
            }
            place = self.below(at);
        }
        seen
    }

    /// Whether there is something below what is seen.
    pub(super) fn has_more(&self, rows: usize) -> bool {
        !self.follows && (self.top < self.place_at_end(rows) || !self.is_complete)
    }
}

impl Page {
    /// Where a line ends if it can be: a line that goes on in the next page is two rows.
    fn is_full(&self) -> bool {
        let times = if self.open.is_some() { 2 } else { 1 };
        self.events >= times * PAGE_EVENTS || self.text.len() >= times * PAGE_BYTES
    }

    fn push(&mut self, line: &LogRow, columns: usize, streamed: &mut HashSet<RunId>) {
        self.events += 1;
        self.last = line.seq;
        let event = line.event.parse();
        let (text, is_piece) = match &event {
            Ok(Event::TextDelta(delta)) => {
                streamed.extend(line.run.clone());
                (Some(delta.text.clone()), true)
            }
            // Its pieces were shown.
            Ok(Event::MessageComplete(_)) if line.run.as_ref().is_some_and(|run| streamed.contains(run)) => {
                (None, false)
            }
            Ok(event) => (said(event), false),
            Err(error) => (Some(format!("? {error}")), false),
        };
        let Some(mut text) = text else { return };
        let cut = text.len().saturating_sub(EVENT_BYTES);
        if cut > 0 {
            text.truncate(text.floor_char_boundary(EVENT_BYTES));
            text.push_str(&format!(
                "\n{} {}",
                charset::glyphs().cut,
                counted(cut, "byte more", "bytes more")
            ));
        }
        if !is_piece {
            if self.open.is_some() {
                self.end_line();
            }
            if line.late {
                text.push_str(" (late)");
            }
            text.push('\n');
        }
        self.write(&text, if is_piece { Style::Plain } else { style_of(&event) }, columns);
    }

    /// Adds text whose last line stays open unless it ends.
    fn write(&mut self, text: &str, style: Style, columns: usize) {
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if !line.is_empty() {
                let harmless = charset::shown(plain(&line.replace('\t', TAB))).into_owned();
                self.extend_line(&harmless, style, columns);
            }
            if lines.peek().is_some() {
                if self.open.is_none() {
                    let end = self.text.len();
                    self.rows.push(Row { start: end, end, style });
                }
                self.end_line();
            }
        }
    }

    /// More for the line that is open, or for a new one. Only its last row can change: rows are filled from the left.
    fn extend_line(&mut self, text: &str, style: Style, columns: usize) {
        let (start, style) = match (self.open, self.rows.last()) {
            (Some(style), Some(row)) => {
                let start = row.start;
                self.rows.pop();
                (start, style)
            }
            _ => (self.text.len(), style),
        };
        self.open = Some(style);
        self.text.push_str(text);
        let end = self.text.len();
        wrap(&self.text, start..end, style, columns, &mut self.rows);
    }

    fn end_line(&mut self) {
        self.open = None;
        self.text.push('\n');
    }

    fn wrap_again(&mut self, columns: usize) {
        let mut lines: Vec<Row> = Vec::with_capacity(self.rows.len());
        for row in self.rows.drain(..) {
            match lines.last_mut() {
                // Rows of one line follow each other; between two lines stands the end of the first.
                Some(line) if line.end == row.start && row.start > line.start => line.end = row.end,
                _ => lines.push(row),
            }
        }
        for line in lines {
            wrap(&self.text, line.start..line.end, line.style, columns, &mut self.rows);
        }
    }
}

/// The rows of a line.
fn wrap(text: &str, line: Range<usize>, style: Style, columns: usize, rows: &mut Vec<Row>) {
    let mut start = line.start;
    if line.len() <= columns {
        rows.push(Row { start, end: line.end, style });
        return;
    }
    let mut used = 0;
    for (character, wide) in characters(&text[line.clone()]) {
        // Where it stands in the text, of which it is a part.
        let at = character.as_ptr().addr() - text.as_ptr().addr();
        if used + wide > columns && used > 0 {
            rows.push(Row { start, end: at, style });
            (start, used) = (at, 0);
        }
        used += wide;
    }
    rows.push(Row { start, end: line.end, style });
}

fn style_of<E>(event: &Result<Event, E>) -> Style {
    match event {
        Ok(Event::RunStarted(_)) => Style::Busy,
        Ok(Event::RunError(_)) | Err(_) => Style::Bad,
        Ok(Event::StreamComplete(_)) => Style::Stopped,
        Ok(Event::MessageComplete(_)) => Style::Plain,
        Ok(_) => Style::Faint,
    }
}

#[cfg(test)]
mod tests;
