//! The same wire over WebSocket: one message, one frame.
//!
//! The rules are those of a byte stream, but one: a message beyond four times the frame limit ends the
//! connection, because the protocol library gives no way to pass over it (W2).

use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue, protocol::WebSocketConfig},
};

use crate::error::ClientError;

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) struct Source {
    stream: SplitStream<Stream>,
}

pub(crate) struct Sink {
    sink: SplitSink<Stream, Message>,
}

/// Connects; `token` is sent as a bearer token.
pub(crate) async fn connect(
    url: &str,
    token: Option<&str>,
    frame_bytes: usize,
) -> Result<(Source, Sink), ClientError> {
    let failed = |reason: String| ClientError::Connect { url: url.to_owned(), reason };
    let mut request = url.into_client_request().map_err(|error| failed(error.to_string()))?;
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| failed("the token holds characters that no header can have".to_owned()))?;
        value.set_sensitive(true);
        request.headers_mut().insert("authorization", value);
    }
    let room = frame_bytes.saturating_mul(4);
    let config = WebSocketConfig::default().max_message_size(Some(room)).max_frame_size(Some(room));
    let (stream, _) = connect_async_with_config(request, Some(config), true)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let (sink, stream) = stream.split();
    Ok((Source { stream }, Sink { sink }))
}

impl Source {
    /// The next message; `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(one_line(text.as_bytes()))),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(one_line(&bytes))),
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }
}

/// A message as a line, as every frame elsewhere is one: what is recorded or printed of it ends where it ends. In
/// JSON a line feed is never content.
fn one_line(message: &[u8]) -> Vec<u8> {
    message.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect()
}

impl Sink {
    pub(crate) async fn send(&mut self, frame: &str) -> Result<(), String> {
        self.sink.send(Message::text(frame)).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn close(&mut self) {
        let _ = self.sink.close().await;
    }
}
