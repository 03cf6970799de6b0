//! Which crate may use which, and what some must never know (`docs/architecture.md`, "Arrows and nevers").

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::Problems;
use super::source_text::{SourceFile, line_of, word_positions};
use crate::workspace::{Metadata, Package, Workspace};

/// The arrows. A crate may also use whatever its targets may use, and nothing else of the house.
const ARROWS: &[(&str, &[&str])] = &[
    ("offspring-protocol", &[]),
    ("offspring-process", &[]),
    ("offspring-tree", &["offspring-protocol"]),
    ("offspring-transport", &["offspring-protocol"]),
    ("offspring-client", &["offspring-transport", "offspring-process", "offspring-tree"]),
    ("offspring-fake-runtime", &["offspring-transport"]),
    ("offspring-sessions", &["offspring-tree"]),
    ("offspring-delegation", &["offspring-sessions"]),
    ("offspring-pool", &["offspring-delegation"]),
    (
        "offspring-agents",
        &["offspring-delegation", "offspring-process", "offspring-transport", "offspring-client"],
    ),
    ("offspring-server", &["offspring-pool", "offspring-transport"]),
    ("offspring", &["offspring-server", "offspring-agents", "offspring-client", "offspring-pool"]),
    ("offspring-tests", &["offspring"]),
    ("xtask", &[]),
];

/// The tests may use everything the program may, also without a dependency on the program itself.
const TESTS: &str = "offspring-tests";

/// What the two pure crates may be built from, each with what stands below it. Whoever uses one of them alone compiles
/// nothing else: no runtime, no clock, no randomness, no file, no socket.
const PURE: &[(&str, &[&str])] = &[
    ("offspring-protocol", &["serde", "serde_json", "thiserror"]),
    ("offspring-tree", &["offspring-protocol", "serde", "thiserror"]),
];

/// What to do when an outside workspace no longer fits the crate it uses.
pub(crate) const OLD_LOCK: &str = "if its lock file is old: `cargo update --workspace` in that directory";

/// Direct dependencies that a crate must not have, and why.
const NEVERS: &[(&str, &[&str], &str)] = &[
    (
        "offspring-sessions",
        &["jsonrpsee", "axum", "serde-saphyr"],
        "knows no agent, no provider and no manifest",
    ),
    (
        "offspring-delegation",
        &["rusqlite", "jsonrpsee", "axum", "serde-saphyr"],
        "knows no concrete store, agent or server",
    ),
    ("offspring-pool", &["jsonrpsee", "axum"], "is no server"),
];

/// Crates for programs: a library that needs one of them talks to people, or hides its errors.
const FOR_PROGRAMS: [&str; 3] = ["clap", "ratatui", "anyhow"];
const PROGRAMS: [&str; 3] = ["offspring", "xtask", TESTS];

/// Words that the sources of the pure crates do not contain, outside of tests.
const PURE_WORDS: &[(&str, &str)] = &[
    ("SystemTime", "a clock"),
    ("Instant", "a clock"),
    ("std::fs", "a file"),
    ("std::net", "a socket"),
    ("std::process", "a process"),
    ("std::env", "the environment"),
    ("std::thread", "a thread"),
    ("std::io", "input or output"),
    ("async", "a runtime"),
];

pub(super) fn check(workspace: &Workspace) -> Result<Problems> {
    let members = workspace.members()?;
    let mut problems = arrow_problems(&members.packages);
    problems.extend(never_problems(&members.packages));
    let downstream = workspace.downstream()?;
    for (name, direct) in PURE {
        let folder = name.trim_start_matches("offspring-");
        let Some(manifest) = downstream.get(folder) else {
            problems.push(format!("tests/downstream/{folder} is missing: nobody uses {name} alone"));
            continue;
        };
        // Resolved as a stranger would: without the features that other crates of the workspace turn on.
        match workspace.resolved(manifest) {
            Ok(metadata) => problems.extend(pure_problems(&Graph::of(&metadata), name, direct)),
            Err(error) => problems.push(format!("tests/downstream/{folder} ({OLD_LOCK}): {error:#}")),
        }
    }
    Ok(problems)
}

