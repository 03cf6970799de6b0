//! What a play needs of the process around it.

use std::io;
use std::time::Duration;

/// The process that a play is, as far as it is more than two streams.
///
/// [`Aside`] is for plays inside a test: it keeps stderr and starts nothing. The program has one that does what
/// the script says.
pub trait Stage: Send {
    /// Takes bytes for stderr.
    fn stderr(&mut self, bytes: &[u8]);

    /// Leaves a process behind that holds the same stdout for this long.
    ///
    /// # Errors
    /// When it cannot be started; the play goes on without it and says so on stderr.
    fn leave_behind(&mut self, how_long: Duration) -> io::Result<()>;

    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// The names of all variables of the environment.
    fn variables(&self) -> Vec<String>;
}

/// A stage without a process: stderr is kept, nothing is started, the environment is empty.
#[derive(Debug, Default)]
pub struct Aside {
    stderr: Vec<u8>,
}

impl Aside {
    /// What the play wrote to stderr.
    #[must_use]
    pub fn stderr_bytes(&self) -> &[u8] {
        &self.stderr
    }
}

impl Stage for Aside {
    fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
    }

    fn leave_behind(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<String> {
        Vec::new()
    }
}
