//! Rust text with comments and literals blanked out, and which part of it is tests.
//!
//! Not a parser: enough to find a word in code, and not in a comment, a string or a test.

use std::path::{Path, PathBuf};

/// One `.rs` file.
pub(crate) struct SourceFile {
    /// Relative to the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) raw: String,
    /// Everything but comments and literals; the same lines.
    pub(crate) code: String,
    /// `code` without tests; empty for a file that is only compiled for tests.
    pub(crate) product: String,
    /// `code` of the tests only.
    pub(crate) tests: String,
}

impl SourceFile {
    pub(crate) fn new(path: &Path, raw: &str, only_in_tests: bool) -> Self {
        let code = code_only(raw);
        let (product, tests) = if only_in_tests || is_test_path(path) {
            (blank(&code), code.clone())
        } else {
            split_tests(&code)
        };
        let path = path.to_string_lossy().replace('\\', "/");
        Self { path, raw: raw.to_owned(), code, product, tests }
    }

    /// The crate's folder, such as `tree` for `crates/tree/src/lib.rs`; `tests` and `xtask` for those.
    pub(crate) fn crate_folder(&self) -> &str {
        let inside = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        inside.split('/').next().unwrap_or_default()
    }
}

fn is_test_path(path: &Path) -> bool {
    let in_test_folder = path.parent().is_some_and(|parent| {
        parent.iter().any(|part| part == "tests" || part == "benches" || part == "examples")
    });
    in_test_folder || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
}

/// Files that `#[cfg(test)] mod name;` in `path` may mean.
pub(crate) fn test_module_files(path: &Path, raw: &str) -> Vec<PathBuf> {
    let code = code_only(raw);
    let mut files = Vec::new();
    let mut rest = code.as_str();
    while let Some((_, after)) = rest.split_once("#[cfg(test)]") {
        rest = after;
        let declared = after.trim_start();
        let declared = declared.strip_prefix("pub(crate) ").unwrap_or(declared);
        let Some(declared) = declared.strip_prefix("mod ") else { continue };
        let name: String = declared.chars().take_while(|c| is_word(*c)).collect();
        if !declared.get(name.len()..).is_some_and(|end| end.trim_start().starts_with(';')) {
            continue;
        }
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        let stem = path.file_stem().map(|stem| directory.join(stem)).unwrap_or_default();
        for base in [directory.to_path_buf(), stem] {
            files.push(base.join(format!("{name}.rs")));
            files.push(base.join(&name).join("mod.rs"));
        }
    }
    files
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of the line that holds this byte.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// Where `word` stands in `code` as a whole word (`::` and `!` at its ends are part of the word).
pub(crate) fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && (!after.is_some_and(is_word) || !word.ends_with(is_word))
    })
}

fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// Splits into what is not and what is under `#[cfg(test)]`.
fn split_tests(code: &str) -> (String, String) {
    let (mut product, mut tests) = (String::new(), String::new());
    let mut rest = code;
    while let Some(at) = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| rest.find(mark)).min() {
        let (before, item) = rest.split_at(at);
        let (item, after) = item.split_at(item_end(item));
        product.push_str(before);
        product.push_str(&blank(item));
        tests.push_str(&blank(before));
        tests.push_str(item);
        rest = after;
    }
    product.push_str(rest);
    tests.push_str(&blank(rest));
    (product, tests)
}

/// The end of the item at the start of `text`: a `;` outside brackets or the brace that closes its body.
fn item_end(text: &str) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return at + 1;
                }
            }
            ';' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Replaces comments and the insides of literals by spaces; lines stay where they are.
