//! Lines that are kept together share their memory.
//!
//! A line of its own costs an allocation, and memory that a thread asks the kernel for a page at a time: about as much
//! as reading it. A turn that keeps everything writes its lines one behind the other instead.

use std::sync::{Arc, OnceLock};

use super::{Line, Notification};

/// What the first block of a turn has room for, in bytes; each further one has twice as much.
const FIRST_BYTES: usize = 2 * 1024;

/// What a block has room for at most: a notification that outlives its turn holds no more than this of others.
const LARGEST_BYTES: usize = 64 * 1024;

/// The text of one or several notifications. It can be read once it is full.
#[derive(Debug)]
pub(super) struct Block(OnceLock<String>);

impl Block {
    fn open() -> Self {
        Self(OnceLock::new())
    }

    pub(super) fn text(&self) -> &str {
        self.0.get().map_or("", String::as_str)
    }

    pub(super) fn of_one(text: &str) -> Self {
        Self(OnceLock::from(text.to_owned()))
    }
}

/// Keeps lines in blocks. What it gives out reads as empty until [`close`](Self::close).
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    open: Option<(Arc<Block>, String)>,
    last_bytes: usize,
}

impl Blocks {
    pub(crate) fn keep(&mut self, line: &Line<'_>) -> Notification {
        // A long one would leave the rest of a block empty.
        if line.text.len() > LARGEST_BYTES / 8 {
            return Notification::alone(line);
        }
        let (block, text) = match &mut self.open {
            Some(open) if open.1.capacity() - open.1.len() >= line.text.len() => open,
            _ => self.next(line.text.len()),
        };
        let at = u32::try_from(text.len()).unwrap_or(u32::MAX);
        text.push_str(line.text);
        Notification::in_block(line, block.clone(), at)
    }

    /// Makes everything readable that was kept so far.
    pub(crate) fn close(&mut self) {
        if let Some((block, mut text)) = self.open.take() {
            text.shrink_to_fit();
            // It is set here and nowhere else.
            let _ = block.0.set(text);
        }
    }

    fn next(&mut self, bytes: usize) -> &mut (Arc<Block>, String) {
        self.close();
        self.last_bytes = (self.last_bytes * 2).clamp(FIRST_BYTES, LARGEST_BYTES);
        let text = String::with_capacity(self.last_bytes.max(bytes));
        self.open.insert((Arc::new(Block::open()), text))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::notification, *};

    #[test]
    fn t9_what_is_kept_in_blocks_reads_as_it_came_and_no_block_is_large() {
        // Each fiftieth is long; each third has an escape in its id, which stands unescaped behind the frame.
        let line = |number: usize| {
            let long = "x".repeat(if number.is_multiple_of(50) { 20_000 } else { number * 7 % 500 });
            let escape = if number.is_multiple_of(3) { r"\n" } else { "" };
            format!(
                r#"{{"method":"session.status","params":{{"sessionId":"s{number}{escape}{long}","status":"idle"}}}}"#
            )
        };
        let alone: Vec<_> = (0..2_000).map(|number| notification(number as u64, &line(number))).collect();
        let mut blocks = Blocks::default();
        let kept: Vec<_> = alone.iter().map(|one| blocks.keep(&one.line())).collect();
        assert_eq!(kept[1_999].frame(), "", "a block is read when it is closed");
        blocks.close();
        for (kept, alone) in kept.iter().zip(&alone) {
            assert_eq!((kept.frame(), kept.number()), (alone.frame(), alone.number()));
            assert_eq!((kept.session_id(), kept.status()), (alone.session_id(), alone.status()));
            assert_eq!(kept.cost_bytes(), alone.cost_bytes());
            assert!(kept.block.text().len() <= LARGEST_BYTES);
        }
        let short = kept.iter().filter(|one| one.bytes < 1_000).collect::<Vec<_>>();
        let shared = short.windows(2).filter(|pair| Arc::ptr_eq(&pair[0].block, &pair[1].block)).count();
        assert!(shared > short.len() * 9 / 10, "{shared} of {}", short.len());
    }
}
