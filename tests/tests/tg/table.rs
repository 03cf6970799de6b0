//! `tests/TG.md` names every specification and only tests that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Its first cell and the tests it names, of each line of a table.
fn lines(table: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut lines = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells = line.replace("\\|", "or");
        let first = cells.trim_matches('|').split('|').next().unwrap_or_default().trim().to_owned();
        let tests = line
            .split('`')
            .filter_map(|part| part.split_once(".rs::"))
            .map(|(file, name)| (format!("{file}.rs"), name.to_owned()))
            .collect();
        lines.push((first, tests));
    }
    lines
}

/// The functions of a source file that a runner runs.
fn tests_of(source: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if let Some((_, named)) = line.split_once("fn ").filter(|_| is_test) {
            tests.insert(named.split('(').next().unwrap_or_default().to_owned());
            is_test = false;
        }
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    }
    tests
}

#[test]
fn the_table_is_complete_and_every_test_in_it_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let lines = lines(&read("tests/TG.md"));
    let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (what, tests) in &lines {
        for (file, name) in tests {
            let found = sources.entry(file.clone()).or_insert_with(|| tests_of(&read(file)));
            assert!(found.contains(name), "{what}: {file} has no test {name}");
        }
    }
    let specified: BTreeMap<_, _> = lines.iter().map(|(what, tests)| (what.as_str(), tests)).collect();
    for number in 1..=26 {
        let tests = specified.get(format!("TG-{number}").as_str());
        let tests = tests.unwrap_or_else(|| panic!("TG-{number} is not in the table"));
        match number {
            10 => assert!(tests.is_empty(), "TG-10 waits no more: say so"),
            _ => assert!(tests.iter().any(|(_, name)| name.starts_with(&format!("tg_{number:02}_")))),
        }
    }
    let extra = lines.iter().filter(|(what, tests)| !what.starts_with("TG-") && !tests.is_empty());
    assert_eq!(extra.count(), 14);
    // And no test of this file is forgotten in it.
    let named: BTreeSet<_> = lines.iter().flat_map(|(_, tests)| tests).map(|(_, name)| name).collect();
    for file in ["sessions", "delegation", "extra"] {
        for test in tests_of(&read(&format!("tests/tests/tg/{file}.rs"))) {
            assert!(named.contains(&test), "{test} is not in tests/TG.md");
        }
    }
}
