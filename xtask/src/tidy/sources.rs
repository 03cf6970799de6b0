//! What every Rust file keeps: no `unsafe`, no test that is ignored, sleeps or looks at too few cases, no endless file.

use super::Problems;
use super::source_text::{SourceFile, is_word, line_of, word_positions};

/// A file is read in one sitting.
const LONG_LINES: usize = 600;
const MOST_LINES: usize = 800;
/// Fewer random cases than this prove little.
const FEWEST_CASES: u64 = 256;
/// Marks a pause inside a bounded loop that looks for something the system gives no event for.
const POLL_MARK: &str = "// poll: ";
/// Marks a pause whose length is itself the subject of the test.
const MOMENT_MARK: &str = "// moment: ";
/// Folders whose programs talk to people.
const PRINTING: [&str; 3] = ["cli", "xtask", "tests"];

pub(super) fn check(file: &SourceFile) -> Problems {
    let mut problems = Problems::new();
    let mut report = |text: &str, at: usize, what: &str| {
        problems.push(format!("{}:{}: {what}", file.path, line_of(text, at)));
    };
    for at in word_positions(&file.code, "unsafe") {
        report(&file.code, at, "`unsafe`; the system is reached through std and rustix");
    }
    for at in word_positions(&file.code, "ignore") {
        if in_attribute(&file.code, at) {
            report(&file.code, at, "an ignored test; a test runs or is not there");
        }
    }
    for (at, _) in file.raw.match_indices("```") {
        let line = file.raw.get(at..).and_then(|text| text.lines().next()).unwrap_or_default();
        let before = file.raw.get(..at).and_then(|text| text.lines().next_back()).unwrap_or_default();
        if before.trim_start().starts_with("//") && line.split([',', ' ', '`']).any(|word| word == "ignore") {
            report(&file.raw, at, "an example that is not compiled");
        }
    }
    for at in word_positions(&file.tests, "sleep") {
        let is_call =
            file.tests.get(at + "sleep".len()..).is_some_and(|rest| rest.trim_start().starts_with('('));
        let line = line_of(&file.tests, at);
        if is_call && !has_poll_mark(&file.raw, line) {
            report(
                &file.tests,
                at,
                &format!(
                    "a test that sleeps; wait for what it observes, or mark a bounded poll with `{POLL_MARK}what`, or a \
                     pause that is itself the subject with `{MOMENT_MARK}why`"
                ),
            );
        }
    }
    if file.raw.contains("proptest") {
        for (at, found) in case_counts(&file.code) {
            match found {
                Some(cases) if cases >= FEWEST_CASES => {}
                Some(cases) => report(
                    &file.code,
                    at,
                    &format!("proptest with {cases} cases, at least {FEWEST_CASES} are wanted"),
                ),
                None => report(
                    &file.code,
                    at,
                    "the number of proptest cases has to be a literal, so that it can be checked",
                ),
            }
        }
    }
    if !PRINTING.contains(&file.crate_folder()) {
        for word in ["println!", "print!", "eprintln!", "eprint!"] {
            for at in word_positions(&file.product, word) {
                report(&file.product, at, "prints; only the program does (W9)");
            }
        }
    }
    let lines = file.raw.lines().count();
    if lines > MOST_LINES {
        problems.push(format!("{}: {lines} lines, at most {MOST_LINES}", file.path));
    }
    problems
}

/// For files that are longer than wanted, but not yet refused.
pub(super) fn long_file_note(file: &SourceFile) -> Option<String> {
    let lines = file.raw.lines().count();
    (lines > LONG_LINES && lines <= MOST_LINES).then(|| format!("{} has {lines} lines", file.path))
}

fn in_attribute(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or_default();
    let Some(open) = before.rfind("#[") else { return false };
    let inside = before.get(open + 2..).unwrap_or_default();
    let mut depth = 1_usize;
    for c in inside.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
    }
    inside.trim().is_empty() || inside.trim_start().starts_with("cfg_attr")
}

fn has_poll_mark(raw: &str, line: usize) -> bool {
    let above = line.saturating_sub(2);
    raw.lines()
        .skip(above)
        .take(line - above)
        .any(|line| line.contains(POLL_MARK) || line.contains(MOMENT_MARK))
}

