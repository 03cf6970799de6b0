//! A prompt from the command line, from stdin or from a file.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    failure::{Failure, reason},
    text::tell,
};

/// Means stdin.
const STDIN: &str = "-";

/// Where a prompt comes from.
#[derive(Debug, Default, Args)]
pub(crate) struct PromptArgs {
    /// What is asked; `-` reads it from stdin.
    #[arg(conflicts_with = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// Read what is asked from a file, which may be longer than an argument; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
}

/// The longest prompt that is taken, and who says so.
pub(crate) struct MaxPrompt<'a> {
    /// In bytes.
    pub(crate) bytes: u64,
    /// For the message: where the limit stands.
    pub(crate) set_by: &'a str,
}

impl PromptArgs {
    /// Whether one was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.prompt.is_some() || self.prompt_file.is_some()
    }

    /// The prompt. No more of it is read than it may have.
    pub(crate) fn read(&self, max: &MaxPrompt<'_>) -> Result<String, Failure> {
        match (self.prompt.as_deref(), self.prompt_file.as_deref()) {
            (Some(STDIN), _) => from_stdin(max),
            (_, Some(file)) if file == Path::new(STDIN) => from_stdin(max),
            (_, Some(file)) => from_file(file, max),
            (Some(prompt), None) => {
                let (from, bytes) = ("the prompt", prompt.len() as u64);
                if bytes > max.bytes {
                    return Err(too_long(from, &format!("{bytes} bytes"), max));
                }
                refuse_empty(prompt.to_owned(), from, "say what is asked")
            }
            (None, None) => Err(Failure::usage("there is no prompt: say what is asked")),
        }
    }
}

fn from_stdin(max: &MaxPrompt<'_>) -> Result<String, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        tell("type the prompt; Ctrl-D on a line of its own ends it");
    }
    let from = "the prompt on stdin";
    let text = read(stdin.lock(), from, max)?;
    refuse_empty(
        text,
        from,
        "pipe something into it, or give the prompt as an argument or with --prompt-file FILE",
    )
}

fn from_file(file: &Path, max: &MaxPrompt<'_>) -> Result<String, Failure> {
    let from = format!("--prompt-file {}", file.display());
    let unreadable = |error: io::Error| Failure::usage(format!("{from}: {}", reason(&error)));
    let opened = File::open(file).map_err(unreadable)?;
    if opened.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Failure::usage(format!("{from}: it is a directory; name the file in it")));
    }
    let bytes = opened.metadata().map_or(0, |found| found.len());
    if bytes > max.bytes {
        return Err(too_long(&from, &format!("{bytes} bytes"), max));
    }
    let text = read(opened, &from, max)?;
    refuse_empty(text, &from, "write into it what is asked")
}

fn read(source: impl Read, from: &str, max: &MaxPrompt<'_>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let unreadable = |error: io::Error| Failure::new(format!("{from} cannot be read: {}", reason(&error)));
    source.take(max.bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max.bytes {
        return Err(too_long(from, &format!("more than {} bytes", max.bytes), max));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        Failure::usage(format!(
            "{from} is not UTF-8: byte 0x{byte:02x} at offset {at}; convert it \
             (iconv -f latin1 -t utf-8), or name the file in a prompt and let the agent read it"
        ))
    })
}

fn too_long(from: &str, has: &str, max: &MaxPrompt<'_>) -> Failure {
    let MaxPrompt { bytes, set_by } = max;
    Failure::usage(format!(
        "{from} has {has}, and the limit is {bytes} ({set_by}); put the data into a \
         file, name it in the prompt and let the agent read it, or raise the limit"
    ))
}

fn refuse_empty(text: String, from: &str, what_to_do: &str) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage(format!("{from} is empty: {what_to_do}")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_prompt_may_have() {
        let max = MaxPrompt { bytes: 4, set_by: "a test" };
        assert_eq!(read("four".as_bytes(), "it", &max).unwrap(), "four");
        // Without an end.
        assert!(read(io::repeat(b'x'), "it", &max).is_err());
    }
}
