//! The output of a program: its head as it comes, its tail at its end, and of what lies between only its length.
//!
//! Beyond the head bytes are kept as they were read, in blocks of which the oldest goes first: what is dropped in the
//! end costs one read and no look. Only what is kept becomes text.

use std::collections::VecDeque;

use self::text::Text;
use super::withheld::Withheld;

mod text;

/// What of the tail is dropped at once; what a pipe holds as a rule.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// The output of a program as it grows.
#[derive(Debug)]
pub(crate) struct Output {
    /// The head; after the end everything that is kept.
    kept: String,
    limit: usize,
    text: Text,
    withheld: Withheld,
    tail: Tail,
    left_out: u64,
}

/// The last bytes that were read, in blocks that are all full but the last one.
#[derive(Debug, Default)]
struct Tail {
    blocks: VecDeque<Vec<u8>>,
    block_bytes: usize,
    /// How many bytes it has to hold.
    enough: usize,
    bytes: usize,
    dropped: u64,
}

impl Tail {
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = match self.blocks.back() {
                Some(last) => self.block_bytes - last.len(),
                None => 0,
            };
            if room == 0 {
                let block = self.drop_first().unwrap_or_else(|| Vec::with_capacity(self.block_bytes));
                self.blocks.push_back(block);
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(last) = self.blocks.back_mut() {
                last.extend_from_slice(now);
            }
            self.bytes += now.len();
            bytes = later;
        }
    }

    /// The first block, emptied, if there is enough without it.
    fn drop_first(&mut self) -> Option<Vec<u8>> {
        let first = self.blocks.front().map(Vec::len)?;
        if self.bytes - first < self.enough {
            return None;
        }
        self.bytes -= first;
        self.dropped += first as u64;
        let mut block = self.blocks.pop_front()?;
        block.clear();
        Some(block)
    }
}

impl Output {
    /// Keeps `limit` bytes of text at most: half of them of the beginning, the rest of the end.
    pub(crate) fn new(limit: usize, withheld: &Withheld) -> Self {
        Self::in_blocks(limit, withheld, BLOCK_BYTES)
    }

    fn in_blocks(limit: usize, withheld: &Withheld, block_bytes: usize) -> Self {
        let text = Text::new(withheld);
        let context = text.context_bytes();
        let tail = Tail { block_bytes, enough: limit / 2 + context, ..Tail::default() };
        Self { kept: String::new(), limit, text, withheld: withheld.clone(), tail, left_out: 0 }
    }

    /// What the head still has room for.
    fn room(&self) -> usize {
        (self.limit - self.limit / 2).saturating_sub(self.kept.len())
    }

    /// Takes what was read and gives the text of the head that is new. Bytes that are no UTF-8 become U+FFFD; a
    /// character that a read has cut is given whole with the next one.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> &str {
        let start = self.kept.len();
        while !bytes.is_empty() && self.room() > 0 {
            // A byte becomes three when it is no UTF-8.
            let (now, later) = bytes.split_at((self.room() / 3).clamp(1, bytes.len()));
            self.text.push(now, &mut self.kept);
            bytes = later;
        }
        self.tail.push(bytes);
        &self.kept[start..]
    }

    /// The end of the output: gives what comes after the head, piece by piece, a note of what was left out first.
    pub(crate) fn finish(mut self) -> Rest {
        let mut pieces = VecDeque::new();
        let mut bytes = 0;
        let budget = self.limit.saturating_sub(self.kept.len());
        let mut keep = |piece: String, left_out: &mut u64| {
            bytes += piece.len();
            pieces.push_back(piece);
            while let Some(first) = pieces.front_mut()
                && bytes > budget
            {
                let excess = first.ceil_char_boundary((bytes - budget).min(first.len()));
                *left_out += excess as u64;
                bytes -= excess;
                if excess == first.len() {
                    pieces.pop_front();
                } else {
                    first.drain(..excess);
                }
            }
        };
        let mut skip = 0;
        if self.tail.dropped > 0 {
            // What the head's text still held is not shown: it may be the beginning of a secret.
            self.left_out = self.tail.dropped + self.text.held_bytes();
            self.text = Text::new(&self.withheld);
            // What begins in the dropped part ends in here, a character or a secret: none of it is shown.
            skip = self.text.context_bytes();
        }
        while let Some(block) = self.tail.blocks.pop_front() {
            let (before, block) = block.split_at(skip.min(block.len()));
            if !before.is_empty() {
                skip -= before.len();
                self.left_out += before.len() as u64;
                self.text.push(before, &mut String::new());
                if skip == 0 {
                    self.left_out -= self.text.held_bytes();
                }
            }
            let mut piece = String::new();
            self.text.push(block, &mut piece);
            keep(piece, &mut self.left_out);
        }
        let mut piece = String::new();
        self.text.finish(&mut piece);
        keep(piece, &mut self.left_out);
        if self.left_out > 0 {
            pieces.push_front(format!("\n[offspring: {} bytes left out]\n", self.left_out));
        }
        Rest { kept: self.kept, pieces, left_out: self.left_out }
    }
}

/// What comes after the head, once the program has ended.
#[derive(Debug)]
pub(crate) struct Rest {
    kept: String,
    pieces: VecDeque<String>,
    left_out: u64,
}

impl Rest {
    /// The next piece, which from then on is part of the whole.
    pub(crate) fn next(&mut self) -> Option<String> {
        let piece = self.pieces.pop_front()?;
        self.kept.push_str(&piece);
        Some(piece)
    }

    /// How many bytes were not kept, as they were read; of text where that is not known.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All that was given.
    pub(crate) fn into_text(self) -> String {
        self.kept
    }
}

#[cfg(test)]
mod tests;
