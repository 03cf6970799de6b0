//! What the tests through the real program share: the program with a world of its own, the processes it leaves.
#![deny(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it fails the test that uses it")]

pub mod dsh;
pub mod fake_model;
pub mod kernel;
pub mod processes;
pub mod running;
pub mod serve;
pub mod streams;
pub mod terminal;
pub mod world;

pub use running::{Finished, Lines, Running};
pub use world::{World, fake_runtime, offspring};

use std::time::{Duration, Instant};

/// A bounded wait for something the system has no event for.
///
/// # Panics
/// When it does not come.
pub fn until<T>(what: &str, bound: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {bound:?}: {what}");
        // poll: what the caller looks at
        std::thread::sleep(Duration::from_millis(5));
    }
}
