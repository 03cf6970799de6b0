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

/// A limit under `limits:` as it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitInForce {
    /// Its key.
    pub key: &'static str,
    /// Its value, in the unit that its key names; `None` is no bound.
    pub value: Option<u64>,
    /// Whether the manifest says it; else it is the default.
    pub is_given: bool,
}

impl Limits {
    /// Every limit by its key, those that an agent can narrow first.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, Option<u64>)> {
        // Taken apart whole, so that a new limit cannot be forgotten here.
        let Self { session, max_active, max_queued, max_prompt_bytes, max_output_bytes } = self;
        let mut values = session_limits(session);
        values.extend([
            ("max_active", Some(u64::from(*max_active))),
            ("max_queued", Some(u64::from(*max_queued))),
            ("max_prompt_bytes", Some(*max_prompt_bytes)),
            ("max_output_bytes", Some(*max_output_bytes)),
        ]);
        values
    }
}

/// The limits that an agent can narrow, by their keys.
#[must_use]
pub fn session_limits(limits: &SessionLimits) -> Vec<(&'static str, Option<u64>)> {
    let SessionLimits { max_depth, max_descendants, max_live_children, max_wall_ms } = limits;
    vec![
        ("max_depth", max_depth.map(u64::from)),
        ("max_descendants", max_descendants.map(u64::from)),
        ("max_live_children", max_live_children.map(u64::from)),
        ("max_wall_ms", *max_wall_ms),
    ]
}
