//! `cargo xtask differential [--broken]`: our client against the Python SDK, and whether a wrong client is noticed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::peers::{self, PeerPolicy};
use crate::workspace::{Workspace, run as run_shown, shown};

/// The python that has the SDK.
const PYTHON_VARIABLE: &str = "OFFSPRING_DSH_PYTHON";
/// What the test says when the two differ.
const DIFFER: &str = "streams differ";

#[derive(Args, Clone, Debug)]
pub(crate) struct DifferentialArguments {
    /// Build the client wrongly in each way that is listed, from a copy of the tree, and require that the test notices.
    #[arg(long)]
    broken: bool,
}

/// A way to break a rule: this text, which is there once, becomes another.
struct Break {
    rule: &'static str,
    about: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const BREAKS: &[Break] = &[
    Break {
        rule: "T4",
        about: "a finish rewrites ancestry",
        file: "crates/tree/src/router.rs",
        from: "            Notification::Finished { parent, child } => {\n",
        to: "            Notification::Finished { parent, child } => {\n                let _ = self.ancestry.record(parent, child);\n",
    },
    Break {
        rule: "T4",
        about: "a finish is routed by the present parent of its child",
        file: "crates/tree/src/router.rs",
        from: "                self.reach(parent, &mut cost);\n                self.reach_only(child, &mut cost);\n",
        to: "                self.reach(child, &mut cost);\n                self.reach_only(parent, &mut cost);\n",
    },
    Break {
        rule: "T12",
        about: "a message of a descendant becomes the final response",
        file: "crates/client/src/collector.rs",
        from: "        SESSION_EVENT if of_root => {}\n",
        to: "        SESSION_EVENT if of_root || notification.event_type() == Some(ASSISTANT_MESSAGE) => {}\n",
    },
];

pub(crate) fn run(workspace: &Workspace, arguments: &DifferentialArguments) -> Result<()> {
    let python = python(workspace)?;
    if !arguments.broken {
        let mut command = workspace.cargo(["test", "--package", "offspring-tests", "--test", "differential"]);
        command.args(["--", "--nocapture"]).env(PYTHON_VARIABLE, python);
        return run_shown(command);
    }
    let directory = workspace.state_directory()?.join("differential");
    let copy = directory.join("tree");
    copy_tree(workspace, &copy)?;
    let test = |filter: &str| {
        let mut command = workspace.cargo(["test", "--package", "offspring-tests", "--test", "differential"]);
        command.arg("--target-dir").arg(directory.join("target")).args(["--", filter, "--nocapture"]);
        command.current_dir(&copy).env(PYTHON_VARIABLE, &python).env("RUST_BACKTRACE", "0");
        command
    };
    let random = "t4_t12_random_streams_come_out_of_both_clients_alike";
    // A test that fails anyhow would notice everything.
    run_shown(test(random)).context("the tree as it is, before anything in it is broken")?;
    for Break { rule, about, file, from, to } in BREAKS {
        let path = copy.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
        if text.matches(from).count() != 1 {
            bail!(
                "{file} no longer has the text that breaks {rule} ({about}); mend xtask/src/differential.rs"
            );
        }
        std::fs::write(&path, text.replacen(from, to, 1))?;
        let mut command = test(random);
        eprintln!("   {rule}: {about}\n   $ {}", shown(&command));
        let output = command.stdin(Stdio::null()).output().context("starting cargo")?;
        std::fs::write(&path, &text)?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            bail!("{rule} was broken ({about}) and the differential test did not notice");
        }
        if !said.contains(DIFFER) {
            bail!("{rule} was broken ({about}) and the test failed for another reason:\n{said}");
        }
        let first = said.lines().skip_while(|line| !line.contains(DIFFER)).nth(1).unwrap_or_default();
        println!("{rule} broken ({about}): noticed, {}", first.trim());
    }
    Ok(())
}

fn python(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(PYTHON_VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let prepared = peers::prepare(workspace, PeerPolicy::Required)?;
    let found = prepared.variables.into_iter().find(|(name, _)| name == PYTHON_VARIABLE);
    Ok(found.context("no python with the SDK was prepared")?.1.into())
}

/// The files of the tree, so that what is changed there is changed nowhere else. Only what differs is written, so that
/// cargo builds again what it has to.
fn copy_tree(workspace: &Workspace, copy: &Path) -> Result<()> {
    // What is no longer in the tree must not be in the copy; its build stays.
    let files: BTreeSet<PathBuf> = workspace.files()?.into_iter().collect();
    remove_others(copy, copy, &files)?;
    for file in &files {
        let (from, to) = (workspace.root().join(file), copy.join(file));
        let content = std::fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&to, content).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

fn remove_others(directory: &Path, copy: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, copy, files)?;
        } else if path.strip_prefix(copy).is_ok_and(|file| !files.contains(file)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
