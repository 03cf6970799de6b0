//! A line of a script taken apart into words.

use std::time::Duration;

/// One word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// Without any mark: `started`, `root`, `$who`, `-32603`.
    Bare(String),
    /// In double quotes; what stands between them, escapes not yet resolved.
    Quoted(String),
    /// A JSON object or array, as it stands.
    Json(String),
}

impl Word {
    /// As it stands in the script, for a message.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Bare(text) | Self::Json(text) => text.clone(),
            Self::Quoted(text) => format!("\"{text}\""),
        }
    }
}

/// The words of a line, up to a `#` that begins a word.
pub(super) fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '#' => break,
            '"' => {
                let end = quoted_end(rest).ok_or("a text in quotes has no end: close it with `\"`")?;
                found.push(Word::Quoted(rest.get(1..end - 1).unwrap_or_default().to_owned()));
                end
            }
            '{' | '[' => {
                let end = json_end(rest).ok_or("a JSON value has no end: close its braces and quotes")?;
                found.push(Word::Json(rest.get(..end).unwrap_or_default().to_owned()));
                end
            }
            _ => {
                let end = rest.find([' ', '\t']).unwrap_or(rest.len());
                found.push(Word::Bare(rest.get(..end).unwrap_or_default().to_owned()));
                end
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            return Err(format!("`{rest}` sticks to the word before it: put a space between them"));
        }
        rest = rest.trim_start();
    }
    Ok(found)
}

/// Where the quoted text at the start of `text` ends, its second quote included.
fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where the JSON value at the start of `text` ends.
fn json_end(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at += quoted_end(text.get(at..)?)? - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Resolves the escapes of a text in quotes, which are those of JSON.
pub(super) fn text(raw: &str) -> Result<String, String> {
    serde_json::from_str(&format!("\"{raw}\"")).map_err(|_| {
        format!("\"{raw}\" is no text: the escapes are those of JSON (`\\n`, `\\\"`, `\\u2028`)")
    })
}

/// Resolves the escapes of bytes in quotes: `\xNN`, `\u{…}`, `\n`, `\r`, `\t`, `\0`, `\\`, `\"`.
pub(super) fn bytes(raw: &str) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| {
        format!(
            "`{what}` is no escape of bytes: there are \\xNN, \\u{{2028}}, \\n, \\r, \\t, \\0, \\\\ and \\\""
        )
    };
    let mut found = Vec::new();
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        found.extend_from_slice(rest.get(..at).unwrap_or_default().as_bytes());
        let escape = rest.get(at + 1..).unwrap_or_default();
        let used = match escape.as_bytes().first() {
            Some(b'n') => push(&mut found, b'\n'),
            Some(b'r') => push(&mut found, b'\r'),
            Some(b't') => push(&mut found, b'\t'),
            Some(b'0') => push(&mut found, 0),
            Some(b'\\') => push(&mut found, b'\\'),
            Some(b'"') => push(&mut found, b'"'),
            Some(b'x') => {
                let digits = escape.get(1..3).ok_or_else(|| wrong("\\x"))?;
                found.push(u8::from_str_radix(digits, 16).map_err(|_| wrong(&format!("\\x{digits}")))?);
                3
            }
            Some(b'u') => {
                let digits = escape.get(1..).and_then(|rest| rest.strip_prefix('{')?.split_once('}'));
                let (digits, _) = digits.ok_or_else(|| wrong("\\u"))?;
                let c = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                let c = c.ok_or_else(|| wrong(&format!("\\u{{{digits}}}")))?;
                found.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                digits.len() + 3
            }
            _ => return Err(wrong("\\")),
        };
        rest = escape.get(used..).unwrap_or_default();
    }
    found.extend_from_slice(rest.as_bytes());
    Ok(found)
}

fn push(to: &mut Vec<u8>, byte: u8) -> usize {
    to.push(byte);
    1
}

/// `250ms`, `10s`, `2m`, `1h`.
pub(super) fn duration(word: &str) -> Result<Duration, String> {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = word
        .strip_suffix(unit)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("`{word}` is no duration: write 250ms, 10s, 2m or 1h"))?;
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    milliseconds
        .and_then(|one: u64| one.checked_mul(number))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{word}` is no duration: write 250ms, 10s, 2m or 1h"))
}

/// `300`, `64KiB`, `16MiB`, `1GiB`, and with `+1` or `-1` behind it.
pub(super) fn size(word: &str) -> Result<u64, String> {
    let wrong = || format!("`{word}` is no size: write 300, 64KiB, 16MiB or 16MiB+1");
    let (base, more, less) = match (word.split_once('+'), word.split_once('-')) {
        (Some((base, more)), _) => (base, more.parse().map_err(|_| wrong())?, 0),
        (None, Some((base, less))) => (base, 0, less.parse().map_err(|_| wrong())?),
        (None, None) => (word, 0, 0),
    };
    let unit = base.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = base.strip_suffix(unit).and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
    let one: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let size = number.checked_mul(one).and_then(|size| size.checked_add(more)).ok_or_else(wrong)?;
    size.checked_sub(less).ok_or_else(wrong)
}

/// `7b 7d 0a`, spaces as one likes.
pub(super) fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
    let wrong = || "bytes in hex come in pairs of 0-9 and a-f: `hex 7b 7d 0a`".to_owned();
    if digits.len() % 2 == 1 {
        return Err(wrong());
    }
    let pair = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).map_err(|_| wrong());
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bare_quoted_and_json_words_and_a_comment() {
        let found = words(r#"  event root "a \" b" {"x":"}\"]","y":[1, 2]} # why"#).unwrap();
        let shown: Vec<String> = found.iter().map(Word::shown).collect();
        assert_eq!(shown, ["event", "root", r#""a \" b""#, r#"{"x":"}\"]","y":[1, 2]}"#]);
        assert_eq!(words("  # only a comment").unwrap(), []);
    }

    #[test]
    fn what_is_not_closed_or_sticks_is_said() {
        assert!(words("message root \"a").unwrap_err().contains("no end"));
        assert!(words("reply {\"a\":1").unwrap_err().contains("no end"));
        assert!(words("reply {}x").unwrap_err().contains("sticks"));
    }

    #[test]
    fn escapes_of_texts_and_of_bytes_are_resolved() {
        assert_eq!(text(r"a\u2028\n").unwrap(), "a\u{2028}\n");
        assert!(text(r"\x41").is_err());
        assert_eq!(
            bytes(r#"\x00\xff\u{2028}\n\"é"#).unwrap(),
            "\0.\u{2028}\n\"é"
                .as_bytes()
                .iter()
                .map(|b| if *b == b'.' { 0xff } else { *b })
                .collect::<Vec<u8>>()
        );
        assert!(bytes(r"\q").is_err() && bytes(r"\xg1").is_err() && bytes(r"\u{110000}").is_err());
        assert_eq!(hex("7b 7D0a").unwrap(), b"{}\n");
        assert!(hex("7").is_err() && hex("zz").is_err());
    }

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("10m").unwrap(), Duration::from_secs(600));
        assert!(duration("10").is_err() && duration("s").is_err() && duration("1d").is_err());
        assert_eq!(size("16MiB+1").unwrap(), 16 * 1024 * 1024 + 1);
        assert_eq!(size("1KiB-24").unwrap(), 1000);
        assert!(size("x").is_err() && size("1TB").is_err() && size("5-6").is_err());
    }
}
