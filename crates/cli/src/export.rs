//! `offspring export`: a tree in a form of its own, for people, other programs and other machines.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use offspring_protocol::{SessionData, SessionId};
use offspring_sessions::{SessionManager, SessionRecord, store::TreeQuery};

use crate::{
    failure::Failure,
    find,
    signals::Signals,
    store,
    text::{plain, tell},
    tree,
};

pub(crate) mod document;
mod html;
mod otlp;
mod sink;

use sink::{Sink, Text};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring export latest -o tree.json\n  \
    offspring export latest --format html -o tree.html\n  \
    offspring export latest --format mermaid\n  \
    offspring export latest --format otlp | curl --data-binary @- -H 'content-type: application/json' \
    http://localhost:4318/v1/traces\n\n\
    json holds everything a store has of a tree, and `offspring import` makes the same tree of it elsewhere. \
    Of a session below a root it holds that session and everything below, which cannot be imported.")]
pub(crate) struct Export {
    /// A session: its id, the beginning of its id, or `latest`. It and everything below it is exported.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// In which form.
    #[arg(long, short, value_enum, default_value_t = Format::Json)]
    pub(crate) format: Format,
    /// Write this file instead of stdout. It is there whole or not at all.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
    /// html: bytes of a session's transcript that are shown, from its beginning and as many from its end. All of
    /// them are held in memory.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    pub(crate) transcript_bytes: usize,
    /// json: keep the manifest's text although it gives values to variables, which may be secrets.
    #[arg(long)]
    pub(crate) with_manifest: bool,
}

/// A form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One document with everything, which can be imported.
    Json,
    /// A flowchart for Mermaid.
    Mermaid,
    /// A graph for Graphviz.
    Dot,
    /// One page with the sessions, a timeline and what was said; it needs nothing from elsewhere.
    Html,
    /// Spans for OpenTelemetry: a trace, one span per run, without what was asked and answered.
    Otlp,
}

/// A tree at one moment, or a part of one.
pub(crate) struct Picture {
    pub(crate) root: SessionId,
    /// The number of the last line that counts.
    pub(crate) last_seq: u64,
    /// Parents before children; at least one.
    pub(crate) sessions: Vec<SessionRecord>,
}

impl Picture {
    async fn take(manager: &SessionManager, top: &SessionRecord) -> Result<Self, Failure> {
        let root = top.data.root_id.clone();
        // The number first: every session that has a line up to it is among the rows read after it.
        let tree = manager.store().trees(TreeQuery::Root(root.clone())).await?;
        let last_seq = tree.first().map_or(0, |tree| tree.last_seq);
        let sessions = manager.subtree(&top.data.id).await?;
        if sessions.is_empty() {
            return Err(Failure::new(format!("{} was deleted meanwhile", plain(top.data.id.as_str()))));
        }
        Ok(Self { root, last_seq, sessions })
    }

    pub(crate) fn top(&self) -> &SessionData {
        &self.sessions[0].data
    }
}

pub(crate) async fn export(db: Option<PathBuf>, args: &Export) -> Result<ExitCode, Failure> {
    let text = match args.format {
        Format::Json | Format::Otlp => Text::Json,
        Format::Html | Format::Mermaid | Format::Dot => Text::Plain,
    };
    let (manager, _) = store::manager(db).await?;
    let top = find::session(&manager, &args.session).await?;
    let mut sink = Sink::open(args.output.as_deref(), args.force, text)?;
    let writing = write(&manager, &top, args, &mut sink);
    if args.output.is_some() {
        let mut signals = Signals::listen()?;
        tokio::select! {
            written = writing => written?,
            // Dropped, it leaves no half of a file.
            ending = signals.next() => return Ok(ExitCode::from(ending.exit_code())),
        }
    } else {
        // A signal ends it at once, also while nobody reads.
        writing.await?;
    }
    if let Some(path) = sink.finish()? {
        tell(&format!("{} is in {}", plain(top.data.id.as_str()), plain(&path.to_string_lossy())));
    }
    Ok(ExitCode::SUCCESS)
}

async fn write(
    manager: &SessionManager,
    top: &SessionRecord,
    args: &Export,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let picture = Picture::take(manager, top).await?;
    match args.format {
        Format::Json => document::write(manager, &picture, args.with_manifest, sink).await,
        Format::Mermaid => sink.put(&tree::mermaid(&picture.sessions)),
        Format::Html => html::write(manager, &picture, args.transcript_bytes, sink).await,
        Format::Otlp => otlp::write(manager, &picture, sink).await,
        Format::Dot => sink.put(&tree::dot(&picture.sessions)),
    }
}

/// A JSON export without a command line around it.
#[cfg(test)]
pub(crate) async fn json_of(manager: &SessionManager, root: &SessionId) -> String {
    let top = manager.session(root).await.unwrap().unwrap();
    let mut sink = Sink::memory();
    document::write(manager, &Picture::take(manager, &top).await.unwrap(), false, &mut sink).await.unwrap();
    sink.into_text()
}