/// Every `with_cases(N)` and `cases: N`, with `None` where N is no literal.
fn case_counts(code: &str) -> Vec<(usize, Option<u64>)> {
    let mut found = Vec::new();
    for (mark, opener) in [("with_cases", '('), ("cases", ':')] {
        for at in word_positions(code, mark) {
            let rest = code.get(at + mark.len()..).unwrap_or_default().trim_start();
            let Some(argument) = rest.strip_prefix(opener) else { continue };
            // A path or a type (`cases::x`, `cases: u32`) is no number.
            if argument.starts_with(':') {
                continue;
            }
            let word: String = argument.trim_start().chars().take_while(|c| is_word(*c)).collect();
            if opener == ':' && ["u32", "usize", "u64"].contains(&word.as_str()) {
                continue;
            }
            let digits: String =
                word.chars().take_while(|c| c.is_ascii_digit() || *c == '_').filter(|c| *c != '_').collect();
            found.push((at, digits.parse().ok()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn problems(path: &str, raw: &str) -> Problems {
        check(&SourceFile::new(Path::new(path), raw, false))
    }

    fn assert_found(path: &str, raw: &str, words: &str) {
        let problems = problems(path, raw);
        assert!(problems.iter().any(|problem| problem.contains(words)), "{words} not in {problems:?}");
    }

    fn assert_clean(path: &str, raw: &str) {
        assert_eq!(problems(path, raw), Problems::new());
    }

    const LIB: &str = "crates/tree/src/lib.rs";

    #[test]
    fn unsafe_code_is_found_and_the_lint_about_it_is_not() {
        assert_found(LIB, "fn a() { unsafe { b() } }", "lib.rs:1: `unsafe`");
        assert_clean(LIB, "#![forbid(unsafe_code)] // unsafe\n");
    }

    #[test]
    fn ignored_tests_and_examples_are_found() {
        assert_found(
            LIB,
            "#[cfg(test)]\nmod tests {\n#[test]\n#[ignore]\nfn a() {} }",
            "lib.rs:4: an ignored",
        );
        assert_found(LIB, "#[ignore = \"slow\"]\nfn a() {}", "ignored");
        assert_found(LIB, "#[cfg_attr(not(unix), ignore)]\nfn a() {}", "ignored");
        assert_found(LIB, "/// ```ignore\n/// x\n/// ```\nfn a() {}", "not compiled");
        assert_clean(LIB, "fn a() { ignore(b[0]); }\n/// ```no_run\n/// ```\nfn ignore() {}");
    }

    #[test]
    fn sleeping_tests_are_found() {
        assert_found(
            "tests/tests/a.rs",
            "fn a() {\n std::thread::sleep(x);\n}",
            "a.rs:2: a test that sleeps",
        );
        assert_found(LIB, "#[cfg(test)]\nmod tests { fn a() { tokio::time::sleep(x).await } }", "sleeps");
        assert_clean("tests/tests/a.rs", "fn a() { run(\"sleep(600)\"); }");
        assert_clean("tests/tests/a.rs", "fn a() {\n // moment: kills are spread\n thread::sleep(x);\n}");
        assert_clean("tests/tests/a.rs", "fn a() {\n // poll: the process is gone\n thread::sleep(x);\n}");
        assert_clean("crates/process/src/lib.rs", "fn a() { thread::sleep(x) }");
    }

    #[test]
    fn small_property_tests_are_found() {
        let with = |text: &str| format!("use proptest::prelude::*; {text}");
        assert_found(LIB, &with("ProptestConfig::with_cases(64)"), "64 cases");
        assert_found(LIB, &with("ProptestConfig { cases: 1_0, ..x }"), "10 cases");
        assert_found(LIB, &with("ProptestConfig::with_cases(CASES)"), "literal");
        assert_clean(LIB, &with("ProptestConfig::with_cases(1_024); ProptestConfig { cases: 256 }"));
    }

    #[test]
    fn printing_libraries_are_found() {
        assert_found(LIB, "fn a() { println!(); }", "prints");
        assert_clean(LIB, "/// println!()\nfn a() {}\n#[cfg(test)]\nmod tests { fn b() { println!(); } }");
        assert_clean("crates/cli/src/main.rs", "fn a() { println!(); }");
    }

    #[test]
    fn long_files_are_noted_and_then_refused() {
        let file = |lines: usize| SourceFile::new(Path::new(LIB), &"\n".repeat(lines), false);
        assert!(long_file_note(&file(LONG_LINES)).is_none());
        assert!(long_file_note(&file(LONG_LINES + 1)).is_some() && check(&file(LONG_LINES + 1)).is_empty());
        assert_eq!(check(&file(MOST_LINES + 1)).len(), 1);
    }
}
