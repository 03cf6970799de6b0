//! How a process is closed (W7).

use std::time::Duration;

/// The steps by which a process is closed (W7), each bounded, each skipped when its bound is zero:
/// end of stdin → SIGTERM to everything → SIGKILL to everything. The last step is always there.
///
/// What comes before, a `shutdown` message to a runtime that knows one, is the caller's: see
/// [`Process::stop_after`](crate::Process::stop_after).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    pub(crate) end_of_input: Duration,
    pub(crate) terminate: Duration,
}

impl Default for Ladder {
    /// End of stdin (1 s, when stdin is a pipe and still open), SIGTERM (2 s), SIGKILL.
    fn default() -> Self {
        Self { end_of_input: Duration::from_secs(1), terminate: Duration::from_secs(2) }
    }
}

impl Ladder {
    /// SIGTERM (2 s), then SIGKILL; stdin is closed but not waited for. What a cancel wants.
    #[must_use]
    pub fn terminate() -> Self {
        Self { end_of_input: Duration::ZERO, ..Self::default() }
    }

    /// SIGKILL to everything at once. A program gets no chance to remove its lock and temporary files.
    #[must_use]
    pub fn at_once() -> Self {
        Self { end_of_input: Duration::ZERO, terminate: Duration::ZERO }
    }

    /// How long after the end of its stdin a program may take to end by itself (default 1 s).
    #[must_use]
    pub fn end_of_input_within(mut self, bound: Duration) -> Self {
        self.end_of_input = bound;
        self
    }

    /// How long after SIGTERM a program and what it started may take (default 2 s). Under a guard the shorter of
    /// this and [`ProcessSpec::grace`](crate::ProcessSpec::grace) holds.
    #[must_use]
    pub fn terminate_within(mut self, bound: Duration) -> Self {
        self.terminate = bound;
        self
    }

    /// Two callers stop one process: the more urgent of each step holds.
    pub(crate) fn hastened(self, other: Self) -> Self {
        Self {
            end_of_input: self.end_of_input.min(other.end_of_input),
            terminate: self.terminate.min(other.terminate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_of_two_who_stop_one_process_the_more_urgent_holds_at_each_step() {
        let bounds = |end: u64, terminate: u64| {
            let ladder = Ladder::terminate().end_of_input_within(Duration::from_secs(end));
            ladder.terminate_within(Duration::from_secs(terminate))
        };
        for (one, other, both) in [((7, 1), (3, 9), (3, 1)), ((0, 9), (5, 5), (0, 5))] {
            let hastened = bounds(one.0, one.1).hastened(bounds(other.0, other.1));
            let both = bounds(both.0, both.1);
            assert_eq!((hastened.end_of_input, hastened.terminate), (both.end_of_input, both.terminate));
        }
    }
}
