//! Programs that tests talk to and that are not built here.
//!
//! A test that needs one which could not be fetched *because the connection failed* is skipped and counted; a peer
//! that is missing for any other reason fails the run, so that nobody takes a smaller test for a passed one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::fetch::Fetched;
use crate::postgres::{self, Server};
use crate::tools::Tool;
use crate::workspace::Workspace;

mod pypi;

use pypi::{Installed, PyPackages};

/// Names of the peers whose tests are to be skipped, separated by commas; set for the tests.
pub(crate) const SKIP_VARIABLE: &str = "OFFSPRING_SKIP_PEERS";
/// A file to which a test that skips itself appends one line, `peer test`; set for the tests.
pub(crate) const SKIPPED_FILE_VARIABLE: &str = "OFFSPRING_SKIPPED_FILE";

/// A program that tests need.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    needed_for: &'static str,
    source: Source,
}

/// Where a peer comes from. What another registry has becomes one more variant, pinned by version and checksum and
/// fetched by its ordinary client through [`crate::fetch::with_retries`] into the user's cache.
enum Source {
    /// Part of the system; looked for by running it with these arguments.
    System { probe: &'static [&'static str] },
    /// A browser under one of several names; as root on Debian it is installed if there is none. Its path is handed
    /// to the tests in the named variable.
    Browser { names: &'static [&'static str], variable: &'static str },
    /// A program of crates.io, handed to the tests in the named variable.
    #[allow(dead_code, reason = "the first peers are all part of the system")]
    Cargo { tool: &'static Tool, variable: &'static str },
    /// Packages of PyPI, all pinned by the requirements; an interpreter that finds them is handed over, and one file
    /// among them.
    PyPi { packages: &'static PyPackages, python: &'static str, program: &'static str },
    /// A PostgreSQL server, started for this run and handed over by its URL.
    Postgres,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "git",
        needed_for: "repositories with planted facts, and the project id",
        source: Source::System { probe: &["--version"] },
    },
    Peer {
        name: "sh",
        needed_for: "agents that are scripts",
        source: Source::System { probe: &["-c", "exit 0"] },
    },
    Peer {
        name: "awk",
        needed_for: "the agents of examples/survey.yaml",
        source: Source::System { probe: &["BEGIN { exit 0 }"] },
    },
    Peer {
        name: "sort",
        needed_for: "the agents of examples/survey.yaml",
        source: Source::System { probe: &["/dev/null"] },
    },
    Peer {
        name: "chromium",
        needed_for: "the page of `offspring export --format html`",
        source: Source::Browser {
            names: &["chromium", "chromium-browser", "google-chrome"],
            variable: "OFFSPRING_CHROMIUM",
        },
    },
    Peer {
        name: "dsh",
        needed_for: "a real agent runtime, and the SDK that ours is compared with",
        source: Source::PyPi {
            packages: &pypi::DSH,
            python: "OFFSPRING_DSH_PYTHON",
            program: "OFFSPRING_DSH_RUNTIME",
        },
    },
    Peer { name: "postgres", needed_for: "the store that many hosts share", source: Source::Postgres },
];

/// What happens to tests whose peer could not be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerPolicy {
    /// The run fails.
    Required,
    /// They are skipped, counted and named.
    #[default]
    Optional,
}

/// What the tests get to know about the peers.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Variables that hold the paths of fetched peers.
    pub(crate) variables: Vec<(String, String)>,
    /// Peers to do without.
    pub(crate) missing: Vec<String>,
    /// Stopped when this is dropped, and when this process ends in any other way.
    server: Option<Server>,
}

impl Prepared {
    /// A peer that was fetched, or that has to be done without.
    fn take(
        &mut self,
        peer: &Peer,
        variable: &str,
        found: Fetched<PathBuf>,
        policy: PeerPolicy,
    ) -> Result<()> {
        match found {
            Fetched::Ready(path) => {
                self.variables.push((variable.to_owned(), path.to_string_lossy().into_owned()));
            }
            Fetched::Unreachable(reason) if policy == PeerPolicy::Required => {
                bail!("peer `{}` ({}) is required: {reason}", peer.name, peer.needed_for);
            }
            Fetched::Unreachable(reason) => {
                eprintln!("   without peer `{}`: {reason}", peer.name);
                self.missing.push(peer.name.to_owned());
            }
        }
        Ok(())
    }
}

pub(crate) fn prepare(workspace: &Workspace, policy: PeerPolicy) -> Result<Prepared> {
    prepare_these(PEERS, policy, |tool| tool.ensure(workspace))
}

