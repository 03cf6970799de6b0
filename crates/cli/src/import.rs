//! `offspring import`: what `export --format json` wrote becomes the same tree in this store.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use offspring_sessions::{
    Import as Begun, ManagerOptions, Refused, SessionManager, StoreError, TreeCopy,
    store::{LogRow, MAX_PAGE_BYTES},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    failure::Failure,
    signals::Signals,
    store::{self, Place},
    text::{counted, finish, finish_json, plain},
};

mod document;
mod source;
#[cfg(test)]
mod tests;

use document::Rows;
use source::Source;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring export latest | ssh host offspring import -\n  \
    offspring import tree.json --db other.db\n\n\
    The whole tree or nothing is written. Its ids stay; one that is taken here is refused. Runs that were open when \
    the tree was exported are interrupted here.")]
pub(crate) struct Import {
    /// The file; `-` reads stdin.
    pub(crate) file: PathBuf,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lines that are written at once.
const LINES: usize = 1_024;

pub(crate) async fn import(db: Option<PathBuf>, args: &Import) -> Result<ExitCode, Failure> {
    let place = Place::choose(db, None)?;
    if place == Place::Memory {
        return Err(Failure::usage("--db memory: keeps nothing; name a file"));
    }
    let beside = place.file().and_then(Path::parent).map(Path::to_owned);
    let source = Source::open(&args.file, beside.as_deref())?;
    // All of it is read once before anything is touched.
    let reading = source.clone();
    let rows = tokio::task::spawn_blocking(move || Rows::read(&reading)).await.map_err(Failure::new)??;
    let manager = SessionManager::new(place.open().await?, ManagerOptions::default());
    store::end_leftovers(manager.recover().await?).await;
    let mut signals = Signals::listen()?;
    let counts = rows.counts;
    let root = rows.root.clone();
    let imported = tokio::select! {
        imported = write(&manager, rows, &source) => imported,
        ending = signals.next() => {
            // What was written has gone when the store is closed, or goes with the next command.
            manager.close().await?;
            return Ok(ExitCode::from(ending.exit_code()));
        }
    };
    let interrupted = imported?;
    manager.close().await?;
    if args.json {
        return finish_json(&json!({
            "root": root, "sessions": counts.sessions, "events": counts.events, "interrupted": interrupted,
        }));
    }
    let sessions = counted(usize::try_from(counts.sessions).unwrap_or(usize::MAX), "session", "sessions");
    let events = counted(usize::try_from(counts.events).unwrap_or(usize::MAX), "event", "events");
    let open = match interrupted {
        0 => String::new(),
        open => format!(", {} interrupted", counted(open, "open run", "open runs")),
    };
    finish(&format!("{}: imported, {sessions}, {events}{open}\n", plain(root.as_str())))
}

/// Writes the tree; gives how many of its runs were open.
async fn write(manager: &SessionManager, rows: Rows, source: &Source) -> Result<usize, Failure> {
    let Rows { origin, sessions, last_seq, .. } = rows;
    let copy = TreeCopy { origin, sessions, last_seq };
    let mut begun = manager.import(copy).await.map_err(|refused| refusal(source, &refused))?;
    match log(&mut begun, source).await {
        Ok(()) => {
            let imported = begun.finish().await.map_err(|refused| refusal(source, &refused))?;
            Ok(imported.interrupted.len())
        }
        Err(failure) => {
            if let Err(error) = begun.abandon().await {
                tracing::warn!(%error, "what was written of the import goes with the next command");
            }
            Err(failure)
        }
    }
}

/// Reads the log a second time, and writes it.
async fn log(begun: &mut Begun, source: &Source) -> Result<(), Failure> {
    let (send, mut pieces) = mpsc::channel::<Vec<LogRow>>(1);
    let reading = source.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let (mut piece, mut bytes) = (Vec::new(), 0);
        document::events(&reading, |line| {
            bytes += line.event.data().get().len();
            piece.push(line);
            if piece.len() < LINES && bytes < MAX_PAGE_BYTES {
                return true;
            }
            bytes = 0;
            send.blocking_send(std::mem::take(&mut piece)).is_ok()
        })?;
        // An error means that nobody writes any more, and why is said there.
        let _ = send.blocking_send(piece);
        Ok::<(), Failure>(())
    });
    while let Some(piece) = pieces.recv().await {
        if let Err(refused) = begun.append(piece).await {
            drop(pieces);
            let _ = reader.await;
            return Err(refusal(source, &refused));
        }
    }
    reader.await.map_err(Failure::new)?
}

fn refusal(source: &Source, refused: &Refused) -> Failure {
    match refused {
        Refused::Store(StoreError::Taken { id, .. }) => Failure::new(format!(
            "the session {} of {source} is in this store already; nothing was changed\n\
             look at it with `offspring show {0}`, or import into another store with --db",
            plain(id.as_str())
        )),
        Refused::BadCopy { problem } => Failure::new(format!("{source}: {problem}; nothing was changed")),
        other => Failure::new(other),
    }
}
