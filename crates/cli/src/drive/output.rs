//! What `drive` prints, written by a thread of its own: a reader of stdout that has stopped reading must make the program
//! neither deaf to signals nor keep what it cannot get rid of.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
};

use serde::Serialize;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{failure::Failure, text::json_line};

/// Pieces on their way to stdout; a notification is one.
const QUEUED: usize = 16;

pub(super) struct Output {
    /// `None` once nobody reads any more.
    pieces: Option<mpsc::Sender<String>>,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Output {
    pub(super) fn start() -> Result<Self, Failure> {
        // Not under the lock of `stdout()`: whoever ends the program asks for that.
        let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let (pieces, mut queued) = mpsc::channel::<String>(QUEUED);
        let writing = tokio::task::spawn_blocking(move || {
            while let Some(piece) = queued.blocking_recv() {
                stdout.write_all(piece.as_bytes())?;
            }
            Ok(())
        });
        Ok(Self { pieces: Some(pieces), writing: Some(writing) })
    }

    /// Waits until there is room. That nobody reads any more is no error: a turn is not for our reader alone.
    pub(super) async fn write(&mut self, piece: String) -> Result<(), Failure> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        match pieces.send(piece).await {
            Ok(()) => Ok(()),
            Err(_) => self.finish().await,
        }
    }

    /// The same for a line of JSON.
    pub(super) async fn write_json<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        if self.pieces.is_none() {
            return Ok(());
        }
        self.write(json_line(value)?).await
    }

    /// Waits until all of it is written.
    pub(super) async fn finish(&mut self) -> Result<(), Failure> {
        self.pieces = None;
        let Some(writing) = self.writing.take() else { return Ok(()) };
        match writing.await {
            Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("stdout cannot be written: {error}")))
            }
            Ok(_) => Ok(()),
            Err(failed) => Err(Failure::new(failed)),
        }
    }
}
