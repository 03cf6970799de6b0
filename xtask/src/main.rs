//! Build, test and check tasks: `cargo xtask help`.
//!
//! Progress goes to stderr, results to stdout.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, which speaks no protocol"
)]

mod bench;
mod ci;
mod differential;
mod fetch;
mod mutants;
mod peers;
mod postgres;
mod test_run;
mod test_totals;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Tasks of the Offspring workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change must pass; runs every step, then lists what failed.
    Ci(ci::CiArguments),
    /// Build the program, hand it to the tests, run them; the last line counts them.
    Test(test_run::TestArguments),
    /// Fetch the programs that tests talk to, and print the variables that name them, for `eval`.
    Peers,
    /// Check what no compiler checks.
    Tidy(tidy::TidyArguments),
    /// Write docs/reference.md, as the program prints it.
    Reference,
    /// Run a benchmark of the `offspring-tests` package.
    Bench(bench::BenchArguments),
    /// Our client against the Python SDK, over recorded and random streams.
    Differential(differential::DifferentialArguments),
    /// Change the code line by line and see whether the tests notice.
    Mutants(mutants::MutantsArguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    match arguments.task {
        Task::Ci(arguments) => ci::run(&workspace, &arguments),
        Task::Test(arguments) => {
            // The counting line is the last one printed, so nothing is said after it.
            let outcome = test_run::run(&workspace, &arguments)?;
            outcome.print();
            Ok(if outcome.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Task::Peers => peers::print(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Tidy(arguments) => tidy::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Task::Reference => tidy::reference::write(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Bench(arguments) => bench::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Task::Differential(arguments) => {
            differential::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS)
        }
        Task::Mutants(arguments) => mutants::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
    }
}
