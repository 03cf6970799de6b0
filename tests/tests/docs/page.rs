//! A page in Markdown, taken apart as far as the tests need it.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Every page that is for readers. `cargo xtask tidy` refuses a block of code in any other.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for folder in ["", "examples", "docs", "docs/guides", "docs/decisions"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of pages") {
            let path = Path::new(folder).join(entry.expect("an entry").file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(Page::read).collect()
}

/// A page.
pub(crate) struct Page {
    /// Seen from the root of the repository.
    pub(crate) path: PathBuf,
    /// All of it.
    pub(crate) text: String,
}

/// A block between two lines of backticks.
pub(crate) struct Block {
    /// The line of its first text, from 1.
    pub(crate) line: usize,
    /// What its first word says it is written in.
    pub(crate) language: String,
    /// What the rest says is done with it.
    pub(crate) way: Way,
    /// All of it.
    pub(crate) text: String,
}

/// How a block is shown to be true.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `console`: its commands are run, what they print is compared.
    Console,
    /// `title="NAME"`: it is a file the commands below it use.
    File(String),
    /// `add="NAME"`: it goes at the end of that file, which `offspring check` then accepts.
    Add(String),
    /// `output="COMMAND"`: it is what this command prints.
    Output(String),
    /// `sh` and nothing more: a script that is run and ends with 0.
    Script,
    /// `ci`: its lines are lines of `.ci/run`, because they build or test what is being tested.
    Ci,
    /// `compiled="FILE"`: its lines are lines of that test.
    Compiled(String),
    /// Prose in a fixed width, a picture, a fragment in a language that is not checked.
    Shown,
}

impl Way {
    fn of(language: &str, rest: &str) -> Self {
        let value = |key: &str| {
            let (_, after) = rest.split_once(&format!("{key}=\""))?;
            Some(after.split('"').next().unwrap_or_default().to_owned())
        };
        if language == "console" {
            return Self::Console;
        }
        let named = value("title").map(Self::File).or_else(|| value("add").map(Self::Add));
        let named = named.or_else(|| value("output").map(Self::Output));
        if let Some(way) = named.or_else(|| value("compiled").map(Self::Compiled)) {
            return way;
        }
        match (language, rest.trim()) {
            (_, "ci") => Self::Ci,
            ("sh", _) => Self::Script,
            _ => Self::Shown,
        }
    }
}

/// A command and what the page says it prints.
pub(crate) struct Example {
    /// The line of the page, from 1.
    pub(crate) line: usize,
    /// The command, for a shell.
    pub(crate) command: String,
    /// What comes on stdout.
    pub(crate) output: String,
}

impl Block {
    /// The commands of a `console` block with what each is said to print.
    pub(crate) fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        for (line, text) in (self.line..).zip(self.text.lines()) {
            match (text.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    examples.push(Example { line, command: command.to_owned(), output: String::new() });
                }
                (None, Some(example)) if example.output.is_empty() && example.command.ends_with('\\') => {
                    example.command.push_str(&format!("\n{text}"));
                }
                (None, Some(example)) => example.output.push_str(&format!("{text}\n")),
                (None, None) => panic!("line {line}: output without a command"),
            }
        }
        examples
    }
}

impl Page {
    /// The page at this path.
    pub(crate) fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Its blocks, in order.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(self.text.lines()) {
            match (line.strip_prefix("```"), open.as_mut()) {
                (Some(info), None) => {
                    let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
                    let (way, language) = (Way::of(language, rest), language.to_owned());
                    open = Some(Block { line: number + 1, language, way, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path.display());
        blocks
    }

    /// The lines outside of blocks.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut inside = false;
        (1..).zip(self.text.lines()).filter(move |(_, line)| {
            let fence = line.starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
    }

    /// The targets of links to files of the repository.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            for part in line.split("](").skip(1) {
                let target = part.split(')').next().unwrap_or_default();
                if !target.contains("://") && !target.starts_with("mailto:") {
                    links.push((number, target.to_owned()));
                }
            }
        }
        links
    }

    /// What stands in backticks and is a path into the repository, without patterns.
    pub(crate) fn named_files(&self) -> Vec<(usize, String)> {
        let folders = ["crates/", "docs/", "examples/", "tests/", "xtask/", ".ci/"];
        let mut files = Vec::new();
        for (number, line) in self.prose() {
            for (index, word) in line.split('`').enumerate() {
                let is_path = folders.iter().any(|folder| word.starts_with(folder));
                let is_pattern =
                    word.contains(|c: char| c.is_whitespace() || "*{<…$".contains(c) || c.is_uppercase());
                if index % 2 == 1 && is_path && !is_pattern {
                    files.push((number, word.to_owned()));
                }
            }
        }
        files
    }

    /// The rows of the table whose first heading is this, cells trimmed.
    pub(crate) fn table(&self, heading: &str) -> Vec<Vec<String>> {
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = self.text.lines().skip_while(|line| {
            !line.starts_with('|') || cells(line).first().is_none_or(|first| first != heading)
        });
        assert!(lines.next().is_some(), "{}: no table of {heading}", self.path.display());
        lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect()
    }
}
