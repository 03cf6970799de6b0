//! The offspring program: runs a pool of agents and looks at the tree of sessions.
#![deny(missing_docs)]
// The one crate that prints: answers to stdout, everything else to stderr. Through `text`, which does not
// panic when nobody reads: the lints against `println!` hold here too.

mod args;
mod cancel;
mod cells;
mod charset;
mod check;
mod completions;
mod doctor;
mod drive;
mod erased;
mod exit;
mod export;
mod failure;
mod find;
mod help;
mod import;
mod init;
mod live;
mod load;
mod look;
mod ls;
mod man;
mod pages;
mod paint;
mod prompt;
mod prune;
mod reference;
mod replay;
mod rerun;
mod rm;
mod run;
mod schema;
mod screen;
mod search;
mod serve;
mod show;
mod signals;
mod silence;
mod store;
mod summary;
mod task;
mod text;
mod tree;
mod tui;
mod usage;
mod variables;
mod watch;

use std::{io::Write, process::ExitCode};

use clap::{Parser, error::ErrorKind};

use args::{Arguments, Command};
use failure::Failure;
use text::{finish, tell};

/// The hidden subcommand under which this program is the guard of an agent's process.
const GUARD: &str = "__guard";
/// The hidden subcommand that prints `docs/reference.md`.
const REFERENCE: &str = "__reference";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // Before anything else: a guard has to be there in a millisecond.
    if arguments.nth(1).is_some_and(|first| first == GUARD) {
        return offspring_process::guard::main(arguments);
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == REFERENCE) {
        return reference::reference().unwrap_or_else(|failure| failure.report());
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = error.render().to_string();
            return match error.kind() {
                // What was asked for: a page of help, the version.
                _ if !error.use_stderr() => finish(&text).unwrap_or_else(|failure| failure.report()),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    tell(text.trim_end());
                    ExitCode::from(exit::USAGE)
                }
                _ => {
                    let words: Vec<String> =
                        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
                    Failure::usage(usage::message(&error, &words)).report()
                }
            };
        }
    };
    log();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("no threads to work with: {error}")).report(),
    };
    let code = match runtime.block_on(dispatch(arguments)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    // Blocking reads of stdin must not hold up the end.
    runtime.shutdown_background();
    let _ = std::io::stdout().flush();
    code
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { db, color, command } = arguments;
    paint::choose(color);
    signals::survive_limit_of_file_size();
    match command {
        Command::Run(run) => run::run(db, run).await,
        Command::Rerun(rerun) => rerun::rerun(db, rerun).await,
        Command::Serve(serve) => serve::serve(db, serve).await,
        Command::Drive(drive) => drive::drive(*drive).await,
        Command::Replay(replay) => replay::replay(&replay).await,
        Command::Ls(ls) => ls::ls(db, &ls).await,
        Command::Tree(tree) => tree::tree(db, &tree).await,
        Command::Show(show) => show::show(db, &show).await,
        Command::Watch(watch) => watch::watch(db, &watch).await,
        Command::Cancel(cancel) => cancel::cancel(db, &cancel).await,
        Command::Export(export) => export::export(db, &export).await,
        Command::Import(import) => import::import(db, &import).await,
        Command::Rm(rm) => rm::rm(db, &rm).await,
        Command::Prune(prune) => prune::prune(db, &prune).await,
        Command::Search(search) => search::search(db, &search).await,
        Command::Task(task) => task::task(task).await,
        Command::Init(init) => init::init(db.as_deref(), &init),
        Command::Check(check) => check::check(db, &check),
        Command::Doctor(doctor) => doctor::doctor(db, &doctor).await,
        Command::Schema(schema) => schema::schema(&schema),
        Command::Completions(completions) => completions::completions(&completions),
        Command::Man(man) => man::man(&man),
    }
}

/// What the crates have to say, on stderr, when [`variables::LOG`] names a level.
fn log() {
    let level = std::env::var(variables::LOG).ok().and_then(|level| level.parse().ok());
    if let Some(level) = level {
        let level: tracing::level_filters::LevelFilter = level;
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
    }
}
