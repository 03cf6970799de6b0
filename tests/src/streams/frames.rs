//! The frames of the wire, each built from what it says.

use crate::streams::{Frame, Meaning, json::Json, random::Random};

/// A frame and what it means.
#[derive(Debug, Clone)]
pub struct Built {
    /// The whole message.
    pub json: Json,
    /// What it means.
    pub meaning: Meaning,
}

impl Built {
    /// As the runtime writes it.
    #[must_use]
    pub fn plain(&self) -> Frame {
        Frame { line: self.json.plain().into_bytes(), needed: false, meaning: self.meaning.clone() }
    }

    /// In another spelling.
    #[must_use]
    pub fn odd(&self, random: &mut Random) -> Frame {
        Frame { line: self.json.odd(random).into_bytes(), needed: false, meaning: self.meaning.clone() }
    }
}

/// A notification.
#[must_use]
pub fn notification(method: &str, params: Json, meaning: Meaning) -> Built {
    let json = Json::Object(vec![
        ("jsonrpc", Json::text("2.0")),
        ("method", Json::text(method)),
        ("params", params),
    ]);
    Built { json, meaning }
}

/// `session.event` with this event.
#[must_use]
pub fn event_of(session: &str, event: Json, says: bool) -> Built {
    let params = Json::Object(vec![("sessionId", Json::text(session)), ("event", event)]);
    notification("session.event", params, Meaning::Session { session: session.to_owned(), says })
}

/// `session.event` with an event of this type and data.
#[must_use]
pub fn event(session: &str, kind: &str, seq: u64, data: Json) -> Built {
    let event = Json::Object(vec![
        ("type", Json::text(kind)),
        ("seq", Json::number(seq)),
        ("time", Json::number(1_796_048_659_923 + seq)),
        ("data", data),
    ]);
    event_of(session, event, matches!(kind, "assistant/message" | "turn/end"))
}

/// `session.status`.
#[must_use]
pub fn status(session: &str, status: &str) -> Built {
    let params = Json::Object(vec![("sessionId", Json::text(session)), ("status", Json::text(status))]);
    notification("session.status", params, Meaning::Session { session: session.to_owned(), says: false })
}

/// `subagent.started` with two different ids.
#[must_use]
pub fn started(parent: &str, child: &str) -> Built {
    let meaning = Meaning::Started { parent: parent.to_owned(), child: child.to_owned() };
    notification("subagent.started", edge(Json::text(parent), Json::text(child)), meaning)
}

/// The params of a start.
#[must_use]
pub fn edge(parent: Json, child: Json) -> Json {
    Json::Object(vec![("parentSessionId", parent), ("childSessionId", child)])
}

/// `subagent.finished`.
#[must_use]
pub fn finished(parent: &str, child: &str, failed: bool, last: Option<&str>) -> Built {
    let mut members = vec![
        ("provider", Json::text("spawn")),
        ("agentId", Json::text(child)),
        ("parentSessionId", Json::text(parent)),
        ("childSessionId", Json::text(child)),
        ("status", Json::text(if failed { "error" } else { "ok" })),
        ("stopReason", Json::text(if failed { "error" } else { "completed" })),
    ];
    if let Some(last) = last {
        members.push(("lastAssistantMessage", Json::List(vec![text_block(last)])));
    }
    let meaning = Meaning::Finished { parent: parent.to_owned(), child: child.to_owned() };
    notification("subagent.finished", Json::Object(members), meaning)
}

/// The data of `agent/inbox/spliced` with these messages.
#[must_use]
pub fn inbox(ids: &[&str], text: &str) -> Json {
    let message = |id: &&str| {
        Json::Object(vec![
            ("content", Json::List(vec![text_block(text)])),
            ("source", Json::Object(vec![("kind", Json::text("user"))])),
            ("role", Json::text("user")),
            ("id", Json::text(id)),
        ])
    };
    Json::Object(vec![
        ("target", Json::text("next-turn")),
        ("start", Json::number(0)),
        ("inserted", Json::List(ids.iter().map(message).collect())),
    ])
}

/// The receipt of a prompt.
#[must_use]
pub fn receipt(session: &str, seq: u64, message: &str) -> Built {
    event(session, "agent/inbox/spliced", seq, inbox(&[message], "go"))
}

/// The data of `assistant/message` with these blocks.
#[must_use]
pub fn assistant(blocks: Vec<Json>, id: &str) -> Json {
    Json::Object(vec![
        ("turn", Json::number(1)),
        ("step", Json::number(1)),
        (
            "message",
            Json::Object(vec![
                ("role", Json::text("assistant")),
                ("content", Json::List(blocks)),
                ("source", Json::Object(vec![("kind", Json::text("model"))])),
                ("id", Json::text(id)),
            ]),
        ),
        ("usage", Json::Object(vec![("inputTokens", Json::number(100)), ("outputTokens", Json::number(10))])),
    ])
}

/// The data of `turn/end`.
#[must_use]
pub fn turn_end(kind: &str) -> Json {
    Json::Object(vec![("turn", Json::number(1)), ("reason", Json::Object(vec![("kind", Json::text(kind))]))])
}

/// A block of text.
#[must_use]
pub fn text_block(text: &str) -> Json {
    Json::Object(vec![("type", Json::text("text")), ("text", Json::text(text))])
}
