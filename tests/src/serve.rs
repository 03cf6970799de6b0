//! A client of `offspring serve --stdio` that is nothing but lines: what a test says is what stands on the wire.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::{Finished, Running, World};

/// Agents for whatever a test of the server needs; `echo` is the entry.
///
/// `gate` answers what is written into the named pipe of that name where it works ([`gate`]); `slow` and what is
/// below `boss` sleep for the world's token; `stubborn` has to be killed; `top` asks `lead`, who asks `echo`.
pub const POOL: &str = r#"
name: served
entry: echo
agents:
  echo: {type: command, description: Says it again., command: [cat]}
  gate: {type: command, command: [sh, -c, "cat >/dev/null; cat gate"]}
  slow: {type: command, command: [sh, -c, "exec sleep @SLEEP@"]}
  fail: {type: command, command: [sh, -c, "echo no paper >&2; exit 3"]}
  lead: {type: command, command: [sh, -c, 'offspring task echo "$(cat)"']}
  top: {type: command, command: [sh, -c, 'offspring task lead "$(cat)"']}
  boss: {type: command, command: [sh, -c, 'offspring task slow go']}
  stubborn:
    type: command
    stop_grace_ms: 8000
    command: [sh, -c, "trap '' TERM; while :; do sleep @SLEEP@; done"]
"#;

/// An error of the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct WireError {
    /// Its code.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// More about it; `null` if there is nothing.
    pub data: Value,
}

impl WireError {
    /// What it says to do; empty if nothing.
    #[must_use]
    pub fn hint(&self) -> &str {
        self.data["hint"].as_str().unwrap_or_default()
    }

    /// Fails unless it has this code and this whole message.
    ///
    /// # Panics
    /// If it has not.
    #[track_caller]
    pub fn is(&self, code: i64, message: &str) {
        assert_eq!((self.code, &*self.message), (code, message), "{self:?}");
    }
}

/// A server and the lines that were said.
#[derive(Debug)]
pub struct Client {
    running: Running,
    here: String,
    asked: u64,
    notifications: Vec<Value>,
    looked_at: usize,
    answers: Vec<Value>,
}

