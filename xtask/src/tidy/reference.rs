//! `docs/reference.md` is what the program prints, and leaves nothing out.
//!
//! Commands, flags, manifest keys and limits cannot be missing: the program prints them from what it parses with.
//! Exit codes and variables of the environment stand in tables of the program; whether these are whole is seen in the
//! sources.

use anyhow::{Context, Result};

use super::Problems;
use super::source_text::{SourceFile, line_of, word_positions};
use crate::workspace::{Workspace, stdout_of};

const PAGE: &str = "docs/reference.md";
/// Where exit codes may be numbers.
const EXIT_CODES: &str = "crates/cli/src/exit.rs";
/// How the environment is read. A closure or a function that is given the name has a literal in the same file.
const READERS: [&str; 4] = ["env::var_os", "env::var", "env::vars_os", "env::vars"];
/// Words that look like names of variables and are none.
const OTHER_WORDS: [&str; 1] = ["UTF8"];
/// The prefix of our own variables.
const OURS: &str = "OFFSPRING_";

pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let path = workspace.root().join(PAGE);
    std::fs::write(&path, printed(workspace)?).with_context(|| format!("writing {PAGE}"))
}

fn printed(workspace: &Workspace) -> Result<String> {
    stdout_of(workspace.cargo(["run", "--quiet", "--package", "offspring", "--", "__reference"]))
}

pub(super) fn check(workspace: &Workspace, files: &[SourceFile]) -> Result<Problems> {
    let page = std::fs::read_to_string(workspace.root().join(PAGE)).unwrap_or_default();
    let mut problems = Problems::new();
    problems.extend(difference(&page, &printed(workspace)?));
    problems.extend(missing_variables(&page, files));
    problems.extend(bare_exit_codes(files));
    Ok(problems)
}

fn difference(page: &str, printed: &str) -> Option<String> {
    if page == printed {
        return None;
    }
    let same = page.lines().zip(printed.lines()).take_while(|(is, should)| is == should).count();
    Some(format!("{PAGE}:{}: is not what the program prints; run `cargo xtask reference`", same + 1))
}

/// Every variable of ours, and every other one in a file that reads the environment, stands in the page.
fn missing_variables(page: &str, files: &[SourceFile]) -> Problems {
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/")) {
        let reads = READERS.iter().any(|reader| word_positions(&file.product, reader).next().is_some());
        for (line, text) in literals(file) {
            let is_ours = text.strip_prefix(OURS).is_some_and(|rest| !rest.is_empty()) && is_name(text);
            let is_read = reads && is_name(text) && !OTHER_WORDS.contains(&text);
            if (is_ours || is_read) && !page.contains(&format!("`{text}`")) && !is_of_family(page, text) {
                problems.push(format!(
                    "{}:{line}: the variable {text} is not in {PAGE}; \
                     add it to crates/cli/src/variables.rs and run `cargo xtask reference`",
                    file.path
                ));
            }
        }
    }
    problems
}

/// Whether the page has `GIT_*` for `GIT_CONFIG`.
fn is_of_family(page: &str, name: &str) -> bool {
    name.match_indices('_').any(|(at, _)| page.contains(&format!("`{}_*`", &name[..at])))
}

