//! How the program says that something went wrong: what, where, what to do.

use std::{fmt::Display, process::ExitCode};

use crate::{
    exit,
    text::{plain, tell},
};

/// A message for people and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// It did not work: exit code 1.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), code: exit::FAILED }
    }

    /// It was asked for in a wrong way: exit code 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), code: exit::USAGE }
    }

    /// With one more line.
    pub(crate) fn and(mut self, line: impl Display) -> Self {
        self.message.push_str(&format!("\n{line}"));
        self
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        // Lines stay lines; nothing else that could steer a terminal gets through (W11).
        let lines: Vec<String> = self.message.lines().map(|line| plain(line).into_owned()).collect();
        tell(&format!("error: {}", lines.join("\n")));
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

macro_rules! failures {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )*};
}

failures!(
    offspring_sessions::StoreError,
    offspring_sessions::Refused,
    offspring_agents::endpoint::ClientError,
    serde_json::Error,
    std::io::Error,
);

impl From<offspring_pool::ManifestError> for Failure {
    fn from(error: offspring_pool::ManifestError) -> Self {
        Self::usage(error)
    }
}
