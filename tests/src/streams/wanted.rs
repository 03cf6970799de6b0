//! Where two clients differ on purpose: what our rules ask for and the Python SDK does otherwise.
//!
//! Each is a line of its own kind. One that holds it is compared like this: the SDK plays the stream without the line,
//! ours plays it whole, and what ours delivered of that very line is taken out. Everything else has to be equal, so
//! that a wanted difference never hides another.

use crate::streams::{
    Features, Frame, Meaning, NEXT, Operation, Step, Stream,
    frames::{self, event, receipt, status},
    json::{Json, quoted},
};

/// A text that each of these lines holds in its params, by which its delivery is known.
pub const MARK: &str = "taken-otherwise";

/// A difference between the Python SDK 0.2.1rc2 and our client that is there on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wanted {
    /// A line that is not UTF-8: passed over here; the SDK's reader ends, and with it every turn.
    NotUtf8,
    /// A carriage return inside a line: content here; the end of a line for the SDK, which takes what follows for a frame.
    CarriageReturn,
    /// `NaN`, which is no JSON: passed over here; a number for the SDK.
    NotANumber,
    /// `method` twice in one message: passed over here, since parsers disagree; the SDK takes the second.
    RepeatedMember,
    /// A method with an id of `null`: a request here, and answered; a notification for the SDK.
    NullId,
    /// Params that are no object: delivered as they came here; `{}` in the SDK.
    ParamsAreNoObject,
    /// An invalid start that names a known child and no parent: delivered to whoever the child reaches here; only to a
    /// subscription of the child itself in the SDK.
    StartWithoutParent,
    /// A `session.event` of a root whose event is no object: in the turn's events here, as it came; not there in the SDK.
    EventIsNoObject,
    /// A `turn/end` of a root that gives no reason: an event like any other here; an error in place of the result in the
    /// SDK, when it is the last of the turn.
    TurnEndWithoutReason,
    /// A whole number of 5,000 digits: delivered as it came here; the SDK's reader ends.
    HugeNumber,
    /// 3,000 lists in one another: delivered as they came here; the SDK's reader ends.
    DeepNesting,
}

