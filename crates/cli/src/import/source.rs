//! A file that is read more than once.

use std::{
    cell::Cell,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use crate::{
    failure::{Failure, reason},
    text::plain,
};

/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// A file, or what came from stdin, kept in a file without a name.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    name: Arc<str>,
    file: Arc<File>,
}

impl Source {
    /// Opens a file; what is no file can be read once only, and is written to a file without a name beside the
    /// store first, which has room for it or will have none for the tree either.
    pub(crate) fn open(path: &Path, beside: Option<&Path>) -> Result<Self, Failure> {
        let (name, file): (String, File) = if path == Path::new("-") {
            ("stdin".to_owned(), copied(&mut io::stdin().lock(), beside)?)
        } else {
            let name = plain(&path.to_string_lossy()).into_owned();
            let unreadable = |error: io::Error| Failure::new(format!("{name} cannot be read: {error}"));
            let missing =
                |error: io::Error| Failure::usage(format!("{name} cannot be read: {}", reason(&error)));
            let mut file = File::open(path).map_err(missing)?;
            let about = file.metadata().map_err(unreadable)?;
            if about.is_dir() {
                return Err(Failure::usage(format!("{name} is a directory; name the file in it")));
            }
            let file = if about.is_file() { file } else { copied(&mut file, beside)? };
            (name, file)
        };
        Ok(Self { name: name.into(), file: Arc::new(file) })
    }

    /// From its beginning; one at a time reads. No more bytes are read than `left` says, which whoever reads
    /// raises again after each item.
    pub(crate) fn reader(&self, left: Option<&Rc<Cell<u64>>>) -> io::Result<BufReader<impl Read + use<>>> {
        (&*self.file).rewind()?;
        let bounded = Bounded { file: Arc::clone(&self.file), left: left.cloned() };
        Ok(BufReader::with_capacity(BUFFER, bounded))
    }

    /// What is wrong at a line and column: with the place in bytes.
    pub(crate) fn problem(&self, error: &serde_json::Error) -> Failure {
        let name = &self.name;
        let (line, column) = (error.line(), error.column());
        if error.is_io() {
            return Failure::new(format!("{name} cannot be read: {error}"));
        }
        let offset = self.offset(line, column);
        let place = match offset {
            Some(byte) => format!("line {line}, byte {byte}"),
            None => format!("line {line}"),
        };
        let at_end = offset.zip(self.file.metadata().ok()).is_some_and(|(byte, about)| byte >= about.len());
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or_default();
        // A number that is cut off is a bad number.
        if error.is_eof() || at_end && said == "invalid number" {
            return Failure::new(format!(
                "{name} ends in the middle, at {place}: it is not a whole export; nothing was changed"
            ));
        }
        Failure::new(format!("{name}, {place}: {}; nothing was changed", in_words(said)))
    }

    /// How many bytes stand before a place.
    fn offset(&self, line: usize, column: usize) -> Option<u64> {
        let mut reader = self.reader(None).ok()?;
        let mut bytes = 0_u64;
        for _ in 1..line {
            bytes += u64::try_from(reader.skip_until(b'\n').ok()?).ok()?;
        }
        Some(bytes + u64::try_from(column).ok()?)
    }
}

/// Without words that only a reader of the code knows.
fn in_words(said: &str) -> String {
    let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|prefix| said.strip_prefix(prefix));
    if let Some((found, expected)) = wrong.and_then(|wrong| wrong.split_once(", expected ")) {
        let expected = match expected {
            "u64" | "u32" | "i64" => "a whole number",
            other => other,
        };
        return format!("{expected} is expected here, not {found}");
    }
    match said.strip_prefix("missing field ") {
        Some(key) => format!("{key} is missing here"),
        None => said.to_owned(),
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[derive(Debug)]
struct Bounded {
    file: Arc<File>,
    left: Option<Rc<Cell<u64>>>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = (&*self.file).read(buffer)?;
        if let Some(left) = &self.left {
            match left.get().checked_sub(bytes as u64) {
                Some(rest) => left.set(rest),
                None => {
                    return Err(io::Error::other("one session or event of it is longer than a store holds"));
                }
            }
        }
        Ok(bytes)
    }
}

fn copied(from: &mut impl Read, beside: Option<&Path>) -> Result<File, Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("what is imported cannot be kept meanwhile: {error}"));
    // Without a name it goes with this process, however that ends.
    let made = match beside {
        Some(dir) if dir.is_dir() => tempfile::tempfile_in(dir),
        _ => tempfile::tempfile(),
    };
    let mut file = made.map_err(failed)?;
    io::copy(from, &mut file).map_err(failed)?;
    Ok(file)
}