/// What the pure crates' sources say.
pub(super) fn check_sources(files: &[SourceFile]) -> Problems {
    let mut problems = Problems::new();
    for file in files {
        let folder = file.crate_folder();
        if !["protocol", "tree"].contains(&folder) || !file.path.starts_with("crates/") {
            continue;
        }
        let json = ("serde_json", "JSON");
        let words = PURE_WORDS.iter().copied().chain((folder == "tree").then_some(json));
        for (word, what) in words {
            for at in word_positions(&file.product, word) {
                let line = line_of(&file.product, at);
                problems.push(
                    format!("{}:{line}: `{word}`; {folder} knows no {what}", file.path)
                        .replace("no a ", "no "),
                );
            }
        }
    }
    problems
}

fn arrow_problems(packages: &[Package]) -> Problems {
    let house: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Problems::new();
    for package in packages {
        let name = package.name.as_str();
        let Some(allowed) = allowed(name) else {
            problems.push(format!("{name}: has no arrows in xtask/src/tidy/arrows.rs"));
            continue;
        };
        for dependency in normal_dependencies(package) {
            if house.contains(dependency) && !allowed.contains(dependency) {
                problems
                    .push(format!("{name}: must not depend on {dependency} (docs/architecture.md, arrows)"));
            }
        }
    }
    problems
}

fn never_problems(packages: &[Package]) -> Problems {
    let mut problems = Problems::new();
    for package in packages {
        let name = package.name.as_str();
        for dependency in normal_dependencies(package) {
            if FOR_PROGRAMS.contains(&dependency) && !PROGRAMS.contains(&name) {
                problems.push(format!("{name}: depends on {dependency}, which is for programs"));
            }
            for (crate_, nevers, reason) in NEVERS {
                if *crate_ == name && nevers.contains(&dependency) {
                    problems.push(format!("{name}: depends on {dependency}, but {reason}"));
                }
            }
        }
    }
    problems
}

/// Dependencies of the product; those of tests may be wider.
fn normal_dependencies(package: &Package) -> impl Iterator<Item = &str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .map(|d| d.name.as_str())
}

/// Everything that the arrows lead to from this crate.
fn allowed(name: &str) -> Option<BTreeSet<&'static str>> {
    let targets = |name: &str| ARROWS.iter().find(|(from, _)| *from == name).map(|(_, targets)| *targets);
    let mut open: Vec<&'static str> = targets(name)?.to_vec();
    let mut seen = BTreeSet::new();
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(targets(next).unwrap_or_default());
        }
    }
    Some(seen)
}

/// Who uses whom in a resolved workspace, by name, without what only tests and build scripts use.
struct Graph {
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of(metadata: &Metadata) -> Self {
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let name = |id: &str| names.get(id).copied().unwrap_or(id).to_owned();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
            let normal = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            uses.entry(name(&node.id)).or_default().extend(normal.map(|dep| name(&dep.pkg)));
        }
        Self { uses }
    }

    fn direct(&self, name: &str) -> impl Iterator<Item = &str> {
        self.uses.get(name).into_iter().flatten().map(String::as_str)
    }

    fn reachable(&self, from: &str) -> BTreeSet<&str> {
        let mut open: Vec<&str> = self.direct(from).collect();
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.direct(next));
            }
        }
        seen
    }
}

