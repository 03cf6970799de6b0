//! The common spelling of a notification, read without a parser around it.
//!
//! Nearly every line of a runtime is an object with plain keys and plain ids. For those this costs half of what
//! serde does. Whatever is spelled otherwise, or is no JSON, is `None` here and read with care: this module never
//! decides that a line is wrong.

use std::borrow::Cow;

use super::{Head, SESSION_EVENT};

/// Objects and lists in one another beyond which a line is left to the other reader.
const DEEPEST: u32 = 64;

/// How a line begins on which a session says something, as recorded runtimes write it: nearly every line.
const EVENT: &[u8] = br#"{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":""#;
/// Where the method stands in it.
const EVENT_METHOD: std::ops::Range<usize> = 27..27 + SESSION_EVENT.len();
const EVENT_TYPE: &[u8] = br#","event":{"type":""#;

/// The head of a notification in the common spelling.
pub(super) fn notification(text: &str) -> Option<Head<'_>> {
    let mut scan = Scan { text, rest: text.as_bytes() };
    let mut head = Head::default();
    let mut seen = Seen::default();
    if scan.literal(EVENT) {
        (head.strict, head.method) = (true, text.get(EVENT_METHOD)?.into());
        seen = Seen { versions: 1, methods: 1, params: 1 };
        head.session = Some(scan.plain_text()?);
        if scan.literal(EVENT_TYPE) {
            head.event_type = Some(scan.plain_text()?);
            scan.members_on(|scan, key| scan.event_member(&mut head, key))?;
        }
        scan.members_on(|scan, key| scan.params_member(&mut head, key))?;
        scan.members_on(|scan, key| scan.member(&mut head, &mut seen, key))?;
    } else {
        scan.object(|scan, key| scan.member(&mut head, &mut seen, key))?;
    }
    let ends = scan.next().is_none();
    (ends && seen.methods == 1 && seen.versions <= 1 && seen.params <= 1).then_some(head)
}

/// How often a line has the members that it may have once.
#[derive(Default)]
struct Seen {
    versions: u32,
    methods: u32,
    params: u32,
}

