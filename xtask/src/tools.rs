//! Tools that the tasks need and that cargo can install: pinned by version and checksum, kept in the user's cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use crate::fetch::{Fetched, attempt, cache_directory, with_retries};
use crate::workspace::Workspace;

/// A program of crates.io. The checksum is that of the published archive, in hex.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) sha256: &'static str,
}

pub(crate) const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    sha256: "e528dfcbe739af7ce37a77d3d6df1b29dd6887b1c701d888820c0f16b864f737",
};

pub(crate) const CARGO_MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    version: "27.1.0",
    sha256: "07072e7bcdeb425d5e5fdbfd9f15a2c749e23cb2edf5ef40aee5876760ae1cf9",
};

impl Tool {
    /// The directory that `cargo install --root` fills. A second clone finds it and fetches nothing.
    fn directory(&self, cache: &Path) -> PathBuf {
        let checksum: String = self.sha256.chars().take(12).collect();
        cache.join("tools").join(format!("{}-{}-{checksum}", self.name, self.version))
    }

    /// The path of the program, built first if this machine has never had it.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<Fetched<PathBuf>> {
        let cache = cache_directory()?;
        let directory = self.directory(&cache);
        let program = directory.join("bin").join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX));
        if program.is_file() {
            return Ok(Fetched::Ready(program));
        }
        let pinned = format!("{} {}", self.name, self.version);
        eprintln!(
            "   building {pinned} once for this user, into {}; this takes minutes",
            directory.display()
        );

        let download = with_retries(&pinned, || {
            let mut command = workspace.cargo(["info", "--registry", "crates-io"]);
            command.arg(format!("{}@{}", self.name, self.version)).current_dir(std::env::temp_dir());
            attempt(command).map(|_| ())
        })?;
        if let Fetched::Unreachable(reason) = download {
            return Ok(Fetched::Unreachable(reason));
        }
        // Before anything of it runs: a build script is a program too.
        self.check_archive(&cargo_home()?)?;

        // Beside the final place, so that the rename is one step; another xtask may do the same at once.
        let staging = cache.join("tools").join(format!(".{}-{}", self.name, std::process::id()));
        let objects = cache.join("build").join(format!("{}-{}", self.name, self.version));
        let installed = with_retries(&pinned, || {
            let mut command =
                workspace.cargo(["install", "--locked", "--quiet", "--force", "--version", self.version]);
            command.arg("--root").arg(&staging).arg("--target-dir").arg(&objects).arg(self.name);
            command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
            attempt(command).map(|_| ())
        })?;
        if let Fetched::Unreachable(reason) = installed {
            return Ok(Fetched::Unreachable(reason));
        }
        if let Err(error) = std::fs::rename(&staging, &directory)
            && !program.is_file()
        {
            return Err(anyhow!(error).context(format!(
                "moving {} to {}",
                staging.display(),
                directory.display()
            )));
        }
        // Space is given back on a best-effort basis: what is left over harms nobody.
        drop(std::fs::remove_dir_all(&staging));
        drop(std::fs::remove_dir_all(&objects));
        Ok(Fetched::Ready(program))
    }

    fn check_archive(&self, cargo_home: &Path) -> Result<()> {
        let archive = format!("{}-{}.crate", self.name, self.version);
        let caches = cargo_home.join("registry").join("cache");
        let mut seen = false;
        let registries =
            std::fs::read_dir(&caches).with_context(|| format!("reading {}", caches.display()))?;
        for registry in registries {
            let path = registry?.path().join(&archive);
            let Ok(bytes) = std::fs::read(&path) else { continue };
            seen = true;
            let found = hex(&Sha256::digest(&bytes));
            if found != self.sha256 {
                bail!("{} has checksum {found}, pinned is {}; it is not built", path.display(), self.sha256);
            }
        }
        if !seen {
            bail!("cargo left no {archive} under {}; its checksum cannot be compared", caches.display());
        }
        Ok(())
    }
}

/// The tool, or an error that names it; for tasks that make no sense without.
pub(crate) fn require(tool: &Tool, workspace: &Workspace) -> Result<PathBuf> {
    match tool.ensure(workspace)? {
        Fetched::Ready(path) => Ok(path),
        Fetched::Unreachable(reason) => bail!("{} could not be fetched: {reason}", tool.name),
    }
}

fn cargo_home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME").filter(|value| !value.is_empty()) {
        Some(home) => Ok(PathBuf::from(home)),
        None => {
            let home = std::env::home_dir().context("neither CARGO_HOME nor a home directory is known")?;
            Ok(home.join(".cargo"))
        }
    }
}

/// Bytes as people write a checksum.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_with_another_checksum_is_refused_before_it_is_built() {
        let home = std::env::temp_dir().join(format!("offspring-xtask-test-{}", std::process::id()));
        let registry = home.join("registry/cache/some-registry");
        std::fs::create_dir_all(&registry).unwrap();
        let tool = Tool { name: "made-up", version: "1.0.0", sha256: "00" };
        assert!(tool.check_archive(&home).unwrap_err().to_string().contains("cargo left no"));

        std::fs::write(registry.join("made-up-1.0.0.crate"), b"other bytes").unwrap();
        assert!(tool.check_archive(&home).unwrap_err().to_string().contains("it is not built"));

        let right =
            Tool { sha256: "a3ead5eedad5df82318c51685dbc1c147a36d1ff8584fc82de6b08d0bf63a795", ..tool };
        right.check_archive(&home).unwrap();
        std::fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn version_and_checksum_are_in_the_directory_name() {
        let directory = CARGO_DENY.directory(Path::new("cache"));
        assert_eq!(directory, Path::new("cache/tools/cargo-deny-0.20.2-e528dfcbe739"));
    }
}
