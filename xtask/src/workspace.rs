//! Where the workspace is, what cargo says about it, and how to start cargo.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The root directory of the workspace.
pub(crate) struct Workspace {
    root: PathBuf,
}

/// What `cargo metadata` prints, as far as it is used here.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) resolve: Option<Resolve>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` is a normal dependency; otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<ResolveNode>,
}

#[derive(Deserialize)]
pub(crate) struct ResolveNode {
    pub(crate) id: String,
    pub(crate) deps: Vec<ResolveDep>,
}

#[derive(Deserialize)]
pub(crate) struct ResolveDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<ResolveDepKind>,
}

#[derive(Deserialize)]
pub(crate) struct ResolveDepKind {
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Whether some package has a target of this kind (`bin`, `bench` …) and name.
    pub(crate) fn has_target(&self, kind: &str, name: &str) -> bool {
        self.packages
            .iter()
            .flat_map(|package| &package.targets)
            .any(|target| target.name == name && target.kind.iter().any(|k| k == kind))
    }
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        // The compiled-in place is right unless the tree was moved; then cargo tells at run time.
        let at_run_time = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = at_run_time.as_deref().unwrap_or(manifest);
        let root = manifest.parent().context("xtask stands in no workspace")?;
        Ok(Self { root: root.to_path_buf() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A cargo command in the workspace's root.
    pub(crate) fn cargo<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(cargo_program());
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// Where tasks leave files for one another, under the target directory.
    pub(crate) fn state_directory(&self) -> Result<PathBuf> {
        let directory = self.members()?.target_directory.join("xtask");
        std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        Ok(directory)
    }

    /// The members, without a resolved graph (fast).
    pub(crate) fn members(&self) -> Result<Metadata> {
        metadata(self.cargo(["metadata", "--format-version=1", "--no-deps"]))
    }

    /// The resolved graph of the workspace whose manifest is `manifest`, which lies in another workspace.
    pub(crate) fn resolved(&self, manifest: &Path) -> Result<Metadata> {
        let mut command = self.cargo(["metadata", "--format-version=1", "--locked", "--manifest-path"]);
        command.arg(manifest);
        metadata(command)
    }

    /// Files that are in git or would be added by `git add`, that exist, relative to the root.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut command = Command::new("git");
        command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        command.current_dir(&self.root).stdin(Stdio::null());
        let listed = stdout_of(command).context("git has to list the files of the tree")?;
        let mut files = Vec::new();
        for name in listed.split('\0').filter(|name| !name.is_empty()) {
            let path = PathBuf::from(name);
            // A deletion that is not committed yet is still listed.
            if self.root.join(&path).is_file() {
                files.push(path);
            }
        }
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The outside workspaces under `tests/downstream`, by name.
    pub(crate) fn downstream(&self) -> Result<BTreeMap<String, PathBuf>> {
        let directory = self.root.join("tests/downstream");
        let mut found = BTreeMap::new();
        for entry in
            std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?
        {
            let entry = entry?;
            let manifest = entry.path().join("Cargo.toml");
            if manifest.is_file() {
                found.insert(entry.file_name().to_string_lossy().into_owned(), manifest);
            }
        }
        Ok(found)
    }
}

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

fn metadata(command: Command) -> Result<Metadata> {
    let text = stdout_of(command)?;
    serde_json::from_str(&text).context("reading what `cargo metadata` printed")
}

/// How a command looks on a terminal, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = Path::new(command.get_program())
        .file_name()
        .map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned());
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs a command whose output the person at the terminal sees.
///
/// What it prints to stdout goes where our own stdout goes.
pub(crate) fn run(mut command: Command) -> Result<()> {
    eprintln!("   $ {}", shown(&command));
    let status = command.status().with_context(|| format!("starting `{}`", shown(&command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(&command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to stdout; its stderr is in the error.
pub(crate) fn stdout_of(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting `{}`", shown(&command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {}", shown(&command), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
