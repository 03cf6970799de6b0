//! The wire between jsonrpsee and a runtime: a demultiplexer before its receiver, a mirror of its ids behind its
//! sender.
//!
//! Handed to jsonrpsee directly, one malformed line, one unknown id or one odd error object ends its client for
//! good. Here every frame is classified once: answers to what it asked go to it, normalised; notifications and
//! requests go to the hub and the handler, in wire order, before any later answer (T9); the rest is counted.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use jsonrpsee::core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use offspring_process::Process;
use offspring_protocol::{
    dsh::{Frame, SESSION_WAIT, SHUTDOWN, SessionParams},
    rpc::{self, Message, code},
};
use offspring_transport::{FrameEvent, FrameReader, FrameWriter, Junk, ReadError, SharedDiagnostics};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, watch},
    task::coop::has_budget_remaining,
};

use crate::{
    error::{Gone, GoneHow},
    hub::Hub,
    notification::Line,
    requests::Requests,
};

/// How long after the end of its output the exit status of a process is waited for.
const EXIT_WITHIN: Duration = Duration::from_secs(1);

/// Which way a frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the runtime.
    Sent,
    /// From the runtime to the client.
    Received,
}

/// Sees every frame, for a recording; called on the reader and the writer, so it must not wait.
pub(crate) type Tap = dyn Fn(Direction, &[u8]) + Send + Sync;

/// What can be read from a runtime.
pub(crate) enum Source {
    Bytes(FrameReader<Box<dyn AsyncRead + Send + Unpin>>),
    #[cfg(feature = "websocket")]
    WebSocket(crate::websocket::Source),
}

/// What can be written to a runtime.
pub(crate) enum Sink {
    Bytes(FrameWriter<Box<dyn AsyncWrite + Send + Unpin>>),
    #[cfg(feature = "websocket")]
    WebSocket(crate::websocket::Sink),
}

impl Sink {
    async fn send(&mut self, frame: &str) -> Result<(), String> {
        match self {
            Self::Bytes(writer) => writer.send(frame.as_bytes()).await.map_err(|error| error.to_string()),
            #[cfg(feature = "websocket")]
            Self::WebSocket(sink) => sink.send(frame).await,
        }
    }

    /// Ends our side: the runtime reads the end of its input.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::Bytes(writer) => _ = writer.shutdown().await,
            #[cfg(feature = "websocket")]
            Self::WebSocket(sink) => sink.close().await,
        }
    }
}

/// Writes whole frames of many callers, one after another.
pub(crate) struct Writer {
    sink: Mutex<Sink>,
    tap: Option<Arc<Tap>>,
    /// Why writing failed, once it has.
    broken: watch::Sender<Option<String>>,
}

impl Writer {
    pub(crate) fn new(sink: Sink, tap: Option<Arc<Tap>>) -> Self {
        Self { sink: Mutex::new(sink), tap, broken: watch::Sender::new(None) }
    }

    pub(crate) async fn send(&self, frame: &str) -> Result<(), String> {
        let mut sink = self.sink.lock().await;
        if let Some(tap) = &self.tap {
            tap(Direction::Sent, frame.as_bytes());
        }
        let sent = sink.send(frame).await;
        if let Err(reason) = &sent {
            self.broken.send_replace(Some(reason.clone()));
        }
        sent
    }

    pub(crate) async fn close(&self) {
        self.sink.lock().await.close().await;
    }

    pub(crate) fn broken(&self) -> watch::Receiver<Option<String>> {
        self.broken.subscribe()
    }
}

/// jsonrpsee's sender: notes the id of each request before it is written.
pub(crate) struct Outbox {
    pub(crate) hub: Arc<Hub>,
    pub(crate) writer: Arc<Writer>,
}

impl TransportSenderT for Outbox {
    type Error = io::Error;

    async fn send(&mut self, frame: String) -> Result<(), io::Error> {
        if let Ok(incoming) = Message::classify(frame.as_bytes())
            && let Message::Request { id, method, params } = incoming.message
        {
            let waits_for = (method == SESSION_WAIT)
                .then(|| serde_json::from_str::<SessionParams>(params?.get()).ok())
                .flatten()
                .map(|params| params.session_id);
            if method == SHUTDOWN {
                self.hub.closing();
            }
            if !self.hub.sending(id, waits_for.as_ref()) {
                return Err(io::Error::other("a request id was used twice"));
            }
        }
        // A write that fails is no end: what the runtime has written may still be read. Callers see `broken`.
        let _ = self.writer.send(&frame).await;
        Ok(())
    }
}

/// jsonrpsee's receiver: gives it answers to its own requests and nothing else.
pub(crate) struct Demultiplexer {
    pub(crate) source: Source,
    pub(crate) hub: Arc<Hub>,
    pub(crate) requests: Requests,
    pub(crate) junk: SharedDiagnostics,
    pub(crate) tap: Option<Arc<Tap>>,
    /// Weak: the process ends with the last client, not with its reader.
    pub(crate) process: Weak<Process>,
    pub(crate) line: u64,
}

impl TransportReceiverT for Demultiplexer {
    type Error = io::Error;

