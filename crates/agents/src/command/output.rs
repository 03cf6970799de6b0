//! Bytes that a program prints, as text: whole characters, whatever the reads; bounded.

use std::str;

use super::withheld::Redactor;

/// The output of a program as it grows.
#[derive(Debug, Default)]
pub(crate) struct Output {
    text: String,
    /// The begin of a character whose rest has not been read.
    partial: Vec<u8>,
    /// Takes out secrets before anything is cut (rule W10).
    redactor: Redactor,
    limit: usize,
    left_out: u64,
}

impl Output {
    /// Keeps at most `limit` bytes.
    pub(crate) fn new(limit: usize, redactor: Redactor) -> Self {
        Self { limit, redactor, ..Self::default() }
    }

    /// Takes what was read and gives the text that is new. Bytes that are no UTF-8 become U+FFFD; a
    /// character that a read has cut is given whole with the next one.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> &str {
        let start = self.text.len();
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let mut rest = joined.as_slice();
        loop {
            match str::from_utf8(rest) {
                Ok(text) => {
                    self.take(text);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.take(str::from_utf8(valid).unwrap_or_default());
                    match error.error_len() {
                        Some(bad) => {
                            self.take("\u{fffd}");
                            rest = &after[bad..];
                        }
                        None => {
                            self.partial = after.to_vec();
                            break;
                        }
                    }
                }
            }
        }
        &self.text[start..]
    }

    /// The end of the output: a character that was never completed becomes U+FFFD.
    pub(crate) fn finish(&mut self) -> &str {
        let start = self.text.len();
        if !std::mem::take(&mut self.partial).is_empty() {
            self.take("\u{fffd}");
        }
        let rest = self.redactor.finish();
        self.keep(&rest);
        if self.left_out > 0 {
            let note =
                format!("\n[offspring: {} bytes more were left out (max_output_bytes)]\n", self.left_out);
            self.text.push_str(&note);
        }
        &self.text[start..]
    }

    /// All of it.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn take(&mut self, text: &str) {
        let shown = self.redactor.push(text);
        self.keep(&shown);
    }

    fn keep(&mut self, text: &str) {
        let room = self.limit.saturating_sub(self.text.len());
        let mut cut = text.len().min(if self.left_out > 0 { 0 } else { room });
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.text.push_str(&text[..cut]);
        self.left_out += (text.len() - cut) as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_in(pieces: &[&[u8]]) -> String {
        let mut output = Output::new(1 << 20, Redactor::default());
        let mut streamed = String::new();
        for piece in pieces {
            streamed.push_str(output.push(piece));
        }
        streamed.push_str(output.finish());
        assert_eq!(streamed, output.into_text());
        streamed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn w11_any_cut_gives_the_same_text(bytes: Vec<u8>, cuts in prop::collection::vec(0_usize..64, 0..8)) {
            let mut pieces = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(read_in(&pieces), String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_character_cut_by_a_read_is_whole() {
        assert_eq!(read_in(&[b"a\xe2", b"\x82", b"\xac!"]), "a€!");
        assert_eq!(read_in(&[b"\xe2\x82"]), "\u{fffd}");
    }

    #[test]
    fn what_is_beyond_the_limit_is_left_out_and_counted() {
        let mut output = Output::new(5, Redactor::default());
        assert_eq!(output.push("aaa€€b".as_bytes()), "aaa");
        assert_eq!(output.push(b"c"), "");
        output.finish();
        assert_eq!(output.into_text(), "aaa\n[offspring: 8 bytes more were left out (max_output_bytes)]\n");
    }
}
