//! Which characters the user's terminal can show.

use std::{borrow::Cow, sync::OnceLock};

use crate::variables;

/// What a tree is drawn with.
#[derive(Debug)]
pub(crate) struct Glyphs {
    /// Before a child that others follow.
    pub(crate) knee: &'static str,
    /// Before the last child.
    pub(crate) last: &'static str,
    /// Below a child that others follow.
    pub(crate) bar: &'static str,
    /// Where something was cut off.
    pub(crate) cut: &'static str,
    /// A line from top to bottom.
    pub(crate) wall: &'static str,
    /// A line from left to right.
    pub(crate) floor: &'static str,
}

const UTF8: Glyphs =
    Glyphs { knee: "├─ ", last: "└─ ", bar: "│  ", cut: "…", wall: "│", floor: "─" };

const ASCII: Glyphs = Glyphs { knee: "|- ", last: "`- ", bar: "|  ", cut: "~", wall: "|", floor: "-" };

/// Those of the user's locale.
pub(crate) fn glyphs() -> &'static Glyphs {
    if is_utf8() { &UTF8 } else { &ASCII }
}

/// Whether the user's locale is one with UTF-8. Where none is set at all, as in many containers, it is: nothing is
/// known against it.
pub(crate) fn is_utf8() -> bool {
    static IS_UTF8: OnceLock<bool> = OnceLock::new();
    *IS_UTF8.get_or_init(|| {
        // The first one that is set counts, as for the C library.
        let named =
            variables::LOCALE.into_iter().filter_map(std::env::var_os).find(|locale| !locale.is_empty());
        named.is_none_or(|locale| is_of_utf8(&locale.to_string_lossy()))
    })
}

fn is_of_utf8(locale: &str) -> bool {
    locale.to_ascii_uppercase().replace('-', "").contains("UTF8")
}

/// The text as the user's terminal can show it. In a terminal of another character set the bytes of UTF-8 are not
/// only unreadable: some of them steer it (W11).
pub(crate) fn shown(text: Cow<'_, str>) -> Cow<'_, str> {
    if is_utf8() || text.is_ascii() { text } else { Cow::Owned(ascii(&text)) }
}

fn ascii(text: &str) -> String {
    let replaced = text.chars().map(|c| match c {
        c if c.is_ascii() => c,
        '│' | '├' => '|',
        '└' => '`',
        '─' => '-',
        '…' => '~',
        '▶' => '>',
        '✓' => '+',
        '✗' => 'x',
        '⊘' => '/',
        '·' => '.',
        _ => '?',
    });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_is_one_with_utf8_or_not() {
        for locale in ["C.UTF-8", "ja_JP.utf8", "de_DE.UTF-8@euro", "UTF-8"] {
            assert!(is_of_utf8(locale), "{locale}");
        }
        for locale in ["C", "POSIX", "de_DE.ISO-8859-1", "ja_JP.eucJP", "en_US"] {
            assert!(!is_of_utf8(locale), "{locale}");
        }
    }

    #[test]
    fn w11_nothing_but_ascii_gets_to_a_terminal_without_utf8() {
        assert_eq!(ascii("├─ ✓ 日本 ❛ é…"), "|- + ?? ? ?~");
    }
}
