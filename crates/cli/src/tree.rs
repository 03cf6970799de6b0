//! `offspring tree`: as text, JSON, Mermaid or Graphviz.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use offspring_sessions::SessionRecord;
use serde::Serialize;

use crate::{
    failure::Failure,
    find,
    look::{self, SessionJson, branches},
    paint::Painted,
    rerun, store,
    text::{finish, finish_painted, plain, tell, word},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  offspring tree latest\n  offspring tree ses_01 --mermaid > tree.mmd")]
pub(crate) struct Tree {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// One JSON object with all sessions.
    #[arg(long, group = "form")]
    pub(crate) json: bool,
    /// A Mermaid flowchart.
    #[arg(long, group = "form")]
    pub(crate) mermaid: bool,
    /// A Graphviz graph.
    #[arg(long, group = "form")]
    pub(crate) dot: bool,
}

#[derive(Serialize)]
struct TreeJson<'a> {
    root: &'a str,
    depth: u32,
    sessions: Vec<SessionJson<'a>>,
}

pub(crate) async fn tree(db: Option<PathBuf>, args: &Tree) -> Result<ExitCode, Failure> {
    let (manager, place) = store::manager(db).await?;
    let top = find::session(&manager, &args.session).await?;
    let records = manager.subtree(&top.data.id).await?;
    let text = if args.json {
        let depth = records.iter().map(|record| record.data.depth).max().unwrap_or_default();
        let sessions = records.iter().map(SessionJson::from).collect();
        format!("{}\n", serde_json::to_string(&TreeJson { root: top.data.id.as_str(), depth, sessions })?)
    } else if args.mermaid {
        mermaid(&records)
    } else if args.dot {
        dot(&records)
    } else {
        let code = finish_painted(&pretty(&records))?;
        rerun::hint(&manager, &place, &records).await?.iter().for_each(|hint| tell(hint));
        return Ok(code);
    };
    finish(&text)
}

/// The tree for a terminal.
pub(crate) fn pretty(records: &[SessionRecord]) -> Painted {
    let drawn = branches(records, |record| &record.data.id, |record| record.data.parent_id.as_ref());
    let mut text = Painted::default();
    for (branch, record) in drawn {
        text.push_str(&branch);
        text.append(look::line(record));
        text.push_str(&format!("  {}\n", record.data.id));
    }
    text
}

fn edges(records: &[SessionRecord]) -> impl Iterator<Item = (usize, usize)> {
    let places: std::collections::HashMap<_, _> =
        records.iter().enumerate().map(|(place, record)| (&record.data.id, place)).collect();
    let parent = move |record: &SessionRecord| {
        record.data.parent_id.as_ref().and_then(|parent| places.get(parent).copied())
    };
    records.iter().enumerate().filter_map(move |(place, record)| Some((parent(record)?, place)))
}

fn label(record: &SessionRecord, escape: impl Fn(char) -> String) -> String {
    let text = format!("{}: {}", plain(record.data.agent_name.as_str()), word(record.run_state()));
    text.chars().map(escape).collect()
}

pub(crate) fn mermaid(records: &[SessionRecord]) -> String {
    // Everything but letters and digits by its number: no name can end the label.
    let escape = |c: char| {
        if c.is_alphanumeric() || " :_-".contains(c) { c.to_string() } else { format!("#{};", u32::from(c)) }
    };
    let mut text = String::from("flowchart TD\n");
    for (place, record) in records.iter().enumerate() {
        text.push_str(&format!("  s{place}[\"{}\"]\n", label(record, escape)));
    }
    for (parent, child) in edges(records) {
        text.push_str(&format!("  s{parent} --> s{child}\n"));
    }
    text
}

pub(crate) fn dot(records: &[SessionRecord]) -> String {
    let escape = |c: char| if c == '"' || c == '\\' { format!("\\{c}") } else { c.to_string() };
    let mut text = String::from("digraph sessions {\n  node [shape=box];\n");
    for (place, record) in records.iter().enumerate() {
        text.push_str(&format!("  s{place} [label=\"{}\"];\n", label(record, escape)));
    }
    for (parent, child) in edges(records) {
        text.push_str(&format!("  s{parent} -> s{child};\n"));
    }
    text.push_str("}\n");
    text
}
