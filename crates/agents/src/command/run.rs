//! One run of a command.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use offspring_delegation::Prompt;
use offspring_process::{Environment, Exit, ExitKind, Ladder, Process, ProcessSpec, Stdin, StdinPipe, spawn};
use offspring_protocol::{
    Event,
    event::{Custom, TextDelta},
};
use offspring_sessions::{Answer, RunContext, RunError, StoreError};
use serde_json::value::to_raw_value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::ChildStdout,
    time::Instant,
};

use super::{
    Command, PromptBy,
    host::Open,
    no_argument,
    output::{BLOCK_BYTES, Output, Rest},
    variables,
};
use crate::home::private_file;

/// The name of the [`Custom`] event that carries the last line of a program's stderr.
pub(crate) const STDERR_LINE: &str = "stderr_line";
/// Lines of stderr are shown at most this often; the last one always is.
const STDERR_EVERY: Duration = Duration::from_millis(200);

fn failed(code: &'static str) -> impl Fn(io::Error) -> RunError {
    move |error| RunError::failed(code, error.to_string())
}

pub(super) async fn run(agent: Arc<Command>, prompt: Prompt, cx: RunContext) -> Result<Answer, RunError> {
    let cx = Arc::new(cx);
    let stop = cx.stop_requested();
    let host = agent.host.open(&agent.delegator).map_err(failed("endpoint"))?;
    let scratch = host.home.scratch().map_err(failed("scratch"))?;
    // Withdrawn when this run is over: a process that escaped could not delegate any more.
    let grant = host
        .endpoint
        .grant(Arc::clone(&cx), agent.workers.clone(), agent.max_prompt_bytes)
        .map_err(failed("endpoint"))?;
    let environment = environment(&agent, &host, &cx, &scratch, grant.token());
    let mut process = start(&agent, &prompt, &cx, &scratch, environment)?;
    if let Some(identity) = process.identity() {
        cx.record_process(identity.to_string()).await?;
    }

    let input = feed(process.take_stdin(), &agent, prompt);
    let heard = Heard::new(&agent);
    let output = heard.read(process.take_stdout(), &cx);
    let said = Said::default();
    let lines = said.lines(&process, &agent, &cx);
    let work = async {
        let ((), output, exit) = tokio::join!(input, output, process.wait());
        output.map(|()| exit)
    };
    tokio::pin!(work);
    let kill = &agent.host.kill;
    let asked_to_stop = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = kill.cancelled() => {}
        }
    };
    // Whatever there is of an answer is given, also when the store takes nothing more.
    let broken = |error: StoreError| RunError::from(error).with_partial(heard.take().0);
    let exit = tokio::select! {
        // First: a store that takes nothing more asks to stop too, and the program gets its grace then.
        biased;
        () = asked_to_stop => {
            let stopping = process.stop(Ladder::terminate().terminate_within(agent.stop_grace));
            let stopping = async {
                tokio::select! {
                    _ = stopping => {}
                    // Somebody cannot wait any longer.
                    () = kill.cancelled() => {
                        process.stop(Ladder::at_once()).await;
                    }
                }
            };
            tokio::pin!(stopping);
            // Its output is read to the end: without a reader the first line it prints on its way out would
            // end it, and with it what it wanted to put in order.
            tokio::select! {
                () = &mut stopping => {}
                _ = &mut work => {
                    stopping.await;
                }
            }
            // Nobody asks for the answer of what was cancelled.
            let partial = if cx.is_cancelled() { String::new() } else { heard.take().0 };
            return Err(RunError::interrupted("cancelled", "cancelled").with_partial(partial));
        }
        done = &mut work => done.map_err(broken)?,
        // Ends only with an error of the store.
        failed = lines => return Err(broken(failed)),
    };
    // The last line is shown, however soon after another it came.
    said.show(exit.stderr_tail.last_line(), &agent, &cx).await.map_err(broken)?;
    let (text, left_out) = heard.take();
    cx.left_out(left_out);
    let answer = outcome(&agent, text, &exit)?;
    match cx.streamed(answer.text.len()).await {
        Ok(message) => Ok(Answer { message, ..answer }),
        Err(error) => Err(RunError::from(error).with_partial(answer.text)),
    }
}

