//! Each block of code of a page is run, compiled or compared by a test.
//!
//! The test is `tests/tests/docs.rs`; what stands behind the backticks says in which way (`tests/tests/docs/page.rs`).

use std::path::{Path, PathBuf};

use super::Problems;

/// Whose blocks the test runs.
const FOLDERS: &[&str] = &["", "examples", "docs", "docs/guides", "docs/decisions"];

/// What can be run or compared.
const CHECKED: &[&str] = &["sh", "bash", "shell", "console", "yaml", "yml", "json", "rust"];

/// What needs nothing but its name; every other block says what is done with it.
const ALONE: &[&str] = &["sh", "console"];

/// What says it.
const WAYS: &[&str] = &["title=\"", "add=\"", "output=\"", "compiled=\""];

pub(super) fn check(texts: &[(PathBuf, String)]) -> Problems {
    let pages = texts.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "md"));
    pages.flat_map(|(path, text)| blocks(path, text)).collect()
}

fn blocks(path: &Path, text: &str) -> Problems {
    let mut problems = Problems::new();
    let mut inside = false;
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_followed = FOLDERS.iter().any(|followed| Path::new(followed) == folder);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        inside = !inside;
        if !inside {
            continue;
        }
        let mut problem = |what: &str| problems.push(format!("{}:{number}: {what}", path.display()));
        let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
        if line.starts_with(' ') {
            problem("an indented block is run by no test: let it begin at the margin");
        } else if language.is_empty() {
            problem("a block that does not say what it is: `text` is for what is only shown");
        } else if CHECKED.contains(&language) {
            let says = rest.trim() == "ci" || WAYS.iter().any(|way| rest.starts_with(way));
            if !is_followed {
                problem("a block of code on a page that no test follows");
            } else if !(says || rest.is_empty() && ALONE.contains(&language)) {
                problem(
                    "a block that no test runs: `sh`, `console`, or say what it is with title=\"FILE\", \
                     add=\"FILE\", output=\"COMMAND\", compiled=\"TEST\" or ci",
                );
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, info: &str) -> usize {
        check(&[(PathBuf::from(path), format!("# A\n```{info}\na\n```\n"))]).len()
    }

    #[test]
    fn a_block_that_no_test_runs_is_found() {
        let fine =
            ["sh", "console", "sh ci", "text", "yaml title=\"a.yaml\"", "json output=\"offspring ls\""];
        for info in fine {
            assert_eq!(problems("docs/guides/a.md", info), 0, "{info}");
        }
        for info in ["yaml", "json", "rust", "bash", "", "rust no_run", "sh title"] {
            assert_eq!(problems("README.md", info), 1, "{info}");
        }
        assert_eq!(problems("crates/tree/README.md", "sh"), 1);
        assert_eq!(check(&[(PathBuf::from("README.md"), "- a\n  ```sh\n  a\n  ```\n".into())]).len(), 1);
        assert_eq!(check(&[(PathBuf::from("a.rs"), "```yaml\n```\n".into())]).len(), 0);
    }
}
