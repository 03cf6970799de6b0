//! What the client asks, and the answers to what the script does not take itself.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::engine::Engine;
use super::{How, PlayEnd};
use crate::compose::{error, json_string, reply};
use crate::script::{OnShutdown, Session, Settings};
use crate::text::Taken;

/// Every error of the real runtime has this code.
const INTERNAL_ERROR: i64 = -32603;
/// Ours: answered once the script has come to its end and everything is written.
pub(super) const REST: &str = "fake-runtime/rest";

/// A request that waits for a statement that takes it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) session: Option<String>,
    pub(super) params: Value,
}

impl Request {
    pub(super) fn taken(&self, message: String) -> Taken {
        let blocks = self.params.get("contentBlocks").and_then(Value::as_array);
        let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
        Taken { id: self.id.clone(), session: self.session.clone(), message, text: texts.collect() }
    }
}

/// What has come from the client.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Those that a statement will take.
    pub(super) inbox: VecDeque<Request>,
    /// How many came per method, and how many of them a `wait-for` has counted.
    requests: HashMap<String, (u64, u64)>,
    notifications: HashMap<String, (u64, u64)>,
    /// Requests `session/wait` and their roots, not yet answered.
    waiting: Vec<(String, String)>,
    /// Requests for the end of the script, not yet answered.
    resting: Vec<String>,
    roots: HashSet<String>,
    is_initialized: bool,
    directory: String,
    directories: HashMap<String, String>,
}

/// One more that was not counted, if there is one.
fn count(of: &mut HashMap<String, (u64, u64)>, method: &str) -> bool {
    of.get_mut(method).is_some_and(|(came, counted)| {
        let more = came > counted;
        *counted += u64::from(more);
        more
    })
}

impl Requests {
    pub(super) fn came(&mut self, method: &str) {
        self.requests.entry(method.to_owned()).or_default().0 += 1;
    }

    pub(super) fn notified(&mut self, method: &str) {
        self.notifications.entry(method.to_owned()).or_default().0 += 1;
    }

    pub(super) fn count_request(&mut self, method: &str) -> bool {
        count(&mut self.requests, method)
    }

    pub(super) fn count_notification(&mut self, method: &str) -> bool {
        count(&mut self.notifications, method)
    }
}

