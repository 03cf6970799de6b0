//! Playing a script over two streams.

mod at_rest;
mod engine;
mod out;
mod requests;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::gates::Gates;
use crate::script::{Script, Signal};
use crate::stage::{Aside, Stage};

/// Plays a script: reads what a client writes, writes what a runtime would.
///
/// Time is tokio's alone, so that with a paused clock ten minutes of a script take no time. Waits as long as the
/// client does: put a bound around it where the client may hang. See [`Player`] for gates and cuts.
///
/// ```
/// use offspring_fake_runtime::{How, Script, play};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let script = Script::parse("prompt root\nmessage root \"four\"\nturn-end root\nstatus root idle\n")?;
/// let (ours, theirs) = tokio::io::duplex(64 * 1024);
/// let (reader, writer) = tokio::io::split(theirs);
/// let playing = tokio::spawn(async move { play(&script, reader, writer).await });
///
/// let (answers, mut requests) = tokio::io::split(ours);
/// requests.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n").await?;
/// let prompt = r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"root","contentBlocks":[]}}"#;
/// requests.write_all(format!("{prompt}\n").as_bytes()).await?;
/// let mut lines = BufReader::new(answers).lines();
/// while let Some(line) = lines.next_line().await? {
///     if line.contains("\"idle\"") {
///         break;
///     }
/// }
/// requests.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"shutdown\"}\n").await?;
/// assert_eq!(playing.await?.how, How::Exit(0));
/// # Ok(())
/// # }
/// ```
pub async fn play<R, W>(script: &Script, reader: R, writer: W) -> PlayEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    Player::new(script.clone()).play(reader, writer).await
}

/// A script with the settings of one play.
#[derive(Debug, Clone)]
pub struct Player {
    script: Arc<Script>,
    gates: Gates,
    frames: Option<u64>,
    bytes: Option<u64>,
}

impl Player {
    /// Plays this script whole, its gates closed.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(script), gates: Gates::default(), frames: None, bytes: None }
    }

    /// Waits at these gates (default: gates of its own, see [`gates`](Self::gates)).
    #[must_use]
    pub fn with_gates(mut self, gates: Gates) -> Self {
        self.gates = gates;
        self
    }

    /// What opens its gates.
    #[must_use]
    pub fn gates(&self) -> &Gates {
        &self.gates
    }

    /// Dies by SIGKILL after it has written so many frames (default: never). 0: before the first.
    #[must_use]
    pub fn kill_after_frames(mut self, frames: u64) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Dies by SIGKILL after it has written so many bytes (default: never), which may be in the middle of a frame.
    #[must_use]
    pub fn cut_after_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Plays over these streams, without a process around it. Both are dropped at the end, as when a process ends.
    pub async fn play<R, W>(&self, reader: R, writer: W) -> PlayEnd
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut aside = Aside::default();
        let mut end = self.play_on(&mut aside, reader, writer).await;
        end.stderr = aside.stderr_bytes().to_vec();
        end
    }

    /// Plays over these streams on a stage of the caller's.
    pub async fn play_on<R, W>(&self, stage: &mut dyn Stage, reader: R, writer: W) -> PlayEnd
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let engine = engine::Engine::new(&self.script, &self.gates, stage, self.frames, self.bytes);
        engine.play(reader, writer).await
    }
}

/// How a play ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayEnd {
    /// Why.
    pub how: How,
    /// How many bytes went to the client.
    pub written_bytes: u64,
    /// What went to stderr, when the play had no process around it.
    pub stderr: Vec<u8>,
}

/// Why a play ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// It exited: on `shutdown`, at the end of its input, or because the script says so.
    Exit(u8),
    /// It died by a signal to itself.
    Signal(Signal),
    /// The client did what the script does not allow.
    ClientWrong {
        /// The line of the script; 0 when no line is about it.
        line: u32,
        /// What the client did.
        what: String,
    },
    /// Nobody opened a gate in time.
    GateClosed {
        /// The line of the script.
        line: u32,
        /// The gate.
        name: String,
    },
    /// The client does not read any more.
    ClientGone,
}
