//! One spelling per JSON value, for comparing what two clients gave out.
//!
//! Whole numbers are compared digit by digit, all others as the double that is nearest to them. Members are sorted;
//! of a member that is there twice the last counts. `NaN` and `Infinity`, which Python writes, are read.

/// The canonical spelling; `None` when the text is no JSON.
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    let mut reader = Reader { bytes: text.as_bytes(), text, at: 0 };
    let mut out = String::with_capacity(text.len());
    reader.value(&mut out)?;
    reader.space();
    (reader.at == text.len()).then_some(out)
}

/// Whether two texts are the same value. Texts that are no JSON are only equal to themselves.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    one == other || matches!((canonical(one), canonical(other)), (Some(one), Some(other)) if one == other)
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn value(&mut self, out: &mut String) -> Option<()> {
        self.space();
        match self.bytes.get(self.at)? {
            b'{' => self.object(out),
            b'[' => self.list(out),
            b'"' => {
                let text = self.string()?;
                super::json::quote(&text, out);
                Some(())
            }
            _ => self.word(out),
        }
    }

    fn object(&mut self, out: &mut String) -> Option<()> {
        self.take(b'{')?;
        let mut members: Vec<(String, String)> = Vec::new();
        self.space();
        if self.take(b'}').is_none() {
            loop {
                self.space();
                let name = self.string()?;
                self.space();
                self.take(b':')?;
                let mut value = String::new();
                self.value(&mut value)?;
                members.retain(|(other, _)| *other != name);
                members.push((name, value));
                self.space();
                if self.take(b',').is_none() {
                    self.take(b'}')?;
                    break;
                }
            }
        }
        members.sort();
        out.push('{');
        for (place, (name, value)) in members.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            super::json::quote(name, out);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        Some(())
    }

    fn list(&mut self, out: &mut String) -> Option<()> {
        self.take(b'[')?;
        out.push('[');
        self.space();
        if self.take(b']').is_none() {
            loop {
                self.value(out)?;
                self.space();
                if self.take(b',').is_none() {
                    self.take(b']')?;
                    break;
                }
                out.push(',');
            }
        }
        out.push(']');
        Some(())
    }

    /// The text of a string; half of a surrogate pair becomes U+FFFD.
    fn string(&mut self) -> Option<String> {
        self.take(b'"')?;
        let mut units: Vec<u16> = Vec::new();
        let mut text = String::new();
        loop {
            let from = self.at;
            while self.bytes.get(self.at).is_some_and(|byte| !matches!(byte, b'"' | b'\\')) {
                self.at += 1;
            }
            if from < self.at || self.bytes.get(self.at) == Some(&b'"') {
                text.push_str(&String::from_utf16_lossy(&units));
                units.clear();
            }
            text.push_str(self.text.get(from..self.at)?);
            if self.take(b'"').is_some() {
                return Some(text);
            }
            self.at += 1;
            let escape = *self.bytes.get(self.at)?;
            self.at += 1;
            units.push(match escape {
                b'b' => 8,
                b'f' => 12,
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                b'u' => {
                    let digits = self.text.get(self.at..self.at + 4)?;
                    self.at += 4;
                    u16::from_str_radix(digits, 16).ok()?
                }
                other => u16::from(other),
            });
        }
    }

    fn word(&mut self, out: &mut String) -> Option<()> {
        let from = self.at;
        while self
            .bytes
            .get(self.at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        {
            self.at += 1;
        }
        let word = self.text.get(from..self.at)?;
        let digits = word.strip_prefix('-').unwrap_or(word);
        if matches!(word, "true" | "false" | "null") {
            out.push_str(word);
        } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // Python has no negative zero among its whole numbers.
            out.push_str(if digits == "0" { "0" } else { word });
        } else {
            out.push_str(&format!("{:?}f", word.parse::<f64>().ok()?));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_spelling() {
        for (one, other) in [
            (r#"{"b":1,"a":[true, null]}"#, r#" {"a" :[true,null],"b":1 }"#),
            (r#""\ud83d\ude00\/\u0041""#, r#""😀/A""#),
            ("-0", "0"),
            ("1e400", "Infinity"),
            ("1.50e1", "15.0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#""\ud800""#, "\"\u{fffd}\""),
        ] {
            assert_eq!(canonical(one), canonical(other), "{one} and {other}");
            assert!(canonical(one).is_some(), "{one}");
        }
        for (one, other) in [("1", "1.0"), ("1e0", "1"), ("[1,2]", "[2,1]"), ("\"1\"", "1"), ("0.1", "0.2")] {
            assert!(!same(one, other), "{one} and {other}");
        }
        assert_eq!(canonical("{"), None);
        assert_eq!(canonical("1 2"), None);
    }
}
