//! What stands below the options of a command's `--help`, for the manual and the reference.

use clap::Command;

/// Lines that belong together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What its first line says before a colon, such as `Examples`.
    pub(crate) heading: String,
    /// The rest, each line without its indentation.
    pub(crate) lines: Vec<String>,
}

impl Part {
    /// Whether its lines are commands.
    pub(crate) fn is_example(&self) -> bool {
        self.heading.starts_with("Example")
    }
}

/// What stands below the options, part by part.
pub(crate) fn parts(command: &Command) -> Vec<Part> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.split("\n\n").filter(|part| !part.trim().is_empty()).map(part).collect()
}

fn part(text: &str) -> Part {
    let mut lines = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    // A sentence is no heading.
    let split = first.split_once(':').filter(|(heading, _)| !heading.contains('.'));
    let (heading, rest) = split.unwrap_or(("Notes", &first));
    let rest = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    Part { heading: heading.to_owned(), lines: rest.into_iter().chain(lines).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_told_from_sentences() {
        let command = Command::new("x")
            .after_help("It ends. Codes: 0.\n\nExamples:\n  x a\n  x b: c\n\nExit codes: 0 yes, 1 no.");
        let part = |heading: &str, lines: &[&str]| Part {
            heading: heading.to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let expected = [
            part("Notes", &["It ends. Codes: 0."]),
            part("Examples", &["x a", "x b: c"]),
            part("Exit codes", &["0 yes, 1 no."]),
        ];
        assert_eq!(parts(&command), expected);
    }
}
