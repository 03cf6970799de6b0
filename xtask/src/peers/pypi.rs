//! Packages of PyPI: installed by pip once for a user, each pinned by version and checksum.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use sha2::{Digest, Sha256};

use super::{install, may_install};
use crate::fetch::{AttemptError, Fetched, attempt, cache_directory, with_retries};
use crate::tools::hex;

/// Some packages and what is used of them.
pub(crate) struct PyPackages {
    /// For the directory and for people.
    name: &'static str,
    /// All of them, what they import included, with `--hash` for each file.
    requirements: &'static str,
    /// A module that can be imported once they are there.
    module: &'static str,
    /// A program among them.
    program: &'static str,
}

/// The runtime and its Python SDK.
pub(super) const DSH: PyPackages = PyPackages {
    name: "dsh-0.2.1rc2",
    requirements: include_str!("dsh-requirements.txt"),
    module: "deepseek_harness",
    program: "deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-x64",
};

/// What was installed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Installed {
    /// A python3 that finds the packages.
    pub(super) interpreter: PathBuf,
    /// The program among them.
    pub(super) file: PathBuf,
}

impl PyPackages {
    /// Where they are for an interpreter of this version: its compiled modules fit no other. A second clone finds them
    /// there and fetches nothing.
    fn directory(&self, cache: &Path, version: &str) -> PathBuf {
        let sum: String = hex(&Sha256::digest(self.requirements.as_bytes())).chars().take(12).collect();
        cache.join("peers").join(format!("{}-{sum}-python{version}", self.name))
    }

    /// The packages, installed first if this user has never had them.
    pub(super) fn ensure(&self) -> Result<Fetched<Installed>> {
        if !(cfg!(target_os = "linux") && cfg!(target_arch = "x86_64")) {
            let reason = format!("{} is published for Linux on x86-64 only", self.name);
            return Ok(Fetched::Unreachable(reason));
        }
        let cache = cache_directory()?;
        let mut python = python();
        if python.is_none() && may_install() && install("python3-pip") {
            python = self::python();
        }
        let Some((python, version)) = python else {
            return Ok(Fetched::Unreachable("no python3 with pip is on PATH; install one".to_owned()));
        };
        let directory = self.directory(&cache, &version);
        if directory.is_dir() {
            return self.installed(&python, &directory).map(Fetched::Ready);
        }
        eprintln!("   fetching {} once for this user, into {}", self.name, directory.display());
        // Beside the final place, so that the rename is one step; another xtask may do the same at once.
        let staging = cache.join("peers").join(format!(".{}-{}", self.name, std::process::id()));
        let fetched = self.fetch(&python, &staging);
        if let Ok(Fetched::Ready(())) = fetched
            && let Err(error) = std::fs::rename(&staging, &directory)
            && !directory.is_dir()
        {
            return Err(anyhow!(error).context(format!("moving to {}", directory.display())));
        }
        // Space is given back on a best-effort basis: what is left over harms nobody.
        drop(std::fs::remove_dir_all(&staging));
        match fetched? {
            Fetched::Ready(()) => self.installed(&python, &directory).map(Fetched::Ready),
            Fetched::Unreachable(reason) => Ok(Fetched::Unreachable(reason)),
        }
    }

    fn fetch(&self, python: &Path, staging: &Path) -> Result<Fetched<()>> {
        with_retries(self.name, || {
            // What an attempt that broke off left would make the next one keep half of it.
            drop(std::fs::remove_dir_all(staging));
            let requirements = staging.join("requirements.txt");
            std::fs::create_dir_all(staging)
                .and_then(|()| std::fs::write(&requirements, self.requirements))
                .with_context(|| format!("writing {}", requirements.display()))
                .map_err(AttemptError::Other)?;
            let mut command = Command::new(python);
            command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
            // Only what is pinned, and no build script of anybody.
            command.args(["--require-hashes", "--only-binary=:all:", "--no-deps", "--no-compile"]);
            command.args(["--timeout", "30", "--retries", "1", "--root-user-action=ignore"]);
            command.arg("--target").arg(staging.join("packages")).arg("--requirement").arg(&requirements);
            command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
            attempt(command).map(|_| ())
        })
    }

    /// The interpreter for them, which is a script: the packages belong to nobody's python.
    fn installed(&self, python: &Path, directory: &Path) -> Result<Installed> {
        let file = directory.join("packages").join(self.program);
        anyhow::ensure!(
            file.is_file(),
            "{} has no {}; remove the directory",
            directory.display(),
            self.program
        );
        let interpreter = directory.join("python3");
        if !interpreter.is_file() {
            write_interpreter(&interpreter, python, &directory.join("packages"))?;
        }
        let mut command = Command::new(&interpreter);
        command.arg("-c").arg(format!("import {}", self.module)).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("starting {}", interpreter.display()))?;
        anyhow::ensure!(
            output.status.success(),
            "{} cannot import {}:\n{}\nremove {} to have it fetched again",
            interpreter.display(),
            self.module,
            String::from_utf8_lossy(&output.stderr).trim_end(),
            directory.display()
        );
        Ok(Installed { interpreter, file })
    }
}

/// A python3 with pip and its version, without what wraps it: a wrapper may look at the environment of its caller.
fn python() -> Option<(PathBuf, String)> {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys, pip; print(sys.executable); print('%d.%d' % sys.version_info[:2])"]);
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?;
    let mut lines = said.lines();
    Some((lines.next()?.into(), lines.next()?.to_owned()))
}

fn write_interpreter(path: &Path, python: &Path, packages: &Path) -> Result<()> {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec {} \"$@\"\n", quoted(packages), quoted(python));
    // Under another name first: somebody may start it while it is written.
    let staging = path.with_extension(std::process::id().to_string());
    std::fs::write(&staging, script).with_context(|| format!("writing {}", staging.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::rename(&staging, path).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned_by_version_and_checksum() {
        let whole = DSH.requirements.replace("\\\n", " ");
        let lines: Vec<&str> =
            whole.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(lines.len() > 2, "{lines:?}");
        for line in lines {
            assert!(line.contains("==") && line.contains("--hash=sha256:"), "{line}");
        }
    }

    #[test]
    fn other_requirements_or_another_python_are_another_directory() {
        let changed = PyPackages { requirements: "x==1 --hash=sha256:00", ..DSH };
        let cache = Path::new("cache");
        assert_ne!(DSH.directory(cache, "3.11"), changed.directory(cache, "3.11"));
        assert_ne!(DSH.directory(cache, "3.11"), DSH.directory(cache, "3.12"));
    }
}
