//! A command line that cannot be understood, in a few lines: what, what was probably meant, where to read on.

use clap::{CommandFactory, error::ErrorKind};

use crate::args::Arguments;

/// What the parsers of numbers say, in words for people.
const WORDS: [(&str, &str); 5] = [
    ("invalid digit found in string", "it is no whole number"),
    ("cannot parse integer from empty string", "it is empty"),
    ("number too large to fit in target type", "it is too large"),
    ("number would be zero for non-zero type", "it is 0, and nothing would be shown"),
    ("number too small to fit in target type", "it is too small"),
];

/// The message for an error of the command line `words` (without the program's own name): at most six lines.
pub(crate) fn message(error: &clap::Error, words: &[String]) -> String {
    let whole = Arguments::command();
    let command = words.iter().find_map(|word| whole.find_subcommand(word)).map(clap::Command::get_name);
    let rendered = error.render().to_string();
    let mut wrong = String::new();
    let mut rest = Vec::new();
    for (index, paragraph) in rendered.split("\n\n").enumerate() {
        let mut lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty());
        if index == 0 {
            wrong =
                lines.map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect::<Vec<_>>().join(" ");
            continue;
        }
        // The page to read is named below, with the command.
        rest.extend(
            lines.by_ref().filter(|line| !line.starts_with("For more information")).map(str::to_owned),
        );
    }
    for (theirs, ours) in WORDS {
        wrong = wrong.replace(theirs, ours);
    }
    let prompts = matches!(command, Some("run" | "task"));
    rest.retain(|line| prompts || !line.starts_with("tip: to pass '--"));
    let tips = rest.iter().filter(|line| line.starts_with("tip: ")).count();
    if tips == 0
        && let Some(tip) = tip(error, command, words)
    {
        rest.insert(0, format!("tip: {tip}"));
    }
    let help = command.map_or("offspring --help".to_owned(), |name| format!("offspring {name} --help"));
    rest.truncate(4);
    let lines = [wrong].into_iter().chain(rest).chain([format!("Help: {help}")]);
    lines.collect::<Vec<_>>().join("\n")
}

/// What was probably meant, where the parser has no idea.
fn tip(error: &clap::Error, command: Option<&str>, words: &[String]) -> Option<String> {
    if error.kind() == ErrorKind::ArgumentConflict {
        return Some("leave one of them out".to_owned());
    }
    let invalid = error.get(match error.kind() {
        ErrorKind::InvalidSubcommand => clap::error::ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => clap::error::ContextKind::InvalidArg,
        _ => return None,
    })?;
    let clap::error::ContextValue::String(word) = invalid else { return None };
    match (error.kind(), command) {
        (ErrorKind::InvalidSubcommand, _) => {
            let whole = Arguments::command();
            let names = whole.get_subcommands().filter(|known| !known.is_hide_set());
            let close = closest(word, names.map(clap::Command::get_name));
            if let Some(close) = close {
                return Some(format!("did you mean `offspring {close}`?"));
            }
            let is_manifest = word.ends_with(".yaml") || word.ends_with(".yml");
            is_manifest.then(|| format!("to run a pool: offspring run {word} PROMPT"))
        }
        // A prompt of several words that the shell took apart.
        (_, Some(name @ ("run" | "task"))) if !word.starts_with('-') && words.contains(word) => {
            Some(format!("a prompt of several words wants quotes: offspring {name} … \"… {word} …\""))
        }
        _ => None,
    }
}

/// The word that differs least, if it differs by no more than a third of its length.
pub(crate) fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    known
        .map(|known| (strsim::osa_distance(word, known), known))
        .filter(|(distance, _)| *distance <= length.div_ceil(3) && *distance < length)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(words: &[&str]) -> String {
        let error = Arguments::try_parse_from(["offspring"].iter().chain(words)).unwrap_err();
        message(&error, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_wrong_command_line_gets_six_lines_at_most_and_where_to_read_on() {
        for words in [
            &["rnu"][..],
            &["run", "--frob"],
            &["run", "a", "b", "c"],
            &["--nothing"],
            &["ls", "-n", "many"],
            &["tree", "--json", "--dot"],
            &["schema"],
            &["task"],
        ] {
            let said = said(words);
            assert!(said.lines().count() <= 6, "{said}");
            assert!(said.lines().all(|line| !line.trim().is_empty()), "{said}");
            let help = said.lines().last().unwrap_or_default();
            assert!(help.starts_with("Help: offspring ") && help.ends_with("--help"), "{said}");
        }
        assert!(said(&["rnu"]).contains("did you mean `offspring run`?"));
        assert!(said(&["ls", "-n", "many"]).contains("it is no whole number"));
    }
}