fn pure_problems(graph: &Graph, name: &str, direct: &[&str]) -> Problems {
    if !graph.uses.contains_key(name) {
        return vec![format!("{name}: not in its downstream workspace")];
    }
    let extra = graph.direct(name).filter(|used| !direct.contains(used));
    let mut problems: Problems = extra
        .map(|used| format!("{name}: depends on {used}; alone it may use only {}", direct.join(", ")))
        .collect();
    // What stands below an allowed crate is allowed, but not a runtime that one of them may grow.
    for never in ["tokio", "futures-util", "jiff", "rand", "getrandom", "rusqlite", "rustix", "libc"] {
        if graph.reachable(name).contains(never) {
            problems.push(format!("{name}: compiles {never} when used alone"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn packages(text: &str) -> Vec<Package> {
        let package = |line: &str| {
            let (name, uses) = line.split_once(':').unwrap();
            let dependency = |word: &str| {
                let (name, kind) = word.split_once('@').map_or((word, "null"), |(name, kind)| (name, kind));
                let kind = if kind == "null" { kind.to_owned() } else { format!("\"{kind}\"") };
                format!(r#"{{"name":"{name}","kind":{kind}}}"#)
            };
            let dependencies: Vec<String> = uses.split_whitespace().map(dependency).collect();
            let json = format!(
                r#"{{"id":"{name}","name":"{name}","manifest_path":"x","targets":[],"dependencies":[{}]}}"#,
                dependencies.join(",")
            );
            serde_json::from_str(&json).unwrap()
        };
        text.lines().map(package).collect()
    }

    #[test]
    fn an_arrow_upwards_is_found() {
        let problems =
            arrow_problems(&packages("offspring-tree: offspring-pool serde\noffspring-pool: offspring-tree"));
        assert_eq!(problems.len(), 1);
        assert!(problems.iter().all(|p| p.starts_with("offspring-tree: must not depend on offspring-pool")));
    }

    #[test]
    fn an_arrow_sideways_is_found_and_one_over_several_steps_is_not() {
        let problems =
            arrow_problems(&packages("offspring-delegation: offspring-protocol\noffspring-protocol:"));
        assert_eq!(problems, Problems::new());
        let problems =
            arrow_problems(&packages("offspring-process: offspring-protocol\noffspring-protocol:"));
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn dependencies_of_tests_may_be_wider_and_those_of_build_scripts_not() {
        let house = "\noffspring-pool:";
        assert!(arrow_problems(&packages(&format!("offspring-tree: offspring-pool@dev{house}"))).is_empty());
        assert_eq!(
            arrow_problems(&packages(&format!("offspring-tree: offspring-pool@build{house}"))).len(),
            1
        );
    }

    #[test]
    fn a_crate_without_arrows_is_found() {
        assert_eq!(arrow_problems(&packages("offspring-new:")).len(), 1);
    }

    #[test]
    fn nevers_are_found() {
        assert_eq!(never_problems(&packages("offspring-delegation: rusqlite")).len(), 1);
        assert_eq!(never_problems(&packages("offspring-sessions: clap anyhow rusqlite")).len(), 2);
        assert_eq!(never_problems(&packages("offspring: clap")), Problems::new());
    }

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let owned = |names: &&[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Graph { uses: edges.iter().map(|(name, uses)| ((*name).to_owned(), owned(uses))).collect() }
    }

    #[test]
    fn more_than_the_three_is_found_in_a_pure_crate() {
        let three: &[&str] = &["serde", "serde_json", "thiserror"];
        let clean = graph(&[("offspring-protocol", three), ("serde_json", &["itoa"])]);
        assert_eq!(pure_problems(&clean, "offspring-protocol", three), Problems::new());
        let fourth = graph(&[("offspring-protocol", &["serde", "smallvec"])]);
        assert_eq!(pure_problems(&fourth, "offspring-protocol", three).len(), 1);
        let below = graph(&[("offspring-protocol", three), ("serde_json", &["x"]), ("x", &["tokio"])]);
        assert_eq!(pure_problems(&below, "offspring-protocol", three).len(), 1);
        assert_eq!(pure_problems(&graph(&[]), "offspring-protocol", three).len(), 1);
    }

    #[test]
    fn impure_sources_are_found_and_tests_are_free() {
        let raw = "use std::time::Instant; // std::fs\nfn a() { serde_json::x(); }\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let file = |path: &str| [SourceFile::new(Path::new(path), raw, false)];
        let problems = check_sources(&file("crates/tree/src/lib.rs"));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems
                .iter()
                .any(|p| p.starts_with("crates/tree/src/lib.rs:1: `Instant`; tree knows no clock"))
        );
        assert_eq!(check_sources(&file("crates/protocol/src/lib.rs")).len(), 1);
        assert_eq!(check_sources(&file("crates/process/src/lib.rs")), Problems::new());
    }
}