/// `cargo xtask peers`: fetches what is missing and prints what the tests are handed, for a shell.
pub(crate) fn print(workspace: &Workspace) -> Result<()> {
    let prepared = prepare(workspace, PeerPolicy::Optional)?;
    // The server ends with this program.
    for (name, value) in prepared.variables.iter().filter(|(name, _)| *name != postgres::URL_VARIABLE) {
        println!("export {name}='{}'", value.replace('\'', "'\\''"));
    }
    if !prepared.missing.is_empty() {
        println!("export {SKIP_VARIABLE}='{}'", prepared.missing.join(","));
    }
    Ok(())
}

fn prepare_these<F>(peers: &[Peer], policy: PeerPolicy, mut fetch: F) -> Result<Prepared>
where
    F: FnMut(&Tool) -> Result<Fetched<PathBuf>>,
{
    let mut prepared = Prepared::default();
    for peer in peers {
        match &peer.source {
            Source::System { probe } => {
                let mut command = Command::new(peer.name);
                command.args(*probe).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let found = command.status().is_ok_and(|status| status.success());
                if !found {
                    bail!(
                        "the tests need `{}` ({}); install it with the system's packages",
                        peer.name,
                        peer.needed_for
                    );
                }
            }
            Source::Browser { names, variable } => {
                prepared.take(peer, variable, browser(names, variable)?, policy)?;
            }
            Source::Postgres => {
                let programs = postgres::programs()?;
                if let Fetched::Ready(programs) = &programs {
                    let server = Server::start(programs, false).context("starting a PostgreSQL server")?;
                    prepared.variables.push((postgres::URL_VARIABLE.to_owned(), server.url()));
                    prepared.server = Some(server);
                }
                prepared.take(peer, postgres::PROGRAMS_VARIABLE, programs, policy)?;
            }
            Source::Cargo { tool, variable } => prepared.take(peer, variable, fetch(tool)?, policy)?,
            Source::PyPi { packages, python, program } => match packages.ensure()? {
                Fetched::Ready(Installed { interpreter, file }) => {
                    prepared.take(peer, python, Fetched::Ready(interpreter), policy)?;
                    prepared.take(peer, program, Fetched::Ready(file), policy)?;
                }
                Fetched::Unreachable(reason) => {
                    prepared.take(peer, program, Fetched::Unreachable(reason), policy)?;
                }
            },
        }
    }
    Ok(prepared)
}

/// The browser that is named, found or, where that is possible, installed.
fn browser(names: &[&str], variable: &str) -> Result<Fetched<PathBuf>> {
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        return Ok(Fetched::Ready(named.into()));
    }
    let find = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .flat_map(|dir| names.iter().map(move |name| dir.join(name)))
            .find(|program| program.is_file())
    };
    if let Some(found) = find() {
        return Ok(Fetched::Ready(found));
    }
    if !may_install() {
        let reason =
            format!("none of {} is on PATH; install one, or name it in {variable}", names.join(", "));
        return Ok(Fetched::Unreachable(reason));
    }
    if !install("chromium") {
        return Ok(Fetched::Unreachable("apt-get could not install chromium".to_owned()));
    }
    match find() {
        Some(found) => Ok(Fetched::Ready(found)),
        None => bail!("apt-get installed chromium, and it is not on PATH"),
    }
}

/// Whether packages of the system can be installed: as root, on Debian.
pub(crate) fn may_install() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    is_root && Path::new("/etc/debian_version").exists()
}

pub(crate) fn install(package: &str) -> bool {
    eprintln!("   installing {package} with the system's packages; this takes a minute");
    // Bounded: a mirror that hangs must not keep the tests waiting for ever.
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["600", "apt-get", "-q", "-y"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    apt(&["update"]) && apt(&["install", "--no-install-recommends", package])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::CARGO_DENY;

    const FETCHED: &[Peer] = &[Peer {
        name: "deny",
        needed_for: "nothing",
        source: Source::Cargo { tool: &CARGO_DENY, variable: "DENY_BIN" },
    }];

    #[test]
    fn no_connection_skips_unless_peers_are_required() {
        let offline = |_: &Tool| Ok(Fetched::Unreachable("refused".to_owned()));
        let prepared = prepare_these(FETCHED, PeerPolicy::Optional, offline).unwrap();
        assert_eq!(prepared.missing, ["deny"]);
        let error = prepare_these(FETCHED, PeerPolicy::Required, offline).unwrap_err();
        assert!(error.to_string().contains("required"));
    }

    #[test]
    fn any_other_failure_fails_under_both_policies() {
        for policy in [PeerPolicy::Optional, PeerPolicy::Required] {
            assert!(prepare_these(FETCHED, policy, |_| bail!("does not compile")).is_err());
            let missing: &[Peer] = &[Peer {
                name: "offspring-no-such-program",
                needed_for: "nothing",
                source: Source::System { probe: &[] },
            }];
            assert!(prepare_these(missing, policy, |_| bail!("not asked")).is_err());
        }
    }
}
