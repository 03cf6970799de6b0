//! A turn as `--json` ends with it.

use std::borrow::Cow;

use offspring_client::{ChildReport, ChildRun, SessionId, TurnEnd, TurnResult};
use serde::Serialize;

/// How a turn ended that did not end.
const FAILED: &str = "failed";

/// `{"result": …}`
#[derive(Serialize)]
pub(crate) struct Outcome<'a> {
    result: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    /// `None` when there was none yet.
    session_id: Option<&'a SessionId>,
    final_response: Option<&'a str>,
    finish_reason: Option<&'a str>,
    /// `idle`, `tree_at_rest`, or `failed` with the `error`.
    end: &'static str,
    /// Why it failed, or why its model turn ended as `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
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
    /// A turn that ended; with the cause when its model turn ended as `error`.
    pub(crate) fn new(result: &'a TurnResult, notifications: u64, cause: Option<&'a str>) -> Self {
        let end = match result.end {
            Some(TurnEnd::Idle) => "idle",
            Some(TurnEnd::TreeAtRest) => "tree_at_rest",
            Some(TurnEnd::RuntimeGone { .. }) | None => FAILED,
        };
        let mut body = Body::of(Some(result), notifications);
        (body.end, body.error) = (end, cause.map(Cow::Borrowed));
        Self { result: body }
    }

    /// A turn that did not end as it should, with what there is of it.
    pub(crate) fn failed(
        session: Option<&'a SessionId>,
        partial: Option<&'a TurnResult>,
        notifications: u64,
        error: String,
    ) -> Self {
        let mut body = Body::of(partial, notifications);
        body.session_id = body.session_id.or(session);
        body.error = Some(Cow::Owned(error));
        Self { result: body }
    }
}

impl<'a> Body<'a> {
    fn of(result: Option<&'a TurnResult>, notifications: u64) -> Self {
        let children = result.map(|result| result.tree.children()).unwrap_or_default();
        Self {
            session_id: result.map(|result| &result.session_id),
            final_response: result.and_then(|result| result.final_response.as_deref()),
            finish_reason: result.and_then(|result| result.finish_reason.as_deref()),
            end: FAILED,
            error: None,
            notifications,
            tree: children.iter().map(child).collect(),
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
