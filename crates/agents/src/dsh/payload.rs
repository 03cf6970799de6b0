//! What the events of a runtime carry, read as far as it becomes ours.

use std::borrow::Cow;

use offspring_protocol::{
    MessageId, ToolCallId, Usage,
    dsh::{INBOX_SPLICED, notice::assistant_text},
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A whole message of the assistant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The runtime's id of it.
    pub(super) id: Option<MessageId>,
    /// Its text; empty when it only calls tools.
    pub(super) text: String,
    /// What it cost.
    pub(super) usage: Option<Usage>,
}

/// Reads the data of `assistant/message`.
pub(super) fn message(data: &RawValue) -> Message {
    #[derive(Default, Deserialize)]
    struct Data<'a> {
        #[serde(borrow, default)]
        message: Option<&'a RawValue>,
        #[serde(default)]
        usage: Option<Tokens>,
    }
    #[derive(Default, Deserialize)]
    struct Body {
        #[serde(default)]
        id: Option<MessageId>,
    }
    let read: Data<'_> = serde_json::from_str(data.get()).unwrap_or_default();
    let body: Body = read.message.and_then(|body| serde_json::from_str(body.get()).ok()).unwrap_or_default();
    Message {
        id: body.id,
        text: assistant_text(data).unwrap_or_default(),
        usage: read.usage.as_ref().map(Tokens::ours),
    }
}

/// Tokens as a runtime counts them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    total_tokens: Option<u64>,
}

impl Tokens {
    /// Input without what came from a cache is the runtime's way; with it, ours. The runtime's own total decides
    /// where it gives one.
    fn ours(&self) -> Usage {
        let Self { input_tokens, output_tokens, cache_read_tokens, total_tokens } = *self;
        let read = match total_tokens.and_then(|total| total.checked_sub(output_tokens)) {
            Some(read) if read >= input_tokens => read,
            _ => input_tokens.saturating_add(cache_read_tokens),
        };
        Usage { cached_tokens: cache_read_tokens.min(read), ..Usage::message(read, output_tokens) }
    }
}

/// What a session is asked, as `agent/inbox/spliced` and `user/message` tell it. The runtime adds advice of its own to
/// what a parent asks a child, in blocks after the first.
pub(super) fn asked(kind: &str, data: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Inbox {
        inserted: Vec<Asked>,
    }
    #[derive(Deserialize)]
    struct Asked {
        content: Vec<Block>,
        #[serde(default)]
        source: Source,
    }
    #[derive(Default, Deserialize)]
    struct Source {
        #[serde(default)]
        kind: String,
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(default)]
        text: String,
    }
    let asked = match kind {
        INBOX_SPLICED => serde_json::from_str::<Inbox>(data.get()).ok()?.inserted.into_iter().next()?,
        "user/message" => serde_json::from_str::<Asked>(data.get()).ok()?,
        _ => return None,
    };
    let blocks = if asked.source.kind == "user" { 1 } else { usize::MAX };
    Some(
        asked
            .content
            .into_iter()
            .map(|block| block.text)
            .filter(|text| !text.is_empty())
            .take(blocks)
            .collect(),
    )
}

/// A tool that is called.
pub(super) struct ToolCall {
    pub(super) id: ToolCallId,
    pub(super) name: String,
    pub(super) input: Option<Box<RawValue>>,
}

/// Reads the data of `tool/call`.
pub(super) fn tool_call(data: &RawValue) -> Option<ToolCall> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        call_id: ToolCallId,
        name: String,
        #[serde(default)]
        arguments: Option<Box<RawValue>>,
    }
    let Data { call_id, name, arguments } = serde_json::from_str(data.get()).ok()?;
    // A JSON text within a text is given as what it says; what is no JSON, as it stands.
    let input = arguments.map(|raw| {
        let inner = serde_json::from_str::<String>(raw.get()).ok();
        inner.and_then(|text| RawValue::from_string(text).ok()).unwrap_or(raw)
    });
    Some(ToolCall { id: call_id, name, input })
}

/// What a tool gave back.
pub(super) struct ToolResult {
    pub(super) id: ToolCallId,
    pub(super) output: String,
    pub(super) is_error: bool,
}

/// Reads the data of `tool/result`.
pub(super) fn tool_result(data: &RawValue) -> Option<ToolResult> {
    #[derive(Deserialize)]
    struct Data {
        message: Body,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Body {
        tool_call_id: ToolCallId,
        #[serde(default)]
        is_error: bool,
    }
    let Data { message } = serde_json::from_str(data.get()).ok()?;
    let output = assistant_text(data).unwrap_or_default();
    Some(ToolResult { id: message.tool_call_id, output, is_error: message.is_error })
}

/// The error of a model turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnFault {
    pub(super) code: Option<String>,
    pub(super) message: String,
}

/// Reads the data of `turn/end`; `None` when it ended without an error.
pub(super) fn turn_fault(data: &RawValue) -> Option<TurnFault> {
    #[derive(Deserialize)]
    struct Data {
        reason: Reason,
    }
    #[derive(Deserialize)]
    struct Reason {
        kind: String,
        #[serde(default)]
        error: Fault,
    }
    #[derive(Default, Deserialize)]
    struct Fault {
        #[serde(default)]
        code: Option<String>,
        #[serde(default)]
        message: String,
    }
    let Data { reason } = serde_json::from_str(data.get()).ok()?;
    let Reason { kind, error: Fault { code, message } } = reason;
    (kind == "error").then_some(TurnFault { code, message })
}

/// Whose a notification is that this wire does not have.
pub(super) fn session_of(params: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        session_id: Cow<'a, str>,
    }
    serde_json::from_str::<Params<'_>>(params.get()).ok().map(|params| params.session_id.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn l15_the_runtime_s_own_total_is_what_we_count() {
        let of = |usage: &str| {
            message(&raw(&format!(r#"{{"message":{{"id":"m"}},"usage":{usage}}}"#))).usage.unwrap()
        };
        // Recorded from 0.2.1rc2: the input does not hold what came from the cache.
        let usage = of(r#"{"inputTokens":100,"outputTokens":10,"cacheReadTokens":50,"totalTokens":160}"#);
        assert_eq!((usage.input_tokens, usage.cached_tokens, usage.total_tokens()), (150, 50, 160));
        // A runtime whose input holds it.
        let usage = of(r#"{"inputTokens":100,"outputTokens":10,"cacheReadTokens":50,"totalTokens":110}"#);
        assert_eq!((usage.input_tokens, usage.cached_tokens, usage.total_tokens()), (100, 50, 110));
        let usage = of(r#"{"inputTokens":7}"#);
        assert_eq!((usage.input_tokens, usage.messages), (7, 1));
    }

    #[test]
    fn arguments_of_a_tool_are_given_as_json_where_they_are_json() {
        let input = |arguments: &str| {
            let call = tool_call(&raw(&format!(r#"{{"callId":"c","name":"n","arguments":{arguments}}}"#)));
            call.unwrap().input.unwrap().get().to_owned()
        };
        assert_eq!(input(r#""{\"a\": 1}""#), r#"{"a": 1}"#);
        assert_eq!(input(r#""not json""#), r#""not json""#);
        assert_eq!(input(r#"{"a":1}"#), r#"{"a":1}"#);
    }
}
