//! `offspring search`: where something was said.

use std::{
    collections::{HashSet, VecDeque},
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use offspring_protocol::SessionId;
use offspring_sessions::{SessionManager, SessionRecord, store::TreeQuery};
use serde::Serialize;

use crate::{
    exit,
    failure::Failure,
    find,
    pages::Pages,
    paint::{self, Painted, Style},
    store,
    text::{for_stdout, instant, json_line, out, plain, tell},
};

mod listener;

use listener::{Hit, Listener, Wanted};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring search \"not a git repository\"\n  \
    offspring search TODO --case-sensitive --session latest\n  \
    offspring search timeout --json | jq -r .session\n\n\
    Searched are prompts, answers, reasoning, tool calls, lines of stderr and errors, the newest first. A text that an \
    agent printed in pieces is found across them. A line of the answer: the session, its node, the number and time of \
    the event, then the line of text with a mark in front as in `offspring show`: `> ` a prompt, nothing an answer, \
    `(thinking) `, `~ ` a tool call, `2> ` stderr, `error: `, `* ` a note. At a terminal the text that was found is \
    coloured. Letters count as the same in either case, by Unicode's simple case \
    folding (ς is Σ, K is the Kelvin sign, ß is not ss); accents count.\n\n\
    Exit codes: 0 something was found, 1 nothing was, or it did not work.")]
pub(crate) struct Search {
    /// What is looked for, as it is: no pattern. It is found within a line.
    pub(crate) text: String,
    /// Only in a session and everything below it: its id, the beginning of its id, or `latest`.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// At most so many lines.
    #[arg(long, short = 'n', default_value = "50")]
    pub(crate) limit: NonZeroUsize,
    /// Tell capital letters from small ones.
    #[arg(long, short = 's')]
    pub(crate) case_sensitive: bool,
    /// A line of JSON for each.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct HitJson<'a> {
    session: &'a SessionId,
    root: &'a SessionId,
    node: &'a str,
    seq: u64,
    at: offspring_protocol::Timestamp,
    /// `prompt`, `answer`, `thinking`, `tool`, `stderr`, `error` or `note`.
    said_as: &'static str,
    before: &'a str,
    #[serde(rename = "match")]
    found: &'a str,
    after: &'a str,
}

pub(crate) async fn search(db: Option<PathBuf>, args: &Search) -> Result<ExitCode, Failure> {
    let wanted = Wanted::new(&args.text, args.case_sensitive).map_err(Failure::usage)?;
    let (manager, _) = store::manager(db).await?;
    let limit = args.limit.get();
    let mut left = limit;
    let mut more = false;
    let (trees, only) = match &args.session {
        None => (manager.roots(usize::MAX).await?, None),
        Some(meant) => {
            let top = find::session(&manager, meant).await?;
            let below = manager.subtree(&top.data.id).await?;
            (vec![top], Some(below.into_iter().map(|record| record.data.id).collect::<HashSet<_>>()))
        }
    };
    for tree in &trees {
        if left == 0 {
            more = true;
            break;
        }
        let (hits, missed) = in_tree(&manager, &tree.data.root_id, only.as_ref(), &wanted, left).await?;
        more |= missed;
        for hit in &hits {
            let Some(record) = manager.session(&hit.session).await? else { continue };
            match out(&shown(hit, &record, args.json)?) {
                // `search … | head` has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                written => written?,
            }
            left = left.saturating_sub(1);
        }
    }
    if more {
        tell(&format!("there is more; -n {} shows more of it", limit.saturating_mul(10)));
    }
    if left < limit {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.json {
        let place = manager.store().info();
        tell(&format!(
            "`{}` was not said in {}",
            plain(&args.text),
            plain(
                &args
                    .session
                    .as_ref()
                    .map_or_else(|| place.to_string(), |meant| format!("{meant} ({place})"))
            )
        ));
    }
    Ok(ExitCode::from(exit::FAILED))
}

/// The newest hits of a tree, newest first, and whether there were more.
async fn in_tree(
    manager: &SessionManager,
    root: &SessionId,
    only: Option<&HashSet<SessionId>>,
    wanted: &Wanted,
    limit: usize,
) -> Result<(Vec<Hit>, bool), Failure> {
    let trees = manager.store().trees(TreeQuery::Root(root.clone())).await?;
    let last = trees.first().map_or(0, |tree| tree.last_seq);
    let mut hits = VecDeque::new();
    let mut missed = false;
    let mut listener = Listener::new(wanted, |hit| {
        hits.push_back(hit);
        if hits.len() > limit {
            hits.pop_front();
            missed = true;
        }
    });
    let mut pages = Pages::new(manager, root, last);
    while let Some(page) = pages.next().await? {
        let heard = page.iter().filter(|line| only.is_none_or(|only| only.contains(&line.session)));
        heard.for_each(|line| listener.hear(line));
    }
    listener.end();
    Ok((hits.into_iter().rev().collect(), missed))
}

fn shown(hit: &Hit, record: &SessionRecord, json: bool) -> Result<String, Failure> {
    let node = record.data.agent_name.as_str();
    if json {
        let (session, root) = (&hit.session, &record.data.root_id);
        let (before, found, after) = hit.parts();
        let (seq, at, said_as) = (hit.seq, hit.at, hit.said_as.word());
        return Ok(json_line(&HitJson { session, root, node, seq, at, said_as, before, found, after })?);
    }
    let (before, found, after) = hit.parts();
    let mut text = Painted::default();
    text.push_str(&plain(hit.session.as_str()));
    text.paint(Style::Faint, &format!(" {} {} {} ", plain(node), hit.seq, instant(hit.at)));
    text.push_str(hit.said_as.sign());
    text.push_str(&plain(before));
    text.paint(Style::Bad, &plain(found));
    text.push_str(&plain(after));
    text.push_str("\n");
    Ok(text.render(paint::is_wanted(io::stdout().is_terminal()), for_stdout))
}
