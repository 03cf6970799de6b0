//! The text of a script, line by line.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::expect::expect;
use super::line::{Line, PAGE};
use super::words::{self, Word};
use super::{
    Emit, Expect, Message, OnShutdown, OnSigterm, OnStdinEnd, Script, ScriptError, Session, Settings, Signal,
    Split, Statement, Step, Wait, Wanted,
};
use crate::text::Text;

/// The version of the language that is read here.
const VERSION: &str = "1";
/// How long a gate is waited for unless the script says otherwise.
const GATE_WITHIN: Duration = Duration::from_secs(60);

const STATEMENTS: &[&str] = &[
    "after",
    "ask",
    "bytes",
    "close-stdin",
    "close-stdout",
    "drive",
    "end",
    "environment",
    "error",
    "event",
    "exit",
    "expect",
    "fill",
    "filler",
    "finished",
    "gate",
    "hex",
    "kill",
    "leave-behind",
    "line",
    "message",
    "mute",
    "notify",
    "on",
    "prompt",
    "receipt",
    "repeat",
    "reply",
    "rule",
    "split",
    "start-reading",
    "started",
    "status",
    "stderr",
    "stderr-bytes",
    "stderr-fill",
    "stop-reading",
    "strict",
    "take",
    "together",
    "turn-end",
    "turn-start",
    "version",
    "wait-for",
    "without",
];

pub(super) fn script(text: &str) -> Result<Script, ScriptError> {
    let mut parser = Parser::default();
    let mut about = Vec::new();
    let mut in_head = true;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.trim();
        match line.strip_prefix('#') {
            Some(comment) if in_head => about.push(comment.strip_prefix(' ').unwrap_or(comment)),
            Some(_) => {}
            None => {
                in_head &= line.is_empty() && about.is_empty();
                parser.line(number, line)?;
            }
        }
    }
    let named = text
        .split("env:")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>());
    parser.settings.variables.extend(named);
    parser.finish(about.join("\n"))
}

#[derive(Default)]
struct Parser {
    settings: Settings,
    rules: Vec<String>,
    expects: Vec<Expect>,
    body: Vec<Step>,
    /// The blocks that are open, the outermost first.
    blocks: Vec<Block>,
    /// Where notifications go that do not say it themselves.
    to: Option<Arc<[Text]>>,
    /// Names given so far: of requests, of sessions.
    requests: BTreeSet<String>,
    sessions: BTreeSet<String>,
}

struct Block {
    line: u32,
    kind: BlockKind,
    body: Vec<Step>,
}

enum BlockKind {
    Together,
    Split(Split, Duration),
    Repeat(u64),
}

