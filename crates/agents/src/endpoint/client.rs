//! The other end: what `offspring task` does.

use std::{io, path::Path};

use offspring_protocol::{
    control::{HELLO, HelloParams, HelloResult},
    rpc::{self, ErrorObject, Id, Message},
};
use offspring_transport::{FrameEvent, FrameReader, FrameWriter};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::{
    UnixStream,
    unix::{OwnedReadHalf, OwnedWriteHalf},
};

use super::FRAME_LIMIT_BYTES;

/// An answer holds the texts of all members of a team, and once more as a whole, each at most as long as the pool's
/// `max_output_bytes`. What the endpoint could put together is not refused here.
const ANSWER_LIMIT_BYTES: usize = 2 << 30;

/// A connection in the name of one run.
#[derive(Debug)]
pub struct Client {
    frames: FrameReader<OwnedReadHalf>,
    sink: FrameWriter<OwnedWriteHalf>,
    calls: u64,
    session: HelloResult,
}

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The endpoint is not there any more.
    #[error("the run's endpoint cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// It went away before it answered.
    #[error("the run ended before it answered")]
    Gone,
    /// It says no.
    #[error("{}", .0.message)]
    Refused(ErrorObject),
    /// What it says is not what was asked.
    #[error("the endpoint's answer cannot be read: {0}")]
    Malformed(String),
}

impl Client {
    /// Connects and presents the token.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(socket: &Path, token: &str) -> Result<Self, ClientError> {
        let (read, write) = UnixStream::connect(socket).await?.into_split();
        let frames = FrameReader::with_limit(read, ANSWER_LIMIT_BYTES);
        let sink = FrameWriter::with_limit(write, FRAME_LIMIT_BYTES);
        let nobody =
            offspring_protocol::SessionId::new("-").map_err(|e| ClientError::Malformed(e.to_string()))?;
        let mut client = Self { frames, sink, calls: 0, session: HelloResult { session: nobody, depth: 0 } };
        client.session = client.call(HELLO, &HelloParams { token: token.to_owned() }).await?;
        Ok(client)
    }

    /// The session it speaks for.
    #[must_use]
    pub const fn session(&self) -> &HelloResult {
        &self.session
    }

    /// Calls a method of [`control`](offspring_protocol::control) and waits for its result, without a
    /// bound: a child may work as long as it likes (rule W8).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &P,
    ) -> Result<R, ClientError> {
        self.calls += 1;
        let id = Id::String(self.calls.to_string());
        let request =
            rpc::request(&id, method, params).map_err(|error| ClientError::Malformed(error.to_string()))?;
        self.sink.send(request.as_bytes()).await.map_err(|_| ClientError::Gone)?;
        loop {
            let frame = match self.frames.next().await {
                Ok(Some(FrameEvent::Frame([]))) => continue,
                Ok(Some(FrameEvent::Frame(frame))) => frame,
                Ok(Some(FrameEvent::FrameTooLarge { .. })) => {
                    return Err(ClientError::Malformed("the answer is too long".to_owned()));
                }
                Ok(Some(FrameEvent::Unterminated { .. }) | None) | Err(_) => return Err(ClientError::Gone),
            };
            let incoming = Message::classify(frame).map_err(|why| ClientError::Malformed(why.to_string()))?;
            let Message::Response { id: answered, outcome } = incoming.message else { continue };
            if answered != id && answered != Id::Null {
                continue;
            }
            let result = outcome.map_err(ClientError::Refused)?;
            return serde_json::from_str(result.get())
                .map_err(|error| ClientError::Malformed(error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::UnixListener,
    };

    use super::*;

    #[tokio::test]
    async fn an_answer_may_be_longer_than_any_prompt() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let text = "x".repeat(FRAME_LIMIT_BYTES + 1);
        let long = text.len();
        tokio::spawn(async move {
            let (read, mut write) = listener.accept().await.unwrap().0.into_split();
            let mut requests = BufReader::new(read).lines();
            for (id, result) in [("1", r#"{"session":"s","depth":0}"#), ("2", &format!("\"{text}\""))] {
                requests.next_line().await.unwrap();
                let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"result\":{result}}}\n");
                write.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let mut client = Client::connect(&socket, "t").await.unwrap();
        let answer: String = client.call("task/output", &()).await.unwrap();
        assert_eq!(answer.len(), long);
    }
}
