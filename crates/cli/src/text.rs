//! Text for a terminal: harmless, short, readable.

use std::{borrow::Cow, io, io::IsTerminal, io::Write, process::ExitCode, time::Duration};

use offspring_protocol::{RunState, Timestamp};
use serde::Serialize;

use crate::{
    charset,
    failure::Failure,
    paint::{self, Painted},
};

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

/// The same for text of several lines; tabs stay.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\t').map(plain_pieces).collect::<Vec<_>>().join("\t")
}

fn plain_pieces(text: &str) -> String {
    text.split('\n').map(|line| plain(line.strip_suffix('\r').unwrap_or(line))).collect::<Vec<_>>().join("\n")
}

/// A number and what it counts.
pub(crate) fn counted(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// `12 B`, `4.5 KiB`, `1.2 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1_024 && unit + 1 < UNITS.len() {
        (whole, rest, unit) = (whole / 1_024, whole % 1_024, unit + 1);
    }
    let unit_name = UNITS[unit];
    if unit == 0 || whole >= 100 {
        format!("{whole} {unit_name}")
    } else {
        format!("{whole}.{} {unit_name}", rest * 10 / 1_024)
    }
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
    let [utf8, ascii] = match state {
        None => ["·", "."],
        Some(RunState::Pending) => ["…", "~"],
        Some(RunState::Running) => ["▶", ">"],
        Some(RunState::Ended(Completed)) => ["✓", "+"],
        Some(RunState::Ended(Failed)) => ["✗", "x"],
        Some(RunState::Ended(Cancelled)) => ["⊘", "/"],
        Some(RunState::Ended(Interrupted)) => ["!", "!"],
    };
    if charset::is_utf8() { utf8 } else { ascii }
}

/// The word for a state; a session without a run has none.
pub(crate) fn word(state: Option<RunState>) -> &'static str {
    state.map_or("idle", RunState::as_str)
}

/// An agent's text for stdout: as it is for a pipe, which loses nothing, and harmless for a terminal (W11).
pub(crate) fn for_stdout(text: &str) -> Cow<'_, str> {
    harmless(text, io::stdout().is_terminal())
}

/// The same for stderr.
pub(crate) fn for_stderr(text: &str) -> Cow<'_, str> {
    harmless(text, io::stderr().is_terminal())
}

fn harmless(text: &str, on_terminal: bool) -> Cow<'_, str> {
    if on_terminal { charset::shown(Cow::Owned(plain_lines(text))) } else { Cow::Borrowed(text) }
}

/// The same for a line of JSON, which loses nothing either way: what could steer a terminal stands only in strings, and can be
/// written by its number there.
pub(crate) fn json_line<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let line = serde_json::to_string(value)? + "\n";
    Ok(if io::stdout().is_terminal() { by_number(&line) } else { line })
}

pub(crate) fn by_number(json: &str) -> String {
    let numbers = |c: char| -> String {
        c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    let shown = json.chars().map(|c| match c {
        '\n' => "\n".to_owned(),
        c if plain(c.encode_utf8(&mut [0; 4])) == "\u{fffd}" && c != '\u{fffd}' => numbers(c),
        c if !c.is_ascii() && !charset::is_utf8() => numbers(c),
        c => c.to_string(),
    });
    shown.collect()
}

/// Writes to stdout. A reader that has gone away is no error: `| head` ends us quietly.
pub(crate) fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| not_written(&error))
}

/// Writes a line of JSON to stdout; to a pipe as it is made, so that a long text in it is not held twice.
pub(crate) fn out_json<T: Serialize>(value: &T) -> io::Result<()> {
    if io::stdout().is_terminal() {
        return out(&json_line(value).map_err(io::Error::other)?);
    }
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut stdout, value)
        .map_err(io::Error::from)
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
        .map_err(|error| not_written(&error))
}

fn not_written(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("stdout cannot be written: {error}"))
}

/// Writes a line to stderr. When nobody reads it any more there is nobody to be told so.
pub(crate) fn tell(line: &str) {
    let shown =
        if io::stderr().is_terminal() { charset::shown(Cow::Borrowed(line)) } else { Cow::Borrowed(line) };
    tell_as_is(&shown);
}

/// The same for a line that is harmless already and may have our own sequences in it.
pub(crate) fn tell_as_is(line: &str) {
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

/// Prints text for people and gives the exit code of a command that did what it was asked.
pub(crate) fn finish(text: &str) -> Result<ExitCode, Failure> {
    print(&for_stdout(text))
}

/// The same for text with colours.
pub(crate) fn finish_painted(text: &Painted) -> Result<ExitCode, Failure> {
    print(&text.render(paint::is_wanted(io::stdout().is_terminal()), for_stdout))
}

/// The same for programs.
pub(crate) fn finish_json<T: Serialize>(value: &T) -> Result<ExitCode, Failure> {
    written(out_json(value))
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    written(out(text))
}

fn written(written: io::Result<()>) -> Result<ExitCode, Failure> {
    match written {
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
    fn w11_json_for_a_terminal_says_the_same() {
        let json = serde_json::to_string("a\u{9b}31m\u{7f}\u{202e}€\t\u{1b}").unwrap();
        let shown = by_number(&json);
        assert!(matches!(plain(&shown), Cow::Borrowed(_)), "{shown}");
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            serde_json::from_str::<String>(&json).unwrap()
        );
        assert_eq!(plain_lines("a\tb\n\tc\u{7}"), "a\tb\n\tc\u{fffd}");
    }

    #[test]
    fn sizes_read_well() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (300 << 20, "300 MiB"),
            (u64::MAX, "16777215 TiB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
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
