//! The session a person means: an id, the beginning of one, or `latest`.

use offspring_protocol::SessionId;
use offspring_sessions::{SessionManager, SessionRecord, store::SessionQuery};

use crate::{
    failure::Failure,
    text::{plain, word},
};

/// Ids shown when more than one is meant.
const SHOWN: usize = 4;

pub(crate) async fn session(manager: &SessionManager, meant: &str) -> Result<SessionRecord, Failure> {
    let shown = plain(meant);
    if meant == "latest" {
        let none = || Failure::new("no sessions yet: run a pool first");
        return manager.roots(1).await?.into_iter().next().ok_or_else(none);
    }
    let id = SessionId::new(meant).map_err(Failure::usage)?;
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
        0 => Err(Failure::new(format!(
            "no session {shown}: `offspring ls` lists the roots, `offspring tree` their children"
        ))),
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
            let ids: Vec<String> = ids.collect();
            let others = if more > SHOWN { "\n  …" } else { "" };
            Err(Failure::usage(format!(
                "{shown} is the beginning of several ids:\n{}{others}",
                ids.join("\n")
            )))
        }
    }
}