fn is_name(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The texts between quotes outside of comments and tests, each with its line.
fn literals(file: &SourceFile) -> Vec<(usize, &str)> {
    let lines = (1..).zip(file.raw.lines().zip(file.tests.lines()));
    let product = lines.filter(|(_, (raw, tests))| {
        // What an argument of the command line is called in its help looks the same, and so does what cargo says.
        !raw.trim_start().starts_with("//")
            && !raw.contains("value_name")
            && !raw.contains("env!(")
            && tests.trim().is_empty()
    });
    product
        .flat_map(|(line, (raw, _))| raw.split('"').skip(1).step_by(2).map(move |text| (line, text)))
        .collect()
}

/// A number that ends the program has a name and a meaning.
fn bare_exit_codes(files: &[SourceFile]) -> Problems {
    let mut problems = Problems::new();
    for file in files.iter().filter(|file| file.path == EXIT_CODES) {
        let names = file.product.split("const ").skip(1).filter_map(|rest| rest.split_once(": u8"));
        for (name, _) in names.filter(|(name, _)| word_positions(&file.product, name).count() < 2) {
            problems.push(format!("{EXIT_CODES}: {name} has no meaning in TABLE"));
        }
    }
    for file in files.iter().filter(|file| file.crate_folder() == "cli" && file.path != EXIT_CODES) {
        for ender in ["ExitCode::from(", "process::exit("] {
            for (at, _) in file.product.match_indices(ender) {
                let argument = file.product.get(at + ender.len()..).unwrap_or_default();
                if argument.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
                    let line = line_of(&file.product, at);
                    problems.push(format!(
                        "{}:{line}: an exit code without a name; add it to {EXIT_CODES} and run \
                         `cargo xtask reference`",
                        file.path
                    ));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn file(path: &str, raw: &str) -> SourceFile {
        SourceFile::new(Path::new(path), raw, false)
    }

    #[test]
    fn a_page_that_differs_is_found_at_its_line() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let found = difference("a\nb\nc\n", "a\nx\nc\n").unwrap();
        assert!(
            found.starts_with("docs/reference.md:2:") && found.contains("cargo xtask reference"),
            "{found}"
        );
        assert!(difference("", "a\n").is_some() && difference("a\n", "a\nb\n").is_some());
    }

    #[test]
    fn a_variable_that_is_read_and_not_in_the_page_is_found() {
        let page = "| `OFFSPRING_DB` | the store |\n| `TERM`, `LC_*` | … |\n";
        let found = |path: &str, raw: &str| missing_variables(page, &[file(path, raw)]).len();
        let path = "crates/pool/src/lib.rs";
        assert_eq!(found(path, "const X: &str = \"OFFSPRING_DB\";"), 0);
        assert_eq!(found(path, "const X: &str = \"OFFSPRING_NEW\";"), 1);
        assert_eq!(found(path, "fn a() { std::env::var_os(\"TERM\"); }"), 0);
        assert_eq!(found(path, "fn a() { std::env::var_os(\"COLUMNS\"); }"), 1);
        assert_eq!(found(path, "fn a() { std::env::var_os(\"LC_TIME\"); x(\"GIT_DIR\") }"), 1);
        assert_eq!(found(path, "fn a() { std::env::var_os(\"TERM\") }\n#[arg(value_name = \"TEXT\")]"), 0);
        assert_eq!(found(path, "const X: &str = \"COLUMNS\";\nfn a() { env::var(X) }"), 1);
        assert_eq!(found(path, "fn a() { std::env::var_os(\"TERM\"); paint(\"32\") }"), 0);
        // No reader, a comment, a test, a program for tests.
        assert_eq!(found(path, "const X: &str = \"COLUMNS\";"), 0);
        assert_eq!(found(path, "/// \"OFFSPRING_NEW\"\nfn a() {}"), 0);
        assert_eq!(found(path, "#[cfg(test)]\nmod t { fn a() {\n env::var(\"COLUMNS\");\n} }"), 0);
        assert_eq!(found("tests/src/lib.rs", "const X: &str = \"OFFSPRING_NEW\";"), 0);
        // The prefix alone is no variable.
        assert_eq!(found(path, "const X: &str = \"OFFSPRING_\";"), 0);
    }

    #[test]
    fn an_exit_code_without_a_name_or_a_meaning_is_found() {
        let found = |path: &str, raw: &str| bare_exit_codes(&[file(path, raw)]).len();
        assert_eq!(found("crates/cli/src/run.rs", "fn a() { ExitCode::from(3) }"), 1);
        assert_eq!(found("crates/cli/src/run.rs", "fn a() { std::process::exit( 4 ) }"), 1);
        assert_eq!(found("crates/cli/src/run.rs", "fn a() { ExitCode::from(exit::USAGE) }"), 0);
        assert_eq!(found("crates/process/src/guard.rs", "fn a() { ExitCode::from(3) }"), 0);
        assert_eq!(found(EXIT_CODES, "const A: u8 = 1;\nconst B: u8 = 2;\nconst TABLE: &[u8] = &[A];"), 1);
    }
}
