//! How many tests ran: read from what the runners print, added up, and printed as the last line.

use std::collections::BTreeSet;
use std::fmt;

/// Counts of one or more runners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Tests that ran but did nothing because a peer is missing; the runner counted them as passed.
    pub(crate) skipped: BTreeSet<String>,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped.iter().cloned());
    }

    /// Moves tests that said they skipped themselves from passed to skipped.
    pub(crate) fn skip(&mut self, names: BTreeSet<String>) {
        let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        self.passed = self.passed.saturating_sub(count);
        self.skipped.extend(names);
    }

    /// The form that test reports are searched for in any language.
    pub(crate) fn plain(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passed {} failed {} skipped {}: ", self.passed, self.failed, self.skipped.len())?;
        if self.skipped.is_empty() {
            return f.write_str("-");
        }
        for (index, name) in self.skipped.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

/// The counts of a line such as `Summary [  0.3s] 5/9 tests run: 3 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 4 skipped`.
pub(crate) fn nextest_summary(line: &str) -> Option<Totals> {
    let line = without_escapes(line);
    let rest = line.trim_start().strip_prefix("Summary [")?;
    let (_, rest) = rest.split_once("run: ")?;
    let mut totals = Totals::default();
    for part in without_parentheses(rest).split(',') {
        match count_and_word(part)? {
            (count, "passed") => totals.passed += count,
            (count, "failed" | "timed out" | "exec failed") => totals.failed += count,
            // What a filter left out was not asked for.
            (_, "skipped") => {}
            (_, _) => return None,
        }
    }
    Some(totals)
}

/// The counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
pub(crate) fn libtest_summary(line: &str) -> Option<Totals> {
    let line = without_escapes(line);
    let rest = line.trim_start().strip_prefix("test result: ")?;
    let (_, rest) = rest.split_once(". ")?;
    let mut totals = Totals::default();
    for part in rest.split(';') {
        match count_and_word(part) {
            Some((count, "passed")) => totals.passed += count,
            Some((count, "failed")) => totals.failed += count,
            _ => {}
        }
    }
    Some(totals)
}

fn count_and_word(part: &str) -> Option<(u64, &str)> {
    let (count, word) = part.trim().split_once(' ')?;
    Some((count.parse().ok()?, word.trim()))
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// Runners colour their lines when told to by the environment.
fn without_escapes(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            kept.push(c);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(totals: Option<Totals>) -> Option<(u64, u64)> {
        totals.map(|totals| (totals.passed, totals.failed))
    }

    #[test]
    fn nextest_lines_of_all_kinds_are_read() {
        let read = |line| counts(nextest_summary(line));
        assert_eq!(read("     Summary [   0.005s] 3 tests run: 3 passed, 0 skipped"), Some((3, 0)));
        assert_eq!(read("     Summary [   0.005s] 1 test run: 1 passed, 7 skipped"), Some((1, 0)));
        assert_eq!(
            read(
                "     Summary [  12.1s] 7/9 tests run: 4 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 1 exec failed, 2 skipped"
            ),
            Some((4, 3))
        );
        assert_eq!(
            read(
                "\u{1b}[32;1m     Summary\u{1b}[0m [   0.005s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m passed, 0 skipped"
            ),
            Some((3, 0))
        );
        assert_eq!(read("     Summary [   0.000s] 0 tests run: 0 passed, 4 skipped"), Some((0, 0)));
        assert_eq!(read("        PASS [   0.005s] xtask prints tests run: 3 passed"), None);
    }

    #[test]
    fn libtest_lines_are_read() {
        let read = |line| counts(libtest_summary(line));
        assert_eq!(
            read(
                "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
            ),
            Some((3, 0))
        );
        assert_eq!(
            read("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 5 filtered out"),
            Some((2, 1))
        );
        assert_eq!(read("test result_is_kept ... ok"), None);
    }

    #[test]
    fn the_last_line_has_exactly_its_form() {
        let mut totals = Totals { passed: 12, failed: 1, ..Totals::default() };
        assert_eq!(totals.to_string(), "passed 12 failed 1 skipped 0: -");
        totals.skip(BTreeSet::from(["b".to_owned(), "a".to_owned()]));
        assert_eq!(totals.to_string(), "passed 10 failed 1 skipped 2: a, b");
        assert_eq!(totals.plain(), "10 passed, 1 failed, 2 skipped");
    }
}
