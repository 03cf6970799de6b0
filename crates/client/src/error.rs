//! What can go wrong between a client and its runtime.

use std::{fmt, sync::Arc, time::Duration};

use offspring_process::{ExitKind, ProgramError, SpawnError, StderrTail};
use offspring_protocol::{SessionId, rpc::ErrorObject};
use offspring_transport::Diagnostics as WireDiagnostics;

use crate::{peer_texts::PeerError, result::TurnResult};

/// How many lines of stderr the text of an error quotes.
const QUOTED_LINES: usize = 5;

/// Why a call, a turn or a start failed. The texts complete "failed to …" where they can.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The command's program was not found.
    #[error("failed to start the runtime: {0}")]
    Program(Arc<ProgramError>),
    /// The command's program could not be started.
    #[error("failed to start the runtime: {0}")]
    Spawn(Arc<SpawnError>),
    /// No connection to a runtime elsewhere.
    #[error("failed to connect to {url}: {reason}")]
    Connect {
        /// Where to.
        url: String,
        /// What stood in the way.
        reason: String,
    },
    /// The runtime said on its stderr that something it was told to load is not there. It runs on without it.
    #[error(
        "the runtime did not activate everything it was told to load; it said: {said}\nmend the profile or the patch, or allow it with `allow_inactive_plugins`"
    )]
    NotActivated {
        /// What it said, control characters escaped.
        said: String,
    },
    /// A wait reached its bound (W8).
    #[error("failed to get an answer to {method} within {after:?}: the runtime {state}")]
    Timeout {
        /// What was waited for: a method, or `the root's idle`.
        method: String,
        /// The bound.
        after: Duration,
        /// How things stand with the runtime.
        state: Box<RuntimeState>,
    },
    /// The runtime is gone (W4).
    #[error("the runtime is gone: {0}")]
    RuntimeGone(Arc<Gone>),
    /// The client is being closed.
    #[error("failed to call {method}: the client is closed")]
    Closed {
        /// What was called.
        method: String,
    },
    /// The runtime answered with an error.
    #[error("the runtime refused {method}: {} (code {})", escaped(&error.message), error.code)]
    Refused {
        /// What was called.
        method: String,
        /// What the runtime said. Untrusted text (W11).
        error: ErrorObject,
        /// What is known of it.
        kind: PeerError,
    },
    /// The runtime answered with something that is no answer to this.
    #[error("failed to read the answer to {method}: {reason}")]
    BadAnswer {
        /// What was called.
        method: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A request could not be written, and the runtime is still there.
    #[error("failed to write {method} to the runtime: {reason}")]
    Write {
        /// What was called.
        method: String,
        /// What the stream said.
        reason: String,
    },
    /// As many requests are without an answer as may be ([`Limits::open_requests`](crate::Limits)).
    #[error("failed to call {method}: {limit} requests are without an answer already")]
    TooManyRequests {
        /// What was called.
        method: String,
        /// The limit.
        limit: usize,
    },
    /// The prompt was answered and its durable receipt did not come (T13).
    #[error("the prompt was answered and no receipt of it came within {after:?}: the runtime {state}")]
    MissingReceipt {
        /// The bound.
        after: Duration,
        /// How things stand with the runtime.
        state: Box<RuntimeState>,
    },
    /// The tree did not come to rest: the root is idle, something below it is said to be at work, and nothing
    /// was heard of it for as long as may be.
    #[error(
        "the root is idle and nothing was heard of its tree for {after:?}, but these are still at work: {}",
        list(open)
    )]
    TreeOpen {
        /// The bound.
        after: Duration,
        /// What is at work.
        open: Vec<SessionId>,
        /// How things stand with the runtime.
        state: Box<RuntimeState>,
    },
    /// A turn kept more than it may (T11).
    #[error(
        "the turn of {session} has more than {limit_bytes} bytes of notifications; raise `turn_bytes`, keep less, or stream it"
    )]
    TurnTooLarge {
        /// Whose turn.
        session: SessionId,
        /// The limit.
        limit_bytes: usize,
    },
    /// The stream of a turn was read too slowly (T11).
    #[error("failed to keep up with the turn: {missed} notifications were not queued")]
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// Why a turn did not end as it should, with what there is of it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct TurnError {
    /// Why.
    pub reason: ClientError,
    /// What had come until then; `end` is `None`, and every run that was open is interrupted or open.
    pub partial: Box<TurnResult>,
}

