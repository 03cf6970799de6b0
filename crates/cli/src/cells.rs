//! How many columns of a terminal text takes.
//!
//! Terminals disagree about characters that are joined to one picture (families, flags of professions, emoji with a
//! skin or a presentation of their own): some show one picture, some its parts side by side. Of such a character only
//! its first part is shown, which is as wide everywhere; anything else could make a row wider than the window.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Characters that one column may hold: a letter with marks has a few, and a text made to annoy has thousands.
const MAX_MARKS: usize = 8;

/// The characters of a text as a person counts them, each with its columns, as every terminal shows them. The text has
/// no control characters.
pub(crate) fn characters(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.graphemes(true).map(certain).filter(|(_, columns)| *columns > 0)
}

/// The part of a character about which terminals agree.
fn certain(character: &str) -> (&str, usize) {
    if character.len() == 1 {
        return (character, 1);
    }
    let columns: usize = character.chars().map(columns_of).sum();
    if columns == character.width()
        && !character.contains('\u{200d}')
        && character.chars().nth(MAX_MARKS).is_none()
    {
        return (character, columns);
    }
    let mut chars = character.char_indices();
    let Some((_, first)) = chars.next() else { return ("", 0) };
    let is_mark = |c: char| columns_of(c) == 0 && !matches!(c, '\u{200d}' | '\u{fe00}'..='\u{fe0f}');
    let end = chars
        .take(MAX_MARKS - 1)
        .find(|(_, c)| !is_mark(*c))
        .map(|(end, _)| end)
        .or_else(|| character.char_indices().nth(MAX_MARKS).map(|(end, _)| end))
        .unwrap_or(character.len());
    (&character[..end], columns_of(first))
}

fn columns_of(c: char) -> usize {
    // Shown as nothing by some terminals, as a hyphen by others.
    if c == '\u{ad}' { 0 } else { c.width().unwrap_or(0) }
}

/// The columns of a text.
pub(crate) fn width(text: &str) -> usize {
    characters(text).map(|(_, columns)| columns).sum()
}

/// The text in at most so many columns, with `cut` at its end if it was too long.
pub(crate) fn fit<'a>(text: &'a str, columns: usize, cut: &str) -> Cow<'a, str> {
    if text.len() <= columns && text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(width(cut));
    let (mut fitted, mut used, mut kept) = (String::new(), 0, 0);
    for (character, wide) in characters(text) {
        if used + wide > columns {
            fitted.truncate(kept);
            if columns > 0 {
                fitted.push_str(cut);
            }
            return Cow::Owned(fitted);
        }
        fitted.push_str(character);
        used += wide;
        if used <= room {
            kept = fitted.len();
        }
    }
    Cow::Owned(fitted)
}

/// The end of a text in at most so many columns.
pub(crate) fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let mut start = text.len();
    for (at, character) in text.grapheme_indices(true).rev() {
        used += certain(character).1;
        if used > columns {
            break;
        }
        start = at;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_take_the_columns_that_every_terminal_gives_them() {
        let cases = [
            ("abc", 3, "abc"),
            ("日本", 4, "日本"),
            ("e\u{301}", 1, "e\u{301}"),
            ("👩\u{200d}💻", 2, "👩"),
            ("❤\u{fe0f}", 1, "❤"),
            ("👍🏽", 2, "👍"),
            ("🇯🇵", 2, "🇯🇵"),
            ("1\u{fe0f}\u{20e3}", 1, "1"),
            ("a\u{200b}b\u{ad}c", 3, "abc"),
            ("\u{200d}", 0, ""),
        ];
        for (text, columns, shown) in cases {
            assert_eq!(width(text), columns, "{text}");
            let all: String = characters(text).map(|(character, _)| character).collect();
            assert_eq!(all, shown, "{text}");
        }
        let annoying = format!("a{}b", "\u{301}".repeat(5_000));
        let shown: Vec<&str> = characters(&annoying).map(|(character, _)| character).collect();
        assert_eq!((shown.len(), shown[0].chars().count()), (2, MAX_MARKS));
    }

    #[test]
    fn a_text_fits_and_says_that_it_was_cut() {
        let cases = [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("日本語", 1, "…"),
            ("日本語", 0, ""),
        ];
        for (text, columns, fitted) in cases {
            assert_eq!(fit(text, columns, "…"), fitted, "{text} in {columns}");
        }
        assert_eq!((tail("├─ 日本", 4), tail("日本", 3), tail("ab", 9)), ("日本", "本", "ab"));
    }
}
