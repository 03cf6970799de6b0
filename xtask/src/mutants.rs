//! `cargo xtask mutants`: do the tests notice a wrong line?

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::test_run;
use crate::tools::{self, CARGO_MUTANTS};
use crate::workspace::Workspace;

/// The crates whose logic the rules are about.
const CRATES: [&str; 6] = [
    "offspring-tree",
    "offspring-sessions",
    "offspring-delegation",
    "offspring-client",
    "offspring-transport",
    "offspring-process",
];
/// Percent of the viable mutants that the tests have to notice.
const LEAST_CAUGHT: f64 = 90.0;
/// Seconds after which a mutant counts as noticed, because it hangs.
const TIMEOUT_SECONDS: &str = "60";
/// Where each survivor stands with its reason.
const SURVIVORS: &str = "docs/mutants.md";

#[derive(Args, Clone, Debug)]
pub(crate) struct MutantsArguments {
    /// Only these crates (default: tree, sessions, delegation, client, transport, process).
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
    /// Builds and tests at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Given to cargo-mutants, such as `--file PATH` or `--shard 0/8`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// `outcomes.json` of cargo-mutants, as far as it is used here.
#[derive(Deserialize)]
struct Report {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    summary: String,
    scenario: Scenario,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

#[derive(Deserialize)]
struct Mutant {
    /// `path:line:column: what was replaced`.
    name: String,
    file: String,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

#[derive(Deserialize)]
struct Position {
    line: usize,
}

pub(crate) fn run(workspace: &Workspace, arguments: &MutantsArguments) -> Result<()> {
    let program = tools::require(&CARGO_MUTANTS, workspace)?;
    let output = workspace.state_directory()?;
    // The runtime that the tests of a client talk to; it is changed by none of these runs.
    let packages =
        ["--package", "offspring", "--package", "offspring-process", "--package", "offspring-fake-runtime"];
    let programs = test_run::build(workspace, &[&["build"], &packages[..]].concat(), "debug")?;
    let mut command = std::process::Command::new(program);
    // Each job works on a copy of the tree; the tree itself is never changed.
    command.args(["mutants", "--no-shuffle", "--colors=never", "--timeout", TIMEOUT_SECONDS, "--jobs"]);
    command.arg(arguments.jobs.to_string()).arg("--output").arg(&output);
    if test_run::has_nextest(workspace) {
        command.arg("--test-tool=nextest");
    }
    let named = arguments.packages.iter().map(String::as_str);
    let packages: Vec<&str> = if arguments.packages.is_empty() { CRATES.to_vec() } else { named.collect() };
    for package in packages {
        command.args(["--package", package]);
    }
    programs.hand_to(&mut command);
    command.args(&arguments.rest).current_dir(workspace.root()).stdin(std::process::Stdio::null());
    eprintln!("   $ {}", crate::workspace::shown(&command));
    let status = command.status().context("starting cargo-mutants")?;

    let path = output.join("mutants.out/outcomes.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cargo-mutants ended with {status}; reading {}", path.display()))?;
    let report: Report =
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    // 2 and 3 say that mutants survived or hung, which is judged below; anything else that nothing was measured.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo-mutants ended with {status}");
    }
    judge(workspace.root(), &report)
}

fn judge(root: &Path, report: &Report) -> Result<()> {
    let count = |word: &str| report.outcomes.iter().filter(|outcome| outcome.summary == word).count();
    let (caught, missed, timeout) = (count("CaughtMutant"), count("MissedMutant"), count("Timeout"));
    let unviable = count("Unviable");
    let Some(rate) = catch_rate(caught + timeout, missed) else { bail!("there was nothing to change") };
    println!(
        "mutants: {caught} caught, {timeout} hung, {missed} survived, {unviable} did not compile: {rate:.1} % caught"
    );

    let reasons = std::fs::read_to_string(root.join(SURVIVORS)).unwrap_or_default();
    let mut problems = Vec::new();
    for mutant in
        report.outcomes.iter().filter(|outcome| outcome.summary == "MissedMutant").filter_map(mutant)
    {
        if !reasons.contains(replacement(&mutant.name)) || !reasons.contains(&mutant.file) {
            problems.push(format!("{}: survived and is not in {SURVIVORS}", mutant.name));
        }
        if let Some(function) = &mutant.function {
            let text = std::fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
            if let Some(rule) = cited_rule(&text, function.span.start.line, function.span.end.line) {
                problems.push(format!("{}: survived in a function that keeps {rule}", mutant.name));
            }
        }
    }
    for problem in &problems {
        eprintln!("   {problem}");
    }
    if rate < LEAST_CAUGHT {
        bail!("{rate:.1} % caught, at least {LEAST_CAUGHT} % are wanted");
    }
    if !problems.is_empty() {
        bail!("{} survivors are not explained, or must not survive", problems.len());
    }
    Ok(())
}

fn mutant(outcome: &Outcome) -> Option<&Mutant> {
    match &outcome.scenario {
        Scenario::Baseline => None,
        Scenario::Mutant(mutant) => Some(mutant),
    }
}

fn catch_rate(caught: usize, missed: usize) -> Option<f64> {
    let whole = u32::try_from(caught + missed).ok().filter(|whole| *whole > 0)?;
    Some(100.0 * f64::from(u32::try_from(caught).ok()?) / f64::from(whole))
}

/// The name without its place, which moves with every edit.
fn replacement(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(_, what)| what)
}

