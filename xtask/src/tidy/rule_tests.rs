//! Every rule of `docs/rules.md` is kept by a test that carries its number at the start of its name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Problems;
use crate::test_run;
use crate::workspace::{Workspace, stdout_of};

const RULES: &str = "docs/rules.md";

pub(super) fn check(workspace: &Workspace) -> Result<Problems> {
    let path = workspace.root().join(RULES);
    if !path.is_file() {
        return Ok(vec![format!("{RULES} is missing")]);
    }
    let rules = std::fs::read_to_string(&path).with_context(|| format!("reading {RULES}"))?;
    Ok(untested(&rules, &test_names(workspace)?))
}

/// What the runner would run: ignored tests are not in it.
fn test_names(workspace: &Workspace) -> Result<BTreeSet<String>> {
    if test_run::has_nextest(workspace) {
        let listed = stdout_of(workspace.cargo(["nextest", "list", "--workspace", "--message-format=json"]))?;
        nextest_names(&listed)
    } else {
        let listed =
            stdout_of(workspace.cargo(["test", "--workspace", "--quiet", "--", "--list", "--format=terse"]))?;
        Ok(libtest_names(&listed))
    }
}

#[derive(Deserialize)]
struct NextestList {
    #[serde(rename = "rust-suites")]
    suites: BTreeMap<String, NextestSuite>,
}

#[derive(Deserialize)]
struct NextestSuite {
    #[serde(default)]
    testcases: BTreeMap<String, NextestCase>,
}

#[derive(Deserialize)]
struct NextestCase {
    #[serde(default)]
    ignored: bool,
}

fn nextest_names(listed: &str) -> Result<BTreeSet<String>> {
    let list: NextestList =
        serde_json::from_str(listed).context("reading what `cargo nextest list` printed")?;
    let cases = list.suites.into_values().flat_map(|suite| suite.testcases);
    Ok(cases.filter(|(_, case)| !case.ignored).map(|(name, _)| name).collect())
}

fn libtest_names(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

fn untested(rules: &str, names: &BTreeSet<String>) -> Problems {
    let numbers = rule_numbers(rules);
    if numbers.is_empty() {
        return vec![format!("{RULES} has no line of the form `- **T1** …`")];
    }
    let tested: BTreeSet<String> = names.iter().flat_map(|name| numbers_kept(name)).collect();
    let missing = numbers.iter().filter(|number| !tested.contains(&number.to_lowercase()));
    missing
        .map(|number| format!("{RULES}: no test is named for {number} (`fn {}_…`)", number.to_lowercase()))
        .collect()
}

/// The rules that hold now: those marked `(later: …)` wait for what they are about.
fn rule_numbers(rules: &str) -> Vec<String> {
    let mut found: Vec<(String, bool)> = Vec::new();
    for line in rules.lines() {
        let number = line.trim_start().strip_prefix("- **").and_then(|rest| rest.split_once("**"));
        match number {
            Some((number, _)) if is_rule_number(number) => {
                found.push((number.to_owned(), line.contains("(later:")));
            }
            // A heading ends the rule before it; so does a list entry that is no rule.
            _ if line.starts_with('#') || line.starts_with("- ") => found.push((String::new(), true)),
            _ => {
                if let Some((_, later)) = found.last_mut() {
                    *later |= line.contains("(later:");
                }
            }
        }
    }
    found.into_iter().filter(|(_, later)| !later).map(|(number, _)| number).collect()
}

fn is_rule_number(word: &str) -> bool {
    let mut chars = word.chars();
    let letter = chars.next().is_some_and(|c| "TLWtlw".contains(c));
    let digits = chars.as_str();
    letter && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

/// The numbers at the start of the test's own name: `t3_t4_…` keeps two.
fn numbers_kept(name: &str) -> Vec<String> {
    let own = name.rsplit("::").next().unwrap_or(name);
    own.split('_').take_while(|word| is_rule_number(word)).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Rules\n\n- **T1** An id\n  is opaque.\n- **T9** Order. (later: the client)\n- **L10** Equal\n  ids.\n- **T10** Queue\n  (later: the client)\n";

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_rule_without_a_test_is_found_and_a_later_one_is_not() {
        let problems = untested(PAGE, &names(&["ids::tests::t1_ids_are_opaque"]));
        assert_eq!(problems.len(), 1);
        assert!(problems.iter().all(|problem| problem.contains("L10")));
        assert_eq!(untested(PAGE, &names(&["a::t1_x", "l10_t4_x"])), Problems::new());
    }

    #[test]
    fn a_number_counts_only_at_the_start_of_a_name_and_as_a_whole() {
        let problems = untested(PAGE, &names(&["t1::other", "keeps_t1_x", "t12_x", "l1_x", "l100_x"]));
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn a_page_without_rules_is_found() {
        assert_eq!(untested("# Rules\n", &names(&["t1_x"])).len(), 1);
    }

    #[test]
    fn ignored_tests_are_not_run_and_do_not_count() {
        let listed = r#"{"test-count":2,"rust-suites":{"a":{"binary-name":"a","testcases":{"t1_x":{"ignored":false},"t2_x":{"ignored":true}}},"b":{}}}"#;
        assert_eq!(nextest_names(listed).unwrap(), names(&["t1_x"]));
        assert_eq!(libtest_names("a::t1_x: test\nb: benchmark\n\n1 test\n"), names(&["a::t1_x"]));
    }
}
