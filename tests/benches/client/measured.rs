//! One measurement: a process that plays the stream to a client and says what it cost and gave.

use std::{path::Path, process::Command};

use serde::{Deserialize, Serialize};

use crate::{Failed, stream::Made};

/// What such a process says, ours and the SDK's alike.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) cpu_seconds: f64,
    pub(crate) wall_seconds: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) runs: Vec<Run>,
    /// Of the same bytes in the same process, before the run.
    #[serde(default)]
    pub(crate) floor_cpu_seconds: f64,
}

/// What a turn gave.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) final_response: String,
    pub(crate) finish_reason: Option<String>,
    pub(crate) notifications: usize,
    pub(crate) checksum: String,
}

impl Measured {
    fn notifications(&self) -> f64 {
        self.runs.iter().map(|run| run.notifications).sum::<usize>() as f64
    }

    /// In microseconds.
    pub(crate) fn per_notification(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.notifications()
    }

    pub(crate) fn cpu(&self) -> f64 {
        self.per_notification(self.cpu_seconds)
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.notifications() / self.wall_seconds
    }

    pub(crate) fn peak_of(&self, made: &Made) -> f64 {
        self.peak_bytes as f64 / made.bytes as f64
    }
}

/// Ours, by this program as a child of itself.
pub(crate) fn ours(made: &Made, what: &str) -> Result<Measured, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", what]).arg(&made.script).arg(made.roots.to_string());
    said(command)
}

/// The Python SDK.
pub(crate) fn sdk(python: &Path, made: &Made) -> Result<Measured, Failed> {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/sdk_bench.py");
    let mut command = Command::new(python);
    command.arg("-B").arg(driver).arg(crate::child::PLAYER).arg(&made.script).arg(made.roots.to_string());
    said(command)
}

/// The TypeScript SDK, from a bundle of its sources.
pub(crate) fn typescript(module: &Path, made: &Made) -> Result<Measured, Failed> {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/ts_bench.mjs");
    let mut command = Command::new("node");
    command.arg(driver).arg(module).arg(crate::child::PLAYER).arg(&made.script).arg(made.roots.to_string());
    said(command)
}

fn said(mut command: Command) -> Result<Measured, Failed> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let measured = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    measured.ok_or_else(|| {
        format!("{command:?}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)).into()
    })
}
