//! Each crate says what it is, denies undocumented items, and takes the workspace's lints.

use std::path::{Path, PathBuf};

use super::Problems;

pub(super) fn check(texts: &[(PathBuf, String)]) -> Problems {
    let mut problems = Problems::new();
    for (path, text) in texts {
        let name = path.to_string_lossy();
        let in_crates = path.starts_with("crates") && path.components().count() >= 3;
        if in_crates && path.ends_with("src/lib.rs") {
            if !text.contains("#![deny(missing_docs)]") {
                problems.push(format!("{name}: lacks #![deny(missing_docs)]"));
            }
            problems.extend(undocumented(path, text));
        }
        if (in_crates || path.starts_with("xtask")) && path.ends_with("src/main.rs") {
            problems.extend(undocumented(path, text));
        }
        let is_member = path.starts_with("tests") || path.starts_with("xtask") || in_crates;
        if is_member
            && path.ends_with("Cargo.toml")
            && !path.starts_with("tests/downstream")
            && !takes_lints(text)
        {
            problems.push(format!("{name}: lacks `workspace = true` under [lints]"));
        }
    }
    problems
}

fn undocumented(path: &Path, text: &str) -> Option<String> {
    let first =
        text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#![")).unwrap_or_default();
    (!first.starts_with("//!"))
        .then(|| format!("{}: does not begin with what the crate is (`//! …`)", path.display()))
}

fn takes_lints(manifest: &str) -> bool {
    let Some((_, section)) = manifest.split_once("[lints]") else { return false };
    section
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .any(|line| line.trim() == "workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[(PathBuf::from(path), text.to_owned())]).len()
    }

    #[test]
    fn bare_crates_are_found() {
        assert_eq!(problems("crates/tree/src/lib.rs", "//! Words.\n#![deny(missing_docs)]\n"), 0);
        assert_eq!(problems("crates/tree/src/lib.rs", "#![deny(missing_docs)]\n//! Words.\n"), 0);
        assert_eq!(problems("crates/tree/src/lib.rs", "//! Words.\n"), 1);
        assert_eq!(problems("crates/tree/src/lib.rs", "#![deny(missing_docs)]\nmod a;\n"), 1);
        assert_eq!(problems("crates/cli/src/main.rs", "fn main() {}\n"), 1);
    }

    #[test]
    fn manifests_without_the_lints_are_found() {
        assert_eq!(problems("crates/tree/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"), 0);
        assert_eq!(
            problems("crates/tree/Cargo.toml", "[package]\n[lints]\n[features]\nworkspace = true\n"),
            1
        );
        assert_eq!(problems("tests/Cargo.toml", "[package]\n"), 1);
        assert_eq!(problems("tests/downstream/tree/Cargo.toml", "[package]\n"), 0);
    }
}
