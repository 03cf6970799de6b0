//! `cargo xtask ci`: every step runs, then what failed is listed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::bench::{self, BenchArguments};
use crate::fetch::Fetched;
use crate::peers::PeerPolicy;
use crate::test_run::{self, TestArguments};
use crate::tidy;
use crate::tools::CARGO_DENY;
use crate::workspace::{Workspace, run as run_shown};

#[derive(Args, Clone, Debug)]
pub(crate) struct CiArguments {
    /// Run only this step (may be given several times).
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Leave this step out (may be given several times).
    #[arg(long, value_name = "STEP")]
    skip: Vec<String>,
    /// Print the names of the steps and end.
    #[arg(long)]
    list: bool,
    /// What a peer or tool that cannot be fetched for want of a connection does to the run.
    #[arg(long, value_enum, default_value_t)]
    peers: PeerPolicy,
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Environment) -> Result<Done>,
}

/// What a step may use and leave for the end.
struct Environment {
    workspace: Workspace,
    peers: PeerPolicy,
}

/// How a step ended if it did not fail.
enum Done {
    Passed,
    Skipped(String),
}

/// In an order in which later steps find what earlier ones compiled: checks first, then one debug build for all tests,
/// last the release build. The tool of `deny` is built only once per user; what it costs then delays nothing else.
const STEPS: &[Step] = &[
    Step { name: "lock", about: "Cargo.lock fits the manifests", run: lock },
    Step { name: "fmt", about: "the code is formatted", run: fmt },
    Step { name: "clippy", about: "no warning in any target", run: clippy },
    Step { name: "alone", about: "each crate compiles alone, with default and with no features", run: alone },
    Step { name: "doc", about: "the documentation builds without a warning", run: doc },
    Step { name: "test", about: "all tests", run: test },
    Step { name: "tidy", about: "what no compiler checks", run: tidy_step },
    Step { name: "downstream", about: "outside workspaces that use one crate each", run: downstream },
    Step { name: "bench", about: "benchmarks in smoke mode", run: bench_step },
    Step { name: "deny", about: "licences, banned crates, sources", run: deny },
];

/// Holds the counting line of the last `test` step, for whoever prints it again at the very end.
const TOTALS_FILE: &str = "test-totals";

