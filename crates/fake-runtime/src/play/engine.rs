//! The loop of a play: one statement after another, while requests are read and what is written goes out.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use offspring_protocol::rpc::OwnedMessage;
use offspring_transport::{Inbound, MessageReader, ReadError};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::at_rest::AtWork;
use super::out::Out;
use super::requests::{Request, Requests};
use super::{How, PlayEnd};
use crate::compose::{Composer, reply};
use crate::gates::Gates;
use crate::script::{Emit, OnStdinEnd, Script, Split, Statement, Step, Wait, Wanted};
use crate::stage::Stage;
use crate::text::Names;

/// A client may send frames as large as it likes.
const FRAME_LIMIT_BYTES: usize = 256 * 1024 * 1024;
/// Nothing more is read while this much waits to be written.
const HIGH_WATER_BYTES: u64 = 4 * 1024 * 1024;
/// stderr is filled in pieces of this size.
const STDERR_PIECE: usize = 64 * 1024;

pub(super) struct Engine<'s> {
    pub(super) script: &'s Script,
    gates: &'s Gates,
    stage: &'s mut dyn Stage,
    pub(super) composer: Composer,
    pub(super) names: Names,
    pub(super) requests: Requests,
    pub(super) at_work: AtWork,
    pub(super) out: Out,
    /// Answers of the client, by the id of the request as JSON.
    answers: HashMap<String, Result<Value, i64>>,
    /// Of a trace: recorded ids and sessions, and those of this play.
    recorded_ids: HashMap<String, String>,
    recorded_sessions: Vec<(String, String)>,
    /// The blocks that are open; the body is the outermost.
    frames: Vec<Frame<'s>>,
    /// Until when the present statement waits.
    until: Option<Instant>,
    pub(super) is_mute: bool,
    is_reading: bool,
    /// The client has closed its end.
    is_stdin_ended: bool,
    /// `close-stdin` and `close-stdout` were reached.
    closes: Closes,
    /// What it ends with as soon as everything is written.
    ending: Option<How>,
}

#[derive(Debug, Default)]
struct Closes {
    stdin: bool,
    stdout: bool,
}

struct Frame<'s> {
    steps: &'s [Step],
    at: usize,
    /// The rounds that are still to come after this one.
    rounds: u64,
    is_repeat: bool,
}

/// What came of trying the next statement.
#[derive(PartialEq, Eq)]
enum Tried {
    Done,
    Waits,
}

impl<'s> Engine<'s> {
    pub(super) fn new(
        script: &'s Script,
        gates: &'s Gates,
        stage: &'s mut dyn Stage,
        frames: Option<u64>,
        bytes: Option<u64>,
    ) -> Self {
        let mut composer = Composer::new(&script.settings);
        composer.environment = stage.variables();
        composer.environment.sort();
        let mut names = Names::default();
        for name in &script.settings.variables {
            names.variables.insert(name.clone(), stage.variable(name).unwrap_or_default());
        }
        Self {
            script,
            gates,
            stage,
            composer,
            names,
            requests: Requests::default(),
            at_work: AtWork::default(),
            out: Out::new(frames, bytes),
            answers: HashMap::new(),
            recorded_ids: HashMap::new(),
            recorded_sessions: Vec::new(),
            frames: vec![Frame { steps: &script.body, at: 0, rounds: 0, is_repeat: false }],
            until: None,
            is_mute: false,
            is_reading: true,
            is_stdin_ended: false,
            closes: Closes::default(),
            ending: None,
        }
    }

