//! What bounds the trees of a pool.

use std::thread::available_parallelism;

use offspring_protocol::SessionLimits;

/// The limits of a pool, each with a default that keeps a laptop usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// What every root starts with (rule L5): beyond them a delegation is refused.
    pub session: SessionLimits,
    /// Processes and model requests at work at the same time. No refusal but a queue. Default: twice the number of
    /// processors, at least 4.
    pub max_active: u32,
    /// Runs that wait in that queue; one more ends as failed (`queue_full`). Default: 10,000.
    pub max_queued: u32,
    /// The longest prompt in bytes; a longer one is refused. Default: 16 MiB, so that the longest answer of one step
    /// of a sequential team fits into the next.
    pub max_prompt_bytes: u64,
    /// The longest answer of one run in bytes; the rest is left out, and the answer says how much. Default: 16 MiB.
    pub max_output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let processors = available_parallelism().map_or(2, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        Self {
            session: SessionLimits::default(),
            max_active: processors.saturating_mul(2).max(4),
            max_queued: 10_000,
            max_prompt_bytes: 16 << 20,
            max_output_bytes: 16 << 20,
        }
    }
}
