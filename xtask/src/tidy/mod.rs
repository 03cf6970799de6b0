//! `cargo xtask tidy`: what no compiler checks.
//!
//! Each check is a function from text to problems, with tests that feed it bad text and see the problem.

mod arrows;
mod crate_heads;
mod doc_blocks;
mod machine_paths;
pub(crate) mod reference;
mod rule_tests;
mod source_text;
mod sources;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::Workspace;
pub(crate) use arrows::OLD_LOCK;
use source_text::SourceFile;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TidyArguments {
    /// Leave out the check that needs every test to be built: whether each rule has one.
    #[arg(long)]
    without_rules: bool,
}

/// What is wrong, where.
pub(crate) type Problems = Vec<String>;

pub(crate) fn run(workspace: &Workspace, arguments: &TidyArguments) -> Result<()> {
    let texts = texts(workspace)?;
    let files = sources(&texts);
    let mut problems = arrows::check(workspace)?;
    problems.extend(arrows::check_sources(&files));
    problems
        .extend(texts.iter().flat_map(|(path, text)| machine_paths::check(&path.to_string_lossy(), text)));
    for file in &files {
        problems.extend(sources::check(file));
    }
    problems.extend(crate_heads::check(&texts));
    problems.extend(doc_blocks::check(&texts));
    problems.extend(reference::check(workspace, &files).unwrap_or_else(|error| vec![format!("{error:#}")]));
    if !arguments.without_rules {
        // A test that does not compile hides no other problem.
        problems.extend(rule_tests::check(workspace).unwrap_or_else(|error| vec![format!("{error:#}")]));
    }
    for file in &files {
        if let Some(note) = sources::long_file_note(file) {
            eprintln!("   note: {note}");
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        eprintln!("   {problem}");
    }
    bail!("tidy found {} problems", problems.len())
}

/// The text files of the tree; others have nothing to check.
fn texts(workspace: &Workspace) -> Result<Vec<(PathBuf, String)>> {
    let mut texts = Vec::new();
    for path in workspace.files()? {
        let bytes = std::fs::read(workspace.root().join(&path))
            .with_context(|| format!("reading {}", path.display()))?;
        if let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            texts.push((path, text));
        }
    }
    Ok(texts)
}

fn sources(texts: &[(PathBuf, String)]) -> Vec<SourceFile> {
    let rust =
        || texts.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "rs"));
    let only_in_tests: BTreeSet<PathBuf> =
        rust().flat_map(|(path, text)| source_text::test_module_files(path, text)).collect();
    rust().map(|(path, text)| SourceFile::new(path, text, only_in_tests.contains(path))).collect()
}
