//! No path of one machine: what is committed has to be true on every machine.

use super::Problems;

/// Split, so that this file does not find itself.
const PATTERNS: [&str; 6] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers"),
    concat!("C:\\\\Us", "ers"),
];

/// A neighbour of somebody's checkout.
const NEIGHBOUR: &str = concat!("../sha", "red");

pub(super) fn check(path: &str, text: &str) -> Problems {
    let mut problems = Problems::new();
    for (index, line) in text.lines().enumerate() {
        for pattern in PATTERNS {
            if line.match_indices(pattern).any(|(at, _)| starts_a_path(line, at)) {
                problems.push(format!("{path}:{}: names a path of one machine ({pattern}…)", index + 1));
            }
        }
        if line.contains(NEIGHBOUR) {
            problems.push(format!("{path}:{}: names {NEIGHBOUR}, which a clone does not have", index + 1));
        }
    }
    problems
}

/// Whether the path begins here, rather than being the middle of a longer one (`crates/work/src`).
fn starts_a_path(line: &str, at: usize) -> bool {
    let before = line.get(..at).and_then(|text| text.chars().next_back());
    !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}>*/".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found_where_they_begin() {
        for pattern in PATTERNS {
            let problems = check("a.md", &format!("first\nsee `{pattern}x`\n"));
            assert_eq!(problems.len(), 1, "{pattern}: {problems:?}");
            assert!(problems.iter().all(|problem| problem.starts_with("a.md:2:")));
        }
        assert_eq!(check("a.md", &format!("cp {NEIGHBOUR}/x .")).len(), 1);
    }

    #[test]
    fn the_middle_of_another_path_is_none() {
        assert_eq!(
            check("a.md", concat!("crates/wo", "rk/src $HOME/wo", "rk/x ~/wo", "rk/ /tmp/ho", "me/")),
            Problems::new()
        );
    }
}
