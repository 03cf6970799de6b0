//! The manifest that a person names.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use offspring_pool::Manifest;

use crate::{failure::Failure, text::shell_word, usage::closest};

/// Names that are listed when none is close.
const LISTED: usize = 4;

/// Reads and checks a manifest.
pub(crate) fn manifest(path: &Path) -> Result<Manifest, Failure> {
    refuse_missing(path)?;
    Ok(Manifest::load(path)?)
}

/// What is no file gets a hint of what may be meant.
pub(crate) fn refuse_missing(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let in_it = match manifests(path).as_slice() {
                [] => String::new(),
                found => format!(": {}", listed(found)),
            };
            Err(Failure::usage(format!("{shown} is a directory; name the manifest in it{in_it}")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let found = manifests(dir);
            // Without the ends of the names, in which all are alike.
            let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let stems: Vec<String> = found.iter().filter_map(|path| stem(path)).collect();
            let meant = stem(path)
                .and_then(|name| closest(&name, stems.iter().map(String::as_str)).map(str::to_owned));
            let meant = found.iter().find(|path| meant.is_some() && stem(path) == meant);
            let hint = match (meant, found.as_slice()) {
                (Some(meant), _) => format!("; did you mean `{}`?", listed(std::slice::from_ref(meant))),
                (None, []) => "; `offspring init` writes one that runs".to_owned(),
                (None, found) => format!("; there is {}", listed(found)),
            };
            Err(Failure::usage(format!("there is no manifest {shown}{hint}")))
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Err(Failure::usage(format!(
            "no file can be called `{}`: the manifest comes first, then the prompt",
            shortened(&path.to_string_lossy())
        ))),
        _ => Ok(()),
    }
}

/// What was probably meant by `run PROMPT MANIFEST`.
pub(crate) fn refuse_swapped(manifest: &Path, prompt: Option<&str>) -> Result<(), Failure> {
    let Some(prompt) = prompt else { return Ok(()) };
    if manifest.exists() || prompt.contains('\n') || !Path::new(prompt).is_file() {
        return Ok(());
    }
    let text = manifest.to_string_lossy();
    Err(Failure::usage(format!(
        "`{}` is no file and `{prompt}` is one: the manifest comes first\ntry: offspring run {} {}",
        shortened(&text),
        shell_word(prompt),
        shortened(&shell_word(&text)),
    )))
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

/// The YAML files of a directory, by name.
fn manifests(dir: &Path) -> Vec<PathBuf> {
    let is_yaml = |path: &Path| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_yaml(path) && path.is_file()).collect();
    found.sort();
    found
}

fn listed(found: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.strip_prefix(".").unwrap_or(path).display().to_string();
    let mut names: Vec<String> = found.iter().take(LISTED).map(name).collect();
    if found.len() > LISTED {
        names.push(format!("{} more", found.len() - LISTED));
    }
    names.join(", ")
}
