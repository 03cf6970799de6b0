//! `offspring completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{args::Arguments, failure::Failure, text::finish};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring completions bash > ~/.local/share/bash-completion/completions/offspring\n  \
    offspring completions zsh > ~/.zfunc/_offspring    # a directory of $fpath\n  \
    offspring completions fish > ~/.config/fish/completions/offspring.fish")]
pub(crate) struct Completions {
    /// For which shell.
    pub(crate) shell: Shell,
}

pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "offspring", &mut script);
    finish(&String::from_utf8(script).map_err(Failure::new)?)
}
