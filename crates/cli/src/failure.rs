//! How the program says that something went wrong: what, where, what to do.

use std::{fmt::Display, io, process::ExitCode};

use offspring_process::Secrets;

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

    /// Without the values that must not be shown (W10).
    pub(crate) fn without(mut self, secrets: &Secrets) -> Self {
        self.message = secrets.redact(&self.message).into_owned();
        self
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        // Lines stay lines; nothing else that could steer a terminal gets through (W11).
        let message = without_numbers(&self.message);
        let lines: Vec<String> = message.lines().map(|line| plain(line).into_owned()).collect();
        tell(&format!("error: {}", lines.join("\n")));
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// What the system says about a file, in words that a person uses.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is no directory".to_owned(),
        io::ErrorKind::InvalidFilename => "no file can have such a name".to_owned(),
        _ => without_numbers(&error.to_string()),
    }
}

/// The text without the numbers of errors that the standard library puts behind the system's words.
fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut pieces = text.split(BEFORE);
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => whole.push_str(rest),
            _ => whole.extend([BEFORE, piece]),
        }
    }
    whole
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
    io::Error,
);

impl From<offspring_pool::ManifestError> for Failure {
    fn from(error: offspring_pool::ManifestError) -> Self {
        Self::usage(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out_and_nothing_else_is() {
        let error = io::Error::from_raw_os_error(28);
        assert_eq!(reason(&error), "No space left on device");
        for (text, shown) in [
            ("a (os error 2); b (os error 17)", "a; b"),
            ("a (os error two)", "a (os error two)"),
            ("(os error 2)", "(os error 2)"),
            ("a (os error 2", "a (os error 2"),
        ] {
            assert_eq!(without_numbers(text), shown);
        }
    }
}
