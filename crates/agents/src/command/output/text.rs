//! Bytes as text: whole characters, whatever the reads, and no secret.

use std::str;

use crate::command::withheld::{Redactor, Withheld};

/// The longest part of a character that can stand without its beginning.
const CONTINUATION_BYTES: usize = 3;

/// Bytes that become text as they come.
#[derive(Debug)]
pub(super) struct Text {
    /// The begin of a character whose rest has not come.
    partial: Vec<u8>,
    /// Takes out secrets before anything is cut (rule W10).
    redactor: Redactor,
}

impl Text {
    pub(super) fn new(withheld: &Withheld) -> Self {
        Self { partial: Vec::new(), redactor: withheld.stream() }
    }

    /// After so many bytes from any place on nothing is held that began before that place: a secret that straddles
    /// the place ends within its own length, and what is held then is no longer than another one.
    pub(super) fn context_bytes(&self) -> usize {
        2 * self.redactor.longest_bytes() + CONTINUATION_BYTES
    }

    /// Bytes that came and were not given yet.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.partial.len() + self.redactor.held_bytes()) as u64
    }

    /// Takes bytes and appends the text that is sure.
    pub(super) fn push(&mut self, bytes: &[u8], to: &mut String) {
        let mut joined = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        loop {
            match str::from_utf8(rest) {
                Ok(text) => return self.redactor.push(text, to),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.redactor.push(str::from_utf8(valid).unwrap_or_default(), to);
                    match error.error_len() {
                        Some(bad) => {
                            self.redactor.push("\u{fffd}", to);
                            rest = &after[bad..];
                        }
                        None => {
                            self.partial = after.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// The end of the text: a character that was never completed becomes U+FFFD.
    pub(super) fn finish(&mut self, to: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.redactor.push("\u{fffd}", to);
        }
        self.redactor.finish(to);
    }
}