fn environment(agent: &Command, open: &Open, cx: &RunContext, scratch: &TempDir, token: &str) -> Environment {
    let host = &agent.host;
    let mut environment = agent.environment.clone();
    // Agents find `offspring` although nobody installed it, and this one before any other.
    let path = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    if let Ok(path) = std::env::join_paths(std::iter::once(open.home.bin()).chain(path)) {
        environment = environment.set("PATH", path);
    }
    environment = environment
        .set(variables::BIN, &host.program)
        .set(variables::SESSION, cx.session().id.as_str())
        .set(variables::SOCKET, open.endpoint.path())
        .set(variables::TOKEN, token)
        .set(variables::MANIFEST_DIR, &agent.manifest_dir)
        .set(variables::SCRATCH, scratch.path());
    if let Some(db) = &host.db {
        environment = environment.set(variables::DB, db);
    }
    environment
}

fn start(
    agent: &Command,
    prompt: &Prompt,
    cx: &RunContext,
    scratch: &TempDir,
    mut environment: Environment,
) -> Result<Process, RunError> {
    let no_directory = || RunError::failed("cwd", "the session has no working directory");
    let cwd = cx.cwd().ok_or_else(no_directory)?;
    let mut arguments = agent.arguments.clone();
    match agent.prompt {
        PromptBy::Stdin => {}
        PromptBy::Argument => {
            // A member of a team is asked without having been heard before.
            if let Some(message) = no_argument(&prompt.text) {
                return Err(RunError::failed("prompt", message));
            }
            arguments.push(prompt.text.as_ref().into());
        }
        PromptBy::File => {
            let file = scratch.path().join("prompt");
            private_file(&file)
                .and_then(|mut file| file.write_all(prompt.text.as_bytes()))
                .map_err(failed("scratch"))?;
            environment = environment.set(variables::PROMPT_FILE, &file);
            arguments.push(file.into());
        }
    }
    let mut spec = ProcessSpec::new(&agent.program, cwd).args(arguments).environment(environment);
    spec = spec.grace(agent.stop_grace).stdin(match agent.prompt {
        PromptBy::Stdin => Stdin::Pipe,
        PromptBy::Argument | PromptBy::File => Stdin::Null,
    });
    if let Some(guard) = &agent.host.guard {
        spec = spec.guard(guard.clone());
    }
    spawn(&spec).map_err(|error| RunError::failed("spawn", error.to_string()))
}

/// Writes the prompt, which nobody needs after that, and ends the input. A program that does not want it is not in the wrong.
async fn feed(stdin: Option<StdinPipe>, agent: &Command, prompt: Prompt) {
    let Some(mut stdin) = stdin else { return };
    if let Err(error) = stdin.write_all(prompt.text.as_bytes()).await {
        tracing::debug!(agent = %agent.name, %error, "the program did not read its whole prompt");
    }
}

/// What the program printed on stdout so far.
struct Heard(Mutex<Stage>);

enum Stage {
    Growing(Output),
    Ended(Rest),
    Taken,
}

impl Heard {
    fn new(agent: &Command) -> Self {
        let limit = usize::try_from(agent.max_output_bytes).unwrap_or(usize::MAX);
        Self(Mutex::new(Stage::Growing(Output::new(limit, &agent.withheld))))
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads stdout to its end and streams what is kept of it.
    async fn read(&self, stdout: Option<ChildStdout>, cx: &RunContext) -> Result<(), StoreError> {
        if let Some(mut stdout) = stdout {
            let mut buffer = vec![0; BLOCK_BYTES];
            loop {
                let read = match stdout.read(&mut buffer).await {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) => {
                        tracing::warn!(%error, "the output of a program cannot be read");
                        break;
                    }
                };
                // Also where nothing of it is shown.
                cx.heard();
                let new = self.push(&buffer[..read]);
                show(new, cx).await?;
            }
        }
        self.end();
        while let Some(piece) = self.next() {
            show(piece, cx).await?;
        }
        Ok(())
    }

