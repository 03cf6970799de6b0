//! The terminal while it is ours: the whole window, keys as they are typed; and as it was again, however we end.

use std::{
    io::{self, Stdout},
    mem::ManuallyDrop,
    sync::Once,
};

use ratatui::{
    Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        event::{self, Event},
        execute,
        style::force_color_output,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use tokio::sync::mpsc;

use crate::paint;

/// Keys that were typed and not yet looked at.
const TYPED: usize = 64;

/// The window.
pub(super) struct Window {
    /// Never dropped: dropped, it prints an error to a terminal that may be gone, and panics when it is.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    is_open: bool,
}

impl Window {
    /// Takes the terminal; gives what is typed in it.
    pub(super) fn open() -> io::Result<(Self, mpsc::Receiver<Event>)> {
        restore_on_panic();
        // By our own rules, which know `--color`.
        force_color_output(paint::is_wanted(true));
        enable_raw_mode()?;
        let terminal = execute!(io::stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => {
                let terminal = ManuallyDrop::new(terminal);
                Ok((Self { terminal, is_open: true }, keys()))
            }
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws a frame; what did not change is not written.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// Gives the terminal back.
    pub(super) fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            restore();
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.close();
    }
}

fn keys() -> mpsc::Receiver<Event> {
    let (typed, keys) = mpsc::channel(TYPED);
    // It waits for the next key when we end, and ends with us.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if typed.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

fn restore() {
    restore_modes();
    // When nobody reads it any more there is nothing to restore.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// What can be restored without writing anything.
pub(super) fn restore_modes() {
    let _ = disable_raw_mode();
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
