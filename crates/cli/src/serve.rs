//! `offspring serve`.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use offspring_server::{Server, ServerLimits};

use crate::{
    failure::{Failure, reason},
    load,
    run::{of_manifest, open},
    signals::Signals,
    store::Place,
    text::{shell_word, tell},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring serve --stdio pool.yaml\n  \
    offspring serve --stdio pool.yaml --as-program ./pool-runtime\n  \
    offspring drive --runtime \"offspring serve --stdio pool.yaml\" --tree \"Review the change\"\n\n\
    In Python, with the SDK of DeepSeek Harness (it wants a dsh_home, which a pool does not use):\n  \
    DeepSeekHarness(dsh_bin=\"./pool-runtime\", dsh_home=\"/tmp\")")]
pub(crate) struct Serve {
    /// The pool's manifest.
    pub(crate) manifest: PathBuf,
    /// Speak the wire of dsh runtimes on stdin and stdout, to one client.
    #[arg(long, required = true)]
    pub(crate) stdio: bool,
    /// Write a program to FILE that does this and takes no arguments of its own, for clients that start a
    /// runtime by its path alone (`dsh_bin`), and end.
    #[arg(long, value_name = "FILE")]
    pub(crate) as_program: Option<PathBuf>,
    /// Prompts of one session that may wait for their run; one more is refused.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().queued_prompts)]
    pub(crate) max_queued_prompts: usize,
    /// The longest line a client may send, in bytes; a longer one is skipped and answered with an error.
    #[arg(long, value_name = "BYTES", default_value_t = ServerLimits::default().frame_bytes)]
    pub(crate) max_frame_bytes: usize,
    /// Calls of the client that are worked on at once, those that wait included; one more is refused.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().calls)]
    pub(crate) max_calls: usize,
    /// Taken for clients that start every runtime with one, and ignored: the manifest says what runs.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Taken and ignored, as --profile.
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Vec<PathBuf>,
}

pub(crate) async fn serve(db: Option<PathBuf>, args: Serve) -> Result<ExitCode, Failure> {
    let manifest = load::manifest(&args.manifest)?;
    if let Some(program) = &args.as_program {
        return write_program(program, &args.manifest, db.as_deref());
    }
    let ignored = args.profile.iter().map(|name| format!("--profile {name}"));
    let ignored = ignored.chain(args.patch.iter().map(|file| format!("--patch {}", file.display())));
    let ignored: Vec<String> = ignored.collect();
    if !ignored.is_empty() {
        tell(&format!("ignored: {} (the manifest says what runs)", ignored.join(" ")));
    }
    let limits = ServerLimits {
        queued_prompts: args.max_queued_prompts,
        frame_bytes: args.max_frame_bytes,
        calls: args.max_calls,
        ..ServerLimits::default()
    };
    let place = Place::choose(db, of_manifest(&manifest))?;
    let mut signals = Signals::listen()?;
    let (pool, kill_switch) = tokio::select! {
        opened = open(&manifest, &place, None) => opened?,
        ending = signals.next() => return Ok(ExitCode::from(ending.exit_code())),
    };
    let server = Server::new(pool, limits).map_err(Failure::new)?;
    let ending = tokio::select! {
        // What the client asked for before it went away is started no more than what it said after.
        _ended = server.serve(tokio::io::stdin(), tokio::io::stdout()) => None,
        ending = signals.next() => Some(ending),
    };
    // A client that wants to be rid of it sends a signal soon after: nothing may take longer then.
    signals.insisting(ending, move || kill_switch.cancel());
    server.close().await?;
    Ok(ending.map_or(ExitCode::SUCCESS, |ending| ExitCode::from(ending.exit_code())))
}

/// A shell script that serves this manifest, whatever else it is given.
fn write_program(program: &Path, manifest: &Path, db: Option<&Path>) -> Result<ExitCode, Failure> {
    let wrong = |error: &std::io::Error| Failure::usage(format!("{}: {}", program.display(), reason(error)));
    let word = |path: &Path| {
        let absolute = std::path::absolute(path).map_err(|error| wrong(&error))?;
        let text = absolute.to_str().map(shell_word);
        text.map(String::from).ok_or_else(|| Failure::usage(format!("{}: not UTF-8", path.display())))
    };
    let own = std::env::current_exe()?;
    let db = match db {
        Some(db) if db == Path::new("memory:") => " --db memory:".to_owned(),
        Some(db) => format!(" --db {}", word(db)?),
        None => String::new(),
    };
    let script = format!("#!/bin/sh\nexec {}{db} serve --stdio {} \"$@\"\n", word(&own)?, word(manifest)?);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(program).map_err(
        |error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::usage(format!(
                "{}: there is such a file already; name another one or remove it",
                program.display()
            )),
            _ => wrong(&error),
        },
    )?;
    file.write_all(script.as_bytes()).map_err(|error| wrong(&error))?;
    tell(&format!("wrote {}", program.display()));
    Ok(ExitCode::SUCCESS)
}
