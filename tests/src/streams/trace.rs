//! A recorded trace as a stream: the client makes the requests that were made, the player writes what was written.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::streams::{Frame, Meaning, NEXT, Operation, Step, Stream};

#[derive(Deserialize)]
struct Record<'a> {
    dir: String,
    #[serde(borrow)]
    msg: Option<&'a RawValue>,
    raw: Option<String>,
}

/// A turn that was prompted in the trace.
struct Prompted {
    root: String,
    tag: u32,
    id: Value,
    /// From the answer.
    message: Option<String>,
    answered: bool,
    refused: bool,
    /// Which messages were received since the prompt, and after which of them the root rested.
    received: Vec<String>,
    rested: Vec<String>,
    joined: bool,
}

/// Another request of the trace.
struct Asked {
    tag: u32,
    id: Value,
    joined: bool,
}

/// The stream of a trace file; a file with several processes, or without one turn, has a stream all the same.
///
/// # Panics
/// When the file is no trace.
#[must_use]
pub fn stream(path: &Path) -> Stream {
    let text = fs::read_to_string(path).unwrap();
    let mut played = Played::default();
    for line in text.lines() {
        let record: Record =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        match (record.dir.as_str(), record.msg, record.raw) {
            ("c2s", Some(message), _) => played.asked(message),
            ("s2c", Some(message), _) => played.written(message.get()),
            ("s2c", None, Some(raw)) => played.frame(raw),
            _ => {}
        }
    }
    played.end();
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Stream { name, steps: played.steps, operations: played.operations, ..Stream::default() }
}

#[derive(Default)]
struct Played {
    steps: Vec<Step>,
    operations: Vec<Operation>,
    prompted: Vec<Prompted>,
    requests: Vec<Asked>,
    tags: u32,
    initialized: bool,
}

impl Played {
    fn asked(&mut self, message: &RawValue) {
        let Ok(Value::Object(message)) = serde_json::from_str(message.get()) else { return };
        let (Some(id @ (Value::String(_) | Value::Number(_))), Some(Value::String(method))) =
            (message.get("id"), message.get("method"))
        else {
            return;
        };
        let params = message.get("params");
        match method.as_str() {
            // The client does these by itself.
            "initialize" if !std::mem::replace(&mut self.initialized, true) => return,
            "shutdown" => return,
            _ => {}
        }
        if !self.operations.is_empty() {
            self.next();
        }
        let blocks = params.and_then(|params| params.get("contentBlocks")).is_some_and(Value::is_array);
        let root =
            params.and_then(|params| params.get("sessionId")?.as_str()).filter(|root| !root.is_empty());
        match root {
            Some(root) if method == "session/prompt" && blocks => {
                if self.prompted.is_empty() {
                    self.operations.push(Operation::Watch { root: root.to_owned() });
                }
                let tag = self.await_request(method, Some(root));
                self.operations.push(Operation::Run { root: root.to_owned() });
                self.prompted.push(Prompted {
                    root: root.to_owned(),
                    tag,
                    id: id.clone(),
                    message: None,
                    answered: false,
                    refused: false,
                    received: Vec::new(),
                    rested: Vec::new(),
                    joined: false,
                });
            }
            _ => {
                let tag = self.await_request(method, None);
                let params = params.map(ToString::to_string);
                self.operations.push(Operation::Request { method: method.clone(), params });
                self.requests.push(Asked { tag, id: id.clone(), joined: false });
            }
        }
    }

    fn written(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        if let Some(id) = message.get("id") {
            return self.answered(line, id, &message);
        }
        let params = &message["params"];
        let session = params["sessionId"].as_str().unwrap_or_default();
        let event = &params["event"];
        for run in self.prompted.iter_mut().filter(|run| run.root == session && !run.joined) {
            if event["type"] == "agent/inbox/spliced" {
                let inserted = event["data"]["inserted"].as_array().into_iter().flatten();
                run.received.extend(inserted.filter_map(|message| message["id"].as_str().map(str::to_owned)));
            }
            if message["method"] == "session.status" && params["status"] == "idle" {
                run.rested.clone_from(&run.received);
            }
        }
        self.frame(line.to_owned());
        self.join();
    }

    fn frame(&mut self, line: String) {
        self.steps.push(Step::Frame(Frame {
            line: line.into_bytes(),
            needed: true,
            meaning: Meaning::Nothing,
        }));
    }

    fn answered(&mut self, line: &str, id: &Value, message: &Value) {
        let members = |name: &str| {
            let text = message.get(name)?;
            Some(format!("\"{name}\":{text}"))
        };
        let Some(members) = members("error").or_else(|| members("result")) else { return };
        let run = self.prompted.iter_mut().find(|run| run.id == *id && !run.answered);
        if let Some(run) = run {
            run.answered = true;
            run.message = message["result"]["messageId"].as_str().map(str::to_owned);
            run.refused = run.message.is_none();
            self.steps.push(Step::Answer { tag: run.tag, members });
        } else if let Some(place) = self.requests.iter().position(|asked| asked.id == *id && !asked.joined) {
            let asked = &mut self.requests[place];
            asked.joined = true;
            self.steps.push(Step::Answer { tag: asked.tag, members });
            self.operations.push(Operation::JoinRequest { request: place });
        } else {
            self.frame(line.to_owned());
        }
        self.join();
    }

    /// Lets the client take the results that it can have by now, before anything else is written.
    fn join(&mut self) {
        let mut any = false;
        for (number, run) in self.prompted.iter_mut().enumerate() {
            let over =
                run.refused || run.message.as_ref().is_some_and(|message| run.rested.contains(message));
            if run.answered && over && !run.joined {
                run.joined = true;
                any = true;
                self.operations.push(Operation::JoinRun { run: number });
            }
        }
        if any {
            self.next();
        }
    }

    /// What is still open then ends with the process.
    fn end(&mut self) {
        let runs = (0..)
            .zip(&self.prompted)
            .filter(|(_, run)| !run.joined)
            .map(|(run, _)| Operation::JoinRun { run });
        let requests = (0..).zip(&self.requests).filter(|(_, asked)| !asked.joined);
        let requests = requests.map(|(request, _)| Operation::JoinRequest { request });
        let open: Vec<Operation> = runs.chain(requests).collect();
        if open.is_empty() {
            self.next();
        } else {
            self.steps.push(Step::Exit);
            self.operations.extend(open);
        }
    }

    fn next(&mut self) {
        let tag = self.await_request(NEXT, None);
        self.steps.push(Step::Answer { tag, members: r#""result":{}"#.to_owned() });
        self.operations.push(Operation::Next);
    }

    fn await_request(&mut self, method: &str, session: Option<&str>) -> u32 {
        self.tags += 1;
        let session = session.map(str::to_owned);
        self.steps.push(Step::Await { tag: self.tags, method: method.to_owned(), session });
        self.tags
    }
}
