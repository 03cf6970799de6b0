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
    /// How long a run may say nothing while it waits for nobody, in milliseconds; beyond it, it fails. Default: as long
    /// as it likes.
    pub max_silence_ms: Option<u64>,
    /// The longest output that is kept of one run in bytes, half of it of the beginning and half of the end; what lies
    /// between is left out, and the output says how much. Default: 16 MiB.
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
            max_silence_ms: None,
            max_output_bytes: 16 << 20,
        }
    }
}

/// What narrows the limits of a pool for one agent (rule L17), beside those of its sessions; `None` where it says
/// nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// See [`Limits::max_silence_ms`].
    pub max_silence_ms: Option<u64>,
    /// See [`Limits::max_output_bytes`].
    pub max_output_bytes: Option<u64>,
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
        let Self { session, max_silence_ms, max_active, max_queued, max_prompt_bytes, max_output_bytes } =
            self;
        let mut values = session_limits(session);
        values.extend([
            ("max_silence_ms", *max_silence_ms),
            ("max_active", Some(u64::from(*max_active))),
            ("max_queued", Some(u64::from(*max_queued))),
            ("max_prompt_bytes", Some(*max_prompt_bytes)),
            ("max_output_bytes", Some(*max_output_bytes)),
        ]);
        values
    }
}

/// The limits of sessions, by their keys.
pub(super) fn session_limits(limits: &SessionLimits) -> Vec<(&'static str, Option<u64>)> {
    let SessionLimits { max_depth, max_descendants, max_live_children, max_wall_ms } = limits;
    vec![
        ("max_depth", max_depth.map(u64::from)),
        ("max_descendants", max_descendants.map(u64::from)),
        ("max_live_children", max_live_children.map(u64::from)),
        ("max_wall_ms", *max_wall_ms),
    ]
}
