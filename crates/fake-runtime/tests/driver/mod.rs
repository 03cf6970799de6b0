//! A client that knows nothing but lines. Every wait has a bound.
#![allow(dead_code, clippy::needless_pass_by_value, reason = "each test program uses a part of it")]

use std::time::Duration;

use offspring_fake_runtime::{PlayEnd, Player, Script};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

/// Longer than any script of a test; with a paused clock it costs nothing.
const BOUND: Duration = Duration::from_secs(7_200);

pub(crate) struct Driver {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: Option<WriteHalf<DuplexStream>>,
    playing: Option<JoinHandle<PlayEnd>>,
}

/// A request as a line.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

/// A prompt as a line.
pub(crate) fn prompt(id: &str, session: &str, text: &str) -> String {
    let blocks = json!([{"type": "text", "text": text}]);
    request(id, "session/prompt", json!({"sessionId": session, "contentBlocks": blocks}))
}

/// What a message is, in a word or two.
pub(crate) fn kind(message: &Value) -> String {
    match message["method"].as_str() {
        Some("session.event") => message["params"]["event"]["type"].as_str().unwrap().to_owned(),
        Some("session.status") => format!("session.status {}", message["params"]["status"].as_str().unwrap()),
        Some(method) => method.to_owned(),
        None => format!("reply {}", message["id"].as_str().unwrap_or_default()),
    }
}

impl Driver {
    pub(crate) fn start(script: &str) -> Self {
        Self::play(Player::new(Script::parse(script).unwrap()))
    }

    pub(crate) fn play(player: Player) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let playing = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            player.play(reader, writer).await
        });
        let (reader, writer) = tokio::io::split(ours);
        Self { reader: BufReader::new(reader), writer: Some(writer), playing: Some(playing) }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let writer = self.writer.as_mut().unwrap();
        // A play that has ended takes nothing; what it wrote before is still read.
        let _ = writer.write_all(format!("{line}\n").as_bytes()).await;
    }

    pub(crate) async fn initialize(&mut self) {
        self.send(&request("i", "initialize", json!({"cwd": "/w"}))).await;
        assert_eq!(self.next().await["id"], "i");
    }

    /// The next line, which has to be JSON.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.next_line().await.unwrap_or_else(|| panic!("the play has ended"));
        serde_json::from_slice(&line).unwrap()
    }

    pub(crate) async fn next_line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        tokio::time::timeout(BOUND, self.reader.read_until(b'\n', &mut line)).await.unwrap().unwrap();
        (!line.is_empty()).then_some(line)
    }

    /// Every message up to the idle of this session.
    pub(crate) async fn until_idle(&mut self, session: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let message = self.next().await;
            let is_idle = message["params"] == json!({"sessionId": session, "status": "idle"});
            seen.push(message);
            if is_idle {
                return seen;
            }
        }
    }

    /// Every message up to the end.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut seen = Vec::new();
        while let Some(line) = self.next_line().await {
            seen.push(serde_json::from_slice(&line).unwrap());
        }
        seen
    }

    /// Every byte up to the end, its input closed.
    pub(crate) async fn all_bytes(mut self) -> Vec<u8> {
        self.close_input().await;
        let mut bytes = Vec::new();
        tokio::time::timeout(BOUND, self.reader.read_to_end(&mut bytes)).await.unwrap().unwrap();
        bytes
    }

    /// What each read gave, up to the end.
    pub(crate) async fn raw_reads(mut self) -> Vec<Vec<u8>> {
        let mut reads = Vec::new();
        let mut reader = self.reader.into_inner();
        loop {
            let mut buffer = vec![0; 64 * 1024];
            let count = tokio::time::timeout(BOUND, reader.read(&mut buffer)).await.unwrap().unwrap();
            if count == 0 {
                self.writer = None;
                return reads;
            }
            buffer.truncate(count);
            reads.push(buffer);
        }
    }

    pub(crate) async fn close_input(&mut self) -> Option<()> {
        self.writer.take()?.shutdown().await.ok()
    }

    /// The end of the play, its input left open.
    pub(crate) async fn ended(&mut self) -> PlayEnd {
        tokio::time::timeout(BOUND, self.playing.take().unwrap()).await.unwrap().unwrap()
    }

    /// Closes its input; the end of the play.
    pub(crate) async fn end(&mut self) -> PlayEnd {
        self.close_input().await;
        self.ended().await
    }
}
