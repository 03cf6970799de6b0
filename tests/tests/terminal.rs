//! The terminal of the tests itself: that it shows what a person would see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::process::Command;

use offspring_tests::terminal::{Cursor, Terminal};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn wide_and_combining_characters_take_the_columns_they_take() {
    let mut terminal = Terminal::start(&shell("printf '日本e\\314\\201|\\r\\n12345678'"), 4, 8);
    assert_eq!(terminal.wait(), Some(0));
    assert_eq!(terminal.screen(), ["日本e\u{301}|", "12345678", "", ""]);
    assert_eq!(terminal.cursor(), Cursor { row: 1, column: 7, visible: true });
    // 日 does not fit into the last column.
    let mut terminal = Terminal::start(&shell("printf '1234567日'"), 4, 8);
    assert_eq!(terminal.wait(), Some(0));
    assert_eq!(terminal.screen(), ["1234567", "日", "", ""]);
}

#[test]
fn a_narrower_window_wraps_its_rows_again_and_tells_the_program() {
    let terminal =
        Terminal::start(&shell("trap 'stty size' WINCH; echo 123456789; while read -r x; do :; done"), 5, 10);
    terminal.until_text("123456789");
    terminal.resize(5, 6);
    // The shell hears the signal when its `read` has been given a line.
    terminal.keys("\r");
    terminal.until_text("5 6");
    // One row more above the cursor, which stays where it is: the first went out of the window.
    assert_eq!(terminal.scrolled()[..2], ["123456", "789"]);
    assert_eq!(terminal.screen()[0], "789");
}

#[test]
fn keys_become_signals_and_the_terminal_outlives_the_program() {
    let mut terminal =
        Terminal::start(&shell("printf '\\033[?25l\\033[?1049h'; stty raw -echo; exec cat"), 5, 20);
    terminal.until_screen("raw", |_| (!terminal.is_cooked() && terminal.is_alternate()).then_some(()));
    assert!(!terminal.cursor().visible);
    terminal.send(rustix::process::Signal::TERM);
    assert_eq!(terminal.wait(), Some(143));
    assert!(terminal.is_alternate() && !terminal.is_cooked() && !terminal.cursor().visible);

    let mut terminal = Terminal::start(&Command::new("cat"), 5, 20);
    assert!(terminal.is_cooked());
    terminal.keys("on\r");
    terminal.until_text("on\non");
    terminal.keys("\x03");
    assert_eq!(terminal.wait(), Some(130));
    assert_eq!(terminal.shown(), "on\r\non\r\n^C");
}

#[test]
fn a_window_that_is_closed_hangs_up() {
    let mut terminal = Terminal::start_as_leader(&shell("trap 'exit 7' HUP; echo on; read -r x"), 5, 20);
    terminal.until_text("on");
    terminal.close_window();
    assert_eq!(terminal.wait(), Some(7));
}
