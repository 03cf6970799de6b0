//! `offspring cancel`: from any terminal, returns when the last process is gone (rule L14).

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use offspring_agents::reap;
use offspring_protocol::SessionId;
use offspring_sessions::{CancelAnswer, SessionManager};
use serde_json::json;

use crate::{
    failure::Failure,
    find, store,
    text::{counted, finish, finish_json},
};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring cancel latest")]
pub(crate) struct Cancel {
    /// A session: its id, the beginning of its id, or `latest`.
    pub(crate) session: String,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn cancel(db: Option<PathBuf>, args: &Cancel) -> Result<ExitCode, Failure> {
    let (manager, _) = store::manager(db).await?;
    let session = find::session(&manager, &args.session).await?.data.id;
    let (word, text) = carry_out(&manager, &session).await?;
    if args.json {
        return finish_json(&json!({ "session": session, "result": word, "text": text }));
    }
    finish(&format!("{session}: {text}\n"))
}

/// Asks whoever runs it; gives what came of it, for programs and for people.
pub(crate) async fn carry_out(
    manager: &SessionManager,
    session: &SessionId,
) -> Result<(&'static str, String), Failure> {
    Ok(match manager.request_cancel(session).await? {
        CancelAnswer::Done(cancelled) => {
            ("cancelled", format!("cancelled {}", counted(cancelled.ended.len(), "session", "sessions")))
        }
        CancelAnswer::Owner(answer) if answer.starts_with("not cancelled") => {
            return Err(Failure::new(format!("{session}: {answer}")));
        }
        CancelAnswer::Owner(answer) => ("cancelled", answer),
        CancelAnswer::OwnerGone(recovered) => {
            let ended = recovered.interrupted.len();
            let killed =
                tokio::task::spawn_blocking(move || reap::leftovers(&recovered)).await.unwrap_or_default();
            let ended = counted(ended, "run is", "runs are");
            let killed = counted(killed, "process", "processes");
            ("interrupted", format!("its program was gone: {ended} interrupted, {killed} ended"))
        }
        CancelAnswer::AtRest => ("at_rest", "nothing of it was running".to_owned()),
        CancelAnswer::NoAnswer => {
            return Err(Failure::new(format!(
                "the program that runs {session} lives but does not answer; is it stopped? \
                 The request stands and is carried out when it goes on"
            )));
        }
    })
}
