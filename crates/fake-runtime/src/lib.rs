//! A conformance kit: a runtime that plays a script, to test *clients* of session trees.
//!
//! A client drives a runtime over newline-delimited JSON-RPC and has to be right about a whole tree of sessions.
//! Real runtimes behave most of the time. This one behaves as a script says: it answers late, twice or never,
//! splits bytes, writes junk, finishes a child after its parent, dies at a given byte. The client can be
//! written in any language: the program `offspring-fake-runtime` speaks on stdin and stdout as the real one does.
//!
//! | | |
//! |---|---|
//! | [`Script`] | what a runtime does: parsed from a text, or made from a recorded trace or a file of frames |
//! | [`play()`], [`Player`] | plays it over any two streams, with tokio's clock and no other |
//! | [`Gates`] | places where a play waits until a test lets it go on |
//! | [`Expectations`] | what a correct client makes of a script, so that a test can check itself |
//! | [`library`] | scripts for the rules T and W of `docs/rules.md` |
//!
//! The language is described in `docs/formats/runtime-script.md`.
//!
//! # Example
//! ```
//! use offspring_fake_runtime::Script;
//!
//! let script = Script::parse(
//!     "# A child that is still at work when its root is idle.
//!      prompt root            -> root
//!      started root a         -> root
//!      message root \"four\"    -> root
//!      turn-end root          -> root
//!      status root idle       -> root
//!      after 600s
//!      finished root a ok completed \"done\"  -> root
//!      expect turn root final \"four\" finish completed",
//! )?;
//! let expected = script.expectations();
//! let seen = expected.subscription("root").ok_or("a subscription to root")?;
//! assert_eq!(seen.last().map(|last| last.method.as_str()), Some("subagent.finished"));
//! assert_eq!(expected.turns[0].final_response.as_deref(), Some("four"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What this crate must not know
//! - No client: it says what a correct one sees and never how.
//! - No clock but tokio's, so that a test with a paused clock plays ten minutes in no time.
//! - No process: what a script does to one is asked of a [`Stage`]; only the program has one.
#![deny(missing_docs)]

mod compose;
mod expectations;
mod gates;
pub mod library;
mod play;
mod recorded;
mod script;
mod stage;
mod text;

pub use expectations::{
    Expectations, ExpectedNotification, ExpectedSubscription, ExpectedTurn, PROMPT, RequestOutcome,
    RuntimeEnd, TurnEnd,
};
pub use gates::Gates;
pub use play::{How, PlayEnd, Player, play};
pub use script::{OnSigterm, OnStdinEnd, Script, ScriptError, Signal};
pub use stage::{Aside, Stage};