impl Client {
    /// A server of the world's pool.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self::with(world, &[])
    }

    /// The same with more arguments.
    #[must_use]
    pub fn with(world: &World, more: &[&str]) -> Self {
        let mut command = world.command(&["serve", "--stdio"]);
        command.arg(world.path("pool/pool.yaml")).args(more).stdin(Stdio::piped());
        let here = world.here().to_string_lossy().into_owned();
        Self {
            running: Running::start(command),
            here,
            asked: 0,
            notifications: Vec::new(),
            looked_at: 0,
            answers: Vec::new(),
        }
    }

    /// A server of [`POOL`] that was told `initialize`: new sessions are of this node.
    #[must_use]
    pub fn of_node(world: &World, node: &str) -> Self {
        world.pool(POOL);
        let mut client = Self::new(world);
        client.node(node);
        client
    }

    /// Says `initialize`: sessions that are made from now on are of this node.
    ///
    /// # Panics
    /// When it is refused.
    pub fn node(&mut self, node: &str) -> Value {
        let params = json!({ "cwd": self.here, "provider": "offspring", "model": node });
        self.ask("initialize", &params).expect("initialized")
    }

    /// The server.
    #[must_use]
    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Writes a line as it is.
    pub fn line(&mut self, line: &str) {
        self.running.tell(line);
    }

    /// Sends a request under this id and does not wait.
    pub fn send(&mut self, id: &Value, method: &str, params: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
    }

    /// Sends a request and gives its id.
    pub fn call(&mut self, method: &str, params: &Value) -> u64 {
        self.asked += 1;
        let id = self.asked;
        self.send(&id.into(), method, params);
        id
    }

    /// Sends a prompt and gives the id of the call.
    pub fn call_prompt(&mut self, session: &str, text: &str) -> u64 {
        self.call("session/prompt", &prompt_params(session, text))
    }

    /// Waits for the answer to this id, whatever else comes before.
    ///
    /// # Errors
    /// When it is an error.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self, id: &Value) -> Result<Value, WireError> {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer["id"] == *id) {
                let answer = self.answers.remove(at);
                let Some(error) = answer.get("error") else { return Ok(answer["result"].clone()) };
                return Err(WireError {
                    code: error["code"].as_i64().expect("a code"),
                    message: error["message"].as_str().expect("a message").to_owned(),
                    data: error["data"].clone(),
                });
            }
            assert!(self.read(), "the stream ended before the answer to {id}");
        }
    }

    /// Waits for the answer to a call.
    ///
    /// # Errors
    /// When it is an error.
    pub fn answer_to(&mut self, call: u64) -> Result<Value, WireError> {
        self.answer(&call.into())
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// When it is an error.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value, WireError> {
        let call = self.call(method, params);
        self.answer_to(call)
    }

    /// Asks what names a session and nothing else.
    ///
    /// # Errors
    /// When it is an error.
    pub fn ask_of(&mut self, method: &str, session: &str) -> Result<Value, WireError> {
        self.ask(method, &json!({ "sessionId": session }))
    }

    /// Asks what has to be refused.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn refused(&mut self, method: &str, params: &Value) -> WireError {
        match self.ask(method, params) {
            Err(error) => error,
            Ok(result) => panic!("{method} {params} was answered {result}"),
        }
    }

    /// Prompts a session; gives the name of the message.
    ///
    /// # Panics
    /// When it is refused.
    pub fn prompt(&mut self, session: &str, text: &str) -> String {
        let result = self.ask("session/prompt", &prompt_params(session, text)).expect("a prompt");
        result["messageId"].as_str().expect("a message id").to_owned()
    }

    /// Prompts a session and waits for the end of its whole tree; gives the name of the message.
    ///
    /// # Panics
    /// When something is refused.
    pub fn run(&mut self, session: &str, text: &str) -> String {
        let message = self.prompt(session, text);
        self.ask_of("session/wait", session).expect("at rest");
        message
    }

    /// Reads on to the next notification that is wanted; what came before it is not looked at again.
    ///
    /// # Panics
    /// When none comes.
    pub fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            while let Some(notification) = self.notifications.get(self.looked_at) {
                self.looked_at += 1;
                if wanted(notification) {
                    return notification.clone();
                }
            }
            assert!(self.read(), "the stream ended before the notification that was waited for");
        }
    }

    /// Reads on to the next event of this type in this session.
    pub fn event(&mut self, session: &str, kind: &str) -> Value {
        self.until(|line| line["params"]["sessionId"] == session && line["params"]["event"]["type"] == kind)
    }

    /// Reads on to where this session is said to be `idle` or `running`.
    pub fn status(&mut self, session: &str, status: &str) -> Value {
        self.until(|line| line["params"]["sessionId"] == session && line["params"]["status"] == status)
    }

    /// Every notification that was read, first to last.
    #[must_use]
    pub fn notifications(&self) -> &[Value] {
        &self.notifications
    }

    /// The answers that nobody asked for here, those to lines that name no call among them.
    #[must_use]
    pub fn other_answers(&self) -> &[Value] {
        &self.answers
    }

    /// Whether the server still answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn is_well(&mut self) {
        let nodes = self.ask("node/list", &json!({})).expect("an answer");
        assert!(nodes["nodes"].is_array());
    }

    /// Reads everything to the end of the stream.
    pub fn read_to_end(&mut self) {
        while self.read() {}
    }

    /// Ends its stdin and waits for its end.
    #[must_use]
    pub fn end(mut self) -> Finished {
        self.running.close_stdin();
        self.running.finish()
    }

    /// Waits for its end.
    #[must_use]
    pub fn finish(self) -> Finished {
        self.running.finish()
    }

    /// `shutdown`, then its end, which has to be a good one.
    ///
    /// # Panics
    /// When it is not.
    pub fn shut_down(mut self) {
        assert_eq!(self.ask("shutdown", &Value::Null), Ok(json!({})));
        let done = self.running.finish().with(0);
        assert!(done.stderr.is_empty(), "{}", done.stderr);
    }

    fn read(&mut self) -> bool {
        let Some(line) = self.running.line() else { return false };
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert_eq!(line["jsonrpc"], "2.0", "{line}");
        if line.get("method").is_some() {
            assert!(line.get("id").is_none(), "a request: {line}");
            self.notifications.push(line);
        } else {
            self.answers.push(line);
        }
        true
    }
}

/// The params of a prompt.
#[must_use]
pub fn prompt_params(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": text }] })
}

/// Makes the named pipe that `gate` reads from.
///
/// # Panics
/// When it cannot be made.
pub fn gate(world: &World) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = world.here().join("gate");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
}

/// Waits until a `gate` reads and lets it answer this.
///
/// # Panics
/// When the pipe is not there.
pub fn open_gate(world: &World, text: &str) {
    fs::write(world.here().join("gate"), text).expect("a reader of the gate");
}

/// What is known of every prompt of a session by its log: its id and how it ended, in the order in which they came.
///
/// # Panics
/// When the log cannot be read.
#[must_use]
pub fn prompts_of(world: &World, session: &str) -> Vec<(String, String)> {
    let done = world.offspring(&["watch", session, "--json"]).with(0);
    let lines = done.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut prompts: Vec<(String, String)> = Vec::new();
    let mut running = None;
    for line in lines {
        let event = &line["event"];
        let (kind, data) = (event["kind"].as_str().unwrap_or_default(), &event["data"]);
        let id = || data["prompt_id"].as_str().unwrap_or_default().to_owned();
        let mut end = |id: &str, end: String| {
            let prompt =
                prompts.iter_mut().find(|(other, _)| other == id).expect("a prompt that was received");
            assert!(prompt.1.is_empty(), "two ends: {prompt:?} and {end}");
            prompt.1 = end;
        };
        match kind {
            "prompt_received" => prompts.push((id(), String::new())),
            "prompt_dropped" => end(&id(), format!("dropped: {}", data["code"].as_str().unwrap_or_default())),
            "run_started" if line["session"] == session => running = Some(id()),
            "status_changed" if line["session"] == session && data["state"] == "idle" => {
                if let Some(id) = running.take() {
                    end(&id, data["outcome"].as_str().unwrap_or_default().to_owned());
                }
            }
            _ => {}
        }
    }
    prompts
}