    pub(super) async fn play<R, W>(mut self, reader: R, writer: W) -> PlayEnd
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let reader = MessageReader::with_limit(reader, FRAME_LIMIT_BYTES);
        let mut reader = Some(reader.strict(self.script.settings.strict));
        let mut writer = Some(writer);
        loop {
            if self.out.is_empty() {
                if self.out.is_cut() {
                    return self.end(How::Signal(crate::Signal::Kill));
                }
                if let Some(how) = self.ending.take() {
                    return self.end(how);
                }
                if self.step() == Tried::Done {
                    self.close(&mut reader, &mut writer).await;
                    continue;
                }
                self.answer_waiting();
                if self.out.is_empty() && self.is_stdin_ended {
                    // What could be done without the client is done.
                    if let OnStdinEnd::Exit(code) = self.script.settings.stdin_end {
                        return self.end(How::Exit(code));
                    }
                }
            }
            let writes = !self.out.is_empty();
            let reads = self.is_reading && !self.is_stdin_ended && self.out.queued_bytes() < HIGH_WATER_BYTES;
            tokio::select! {
                written = advance(&mut self.out, writer.as_mut()), if writes => {
                    if written.is_err() {
                        return self.end(How::ClientGone);
                    }
                }
                read = next(reader.as_mut()), if reads => self.take_in(read),
                () = waited(self.until, self.gates, self.frames.last()), if !writes => {}
            }
        }
    }

    async fn close<R, W: AsyncWrite + Unpin>(
        &mut self,
        reader: &mut Option<MessageReader<R>>,
        writer: &mut Option<W>,
    ) {
        if std::mem::take(&mut self.closes.stdin) {
            *reader = None;
        }
        if std::mem::take(&mut self.closes.stdout)
            && let Some(mut writer) = writer.take()
        {
            // A reader that is gone already is as closed as it can be.
            let _ = writer.shutdown().await;
        }
    }

    pub(super) fn is_body_done(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes a line, in a write of its own.
    pub(super) fn say(&mut self, line: &str) {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        self.push(bytes);
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.at_work.observe(&bytes);
        self.out.push(bytes);
    }

    pub(super) fn end_after_writing(&mut self, how: How) {
        self.ending.get_or_insert(how);
        self.frames.clear();
    }

    fn take_in(&mut self, read: Result<Option<Inbound>, ReadError>) {
        let message = match read {
            Ok(Some(inbound)) => inbound.message,
            Ok(None) => {
                self.is_stdin_ended = true;
                return;
            }
            Err(ReadError::NotStrict(kept)) => {
                let what = format!("the client wrote what is no message: {kept}");
                self.end_after_writing(How::ClientWrong { line: 0, what });
                return;
            }
            Err(_) => {
                self.is_stdin_ended = true;
                return;
            }
        };
        match message {
            OwnedMessage::Request { id, method, params } => {
                let params: Value =
                    params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
                let session = params.get("sessionId").and_then(Value::as_str).map(str::to_owned);
                self.requested(Request { id: id.to_string(), method, session, params });
            }
            OwnedMessage::Notification { method, .. } => self.requests.notified(&method),
            OwnedMessage::Response { id, outcome } => {
                let outcome = match outcome {
                    Ok(raw) => Ok(serde_json::from_str(raw.get()).unwrap_or_default()),
                    Err(error) => Err(error.code),
                };
                self.answers.insert(id.to_string(), outcome);
            }
        }
    }

    /// Tries the next statement.
    fn step(&mut self) -> Tried {
        let Some(frame) = self.frames.last_mut() else { return Tried::Waits };
        let Some(step) = frame.steps.get(frame.at) else {
            if frame.rounds > 0 {
                frame.rounds -= 1;
                frame.at = 0;
                if let Some(round) = self.names.rounds.last_mut() {
                    *round += 1;
                }
                return Tried::Done;
            }
            if self.frames.pop().is_some_and(|frame| frame.is_repeat) {
                self.names.rounds.pop();
            } else if self.frames.is_empty() {
                self.answer_the_rest();
            }
            return Tried::Done;
        };
        let tried = self.run(step);
        if tried == Tried::Done {
            self.until = None;
            // A statement that opened a block has moved its own frame on.
            if !matches!(step.what, Statement::Repeat { .. })
                && let Some(frame) = self.frames.last_mut()
            {
                frame.at += 1;
            }
        }
        tried
    }

    fn run(&mut self, step: &'s Step) -> Tried {
        match &step.what {
            Statement::Take { method, session, name } => {
                let Some(request) = self.take_request(method, session.as_ref()) else { return Tried::Waits };
                let is_prompt = method == "session/prompt";
                let message = if is_prompt { self.composer.message_id() } else { String::new() };
                let taken = request.taken(message);
                self.names.take(name.as_deref(), taken);
            }
            Statement::Prompt { session, name } => {
                let Some(request) = self.take_request("session/prompt", Some(session)) else {
                    return Tried::Waits;
                };
                let taken = request.taken(self.composer.message_id());
                let met = request.session.unwrap_or_default();
                for line in self.composer.accept(&met, &taken) {
                    self.say(&line);
                }
                self.say_message_id(&taken);
                self.names.take(name.as_deref(), taken);
            }
            Statement::Wait(wait) => return self.wait_for(step.line, wait),
            Statement::Emit(Emit::Fill { bytes, byte }) => self.out.push_fill(*byte, *bytes),
            Statement::Emit(emit) => {
                let mut bytes = Vec::new();
                self.composer.compose(emit, &mut self.names, &mut bytes);
                self.push(bytes);
            }
            Statement::Together(body) => {
                let bytes = self.compose_all(body);
                self.push(bytes);
            }
            Statement::Split { how, pause, body } => {
                let bytes = self.compose_all(body);
                self.at_work.observe(&bytes);
                for piece in pieces(&bytes, how) {
                    self.out.push(piece.to_vec());
                    self.out.push_pause(*pause);
                }
            }
            Statement::Repeat { count, body } => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.at += 1;
                }
                if let Some(rounds) = count.checked_sub(1) {
                    self.names.rounds.push(1);
                    self.frames.push(Frame { steps: body, at: 0, rounds, is_repeat: true });
                }
            }
            Statement::After(pause) => {
                let until = *self.until.get_or_insert_with(|| Instant::now() + *pause);
                if Instant::now() < until {
                    return Tried::Waits;
                }
            }
            Statement::Gate { name, within } => {
                let until = *self.until.get_or_insert_with(|| Instant::now() + *within);
                if !self.gates.is_open(name) {
                    if Instant::now() < until {
                        return Tried::Waits;
                    }
                    self.end_after_writing(How::GateClosed { line: step.line, name: name.clone() });
                }
            }
            Statement::Stderr(text) => {
                let text = format!("{}\n", text.plain(&self.names));
                self.stage.stderr(text.as_bytes());
            }
            Statement::StderrBytes(bytes) => self.stage.stderr(bytes),
            Statement::StderrFill(bytes) => {
                let mut left = *bytes;
                while left > 0 {
                    let piece = usize::try_from(left).unwrap_or(usize::MAX).min(STDERR_PIECE);
                    self.stage.stderr(&vec![b'x'; piece]);
                    left -= piece as u64;
                }
            }
            Statement::Exit(code) => self.end_after_writing(How::Exit(*code)),
            Statement::Kill(signal) => self.end_after_writing(How::Signal(*signal)),
            Statement::CloseStdout => {
                self.closes.stdout = true;
                self.out.clear();
            }
            Statement::CloseStdin => {
                self.closes.stdin = true;
                self.is_reading = false;
            }
            Statement::StopReading => self.is_reading = false,
            Statement::StartReading => self.is_reading = true,
            Statement::LeaveBehind(how_long) => {
                if let Err(error) = self.stage.leave_behind(*how_long) {
                    self.stage.stderr(format!("failed to leave a process behind: {error}\n").as_bytes());
                }
            }
            Statement::Mute => self.is_mute = true,
            Statement::Recorded { .. }
            | Statement::RecordedFrame { .. }
            | Statement::StreamPrompts(_)
            | Statement::StreamReplies(_)
            | Statement::Part { .. } => return self.run_recorded(&step.what),
        }
        Tried::Done
    }

    fn wait_for(&mut self, line: u32, wait: &Wait) -> Tried {
        let has_come = match wait {
            Wait::Request(method) => self.requests.count_request(method),
            Wait::Notification(method) => self.requests.count_notification(method),
            Wait::StdinEnd => self.is_stdin_ended,
            Wait::Answer { name, wanted } => {
                let id = self.names.asked.get(name.as_deref().unwrap_or_default());
                match id.and_then(|id| self.answers.remove(id)) {
                    None => false,
                    Some(answer) => {
                        if let Some(what) = objection(wanted, &answer, &self.names) {
                            self.end_after_writing(How::ClientWrong { line, what });
                        }
                        true
                    }
                }
            }
        };
        if has_come { Tried::Done } else { Tried::Waits }
    }

    /// All that a block writes.
    fn compose_all(&mut self, body: &[Step]) -> Vec<u8> {
        let mut bytes = Vec::new();
        compose(body, &mut self.composer, &mut self.names, &mut bytes);
        bytes
    }

    /// What comes of recordings.
    fn run_recorded(&mut self, what: &Statement) -> Tried {
        match what {
            Statement::Recorded { method, id, session } => {
                let recorded = &self.script.settings.recorded_sessions;
                let place = self.requests.inbox.iter().position(|request| {
                    // A session that the trace knows is matched with itself; any other takes the place of one.
                    request.method == *method
                        && (request.session == *session
                            || request.session.as_ref().is_none_or(|session| !recorded.contains(session)))
                });
                let Some(request) = place.and_then(|place| self.requests.inbox.remove(place)) else {
                    return Tried::Waits;
                };
                self.recorded_ids.insert(id.clone(), request.id);
                if let (Some(recorded), Some(live)) = (session, request.session)
                    && *recorded != live
                {
                    self.recorded_sessions.push((recorded.clone(), live));
                }
            }
            Statement::RecordedFrame { frame, answers } => {
                let mut line = frame.to_string();
                for (recorded, live) in &self.recorded_sessions {
                    line = crate::recorded::with_session(&line, recorded, live);
                }
                if let Some(recorded) = answers {
                    let id = self.recorded_ids.get(recorded).map_or("null", String::as_str);
                    line = format!(r#"{{"jsonrpc":"2.0","id":{id},{line}}}"#);
                }
                self.say(&line);
            }
            Statement::StreamPrompts(prompts) => {
                let has_come = |session: &String| {
                    self.requests.inbox.iter().any(|request| request.session.as_ref() == Some(session))
                };
                if !prompts.iter().all(|(session, _)| has_come(session)) {
                    return Tried::Waits;
                }
            }
            Statement::StreamReplies(prompts) => {
                for (session, message) in prompts.iter() {
                    let named = crate::script::Session::Named(crate::text::Text(session.clone()));
                    if let Some(request) = self.take_request("session/prompt", Some(&named)) {
                        let message = crate::compose::json_string(message);
                        self.say(&reply(&request.id, &format!(r#"{{"messageId":{message}}}"#)));
                    }
                }
            }
            Statement::Part { file, from, to } => self.out.push_file(&Arc::clone(file), *from, *to),
            _ => {}
        }
        Tried::Done
    }
}

/// What the statements of a block write, `repeat` included.
fn compose(body: &[Step], composer: &mut Composer, names: &mut Names, into: &mut Vec<u8>) {
    for step in body {
        match &step.what {
            Statement::Emit(emit) => composer.compose(emit, names, into),
            Statement::Repeat { count, body } => {
                for round in 1..=*count {
                    names.rounds.push(round);
                    compose(body, composer, names, into);
                    names.rounds.pop();
                }
            }
            // The parser lets nothing else into a block that is one write.
            _ => {}
        }
    }
}

fn pieces<'b>(bytes: &'b [u8], how: &Split) -> Vec<&'b [u8]> {
    let mut ends: Vec<usize> = match how {
        Split::Every(size) => (1..=bytes.len() / size).map(|piece| piece * size).collect(),
        Split::At(places) => places.clone(),
        Split::InsideCharacters => {
            // A byte that continues a character: the piece ends before it.
            (0..bytes.len()).filter(|at| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80)).collect()
        }
    };
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut from = 0;
    let mut found = Vec::new();
    for end in ends {
        let end = end.min(bytes.len());
        if end > from {
            found.extend(bytes.get(from..end));
            from = end;
        }
    }
    found
}