pub(crate) fn run(workspace: &Workspace, arguments: &CiArguments) -> Result<ExitCode> {
    if arguments.list {
        for step in STEPS {
            println!("{:<12}{}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    for name in arguments.only.iter().chain(&arguments.skip) {
        if !STEPS.iter().any(|step| step.name == name) {
            bail!("there is no step `{name}`; `cargo xtask ci --list` names them");
        }
    }
    let context = Environment { workspace: Workspace::find()?, peers: arguments.peers };
    let totals_file = totals_file(workspace)?;
    if totals_file.exists() {
        std::fs::remove_file(&totals_file).with_context(|| format!("removing {}", totals_file.display()))?;
    }

    let started = Instant::now();
    let mut results: Vec<(&str, Ended, Duration)> = Vec::new();
    for step in STEPS {
        let chosen = arguments.only.is_empty() || arguments.only.iter().any(|name| name == step.name);
        if !chosen || arguments.skip.iter().any(|name| name == step.name) {
            continue;
        }
        eprintln!("── {}: {}", step.name, step.about);
        let step_started = Instant::now();
        let ended = match (step.run)(&context) {
            Ok(Done::Passed) => Ended::Passed,
            Ok(Done::Skipped(reason)) => Ended::Skipped(reason),
            Err(error) => {
                eprintln!("xtask: {error:#}");
                Ended::Failed(format!("{error:#}"))
            }
        };
        let elapsed = step_started.elapsed();
        eprintln!("── {}: {} in {:.1} s", step.name, ended.word(), elapsed.as_secs_f64());
        results.push((step.name, ended, elapsed));
    }
    summarize(&results, started.elapsed());
    // Last, and on stdout: that tests ran, and how many.
    if let Ok(line) = std::fs::read_to_string(&totals_file) {
        print!("{line}");
    }
    let failed = results.iter().any(|(_, ended, _)| matches!(ended, Ended::Failed(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

enum Ended {
    Passed,
    Skipped(String),
    Failed(String),
}

impl Ended {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped(_) => "SKIPPED",
            Self::Failed(_) => "FAILED",
        }
    }
}

fn summarize(results: &[(&str, Ended, Duration)], whole: Duration) {
    eprintln!("── summary, {:.0} s", whole.as_secs_f64());
    for (name, ended, elapsed) in results {
        let reason = match ended {
            Ended::Passed => "",
            Ended::Skipped(reason) | Ended::Failed(reason) => reason.lines().next().unwrap_or_default(),
        };
        eprintln!("   {name:<12}{:<8}{:>7.1} s  {reason}", ended.word(), elapsed.as_secs_f64());
    }
}

fn totals_file(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.state_directory()?.join(TOTALS_FILE))
}

fn lock(context: &Environment) -> Result<Done> {
    let mut command = context.workspace.cargo(["metadata", "--format-version=1", "--locked"]);
    command.stdout(std::process::Stdio::null());
    run_shown(command)?;
    Ok(Done::Passed)
}

fn fmt(context: &Environment) -> Result<Done> {
    run_shown(context.workspace.cargo(["fmt", "--all", "--check"]))?;
    for manifest in context.workspace.downstream()?.values() {
        let mut command = context.workspace.cargo(["fmt", "--check", "--manifest-path"]);
        command.arg(manifest);
        run_shown(command)?;
    }
    Ok(Done::Passed)
}

fn clippy(context: &Environment) -> Result<Done> {
    run_shown(context.workspace.cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Done::Passed)
}

/// Features that are not on by default and have to compile without any other.
const BUILT_ALONE: &[(&str, &str)] = &[("offspring-sessions", "postgres")];

fn alone(context: &Environment) -> Result<Done> {
    let crates = context.workspace.root().join("crates");
    let mut failed = Vec::new();
    for package in context.workspace.members()?.packages {
        if !package.manifest_path.starts_with(&crates) {
            continue;
        }
        let mut ways = vec![vec![], vec!["--no-default-features"]];
        for (_, features) in BUILT_ALONE.iter().filter(|(name, _)| *name == package.name) {
            ways.push(vec!["--no-default-features", "--features", features]);
        }
        for features in ways {
            let mut command =
                context.workspace.cargo(["check", "--quiet", "--package", package.name.as_str()]);
            command.args(&features);
            if run_shown(command).is_err() {
                failed.push(format!("{} {}", package.name, features.join(" ")));
            }
        }
    }
    if !failed.is_empty() {
        bail!("these do not compile alone: {}", failed.join(", "));
    }
    Ok(Done::Passed)
}

fn doc(context: &Environment) -> Result<Done> {
    let mut command = context.workspace.cargo(["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run_shown(command)?;
    Ok(Done::Passed)
}

fn test(context: &Environment) -> Result<Done> {
    let outcome = test_run::run(&context.workspace, &TestArguments::all(context.peers))?;
    outcome.print();
    let lines = format!("{}\n{}\n", outcome.totals.plain(), outcome.totals);
    std::fs::write(totals_file(&context.workspace)?, lines).context("keeping the totals")?;
    if !outcome.is_success() {
        bail!("{}", outcome.totals);
    }
    Ok(Done::Passed)
}

fn tidy_step(context: &Environment) -> Result<Done> {
    tidy::run(&context.workspace, &tidy::TidyArguments::default())?;
    Ok(Done::Passed)
}

fn downstream(context: &Environment) -> Result<Done> {
    let mut failed = Vec::new();
    for (name, manifest) in context.workspace.downstream()? {
        let mut command =
            context.workspace.cargo(["test", "--quiet", "--locked", "--target-dir", "target/downstream"]);
        command.arg("--manifest-path").arg(&manifest);
        if run_shown(command).is_err() {
            failed.push(format!("tests/downstream/{name}"));
        }
    }
    if !failed.is_empty() {
        bail!("{} failed ({})", failed.join(", "), tidy::OLD_LOCK);
    }
    Ok(Done::Passed)
}

fn bench_step(context: &Environment) -> Result<Done> {
    bench::run(&context.workspace, &BenchArguments::smoke("delegation"))?;
    bench::run(&context.workspace, &BenchArguments::smoke("client"))?;
    Ok(Done::Passed)
}

fn deny(context: &Environment) -> Result<Done> {
    let program = match CARGO_DENY.ensure(&context.workspace)? {
        Fetched::Ready(program) => program,
        Fetched::Unreachable(reason) if context.peers == PeerPolicy::Required => {
            bail!("{} is required: {reason}", CARGO_DENY.name)
        }
        Fetched::Unreachable(reason) => {
            return Ok(Done::Skipped(format!("{} could not be fetched: {reason}", CARGO_DENY.name)));
        }
    };
    let mut command = std::process::Command::new(program);
    command.args(["--locked", "check", "bans", "licenses", "sources"]);
    command.current_dir(context.workspace.root()).stdin(std::process::Stdio::null());
    run_shown(command)?;
    Ok(Done::Passed)
}