impl Wanted {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::NotUtf8,
        Self::CarriageReturn,
        Self::NotANumber,
        Self::RepeatedMember,
        Self::NullId,
        Self::ParamsAreNoObject,
        Self::StartWithoutParent,
        Self::EventIsNoObject,
        Self::TurnEndWithoutReason,
        Self::HugeNumber,
        Self::DeepNesting,
    ];

    /// Those that random streams hold too.
    pub const IN_RANDOM_STREAMS: &[Self] = Self::ALL;

    /// The rule that asks for it.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::NotUtf8 | Self::NotANumber | Self::RepeatedMember => "W3",
            Self::CarriageReturn => "W1",
            Self::NullId => "W6",
            Self::StartWithoutParent => "T2",
            Self::EventIsNoObject => "T12",
            Self::TurnEndWithoutReason => "T13",
            Self::ParamsAreNoObject | Self::HugeNumber | Self::DeepNesting => "T11",
        }
    }

    /// Why ours is as it is.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotUtf8 => "one broken line must not end every turn",
            Self::CarriageReturn => {
                "a line ends at 0x0A and nowhere else, so that junk never becomes a frame"
            }
            Self::NotANumber => "what is not JSON is never repaired",
            Self::RepeatedMember => "parsers disagree on which member counts, so neither is believed",
            Self::NullId => "a message with an id wants an answer, and gets one",
            Self::ParamsAreNoObject => "unknown notifications are delivered raw",
            Self::StartWithoutParent => "an invalid start is still delivered to whoever its ids reach",
            Self::EventIsNoObject => {
                "every event of the root enters the turn's events, also one nobody knows"
            }
            Self::TurnEndWithoutReason => "a turn that came to its end has a result",
            Self::HugeNumber | Self::DeepNesting => {
                "what a notification holds harms nobody who does not look at it, and never the reader"
            }
        }
    }

    /// A line of this kind about a session.
    #[must_use]
    pub fn line(self, session: &str) -> Vec<u8> {
        let id = quoted(session);
        let event = |inside: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"session.event","params":{{"sessionId":{id},"event":{{"type":"{MARK}","data":{inside}}}}}}}"#
            )
        };
        match self {
            Self::NotUtf8 => {
                let mut line = event("\"?\"").into_bytes();
                let place = line.iter().position(|byte| *byte == b'?').unwrap_or(0);
                line[place] = 0xff;
                line
            }
            Self::CarriageReturn => format!("a progress bar\r{}", event("1")).into_bytes(),
            Self::NotANumber => event("NaN").into_bytes(),
            Self::RepeatedMember => event("1").replacen('{', r#"{"method":"session.title","#, 1).into_bytes(),
            Self::NullId => event("1").replacen('{', r#"{"id":null,"#, 1).into_bytes(),
            Self::ParamsAreNoObject => {
                format!(r#"{{"jsonrpc":"2.0","method":"runtime.list","params":["{MARK}",{id}]}}"#).into_bytes()
            }
            Self::StartWithoutParent => format!(
                r#"{{"jsonrpc":"2.0","method":"subagent.started","params":{{"parentSessionId":"","childSessionId":{id},"why":"{MARK}"}}}}"#
            )
            .into_bytes(),
            Self::EventIsNoObject => format!(
                r#"{{"jsonrpc":"2.0","method":"session.event","params":{{"sessionId":{id},"event":"{MARK}"}}}}"#
            )
            .into_bytes(),
            Self::TurnEndWithoutReason => format!(
                r#"{{"jsonrpc":"2.0","method":"session.event","params":{{"sessionId":{id},"event":{{"type":"turn/end","data":{{"turn":"{MARK}"}}}}}}}}"#
            )
            .into_bytes(),
            Self::HugeNumber => event(&"7".repeat(5_000)).into_bytes(),
            Self::DeepNesting => event(&format!("{}{}", "[".repeat(3_000), "]".repeat(3_000))).into_bytes(),
        }
    }

    /// The smallest stream that shows it: one turn with one such line about a child, and a watcher.
    #[must_use]
    pub fn minimal(self) -> Stream {
        let frame = |built: frames::Built, needed| Step::Frame(Frame { needed, ..built.plain() });
        let end = frames::turn_end("completed");
        let said = frames::assistant(vec![frames::text_block("done")], "m1");
        // Most say it of a child; what only counts for a root is the root's, and after its own end.
        let of_root = matches!(self, Self::EventIsNoObject | Self::TurnEndWithoutReason);
        let line = self.line(if of_root { "root" } else { "child" });
        let steps = vec![
            Step::Await { tag: 1, method: "session/prompt".to_owned(), session: Some("root".to_owned()) },
            frame(receipt("root", 0, "message-1"), true),
            Step::Answer { tag: 1, members: r#""result":{"messageId":"message-1"}"#.to_owned() },
            frame(frames::started("root", "child"), false),
            frame(event("root", "assistant/message", 1, said), false),
            frame(event("root", "turn/end", 2, end), false),
            Step::Frame(Frame { line, needed: false, meaning: Meaning::Wild(self) }),
            frame(event("child", "step/start", 3, Json::Object(vec![])), false),
            frame(status("root", "idle"), true),
            Step::Await { tag: 2, method: NEXT.to_owned(), session: None },
            Step::Answer { tag: 2, members: r#""result":{}"#.to_owned() },
        ];
        let operations = vec![
            Operation::Watch { root: "child".to_owned() },
            Operation::Run { root: "root".to_owned() },
            Operation::JoinRun { run: 0 },
            Operation::Next,
        ];
        let features = Features { frames: 7, wild: 1, ..Features::default() };
        Stream { name: format!("minimal {self:?}"), steps, operations, features }
    }
}

impl Stream {
    /// Which wanted differences are in it, one entry per line.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        let of_step = |step: &Step| match step {
            Step::Frame(Frame { meaning: Meaning::Wild(wanted), .. }) => Some(*wanted),
            _ => None,
        };
        self.steps.iter().filter_map(of_step).collect()
    }

    /// The stream for the client that takes those lines otherwise: without them.
    #[must_use]
    pub fn without_wanted(&self) -> Self {
        self.without(&|_, frame| matches!(frame.meaning, Meaning::Wild(_)))
    }
}