impl Parser {
    fn line(&mut self, number: u32, text: &str) -> Result<(), ScriptError> {
        let fail = |what: String| ScriptError::new(number, what, PAGE);
        let (text, to) = tag(text);
        let to = match to {
            Some(tag) => Some(self.tag(number, tag)?),
            None => None,
        };
        if text.is_empty() {
            // `-> root` alone is for all lines below it.
            self.to = to.or_else(|| self.to.take());
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix("line ").or_else(|| (text == "line").then_some("")) {
            let text = self.text_of(number, rest.trim().to_owned())?;
            self.push(number, Statement::Emit(Emit::Line(text)), to);
            return Ok(());
        }
        let mut words = words::words(text).map_err(fail)?.into_iter();
        let statement = match words.next() {
            None => return Ok(()),
            Some(Word::Bare(statement)) => statement,
            Some(other) => return Err(fail(format!("`{}` is no statement", other.shown()))),
        };
        let mut line = Line { number, statement, words };
        if self.setting(&mut line)? || self.block(&mut line)? {
            return line.done();
        }
        let what = match self.emit(&mut line)? {
            Some(emit) => Statement::Emit(emit),
            None => match self.act(&mut line)? {
                Some(what) => what,
                None => return Err(unknown(&line)),
            },
        };
        line.done()?;
        if !matches!(what, Statement::Emit(_)) && self.blocks.iter().any(|block| block.kind.is_one_write()) {
            return Err(line.wrong(
                "stands in a block that is one write",
                "put only what is written into `together` and `split`",
            ));
        }
        self.push(number, what, to);
        Ok(())
    }

    fn push(&mut self, line: u32, what: Statement, to: Option<Arc<[Text]>>) {
        let to = to.or_else(|| self.to.clone());
        let step = Step { line, what, to };
        match self.blocks.last_mut() {
            Some(block) => block.body.push(step),
            None => self.body.push(step),
        }
    }

    fn finish(self, about: String) -> Result<Script, ScriptError> {
        if let Some(block) = self.blocks.last() {
            return Err(ScriptError::new(block.line, "this block has no `end`", "add a line `end`"));
        }
        let Self { settings, rules, expects, body, .. } = self;
        Ok(Script { about, rules, settings, body, expects })
    }

    /// `-> root, a` or `-> unmatched`.
    fn tag(&self, number: u32, tag: &str) -> Result<Arc<[Text]>, ScriptError> {
        let words =
            words::words(&tag.replace(',', " ")).map_err(|what| ScriptError::new(number, what, PAGE))?;
        let mut line = Line { number, statement: "->".to_owned(), words: words.into_iter() };
        let mut targets = Vec::new();
        while line.words.len() > 0 {
            targets.push(self.text(&mut line, "a session or `unmatched`")?);
        }
        if targets.is_empty() {
            return Err(line.wrong("names nobody", "write `-> root`, `-> root, a` or `-> unmatched`"));
        }
        if targets.len() == 1 && targets.iter().all(|target| target.0 == "unmatched") {
            targets.clear();
        }
        Ok(targets.into())
    }

    /// What holds for the whole script.
    fn setting(&mut self, line: &mut Line) -> Result<bool, ScriptError> {
        match line.statement.as_str() {
            "version" => {
                let version = line.bare("a version")?;
                if version != VERSION {
                    return Err(line.wrong(
                        &format!("asks for version {version} of the language"),
                        &format!("this program reads version {VERSION}"),
                    ));
                }
            }
            "rule" => {
                self.rules.push(line.bare("a rule")?);
                while line.words.len() > 0 {
                    self.rules.push(line.bare("a rule")?);
                }
            }
            "without" => {
                let method = line.bare("a method")?;
                self.settings.without.insert(method);
            }
            "strict" => self.settings.strict = true,
            "drive" => {
                self.settings.prompts_at_once = line.one_of(&["one-by-one", "at-once"])? == "at-once";
            }
            "on" => match line.one_of(&["shutdown", "stdin-end", "sigterm"])?.as_str() {
                "shutdown" => {
                    self.settings.shutdown = match line.one_of(&["exit", "stay", "ignore"])?.as_str() {
                        "exit" => OnShutdown::Exit(line.optional_code()?),
                        "stay" => OnShutdown::Stay,
                        _ => OnShutdown::Ignore,
                    };
                }
                "stdin-end" => {
                    self.settings.stdin_end = match line.one_of(&["exit", "ignore"])?.as_str() {
                        "exit" => OnStdinEnd::Exit(line.optional_code()?),
                        _ => OnStdinEnd::Ignore,
                    };
                }
                _ => {
                    self.settings.sigterm = match line.one_of(&["exit", "ignore"])?.as_str() {
                        "exit" => OnSigterm::Exit(line.optional_code()?),
                        _ => OnSigterm::Ignore,
                    };
                }
            },
            "expect" => {
                let expect = expect(line)?;
                self.expects.push(expect);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The begin or end of a block.
    fn block(&mut self, line: &mut Line) -> Result<bool, ScriptError> {
        let kind = match line.statement.as_str() {
            "together" => BlockKind::Together,
            "repeat" => BlockKind::Repeat(line.number("a count")?),
            "split" => self.split(line)?,
            "end" => {
                let Some(block) = self.blocks.pop() else {
                    return Err(line.wrong("closes nothing", "remove it, or open a block above it"));
                };
                let what = match block.kind {
                    BlockKind::Together => Statement::Together(block.body),
                    BlockKind::Split(how, pause) => Statement::Split { how, pause, body: block.body },
                    BlockKind::Repeat(count) => Statement::Repeat { count, body: block.body },
                };
                self.push(block.line, what, None);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if kind.is_one_write() && self.blocks.iter().any(|block| block.kind.is_one_write()) {
            return Err(line.wrong("stands in a block that is one write", "close that block first"));
        }
        self.blocks.push(Block { line: line.number, kind, body: Vec::new() });
        Ok(true)
    }

    fn split(&self, line: &mut Line) -> Result<BlockKind, ScriptError> {
        let mut pause = Duration::ZERO;
        let how = match line.one_of(&["every", "at", "inside-characters"])?.as_str() {
            "every" => match line.number("a number of bytes")? {
                0 => return Err(line.wrong("splits every 0 bytes", "write `split every 1`")),
                bytes => Split::Every(usize::try_from(bytes).unwrap_or(usize::MAX)),
            },
            "at" => {
                let mut places = vec![line.number("a place in bytes")?];
                while line.next_is_number() {
                    places.push(line.number("a place in bytes")?);
                }
                Split::At(places.into_iter().map(|at| usize::try_from(at).unwrap_or(usize::MAX)).collect())
            }
            _ => Split::InsideCharacters,
        };
        if line.takes("pause") {
            pause = line.duration()?;
        }
        Ok(BlockKind::Split(how, pause))
    }

    /// What is written.
    fn emit(&mut self, line: &mut Line) -> Result<Option<Emit>, ScriptError> {
        Ok(Some(match line.statement.as_str() {
            "started" => {
                let (parent, child) = (self.session(line)?, self.session(line)?);
                self.settings.children.insert(child.0.clone());
                Emit::Started { parent, child }
            }
            "finished" => {
                let (parent, child) = (self.session(line)?, self.session(line)?);
                let status = self.optional_bare(line)?.unwrap_or_else(|| Text("ok".into()));
                let stop = self.optional_bare(line)?.unwrap_or_else(|| Text("completed".into()));
                let text = self.optional_quoted(line)?;
                Emit::Finished { parent, child, status, stop, text }
            }
            "status" => Emit::Status { session: self.session(line)?, status: self.text(line, "a status")? },
            "event" => Emit::Event {
                session: self.session(line)?,
                kind: self.text(line, "a type")?,
                data: self.optional_json(line)?,
            },
            "receipt" => {
                let session = self.session(line)?;
                let message = if line.takes("id") {
                    Message::Id(self.text(line, "the id of a message")?)
                } else {
                    Message::Of(self.optional_request(line)?)
                };
                Emit::Receipt { session, message }
            }
            "turn-start" => Emit::TurnStart { session: self.session(line)? },
            "turn-end" => {
                let session = self.session(line)?;
                let kind = self.optional_bare(line)?.unwrap_or_else(|| Text("completed".into()));
                let error = match self.optional_bare(line)? {
                    Some(code) => Some((code, self.text(line, "a message")?)),
                    None => None,
                };
                Emit::TurnEnd { session, kind, error }
            }
            "message" => Emit::Message { session: self.session(line)?, text: self.text(line, "a text")? },
            "notify" => {
                Emit::Notify { method: self.text(line, "a method")?, params: self.optional_json(line)? }
            }
            "filler" => Emit::Filler { session: self.session(line)?, bytes: line.size()? },
            "environment" => Emit::Environment { session: self.session(line)? },
            "bytes" => Emit::Bytes(line.bytes()?),
            "hex" => {
                let digits: Vec<String> = line.words.by_ref().map(|word| word.shown()).collect();
                let bytes = words::hex(&digits.join(" ")).map_err(|what| line.error(what))?;
                Emit::Bytes(bytes)
            }
            "fill" => {
                let bytes = line.size()?;
                let byte = if line.words.len() > 0 { line.bytes()?.first().copied() } else { None };
                Emit::Fill { bytes, byte: byte.unwrap_or(b'x') }
            }
            "reply" => {
                let name = if line.words.len() > 1 { self.optional_request(line)? } else { None };
                Emit::Reply { name, result: self.json(line)? }
            }
            "error" => {
                let name = if line.next_is_number() { None } else { self.optional_request(line)? };
                let code = line.integer("an error code")?;
                let message = self.text(line, "a message")?;
                Emit::Error { name, code, message, data: self.optional_json(line)? }
            }
            "ask" => {
                let method = self.text(line, "a method")?;
                let params = if line.next_is_bare("as") { None } else { self.optional_json(line)? };
                Emit::Ask { method, params, name: self.given_name(line)? }
            }
            _ => return Ok(None),
        }))
    }

    /// What is done besides.
    fn act(&mut self, line: &mut Line) -> Result<Option<Statement>, ScriptError> {
        Ok(Some(match line.statement.as_str() {
            "take" => {
                let method = line.bare("a method")?;
                let session = if line.words.len() > 0 && !line.next_is_bare("as") {
                    Some(self.met_session(line)?)
                } else {
                    None
                };
                self.takes(&method, session.as_ref());
                Statement::Take { method, session, name: self.given_name(line)? }
            }
            "prompt" => {
                let session = self.met_session(line)?;
                self.takes("session/prompt", Some(&session));
                Statement::Prompt { session, name: self.given_name(line)? }
            }
            "wait-for" => Statement::Wait(
                match line.one_of(&["request", "notification", "stdin-end", "answer"])?.as_str() {
                    "request" => Wait::Request(line.bare("a method")?),
                    "notification" => Wait::Notification(line.bare("a method")?),
                    "stdin-end" => Wait::StdinEnd,
                    _ => self.wanted_answer(line)?,
                },
            ),
            "after" => Statement::After(line.duration()?),
            "gate" => {
                let name = line.bare("the name of a gate")?;
                let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if !name.chars().all(is_name) || name.starts_with('.') {
                    return Err(line.wrong(
                        &format!("names a gate `{name}`"),
                        "use letters, digits, `-`, `_` and `.`: it is the name of a file",
                    ));
                }
                let within = if line.takes("within") { line.duration()? } else { GATE_WITHIN };
                Statement::Gate { name, within }
            }
            "stderr" => Statement::Stderr(self.text(line, "a text")?),
            "stderr-bytes" => Statement::StderrBytes(line.bytes()?),
            "stderr-fill" => Statement::StderrFill(line.size()?),
            "exit" => Statement::Exit(line.optional_code()?),
            "kill" => {
                let name = if line.words.len() > 0 { line.bare("a signal")? } else { "KILL".into() };
                let signal = Signal::of(&name)
                    .ok_or_else(|| line.wrong(&format!("knows no signal {name}"), "write KILL or ABRT"))?;
                Statement::Kill(signal)
            }
            "close-stdout" => Statement::CloseStdout,
            "close-stdin" => Statement::CloseStdin,
            "stop-reading" => Statement::StopReading,
            "start-reading" => Statement::StartReading,
            "leave-behind" => Statement::LeaveBehind(line.duration()?),
            "mute" => Statement::Mute,
            _ => return Ok(None),
        }))
    }

    fn wanted_answer(&mut self, line: &mut Line) -> Result<Wait, ScriptError> {
        let name = if line.next_is_bare("error") || line.next_is_bare("result") {
            None
        } else {
            self.optional_request(line)?
        };
        let wanted = if line.takes("error") {
            let code = if line.words.len() > 0 { Some(line.integer("an error code")?) } else { None };
            Wanted::Error(code)
        } else if line.takes("result") {
            Wanted::Result(self.optional_json(line)?)
        } else {
            Wanted::Anything
        };
        Ok(Wait::Answer { name, wanted })
    }

    fn takes(&mut self, method: &str, session: Option<&Session>) {
        self.settings.taken.insert(method.to_owned());
        if method == "session/prompt" {
            match session {
                Some(Session::Named(text)) if !text.0.contains("${") => {
                    if let Some(prompted) = &mut self.settings.prompted {
                        prompted.insert(text.0.clone());
                    }
                }
                _ => self.settings.prompted = None,
            }
        }
    }

    /// A session: a name, a text in quotes, or `$who`.
    fn session(&self, line: &mut Line) -> Result<Text, ScriptError> {
        self.text(line, "a session")
    }

    /// A session that the client names: `$who` stands for whichever it is.
    fn met_session(&mut self, line: &mut Line) -> Result<Session, ScriptError> {
        if let Some(Word::Bare(word)) = line.words.as_slice().first()
            && let Some(name) = word.strip_prefix('$')
            && !name.starts_with('{')
        {
            let name = name.to_owned();
            self.sessions.insert(name.clone());
            line.words.next();
            return Ok(Session::Bound(name));
        }
        self.session(line).map(Session::Named)
    }

    fn text(&self, line: &mut Line, what: &str) -> Result<Text, ScriptError> {
        let text = match line.words.next() {
            Some(Word::Bare(word)) => match word.strip_prefix('$') {
                Some(name) if !name.starts_with('{') => format!("${{{name}}}"),
                _ => word,
            },
            Some(Word::Quoted(raw)) => words::text(&raw).map_err(|what| line.error(what))?,
            other => return Err(line.missing(what, other.as_ref())),
        };
        self.text_of(line.number, text)
    }

    /// Refuses names that nothing above has given.
    fn text_of(&self, number: u32, text: String) -> Result<Text, ScriptError> {
        let text = Text(text);
        for name in text.names() {
            let known = match name.split_once('.') {
                Some((request, "id" | "session" | "message" | "text")) => self.requests.contains(request),
                Some(_) => false,
                None => {
                    ["i", "i-1"].contains(&name.as_str())
                        && self.blocks.iter().any(|block| matches!(block.kind, BlockKind::Repeat(_)))
                        || self.sessions.contains(&name)
                        || name.starts_with("env:")
                }
            };
            if !known {
                return Err(ScriptError::new(
                    number,
                    format!("`${{{name}}}` stands for nothing here"),
                    "names come from `prompt $NAME`, from `… as NAME` (NAME.id, .session, .message, .text), from \
                     `repeat` (i) and from the environment (env:NAME)",
                ));
            }
        }
        Ok(text)
    }

    fn json(&self, line: &mut Line) -> Result<Text, ScriptError> {
        match self.optional_json(line)? {
            Some(json) => Ok(json),
            None => Err(line.missing("a JSON value", None)),
        }
    }

    fn optional_json(&self, line: &mut Line) -> Result<Option<Text>, ScriptError> {
        let raw = match line.words.next() {
            None => return Ok(None),
            Some(Word::Bare(raw) | Word::Json(raw)) => raw,
            Some(Word::Quoted(raw)) => format!("\"{raw}\""),
        };
        let text = self.text_of(line.number, raw)?;
        // A name may stand for any JSON, or be part of a text; 0 is right in both places.
        let sample = text
            .names()
            .iter()
            .fold(text.0.clone(), |sample, name| sample.replace(&format!("${{{name}}}"), "0"));
        match serde_json::from_str::<serde::de::IgnoredAny>(&sample) {
            Ok(_) => Ok(Some(text)),
            Err(error) => Err(line.wrong(
                &format!("has `{}`, which is no JSON ({error})", text.0),
                "write an object, an array, a text in quotes, a number, true, false or null",
            )),
        }
    }

    fn optional_bare(&self, line: &mut Line) -> Result<Option<Text>, ScriptError> {
        match line.words.as_slice().first() {
            Some(Word::Bare(_)) => self.text(line, "a word").map(Some),
            _ => Ok(None),
        }
    }

    fn optional_quoted(&self, line: &mut Line) -> Result<Option<Text>, ScriptError> {
        match line.words.as_slice().first() {
            Some(Word::Quoted(_)) => self.text(line, "a text").map(Some),
            _ => Ok(None),
        }
    }

    /// The name of a request that was taken or asked above.
    fn optional_request(&self, line: &mut Line) -> Result<Option<String>, ScriptError> {
        let Some(Word::Bare(name)) = line.words.as_slice().first() else { return Ok(None) };
        let name = name.clone();
        if !self.requests.contains(&name) {
            return Err(line.wrong(
                &format!("speaks of a request `{name}` that was not taken"),
                &format!("write `take METHOD as {name}`, `prompt SESSION as {name}` or `ask METHOD as {name}` above it"),
            ));
        }
        line.words.next();
        Ok(Some(name))
    }

    /// `as NAME`.
    fn given_name(&mut self, line: &mut Line) -> Result<Option<String>, ScriptError> {
        if !line.takes("as") {
            return Ok(None);
        }
        let name = line.bare("a name")?;
        self.requests.insert(name.clone());
        Ok(Some(name))
    }
}

impl BlockKind {
    fn is_one_write(&self) -> bool {
        matches!(self, Self::Together | Self::Split(..))
    }
}

/// The text of a line and what stands behind its `->`.
fn tag(text: &str) -> (&str, Option<&str>) {
    if let Some(tag) = text.strip_prefix("->") {
        return ("", Some(tag));
    }
    match text.rsplit_once(" -> ") {
        Some((before, tag)) if !tag.contains(['{', '}', '[', ']']) && tag.matches('"').count() % 2 == 0 => {
            (before.trim_end(), Some(tag))
        }
        _ => (text, None),
    }
}

fn unknown(line: &Line) -> ScriptError {
    let word = &line.statement;
    let nearest = STATEMENTS
        .iter()
        .map(|statement| (strsim::damerau_levenshtein(word, statement), statement))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    let advice = nearest.map_or_else(|| PAGE.to_owned(), |(_, name)| format!("did you mean `{name}`?"));
    ScriptError::new(line.number, format!("there is no statement `{word}`"), advice)
}

#[cfg(test)]
mod tests;