struct Scan<'a> {
    text: &'a str,
    /// What of the text is still to be read.
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    /// The next byte that is no space.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
        }
    }

    /// The next byte that is no space, which is to be this one.
    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// Exactly these bytes, taken if they are there.
    #[inline]
    fn literal(&mut self, literal: &[u8]) -> bool {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// An object; each value is read by whoever is given its key.
    #[inline]
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        match self.next()? {
            b'"' => {}
            b'}' => return Some(()),
            _ => return None,
        }
        let key = self.plain()?;
        self.take(b':')?;
        member(self, key)?;
        self.members_on(member)
    }

    /// The members of an object behind the first, and its end.
    #[inline]
    fn members_on(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        loop {
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
            self.take(b'"')?;
            let key = self.plain()?;
            self.take(b':')?;
            member(self, key)?;
        }
    }

    fn member(&mut self, head: &mut Head<'a>, seen: &mut Seen, key: &[u8]) -> Option<()> {
        match key {
            b"jsonrpc" => {
                seen.versions += 1;
                head.strict = self.text_value()? == "2.0";
            }
            b"method" => {
                seen.methods += 1;
                head.method = self.text_value()?;
            }
            b"params" => {
                seen.params += 1;
                self.object(|scan, key| scan.params_member(head, key))?;
            }
            b"id" | b"result" | b"error" => return None,
            _ => self.skip()?,
        }
        Some(())
    }

    fn params_member(&mut self, head: &mut Head<'a>, key: &[u8]) -> Option<()> {
        match key {
            b"sessionId" => head.session = Some(self.text_value()?),
            b"parentSessionId" => head.parent = Some(self.text_value()?),
            b"childSessionId" => head.child = Some(self.text_value()?),
            b"status" => head.status = Some(self.text_value()?),
            b"event" => {
                head.event_type = None;
                self.object(|scan, key| scan.event_member(head, key))?;
            }
            _ => self.skip()?,
        }
        Some(())
    }

    #[inline]
    fn event_member(&mut self, head: &mut Head<'a>, key: &[u8]) -> Option<()> {
        if key == b"type" {
            head.event_type = Some(self.text_value()?);
            return Some(());
        }
        self.skip()
    }

    /// A text without escapes; any other value is odd here.
    fn text_value(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        self.plain_text()
    }

    /// As [`plain`](Self::plain), as text.
    #[inline]
    fn plain_text(&mut self) -> Option<Cow<'a, str>> {
        let from = self.text.len() - self.rest.len();
        let bytes = self.plain()?.len();
        self.text.get(from..from + bytes).map(Cow::Borrowed)
    }

    /// The rest of a string without escapes, and its end.
    #[inline]
    fn plain(&mut self) -> Option<&'a [u8]> {
        let (plain, rest) = self.rest.split_at_checked(special(self.rest)?)?;
        match rest {
            [b'"', rest @ ..] => {
                self.rest = rest;
                Some(plain)
            }
            _ => None,
        }
    }

    /// The rest of any string, and its end.
    #[inline]
    fn skip_string(&mut self) -> Option<()> {
        loop {
            let rest = self.rest.get(special(self.rest)?..)?;
            match rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Some(());
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => {
                    self.rest = rest;
                }
                [b'\\', b'u', a, b, c, d, rest @ ..]
                    if [a, b, c, d].iter().all(|one| one.is_ascii_hexdigit()) =>
                {
                    self.rest = rest;
                }
                // A control character; or the last bytes, which close no object.
                _ => return None,
            }
        }
    }

    /// Any value: checked to be JSON and passed over.
    fn skip(&mut self) -> Option<()> {
        // One bit for each open object or list: whether it is an object.
        let mut objects: u64 = 0;
        let mut depth: u32 = 0;
        let mut byte = self.next()?;
        loop {
            match byte {
                b'"' => self.skip_string()?,
                b'-' | b'0'..=b'9' => self.number(byte)?,
                b'{' | b'[' => {
                    let is_object = byte == b'{';
                    byte = self.next()?;
                    if byte != if is_object { b'}' } else { b']' } {
                        depth += 1;
                        if depth >= DEEPEST {
                            return None;
                        }
                        objects = objects << 1 | u64::from(is_object);
                        if is_object {
                            byte = self.key(byte)?;
                        }
                        continue;
                    }
                }
                b't' if self.literal(b"rue") => {}
                b'f' if self.literal(b"alse") => {}
                b'n' if self.literal(b"ull") => {}
                _ => return None,
            }
            // What closes here, then what goes on.
            loop {
                if depth == 0 {
                    return Some(());
                }
                let is_object = objects & 1 == 1;
                match self.next()? {
                    b',' => {
                        byte = self.next()?;
                        if is_object {
                            byte = self.key(byte)?;
                        }
                        break;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return None,
                }
                objects >>= 1;
                depth -= 1;
            }
        }
    }

    /// A key whose first byte was taken, and what follows its colon.
    #[inline]
    fn key(&mut self, first: u8) -> Option<u8> {
        if first != b'"' {
            return None;
        }
        self.skip_string()?;
        self.take(b':')?;
        self.next()
    }

    /// A number whose first byte was taken.
    fn number(&mut self, mut first: u8) -> Option<()> {
        if first == b'-' {
            let (digit, rest) = self.rest.split_first()?;
            (first, self.rest) = (*digit, rest);
        }
        match first {
            b'0' => {}
            b'1'..=b'9' => _ = self.digits(),
            _ => return None,
        }
        if self.literal(b".") && self.digits() == 0 {
            return None;
        }
        if let [b'e' | b'E', rest @ ..] = self.rest {
            self.rest = match rest {
                [b'+' | b'-', rest @ ..] => rest,
                _ => rest,
            };
            if self.digits() == 0 {
                return None;
            }
        }
        Some(())
    }

    /// How many digits stood here.
    #[inline]
    fn digits(&mut self) -> usize {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = self.rest.get(count..).unwrap_or_default();
        count
    }
}

const ONES: u128 = u128::MAX / 255;
const HIGH: u128 = ONES << 7;

/// The first place with a quote, a backslash or a control character, sixteen bytes at a time.
#[inline]
fn special(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<16>();
    for (number, word) in words.iter().enumerate() {
        let word = u128::from_le_bytes(*word);
        // Below 0x20, or a quote: with one bit turned those are all below 0x21.
        let quote = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
        let backslash = (word ^ (ONES * 0x5c)).wrapping_sub(ONES);
        // A byte that borrows from the next marks itself first; what is above the lowest mark may be none.
        let found = (quote | backslash) & !word & HIGH;
        if found != 0 {
            return Some(number * 16 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = tail.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(words.len() * 16 + at)
}

#[cfg(test)]
mod tests;
