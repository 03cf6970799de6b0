//! A page in Markdown, taken apart as far as the tests need it.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Every page that is for readers.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
        .into_iter()
        .map(PathBuf::from)
        .collect();
    for folder in ["docs", "docs/guides", "docs/decisions"] {
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

/// A command and what the page says it prints.
pub(crate) struct Example {
    /// The line of the page, from 1.
    pub(crate) line: usize,
    /// The command, for a shell.
    pub(crate) command: String,
    /// What comes on stdout.
    pub(crate) output: String,
}

/// A block between two lines of backticks.
struct Block<'a> {
    /// The line of its first text, from 1.
    line: usize,
    /// What stands behind the backticks.
    info: &'a str,
    text: String,
}

impl Page {
    /// The page at this path.
    pub(crate) fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block<'_>> = None;
        for (number, line) in (1..).zip(self.text.lines()) {
            match (line.strip_prefix("```"), open.as_mut()) {
                (Some(info), None) => open = Some(Block { line: number + 1, info, text: String::new() }),
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

    /// The blocks with `title="NAME"`: name and text.
    pub(crate) fn files(&self) -> Vec<(&str, String)> {
        let named = |block: Block<'_>| {
            let (_, rest) = block.info.split_once("title=\"")?;
            // The name borrows from the page, not from the block.
            let start = self.text.find(&format!("title=\"{rest}"))? + "title=\"".len();
            let name = self.text.get(start..)?.split('"').next()?;
            Some((name, block.text))
        };
        self.blocks().into_iter().filter_map(named).collect()
    }

    /// The commands of `console` blocks with what each is said to print.
    pub(crate) fn console(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        for block in self.blocks().into_iter().filter(|block| block.info == "console") {
            let first = examples.len();
            for (number, line) in (block.line..).zip(block.text.lines()) {
                match line.strip_prefix("$ ") {
                    Some(command) => {
                        examples.push(Example {
                            line: number,
                            command: command.to_owned(),
                            output: String::new(),
                        });
                    }
                    None => {
                        let example = examples.get_mut(first..).and_then(<[Example]>::last_mut);
                        let example = example.unwrap_or_else(|| {
                            panic!("{}:{number}: output without a command", self.path.display())
                        });
                        example.output.push_str(line);
                        example.output.push('\n');
                    }
                }
            }
        }
        examples
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
