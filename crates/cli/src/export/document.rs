//! A tree as one JSON document, from which `offspring import` makes the same tree elsewhere. The format is
//! described in `docs/formats/export.md`.
//!
//! It is written as it is read: a line of the document is a session or an event, so that neither who writes nor
//! who reads it has to hold more than one.

use std::{collections::HashSet, path::Path};

use offspring_pool::{Manifest, manifest::EnvironmentValue};
use offspring_protocol::{Origin, RunId, RunRecord, SessionData, SessionId, Timestamp};
use offspring_sessions::{SessionManager, store::LogRow};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Picture, sink::Sink};
use crate::{failure::Failure, pages::Pages, text::tell};

/// Says that a document is one of these.
pub(crate) const FORMAT: &str = "offspring-export";
/// Version of the format. It counts up with every change, an added key included: who reads it has to write all
/// of it.
///
/// 1: the first.
pub(crate) const VERSION: u32 = 1;

/// What stands before sessions and events.
#[derive(Debug, Serialize)]
struct Head<'a> {
    format: &'static str,
    version: u32,
    program_version: &'static str,
    /// The session that was exported: the root, or one whose subtree this is.
    top: &'a SessionId,
    root: &'a SessionId,
    last_seq: u64,
    origin: Option<&'a Origin>,
}

#[derive(Debug, Serialize)]
struct SessionLine<'a> {
    session: &'a SessionData,
    runs: &'a [RunRecord],
}

/// One line of the log.
#[derive(Debug, Serialize)]
struct EventLine<'a> {
    seq: u64,
    at: Timestamp,
    session: &'a SessionId,
    run: Option<&'a RunId>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    kind: &'a str,
    data: &'a RawValue,
}

impl<'a> From<&'a LogRow> for EventLine<'a> {
    fn from(line: &'a LogRow) -> Self {
        Self {
            seq: line.seq,
            at: line.at,
            session: &line.session,
            run: line.run.as_ref(),
            late: line.late,
            kind: line.event.kind(),
            data: line.event.data(),
        }
    }
}

/// How many there are, at the end, where they are known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "how many sessions and events there are")]
pub(crate) struct Counts {
    pub(crate) sessions: u64,
    pub(crate) events: u64,
}

/// Writes the document.
pub(crate) async fn write(
    manager: &SessionManager,
    picture: &Picture,
    with_manifest: bool,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let top = &picture.top().id;
    let origin = if *top == picture.root { manager.store().origin(top.clone()).await? } else { None };
    let origin = origin.map(|origin| if with_manifest { origin } else { without_values(origin) });
    let head = Head {
        format: FORMAT,
        version: VERSION,
        program_version: env!("CARGO_PKG_VERSION"),
        top,
        root: &picture.root,
        last_seq: picture.last_seq,
        origin: origin.as_ref(),
    };
    let head = serde_json::to_string(&head)?;
    sink.put(head.strip_suffix('}').unwrap_or(&head))?;
    sink.put(",\n\"sessions\":[")?;
    let mut counts = Counts::default();
    for record in &picture.sessions {
        let runs = manager.store().runs(record.data.id.clone()).await?;
        item(sink, &mut counts.sessions, &SessionLine { session: &record.data, runs: &runs })?;
    }
    sink.put("\n],\n\"events\":[")?;
    let known: HashSet<&SessionId> = picture.sessions.iter().map(|record| &record.data.id).collect();
    let mut pages = Pages::new(manager, &picture.root, picture.last_seq);
    while let Some(page) = pages.next().await? {
        for line in page.iter().filter(|line| known.contains(&line.session)) {
            item(sink, &mut counts.events, &EventLine::from(line))?;
        }
        if sink.is_gone() {
            break;
        }
    }
    sink.put("\n],\n\"counts\":")?;
    sink.put(&serde_json::to_string(&counts)?)?;
    sink.put("}\n")
}

/// One more element of an array, on a line of its own.
fn item(sink: &mut Sink, count: &mut u64, item: &impl Serialize) -> Result<(), Failure> {
    sink.put(if *count == 0 { "\n" } else { ",\n" })?;
    *count += 1;
    sink.put(&serde_json::to_string(item)?)
}

/// A manifest that gives values to variables is left out: they may be secrets (rule W10). So is one that cannot
/// be read any more.
fn without_values(mut origin: Origin) -> Origin {
    let given = match Manifest::from_str(&origin.manifest, Path::new("pool.yaml")) {
        Ok(manifest) => manifest
            .agents()
            .iter()
            .flat_map(|agent| &agent.environment)
            .any(|(_, value)| matches!(value, EnvironmentValue::Text(_))),
        Err(_) => !origin.manifest.is_empty(),
    };
    if given {
        tell(
            "note: the manifest is left out, because it gives values to variables, which may be secrets; \
             --with-manifest keeps it",
        );
        origin.manifest.clear();
    }
    origin
}
