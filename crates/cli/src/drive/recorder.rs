//! `--trace`: the wire as it was, one line of JSON for each of its lines.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use offspring_client::Direction;
use offspring_process::Secrets;
use serde::Serialize;
use serde_json::value::RawValue;

use super::secrets::{redact_json, redact_text};
use crate::failure::{Failure, reason};

/// Writes what passes by. Readable by its owner only: prompts and answers are in it.
#[derive(Clone)]
pub(crate) struct Recorder {
    file: Arc<Mutex<io::Result<File>>>,
    name: Arc<str>,
    secrets: Arc<Secrets>,
    began: Instant,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since the start.
    t: f64,
    /// `c2s` to the runtime, `s2c` from it.
    dir: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    msg: Option<&'a RawValue>,
    /// What is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
}

impl Recorder {
    /// A new file: one that is there already is left as it is.
    pub(crate) fn create(path: &Path, secrets: Secrets) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(format!(
                "--trace {}: there is such a file already; name another one or remove it",
                path.display()
            )),
            _ => Failure::usage(format!("--trace {}: {}", path.display(), reason(&error))),
        })?;
        Ok(Self {
            file: Arc::new(Mutex::new(Ok(file))),
            name: path.display().to_string().into(),
            secrets: Arc::new(secrets),
            began: Instant::now(),
        })
    }

    pub(crate) fn frame(&self, direction: Direction, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame);
        let is_json = serde_json::from_str::<&RawValue>(&text).is_ok();
        let text = if is_json {
            Cow::Owned(redact_json(&self.secrets, &text))
        } else {
            redact_text(&self.secrets, &text)
        };
        let msg = is_json.then(|| serde_json::from_str::<&RawValue>(&text).ok()).flatten();
        let line = Line {
            t: self.began.elapsed().as_secs_f64(),
            dir: match direction {
                Direction::Sent => "c2s",
                Direction::Received => "s2c",
            },
            msg,
            raw: msg.is_none().then_some(&text),
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(open) = &mut *file {
            let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
                line.push(b'\n');
                open.write_all(&line)
            });
            if let Err(error) = written {
                *file = Err(error);
            }
        }
    }

    /// Whether all of it is in the file.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match &*self.file.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::new(format!(
                "the trace {} ends before the turn did: {}",
                self.name,
                reason(error)
            ))),
        }
    }
}
