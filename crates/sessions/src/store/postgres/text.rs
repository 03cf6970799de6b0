//! Texts in columns, which take every character but U+0000.
//!
//! What programs print may hold one. It is written as a pair that begins with [`MARK`], a character that is no
//! character of any script, and so is the mark itself: every text comes back as it was, and nearly none is changed.
//! JSON is written as it is, because none can hold U+0000.

use std::borrow::Cow;

use super::fault::Fault;

const MARK: char = '\u{10FFFF}';

/// A text as it is written.
pub(super) fn store(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', MARK]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\0' => stored.extend([MARK, '0']),
            MARK => stored.extend([MARK, '1']),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// The text that was written so.
pub(super) fn restore(stored: String) -> Result<String, Fault> {
    if !stored.contains(MARK) {
        return Ok(stored);
    }
    let mut text = String::with_capacity(stored.len());
    let mut letters = stored.chars();
    while let Some(letter) = letters.next() {
        text.push(match letter {
            MARK => match letters.next() {
                Some('0') => '\0',
                Some('1') => MARK,
                _ => return Err(Fault::Row("a text holds a mark that nobody wrote".to_owned())),
            },
            other => other,
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_texts_stand_as_they_are_and_a_broken_mark_is_damage() {
        assert!(matches!(store("plain: ä\u{10FFFE}\n"), Cow::Borrowed(_)));
        assert_eq!(store("a\0b"), "a\u{10FFFF}0b");
        for broken in ["\u{10FFFF}", "\u{10FFFF}2", "x\u{10FFFF}"] {
            assert!(matches!(restore(broken.to_owned()), Err(Fault::Row(_))), "{broken:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn every_text_comes_back_and_none_holds_a_nul(text in "[\\x00\u{10FFFF}01a]{0,12}|\\PC{0,12}") {
            let stored = store(&text);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(restore(stored.into_owned()).unwrap(), text);
        }
    }
}
