//! `offspring ls`.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode};

use crate::{
    failure::Failure,
    look::{SessionJson, wall},
    paint::{Painted, Style},
    store,
    text::{duration, finish_json, finish_painted, instant, plain, sign, word},
};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring ls --json | jq -r '.[0].id'")]
pub(crate) struct Ls {
    /// At most so many.
    #[arg(long, short = 'n', default_value = "20")]
    pub(crate) limit: NonZeroUsize,
    /// One JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn ls(db: Option<PathBuf>, args: &Ls) -> Result<ExitCode, Failure> {
    let (manager, _) = store::manager(db).await?;
    let roots = manager.roots(args.limit.get()).await?;
    if args.json {
        let rows: Vec<SessionJson<'_>> = roots.iter().map(SessionJson::from).collect();
        return finish_json(&rows);
    }
    let mut text = Painted::default();
    for root in &roots {
        let (data, state) = (&root.data, root.run_state());
        let wall = wall(root).map(duration).unwrap_or_default();
        let title = plain(data.title.as_deref().unwrap_or_default()).into_owned();
        text.paint(Style::of(state), sign(state));
        text.push_str(&format!(
            " {:<11} {}  {}  {:>8}  {}  {title}\n",
            word(state),
            data.id,
            instant(data.created_at),
            wall,
            plain(data.agent_name.as_str()),
        ));
    }
    finish_painted(&text)
}
