//! The pages say what is there: the snippets of a guide run and print what the page says they print, links and names of
//! files lead somewhere, and the README's numbers are the program's.
//!
//! Through the real binary, whose path is in `OFFSPRING_BIN`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "docs/page.rs"]
mod page;
#[path = "docs/session.rs"]
mod session;

use std::path::Path;

use page::{Page, pages, root};
use session::Session;

const GUIDE: &str = "docs/guides/delegate-from-any-script.md";

#[test]
fn every_snippet_of_the_delegation_guide_runs_and_prints_what_the_page_says() {
    let guide = Page::read(GUIDE);
    let session = Session::new();
    let files = guide.files();
    assert!(files.len() >= 7, "the guide has lost its files: {files:?}");
    for (name, text) in files {
        session.write(name, text);
    }
    let examples = guide.console();
    assert!(examples.len() >= 8, "the guide has lost its examples: {} are left", examples.len());
    for example in examples {
        let printed = session.run(&example.command);
        assert_eq!(printed, example.output, "{GUIDE}:{}: `{}` printed", example.line, example.command);
    }
}

#[test]
fn no_process_of_the_guides_agents_is_left_and_nothing_is_written_beside_them() {
    let guide = Page::read(GUIDE);
    let session = Session::new();
    for (name, text) in guide.files() {
        session.write(name, text);
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
fn the_pool_of_the_readme_runs() {
    let session = Session::new();
    let files =
        Page::read("README.md").files().iter().map(|(name, text)| session.write(name, text.clone())).count();
    assert_eq!(files, 1, "README.md has one pool");
    session.write("boss.sh", "offspring task both \"$(cat)\"\n".to_owned());
    session.write("style.sh", "printf 'style of '; cat\n".to_owned());
    session.write("tests.sh", "printf 'tests of '; cat\n".to_owned());
    let answer = session.run("offspring run review.yaml 'the change' --quiet");
    assert_eq!(
        answer,
        "### style (completed)\nstyle of the change\n### tests (completed)\ntests of the change\n"
    );
}

#[test]
fn the_readme_and_the_ci_script_run_the_same_main_job() {
    let job =
        r#"cargo run --release -- run examples/survey.yaml "What would you fix first in this repository?""#;
    for file in ["README.md", ".ci/run", "examples/README.md"] {
        assert!(Page::read(file).text.contains(job), "{file} does not run {job}");
    }
}
