//! Scripts that were recorded: traces, and streams of frames.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::script::{AnswersWait, Script, ScriptError, Settings, Statement, Step};

/// A line of a trace; what else it says does not matter here.
#[derive(Deserialize)]
struct Line {
    dir: String,
    msg: Option<Box<RawValue>>,
    raw: Option<String>,
}

/// A message as far as a trace is played by it.
#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    method: Option<Value>,
    params: Option<Value>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

const TRACE: &str =
    "each line of a trace is {\"dir\":\"c2s\" or \"s2c\",\"msg\":…}, or of another dir, which is passed over";

pub(crate) fn trace(jsonl: &str) -> Result<Script, ScriptError> {
    let mut settings = Settings { prompted: None, ..Settings::default() };
    let mut body = Vec::new();
    let mut answered = BTreeSet::new();
    'lines: for (number, text) in (1_u32..).zip(jsonl.lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text).map_err(|error| {
            ScriptError::new(number, format!("it is no line of a trace ({error})"), TRACE)
        })?;
        let mut push = |what| body.push(Step { line: number, what, to: None });
        match line.dir.as_str() {
            "c2s" => {
                // What was no message then is nothing to wait for now.
                let sent = line.msg.map(|msg| msg.get().to_owned()).or(line.raw).unwrap_or_default();
                for sent in sent.lines() {
                    let Some((method, id, session)) = request(sent) else { continue };
                    match method.as_str() {
                        // The end of the recording; a play ends in its own way.
                        "shutdown" => break 'lines,
                        // Answered when the tree is at rest: what came after it did not wait for it.
                        "session/wait" => continue,
                        _ => {}
                    }
                    answered.insert(id.clone());
                    settings.taken.insert(method.clone());
                    settings.recorded_sessions.extend(session.clone());
                    push(Statement::Recorded { method, id, session });
                }
            }
            "s2c" => match line.msg {
                Some(msg) => {
                    let Some(what) = received(msg.get(), &answered) else { continue };
                    push(what);
                }
                None => {
                    let frame = line.raw.unwrap_or_default().into();
                    push(Statement::RecordedFrame { frame, answers: None });
                }
            },
            _ => {}
        }
    }
    let about = "A recorded trace.".to_owned();
    Ok(Script { about, rules: Vec::new(), settings, body, expects: Vec::new() })
}

/// A request that was answered: its method, its id as JSON, its session.
fn request(sent: &str) -> Option<(String, String, Option<String>)> {
    let message: Message = serde_json::from_str(sent).ok()?;
    let id = message.id?.get().to_owned();
    let is_id = id.starts_with(['"', '-']) || id.starts_with(|c: char| c.is_ascii_digit());
    let method = message.method?.as_str()?.to_owned();
    let session = message.params.as_ref().and_then(|params| params.get("sessionId")?.as_str());
    is_id.then(|| (method, id, session.map(str::to_owned)))
}

