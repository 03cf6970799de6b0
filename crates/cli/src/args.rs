//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

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
        Exit codes: 0 completed, 1 the root failed, 2 wrong use, 130 interrupted (143 SIGTERM, 129 SIGHUP). \
        Each of them: docs/reference.md, \"Exit codes\"."
)]
pub(crate) struct Arguments {
    /// The store: a SQLite file, postgres://USER@HOST/DATABASE, or `memory:` for none. Default:
    /// OFFSPRING_DB, else sessions.db in $XDG_STATE_HOME/offspring or ~/.local/state/offspring
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// Colours: `auto` uses them on a terminal that has some, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub(crate) color: crate::paint::ColorWhen,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node of a pool and print its answer.
    Run(crate::run::Run),
    /// Run a root once more, all of it or only what failed.
    Rerun(crate::rerun::Rerun),
    /// Serve a pool to clients of dsh runtimes.
    Serve(crate::serve::Serve),
    /// Prompt a session of a dsh runtime and show what it and its children do.
    Drive(Box<crate::drive::Drive>),
    /// Show what a recorded wire of a runtime says.
    Replay(crate::replay::Replay),
    /// List the roots, newest first.
    Ls(crate::ls::Ls),
    /// Show a tree of sessions.
    Tree(crate::tree::Tree),
    /// Show a session's row and transcript.
    Show(crate::show::Show),
    /// Follow a tree: history, then live; ends with the run.
    Watch(crate::watch::Watch),
    /// Cancel a session and everything below it, from any terminal.
    Cancel(crate::cancel::Cancel),
    /// Write a tree in another form: JSON to import elsewhere, a chart, a graph.
    Export(crate::export::Export),
    /// Read a tree that `export --format json` wrote into this store.
    Import(crate::import::Import),
    /// Delete sessions and everything below them.
    Rm(crate::rm::Rm),
    /// Delete old trees: by age, number or size.
    Prune(crate::prune::Prune),
    /// Say where a text was said, newest first.
    Search(crate::search::Search),
    /// Delegate from inside a run: make a child of the session this is called in.
    Task(crate::task::Task),
    /// Write a first pool that runs as it is: a manifest with comments, and its scripts.
    Init(crate::init::Init),
    /// Say what is wrong with a manifest, or what is in it; run nothing.
    Check(crate::check::Check),
    /// Say what is missing, where sessions are and how big, what was left behind.
    Doctor(crate::doctor::Doctor),
    /// Print a JSON Schema.
    Schema(crate::schema::Schema),
    /// Print completions for a shell.
    Completions(crate::completions::Completions),
    /// Print the manual, or write a page for every command.
    Man(crate::man::Man),
}
