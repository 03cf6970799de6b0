//! Colours: few, and only where they are wanted.

use std::{borrow::Cow, sync::OnceLock};

use clap::ValueEnum;
use offspring_protocol::{Outcome, RunState};

use crate::variables;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal that has colours, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Also in a pipe.
    Always,
    /// Nowhere.
    Never,
}

static WHEN: OnceLock<ColorWhen> = OnceLock::new();

/// What the command line says. Said once, before anything is printed.
pub(crate) fn choose(when: ColorWhen) {
    let _ = WHEN.set(when);
}

/// Whether what is printed to a terminal, or to something else, is coloured.
pub(crate) fn is_wanted(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match WHEN.get().copied().unwrap_or_default() {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if set(variables::NO_COLOR) => false,
        ColorWhen::Auto => {
            let forced = std::env::var_os(variables::CLICOLOR_FORCE)
                .is_some_and(|value| !value.is_empty() && value != "0");
            forced || (is_terminal && !is_dumb())
        }
    }
}

/// Whether the terminal understands nothing but lines.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os(variables::TERM).is_none_or(|term| term.is_empty() || term == "dumb")
}

/// What a piece of text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    /// It went well.
    Good,
    /// It did not.
    Bad,
    /// It is at work.
    Busy,
    /// Somebody ended it.
    Stopped,
    /// Less important than the rest.
    Faint,
}

impl Style {
    /// The one of a session's state.
    pub(crate) fn of(state: Option<RunState>) -> Self {
        match state {
            None | Some(RunState::Pending) => Self::Faint,
            Some(RunState::Running) => Self::Busy,
            Some(RunState::Ended(Outcome::Completed)) => Self::Good,
            Some(RunState::Ended(Outcome::Failed)) => Self::Bad,
            Some(RunState::Ended(Outcome::Cancelled | Outcome::Interrupted)) => Self::Stopped,
        }
    }

    /// The parameter of the sequence that sets it: of the eight colours that every terminal has, which its user chose.
    const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
            Self::Busy => Some("36"),
            Self::Stopped => Some("33"),
            Self::Faint => Some("2"),
        }
    }
}

/// Text in pieces, each with its style.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Painted {
    pieces: Vec<(Style, String)>,
}

impl Painted {
    pub(crate) fn push_str(&mut self, text: &str) {
        self.paint(Style::Plain, text);
    }

    pub(crate) fn paint(&mut self, style: Style, text: &str) {
        match self.pieces.last_mut() {
            Some((last, before)) if *last == style => before.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push((style, text.to_owned())),
        }
    }

    pub(crate) fn append(&mut self, mut more: Self) {
        self.pieces.append(&mut more.pieces);
    }

    /// The text, each piece made harmless by `shown`, with sequences for its styles or without.
    pub(crate) fn render(&self, colored: bool, shown: impl Fn(&str) -> Cow<'_, str>) -> String {
        let mut text = String::new();
        for (style, piece) in &self.pieces {
            let piece = shown(piece);
            match style.parameter() {
                Some(parameter) if colored => {
                    text.push_str(&format!("\u{1b}[{parameter}m{}\u{1b}[0m", piece));
                }
                _ => text.push_str(&piece),
            }
        }
        text
    }

    /// The pieces, for whoever draws them otherwise.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Style, &str)> {
        self.pieces.iter().map(|(style, text)| (*style, text.as_str()))
    }
}

impl From<String> for Painted {
    fn from(text: String) -> Self {
        Self { pieces: vec![(Style::Plain, text)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_painted_and_nothing_else() {
        let mut text = Painted::default();
        text.push_str("├─ ");
        text.paint(Style::Good, "✓");
        text.push_str(" a");
        text.push_str("\u{1b}[31mb");
        fn harmless(text: &str) -> Cow<'_, str> {
            Cow::Owned(text.replace('\u{1b}', "\u{fffd}"))
        }
        assert_eq!(text.render(true, harmless), "├─ \u{1b}[32m✓\u{1b}[0m a\u{fffd}[31mb");
        assert_eq!(text.render(false, harmless), "├─ ✓ a\u{fffd}[31mb");
    }
}
