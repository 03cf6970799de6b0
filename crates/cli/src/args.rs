//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    cancel::Cancel, check::Check, completions::Completions, export::Export, import::Import, init::Init,
    ls::Ls, man::Man, rerun::Rerun, run::Run, schema::Schema, show::Show, task::Task, tree::Tree,
    watch::Watch,
};

/// The program's own, as `--version` says it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Run a pool of agents that delegate to each other, and look at the tree of their sessions.
#[derive(Debug, Parser)]
#[command(
    name = "offspring",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        offspring init first\n  \
        offspring run first/pool.yaml \"to be or not to be\"\n  \
        offspring tree latest\n  \
        offspring watch latest --json\n\n\
        Exit codes: 0 completed, 1 the root failed, 2 wrong use, 130 interrupted (143 SIGTERM, 129 SIGHUP)."
)]
pub(crate) struct Arguments {
    /// The store: a SQLite file, or `memory:` for none. Default: OFFSPRING_DB, else sessions.db in
    /// $XDG_STATE_HOME/offspring or ~/.local/state/offspring
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node of a pool and print its answer.
    Run(Run),
    /// Run a root once more, all of it or only what failed.
    Rerun(Rerun),
    /// List the roots, newest first.
    Ls(Ls),
    /// Show a tree of sessions.
    Tree(Tree),
    /// Show a session's row and transcript.
    Show(Show),
    /// Follow a tree: history, then live; ends with the run.
    Watch(Watch),
    /// Cancel a session and everything below it, from any terminal.
    Cancel(Cancel),
    /// Write a tree in another form: JSON to import elsewhere, a chart, a graph.
    Export(Export),
    /// Read a tree that `export --format json` wrote into this store.
    Import(Import),
    /// Delegate from inside a run: make a child of the session this is called in.
    Task(Task),
    /// Write a first pool that runs as it is: a manifest with comments, and its scripts.
    Init(Init),
    /// Say what is wrong with a manifest, or what is in it and which limits are in force; run nothing.
    Check(Check),
    /// Print a JSON Schema.
    Schema(Schema),
    /// Print completions for a shell.
    Completions(Completions),
    /// Print the manual, or write a page for every command.
    Man(Man),
}
