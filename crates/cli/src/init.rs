//! `offspring init`: a first pool that runs as it is.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde_json::json;

use crate::{
    failure::Failure,
    summary::program,
    text::{finish, finish_json, plain, shell_word},
};

/// There is no flag that overwrites: whoever wants a file replaced can remove it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    offspring init first\n  \
    offspring check first/pool.yaml\n  \
    offspring run first/pool.yaml \"to be or not to be\"")]
pub(crate) struct Init {
    /// Where to; it is made if need be. No file that is there is ever overwritten.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

const MANIFEST: &str = "pool.yaml";
const FILES: [(&str, &str); 3] = [
    (MANIFEST, include_str!("init/pool.yaml")),
    ("lead.sh", include_str!("init/lead.sh")),
    ("frequent.sh", include_str!("init/frequent.sh")),
];
/// What the pool is asked first.
const PROMPT: &str = "to be or not to be";

pub(crate) fn init(db: Option<&Path>, args: &Init) -> Result<ExitCode, Failure> {
    let dir = &args.dir;
    // Looked at before anything is written: all of it or nothing.
    let there = |(name, _): &(&str, &str)| fs::symlink_metadata(dir.join(name)).is_ok();
    let in_the_way: Vec<String> =
        FILES.iter().filter(|file| there(file)).map(|(name, _)| shown(&dir.join(name))).collect();
    if !in_the_way.is_empty() {
        return Err(Failure::usage(format!(
            "nothing was written, because nothing is overwritten; in the way: {}\n\
             name another directory: offspring init DIR",
            in_the_way.join(", ")
        )));
    }
    fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    let mut wrote: Vec<PathBuf> = Vec::new();
    for (name, text) in FILES {
        let path = dir.join(name);
        // Fails for whatever has come into the way meanwhile.
        let made = File::create_new(&path);
        if made.is_ok() {
            wrote.push(path.clone());
        }
        if let Err(error) = made.and_then(|mut file| file.write_all(text.as_bytes())) {
            // What is there by now was made by us, and is of no use without the rest.
            wrote.iter().for_each(|path| _ = fs::remove_file(path));
            return Err(failed(&path, &error));
        }
    }
    let next = next(db, &dir.join(MANIFEST));
    if args.json {
        let wrote: Vec<_> = wrote.iter().map(|path| path.to_string_lossy()).collect();
        return finish_json(&json!({ "wrote": wrote, "next": next }));
    }
    let mut text = String::new();
    for path in &wrote {
        text.push_str(&format!("wrote {}\n", shown(path)));
    }
    text.push_str("next:\n");
    for command in next {
        text.push_str(&format!("  {command}\n"));
    }
    finish(&text)
}

/// As a shell takes it, from here.
fn next(db: Option<&Path>, manifest: &Path) -> [String; 2] {
    let program = program();
    // A name that begins like a flag is none with its directory.
    let manifest = match manifest.strip_prefix(".") {
        Ok(below) if !below.as_os_str().as_encoded_bytes().starts_with(b"-") => below,
        _ => manifest,
    };
    let manifest = if manifest.as_os_str().as_encoded_bytes().starts_with(b"-") {
        Path::new(".").join(manifest)
    } else {
        manifest.to_owned()
    };
    let manifest = manifest.to_string_lossy();
    let manifest = shell_word(&manifest);
    let db = db.map(|db| format!(" --db {}", shell_word(&db.to_string_lossy()))).unwrap_or_default();
    [format!("{program} check {manifest}"), format!("{program}{db} run {manifest} {}", shell_word(PROMPT))]
}

fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy()).into_owned()
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let reason = match error.kind() {
        io::ErrorKind::AlreadyExists => "is in the way, and nothing is overwritten".to_owned(),
        io::ErrorKind::NotADirectory => "a part of this path is a file".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(format!("{}: {reason}\nname a directory you can write to: offspring init DIR", shown(path)))
}
