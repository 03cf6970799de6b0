//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Long enough for any test, short enough that nothing is left on a machine for days.
const AT_MOST_SECONDS: u64 = 900;

pub(crate) const HELP: &str = "\
Plays a runtime that does what a script says, on stdin and stdout. For tests of clients.

Usage: offspring-fake-runtime [OPTIONS] SCRIPT
       offspring-fake-runtime [OPTIONS] --trace FILE
       offspring-fake-runtime [OPTIONS] --stream FILE

SCRIPT is a file, or the name of a script of the library or its begin (`t04`).

Options:
  --trace FILE            plays a recorded trace
  --stream FILE           answers the prompts that the file begins with and writes it at full speed
  --gates DIR             a `gate NAME` opens when a file DIR/NAME appears
  --kill-after-frames N   dies by SIGKILL after N frames
  --cut-after-bytes N     dies by SIGKILL after N bytes
  --at-most SECONDS       lives no longer than this [default: 900]
  --list                  lists the library
  --show NAME             prints a script of the library
  --help                  prints this

`--profile NAME`, `--patch FILE`, `--cwd DIR` and everything after `--` are accepted and mean nothing: clients add
them for the real runtime.

Exit codes: what the script says; 2 a script or option that cannot be used; 3 the client did what the script
does not allow, or a gate stayed closed; 4 it lived too long.

Example:
  offspring-fake-runtime --show t04
  offspring-fake-runtime t04 < requests.jsonl
";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Help,
    List,
    Show(String),
    Play(Options),
}

/// What to play.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Script(PathBuf),
    Trace(PathBuf),
    Stream(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) source: Source,
    pub(crate) gates: Option<PathBuf>,
    pub(crate) kill_after_frames: Option<u64>,
    pub(crate) cut_after_bytes: Option<u64>,
    pub(crate) at_most_seconds: u64,
}

/// Reads the command line.
pub(crate) fn read(arguments: impl Iterator<Item = OsString>) -> Result<Action, String> {
    let mut arguments = arguments;
    let mut source = None;
    let (mut gates, mut kill_after_frames, mut cut_after_bytes) = (None, None, None);
    let mut at_most_seconds = AT_MOST_SECONDS;
    while let Some(argument) = arguments.next() {
        let shown = argument.to_string_lossy().into_owned();
        // `--option=value` as well.
        let (name, glued) = match shown.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(OsString::from(value))),
            _ => (shown.clone(), None),
        };
        let mut value = |what: &str| {
            glued.clone().or_else(|| arguments.next()).ok_or(format!("{name} needs {what}; see --help"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Action::Help),
            "--list" => return Ok(Action::List),
            "--show" => return Ok(Action::Show(value("a name")?.to_string_lossy().into_owned())),
            "--trace" => put(&mut source, Source::Trace(value("a file")?.into()))?,
            "--stream" => put(&mut source, Source::Stream(value("a file")?.into()))?,
            "--gates" => gates = Some(value("a directory")?.into()),
            "--kill-after-frames" => kill_after_frames = Some(number(&name, &value("a number")?)?),
            "--cut-after-bytes" => cut_after_bytes = Some(number(&name, &value("a number")?)?),
            "--at-most" => at_most_seconds = number(&name, &value("seconds")?)?,
            "--profile" | "--patch" | "--cwd" => drop(value("a value")?),
            "--" => break,
            _ if shown.starts_with("--") => return Err(format!("there is no option {shown}; see --help")),
            _ => put(&mut source, Source::Script(argument.into()))?,
        }
    }
    let source =
        source.ok_or("name a script, `--trace FILE` or `--stream FILE`; --list names the library")?;
    Ok(Action::Play(Options { source, gates, kill_after_frames, cut_after_bytes, at_most_seconds }))
}

fn put(source: &mut Option<Source>, found: Source) -> Result<(), String> {
    match source.replace(found) {
        None => Ok(()),
        Some(_) => Err("one script, trace or stream is enough; see --help".to_owned()),
    }
}

fn number(name: &str, value: &OsStr) -> Result<u64, String> {
    let shown = value.to_string_lossy();
    shown.parse().map_err(|_| format!("{name} needs a number, not `{shown}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Action, String> {
        read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_clients_add_for_the_real_runtime_means_nothing() {
        let Ok(Action::Play(options)) =
            of("--profile sdk a.script --patch x.yml --gates=g --kill-after-frames 3 -- -x")
        else {
            unreachable!()
        };
        assert_eq!(options.source, Source::Script("a.script".into()));
        assert_eq!((options.gates, options.kill_after_frames), (Some("g".into()), Some(3)));
        assert_eq!(options.at_most_seconds, AT_MOST_SECONDS);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in ["", "a b", "a --trace t", "--trace", "--at-most x a", "--nonsense a"] {
            assert!(of(line).is_err(), "{line}");
        }
        assert_eq!(of("--help"), Ok(Action::Help));
        assert_eq!(of("--show t04"), Ok(Action::Show("t04".into())));
    }
}
