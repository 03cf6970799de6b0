//! The wire format Anthropic Messages, streamed: a request's body in, the events of an answer out.

use serde_json::{Value, json};

use super::{
    answer::{Entry, Message, Stop},
    script::Fault,
};

/// The conversation of a request. Neighbouring messages of the user are merged in this format and results of tools are
/// among them, so each block is an entry of its own.
#[must_use]
pub fn read(body: &Value) -> Vec<Entry> {
    let mut entries = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        if message["role"] == "assistant" {
            let calls = blocks.iter().any(|block| block["type"] == "tool_use");
            entries.push(if calls { Entry::Called } else { Entry::Said });
            continue;
        }
        entries.extend(content.as_str().map(|text| Entry::User(text.to_owned())));
        entries.extend(blocks.iter().filter_map(|block| match block["type"].as_str()? {
            "text" => Some(Entry::User(block["text"].as_str()?.to_owned())),
            "tool_result" => Some(Entry::Returned(text(&block["content"]))),
            _ => None,
        }));
    }
    entries
}

fn text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

/// The names of the tools that a request offers.
#[must_use]
pub fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

/// Tokens, which here are counted so that a test can know them: ten for each entry asked, one for each word answered.
fn usage(entries: &[Entry], message: &Message) -> (usize, usize) {
    let words = message.pieces.iter().chain(&message.thoughts).map(|piece| piece.split_whitespace().count());
    (entries.len() * 10, words.sum::<usize>() + message.calls.len())
}

/// The events of an answer, each as the bytes on the wire. `number` makes its ids, so that no two answers share one.
#[must_use]
pub fn events(body: &Value, entries: &[Entry], message: &Message, number: u64) -> Vec<String> {
    let (asked, answered) = usage(entries, message);
    let mut events = Vec::new();
    let mut send = |value: Value| {
        let kind = value["type"].as_str().unwrap_or_default();
        events.push(format!("event: {kind}\ndata: {value}\n\n"));
    };
    send(json!({ "type": "message_start", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "content": [], "model": body["model"],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": asked, "output_tokens": 0 },
    } }));
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if !message.thoughts.is_empty() {
        let thoughts =
            message.thoughts.iter().map(|text| json!({ "type": "thinking_delta", "thinking": text }));
        let deltas = thoughts.chain([json!({ "type": "signature_delta", "signature": "signed" })]).collect();
        blocks.push((json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas));
    }
    if !message.pieces.is_empty() {
        let deltas =
            message.pieces.iter().map(|text| json!({ "type": "text_delta", "text": text })).collect();
        blocks.push((json!({ "type": "text", "text": "" }), deltas));
    }
    for (index, call) in message.calls.iter().enumerate() {
        let start = json!({ "type": "tool_use", "id": format!("call_{number}_{index}"), "name": call.tool, "input": {} });
        blocks.push((start, vec![json!({ "type": "input_json_delta", "partial_json": call.arguments })]));
    }
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        send(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        for delta in deltas {
            send(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        send(json!({ "type": "content_block_stop", "index": index }));
    }
    let reason = match &message.stop {
        Stop::End => "end_turn",
        Stop::Tools => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Other(reason) => reason,
    };
    send(json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
        "usage": { "output_tokens": answered } }));
    send(json!({ "type": "message_stop" }));
    match message.fault {
        // Amid the text: its block is open.
        Some(Fault::Drop) => events.truncate(events.len() - 3),
        Some(Fault::NoEnd) => events.truncate(events.len() - 1),
        Some(Fault::Garbage) => events.insert(1, "event: content_block_start\ndata: {no json\n\n".to_owned()),
        None => {}
    }
    events
}

/// The body of an error.
#[must_use]
pub fn error(message: &str) -> Value {
    json!({ "type": "error", "error": { "type": "scripted_error", "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_model::script::Call;

    fn message() -> Message {
        Message {
            thoughts: Vec::new(),
            pieces: vec!["a b".to_owned()],
            calls: Vec::new(),
            stop: Stop::End,
            fault: None,
        }
    }

    #[test]
    fn blocks_of_a_merged_message_are_entries_of_their_own() {
        let body = json!({ "messages": [
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": [{ "type": "text", "text": "x" }, { "type": "tool_use", "id": "c" }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c", "content": [{ "type": "text", "text": "two" }] },
                { "type": "tool_result", "tool_use_id": "d", "content": "three" },
                { "type": "text", "text": "four" },
                { "type": "image", "source": {} },
            ] },
            { "role": "assistant", "content": [{ "type": "text", "text": "y" }] },
        ] });
        let expected = [
            Entry::User("one".to_owned()),
            Entry::Called,
            Entry::Returned("two".to_owned()),
            Entry::Returned("three".to_owned()),
            Entry::User("four".to_owned()),
            Entry::Said,
        ];
        assert_eq!(read(&body), expected);
    }

    #[test]
    fn an_answer_is_a_whole_message_with_its_usage() {
        let call = Call { tool: "t".to_owned(), arguments: "{\"a\":1}".to_owned() };
        let message =
            Message { thoughts: vec!["hm".to_owned()], calls: vec![call], stop: Stop::Tools, ..message() };
        let events = events(&json!({ "model": "m" }), &[Entry::Said], &message, 7);
        let data: Vec<Value> = events
            .iter()
            .map(|event| {
                serde_json::from_str(event.lines().nth(1).unwrap().strip_prefix("data: ").unwrap()).unwrap()
            })
            .collect();
        let kinds: Vec<&str> = data.iter().map(|data| data["type"].as_str().unwrap()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "content_block_start").count(), 3);
        assert_eq!(kinds.iter().filter(|kind| **kind == "content_block_stop").count(), 3);
        assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
        assert_eq!(data[0]["message"]["usage"]["input_tokens"], 10);
        assert_eq!(data[data.len() - 2]["usage"]["output_tokens"], 4);
        assert_eq!(data[data.len() - 2]["delta"]["stop_reason"], "tool_use");
        assert!(
            events.iter().zip(&kinds).all(|(event, kind)| event.starts_with(&format!("event: {kind}\n")))
        );
    }

    #[test]
    fn each_fault_spoils_the_stream_in_its_own_way() {
        let with = |fault| events(&json!({}), &[], &Message { fault, ..message() }, 1);
        let whole = with(None);
        assert_eq!(with(Some(Fault::Drop)), whole[..whole.len() - 3]);
        assert_eq!(with(Some(Fault::NoEnd)), whole[..whole.len() - 1]);
        assert_eq!(with(Some(Fault::Garbage)).len(), whole.len() + 1);
    }
}
