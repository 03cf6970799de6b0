//! `cargo xtask mutants`: do the tests notice a wrong line?

use std::path::Path;
use std::process::Stdio;

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
/// Seconds after which a whole test run counts as hanging; the profile of nextest ends a single test long before.
const TIMEOUT_SECONDS: &str = "240";
/// A build has none to speak of: one that a busy machine makes slow has noticed nothing.
const BUILD_TIMEOUT_SECONDS: &str = "1800";
/// Profile of nextest: it stops at the first failure and bounds each test.
const NEXTEST_PROFILE: &str = "mutants";
/// A change to it may end any process that the user may end; its tests run only where they see none but their own.
const ENDS_PROCESSES: &str = "offspring-process";
/// Linux: each test in a process namespace of its own, which ends with it, below a shell that reaps. With the rights
/// of root, else with those that a user namespace lends.
const NAMESPACES: [&[&str]; 2] = [&[], &["--user", "--map-current-user"]];
const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
const REAPER: [&str; 3] = ["sh", "-c", r#""$0" "$@"; exit $?"#];
/// Where each survivor stands with its reason.
const SURVIVORS: &str = "docs/mutants.md";

#[derive(Args, Clone, Debug)]
pub(crate) struct MutantsArguments {
    /// Only these crates (default: tree, sessions, delegation, client, transport, process).
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
    /// Builds and tests at once, each in a copy of the tree that is built from nothing.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Change the tree itself, one change after the other, and build on what is built: for a worktree in which nobody
    /// works meanwhile.
    #[arg(long, conflicts_with = "jobs")]
    in_place: bool,
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
    #[serde(default)]
    phase_results: Vec<Phase>,
}

#[derive(Deserialize)]
struct Phase {
    phase: String,
}

impl Outcome {
    /// Whether the bound that was reached is that of the build, which says nothing about the tests.
    fn is_unbuilt(&self) -> bool {
        self.summary == "Timeout" && self.phase_results.last().is_some_and(|last| last.phase == "Build")
    }
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
    let named = arguments.packages.iter().map(String::as_str);
    let packages: Vec<&str> = if arguments.packages.is_empty() { CRATES.to_vec() } else { named.collect() };
    let mut command = std::process::Command::new(program);
    command.args(["mutants", "--no-shuffle", "--colors=never", "--timeout", TIMEOUT_SECONDS]);
    command.args(["--build-timeout", BUILD_TIMEOUT_SECONDS]);
    command.arg("--output").arg(&output);
    if arguments.in_place {
        command.arg("--in-place");
    } else {
        command.arg("--jobs").arg(arguments.jobs.to_string());
    }
    if test_run::has_nextest(workspace) {
        command.arg("--test-tool=nextest").env("NEXTEST_PROFILE", NEXTEST_PROFILE);
    }
    // Nobody reads a backtrace of what is built here, and linking without it takes half the time.
    command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    // That a property fails is all there is to know: no smaller example, and none kept in the tree.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    match namespace() {
        Some(runner) => _ = command.arg(format!("--cargo-arg=--config={}", runner_setting(&runner)?)),
        None if packages.contains(&ENDS_PROCESSES) => bail!(
            "a changed {ENDS_PROCESSES} may end any process of yours, and `unshare` (util-linux) cannot shut its tests away here"
        ),
        None => {}
    }
    for package in packages {
        command.args(["--package", package]);
    }
    programs.hand_to(&mut command);
    command.args(&arguments.rest).current_dir(workspace.root()).stdin(Stdio::null());
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

/// The program and its arguments that run a test where it sees no process but its own, if the system can.
fn namespace() -> Option<Vec<&'static str>> {
    NAMESPACES.iter().find_map(|rights| {
        let runner = [&NAMESPACE[..], rights, &REAPER].concat();
        let (unshare, arguments) = runner.split_first()?;
        let mut command = std::process::Command::new(unshare);
        command.args(arguments).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success()).then_some(runner)
    })
}

/// As a setting of cargo, which nextest reads too.
fn runner_setting(runner: &[&str]) -> Result<String> {
    // A list of JSON strings is one of TOML.
    let list = serde_json::to_string(runner).context("writing the command that runs a test")?;
    Ok(format!("target.'cfg(unix)'.runner={list}"))
}

fn judge(root: &Path, report: &Report) -> Result<()> {
    let count = |word: &str| report.outcomes.iter().filter(|outcome| outcome.summary == word).count();
    let unbuilt = report.outcomes.iter().filter(|outcome| outcome.is_unbuilt()).count();
    let (caught, missed, timeout) =
        (count("CaughtMutant"), count("MissedMutant"), count("Timeout") - unbuilt);
    let unviable = count("Unviable");
    let Some(rate) = catch_rate(caught + timeout, missed) else { bail!("there was nothing to change") };
    println!(
        "mutants: {caught} caught, {timeout} hung, {missed} survived, {unviable} did not compile: {rate:.1} % caught"
    );

    // A bar would end a cell of the table.
    let reasons = std::fs::read_to_string(root.join(SURVIVORS)).unwrap_or_default().replace("\\|", "|");
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
    if unbuilt > 0 {
        bail!("{unbuilt} changes were not built in time, so that nothing is known of them");
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
    fn the_runner_is_a_setting_that_cargo_can_read() {
        assert_eq!(
            runner_setting(&["sh", "-c", r#""$0"; exit $?"#]).unwrap(),
            r#"target.'cfg(unix)'.runner=["sh","-c","\"$0\"; exit $?"]"#
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_test_run_there_sees_no_process_of_ours_and_its_exit_code_comes_back() {
        // Where the system cannot, the task says so; there is nothing to look at.
        let Some(runner) = namespace() else { return };
        let (unshare, arguments) = runner.split_first().unwrap();
        let there = |script: String| {
            let mut command = std::process::Command::new(unshare);
            command.args(arguments).args(["sh", "-c", &script]).status().unwrap().code()
        };
        assert_eq!(there("exit 7".to_owned()), Some(7));
        let ours = std::fs::read_link("/proc/self/ns/pid").unwrap();
        let elsewhere = format!(r#"test "$(readlink /proc/self/ns/pid)" != "{}""#, ours.display());
        assert_eq!(there(elsewhere), Some(0));
        // Its first process is the shell, and /proc shows that one.
        assert_eq!(there(r#"test "$(cat /proc/1/comm)" = sh"#.to_owned()), Some(0));
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
        let hung = |phase| {
            let phases = format!(r#"[{{"phase":"Build"}},{{"phase":"{phase}"}}]"#);
            format!(r#"{{"summary":"Timeout","scenario":"Baseline","phase_results":{phases}}}"#)
        };
        assert!(judge(&root, &report(&[hung("Test")])).is_ok());
        assert!(judge(&root, &report(&[hung("Build")])).is_err(), "nobody has tested it");
        assert!(judge(&root, &report(&[survivor(4), survivor(4), survivor(4)])).is_err());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
