//! A turn as `--json` ends with it.

use offspring_client::{ChildReport, ChildRun, SessionId, TurnEnd, TurnResult};
use serde::Serialize;

/// `{"result": …}`
#[derive(Serialize)]
pub(crate) struct Outcome<'a> {
    result: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    session_id: &'a SessionId,
    final_response: Option<&'a str>,
    finish_reason: Option<&'a str>,
    /// `idle`, `tree_at_rest`
    end: &'static str,
    notifications: u64,
    tree: Vec<Child<'a>>,
}

#[derive(Serialize)]
struct Child<'a> {
    session: &'a SessionId,
    parent: &'a SessionId,
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    /// `ok`, `error`, a runtime's own word; `open` or `interrupted` when it did not finish.
    status: String,
    stop_reason: Option<&'a str>,
    last_text: Option<String>,
}

impl<'a> Outcome<'a> {
    pub(crate) fn new(result: &'a TurnResult, notifications: u64) -> Self {
        let end = match result.end {
            Some(TurnEnd::Idle) => "idle",
            Some(TurnEnd::TreeAtRest) => "tree_at_rest",
            Some(TurnEnd::RuntimeGone { .. }) | None => "none",
        };
        Self {
            result: Body {
                session_id: &result.session_id,
                final_response: result.final_response.as_deref(),
                finish_reason: result.finish_reason.as_deref(),
                end,
                notifications,
                tree: result.tree.children().iter().map(child).collect(),
            },
        }
    }
}

fn child(child: &ChildReport) -> Child<'_> {
    Child { session: &child.session, parent: &child.parent, runs: child.runs.iter().map(run).collect() }
}

fn run(run: &ChildRun) -> Run<'_> {
    match run {
        ChildRun::Finished(finished) => Run {
            status: finished
                .status
                .as_ref()
                .and_then(|status| serde_json::to_value(status).ok()?.as_str().map(ToOwned::to_owned))
                .unwrap_or_default(),
            stop_reason: finished.stop_reason.as_deref(),
            last_text: finished.last_text(),
        },
        ChildRun::Interrupted => Run { status: "interrupted".to_owned(), stop_reason: None, last_text: None },
        _ => Run { status: "open".to_owned(), stop_reason: None, last_text: None },
    }
}
