//! `offspring rm`: deletes what is named, and nothing else.

use std::{collections::HashSet, path::PathBuf, process::ExitCode};

use clap::Args;
use offspring_protocol::SessionId;
use offspring_sessions::{Refused, SessionManager};

use crate::{
    erased::{Erased, Gone},
    failure::Failure,
    find, store,
};

#[derive(Debug, Args)]
#[command(
    after_help = "A root takes its whole tree with it, a child everything below it. What runs is not deleted.\n\
    Their bytes are overwritten, and the room is given back.\n\n\
    Example:\n  offspring rm ses_001a22d6f1961000wO9XL88fmOE7eO"
)]
pub(crate) struct Rm {
    /// Sessions: their ids, or the beginnings of their ids. Not `latest`: what that is may have changed.
    #[arg(required = true, value_name = "ID")]
    pub(crate) sessions: Vec<String>,
    /// Also delete the copies of the store that updates left beside it: they hold what it held then.
    #[arg(long)]
    pub(crate) copies: bool,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn rm(db: Option<PathBuf>, args: &Rm) -> Result<ExitCode, Failure> {
    let (manager, place) = store::manager(db).await?;
    // All of them are looked at before the first is deleted: a slip in one of several ids costs nothing.
    let mut targets: Vec<(Gone, HashSet<SessionId>)> = Vec::new();
    for named in &args.sessions {
        targets.push(target(&manager, named).await?);
    }
    let mut deleted: Vec<Gone> = Vec::new();
    let mut gone: HashSet<SessionId> = HashSet::new();
    // Above before below: with a root what was named beside it is gone already.
    targets.sort_by_key(|(_, below)| std::cmp::Reverse(below.len()));
    let mut failed = None;
    for (target, _) in targets {
        if gone.contains(target.id()) {
            continue;
        }
        match manager.delete(target.id()).await {
            Ok(ids) => gone.extend(ids),
            Err(refused) => {
                failed = Some(refused);
                break;
            }
        }
        deleted.push(target);
    }
    let mut erased = Erased::new(deleted, Vec::new(), false);
    erased.give_back(&manager).await;
    erased.look_for_copies(&place, args.copies && failed.is_none())?;
    let printed = erased.print(args.json);
    manager.close().await?;
    match failed {
        Some(refused) => Err(in_use(refused)),
        None => printed,
    }
}

/// What one argument names, with the ids of everything that goes with it.
async fn target(manager: &SessionManager, named: &str) -> Result<(Gone, HashSet<SessionId>), Failure> {
    if named == "latest" {
        let latest = find::session(manager, named).await?.data.id;
        return Err(Failure::usage(format!(
            "`latest` may be another tree by now, and what is deleted is gone; say which one:\n  offspring rm {latest}"
        )));
    }
    let id = find::session(manager, named).await?.data.id;
    let records = manager.deletable(&id).await.map_err(in_use)?;
    let below = records.iter().map(|record| record.data.id.clone()).collect();
    let Some(top) = records.first() else { return Err(Refused::UnknownSession { id }.into()) };
    let bytes = match top.data.parent_id {
        None => Some(manager.store().tree_size(id).await?.bytes),
        Some(_) => None,
    };
    Ok((Gone::new(top, records.len() as u64, bytes), below))
}

fn in_use(refused: Refused) -> Failure {
    match refused {
        Refused::StillRunning { id } => Failure::new(format!(
            "{id} is running; nothing of its tree was deleted: end it first with `offspring cancel {id}`"
        )),
        Refused::Foreign { id } => Failure::new(format!(
            "{id} belongs to another program that is running; nothing of its tree was deleted: try again when that \
             program has ended"
        )),
        other => other.into(),
    }
}
