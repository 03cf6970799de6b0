//! Text for a terminal: harmless, short, readable.

use std::{borrow::Cow, io, io::Write, process::ExitCode, time::Duration};

use offspring_protocol::{RunState, Timestamp};

/// The text without what could steer a terminal (rule W11): control characters become U+FFFD, and so do
/// those that reorder a line. Tabs become spaces.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let replaced = text.chars().map(|c| match c {
        '\t' => ' ',
        c if harmful(c) => '\u{fffd}',
        c => c,
    });
    Cow::Owned(replaced.collect())
}

/// The same for text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(|line| plain(line.strip_suffix('\r').unwrap_or(line))).collect::<Vec<_>>().join("\n")
}

/// `820 ms`, `4.2 s`, `3:07`, `2:03:07`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=59 => format!("{}.{} s", seconds, duration.subsec_millis() / 100),
        60..=3_599 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60),
    }
}

/// An instant in the user's time zone.
pub(crate) fn instant(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0)
        .map(|at| {
            jiff::ZonedDateTime::new(at, jiff::tz::TimeZone::system())
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        })
        .unwrap_or_else(|_| at.0.to_string())
}

/// One character for a state.
pub(crate) fn sign(state: Option<RunState>) -> &'static str {
    use offspring_protocol::Outcome::{Cancelled, Completed, Failed, Interrupted};
    match state {
        None => "·",
        Some(RunState::Pending) => "…",
        Some(RunState::Running) => "▶",
        Some(RunState::Ended(Completed)) => "✓",
        Some(RunState::Ended(Failed)) => "✗",
        Some(RunState::Ended(Cancelled)) => "⊘",
        Some(RunState::Ended(Interrupted)) => "!",
    }
}

/// The word for a state; a session without a run has none.
pub(crate) fn word(state: Option<RunState>) -> &'static str {
    state.map_or("idle", RunState::as_str)
}

/// Writes to stdout. A reader that has gone away is no error: `| head` ends us quietly.
pub(crate) fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// Writes a line to stderr. When nobody reads it any more there is nobody to be told so.
pub(crate) fn tell(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// A word of a command line as a shell takes it.
pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// Prints a whole answer and gives the exit code of a command that did what it was asked.
pub(crate) fn finish(text: &str) -> Result<ExitCode, crate::failure::Failure> {
    match out(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w11_nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(plain("a\x1b[31mb\u{9b}c\u{202e}d\te"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d e");
        assert_eq!(plain_lines("a\r\nb\rc"), "a\nb\u{fffd}c");
        assert!(matches!(plain("日本 🎉"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        for (word, text) in [("a/b.db", "a/b.db"), ("my db", "'my db'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(shell_word(word), text);
        }
    }

    #[test]
    fn durations_read_well() {
        let cases = [(820, "820 ms"), (4_250, "4.2 s"), (187_000, "3:07"), (7_387_000, "2:03:07")];
        for (ms, text) in cases {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }
}
