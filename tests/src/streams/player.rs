//! Plays a stream's script on stdin and stdout, as a runtime would.
//!
//! Beside what [`Stream::script`](super::Stream::script) writes it knows `@PATH`: the bytes of a file as they are, as
//! fast as the pipe takes them. The first `initialize` is answered by itself, and so is `shutdown` at any time.

use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead, Write},
    path::Path,
};

use serde_json::{Value, value::RawValue};

/// How much is handed to the system at once.
const WRITE_BYTES: usize = 256 * 1024;

#[derive(serde::Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Value>,
}

/// A request that no step has taken yet.
struct Pending {
    id: String,
    method: String,
    session: Option<String>,
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client said `shutdown` or closed its side.
    Closed,
    /// The script says to end without a word.
    Exit,
}

/// Plays the script of a file.
///
/// # Errors
/// When the script cannot be read or the client no longer reads.
pub fn play(script: &Path, input: impl BufRead, output: impl Write) -> io::Result<Ended> {
    let script = fs::read(script)?;
    let mut files = HashMap::new();
    for line in script.split(|byte| *byte == b'\n') {
        if let Some(path) = line.strip_prefix(b"@") {
            let path = String::from_utf8_lossy(path).into_owned();
            files.insert(path.clone(), fs::read(&path)?);
        }
    }
    let mut player = Player {
        input,
        output: io::BufWriter::with_capacity(WRITE_BYTES, output),
        pending: Vec::new(),
        taken: HashMap::new(),
        initialized: false,
    };
    for line in script.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else { continue };
        match kind {
            b'=' => {
                player.output.write_all(rest)?;
                player.output.write_all(b"\n")?;
            }
            b'@' => {
                if let Some(bytes) = files.get(&*String::from_utf8_lossy(rest)) {
                    player.output.write_all(bytes)?;
                }
            }
            b'<' => {
                if player.take(&String::from_utf8_lossy(rest))?.is_none() {
                    return Ok(Ended::Closed);
                }
            }
            b'>' => player.answer(&String::from_utf8_lossy(rest))?,
            b'!' => {
                player.output.flush()?;
                return Ok(Ended::Exit);
            }
            _ => return Err(io::Error::other("a step of the script is not known")),
        }
    }
    while player.read()? {}
    Ok(Ended::Closed)
}

struct Player<R, W: Write> {
    input: R,
    output: io::BufWriter<W>,
    pending: Vec<Pending>,
    /// Ids by the number of their step.
    taken: HashMap<u32, String>,
    initialized: bool,
}

impl<R: BufRead, W: Write> Player<R, W> {
    /// Waits for the request of `TAG METHOD SESSION`.
    fn take(&mut self, step: &str) -> io::Result<Option<()>> {
        let mut words = step.splitn(3, ' ');
        let (tag, method, session) = (words.next(), words.next(), words.next());
        let (Some(Ok(tag)), Some(method)) = (tag.map(str::parse), method) else {
            return Err(io::Error::other("a step waits for nothing"));
        };
        let session: Option<String> = serde_json::from_str(session.unwrap_or("null"))?;
        loop {
            let place = self.pending.iter().position(|pending| {
                pending.method == method && (session.is_none() || pending.session == session)
            });
            if let Some(place) = place {
                self.taken.insert(tag, self.pending.remove(place).id);
                return Ok(Some(()));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Reads one line of the client; `false` when it wants no more.
    fn read(&mut self) -> io::Result<bool> {
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let Ok(Request { id: Some(id), method: Some(method), params }) = serde_json::from_str(&line) else {
            return Ok(true);
        };
        let id = id.get().to_owned();
        match method.as_str() {
            "shutdown" => {
                self.write(&id, r#""result":{}"#)?;
                self.output.flush()?;
                return Ok(false);
            }
            "initialize" if !self.initialized => {
                self.initialized = true;
                let server = r#""result":{"serverInfo":{"name":"stream-player","version":"0"}}"#;
                self.write(&id, server)?;
            }
            _ => {
                let session = params.as_ref().and_then(|params| params.get("sessionId")?.as_str());
                self.pending.push(Pending { id, method, session: session.map(str::to_owned) });
            }
        }
        Ok(true)
    }

    /// `TAG MEMBERS`.
    fn answer(&mut self, step: &str) -> io::Result<()> {
        let (tag, members) = step.split_once(' ').unwrap_or((step, ""));
        let id = tag.parse().ok().and_then(|tag| self.taken.remove(&tag));
        match id {
            Some(id) => self.write(&id, members),
            None => Err(io::Error::other("a step answers what was not asked")),
        }
    }

    fn write(&mut self, id: &str, members: &str) -> io::Result<()> {
        writeln!(self.output, r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{Operation, generate};

    #[test]
    fn steps_wait_for_their_requests_in_any_order() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let flood = directory.path().join("flood");
        fs::write(&flood, "flood\n").unwrap();
        let text = format!(
            "<1 session/prompt \"a\"\n=first\n>1 \"result\":1\n<2 session/prompt \"b\"\n@{}\n>2 \"result\":2\n",
            flood.display()
        );
        fs::write(&script, text).unwrap();
        let input = concat!(
            r#"{"id":"i","method":"initialize"}"#,
            "\n",
            r#"{"id":"b","method":"session/prompt","params":{"sessionId":"b"}}"#,
            "\n",
            "no request\n",
            r#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#,
            "\n",
            r#"{"id":9,"method":"shutdown"}"#,
            "\n",
        );
        let mut output = Vec::new();
        assert_eq!(play(&script, input.as_bytes(), &mut output).unwrap(), Ended::Closed);
        let lines: Vec<&str> = std::str::from_utf8(&output).unwrap().lines().collect();
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(
            lines[1..],
            [
                "first",
                r#"{"jsonrpc":"2.0","id":1,"result":1}"#,
                "flood",
                r#"{"jsonrpc":"2.0","id":"b","result":2}"#,
                r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
            ]
        );
    }

    #[test]
    fn what_a_stream_awaits_its_client_asks_for() {
        for seed in 0..100 {
            let stream = generate::stream(seed);
            let awaited = |method: &str| {
                stream
                    .script()
                    .split(|byte| *byte == b'\n')
                    .filter(|line| line.starts_with(b"<") && String::from_utf8_lossy(line).contains(method))
                    .count()
            };
            let asked = |of: fn(&Operation) -> bool| stream.operations.iter().filter(|one| of(one)).count();
            assert_eq!(
                awaited("stream/next"),
                asked(|one| matches!(one, Operation::Next)),
                "{}",
                stream.name
            );
            let runs = asked(|one| matches!(one, Operation::Run { .. }));
            assert_eq!(awaited("session/prompt"), runs, "{}", stream.name);
            assert_eq!(asked(|one| matches!(one, Operation::JoinRun { .. })), runs, "{}", stream.name);
        }
    }
}
