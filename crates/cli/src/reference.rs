//! The hidden command that prints `docs/reference.md` from the code: what is not there is not documented, and what is
//! there is.

use std::{fmt::Write, process::ExitCode};

use clap::{Arg, Command, CommandFactory};
use offspring_agents::command::{MAX_ARGUMENT_BYTES, MAX_GRACE_MS, variables as of_agents};
use offspring_pool::manifest::{KeyReference, MAX_MANIFEST_BYTES, keys};
use offspring_process::{MARKER_VARIABLE, SMALL_SET};

use crate::{args::Arguments, exit, failure::Failure, help, schema, text::finish, variables};

/// Limits that no manifest changes.
fn fixed_limits() -> [(&'static str, String); 3] {
    [
        ("a manifest", format!("{MAX_MANIFEST_BYTES} bytes")),
        ("a prompt with `prompt: argument`", format!("{MAX_ARGUMENT_BYTES} bytes")),
        ("`stop_grace_ms`", format!("{MAX_GRACE_MS} milliseconds")),
    ]
}

pub(crate) fn reference() -> Result<ExitCode, Failure> {
    let mut page = String::new();
    write(&mut page).map_err(Failure::new)?;
    finish(&page)
}

fn write(page: &mut String) -> std::fmt::Result {
    writeln!(
        page,
        "# Reference\n\n\
         <!-- Printed by the program: `cargo xtask reference` writes this file, `cargo xtask tidy` compares it. -->\n\n\
         Everything the program takes and gives: [commands](#commands), [manifest](#manifest), [limits](#limits),\n\
         [exit codes](#exit-codes), [environment](#environment). The same words are in `offspring COMMAND --help`.\n\n\
         ## Commands\n\n\
         The program itself takes these; `--db` goes behind the command too:\n"
    )?;
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    arguments(page, program.get_arguments())?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        self::command(page, command)?;
    }
    let keys = keys(&schema::node_types());
    manifest(page, &keys)?;
    limits(page, &keys)?;
    exit_codes(page)?;
    environment(page)
}

fn command(page: &mut String, command: &Command) -> std::fmt::Result {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace('-', " ");
    let about = command.get_long_about().or_else(|| command.get_about());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    writeln!(page, "\n### {name}\n\n{}\n", about.map(ToString::to_string).unwrap_or_default().trim())?;
    writeln!(page, "```text\n{usage}\n```\n")?;
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_global_set()).collect();
    arguments(page, own)?;
    for part in help::parts(command) {
        if part.is_example() {
            writeln!(page, "\n{}:\n\n```text\n{}\n```", part.heading, part.lines.join("\n"))?;
        } else {
            writeln!(page, "\n{}: {}", part.heading, part.lines.join("\n"))?;
        }
    }
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        self::command(page, below)?;
    }
    Ok(())
}

fn arguments<'a>(page: &mut String, args: impl IntoIterator<Item = &'a Arg>) -> std::fmt::Result {
    let shown = args.into_iter().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    let mut rows = shown.map(|arg| [format!("`{}`", spelled(arg)), meaning(arg)]).peekable();
    if rows.peek().is_some() {
        table(page, ["argument", "meaning"], rows)?;
    }
    Ok(())
}

/// `--node NAME`, `-n, --limit LIMIT`, `MANIFEST`.
fn spelled(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let takes = arg.is_positional() || arg.get_action().takes_values();
    let value = arg.get_value_names().map(|names| names.join(" ")).filter(|_| takes);
    [flags.join(", "), value.unwrap_or_default()].join(" ").trim().to_owned()
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if !text.is_empty() && !text.ends_with(['.', '?', ')']) {
        text.push('.');
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), help.to_string().trim_end_matches('.')),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if arg.get_action().takes_values() && !values.is_empty() {
        text.push_str(&format!(" One of {}.", values.join(", ")));
    }
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && default.iter().any(|value| !value.is_empty()) {
        text.push_str(&format!(" Default: `{}`.", default.join(" ")));
    }
    text
}

fn manifest(page: &mut String, keys: &[KeyReference]) -> std::fmt::Result {
    writeln!(
        page,
        "\n## Manifest\n\n\
         YAML. Paths are seen from its directory. `NAME` stands for a name of yours, `[]` for each item of a list,\n\
         `(type: command)` for an agent of that type.\n"
    )?;
    let rows = keys.iter().map(|key| {
        let KeyReference { path, takes, default, required, meaning } = key;
        let default = match default {
            _ if *required => "required".to_owned(),
            Some(default) => format!("`{default}`"),
            None => String::new(),
        };
        [format!("`{path}`"), takes.clone(), default, meaning.clone()]
    });
    table(page, ["key", "takes", "default", "meaning"], rows)
}

fn limits(page: &mut String, keys: &[KeyReference]) -> std::fmt::Result {
    writeln!(
        page,
        "\n## Limits\n\n\
         Under `limits:` of the manifest; `offspring check` says which are in force. Those that an agent can narrow\n\
         are under `agents.NAME.limits` too.\n"
    )?;
    let rows = keys.iter().filter_map(|key| {
        let name = key.path.strip_prefix("limits.")?;
        let of_agent = format!("agents.NAME.limits.{name}");
        let can_narrow = keys.iter().any(|key| key.path == of_agent);
        let default = key.default.as_ref().map(|default| format!("`{default}`")).unwrap_or_default();
        let narrows = if can_narrow { "yes" } else { "" };
        Some([format!("`{name}`"), default, narrows.to_owned(), key.meaning.clone()])
    });
    table(page, ["limit", "default", "an agent can narrow it", "what it bounds"], rows)?;
    writeln!(page, "\nThese are fixed:\n")?;
    let rows = fixed_limits().map(|(what, most)| [what.to_owned(), most]);
    table(page, ["of", "at most"], rows)
}

fn exit_codes(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## Exit codes\n")?;
    let rows = exit::TABLE.iter().map(|(code, meaning)| [format!("`{code}`"), (*meaning).to_owned()]);
    table(page, ["code", "meaning"], rows)?;
    writeln!(
        page,
        "\nAn agent's own exit status is its outcome: 0 completed, everything else failed. What the program says of one\n\
         that could not be started is what shells say: 127 not found, 126 not executable; 125 its guard failed."
    )
}

fn environment(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## Environment\n\nThe program reads:\n")?;
    let row = |(name, meaning): &(&str, &str)| [format!("`{name}`"), (*meaning).to_owned()];
    table(page, ["variable", "what it does"], variables::TABLE.iter().map(row))?;
    writeln!(page, "\nAn agent gets, besides `environment` of its manifest:\n")?;
    let small: Vec<String> = SMALL_SET.iter().map(|name| format!("`{name}`")).collect();
    let marker = (MARKER_VARIABLE, "the mark of the run, by which what is left of it is found");
    table(page, ["variable", "what it is"], of_agents::TABLE.iter().chain([&marker]).map(row))?;
    writeln!(
        page,
        "\nand from the program's own environment, where they are set: {}, every `LC_*`, and nothing else.\n\
         `PATH` begins with a directory that holds `offspring`.",
        small.join(", ")
    )
}

fn table<const N: usize>(
    page: &mut String,
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> std::fmt::Result {
    writeln!(page, "| {} |", heading.join(" | "))?;
    writeln!(page, "|{}", " --- |".repeat(N))?;
    for row in rows {
        // A bar would end the cell.
        writeln!(page, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "))?;
    }
    Ok(())
}
