//! The common spelling of a notification, read without a parser around it.
//!
//! Nearly every line of a runtime is an object with plain keys and plain ids. For those this costs half of what
//! serde does. Whatever is spelled otherwise, or is no JSON, is `None` here and read with care: this module never
//! decides that a line is wrong.

use std::borrow::Cow;

use super::Head;

/// Objects and lists in one another beyond which a line is left to the other reader.
const DEEPEST: u32 = 64;

/// The head of a notification in the common spelling.
pub(super) fn notification(text: &str) -> Option<Head<'_>> {
    let mut scan = Scan { text, bytes: text.as_bytes(), at: 0 };
    let mut head = Head::default();
    let (mut versions, mut methods, mut params) = (0, 0, 0);
    scan.object(|scan, key| {
        match key {
            b"jsonrpc" => {
                versions += 1;
                head.strict = scan.text_value()?.as_deref() == Some("2.0");
            }
            b"method" => {
                methods += 1;
                head.method = scan.text_value()??;
            }
            b"params" => {
                params += 1;
                scan.params(&mut head)?;
            }
            b"id" | b"result" | b"error" => return None,
            _ => scan.skip()?,
        }
        Some(())
    })?;
    scan.space();
    (scan.at == text.len() && methods == 1 && versions <= 1 && params <= 1).then_some(head)
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no space, taken if it is this one.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    /// An object; each value is read by whoever is given its key.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        if !self.take(b'{') {
            return None;
        }
        if self.take(b'}') {
            return Some(());
        }
        loop {
            let key = self.plain_string()?;
            if !self.take(b':') {
                return None;
            }
            member(self, key.as_bytes())?;
            if self.take(b'}') {
                return Some(());
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn params(&mut self, head: &mut Head<'a>) -> Option<()> {
        self.space();
        if self.peek() != Some(b'{') {
            return None;
        }
        self.object(|scan, key| {
            match key {
                b"sessionId" => head.session = scan.text_value()?,
                b"parentSessionId" => head.parent = scan.text_value()?,
                b"childSessionId" => head.child = scan.text_value()?,
                b"status" => head.status = scan.text_value()?,
                b"event" => {
                    head.event_type = None;
                    scan.object(|scan, key| {
                        if key == b"type" {
                            head.event_type = scan.text_value()?;
                        } else {
                            scan.skip()?;
                        }
                        Some(())
                    })?;
                }
                _ => scan.skip()?,
            }
            Some(())
        })
    }

    /// A text without escapes; any other value is odd here.
    fn text_value(&mut self) -> Option<Option<Cow<'a, str>>> {
        self.plain_string().map(|text| Some(Cow::Borrowed(text)))
    }

    fn plain_string(&mut self) -> Option<&'a str> {
        if !self.take(b'"') {
            return None;
        }
        let from = self.at;
        self.at = special(self.bytes, from)?;
        let text = self.text.get(from..self.at)?;
        (self.peek() == Some(b'"')).then(|| {
            self.at += 1;
            text
        })
    }

    /// The rest of a string whose quote was taken.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            self.at = special(self.bytes, self.at)?;
            match self.bytes.get(self.at..self.at + 2) {
                Some([b'"', ..]) => {
                    self.at += 1;
                    return Some(());
                }
                Some([b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't']) => self.at += 2,
                Some([b'\\', b'u']) => {
                    let digits = self.bytes.get(self.at + 2..self.at + 6)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    self.at += 6;
                }
                // A control character; or the last byte, which closes no object.
                _ => return None,
            }
        }
    }

    /// Any value: checked to be JSON and passed over.
    fn skip(&mut self) -> Option<()> {
        // One bit for each open object or list: whether it is an object.
        let mut objects: u64 = 0;
        let mut depth: u32 = 0;
        loop {
            self.space();
            let opened = match self.peek()? {
                b'"' => {
                    self.at += 1;
                    self.skip_string()?;
                    false
                }
                byte @ (b'{' | b'[') => {
                    self.at += 1;
                    depth += 1;
                    if depth >= DEEPEST {
                        return None;
                    }
                    objects = objects << 1 | u64::from(byte == b'{');
                    true
                }
                b'-' | b'0'..=b'9' => {
                    self.number()?;
                    false
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => return None,
            };
            // What closes here, then what goes on.
            let mut empty = opened;
            loop {
                if depth == 0 {
                    return Some(());
                }
                let is_object = objects & 1 == 1;
                if self.take(if is_object { b'}' } else { b']' }) {
                    objects >>= 1;
                    depth -= 1;
                    empty = false;
                    continue;
                }
                if !empty && !self.take(b',') {
                    return None;
                }
                if is_object {
                    if !self.take(b'"') {
                        return None;
                    }
                    self.skip_string()?;
                    if !self.take(b':') {
                        return None;
                    }
                }
                break;
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<bool> {
        let is = self.bytes.get(self.at..)?.starts_with(word);
        self.at += word.len();
        is.then_some(false)
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// Bytes of a word that are zero have their high bit set; above the lowest of them others may have too.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH
}

/// The first place from here with a quote, a backslash or a control character, eight bytes at a time.
fn special(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let (words, tail) = rest.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let found = zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c)) | control;
        if found != 0 {
            return Some(from + number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = tail.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(from + words.len() * 8 + at)
}

#[cfg(test)]
mod tests;
