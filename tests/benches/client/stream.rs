//! The streams as files, and the scripts that play them.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use offspring_tests::streams::bench::{self, Mix, Wanted};

use crate::Failed;

/// A stream on the disk.
pub(crate) struct Made {
    mix: Mix,
    pub(crate) roots: usize,
    pub(crate) lines: usize,
    pub(crate) bytes: u64,
    sha256: String,
    pub(crate) script: PathBuf,
}

impl Made {
    /// What it is, for the head of its figures.
    pub(crate) fn title(&self) -> String {
        let Self { mix, roots, lines, bytes, sha256, .. } = self;
        let mean = bytes / u64::try_from(*lines).unwrap_or(1).max(1);
        let runs = if *roots == 1 { "one run".to_owned() } else { format!("{roots} runs at once") };
        format!("{runs}, {mix:?} mix: {lines} lines, {bytes} bytes, mean {mean}; sha256 {}", &sha256[..16])
    }
}

/// Writes the stream of this name into the directory.
pub(crate) fn make(
    directory: &Path,
    name: &str,
    mix: Mix,
    lines: usize,
    roots: usize,
) -> Result<Made, Failed> {
    let [head, rest, script] =
        ["head", "rest", "script"].map(|part| directory.join(format!("{name}.{part}")));
    let mut files = (BufWriter::new(File::create(&head)?), BufWriter::new(File::create(&rest)?));
    let wanted = Wanted { lines, mix, roots, foreign_per_thousand: 0 };
    let written = bench::write(wanted, &mut files.0, &mut files.1)?;
    files.0.flush()?;
    files.1.flush()?;
    fs::write(&script, bench::script(roots, &head.to_string_lossy(), &rest.to_string_lossy()))?;
    Ok(Made { mix, roots, lines: written.lines, bytes: written.bytes, sha256: written.sha256, script })
}
