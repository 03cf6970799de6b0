//! One run of the survey and what is stored of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::world::World;

/// The question of the README.
pub(crate) const QUESTION: &str = "What would you fix first in this repository?";

/// The program under test. Tests do not guess which one is meant.
pub(crate) fn offspring() -> PathBuf {
    let path = std::env::var_os("OFFSPRING_BIN").unwrap_or_else(|| {
        panic!("OFFSPRING_BIN is not set: run `cargo xtask test`, which builds the program and hands its path over")
    });
    let path = PathBuf::from(path);
    assert!(path.is_file(), "OFFSPRING_BIN names no file: {}", path.display());
    path
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/survey.yaml")
        .canonicalize()
        .expect("examples/survey.yaml")
}

/// A finished survey.
pub(crate) struct Survey {
    /// The report, as it came on stdout.
    pub(crate) report: String,
    db: PathBuf,
}

/// Surveys a world with the README's question.
pub(crate) fn survey(world: &World) -> Survey {
    ask(world, QUESTION)
}

/// Surveys a world with another question.
pub(crate) fn ask(world: &World, question: &str) -> Survey {
    ask_with(world, question, |_| {})
}

/// Surveys a world with an environment the caller has changed.
pub(crate) fn ask_with(world: &World, question: &str, change: impl FnOnce(&mut Command)) -> Survey {
    let db = world.beside("sessions.db");
    let home = world.beside("home");
    std::fs::create_dir_all(&home).expect("a home");
    let mut command = Command::new(offspring());
    command
        .arg("--db")
        .arg(&db)
        .arg("run")
        .arg(manifest())
        .arg(question)
        .arg("--dir")
        .arg(world.dir())
        // No configuration of whoever runs the tests.
        .env("HOME", &home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE");
    change(&mut command);
    let output = command.output().expect("the program starts");
    let report = String::from_utf8(output.stdout).expect("the report is UTF-8");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "exit status; stdout:\n{report}\nstderr:\n{err}");
    let count = report.lines().count();
    assert!((3..=60).contains(&count), "a report has 3 to 60 lines, this one {count}:\n{report}");
    assert!(
        !report.chars().any(|c| c.is_control() && c != '\n'),
        "a control character in the report:\n{report:?}"
    );
    Survey { report, db }
}

impl Survey {
    /// Panics unless the report has a line with all of `parts`.
    pub(crate) fn has(&self, parts: &[&str]) {
        assert!(self.finds(parts), "no line with {parts:?} in\n{}", self.report);
    }

    /// Panics if the report has a line with all of `parts`.
    pub(crate) fn lacks(&self, parts: &[&str]) {
        assert!(!self.finds(parts), "a line with {parts:?} in\n{}", self.report);
    }

    /// Panics unless exactly one line says that `part` could not be seen.
    pub(crate) fn could_not_see(&self, part: &str) {
        let count = self
            .report
            .lines()
            .filter(|line| line.starts_with("Could not see ") && line.contains(part))
            .count();
        assert_eq!(count, 1, "lines that could not see {part:?} in\n{}", self.report);
    }

    fn finds(&self, parts: &[&str]) -> bool {
        self.report.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// The titles of the items, first one first.
    pub(crate) fn items(&self) -> Vec<String> {
        self.report
            .lines()
            .filter_map(|line| {
                let (number, rest) = line.trim_start().split_once(". ")?;
                number.parse::<u32>().ok().map(|_| rest.to_owned())
            })
            .collect()
    }

    /// The kind of the first item.
    pub(crate) fn first_kind(&self) -> String {
        let items = self.items();
        let first = items.first().expect("an item");
        let (_, kind) = first.rsplit_once('[').expect("a kind in brackets");
        kind.trim_end_matches(']').to_owned()
    }

    /// All sessions of the run.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        let tree = self.json(&["tree", "latest", "--json"]);
        tree["sessions"].as_array().expect("sessions").clone()
    }

    /// What the session of `agent` said, from the store.
    pub(crate) fn transcript(&self, agent: &str) -> String {
        let sessions = self.sessions();
        let session = sessions
            .iter()
            .find(|session| session["agent_name"] == agent)
            .unwrap_or_else(|| panic!("no session of {agent} in {sessions:?}"));
        let id = session["id"].as_str().expect("an id");
        let mut text = String::new();
        texts(&self.json(&["show", id, "--json"])["transcript"], &mut text);
        text
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = Command::new(offspring())
            .arg("--db")
            .arg(&self.db)
            .args(arguments)
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// The texts in a transcript, joined without a separator because deltas may split
/// one anywhere: a transcript that is a string, or the fields `text` of its events.
fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "text" || field.is_array() || field.is_object() {
                    texts(field, into);
                }
            }
        }
        _ => {}
    }
}