/// The first rule that a comment cites, above the function or inside it. Lines count from 1.
fn cited_rule(text: &str, first: usize, last: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut start = first.saturating_sub(1);
    while start > 0
        && lines
            .get(start - 1)
            .is_some_and(|line| line.trim_start().starts_with("//") || line.trim_start().starts_with("#["))
    {
        start -= 1;
    }
    let comments = lines.get(start..last.min(lines.len()))?.iter().filter_map(|line| line.split_once("//"));
    comments
        .flat_map(|(_, comment)| comment.split(|c: char| !c.is_alphanumeric()))
        .find(|word| {
            let digits = word.strip_prefix(['T', 'L', 'W']);
            digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_what_could_have_been_caught() {
        assert_eq!(catch_rate(9, 1), Some(90.0));
        assert_eq!(catch_rate(0, 0), None);
    }

    #[test]
    fn rules_are_found_in_comments_above_and_inside() {
        let text = "fn a() {}\n\n/// Routes. Rule T4.\n#[inline]\nfn b() {\n    c();\n}\nfn d() {\n    let T1 = 2; // why\n    e(); // L12: final\n}\n";
        assert_eq!(cited_rule(text, 1, 1), None);
        assert_eq!(cited_rule(text, 5, 7), Some("T4".to_owned()));
        assert_eq!(cited_rule(text, 8, 11), Some("L12".to_owned()));
    }

    #[test]
    fn survivors_without_a_reason_or_in_a_rule_fail() {
        let root = std::env::temp_dir().join(format!("offspring-xtask-mutants-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::write(root.join("a.rs"), "/// T1\nfn a() {\n}\nfn b() {\n}\n").unwrap();
        let survivor = |line: usize| {
            format!(
                r#"{{"summary":"MissedMutant","scenario":{{"Mutant":{{"name":"a.rs:{line}:1: replace f with ()","file":"a.rs",
                "function":{{"function_name":"f","span":{{"start":{{"line":{line},"column":1}},"end":{{"line":{},"column":1}}}}}}}}}}}}"#,
                line + 1
            )
        };
        let report = |survivors: &[String]| -> Report {
            let caught = r#"{"summary":"CaughtMutant","scenario":"Baseline"}"#;
            let mut outcomes = vec![caught.to_owned(); 20];
            outcomes.extend_from_slice(survivors);
            serde_json::from_str(&format!(r#"{{"outcomes":[{}]}}"#, outcomes.join(","))).unwrap()
        };
        assert!(judge(&root, &report(&[])).is_ok());
        assert!(judge(&root, &report(&[survivor(4)])).is_err());
        std::fs::write(root.join(SURVIVORS), "`a.rs`: replace f with (): equal by construction\n").unwrap();
        assert!(judge(&root, &report(&[survivor(4)])).is_ok());
        assert!(judge(&root, &report(&[survivor(2)])).is_err());
        assert!(judge(&root, &report(&[survivor(4), survivor(4), survivor(4)])).is_err());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
