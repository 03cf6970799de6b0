//! The pages say what is there: each block of code is run, compiled or compared as it stands, links and names of files
//! lead somewhere, and the README's numbers are the program's.
//!
//! Through the real binary, whose path is in `OFFSPRING_BIN`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "docs/compare.rs"]
mod compare;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/session.rs"]
mod session;

use std::path::Path;

use compare::{is_json_shown, is_shown, masked};
use page::{Page, Way, pages, root};
use session::Session;

const GUIDE: &str = "docs/guides/delegate-from-any-script.md";

/// Does what a page says, from its first block to its last, as a reader would.
fn follow(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let session = Session::in_the_repository();
    let script = std::fs::read_to_string(root().join(".ci/run")).expect("the script of CI");
    for block in page.blocks() {
        let mut problem = |line: usize, what: String| {
            wrong.push(format!("{}:{line}: {what}", page.path.display()));
        };
        match &block.way {
            Way::File(name) => session.write(name, &block.text),
            Way::Add(name) => {
                session.add(name, &block.text);
                session.run(&format!("offspring check {name}"));
            }
            Way::Script => drop(session.run(&block.text)),
            Way::Console => {
                for example in block.examples() {
                    let printed = session.run(&example.command);
                    if !is_shown(&printed, &example.output) {
                        problem(example.line, format!("`{}` printed\n{printed}", example.command));
                    }
                }
            }
            Way::Output(command) if block.language == "json" => {
                let shown = serde_json::from_str(&block.text);
                let printed = serde_json::from_str(&session.run(command));
                match (printed, shown) {
                    (Ok(printed), Ok(shown)) if is_json_shown(&printed, &shown) => {}
                    (printed, shown) => problem(block.line, format!("{printed:#?} is not {shown:#?}")),
                }
            }
            Way::Output(command) => {
                let printed = session.run(command);
                if !is_shown(&printed, &block.text) {
                    problem(block.line, format!("`{command}` printed\n{}", masked(&printed)));
                }
            }
            Way::Ci => {
                for (number, line) in (block.line..).zip(block.text.lines()) {
                    let line = line.split("  #").next().unwrap_or_default().trim();
                    // One of its steps.
                    let line = if line == "cargo xtask test" { "cargo xtask ci" } else { line };
                    if !script.lines().any(|step| step.contains(line)) {
                        problem(number, format!("no line of .ci/run runs `{line}`"));
                    }
                }
            }
            Way::Compiled(file) => {
                let test = std::fs::read_to_string(root().join(file)).expect("the test a page names");
                let test: Vec<&str> = test.lines().map(str::trim).collect();
                for (number, line) in (block.line..).zip(block.text.lines()) {
                    let line = line.trim();
                    if !line.is_empty() && !line.starts_with("//") && !test.contains(&line) {
                        problem(number, format!("{file} has no line `{line}`"));
                    }
                }
            }
            Way::Shown => {}
        }
    }
    wrong
}

#[test]
fn every_block_of_every_page_runs_and_prints_what_the_page_says() {
    let pages = pages();
    let followed = |page: &Page| page.blocks().iter().any(|block| block.way != Way::Shown);
    let wrong: Vec<String> = pages.iter().filter(|page| followed(page)).flat_map(follow).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let blocks: usize = pages.iter().map(|page| page.blocks().len()).sum();
    assert!(blocks > 25, "the pages have lost their blocks: {blocks} are left");
}

#[test]
fn no_process_of_the_guides_agents_is_left_and_nothing_is_written_beside_them() {
    let guide = Page::read(GUIDE);
    let session = Session::new();
    for block in guide.blocks() {
        if let Way::File(name) = &block.way {
            session.write(name, &block.text);
        }
    }
    let before = session.files();
    session.run("offspring run pool.yaml go --node background --quiet");
    session.run("offspring run pool.yaml go --node careful --quiet");
    assert_eq!(session.files(), before);
    let open = session.run("offspring ls --json | grep -c '\"running\"' || true");
    assert_eq!(open, "0\n", "a run of the guide is still open");
}

#[test]
fn every_link_and_every_named_file_of_the_pages_is_there() {
    let mut missing = Vec::new();
    for page in pages() {
        let folder = page.path.parent().unwrap_or(Path::new(""));
        for (line, target) in page.links() {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !root().join(folder).join(file).exists() {
                missing.push(format!("{}:{line}: link to {target}", page.path.display()));
            }
        }
        for (line, file) in page.named_files() {
            if !root().join(&file).exists() {
                missing.push(format!("{}:{line}: names `{file}`", page.path.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn the_readme_states_the_limits_that_are_in_force() {
    let schema: serde_json::Value =
        serde_json::from_str(&Session::new().run("offspring schema manifest")).unwrap();
    let limits = schema["$defs"]["Limits"]["properties"].as_object().expect("limits in the schema");
    let rows = Page::read("README.md").table("limit");
    let stated: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    for (name, limit) in limits {
        let row = rows.iter().find(|row| row[0].trim_matches('`') == name);
        let row = row.unwrap_or_else(|| panic!("README.md does not name the limit {name}: {stated:?}"));
        // What depends on the machine, or is unbounded, has no default in the schema.
        if let Some(default) = limit["default"].as_u64() {
            let number: String = row[1].chars().filter(char::is_ascii_digit).collect();
            assert_eq!(number, default.to_string(), "README.md: the default of {name}");
        }
    }
    assert_eq!(stated.len(), limits.len(), "README.md names a limit that there is not: {stated:?}");
}

#[test]
fn the_readme_and_the_ci_script_run_the_same_main_job() {
    let job =
        r#"cargo run --release -- run examples/survey.yaml "What would you fix first in this repository?""#;
    for file in ["README.md", ".ci/run", "examples/README.md"] {
        assert!(Page::read(file).text.contains(job), "{file} does not run {job}");
    }
}
