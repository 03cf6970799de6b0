//! Every bound of a server.

/// The bounds of a server; each has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// The longest line a client may send, in bytes; 16 MiB. A longer one is skipped and answered with
    /// `-32600` (rule W2).
    pub frame_bytes: usize,
    /// Calls of one connection that are worked on at once, those that wait included; 256. One more is
    /// answered with `-32001` at once.
    pub calls: usize,
    /// Sessions that one connection may have open; 10,000. One more is refused with `-32001`.
    pub open_sessions: usize,
    /// Subscriptions of one connection; 1,000. One more is refused with `-32001`.
    pub subscriptions: usize,
    /// Prompts that wait for their run, per session; 64. One more is refused with `-32001` and not stored.
    pub queued_prompts: usize,
    /// Bytes that wait to be written to one connection; 4 MiB. While they are full its feeds wait, and go on
    /// from the log when there is room: a slow client is late and misses nothing.
    pub outbox_bytes: usize,
    /// The longest text of one message on the wire of the runtimes, in bytes; 4 MiB. Of a longer one the
    /// beginning is sent, with a line that says how much there is.
    pub message_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            calls: 256,
            open_sessions: 10_000,
            subscriptions: 1_000,
            queued_prompts: 64,
            outbox_bytes: 4 << 20,
            message_bytes: 4 << 20,
        }
    }
}