/// What is wrong with an answer.
fn objection(wanted: &Wanted, answer: &Result<Value, i64>, names: &Names) -> Option<String> {
    match (wanted, answer) {
        (Wanted::Anything, _) | (Wanted::Error(None), Err(_)) | (Wanted::Result(None), Ok(_)) => None,
        (Wanted::Error(Some(wanted)), Err(code)) if wanted == code => None,
        (Wanted::Error(_), Err(code)) => Some(format!("the client answered with error {code}")),
        (Wanted::Error(_), Ok(result)) => Some(format!("the client answered with the result {result}")),
        (Wanted::Result(_), Err(code)) => Some(format!("the client answered with error {code}")),
        (Wanted::Result(Some(wanted)), Ok(result)) => {
            let is_equal =
                serde_json::from_str::<Value>(&wanted.json(names)).is_ok_and(|wanted| wanted == *result);
            (!is_equal).then(|| format!("the client answered with the result {result}"))
        }
    }
}

async fn advance<W: AsyncWrite + Unpin>(out: &mut Out, writer: Option<&mut W>) -> std::io::Result<()> {
    match writer {
        Some(writer) => out.advance(writer).await,
        None => {
            out.clear();
            Ok(())
        }
    }
}

async fn next<R: AsyncRead + Unpin>(
    reader: Option<&mut MessageReader<R>>,
) -> Result<Option<Inbound>, ReadError> {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}

/// Returns when it is worth trying the present statement again, apart from what the client sends.
async fn waited(until: Option<Instant>, gates: &Gates, frame: Option<&Frame<'_>>) {
    let Some(until) = until else { return pending().await };
    let step = frame.and_then(|frame| frame.steps.get(frame.at));
    match step.map(|step| &step.what) {
        // A bound that passes is seen by the statement itself.
        Some(Statement::Gate { name, .. }) => drop(timeout_at(until, gates.opened(name)).await),
        _ => sleep_until(until).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_where_a_script_says() {
        let bytes = "aé\u{2028}b".as_bytes();
        let lengths = |how: &Split| pieces(bytes, how).iter().map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&Split::Every(1)), [1; 7]);
        assert_eq!(lengths(&Split::Every(3)), [3, 3, 1]);
        assert_eq!(lengths(&Split::At(vec![5, 2, 99])), [2, 3, 2]);
        assert_eq!(lengths(&Split::InsideCharacters), [2, 2, 1, 2]);
        assert_eq!(pieces(b"", &Split::Every(4)), Vec::<&[u8]>::new());
    }
}
