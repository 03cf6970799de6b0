//! What a client takes, waits for and keeps at most.

use std::time::Duration;

use offspring_transport::{DEFAULT_FRAME_LIMIT_BYTES, DiagnosticLimits};

/// Every limit of a client, with its default and what happens beyond it.
///
/// ```
/// use offspring_client::Limits;
/// use std::time::Duration;
///
/// let limits = Limits { tree_silence: Duration::from_secs(600), ..Limits::default() };
/// assert_eq!(limits.queue_items, 8_192);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest line of the runtime in bytes; default 16 MiB. A longer one is skipped and counted (W2): its
    /// notification is lost, and a response is answered by a timeout.
    pub frame_bytes: usize,
    /// How long `initialize` may take; default 30 s. Beyond it the runtime is ended.
    pub initialize_within: Duration,
    /// How long every other request may take, the answer to a prompt included; default 60 s. Beyond it
    /// [`Timeout`](crate::ClientError::Timeout); the request may still have had its effect.
    pub request_within: Duration,
    /// How long after the answer to a prompt its durable receipt may take; default 10 s. Beyond it
    /// [`MissingReceipt`](crate::ClientError::MissingReceipt) (T13).
    pub receipt_within: Duration,
    /// How long a turn may take until its root is idle; default 24 h, because an agent's work has no natural
    /// length and a runtime that dies is seen at once. Beyond it [`Timeout`](crate::ClientError::Timeout).
    pub turn_within: Duration,
    /// How long a tree may be silent while its root is idle and something below it is at work; default 1 h.
    /// Beyond it [`TreeOpen`](crate::ClientError::TreeOpen), naming what is at work. A silence never decides
    /// that a tree is at rest.
    pub tree_silence: Duration,
    /// What one turn keeps, in bytes; default 1 GiB. Beyond it
    /// [`TurnTooLarge`](crate::ClientError::TurnTooLarge) (T11).
    pub turn_bytes: usize,
    /// Notifications in the queue of one subscription; default 8,192. A full queue gives what it holds, then
    /// [`Lagged`](crate::SubscriptionEnd::Lagged), and ends (T11); that of a turn may hold up its runtime instead:
    /// [`hold_runtime`](crate::Turn::hold_runtime).
    pub queue_items: usize,
    /// Bytes in the queue of one subscription; default 16 MiB. As `queue_items`.
    pub queue_bytes: usize,
    /// Notifications that match no subscription and wait to be asked for; default 8,192. What comes beyond is
    /// counted and dropped (T10).
    pub unmatched_items: usize,
    /// Bytes of those; default 16 MiB. As `unmatched_items`.
    pub unmatched_bytes: usize,
    /// Requests without an answer, those that timed out included; default 1,024. One more is refused with
    /// [`TooManyRequests`](crate::ClientError::TooManyRequests).
    pub open_requests: usize,
    /// Requests of the runtime that are worked on at a time; default 64. One more is answered with an error.
    pub incoming_requests: usize,
    /// How long the runtime may take to end after `shutdown`; default 1 s (W7). Then its stdin is closed.
    pub shutdown_within: Duration,
    /// How long it may take to end after the end of its stdin; default 1 s. Then SIGTERM.
    pub end_of_input_within: Duration,
    /// How long it may take after SIGTERM; default 2 s. Then SIGKILL to everything it started.
    pub terminate_within: Duration,
    /// How much of the end of stderr is kept for errors, in bytes; default 64 KiB (W4).
    pub stderr_tail_bytes: usize,
    /// Lines that are no messages: how many are kept, and how much of each (W3).
    pub diagnostics: DiagnosticLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: DEFAULT_FRAME_LIMIT_BYTES,
            initialize_within: Duration::from_secs(30),
            request_within: Duration::from_secs(60),
            receipt_within: Duration::from_secs(10),
            turn_within: Duration::from_secs(24 * 60 * 60),
            tree_silence: Duration::from_secs(60 * 60),
            turn_bytes: 1 << 30,
            queue_items: 8_192,
            queue_bytes: 16 << 20,
            unmatched_items: 8_192,
            unmatched_bytes: 16 << 20,
            open_requests: 1_024,
            incoming_requests: 64,
            shutdown_within: Duration::from_secs(1),
            end_of_input_within: Duration::from_secs(1),
            terminate_within: Duration::from_secs(2),
            stderr_tail_bytes: 64 * 1024,
            diagnostics: DiagnosticLimits::default(),
        }
    }
}
