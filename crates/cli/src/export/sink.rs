//! Where an export goes: stdout, or a file that is there whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{
    failure::Failure,
    text::{by_number, for_stdout},
};

/// Bytes that are gathered before they are written.
const BUFFER: usize = 64 << 10;

/// How what is written is made harmless for a terminal (rule W11). Files and pipes get it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// JSON says the same with numbers for what could steer a terminal.
    Json,
    /// In everything else it is replaced.
    Plain,
}

/// Takes an export.
pub(crate) struct Sink {
    to: To,
    text: Text,
}

enum To {
    Terminal(io::Stdout),
    Stdout(BufWriter<io::Stdout>),
    /// Becomes the file of that name at the end.
    File {
        file: BufWriter<NamedTempFile>,
        path: PathBuf,
        force: bool,
    },
    /// A device or a named pipe: nothing is there to be kept whole.
    Special {
        file: BufWriter<File>,
        path: PathBuf,
    },
    /// Nobody reads stdout any more.
    Gone,
    #[cfg(test)]
    Memory(String),
}

impl Sink {
    /// Into this file, else to stdout. A file that exists is refused without `force`.
    pub(crate) fn open(output: Option<&Path>, force: bool, text: Text) -> Result<Self, Failure> {
        let to = match output {
            None => Self::stdout(),
            Some(path) if path == Path::new("-") => Self::stdout(),
            Some(path) => Self::file(path, force)?,
        };
        Ok(Self { to, text })
    }

    #[cfg(test)]
    pub(crate) fn memory() -> Self {
        Self { to: To::Memory(String::new()), text: Text::Json }
    }

    #[cfg(test)]
    pub(crate) fn into_text(self) -> String {
        if let To::Memory(text) = self.to { text } else { String::new() }
    }

    fn stdout() -> To {
        if io::stdout().is_terminal() {
            To::Terminal(io::stdout())
        } else {
            To::Stdout(BufWriter::with_capacity(BUFFER, io::stdout()))
        }
    }

    fn file(path: &Path, force: bool) -> Result<To, Failure> {
        let shown = path.display();
        // A link stays a link to what it names.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => {
                return Err(Failure::usage(format!("{shown} is a directory; name a file in it")));
            }
            Ok(found) if !found.is_file() => {
                let file = OpenOptions::new().write(true).open(&path).map_err(unwritable(&path))?;
                return Ok(To::Special { file: BufWriter::with_capacity(BUFFER, file), path });
            }
            Ok(_) if !force => return Err(exists(&path)),
            _ => {}
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Beside it, so that it can take its name in one step; readable by its owner only, like the store.
        let beside = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let made = tempfile::Builder::new().prefix(&format!(".{name}.")).tempfile_in(beside);
        let file = BufWriter::with_capacity(BUFFER, made.map_err(unwritable(&path))?);
        Ok(To::File { file, path, force })
    }

    /// More text.
    pub(crate) fn put(&mut self, text: &str) -> Result<(), Failure> {
        let done = match &mut self.to {
            To::Terminal(stdout) => {
                let shown = match self.text {
                    Text::Json => by_number(text),
                    Text::Plain => for_stdout(text).into_owned(),
                };
                stdout.write_all(shown.as_bytes())
            }
            To::Stdout(stdout) => stdout.write_all(text.as_bytes()),
            To::File { file, path, .. } => return file.write_all(text.as_bytes()).map_err(unwritable(path)),
            To::Special { file, path } => return file.write_all(text.as_bytes()).map_err(unwritable(path)),
            To::Gone => return Ok(()),
            #[cfg(test)]
            To::Memory(all) => {
                all.push_str(text);
                return Ok(());
            }
        };
        self.said(done)
    }

    /// Whether nobody reads any more: `export … | head` has seen enough.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.to, To::Gone)
    }

    fn said(&mut self, done: io::Result<()>) -> Result<(), Failure> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.to = To::Gone;
                Ok(())
            }
            done => done.map_err(|error| Failure::new(format!("stdout cannot be written: {error}"))),
        }
    }

    /// All of it was put: the file takes its name. Gives its path.
    pub(crate) fn finish(mut self) -> Result<Option<PathBuf>, Failure> {
        let flushed = match &mut self.to {
            To::Terminal(stdout) => stdout.flush(),
            To::Stdout(stdout) => stdout.flush(),
            _ => Ok(()),
        };
        self.said(flushed)?;
        match self.to {
            To::Terminal(_) | To::Stdout(_) | To::Gone => Ok(None),
            #[cfg(test)]
            To::Memory(_) => Ok(None),
            To::Special { mut file, path } => {
                file.flush().map_err(unwritable(&path))?;
                Ok(Some(path))
            }
            To::File { file, path, force } => {
                let file = file.into_inner().map_err(|error| unwritable(&path)(error.into_error()))?;
                file.as_file().sync_all().map_err(unwritable(&path))?;
                let named = if force { file.persist(&path) } else { file.persist_noclobber(&path) };
                match named {
                    Ok(_) => Ok(Some(path)),
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&path)),
                    Err(error) => Err(unwritable(&path)(error.error)),
                }
            }
        }
    }
}

fn exists(path: &Path) -> Failure {
    Failure::usage(format!("{} exists; add --force to replace it, or name another file", path.display()))
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Failure {
    let shown = path.display().to_string();
    move |error| Failure::new(format!("{shown} cannot be written: {error}"))
}
