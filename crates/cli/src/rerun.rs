//! `offspring rerun`: a root once more, all of it or what did not complete.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use offspring_delegation::Recall;
use offspring_pool::Manifest;
use offspring_protocol::{Origin, Outcome, RunState, SessionId};
use offspring_sessions::{SessionManager, SessionRecord, store::TreeQuery};

use crate::{
    args::VERSION,
    failure::Failure,
    find, load,
    run::{self, Again, Job, Shown},
    store::{self, Place},
    summary::program_on,
    text::{plain, tell},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Makes a new root; the old one stays as it is. Without --current or --manifest the manifest's \
    text is the one that was run then, whatever became of the file.\n\n\
    Examples:\n  \
    offspring rerun latest --failed\n  \
    offspring rerun ses_01 --current\n  \
    offspring rerun ses_01 --failed --manifest fixed.yaml --dir ../copy"
)]
pub(crate) struct Rerun {
    /// A root: its id, the beginning of its id, or `latest`.
    pub(crate) session: String,
    /// Run only what did not complete; what did, with everything below it, gives the result it gave then.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Take the manifest's file as it is now.
    #[arg(long)]
    pub(crate) current: bool,
    /// Take another manifest.
    #[arg(long, value_name = "FILE", conflicts_with = "current")]
    pub(crate) manifest: Option<PathBuf>,
    /// The directory the agents work in. Default: the one of that time.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

pub(crate) async fn rerun(db: Option<PathBuf>, args: Rerun) -> Result<ExitCode, Failure> {
    run::refuse_inside(args.shown.new_root)?;
    let (manager, place) = store::manager(db).await?;
    let old = find::session(&manager, &args.session).await?.data;
    if old.root_id != old.id {
        return Err(Failure::usage(format!(
            "{} is a child, and only a root can be run again\nits root: {} rerun {}",
            old.id,
            program_on(&place),
            old.root_id
        )));
    }
    let origin = manager.origin(&old.id).await?.ok_or_else(|| {
        Failure::new(format!(
            "{} has no record of what it was started with: an older version made it, or it was imported\n\
             start it once more with: offspring run MANIFEST PROMPT",
            old.id
        ))
    })?;
    let recall = if args.failed { Some(recall(&manager, &old.id, &place).await?) } else { None };
    let source = Source::choose(args.manifest, args.current);
    let manifest = source.manifest(&old.id, &origin)?;
    let dir = directory(args.dir.as_deref(), &old.id, &origin)?;
    run::check(&manifest, &origin.node, &origin.prompt)
        .map_err(|failure| source.explain(&old.id, failure))?;
    for note in source.notes(&old.id, &origin) {
        tell(&format!("note: {}", plain(&note)));
    }
    let again = Again { of: old.id, store: Arc::clone(manager.store()), recall };
    let (node, prompt) = (origin.node, origin.prompt);
    run::carry_out(Job { manifest, node, prompt, dir, place, shown: args.shown, again: Some(again) }).await
}

/// What runs again what did not complete of a tree that is at rest, when that can be done; for whoever looks at it.
/// Parents come before children.
pub(crate) async fn hint(
    manager: &SessionManager,
    place: &Place,
    records: &[SessionRecord],
) -> Result<Option<String>, Failure> {
    let Some(top) = records.first().map(|record| &record.data).filter(|top| top.root_id == top.id) else {
        return Ok(None);
    };
    let states = || records.iter().filter_map(SessionRecord::run_state);
    // What a completed run cancelled it meant to cancel.
    let fine = |state| matches!(state, RunState::Ended(Outcome::Completed | Outcome::Cancelled));
    let outcome = records.first().and_then(SessionRecord::run_state).and_then(RunState::outcome);
    let failed = outcome != Some(Outcome::Completed) || !states().all(fine);
    if !failed || states().any(RunState::is_open) || manager.origin(&top.id).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(command(&program_on(place), &top.id, outcome.unwrap_or(Outcome::Interrupted))))
}

/// `run again what failed with: offspring rerun ses_01 --failed`; of a root that somebody cancelled nothing need have
/// failed.
pub(crate) fn command(program: &str, root: &SessionId, outcome: Outcome) -> String {
    let what = match outcome {
        Outcome::Cancelled => "run what did not complete",
        Outcome::Completed | Outcome::Failed | Outcome::Interrupted => "run again what failed",
    };
    format!("{what} with: {program} rerun {root} --failed")
}

