//! Fetching with retries, and telling a network that is not there from everything else that can go wrong.
//!
//! Only the first may lead to a skip; the second is a failure.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::workspace::shown;

/// What became of a fetch that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fetched<T> {
    /// It is there.
    Ready(T),
    /// Every attempt ended because no connection could be made or kept; the text is the last attempt's reason.
    Unreachable(String),
}

/// How one attempt went wrong.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// No connection: trying again may help.
    Connection(String),
    /// Anything else: trying again gives the same.
    Other(anyhow::Error),
}

/// Pauses before the second, third … attempt.
const PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];

/// Tries until it works, something else than the connection fails, or the attempts are used up.
pub(crate) fn with_retries<T>(
    what: &str,
    attempt: impl FnMut() -> Result<T, AttemptError>,
) -> Result<Fetched<T>> {
    retry(what, &PAUSES, attempt)
}

fn retry<T>(
    what: &str,
    pauses: &[Duration],
    mut attempt: impl FnMut() -> Result<T, AttemptError>,
) -> Result<Fetched<T>> {
    let mut pauses = pauses.iter();
    loop {
        match attempt() {
            Ok(value) => return Ok(Fetched::Ready(value)),
            Err(AttemptError::Other(error)) => return Err(error.context(format!("fetching {what}"))),
            Err(AttemptError::Connection(reason)) => match pauses.next() {
                Some(pause) => {
                    eprintln!("   {what}: no connection ({reason}); again in {} s", pause.as_secs());
                    thread::sleep(*pause);
                }
                None => return Ok(Fetched::Unreachable(reason)),
            },
        }
    }
}

/// Runs a fetching command once and sorts its failure by what it wrote to stderr.
pub(crate) fn attempt(mut command: Command) -> Result<String, AttemptError> {
    let name = shown(&command);
    let output =
        command.output().with_context(|| format!("starting `{name}`")).map_err(AttemptError::Other)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    match connection_failure(&stderr) {
        Some(line) => Err(AttemptError::Connection(line.to_owned())),
        None => {
            let tail: Vec<&str> = stderr.trim_end().lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            Err(AttemptError::Other(anyhow::anyhow!(
                "`{name}` ended with {}:\n{}",
                output.status,
                tail.join("\n")
            )))
        }
    }
}

/// What cargo, curl, pip and npm write when the peer could not be reached or went away.
const CONNECTION_WORDS: [&str; 19] = [
    "could not connect to server",
    "couldn't connect to server",
    "failed to connect to",
    "could not resolve host",
    "couldn't resolve host",
    "could not resolve proxy",
    "connection refused",
    "connection reset",
    "connection timed out",
    "operation timed out",
    "timeout was reached",
    "network is unreachable",
    "failed to establish a new connection",
    "temporary failure in name resolution",
    "cannot connect to proxy",
    "connection aborted",
    "connection broken: incompleteread",
    "read timed out",
    "remote end closed connection",
];

/// What is wrong whatever the connection did before: it may have been lost once and found again.
const OTHER_WORDS: [&str; 1] = ["do not match the hashes"];

/// The line that says that the connection failed, if one does.
fn connection_failure(stderr: &str) -> Option<&str> {
    let all = stderr.to_lowercase();
    if OTHER_WORDS.iter().any(|words| all.contains(words)) {
        return None;
    }
    stderr.lines().map(str::trim).find(|line| {
        let line = line.to_lowercase();
        CONNECTION_WORDS.iter().any(|words| line.contains(words))
    })
}

/// The directory of this project in the user's cache.
pub(crate) fn cache_directory() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Caches"))
    } else {
        // A relative XDG path is to be ignored, says its specification.
        variable("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| variable("HOME").map(|home| home.join(".cache")))
    };
    match base {
        Some(base) => Ok(base.join("offspring-xtask")),
        None => bail!("no cache directory: neither HOME nor the platform's variable for it is set"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "    Updating crates.io index\nerror: download of config.json failed\n\nCaused by:\n  \
        [7] Could not connect to server (Failed to connect to 127.0.0.1 port 1 after 0 ms: Could not connect to server)\n";

    #[test]
    fn a_refused_connection_is_a_connection_failure() {
        assert!(connection_failure(REFUSED).is_some_and(|line| line.starts_with("[7]")));
    }

    #[test]
    fn a_wrong_checksum_is_none_even_after_a_lost_connection() {
        let lost = "WARNING: Retrying after connection broken by 'ReadTimeoutError(\"Read timed out.\")': /simple/x/\n";
        assert!(connection_failure(lost).is_some());
        let wrong =
            format!("{lost}ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n");
        assert_eq!(connection_failure(&wrong), None);
    }

    #[test]
    fn a_missing_version_or_a_failed_build_is_none() {
        assert_eq!(
            connection_failure("error: could not find `x` in registry `crates-io` with version `=9`"),
            None
        );
        assert_eq!(connection_failure("error: could not compile `x` (lib) due to 1 previous error"), None);
        assert_eq!(connection_failure("error: failed to get successful HTTP response, got 404"), None);
    }

    #[test]
    fn only_connection_failures_are_tried_again() {
        let pauses = [Duration::ZERO; 2];
        let mut attempts = 0;
        let outcome = retry("x", &pauses, || {
            attempts += 1;
            Err::<(), _>(AttemptError::Connection("refused".to_owned()))
        });
        assert_eq!(outcome.unwrap(), Fetched::Unreachable("refused".to_owned()));
        assert_eq!(attempts, 3);

        attempts = 0;
        let outcome = retry("x", &pauses, || {
            attempts += 1;
            Err::<(), _>(AttemptError::Other(anyhow::anyhow!("does not compile")))
        });
        assert!(outcome.is_err());
        assert_eq!(attempts, 1);

        attempts = 0;
        let outcome = retry("x", &pauses, || {
            attempts += 1;
            if attempts < 2 { Err(AttemptError::Connection("reset".to_owned())) } else { Ok(attempts) }
        });
        assert_eq!(outcome.unwrap(), Fetched::Ready(2));
    }
}