/// A frame of the runtime; an answer to what is not waited for is left out.
fn received(frame: &str, answered: &BTreeSet<String>) -> Option<Statement> {
    let as_it_is = Statement::RecordedFrame { frame: frame.into(), answers: None };
    let Ok(message) = serde_json::from_str::<Message>(frame) else { return Some(as_it_is) };
    let (None, Some(id)) = (message.method, message.id) else { return Some(as_it_is) };
    let id = id.get().to_owned();
    let rest = match (message.error, message.result) {
        (Some(error), _) => format!(r#""error":{error}"#),
        (None, Some(result)) => format!(r#""result":{result}"#),
        (None, None) => return Some(as_it_is),
    };
    answered.contains(&id).then(|| Statement::RecordedFrame { frame: rest.into(), answers: Some(id) })
}

/// A frame in which a session goes by another id: every JSON string that is that id, unless it names a member.
pub(crate) fn with_session(frame: &str, recorded: &str, live: &str) -> String {
    let (recorded, live) = (crate::compose::json_string(recorded), crate::compose::json_string(live));
    let mut replaced = String::with_capacity(frame.len());
    let mut rest = frame;
    while let Some(at) = rest.find(&recorded) {
        let (before, from) = rest.split_at(at);
        let after = from.get(recorded.len()..).unwrap_or_default();
        replaced.push_str(before);
        // A quote behind a backslash is inside a text; a colon behind it makes it the name of a member.
        let is_value = !before.ends_with('\\') && !after.starts_with(':');
        replaced.push_str(if is_value { &live } else { &recorded });
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

pub(crate) fn stream(frames: Vec<u8>) -> Result<Script, ScriptError> {
    let mut prompts: Vec<(String, String)> = Vec::new();
    let mut head = 0;
    while let Some(end) = frames.get(head..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
        let frame: Value = frames
            .get(head..head + end)
            .and_then(|line| serde_json::from_slice(line).ok())
            .unwrap_or_default();
        let session = frame.pointer("/params/sessionId").and_then(Value::as_str).unwrap_or_default();
        let is_prompted = prompts.iter().any(|(prompted, _)| prompted == session);
        let message = frame.pointer("/params/event/data/inserted/0/id").and_then(Value::as_str);
        let is_status = frame.get("method").and_then(Value::as_str) == Some("session.status");
        match message {
            Some(message) if !is_prompted => prompts.push((session.to_owned(), message.to_owned())),
            // The status behind its receipt, once.
            None if is_status && prompts.last().is_some_and(|(prompted, _)| prompted == session) => {}
            _ => break,
        }
        head += end + 1;
    }
    if prompts.is_empty() {
        return Err(ScriptError::new(
            1,
            "the stream does not begin with the receipt of a prompt",
            "let its first line be a session.event of type agent/inbox/spliced, whose data.inserted[0].id is the \
             id of the message",
        ));
    }
    let sessions: BTreeSet<String> = prompts.iter().map(|(session, _)| session.clone()).collect();
    let settings = Settings {
        taken: BTreeSet::from(["session/prompt".to_owned()]),
        prompted: Some(sessions),
        wait: AnswersWait::AtTheEnd,
        ..Settings::default()
    };
    let (file, prompts): (_, Arc<[_]>) = (Arc::new(frames), prompts.into());
    let end = file.len();
    let steps = [
        Statement::StreamPrompts(Arc::clone(&prompts)),
        Statement::Part { file: Arc::clone(&file), from: 0, to: head },
        Statement::StreamReplies(prompts),
        Statement::Part { file, from: head, to: end },
    ];
    let body = steps.into_iter().map(|what| Step { line: 1, what, to: None }).collect();
    let about = "A stream of frames.".to_owned();
    Ok(Script { about, rules: Vec::new(), settings, body, expects: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_renamed_where_it_is_a_value() {
        let frame = r#"{"a":"root","root":1,"b":["root"],"c":"say \"root\"","d":"\"root"}"#;
        assert_eq!(
            with_session(frame, "root", "x\"y"),
            r#"{"a":"x\"y","root":1,"b":["x\"y"],"c":"say \"root\"","d":"\"root"}"#
        );
    }

    #[test]
    fn a_trace_is_checkpoints_and_frames_up_to_its_shutdown() {
        let text = concat!(
            r#"{"t":0,"dir":"mark","mark":"spawn"}"#,
            "\n",
            r#"{"dir":"c2s","msg":{"id":"i","method":"initialize"}}"#,
            "\n",
            r#"{"dir":"s2c","msg":{"jsonrpc":"2.0","id":"i","result":{"z":1,"a":2}}}"#,
            "\n",
            r#"{"dir":"c2s","msg":{"id":"w","method":"session/wait","params":{"sessionId":"r"}}}"#,
            "\n",
            r#"{"dir":"s2c","msg":{"jsonrpc":"2.0","id":"w","result":{}}}"#,
            "\n",
            r#"{"dir":"s2c","msg":{"jsonrpc":"2.0","method":"n"}}"#,
            "\n",
            r#"{"dir":"c2s","msg":{"id":"s","method":"shutdown"}}"#,
            "\n",
            r#"{"dir":"s2c","msg":{"jsonrpc":"2.0","method":"late"}}"#,
            "\n",
        );
        let script = trace(text).unwrap();
        let frames: Vec<String> = script
            .body
            .iter()
            .map(|step| match &step.what {
                Statement::Recorded { method, id, .. } => format!("{method} {id}"),
                Statement::RecordedFrame { frame, answers } => format!("{frame} {answers:?}"),
                other => format!("{other:?}"),
            })
            .collect();
        let expected = [
            r#"initialize "i""#,
            r#""result":{"z":1,"a":2} Some("\"i\"")"#,
            r#"{"jsonrpc":"2.0","method":"n"} None"#,
        ];
        assert_eq!(frames, expected);
        assert_eq!(trace("{}").unwrap_err().line(), 1);
    }

    #[test]
    fn a_stream_begins_with_its_receipts() {
        let receipt = |session: &str, id: &str| {
            format!(
                r#"{{"method":"session.event","params":{{"sessionId":"{session}","event":{{"type":"agent/inbox/spliced","data":{{"inserted":[{{"id":"{id}"}}]}}}}}}}}"#
            )
        };
        let status = |session: &str| {
            format!(
                r#"{{"method":"session.status","params":{{"sessionId":"{session}","status":"running"}}}}"#
            )
        };
        let lines = [receipt("a", "1"), status("a"), receipt("b", "2"), status("b"), receipt("a", "3")];
        let script = stream(format!("{}\n", lines.join("\n")).into_bytes()).unwrap();
        let Statement::StreamPrompts(prompts) = &script.body[0].what else { unreachable!() };
        assert_eq!(**prompts, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let Statement::Part { to, .. } = &script.body[1].what else { unreachable!() };
        assert_eq!(*to, lines[..4].iter().map(|line| line.len() + 1).sum::<usize>());
        assert!(stream(status("a").into_bytes()).is_err());
    }
}