/// A runtime that is no more (W4).
#[derive(Debug, Clone)]
pub struct Gone {
    /// How it was noticed.
    pub how: GoneHow,
    /// How the process ended, where it is a process and has.
    pub exit: Option<ExitKind>,
    /// The end of its stderr. Untrusted bytes (W11).
    pub stderr_tail: Arc<StderrTail>,
    /// What it wrote that was no message.
    pub junk: WireDiagnostics,
}

/// How it was noticed that a runtime is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoneHow {
    /// We closed it, or dropped the last of its clients.
    Closed,
    /// Its output ended.
    EndOfOutput,
    /// Its output could not be read.
    ReadFailed(String),
}

/// How things stand with a runtime, for an error about something else.
#[derive(Debug, Clone)]
pub struct RuntimeState {
    /// How the process ended, if it has.
    pub exit: Option<ExitKind>,
    /// The end of its stderr. Untrusted bytes (W11).
    pub stderr_tail: Arc<StderrTail>,
    /// What it wrote that was no message.
    pub junk: WireDiagnostics,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            GoneHow::Closed => f.write_str("it was closed")?,
            GoneHow::EndOfOutput => f.write_str("its output ended")?,
            GoneHow::ReadFailed(reason) => write!(f, "its output could not be read ({reason})")?,
        }
        match self.exit {
            Some(exit) => write!(f, ", it {}", exit_text(exit))?,
            None if self.how == GoneHow::EndOfOutput => f.write_str(", its process did not end with it")?,
            None => {}
        }
        write_diagnostics(f, &self.junk, &self.stderr_tail)
    }
}

impl fmt::Display for RuntimeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Some(exit) => f.write_str(&exit_text(exit))?,
            None => f.write_str("is connected")?,
        }
        write_diagnostics(f, &self.junk, &self.stderr_tail)
    }
}

fn exit_text(exit: ExitKind) -> String {
    match exit {
        ExitKind::Code(code) => format!("exited with code {code}"),
        ExitKind::Signal(signal) => format!("was ended by signal {signal}"),
        ExitKind::Unknown => "ended in an unknown way".to_owned(),
    }
}

fn write_diagnostics(f: &mut fmt::Formatter<'_>, junk: &WireDiagnostics, stderr: &StderrTail) -> fmt::Result {
    if junk.counts().total() > 0 {
        write!(f, "; of its output {junk}")?;
    }
    let text = stderr.text();
    // The frames of a stack trace would leave no room for what it is about; the tail itself has them.
    let says_something = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("at ");
    let lines: Vec<&str> = text.lines().filter(says_something).collect();
    if lines.is_empty() {
        return Ok(());
    }
    f.write_str("\nthe end of its stderr:")?;
    for line in &lines[lines.len().saturating_sub(QUOTED_LINES)..] {
        write!(f, "\n  {}", escaped(line))?;
    }
    Ok(())
}

/// Text of a stranger, every control character escaped (W11), at most 500 characters of it.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == 500 {
            shown.push('…');
            break;
        }
        match character {
            // What turns the direction of a line is a control too.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.extend(character.escape_unicode());
            }
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

fn list(sessions: &[SessionId]) -> String {
    if sessions.is_empty() {
        return "none that it told of; `session/wait` is not answered".to_owned();
    }
    let shown: Vec<String> = sessions.iter().take(10).map(|id| escaped(id.as_str())).collect();
    let more = sessions.len().saturating_sub(10);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w11_what_a_runtime_says_reaches_no_terminal_as_a_control() {
        assert_eq!(escaped("a\u{1b}[31mb\n\u{202e}c"), "a\\u{1b}[31mb\\n\\u{202e}c");
        assert_eq!(escaped(&"x".repeat(501)).chars().count(), 501);
    }

    #[test]
    fn t13_the_sessions_at_work_are_named_but_not_all_of_a_thousand() {
        let open: Vec<SessionId> = (0..12).map(|n| SessionId::new(format!("s{n}")).unwrap()).collect();
        assert_eq!(list(&open), "s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more");
    }
}
