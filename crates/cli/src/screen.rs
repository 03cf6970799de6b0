//! Rows on stderr that are redrawn in place, and leave nothing behind.
//!
//! The cursor waits, unseen, at the beginning of the first row. A terminal that wraps rows again because its window
//! became narrower moves the cursor with the text it stands on: from there everything is ours, however many rows it
//! takes by then, and is erased without counting.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The size of a terminal that does not tell its own.
const UNTOLD: Size = Size { rows: 24, columns: 80 };
/// Rows of the window that are left alone.
const MARGIN: usize = 2;

/// All of a frame becomes visible at once, where the terminal can do that; the cursor is hidden; what is too wide is
/// cut by the terminal and not wrapped: its window may have become narrower a moment ago.
const BEGIN: &str = "\u{1b}[?2026h\u{1b}[?25l\u{1b}[?7l";
/// The end of a frame.
const END: &str = "\u{1b}[?7h\u{1b}[?2026l";
/// Erases from the cursor on.
const ERASE: &str = "\r\u{1b}[J";
/// The cursor is seen again.
const SHOW: &str = "\u{1b}[?25h";

/// Of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Size {
    /// Of the window behind stderr.
    pub(crate) fn of_stderr() -> Self {
        match rustix::termios::tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                Self { rows: size.ws_row.into(), columns: size.ws_col.into() }
            }
            _ => UNTOLD,
        }
    }

    /// Rows that may be drawn.
    pub(crate) fn height(self) -> usize {
        self.rows.saturating_sub(MARGIN).max(1)
    }

    /// Columns that may be drawn: the last one is left alone, because terminals differ in what comes after it.
    pub(crate) fn width(self) -> usize {
        self.columns.saturating_sub(1).max(1)
    }
}

/// The rows.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    rows: Vec<String>,
    size: Option<Size>,
    closed: bool,
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows these rows, made for a window of this size, in place of those before.
    pub(crate) fn show(&self, rows: Vec<String>, size: Size) {
        self.lock().show(rows, size);
    }

    /// Says something above the rows.
    pub(crate) fn say(&self, line: &str) {
        let mut drawn = self.lock();
        let mut text = String::new();
        if !drawn.rows.is_empty() {
            text.push_str(ERASE);
        }
        text.push_str(line);
        text.push_str("\r\n");
        write(&text);
        let (rows, size) = (std::mem::take(&mut drawn.rows), drawn.size.take());
        if let (Some(size), false) = (size, drawn.closed) {
            drawn.show(rows, size);
        }
    }

    /// Leaves the terminal as it was. Nothing is drawn after that.
    pub(crate) fn close(&self) {
        let mut drawn = self.lock();
        if !drawn.closed && drawn.size.is_some() {
            write(&format!("{ERASE}{SHOW}"));
        }
        *drawn = Drawn { closed: true, ..Drawn::default() };
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drawn {
    fn show(&mut self, rows: Vec<String>, size: Size) {
        if self.closed || (self.size == Some(size) && self.rows == rows) {
            return;
        }
        write(&self.frame(&rows, size));
        (self.rows, self.size) = (rows, Some(size));
    }

    fn frame(&self, rows: &[String], size: Size) -> String {
        let mut text = String::from(BEGIN);
        let again = self.size != Some(size);
        if again {
            text.push_str(ERASE);
        }
        for (place, row) in rows.iter().enumerate() {
            let is_last = place + 1 == rows.len();
            let shrinks = is_last && self.rows.len() > rows.len();
            // Always the first: what is typed meanwhile shows there.
            if again || place == 0 || shrinks || self.rows.get(place) != Some(row) {
                text.push_str(row);
                text.push_str(if shrinks { "\u{1b}[J" } else { "\u{1b}[K" });
            }
            if !is_last {
                text.push_str("\r\n");
            }
        }
        if rows.len() > 1 {
            text.push_str(&format!("\u{1b}[{}A", rows.len() - 1));
        }
        text.push('\r');
        text.push_str(END);
        text
    }
}

/// In one write. When nobody reads it any more there is nobody to be told so.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { rows: 24, columns: 80 };

    fn rows(rows: &[&str]) -> Vec<String> {
        rows.iter().map(|row| (*row).to_owned()).collect()
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut drawn = Drawn { rows: rows(&["a", "b", "c"]), size: Some(SIZE), closed: false };
        assert_eq!(
            drawn.frame(&rows(&["a", "b", "x"]), SIZE),
            format!("{BEGIN}a\u{1b}[K\r\n\r\nx\u{1b}[K\u{1b}[2A\r{END}")
        );
        assert_eq!(
            drawn.frame(&rows(&["a", "b"]), SIZE),
            format!("{BEGIN}a\u{1b}[K\r\nb\u{1b}[J\u{1b}[1A\r{END}"),
            "what was below goes"
        );
        drawn.size = Some(Size { columns: 40, ..SIZE });
        assert!(drawn.frame(&rows(&["a"]), SIZE).starts_with(&format!("{BEGIN}{ERASE}a")));
    }
}
