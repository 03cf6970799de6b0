//! The session a person means: an id, the beginning of one, or `latest`.

use offspring_protocol::SessionId;
use offspring_sessions::{SessionManager, SessionRecord, store::SessionQuery};

use crate::{
    failure::Failure,
    text::{plain, word},
    usage::closest,
};

/// Means the root that was made last.
const LATEST: &str = "latest";

/// Ids shown when more than one is meant.
const SHOWN: usize = 4;

pub(crate) async fn session(manager: &SessionManager, meant: &str) -> Result<SessionRecord, Failure> {
    let shown = plain(meant);
    let store = manager.store().info();
    if meant == LATEST {
        let none = || {
            Failure::new(format!(
                "no sessions yet: {store} is empty\n`offspring run MANIFEST PROMPT` starts the first; --db FILE names another store"
            ))
        };
        return manager.roots(1).await?.into_iter().next().ok_or_else(none);
    }
    let id = SessionId::new(meant).map_err(|bad| {
        Failure::usage(format!("{bad}: name a session by its id, the beginning of its id, or `latest`"))
    })?;
    if let Some(record) = manager.session(&id).await? {
        return Ok(record);
    }
    let mut found = Vec::new();
    for prefix in [meant.to_owned(), format!("ses_{meant}")] {
        found = manager.store().sessions(SessionQuery::Prefix(prefix)).await?;
        if !found.is_empty() {
            break;
        }
    }
    match found.len() {
        0 => {
            let meant = closest(meant, [LATEST].into_iter()).map(|word| format!("; did you mean `{word}`?"));
            Err(Failure::usage(format!(
                "there is no session `{shown}` in {store}{}\n\
                 `offspring ls` lists the roots, `offspring tree ID` what is below one",
                meant.unwrap_or_default()
            )))
        }
        1 => Ok(found.remove(0)),
        more => {
            let ids = found.iter().take(SHOWN).map(|record| {
                format!(
                    "  {} {} ({})",
                    record.data.id,
                    plain(record.data.agent_name.as_str()),
                    word(record.run_state())
                )
            });
            let mut lines: Vec<String> = ids.collect();
            if more > SHOWN {
                lines.push(format!("  and {} more", more - SHOWN));
            }
            Err(Failure::usage(format!(
                "`{shown}` is the beginning of {more} ids; type more of the one that is meant:\n{}",
                lines.join("\n")
            )))
        }
    }
}
