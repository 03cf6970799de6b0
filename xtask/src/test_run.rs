//! `cargo xtask test`: build the program, hand it to the tests, run them, count.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::peers::{self, PeerPolicy, Prepared, SKIP_VARIABLE, SKIPPED_FILE_VARIABLE};
use crate::test_totals::{Totals, libtest_summary, nextest_summary};
use crate::workspace::{Workspace, run as run_shown, shown};

/// The program under test, set for the tests; they refuse to guess another.
const PROGRAM_VARIABLE: &str = "OFFSPRING_BIN";
/// The fake runtime, for the tests of what talks to one.
const FAKE_RUNTIME_VARIABLE: &str = "OFFSPRING_FAKE_RUNTIME";
/// The guard program, set if it is one of its own.
const GUARD_VARIABLE: &str = "OFFSPRING_GUARD_BIN";

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TestArguments {
    /// Run only tests whose name contains this.
    filter: Option<String>,
    /// What a peer that cannot be fetched for want of a connection does to the run.
    #[arg(long, value_enum, default_value_t)]
    peers: PeerPolicy,
}

impl TestArguments {
    pub(crate) fn all(peers: PeerPolicy) -> Self {
        Self { filter: None, peers }
    }
}

/// What the runners said.
pub(crate) struct TestOutcome {
    pub(crate) totals: Totals,
    /// Why the run failed although no test may have.
    problems: Vec<String>,
}

impl TestOutcome {
    pub(crate) fn is_success(&self) -> bool {
        self.problems.is_empty() && self.totals.failed == 0
    }

    /// The problems to stderr, then the two counting lines to stdout.
    pub(crate) fn print(&self) {
        for problem in &self.problems {
            eprintln!("xtask: {problem}");
        }
        println!("{}", self.totals.plain());
        println!("{}", self.totals);
    }
}

/// Programs that were built for the tests.
pub(crate) struct Programs {
    directory: PathBuf,
    has_guard: bool,
}