impl Engine<'_> {
    /// Keeps a request for the statement that takes it, or answers it.
    pub(super) fn requested(&mut self, request: Request) {
        let settings = &self.script.settings;
        self.requests.came(&request.method);
        if request.method == "initialize" {
            self.requests.is_initialized = true;
            let directory = request.params.get("cwd").and_then(Value::as_str).unwrap_or(".");
            self.requests.directory = directory.to_owned();
        }
        if self.is_mute {
            return;
        }
        let is_known = !settings.without.contains(&request.method);
        if is_known && !self.is_body_done() && settings.taken.contains(&request.method) {
            if let Some(refusal) = refusal(settings, &request) {
                self.say(&error(&request.id, INTERNAL_ERROR, &refusal, None));
            } else {
                self.keep_root(&request);
                self.requests.inbox.push_back(request);
            }
            return;
        }
        self.answer(&request, is_known);
    }

    /// What no statement takes.
    pub(super) fn answer(&mut self, request: &Request, is_known: bool) {
        let id = request.id.clone();
        if !self.requests.is_initialized && request.method.starts_with("session/") && is_known {
            self.say(&error(&id, INTERNAL_ERROR, "SDK server is not initialized", None));
            return;
        }
        let session = request.session.clone().unwrap_or_default();
        match request.method.as_str() {
            _ if !is_known => self.say_unknown(request),
            "initialize" => self.say(&reply(
                &id,
                r#"{"serverInfo":{"name":"deepseek-harness-sdk-runtime","version":"0.0.1"}}"#,
            )),
            "session/prompt" => {
                self.keep_root(request);
                let taken = request.taken(self.composer.message_id());
                for line in self.composer.accept(&session, &taken) {
                    self.say(&line);
                }
                self.say_message_id(&taken);
                for line in self.composer.answer(&session, "hi") {
                    self.say(&line);
                }
            }
            "session/resume" => {
                self.keep_root(request);
                self.say(&reply(&id, "{}"));
            }
            "session/wait" if self.requests.roots.contains(&session) => {
                self.requests.waiting.push((id, session));
            }
            "session/wait" => {
                let message = format!("unknown SDK session: {session}");
                self.say(&error(&id, INTERNAL_ERROR, &message, None));
            }
            "session/working-directory/get" => {
                let directory = self.requests.directories.get(&session).unwrap_or(&self.requests.directory);
                let result = format!(r#"{{"cwd":{}}}"#, json_string(directory));
                self.say(&reply(&id, &result));
            }
            "session/working-directory/set" => match request.params.get("path").and_then(Value::as_str) {
                Some(path) => {
                    self.requests.directories.insert(session, path.to_owned());
                    self.say(&reply(&id, &format!(r#"{{"cwd":{}}}"#, json_string(path))));
                }
                None => {
                    let message = "working-directory set requires a path string";
                    self.say(&error(&id, INTERNAL_ERROR, message, None));
                }
            },
            "shutdown" => self.shut_down(&id),
            REST => self.requests.resting.push(id),
            _ => self.say_unknown(request),
        }
    }

    fn shut_down(&mut self, id: &str) {
        match self.script.settings.shutdown {
            OnShutdown::Ignore => {}
            OnShutdown::Stay => self.say(&reply(id, "{}")),
            OnShutdown::Exit(code) => {
                // The real runtime calls what was cut short a success.
                for (waiting, _) in std::mem::take(&mut self.requests.waiting) {
                    self.say(&reply(&waiting, "{}"));
                }
                self.say(&reply(id, "{}"));
                self.end_after_writing(How::Exit(code));
            }
        }
    }

    fn say_unknown(&mut self, request: &Request) {
        let message = format!("unknown DeepSeek Harness SDK runtime method: {}", request.method);
        self.say(&error(&request.id, INTERNAL_ERROR, &message, None));
    }

    /// The answer to a prompt.
    pub(super) fn say_message_id(&mut self, taken: &Taken) {
        let result = format!(r#"{{"messageId":{}}}"#, json_string(&taken.message));
        self.say(&reply(&taken.id, &result));
    }

    fn keep_root(&mut self, request: &Request) {
        if let Some(session) = &request.session {
            self.requests.roots.insert(session.clone());
        }
    }

    /// Answers those who wait for what has come true: called when there is nothing to write at the moment.
    pub(super) fn answer_waiting(&mut self) {
        if self.is_mute {
            return;
        }
        let at_the_end = self.is_body_done();
        let waits_for_rest = self.script.settings.wait == crate::script::AnswersWait::AtRest;
        let waiting = std::mem::take(&mut self.requests.waiting);
        for (id, root) in waiting {
            let is_true = if waits_for_rest { self.at_work.is_at_rest(&root) } else { at_the_end };
            if is_true {
                self.say(&reply(&id, "{}"));
            } else {
                self.requests.waiting.push((id, root));
            }
        }
        if at_the_end {
            for id in std::mem::take(&mut self.requests.resting) {
                self.say(&reply(&id, "{}"));
            }
        }
    }

    /// Takes the first request of a method, of a session if one is given.
    pub(super) fn take_request(&mut self, method: &str, session: Option<&Session>) -> Option<Request> {
        let wanted = session.map(|session| match session {
            Session::Named(text) => Some(text.plain(&self.names)),
            Session::Bound(name) => self.names.bound.get(name).cloned(),
        });
        let place = self.requests.inbox.iter().position(|request| {
            request.method == method
                && match &wanted {
                    Some(Some(wanted)) => request.session.as_ref() == Some(wanted),
                    Some(None) => request.session.is_some(),
                    None => true,
                }
        })?;
        let request = self.requests.inbox.remove(place)?;
        if let (Some(Session::Bound(name)), Some(met)) = (session, &request.session) {
            self.names.bound.insert(name.clone(), met.clone());
        }
        Some(request)
    }

    /// Answers what no statement took, when the script is at its end.
    pub(super) fn answer_the_rest(&mut self) {
        while let Some(request) = self.requests.inbox.pop_front() {
            self.answer(&request, true);
        }
    }

    pub(super) fn end(&self, how: How) -> PlayEnd {
        PlayEnd { how, written_bytes: self.out.total_bytes(), stderr: Vec::new() }
    }
}

/// Why a prompt will never be taken: better said at once than found out by waiting.
fn refusal(settings: &Settings, request: &Request) -> Option<String> {
    let prompted = settings.prompted.as_ref().filter(|_| request.method == "session/prompt")?;
    let session = request.session.as_deref().unwrap_or_default();
    (!prompted.contains(session)).then(|| {
        let names: Vec<&str> = prompted.iter().map(String::as_str).collect();
        format!("the script waits for a prompt to {}, and this one is to {session:?}", names.join(", "))
    })
}
