//! `cargo xtask bench NAME`: a benchmark of the `offspring-tests` package, as it is released.

use anyhow::{Result, bail};
use clap::Args;

use crate::peers::{self, PeerPolicy};
use crate::test_run;
use crate::workspace::{Workspace, run as run_shown};

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArguments {
    /// The name of the benchmark.
    name: String,
    /// Check what can be counted, not how long it takes.
    #[arg(long)]
    smoke: bool,
    /// Given to the benchmark.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl BenchArguments {
    pub(crate) fn smoke(name: &str) -> Self {
        Self { name: name.to_owned(), smoke: true, rest: Vec::new() }
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &BenchArguments) -> Result<()> {
    if !workspace.members()?.has_target("bench", &arguments.name) {
        bail!("there is no benchmark `{}` in tests/benches", arguments.name);
    }
    // Some measurements are between processes. The same build as `cargo run --release` makes.
    let packages = ["offspring", "offspring-process", "offspring-fake-runtime"];
    let mut build = vec!["build", "--release"];
    build.extend(packages.into_iter().flat_map(|package| ["--package", package]));
    let programs = test_run::build(workspace, &build, "release")?;
    let mut command =
        workspace.cargo(["bench", "--package", "offspring-tests", "--bench", &arguments.name, "--"]);
    if arguments.smoke {
        command.arg("--smoke");
    }
    command.args(&arguments.rest);
    programs.hand_to(&mut command);
    // What another client needs for the same work; without it there are only our figures.
    if arguments.name == "client" && std::env::var_os("OFFSPRING_DSH_PYTHON").is_none() {
        command.envs(peers::prepare(workspace, PeerPolicy::Optional)?.variables);
    }
    run_shown(command)
}
