//! What waits to be written to one connection: bounded by bytes, in one order.

use std::sync::Arc;

use offspring_transport::FrameWriter;
use tokio::{
    io::AsyncWrite,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

/// Lines that may wait beside the bound in bytes.
const LINES: usize = 1_024;

/// The way out of a connection. Cheap to clone; whoever sends while it is full waits.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    lines: mpsc::Sender<Line>,
    room: Arc<Semaphore>,
    bytes: u32,
}

/// A line and the room it takes until it is written.
#[derive(Debug)]
pub(crate) struct Line {
    text: String,
    _room: OwnedSemaphorePermit,
}

/// The connection is gone: nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl Outbox {
    pub(crate) fn new(bytes: usize) -> (Self, mpsc::Receiver<Line>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        let (lines, waiting) = mpsc::channel(LINES);
        let room = Arc::new(Semaphore::new(bytes as usize));
        (Self { lines, room, bytes }, waiting)
    }

    /// Waits for room and queues a line.
    pub(crate) async fn send(&self, text: String) -> Result<(), Gone> {
        // One that is longer than all the room takes all of it.
        let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX).clamp(1, self.bytes);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| Gone)?;
        self.lines.send(Line { text, _room: room }).await.map_err(|_| Gone)
    }

    /// Nobody reads any more: whoever waits for room is told.
    pub(crate) fn close(&self) {
        self.room.close();
    }
}

/// Writes what is queued until every sender is gone or the stream fails.
pub(crate) async fn write<W: AsyncWrite + Unpin>(sink: W, mut lines: mpsc::Receiver<Line>) {
    let mut frames = FrameWriter::with_limit(sink, usize::MAX);
    let mut waiting = Vec::new();
    while lines.recv_many(&mut waiting, LINES).await > 0 {
        for line in waiting.drain(..) {
            if let Err(error) = frames.feed(line.text.as_bytes()).await {
                return tracing::debug!(%error, "a client does not read any more");
            }
        }
        if let Err(error) = frames.flush().await {
            return tracing::debug!(%error, "a client does not read any more");
        }
    }
}
