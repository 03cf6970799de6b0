//! `offspring man`: the manual, from the same words as `--help`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Command, CommandFactory};
use roff::{Roff, roman};

use crate::{
    args::Arguments,
    failure::Failure,
    help::{self, Part},
    text::{finish, plain},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring man | man -l -\n  \
    offspring man run | man -l -\n  \
    offspring man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Of this command. Default: of the program.
    pub(crate) command: Option<String>,
    /// Write the page of the program and one of each command here, in place of older ones.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) fn man(args: &Man) -> Result<ExitCode, Failure> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    if let Some(dir) = &args.dir {
        return write(&program, dir);
    }
    let meant = match args.command.as_deref() {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| unknown(&program, name))?,
    };
    finish(&page(meant)?)
}

fn unknown(program: &Command, name: &str) -> Failure {
    let known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
    Failure::usage(format!("there is no command {}; there are: {}", plain(name), known.join(", ")))
}

fn write(program: &Command, dir: &Path) -> Result<ExitCode, Failure> {
    let failed = |path: &Path, error: &io::Error| {
        Failure::new(format!("{}: {error}\nname a directory you can write to with --dir", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    let mut said = String::new();
    for command in std::iter::once(program).chain(program.get_subcommands()) {
        let path = dir.join(format!("{}.1", name(command)));
        fs::write(&path, page(command)?).map_err(|error| failed(&path, &error))?;
        said.push_str(&format!("wrote {}\n", plain(&path.to_string_lossy())));
    }
    finish(&said)
}

/// `offspring` or `offspring-run`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Result<String, Failure> {
    let man = clap_mangen::Man::new(command.clone());
    // Without a date, so that the same program prints the same page; an empty field has to be quoted.
    let title = format!(
        ".TH \"{}\" \"1\" \"\" \"offspring {}\" \"Offspring\"\n",
        name(command).to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let mut text = title.into_bytes();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    for part in help::parts(command) {
        section(&part).to_writer(&mut text)?;
    }
    if command.has_subcommands() {
        let mut roff = Roff::new();
        roff.control("SH", ["FILES"]);
        roff.text([roman(
            "$XDG_STATE_HOME/offspring/sessions.db, else ~/.local/state/offspring/sessions.db",
        )]);
        roff.to_writer(&mut text)?;
    }
    String::from_utf8(text).map_err(Failure::new)
}

fn section(part: &Part) -> Roff {
    let is_example = part.is_example();
    let heading = if is_example { "EXAMPLES".to_owned() } else { part.heading.to_uppercase() };
    let mut roff = Roff::new();
    roff.control("SH", [heading.as_str()]);
    if is_example {
        roff.control("nf", []);
    }
    for line in &part.lines {
        roff.text([roman(line.as_str())]);
    }
    if is_example {
        roff.control("fi", []);
    }
    roff
}