pub(crate) fn code_only(raw: &str) -> String {
    let chars: Vec<char> = raw.chars().collect();
    let mut out = String::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let previous_is_word = at > 0 && chars.get(at - 1).copied().is_some_and(is_word);
        let end = match (c, next) {
            ('/', Some('/')) => line_comment_end(&chars, at),
            ('/', Some('*')) => block_comment_end(&chars, at),
            ('"', _) => string_end(&chars, at),
            ('r', Some('"' | '#')) if !previous_is_word => raw_string_end(&chars, at),
            ('b' | 'c', Some('r')) if !previous_is_word => raw_string_end(&chars, at + 1),
            ('\'', _) => char_end(&chars, at),
            _ => at,
        };
        if end > at {
            let skipped = chars.get(at..end).unwrap_or_default();
            out.extend(skipped.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(c);
            at += 1;
        }
    }
    out
}

fn line_comment_end(chars: &[char], start: usize) -> usize {
    chars.iter().skip(start).position(|c| *c == '\n').map_or(chars.len(), |length| start + length)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < chars.len() {
        match (chars.get(at), chars.get(at + 1)) {
            (Some('/'), Some('*')) => {
                depth += 1;
                at += 2;
            }
            (Some('*'), Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `start` is the `r`; returns `start` if no raw string begins there.
fn raw_string_end(chars: &[char], start: usize) -> usize {
    let hashes = chars.iter().skip(start + 1).take_while(|c| **c == '#').count();
    let mut at = start + 1 + hashes;
    if chars.get(at) != Some(&'"') {
        return start;
    }
    at += 1;
    while at < chars.len() {
        let closes = chars.get(at) == Some(&'"')
            && chars.iter().skip(at + 1).take_while(|c| **c == '#').take(hashes).count() == hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// The end of a character literal, or `start` if the quote begins a lifetime.
fn char_end(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => {
            let close = chars.iter().skip(start + 3).position(|c| *c == '\'');
            close.map_or(start, |length| start + 3 + length + 1)
        }
        (Some(_), Some('\'')) => start + 3,
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let raw = "let a = \"unsafe \\\" {\"; // unsafe\n/* unsafe /* x */ { */ let b = r#\"unsafe \" \"#;\nlet c = '{'; \
                   let d: &'static str = b\"}\"; let e = '\\''; let f = '\\u{7d}';\n";
        let code = code_only(raw);
        assert!(!code.contains("unsafe") && !code.contains('{') && !code.contains('}'));
        assert!(code.contains("let b") && code.contains("&'static str") && code.contains("let f"));
        assert_eq!(code.lines().count(), raw.lines().count());
    }

    #[test]
    fn tests_are_told_from_the_rest() {
        let raw = "fn a() {}\n#[cfg(test)]\nuse x::y;\nfn b() {}\n#[cfg(test)]\nmod tests { fn c() { if x {} } }\nfn d() {}\n";
        let file = SourceFile::new(Path::new("crates/tree/src/lib.rs"), raw, false);
        for name in ["fn a", "fn b", "fn d"] {
            assert!(file.product.contains(name) && !file.tests.contains(name), "{name}");
        }
        assert!(file.tests.contains("fn c") && !file.product.contains("fn c"));
        assert_eq!(line_of(&file.tests, file.tests.find("fn c").unwrap()), 6);
        assert_eq!(file.crate_folder(), "tree");
        let file = SourceFile::new(Path::new("crates/tree/src/router/tests.rs"), raw, false);
        assert!(file.product.trim().is_empty());
    }

    #[test]
    fn files_of_test_modules_are_found() {
        let files = test_module_files(
            Path::new("a/src/router.rs"),
            "#[cfg(test)]\nmod model;\n#[cfg(test)]\nmod t { }",
        );
        assert!(
            files.contains(&PathBuf::from("a/src/model.rs"))
                && files.contains(&PathBuf::from("a/src/router/model.rs"))
        );
        assert!(!files.iter().any(|file| file.ends_with("t.rs")));
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            word_positions("unsafe_code unsafe{ println!() eprintln!()", "unsafe").collect::<Vec<_>>(),
            [12]
        );
        assert_eq!(word_positions("eprintln!() println!()", "println!").count(), 1);
    }
}
