//! The turn itself: the prompt, what comes, what is printed of it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use offspring_client::{
    ClientError, Harness, HarnessClient, Keep, Notification, SessionId, TurnError, TurnResult, TurnStream,
    dsh::{InitializeParams, TURN_END},
};
use offspring_process::Secrets;
use serde::Deserialize;
use tokio::time::timeout_at;

use super::{Drive, failed, outcome::Outcome, output::Output, told::Told};
use crate::{
    exit,
    failure::Failure,
    text::{counted, duration, for_stdout, plain, tell},
};

/// How much later than the client the turn itself is given up.
const GRACE: Duration = Duration::from_millis(500);
/// Sessions at work that an error names.
const NAMED: usize = 10;

/// What leaves the terminal as it was, for whoever ends the program at once.
pub(super) type Abandon = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A turn and all it needs.
pub(super) struct Course<'a> {
    pub(super) args: &'a Drive,
    pub(super) client: HarnessClient,
    pub(super) params: InitializeParams,
    pub(super) session: Option<SessionId>,
    pub(super) prompt: String,
    pub(super) secrets: &'a Secrets,
    pub(super) abandon: Abandon,
    pub(super) started: Instant,
}

/// Why there is no result, and what there is.
struct Broken {
    failure: Failure,
    partial: Option<Box<TurnResult>>,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self { failure, partial: None }
    }
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Self {
        failed(error).into()
    }
}

impl From<TurnError> for Broken {
    fn from(error: TurnError) -> Self {
        let failure = failed(error.reason);
        let failure = match error.partial.tree.children().len() {
            0 => failure,
            children => failure.and(format!("until then {} had been started", sessions(children))),
        };
        Self { failure, partial: Some(error.partial) }
    }
}

impl Course<'_> {
    /// Runs it; gives the exit code.
    pub(super) async fn run(mut self) -> Result<u8, Failure> {
        let mut output = Output::start()?;
        let mut count = 0;
        let done = self.turn(&mut output, &mut count).await;
        let code = match done {
            Ok(code) => Ok(code),
            Err(Broken { failure, partial }) => {
                let failure = failure.without(self.secrets);
                if self.args.json {
                    let session = self.session.as_ref();
                    let outcome = Outcome::failed(session, partial.as_deref(), count, failure.to_string());
                    // What went wrong first is what is said.
                    let _ = output.write_json(&outcome).await;
                    let _ = output.finish().await;
                }
                Err(failure)
            }
        };
        output.finish().await.and(code)
    }

    async fn turn(&mut self, output: &mut Output, count: &mut u64) -> Result<u8, Broken> {
        let harness = Harness::over(self.client.clone(), &self.params).await?;
        let session = match self.session.take() {
            Some(id) if self.args.resume => harness.resume(id).await?,
            Some(id) => harness.session(id),
            None => harness.new_session()?,
        };
        self.session = Some(session.id().clone());
        let told = self.told(session.id());
        // Nothing but the result is kept, and a reader of stdout that is slow holds up the runtime and nobody else.
        let turn = session.turn(&self.prompt).keep(Keep::Nothing).hold_runtime();
        let begun = if self.args.tree { turn.stream_tree().await } else { turn.stream().await };
        let mut stream = begun?;
        let mut cause = None;
        // Behind the bounds of the client, whose errors say more; a tree that talks on and on has none of those.
        let bound = self.args.timeout.map(|seconds| Duration::from_secs(seconds) + GRACE);
        let deadline = bound.and_then(|bound| Instant::now().checked_add(bound));
        loop {
            let next = match deadline {
                Some(deadline) => match timeout_at(deadline.into(), stream.next()).await {
                    Ok(next) => next,
                    Err(_) => return Err(self.overdue(session.id(), stream)),
                },
                None => stream.next().await,
            };
            let Some(next) = next else { break };
            let notification = next?;
            *count += 1;
            // T12, and the last one counts.
            if notification.event_type() == Some(TURN_END)
                && notification.session_id() == Some(session.id().as_str())
            {
                cause = fault(&notification);
            }
            told.take(&notification);
            if self.args.json {
                // The bytes of the payload are the runtime's own.
                output.write_json(&notification).await?;
            }
        }
        let result = stream.finish()?;
        let is_error = result.finish_reason.as_deref() == Some("error");
        told.finish(!is_error).await;
        let cause = cause.filter(|_| is_error).map(|cause| self.secrets.redact(&cause).into_owned());
        if self.args.json {
            output.write_json(&Outcome::new(&result, *count, cause.as_deref())).await?;
        } else if let Some(text) = &result.final_response {
            output.write(format!("{}\n", for_stdout(text).trim_end_matches('\n'))).await?;
        }
        output.finish().await?;
        if is_error {
            let cause = cause.as_deref().unwrap_or("the runtime does not say why");
            tell(&format!("error: the model turn ended as `error`: {}", plain(cause)));
        }
        if !self.args.quiet && !self.args.json {
            tell(&self.secrets.redact(&summary(&result, *count, self.started)));
        }
        Ok(if is_error { exit::FAILED } else { exit::DONE })
    }

    fn overdue(&self, root: &SessionId, stream: TurnStream) -> Broken {
        let seconds = self.args.timeout.unwrap_or_default();
        let open = self.client.at_work(root);
        let named: Vec<String> = open.iter().take(NAMED).map(|id| plain(id.as_str()).into_owned()).collect();
        let more = if open.len() > NAMED { ", …" } else { "" };
        let failure = Failure::new(format!(
            "the turn was not over after {seconds} s (--timeout); at work: {}{more}",
            named.join(", ")
        ));
        Broken { failure, partial: stream.finish().ok().map(Box::new) }
    }

    fn told(&self, root: &SessionId) -> Told {
        if self.args.quiet || self.args.json {
            return Told::Not;
        }
        let told = Told::start(root, self.secrets);
        if let Told::Tree(tree) = &told {
            let mut abandon = self.abandon.lock().unwrap_or_else(PoisonError::into_inner);
            *abandon = Some(Box::new(tree.abandoning()));
        }
        told
    }
}

/// Why a model turn ended as `error`, in the words of the runtime.
fn fault(turn_end: &Notification) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        reason: Reason,
    }
    #[derive(Deserialize)]
    struct Reason {
        error: Fault,
    }
    #[derive(Deserialize)]
    struct Fault {
        code: Option<String>,
        message: Option<String>,
    }
    let Data { reason } = serde_json::from_str(turn_end.event_data()?.get()).ok()?;
    let words: Vec<String> = [reason.error.code, reason.error.message].into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(": "))
}

fn sessions(number: usize) -> String {
    counted(number, "session", "sessions")
}

fn summary(result: &TurnResult, count: u64, started: Instant) -> String {
    let children = result.tree.children();
    let runs = children.iter().flat_map(|child| &child.runs);
    let failed = runs.filter(|run| !run.is_ok()).count();
    format!(
        "{}: {}, {failed} failed or open, {}, {}; session {}",
        plain(result.finish_reason.as_deref().unwrap_or("no model turn")),
        sessions(children.len() + 1),
        counted(usize::try_from(count).unwrap_or(usize::MAX), "notification", "notifications"),
        duration(started.elapsed()),
        plain(result.session_id.as_str()),
    )
}