    fn push(&self, bytes: &[u8]) -> String {
        match &mut *self.lock() {
            Stage::Growing(output) => output.push(bytes).to_owned(),
            Stage::Ended(_) | Stage::Taken => String::new(),
        }
    }

    fn end(&self) {
        let mut stage = self.lock();
        *stage = match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Growing(output) => Stage::Ended(output.finish()),
            other => other,
        };
    }

    fn next(&self) -> Option<String> {
        match &mut *self.lock() {
            Stage::Ended(rest) => rest.next(),
            Stage::Growing(_) | Stage::Taken => None,
        }
    }

    /// All that is kept, and how many bytes are not; once.
    fn take(&self) -> (String, u64) {
        self.end();
        while self.next().is_some() {}
        match std::mem::replace(&mut *self.lock(), Stage::Taken) {
            Stage::Ended(rest) => {
                let left_out = rest.left_out();
                (rest.into_text(), left_out)
            }
            Stage::Growing(_) | Stage::Taken => (String::new(), 0),
        }
    }
}

async fn show(text: String, cx: &RunContext) -> Result<(), StoreError> {
    if text.is_empty() {
        return Ok(());
    }
    cx.emit(Event::TextDelta(TextDelta { text })).await
}

/// What the program said on stderr, the last line at a time.
#[derive(Default)]
struct Said(Mutex<String>);

impl Said {
    /// Shows lines as they come, not every one. Never ends but with an error.
    async fn lines(&self, process: &Process, agent: &Command, cx: &RunContext) -> StoreError {
        let mut bytes = process.watch_stderr_bytes();
        if *bytes.borrow() > 0 {
            // Written before we looked.
            bytes.mark_changed();
        }
        while bytes.changed().await.is_ok() {
            // Also the same line again is a sign of life.
            cx.heard();
            let shown = Instant::now();
            if let Err(error) = self.show(process.stderr_last_line(), agent, cx).await {
                return error;
            }
            tokio::time::sleep_until(shown + STDERR_EVERY).await;
        }
        std::future::pending().await
    }

    async fn show(&self, line: String, agent: &Command, cx: &RunContext) -> Result<(), StoreError> {
        {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if line.is_empty() || *last == line {
                return Ok(());
            }
            last.clone_from(&line);
        }
        match to_raw_value(&agent.withheld.line(&line)) {
            Ok(data) => cx.emit(Event::Custom(Custom { name: STDERR_LINE.to_owned(), data })).await,
            // A text can always be written.
            Err(_) => Ok(()),
        }
    }
}

fn outcome(agent: &Command, text: String, exit: &Exit) -> Result<Answer, RunError> {
    if !exit.survivors.is_empty() {
        tracing::warn!(agent = %agent.name, pids = ?exit.survivors, "processes of a run could not be ended");
    }
    let last = agent.withheld.line(&exit.stderr_tail.last_line());
    let said = if last.is_empty() { String::new() } else { format!(": {last}") };
    match exit.status {
        ExitKind::Code(0) => Ok(text.into()),
        ExitKind::Code(status) => {
            // What shells and our guard mean by these two.
            let why = match status {
                126 => " (not executable)",
                127 => " (command not found)",
                _ => "",
            };
            let message = format!("{} exited with status {status}{why}{said}", agent.name);
            Err(RunError::failed("exit_status", message).with_partial(text))
        }
        ExitKind::Signal(signal) => {
            let message = format!("{} was ended by signal {signal}{}{said}", agent.name, name_of(signal));
            Err(RunError::failed("signal", message).with_partial(text))
        }
        ExitKind::Unknown => {
            let message = format!("how {} ended is not known{said}", agent.name);
            Err(RunError::interrupted("unknown_status", message).with_partial(text))
        }
    }
}

/// The name of a signal that ends programs.
const fn name_of(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