impl Programs {
    pub(crate) fn hand_to(&self, command: &mut Command) {
        let path = |name: &str| self.directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        command.env(PROGRAM_VARIABLE, path("offspring"));
        command.env(FAKE_RUNTIME_VARIABLE, path("offspring-fake-runtime"));
        if self.has_guard {
            command.env(GUARD_VARIABLE, path("offspring-guard"));
        }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &TestArguments) -> Result<TestOutcome> {
    let prepared = peers::prepare(workspace, arguments.peers)?;
    let programs = build(workspace, &["build", "--workspace", "--tests"], "debug")?;
    let skipped_file = new_skipped_file(workspace)?;

    let mut outcome = TestOutcome { totals: Totals::default(), problems: Vec::new() };
    let filter = arguments.filter.as_deref();
    let runners = if has_nextest(workspace) {
        vec![
            (nextest(workspace, filter), Reads::Nextest),
            (libtest(workspace, &["--doc"], filter), Reads::Libtest),
        ]
    } else {
        eprintln!("   cargo-nextest is not installed; running `cargo test`");
        vec![(libtest(workspace, &[], filter), Reads::Libtest)]
    };
    for (mut command, reads) in runners {
        programs.hand_to(&mut command);
        set_variables(&mut command, &prepared, &skipped_file);
        let name = shown(&command);
        let (totals, success) = count(command, reads)?;
        // A runner that ends badly without a failed test did not build or did not finish.
        if !success && totals.failed == 0 {
            outcome.problems.push(format!("`{name}` failed, though it counted no failed test"));
        }
        outcome.totals.add(&totals);
    }
    if outcome.totals.passed + outcome.totals.failed == 0 {
        outcome.problems.push("no test ran".to_owned());
    }

    let skipped = read_skipped(&skipped_file)?;
    for (peer, test) in &skipped {
        if !prepared.missing.contains(peer) {
            outcome
                .problems
                .push(format!("{test} skipped itself for want of `{peer}`, which is not missing"));
        }
    }
    outcome.totals.skip(skipped.into_iter().map(|(_, test)| test).collect());
    Ok(outcome)
}

/// Builds `offspring` (and its guard, if that is a program of its own) and the fake runtime with whatever else `arguments` name.
pub(crate) fn build(workspace: &Workspace, arguments: &[&str], profile: &str) -> Result<Programs> {
    let members = workspace.members()?;
    let has_guard = members.has_target("bin", "offspring-guard");
    let mut command = workspace.cargo(arguments);
    command.args(["--bin", "offspring", "--bin", "offspring-fake-runtime"]);
    if has_guard {
        command.args(["--bin", "offspring-guard"]);
    }
    run_shown(command)?;
    Ok(Programs { directory: members.target_directory.join(profile), has_guard })
}

pub(crate) fn has_nextest(workspace: &Workspace) -> bool {
    let mut command = workspace.cargo(["nextest", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[derive(Clone, Copy)]
enum Reads {
    /// Summary on stderr.
    Nextest,
    /// Summaries on stdout, one per binary.
    Libtest,
}

fn nextest(workspace: &Workspace, filter: Option<&str>) -> Command {
    let mut command = workspace.cargo([
        "nextest",
        "run",
        "--workspace",
        "--no-fail-fast",
        "--no-tests=pass",
        "--color=never",
    ]);
    command.args(["--status-level=slow", "--final-status-level=fail"]);
    command.args(filter);
    command.stdout(Stdio::inherit()).stderr(Stdio::piped());
    command
}

fn libtest(workspace: &Workspace, which: &[&str], filter: Option<&str>) -> Command {
    let mut command = workspace.cargo(["test", "--workspace", "--no-fail-fast", "--quiet"]);
    command.args(which);
    if let Some(filter) = filter {
        command.args(["--", filter]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn set_variables(command: &mut Command, prepared: &Prepared, skipped_file: &Path) {
    command.env(SKIP_VARIABLE, prepared.missing.join(","));
    command.env(SKIPPED_FILE_VARIABLE, skipped_file);
    for (name, value) in &prepared.variables {
        command.env(name, value);
    }
    // Somebody's shell must not make a property test smaller than it is written.
    command.env_remove("PROPTEST_CASES");
}

/// Runs a test runner, passes its lines on to stderr and adds up its summaries.
fn count(mut command: Command, reads: Reads) -> Result<(Totals, bool)> {
    let name = shown(&command);
    eprintln!("   $ {name}");
    let mut child = command.spawn().with_context(|| format!("starting `{name}`"))?;
    let mut totals = Totals::default();
    let mut seen = false;
    let lines: Box<dyn BufRead> = match reads {
        Reads::Nextest => Box::new(BufReader::new(child.stderr.take().context("stderr is a pipe")?)),
        Reads::Libtest => Box::new(BufReader::new(child.stdout.take().context("stdout is a pipe")?)),
    };
    for line in lines.split(b'\n') {
        let line = line.with_context(|| format!("reading from `{name}`"))?;
        let line = String::from_utf8_lossy(&line);
        let summary = match reads {
            Reads::Nextest => nextest_summary(&line),
            Reads::Libtest => libtest_summary(&line),
        };
        // Binaries without tests would fill screens with nothing.
        let is_empty =
            line.trim().is_empty() || line == "running 0 tests" || summary == Some(Totals::default());
        if !(is_empty && matches!(reads, Reads::Libtest)) {
            eprintln!("{line}");
        }
        if let Some(summary) = summary {
            seen = true;
            totals.add(&summary);
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{name}`"))?;
    if status.success() && !seen && matches!(reads, Reads::Nextest) {
        bail!("`{name}` succeeded but printed no summary that is understood here");
    }
    Ok((totals, status.success()))
}

fn new_skipped_file(workspace: &Workspace) -> Result<PathBuf> {
    let directory = workspace.state_directory()?;
    let path = directory.join(format!("skipped-{}", std::process::id()));
    std::fs::write(&path, "").with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// Pairs of peer and test, each once, although a test that is tried twice says so twice.
fn read_skipped(path: &Path) -> Result<BTreeSet<(String, String)>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    let mut skipped = BTreeSet::new();
    for line in text.lines() {
        let (peer, test) = line.split_once(' ').with_context(|| format!("`{line}` is not `peer test`"))?;
        skipped.insert((peer.to_owned(), test.trim().to_owned()));
    }
    Ok(skipped)
}
