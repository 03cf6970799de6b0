//! `offspring doctor`: what is found, what is missing, where data is and how big, what was left behind. Changes nothing.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::{
    exit,
    failure::Failure,
    store::Place,
    summary,
    text::{counted, finish, finish_json, plain},
};

mod data;
mod left;
mod system;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing has to be mended (there may be warnings), 1 something has, 2 wrong use.\n\n\
    Examples:\n  \
    offspring doctor\n  \
    offspring doctor --json | jq '.findings[] | select(.level == \"problem\")'"
)]
pub(crate) struct Doctor {
    /// Check every page of the store, however long that takes.
    #[arg(long)]
    pub(crate) full: bool,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// To be thought about.
    Warning,
    /// To be mended: the exit code says so.
    Problem,
}

impl Level {
    /// In four columns.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "WARN",
            Self::Problem => "FAIL",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    /// What was looked at, in one word.
    what: &'static str,
    level: Level,
    /// What was found.
    found: String,
    /// What to do about it.
    todo: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, level: Level::Ok, found: found.into(), todo: None }
    }

    fn new(what: &'static str, level: Level, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { what, level, found: found.into(), todo: Some(todo.into()) }
    }

    fn problem(what: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::new(what, Level::Problem, found, todo)
    }

    fn text(&self) -> String {
        let Self { what, level, found, todo } = self;
        let mut text = format!("{:<4}  {what:<9}  {}\n", level.word(), plain(found));
        for line in todo.iter().flat_map(|todo| todo.lines()) {
            text.push_str(&format!("{:>15}  -> {}\n", "", plain(line)));
        }
        text
    }
}

pub(crate) async fn doctor(db: Option<PathBuf>, args: &Doctor) -> Result<ExitCode, Failure> {
    let mut findings = system::look().await;
    let place = Place::choose(db.clone(), None);
    // As it is typed for this store.
    let program = place.as_ref().map_or_else(|_| summary::program(), summary::program_on);
    let (store, of_store) = data::look(place, db.is_some(), args.full, &program).await;
    findings.extend(of_store);
    let (left, of_left) = left::look(&program);
    findings.extend(of_left);

    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    if args.json {
        finish_json(&json!({
            "healthy": problems == 0, "problems": problems, "warnings": warnings,
            "version": env!("CARGO_PKG_VERSION"), "findings": findings, "store": store, "left": left,
        }))?;
    } else {
        let mut text: String = findings.iter().map(Finding::text).collect();
        let problems = if problems == 0 {
            "nothing has to be mended".to_owned()
        } else {
            counted(problems, "problem", "problems")
        };
        text.push_str(&format!("{problems}, {}\n", counted(warnings, "warning", "warnings")));
        finish(&text)?;
    }
    Ok(ExitCode::from(if problems == 0 { exit::DONE } else { exit::FAILED }))
}
