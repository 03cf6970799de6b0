//! Where things stand in the window.

use ratatui::{
    Frame,
    buffer::Buffer,
    style::{Color, Modifier, Style as Look},
};

use super::{App, Asks};
use crate::{
    cells::{characters, fit, width},
    charset::{self, glyphs},
    paint::{self, Style},
    text::plain,
};

/// Columns from which on the transcript stands beside the tree, and not below it.
const BESIDE: usize = 72;
/// The keys, the most needed ones first: a narrow window shows as many as it can.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "help"),
    ("jk", "walk"),
    ("enter", "fold"),
    ("PgUp/PgDn", "read"),
    ("g/G", "begin/end"),
    ("c", "cancel"),
    ("hl", "up/down the tree"),
];
const HELP: [(&str, &str); 11] = [
    ("j, down", "the next session"),
    ("k, up", "the one before"),
    ("Home, End", "the first, the last"),
    ("enter", "fold what is below, unfold it"),
    ("h, left", "fold, then to the parent"),
    ("l, right", "unfold, then to the first child"),
    ("PgDn, space", "read on (J: a line)"),
    ("PgUp, b", "read back (K: a line)"),
    ("g, G", "to the beginning, to the end"),
    ("c", "cancel the session and all below it"),
    ("q, Esc", "quit; the run goes on"),
];

/// A part of the window.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: usize,
    top: usize,
    columns: usize,
    rows: usize,
}

impl App {
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let size = frame.area();
        let (columns, rows) = (usize::from(size.width), usize::from(size.height));
        let buffer = frame.buffer_mut();
        let body = rows.saturating_sub(2);
        self.title(buffer, columns);
        let (tree, read) = if columns >= BESIDE {
            let left = (columns * 2 / 5).clamp(24, 60);
            for row in 0..body {
                put(buffer, left, row + 1, columns, glyphs().wall, look(Style::Faint));
            }
            (
                Area { left: 0, top: 1, columns: left, rows: body },
                Area { left: left + 2, top: 1, columns: columns.saturating_sub(left + 2), rows: body },
            )
        } else {
            let above = (body * 2 / 5).max(1);
            (
                Area { left: 0, top: 1, columns, rows: above },
                Area { left: 0, top: 1 + above, columns, rows: body.saturating_sub(above) },
            )
        };
        self.tree(buffer, tree);
        self.transcript(buffer, read);
        if self.asks == Asks::Help {
            help(buffer, Area { left: 0, top: 1, columns, rows: body });
        }
        self.footer(buffer, columns, rows.saturating_sub(1));
    }

    fn title(&self, buffer: &mut Buffer, columns: usize) {
        let name = plain(self.top.agent_name.as_str());
        let text = format!("{name}: {}", self.sessions.summary());
        put(buffer, 0, 0, columns, &text, Look::new().add_modifier(Modifier::BOLD));
    }

    fn tree(&mut self, buffer: &mut Buffer, area: Area) {
        for (row, (line, is_selected)) in
            self.sessions.visible(area.rows, area.columns).into_iter().enumerate()
        {
            let mut left = area.left;
            let end = area.left + area.columns;
            let marked = |style: Style| {
                if is_selected { Look::new().add_modifier(Modifier::REVERSED) } else { look(style) }
            };
            for (style, text) in line.pieces() {
                left = put(buffer, left, area.top + row, end, text, marked(style));
            }
            if is_selected {
                let rest = " ".repeat(end.saturating_sub(left));
                put(buffer, left, area.top + row, end, &rest, marked(Style::Plain));
            }
        }
    }

    fn transcript(&mut self, buffer: &mut Buffer, area: Area) {
        let end = area.left + area.columns;
        let rows = area.rows.saturating_sub(1);
        self.area = (rows.max(1), area.columns.max(1));
        let Some(record) = self.sessions.selected() else { return };
        let name = plain(record.data.agent_name.as_str());
        let mut head = format!("{0}{0} {name} {1} ", glyphs().floor, record.data.id);
        if let Some(title) = record.data.title.as_deref() {
            head.push_str(&format!("{} ", plain(title)));
        }
        let head = fit(&head, area.columns, glyphs().cut).into_owned();
        let rest = glyphs().floor.repeat(area.columns.saturating_sub(width(&head)));
        let left = put(buffer, area.left, area.top, end, &head, look(Style::Plain));
        put(buffer, left, area.top, end, &rest, look(Style::Faint));
        let Some((_, Some(transcript))) = &self.shown else {
            put(buffer, area.left, area.top + 1, end, glyphs().cut, look(Style::Faint));
            return;
        };
        for (row, (style, text)) in transcript.visible(rows).into_iter().enumerate() {
            put(buffer, area.left, area.top + 1 + row, end, text, look(style));
        }
        if transcript.has_more(rows) {
            let more = format!(" {} more ", glyphs().cut);
            put(buffer, end.saturating_sub(width(&more)), area.top, end, &more, look(Style::Busy));
        }
    }

    fn footer(&self, buffer: &mut Buffer, columns: usize, row: usize) {
        let bold = Look::new().add_modifier(Modifier::BOLD);
        match (&self.asks, &self.note) {
            (Asks::Cancel(_, name), _) => {
                let text = format!("cancel {name} and all below it? y: yes, any other key: no");
                put(buffer, 0, row, columns, &text, bold.patch(look(Style::Bad)));
            }
            (_, Some(note)) => {
                put(buffer, 0, row, columns, note, bold);
            }
            _ => {
                let mut left = 0;
                for (key, what) in KEYS {
                    let wide = width(key) + 1 + width(what);
                    if left + wide > columns {
                        break;
                    }
                    left = put(buffer, left, row, columns, key, bold);
                    left = put(buffer, left, row, columns, &format!(" {what}  "), look(Style::Faint));
                }
            }
        }
    }
}

fn help(buffer: &mut Buffer, area: Area) {
    for row in 0..area.rows {
        let (key, what) = HELP.get(row).copied().unwrap_or_default();
        let text = format!("{key:<12} {what}");
        let text = format!("{text:<0$}", area.columns);
        put(buffer, area.left, area.top + row, area.left + area.columns, &text, look(Style::Plain));
    }
}

/// Puts text into a row, up to a column; gives the column after it.
fn put(buffer: &mut Buffer, left: usize, row: usize, end: usize, text: &str, look: Look) -> usize {
    let (Ok(y), mut at) = (u16::try_from(row), left) else { return left };
    let text = charset::shown(text.into());
    let text = fit(&text, end.saturating_sub(left), glyphs().cut);
    for (character, columns) in characters(&text) {
        let Ok(x) = u16::try_from(at) else { break };
        if let Some(cell) = buffer.cell_mut((x, y)) {
            cell.set_symbol(character).set_style(look);
        }
        for beside in 1..columns {
            if let Some(cell) = u16::try_from(at + beside).ok().and_then(|x| buffer.cell_mut((x, y))) {
                cell.reset();
            }
        }
        at += columns;
    }
    at
}

/// A style in colours, where they are wanted.
fn look(style: Style) -> Look {
    let look = Look::new();
    if !paint::is_wanted(true) {
        return look;
    }
    match style {
        Style::Plain => look,
        Style::Good => look.fg(Color::Green),
        Style::Bad => look.fg(Color::Red),
        Style::Busy => look.fg(Color::Cyan),
        Style::Stopped => look.fg(Color::Yellow),
        Style::Faint => look.add_modifier(Modifier::DIM),
    }
}
