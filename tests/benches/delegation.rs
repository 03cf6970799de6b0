//! `cargo xtask bench delegation [--smoke]`: what a delegation costs.
//!
//! Everything runs on the path of `offspring run`: a pool from a manifest, default settings, the manager, the
//! log, and a subscriber that reads every envelope. What was announced is compared with what the store gives
//! back; a difference in rows, events or order fails the benchmark. Times never do: each is printed with its
//! goal. `docs/benchmarks.md` says how to read them.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

#[path = "delegation/announced.rs"]
mod announced;
#[path = "delegation/commands.rs"]
mod commands;
#[path = "delegation/floor.rs"]
mod floor;
#[path = "delegation/latency.rs"]
mod latency;
#[path = "delegation/machine.rs"]
mod machine;
#[path = "delegation/memory.rs"]
mod memory;
#[path = "delegation/node.rs"]
mod node;
#[path = "delegation/report.rs"]
mod report;
#[path = "delegation/routing.rs"]
mod routing;
#[path = "delegation/store.rs"]
mod store;
#[path = "delegation/team.rs"]
mod team;
#[path = "delegation/tree_command.rs"]
mod tree_command;

use std::{path::PathBuf, process::ExitCode};

use report::Report;

/// Anything that went wrong, with its words.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Enough to check what can be counted.
    Smoke,
    /// Enough to trust the times.
    Full,
}

impl Size {
    const fn pick<T: Copy>(self, smoke: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Full => full,
        }
    }
}

/// What all measurements are given.
#[derive(Debug)]
struct Setting {
    size: Size,
    /// The program, for what is measured between processes.
    program: PathBuf,
    /// For stores; on the disk of the build.
    directory: tempfile::TempDir,
}

impl Setting {
    fn new(size: Size) -> Result<Self, Failed> {
        let program = std::env::var_os("OFFSPRING_BIN")
            .ok_or("OFFSPRING_BIN does not name the program: run `cargo xtask bench delegation`")?;
        let directory = tempfile::Builder::new().prefix("bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self { size, program: program.into(), directory })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    smoke: bool,
    /// Only measurements whose name begins so.
    only: Option<String>,
}

impl Asked {
    fn parse() -> Result<Self, Failed> {
        let mut asked = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--smoke" => asked.smoke = true,
                "--only" => asked.only = Some(words.next().ok_or("--only needs the name of a measurement")?),
                // What cargo tells every benchmark.
                "--bench" => {}
                other => return Err(format!("`{other}` is not known: --smoke, --only NAME").into()),
            }
        }
        Ok(asked)
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(report) => report.finish(),
        Err(failed) => {
            println!("FAILED: {failed}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<Report, Failed> {
    let asked = Asked::parse()?;
    let setting = Setting::new(if asked.smoke { Size::Smoke } else { Size::Full })?;
    let wanted = |name: &str| asked.only.as_deref().is_none_or(|only| name.starts_with(only));
    machine::print("delegation", setting.size);
    // The same runtime as the program's.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    runtime.block_on(async {
        // First, while the process has touched little memory.
        if wanted("heap") {
            memory::measure(&setting, &mut report).await?;
        }
        if wanted("memory") {
            team::in_memory(&setting, &mut report).await?;
        }
        if wanted("sqlite") {
            team::in_sqlite(&setting, &mut report).await?;
        }
        if wanted("command") {
            commands::measure(&setting, &mut report).await?;
        }
        if wanted("routing") {
            routing::measure(&setting, &mut report).await?;
        }
        if wanted("tree") {
            tree_command::measure(&setting, &mut report).await?;
        }
        if wanted("latency") {
            latency::measure(&setting, &mut report).await?;
        }
        Ok::<(), Failed>(())
    })?;
    Ok(report)
}
