//! A tree as OpenTelemetry spans, in the JSON of OTLP/HTTP: what `curl` can post to `/v1/traces` of a collector.
//!
//! One trace per root, one span per run; its parent is the run that was open in the parent session when it began.
//! Ids are derived, so that the same run has the same span in every export. What was asked and answered is not in
//! it (an error is, and may quote what a program printed last). Attributes follow the semantic conventions for generative AI where they have a word, and are `offspring.*`
//! elsewhere.

use std::collections::HashMap;

use offspring_protocol::{Outcome, RunRecord, RunState, SessionData, SessionId, Timestamp};
use offspring_sessions::{SessionManager, ids};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Picture, sink::Sink};
use crate::failure::Failure;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    kind: u8,
    /// 64-bit numbers are strings in this JSON.
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    status: Status,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Writes the spans, a line each.
pub(crate) async fn write(
    manager: &SessionManager,
    picture: &Picture,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let resource =
        json!({ "attributes": [text("service.name", "offspring"), text("service.version", version)] });
    let scope = json!({ "name": "offspring", "version": version });
    sink.put(&format!(
        "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":["
    ))?;
    let trace = hex(&digest(&["trace", picture.root.as_str()])[..16]);
    let mut spans: HashMap<&SessionId, Vec<(Timestamp, String)>> = HashMap::new();
    let mut separator = "\n";
    for record in &picture.sessions {
        let data = &record.data;
        let runs = manager.store().runs(data.id.clone()).await?;
        let above = data.parent_id.as_ref().and_then(|parent| spans.get(parent));
        let mut own = Vec::with_capacity(runs.len());
        for run in &runs {
            let span_id = hex(&digest(&["span", data.id.as_str(), run.id.as_str()])[..8]);
            own.push((run.opened_at, span_id.clone()));
            let parent = above.and_then(|above| open_at(above, run.opened_at));
            sink.put(separator)?;
            sink.put(&serde_json::to_string(&span(data, run, trace.clone(), span_id, parent))?)?;
            separator = ",\n";
        }
        if own.is_empty() {
            // One that never ran has no span; what is below it hangs from what is above it.
            own = above.cloned().unwrap_or_default();
        }
        spans.insert(&data.id, own);
    }
    sink.put("\n]}]}]}\n")
}

/// The run that had begun last by then; the first one, where the clock went back.
fn open_at(runs: &[(Timestamp, String)], at: Timestamp) -> Option<String> {
    let last = runs.iter().rfind(|(opened, _)| *opened <= at);
    last.or(runs.first()).map(|(_, span)| span.clone())
}

fn span(data: &SessionData, run: &RunRecord, trace: String, span_id: String, parent: Option<String>) -> Span {
    let end = run.ended_at.unwrap_or_else(ids::now).max(run.opened_at);
    Span {
        trace_id: trace,
        span_id,
        parent_span_id: parent,
        name: format!("invoke_agent {}", data.agent_name),
        kind: INTERNAL,
        start_time_unix_nano: nanos(run.opened_at),
        end_time_unix_nano: nanos(end),
        attributes: attributes(data, run),
        status: status(run),
    }
}

fn attributes(data: &SessionData, run: &RunRecord) -> Vec<Value> {
    let mut all = vec![
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.agent.name", data.agent_name.as_str()),
        text("gen_ai.conversation.id", data.id.as_str()),
        text("offspring.root.id", data.root_id.as_str()),
        text("offspring.run.id", run.id.as_str()),
        text("offspring.run.state", run.state.as_str()),
        text("offspring.agent.type", data.agent_type.as_str()),
        number("offspring.depth", data.depth.into()),
        number("offspring.run.ordinal", run.ordinal.into()),
    ];
    let optional = [
        ("gen_ai.request.model", data.model.as_deref()),
        ("offspring.parent.id", data.parent_id.as_ref().map(|id| id.as_str())),
        ("offspring.source.type", data.source_type.as_ref().map(|source| source.as_str())),
        ("offspring.pool.id", data.pool_id.as_ref().map(|id| id.as_str())),
        ("offspring.project.id", data.project_id.as_ref().map(|id| id.as_str())),
        ("offspring.task.id", data.task.as_ref().map(|id| id.as_str())),
        ("error.type", run.state.outcome().filter(|end| *end != Outcome::Completed).map(Outcome::as_str)),
    ];
    all.extend(optional.into_iter().filter_map(|(key, value)| Some(text(key, value?))));
    if run.usage.messages > 0 {
        all.push(number("gen_ai.usage.input_tokens", run.usage.input_tokens));
        all.push(number("gen_ai.usage.output_tokens", run.usage.output_tokens));
        all.extend(run.usage.cost_micro_usd.map(|cost| number("offspring.usage.cost_micro_usd", cost)));
    }
    if run.left_out_bytes > 0 {
        all.push(number("offspring.left_out_bytes", run.left_out_bytes));
    }
    all
}

fn status(run: &RunRecord) -> Status {
    match run.state {
        // Unset: nothing is known yet.
        RunState::Pending | RunState::Running => Status { code: 0, message: None },
        RunState::Ended(Outcome::Completed) => Status { code: 1, message: None },
        RunState::Ended(end) => {
            let message = run.error.clone().unwrap_or_else(|| end.as_str().to_owned());
            Status { code: 2, message: Some(message) }
        }
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Signed 64 bits, as a string.
fn number(key: &str, value: u64) -> Value {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn nanos(at: Timestamp) -> String {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000).to_string()
}

/// Ids of spans are random elsewhere; here they have to be the same each time. Never all zeros, which no id may be,
/// but for one in 2^64.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update("offspring");
    for part in parts {
        // With its length, so that no two lists of parts are the same bytes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
