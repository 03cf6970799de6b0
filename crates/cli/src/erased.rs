//! What `rm` and `prune` deleted, the room it gave back, and the copies that may still hold it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use offspring_protocol::{SessionId, Timestamp};
use offspring_sessions::{SessionManager, SessionRecord, store::Reclaimed};
use serde::Serialize;

use crate::{
    failure::Failure,
    store::Place,
    text::{bytes, counted, finish, finish_json, instant, plain, tell},
};

/// A tree, or a part of one, that was deleted or would be.
#[derive(Debug, Serialize)]
pub(crate) struct Gone {
    id: SessionId,
    root_id: SessionId,
    agent_name: String,
    created_at: Timestamp,
    sessions: u64,
    /// About, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Gone {
    pub(crate) fn new(top: &SessionRecord, sessions: u64, bytes: Option<u64>) -> Self {
        Self {
            id: top.data.id.clone(),
            root_id: top.data.root_id.clone(),
            agent_name: top.data.agent_name.as_str().to_owned(),
            created_at: top.data.created_at,
            sessions,
            bytes,
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Whether it is a part of a tree of which the rest stays.
    pub(crate) fn is_part(&self) -> bool {
        self.id != self.root_id
    }
}

/// All of it, as JSON says it.
#[derive(Debug, Serialize)]
pub(crate) struct Erased {
    pub(crate) dry_run: bool,
    pub(crate) deleted: Vec<Gone>,
    /// Roots that were kept because something of them runs, or because another program that runs owns them.
    pub(crate) in_use: Vec<SessionId>,
    sessions: u64,
    store_bytes_before: Option<u64>,
    store_bytes_after: Option<u64>,
    /// Why not all room was given back.
    not_given_back: Option<String>,
    /// Copies from before an update, which hold what the store held then.
    copies: Vec<PathBuf>,
    copies_deleted: Vec<PathBuf>,
}

impl Erased {
    pub(crate) fn new(deleted: Vec<Gone>, in_use: Vec<SessionId>, dry_run: bool) -> Self {
        let sessions = deleted.iter().map(|gone| gone.sessions).sum();
        Self {
            dry_run,
            deleted,
            in_use,
            sessions,
            store_bytes_before: None,
            store_bytes_after: None,
            not_given_back: None,
            copies: Vec::new(),
            copies_deleted: Vec::new(),
        }
    }

    /// Gives back the room.
    pub(crate) async fn give_back(&mut self, manager: &SessionManager) {
        match manager.store().reclaim().await {
            Ok(Reclaimed { before, after, left }) => {
                self.store_bytes_before = Some(before.file_bytes);
                self.store_bytes_after = Some(after.file_bytes);
                self.not_given_back = left.map(|left| left.to_string());
            }
            Err(error) => self.not_given_back = Some(error.to_string()),
        }
    }

    /// Finds the copies that updates left beside the store, or deletes them.
    pub(crate) fn look_for_copies(&mut self, place: &Place, delete: bool) -> Result<(), Failure> {
        for copy in place.file().map(copies).unwrap_or_default() {
            if delete {
                fs::remove_file(&copy)
                    .map_err(|error| Failure::new(format!("deleting {}: {error}", copy.display())))?;
                self.copies_deleted.push(copy);
            } else {
                self.copies.push(copy);
            }
        }
        Ok(())
    }

    /// Prints it all: what there is to know on stdout, what there is to do on stderr.
    pub(crate) fn print(&self, json: bool) -> Result<ExitCode, Failure> {
        let printed = if json { finish_json(self)? } else { finish(&self.text())? };
        if !self.dry_run && self.deleted.iter().any(Gone::is_part) {
            tell(
                "what was asked of it and what it answered stays in the log of its parent: delete the root to erase that too",
            );
        }
        if !self.dry_run && (!self.deleted.is_empty() || !self.copies_deleted.is_empty()) {
            for copy in &self.copies {
                tell(&format!(
                    "{} is a copy from before an update and holds what the store held then; --copies deletes it too",
                    plain(&copy.to_string_lossy())
                ));
            }
        }
        match &self.not_given_back {
            None => Ok(printed),
            Some(why) => Err(Failure::new(format!(
                "not all room was given back, and bytes of what was deleted may remain in the files: {why}\n\
                 afterwards, run: offspring prune --reclaim"
            ))),
        }
    }

    fn text(&self) -> String {
        let (deleted, kept) =
            if self.dry_run { ("would delete", "would keep  ") } else { ("deleted", "kept   ") };
        let mut text = String::new();
        for gone in &self.deleted {
            let sessions =
                counted(usize::try_from(gone.sessions).unwrap_or(usize::MAX), "session", "sessions");
            let about = gone.bytes.map(|about| format!("  about {}", bytes(about))).unwrap_or_default();
            text.push_str(&format!(
                "{deleted} {}  {}  {}  {sessions}{about}\n",
                gone.id,
                instant(gone.created_at),
                plain(&gone.agent_name),
            ));
        }
        for root in &self.in_use {
            text.push_str(&format!("{kept} {root}  in use\n"));
        }
        for copy in &self.copies_deleted {
            text.push_str(&format!("{deleted} {}\n", plain(&copy.to_string_lossy())));
        }
        text.push_str(&self.summary());
        text
    }

    fn summary(&self) -> String {
        let sessions = counted(usize::try_from(self.sessions).unwrap_or(usize::MAX), "session", "sessions");
        if self.dry_run {
            let about: u64 = self.deleted.iter().filter_map(|gone| gone.bytes).sum();
            return format!("{sessions}, about {}; nothing was deleted\n", bytes(about));
        }
        let store = match (self.store_bytes_before, self.store_bytes_after) {
            (Some(before), Some(after)) if after < before => {
                let back = bytes(before - after);
                format!("; the store went from {} to {}, {back} given back", bytes(before), bytes(after))
            }
            (_, Some(after)) if after > 0 => format!("; the store has {}", bytes(after)),
            _ => String::new(),
        };
        format!("{sessions} deleted{store}\n")
    }
}

/// The copies that updates left beside the store, as `<store>.v1-backup`.
pub(crate) fn copies(db: &Path) -> Vec<PathBuf> {
    let name = db.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_copy = |other: &str| {
        let rest = other.strip_prefix(&name).and_then(|rest| rest.strip_prefix(".v"));
        let rest = rest.map(|rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        rest.is_some_and(|rest| rest == "-backup" || rest.starts_with("-backup-"))
    };
    let entries = db.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| is_copy(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