/// What is taken from the old tree, if anything has to be run at all.
async fn recall(manager: &SessionManager, old: &SessionId, place: &Place) -> Result<Recall, Failure> {
    let program = program_on(place);
    let tree = manager.store().trees(TreeQuery::Root(old.clone())).await?;
    if tree.iter().any(|tree| tree.open_runs > 0) {
        return Err(Failure::new(format!(
            "{old} is still running: what will have failed is not known yet\n\
             wait for its end with: {program} watch {old}\nor end it with: {program} cancel {old}"
        )));
    }
    let recall = Recall::read(manager, old).await?;
    if recall.is_complete() {
        return Err(Failure::usage(format!(
            "nothing failed in {old}: all of it completed\nits answer: {program} show {old}\n\
             to run all of it again: {program} rerun {old}"
        )));
    }
    Ok(recall)
}

/// Where the manifest comes from.
enum Source {
    /// The text that is stored, seen from where it stood.
    Stored,
    /// The file it was read from, as it is now.
    Current,
    /// Another file.
    Other(PathBuf),
}

impl Source {
    fn choose(manifest: Option<PathBuf>, current: bool) -> Self {
        match manifest {
            Some(file) => Self::Other(file),
            None if current => Self::Current,
            None => Self::Stored,
        }
    }

    fn manifest(&self, old: &SessionId, origin: &Origin) -> Result<Manifest, Failure> {
        if let Self::Other(file) = self {
            return load::manifest(file);
        }
        let path = origin.manifest_path.as_deref().map(Path::new).ok_or_else(|| {
            Failure::new(format!(
                "where the manifest of {old} stood is not known\nname one with --manifest FILE"
            ))
        })?;
        if let Self::Current = self {
            return load::manifest(path);
        }
        let dir = path.parent().unwrap_or(path);
        if !dir.is_dir() {
            return Err(Failure::new(format!(
                "the directory of the manifest of {old} is gone: {}\n\
                 its paths start there; name another manifest with --manifest FILE",
                dir.display()
            )));
        }
        Manifest::from_str(&origin.manifest, path).map_err(|error| self.explain(old, error.into()))
    }

    /// Says that a place in a manifest is one in the stored text.
    fn explain(&self, old: &SessionId, failure: Failure) -> Failure {
        match self {
            Self::Stored => failure.and(format!(
                "this is the manifest as it was stored with {old}; take the file as it is now with --current, or \
                 another one with --manifest FILE"
            )),
            Self::Current | Self::Other(_) => failure,
        }
    }

    /// What is not as it was.
    fn notes(&self, old: &SessionId, origin: &Origin) -> Vec<String> {
        let mut notes = Vec::new();
        if let (Self::Stored, Some(path)) = (self, &origin.manifest_path)
            && let Some(change) = change(Path::new(path), &origin.manifest)
        {
            notes.push(format!(
                "{path} {change}; its text as it was run in {old} is used (--current or --manifest FILE use another)"
            ));
        }
        if origin.program_version != VERSION {
            notes.push(format!("{old} was run by version {}, and this is {VERSION}", origin.program_version));
        }
        notes
    }
}

/// What became of the file a text was read from.
fn change(path: &Path, text: &str) -> Option<&'static str> {
    let Ok(about) = fs::metadata(path) else { return Some("is gone") };
    // A longer one is not read.
    if about.is_file() && about.len() == text.len() as u64 {
        return match fs::read(path) {
            Ok(now) if now == text.as_bytes() => None,
            Ok(_) => Some("has changed since"),
            Err(_) => Some("cannot be read"),
        };
    }
    Some("has changed since")
}

/// The directory to work in: another one, or the same if it is still there.
fn directory(named: Option<&Path>, old: &SessionId, origin: &Origin) -> Result<String, Failure> {
    if named.is_some() {
        return run::directory(named);
    }
    let none = || Failure::new(format!("{old} had no directory to work in\nname one with --dir DIR"));
    let cwd = Path::new(origin.cwd.as_deref().ok_or_else(none)?);
    if !cwd.is_dir() {
        return Err(Failure::new(format!(
            "the directory that {old} worked in is gone: {}\nname another one with --dir DIR",
            cwd.display()
        )));
    }
    run::directory(Some(cwd))
}
