//! `offspring watch`: history, then live, until the run ends (rule L18).

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use offspring_protocol::{Envelope, Event, SessionData};
use offspring_sessions::{SessionManager, StoreError, store::TreeQuery};

use crate::{
    charset::glyphs,
    failure::Failure,
    find, show, signals, store,
    text::{for_stdout, out, out_json, plain_lines},
    tui,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  offspring watch latest\n  offspring watch latest --from 120 --json\n  offspring watch latest --tui"
)]
pub(crate) struct Watch {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// Begin with the event of this number.
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,
    /// Every event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The whole window: the tree to walk through, and the selected session's transcript beside it.
    #[arg(long, conflicts_with_all = ["from", "json"])]
    pub(crate) tui: bool,
}

/// How often one looks whether the session below a root is at rest.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) async fn watch(db: Option<PathBuf>, args: &Watch) -> Result<ExitCode, Failure> {
    if args.tui {
        tui::refuse_without_terminal()?;
    }
    let (manager, _) = store::manager(db).await?;
    let top = find::session(&manager, &args.session).await?.data;
    if args.tui {
        return tui::watch(manager, top).await;
    }
    let mut follow = manager.follow(&top.root_id, args.from);
    let mut signals = signals::Signals::listen()?;
    // Heard also while nobody reads what is printed.
    tokio::spawn(async move { std::process::exit(i32::from(signals.next().await.exit_code())) });
    // A child's run ends before its tree does: the number of the last event there was by then.
    let mut last = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        if last.is_some_and(|last| follow.cursor() >= last) {
            return Ok(ExitCode::SUCCESS);
        }
        let envelope = tokio::select! {
            biased;
            next = follow.next() => match next? {
                Some(envelope) => envelope,
                None => return Ok(ExitCode::SUCCESS),
            },
            _ = look.tick(), if top.parent_id.is_some() && last.is_none() => {
                last = end_of(&manager, &top).await?;
                continue;
            }
        };
        if !envelope.session.path.contains(&top.id) {
            continue;
        }
        let written = if args.json {
            out_json(&*envelope)
        } else {
            words(&envelope).map_or(Ok(()), |line| out(&for_stdout(&line)))
        };
        match written {
            // `watch | head` has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
    }
}

/// The number of the tree's last event, once a session and everything below it is at rest.
async fn end_of(manager: &SessionManager, top: &SessionData) -> Result<Option<u64>, StoreError> {
    if manager
        .subtree(&top.id)
        .await?
        .iter()
        .any(|record| record.run_state().is_some_and(|run| run.is_open()))
    {
        return Ok(None);
    }
    let tree = manager.store().trees(TreeQuery::Root(top.root_id.clone())).await?;
    Ok(tree.first().map(|tree| tree.last_seq))
}

fn words(envelope: &Envelope) -> Option<String> {
    let said = match envelope.event.parse() {
        Ok(Event::TextDelta(delta)) => delta.text.trim_end_matches('\n').to_owned(),
        // Its pieces were shown.
        Ok(Event::MessageComplete(_)) => return None,
        Ok(Event::StatusChanged(status)) => match status.outcome {
            Some(outcome) => format!("= {}", outcome.as_str()),
            None => return None,
        },
        Ok(event) => show::said(&event)?,
        Err(error) => format!("? {error}"),
    };
    let who = format!(
        "{:>5} {}{}",
        envelope.seq,
        "  ".repeat(usize::try_from(envelope.session.depth).unwrap_or(0)),
        envelope.session.agent_name
    );
    Some(
        plain_lines(&said)
            .lines()
            .map(|line| format!("{who} {} {line}", glyphs().wall))
            .map(|line| line + "\n")
            .collect(),
    )
}
