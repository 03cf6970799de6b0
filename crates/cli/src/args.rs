//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run a pool of agents that delegate to each other, and look at the tree of their sessions.
#[derive(Debug, Parser)]
#[command(
    name = "offspring",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        offspring run examples/survey.yaml \"What would you fix first in this repository?\"\n  \
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
    /// Delegate from inside a run: make a child of the session this is called in.
    Task(Task),
    /// Print a JSON Schema.
    Schema {
        /// Of what.
        what: SchemaOf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring run pool.yaml \"Review the change\"\n  \
    git diff | offspring run pool.yaml - --node reviewer --dir ../project\n  \
    offspring run pool.yaml \"Ship it\" --json | jq -r 'select(.event.kind == \"answer\").event.data.text'")]
pub(crate) struct Run {
    /// The pool's manifest.
    pub(crate) manifest: PathBuf,
    /// What is asked; `-` reads it from stdin.
    pub(crate) prompt: String,
    /// The node to run instead of the manifest's entry.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// The directory the agents work in. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print every event as a line of JSON, the last one the answer.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no live tree.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Start a new tree although this is called inside a session, outside its limits.
    #[arg(long)]
    pub(crate) new_root: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring ls --json | jq -r '.[0].id'")]
pub(crate) struct Ls {
    /// At most so many.
    #[arg(long, short = 'n', default_value_t = 20)]
    pub(crate) limit: usize,
    /// One JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  offspring tree latest\n  offspring tree ses_01 --mermaid > tree.mmd")]
pub(crate) struct Tree {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// One JSON object with all sessions.
    #[arg(long, group = "form")]
    pub(crate) json: bool,
    /// A Mermaid flowchart.
    #[arg(long, group = "form")]
    pub(crate) mermaid: bool,
    /// A Graphviz graph.
    #[arg(long, group = "form")]
    pub(crate) dot: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring show latest")]
pub(crate) struct Show {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// One JSON object with row, runs and transcript.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  offspring watch latest\n  offspring watch latest --from 120 --json")]
pub(crate) struct Watch {
    /// A session: its id, the beginning of its id, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,
    /// Begin with the event of this number.
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    pub(crate) from: u64,
    /// Every event as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  offspring cancel latest")]
pub(crate) struct Cancel {
    /// A session: its id, the beginning of its id, or `latest`.
    pub(crate) session: String,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "offspring task [OPTIONS] <NODE> <PROMPT>\n       offspring task nodes\n       \
        offspring task status|output|cancel <TASK>",
    after_help = "Prints the child's answer. Exit codes: 0 completed, 1 failed or refused, 2 wrong use.\n\n\
        Examples, inside an agent's script:\n  \
        offspring task reviewer \"Look at src/\"\n  \
        git diff | offspring task reviewer -\n  \
        id=$(offspring task --detach slow \"Measure\") && offspring task output \"$id\""
)]
pub(crate) struct Task {
    /// The node to delegate to (an agent, a team, or ask_WORKER), or one of nodes, status, output, cancel.
    pub(crate) node: String,
    /// What it is asked (`-` reads it from stdin), or the task's id.
    pub(crate) prompt: Option<String>,
    /// Print the task's id at once and do not wait.
    #[arg(long)]
    pub(crate) detach: bool,
    /// What it is for, in a few words.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// The child's working directory, relative to this session's.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The manifest of a pool.
    Manifest,
}
