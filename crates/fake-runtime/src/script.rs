//! A script: what a runtime does, line by line.

mod error;
mod expect;
mod line;
mod parse;
mod settings;
mod words;

use std::sync::Arc;
use std::time::Duration;

pub use error::ScriptError;
pub(crate) use settings::{AnswersWait, OnShutdown, Settings};
pub use settings::{OnSigterm, OnStdinEnd};

use crate::expectations::Expectations;
use crate::recorded;
use crate::text::Text;

/// What a runtime does and what a correct client makes of it.
///
/// Made from the text of a script, from a recorded trace, or from a file of frames; played by
/// [`play`](crate::play()) or a [`Player`](crate::Player). The language is described in
/// `docs/formats/runtime-script.md`.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) about: String,
    pub(crate) rules: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) body: Vec<Step>,
    pub(crate) expects: Vec<Expect>,
}

impl Script {
    /// Reads the text of a script.
    ///
    /// # Errors
    /// [`ScriptError`], with the line, what is wrong in it, and what to write instead.
    ///
    /// ```
    /// use offspring_fake_runtime::Script;
    ///
    /// let error = Script::parse("prompt root\nstrated root a\n").err().ok_or("it has a wrong line")?;
    /// assert_eq!(error.line(), 2);
    /// assert_eq!(error.to_string(), "line 2: there is no statement `strated`; did you mean `started`?");
    /// # Ok::<(), &str>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        parse::script(text)
    }

    /// Reads a trace: one JSON object per line, `{"dir":"c2s"|"s2c"|…,"msg":…}`, as a recorder between a client
    /// and a runtime wrote it. See `docs/formats/runtime-script.md` for how it is played.
    ///
    /// # Errors
    /// [`ScriptError`] for a line that is no such object.
    pub fn from_trace(jsonl: &str) -> Result<Self, ScriptError> {
        recorded::trace(jsonl)
    }

    /// Takes a file of frames, to be written at full speed after its prompts have come. It begins with one
    /// receipt (`agent/inbox/spliced`) and one status for each prompt that it waits for.
    ///
    /// # Errors
    /// [`ScriptError`] when it does not begin with a receipt.
    pub fn from_stream(frames: Vec<u8>) -> Result<Self, ScriptError> {
        recorded::stream(frames)
    }

    /// The comment at its head: what it shows.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The rules it is about, as its `rule` lines name them.
    #[must_use]
    pub fn rules(&self) -> &[String] {
        &self.rules
    }

    /// What a correct client makes of it, as its `->` and `expect` say.
    ///
    /// Found by going through the script without a client: ids of messages, numbers and times of events are the
    /// same in every play. A session that only the client names (`prompt $who`) goes by that name (`who`).
    #[must_use]
    pub fn expectations(&self) -> Expectations {
        Expectations::of(self)
    }

    /// What it does on SIGTERM. Whoever plays it as a process sees to that; [`play`](crate::play()) has no signals.
    #[must_use]
    pub fn on_sigterm(&self) -> OnSigterm {
        self.settings.sigterm
    }

    /// What it does at the end of its input.
    #[must_use]
    pub fn on_stdin_end(&self) -> OnStdinEnd {
        self.settings.stdin_end
    }
}

/// A line of the body.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Where it stands, from 1.
    pub(crate) line: u32,
    /// What it does.
    pub(crate) what: Statement,
    /// Where its notifications have to go; `None` when the script does not say.
    pub(crate) to: Option<Arc<[Text]>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Statement {
    Take {
        method: String,
        session: Option<Session>,
        name: Option<String>,
    },
    Prompt {
        session: Session,
        name: Option<String>,
    },
    Wait(Wait),
    Emit(Emit),
    Together(Vec<Step>),
    Split {
        how: Split,
        pause: Duration,
        body: Vec<Step>,
    },
    Repeat {
        count: u64,
        body: Vec<Step>,
    },
    After(Duration),
    Gate {
        name: String,
        within: Duration,
    },
    Stderr(Text),
    StderrBytes(Vec<u8>),
    StderrFill(u64),
    Exit(u8),
    Kill(Signal),
    CloseStdout,
    CloseStdin,
    StopReading,
    StartReading,
    LeaveBehind(Duration),
    Mute,
    /// Of a trace: waits for the next request of a method and keeps the recorded id for its answer.
    Recorded {
        method: String,
        id: String,
        session: Option<String>,
    },
    /// Of a trace: a frame as it was recorded.
    RecordedFrame {
        frame: Arc<str>,
        answers: Option<String>,
    },
    /// Of a stream: waits for a prompt of each of these sessions.
    StreamPrompts(Arc<[(String, String)]>),
    /// Of a stream: answers them.
    StreamReplies(Arc<[(String, String)]>),
    /// Of a stream: a part of the file.
    Part {
        file: Arc<Vec<u8>>,
        from: usize,
        to: usize,
    },
}

/// Which session a prompt has to be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Session {
    /// This one.
    Named(Text),
    /// Whichever it is; it then goes by this name.
    Bound(String),
}

#[derive(Debug, Clone)]
pub(crate) enum Wait {
    Request(String),
    Notification(String),
    StdinEnd,
    Answer { name: Option<String>, wanted: Wanted },
}

/// What the client has to answer.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Anything,
    Error(Option<i64>),
    Result(Option<Text>),
}

#[derive(Debug, Clone)]
pub(crate) enum Split {
    Every(usize),
    At(Vec<usize>),
    InsideCharacters,
}

/// How a play can end by a signal to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGABRT.
    Abort,
}

impl Signal {
    /// `KILL` or `ABRT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Abort => "ABRT",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Kill, Self::Abort].into_iter().find(|signal| signal.name() == name)
    }
}

/// What is written.
#[derive(Debug, Clone)]
pub(crate) enum Emit {
    Started { parent: Text, child: Text },
    Finished { parent: Text, child: Text, status: Text, stop: Text, text: Option<Text> },
    Status { session: Text, status: Text },
    Event { session: Text, kind: Text, data: Option<Text> },
    Receipt { session: Text, message: Message },
    TurnStart { session: Text },
    TurnEnd { session: Text, kind: Text, error: Option<(Text, Text)> },
    Message { session: Text, text: Text },
    Notify { method: Text, params: Option<Text> },
    Filler { session: Text, bytes: u64 },
    Environment { session: Text },
    Line(Text),
    Bytes(Vec<u8>),
    Fill { bytes: u64, byte: u8 },
    Reply { name: Option<String>, result: Text },
    Error { name: Option<String>, code: i64, message: Text, data: Option<Text> },
    Ask { method: Text, params: Option<Text>, name: Option<String> },
}

/// Whose receipt it is.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// Of the prompt taken under this name, or of the last one.
    Of(Option<String>),
    /// Of a message with this id.
    Id(Text),
}

/// An `expect` line.
#[derive(Debug, Clone)]
pub(crate) enum Expect {
    Turn { session: String, response: Option<String>, finish: Option<String>, end: crate::TurnEnd },
    Open { root: String, children: Vec<String> },
    Path { session: String, path: Vec<String> },
    Request { method: String, outcome: crate::RequestOutcome },
    Diagnostic { name: String, count: u64 },
    Stderr(String),
    Exit(crate::RuntimeEnd),
}
