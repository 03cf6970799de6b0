//! Which project a directory belongs to: its repository's root commit, or `global`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use offspring_protocol::ProjectId;

/// The smallest root commit of the repository around a directory; `global` when there is no repository,
/// no git, no commit, or no root commit that is not the boundary of a shallow clone.
///
/// The same id that `AgentPool` computes for a whole clone.
pub(crate) async fn project_id(directory: PathBuf) -> ProjectId {
    let found = tokio::task::spawn_blocking(move || root_commit(&directory)).await;
    let id = found.ok().flatten().and_then(|commit| ProjectId::new(commit).ok());
    id.unwrap_or_else(ProjectId::global)
}

fn root_commit(directory: &Path) -> Option<String> {
    let roots = git(directory, &["rev-list", "--max-parents=0", "--all"])?;
    let roots: BTreeSet<&str> = roots.lines().collect();
    if git(directory, &["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        // Where a shallow clone was cut off looks like a root and differs from clone to clone.
        let file = git(directory, &["rev-parse", "--git-path", "shallow"])?;
        let boundary = std::fs::read_to_string(directory.join(file.trim_end_matches('\n'))).ok()?;
        let boundary: BTreeSet<&str> = boundary.lines().collect();
        return roots.difference(&boundary).next().map(|commit| (*commit).to_owned());
    }
    roots.first().map(|commit| (*commit).to_owned())
}

/// The output of git in this directory.
///
/// It has no time limit: it reads commits from the disk and waits for nothing else.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    answer(command(directory, arguments, std::env::vars_os()))
}

/// Git in this directory, whatever a hook or a caller has set for another one.
fn command(
    directory: &Path,
    arguments: &[&str],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Command {
    let mut command = Command::new("git");
    for (name, _) in environment {
        let kept = ["GIT_CONFIG", "GIT_TEST", "GIT_CEILING"];
        let named = name.to_string_lossy();
        if named.starts_with("GIT_") && !kept.iter().any(|kept| named.starts_with(kept)) {
            command.env_remove(&name);
        }
    }
    // Nothing here may ask the network or a person: the answer is on the disk or nowhere.
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0");
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn answer(mut command: Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}

#[cfg(test)]
mod tests;