    async fn receive(&mut self) -> Result<ReceivedMessage, io::Error> {
        // What was read is routed before anything is waited for.
        let ended = loop {
            let Self { source, hub, requests, junk, tap, line, .. } = self;
            hub.let_read().await;
            let mut sort = Sorter { hub, requests, junk, tap: tap.as_deref(), line };
            match source {
                Source::Bytes(reader) => match reader.next_buffered() {
                    Some(event) => {
                        if let Some(answer) = sort.event(event) {
                            return Ok(answer);
                        }
                    }
                    None => match or_waits(reader.fill(), hub).await {
                        Ok(true) => {}
                        Ok(false) => {
                            if let Ok(Some(event)) = reader.next().await {
                                sort.event(event);
                            }
                            break GoneHow::EndOfOutput;
                        }
                        Err(ReadError::Io(error)) => break GoneHow::ReadFailed(error.to_string()),
                        Err(error) => break GoneHow::ReadFailed(error.to_string()),
                    },
                },
                #[cfg(feature = "websocket")]
                Source::WebSocket(source) => match or_waits(source.next(), hub).await {
                    Ok(Some(frame)) => {
                        let event = if frame.len() > hub.limits().frame_bytes {
                            FrameEvent::FrameTooLarge { bytes: frame.len() as u64 }
                        } else {
                            FrameEvent::Frame(&frame)
                        };
                        if let Some(answer) = sort.event(event) {
                            return Ok(answer);
                        }
                    }
                    Ok(None) => break GoneHow::EndOfOutput,
                    Err(reason) => break GoneHow::ReadFailed(reason),
                },
            }
        };
        Err(self.end(ended).await)
    }
}

/// However reading ends: nobody waits for a reader that is no more. After its own end this changes nothing.
impl Drop for Demultiplexer {
    fn drop(&mut self) {
        if self.hub.is_gone().is_none() {
            let process = self.process.upgrade();
            let stderr_tail = process.map_or_else(Arc::default, |process| Arc::new(process.stderr_tail()));
            let how = GoneHow::ReadFailed("its reader ended".to_owned());
            self.hub.gone(Gone { how, exit: None, stderr_tail, junk: self.junk.snapshot() });
        }
    }
}

impl Demultiplexer {
    async fn end(&mut self, how: GoneHow) -> io::Error {
        let gone = match self.process.upgrade() {
            Some(process) => {
                // Its exit status is known a moment after the end of its output (W4).
                let exit = tokio::time::timeout(EXIT_WITHIN, process.wait()).await.ok();
                let tail = exit
                    .as_ref()
                    .map_or_else(|| Arc::new(process.stderr_tail()), |exit| exit.stderr_tail.clone());
                Gone {
                    how,
                    exit: exit.map(|exit| exit.status),
                    stderr_tail: tail,
                    junk: self.junk.snapshot(),
                }
            }
            None => Gone { how, exit: None, stderr_tail: Arc::default(), junk: self.junk.snapshot() },
        };
        io::Error::other(self.hub.gone(gone).to_string())
    }
}

/// Reads more; says so to the hub when there is nothing to be read now.
async fn or_waits<T>(reading: impl Future<Output = T>, hub: &Hub) -> T {
    let mut reading = pin!(reading);
    poll_fn(|context| {
        let polled = reading.as_mut().poll(context);
        // A task that has used up its turn is told to wait as well; then there may be more.
        if polled.is_pending() && has_budget_remaining() {
            hub.reader_waits();
        }
        polled
    })
    .await
}

/// Sorts one frame.
struct Sorter<'a> {
    hub: &'a Hub,
    requests: &'a Requests,
    junk: &'a SharedDiagnostics,
    tap: Option<&'a Tap>,
    line: &'a mut u64,
}

impl Sorter<'_> {
    /// The answer for jsonrpsee, if it is one.
    fn event(&mut self, event: FrameEvent<'_>) -> Option<ReceivedMessage> {
        *self.line += 1;
        let line = *self.line;
        match event {
            FrameEvent::Frame(frame) => {
                if let Some(tap) = self.tap {
                    tap(Direction::Received, frame);
                }
                return self.frame(line, frame);
            }
            FrameEvent::FrameTooLarge { bytes } => self.junk.note(line, Junk::TooLarge { bytes }, &[]),
            FrameEvent::Unterminated { bytes, head } => {
                self.junk.note(line, Junk::Unterminated { bytes }, head);
            }
        }
        None
    }

    fn frame(&self, line: u64, frame: &[u8]) -> Option<ReceivedMessage> {
        if frame.trim_ascii().is_empty() {
            self.junk.note_blank();
            return None;
        }
        let text = simdutf8::basic::from_utf8(frame);
        let read = text.map_or_else(|_| Frame::read(frame), Frame::of_text);
        match read {
            Ok(Frame::Notification(head)) => {
                let mut room = String::new();
                self.hub.notification(&Line::new(line, text.ok()?, &head, &mut room)?);
                None
            }
            Ok(Frame::Other(incoming)) => match incoming.message {
                Message::Response { id, outcome } => {
                    if !self.hub.answered(&id, outcome.is_ok()) {
                        self.junk.note(line, Junk::UnknownId, frame);
                        return None;
                    }
                    let normal = match &outcome {
                        Ok(result) => rpc::response(&id, result),
                        Err(error) => rpc::error_response(&id, &within_data(error)),
                    };
                    normal.ok().map(ReceivedMessage::Text)
                }
                Message::Request { id, method, params } => {
                    self.requests.take(id, method.into_owned(), params.map(ToOwned::to_owned));
                    None
                }
                Message::Notification { .. } => None,
            },
            Err(why) => {
                self.junk.note(line, Junk::NotRpc(why), frame);
                None
            }
        }
    }
}

/// jsonrpsee takes codes of 32 bits and some members only; a peer may send any. What it said goes past it whole.
fn within_data(error: &rpc::ErrorObject) -> rpc::ErrorObject {
    rpc::ErrorObject { data: to_raw_value(error).ok(), ..rpc::ErrorObject::new(code::INTERNAL_ERROR, "") }
}

/// The error that [`within_data`] put into another one.
pub(crate) fn from_data(data: &RawValue) -> Option<rpc::ErrorObject> {
    serde_json::from_str(data.get()).ok()
}
