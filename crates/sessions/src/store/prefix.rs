//! Looking for ids by how they begin, in an index that is ordered by bytes.

/// How many sessions a [`SessionQuery::Prefix`](super::SessionQuery::Prefix) gives.
pub(super) const PREFIX_LIMIT: i64 = 20;

/// The smallest string greater than all that start with this one; `None` if there is none.
pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        // Surrogates are no characters: the range skips them.
        if let Some(next) = (last..=char::MAX).nth(1) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_the_range_of_a_prefix_ends_before_the_first_id_that_does_not_start_with_it() {
        assert_eq!(after_prefix("ses"), Some("set".into()));
        assert_eq!(after_prefix(""), None);
        assert_eq!(after_prefix("\u{10FFFF}"), None);
        assert_eq!(after_prefix("a\u{10FFFF}"), Some("b".into()));
        assert_eq!(after_prefix("\u{D7FF}"), Some("\u{E000}".into()));
    }
}
