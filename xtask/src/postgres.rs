//! PostgreSQL for the tests: a server of their own, never one that somebody uses.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    fetch::Fetched,
    peers::{install, may_install},
};

#[expect(dead_code, reason = "tests stop and start a server of their own")]
mod server;

pub(crate) use server::Server;

/// The URL of the server, with its password; set for the tests.
pub(crate) const URL_VARIABLE: &str = "OFFSPRING_POSTGRES_URL";
/// The directory with `initdb` and `postgres`, for tests that stop and kill a server; set for the tests, and read.
pub(crate) const PROGRAMS_VARIABLE: &str = "OFFSPRING_POSTGRES_BIN";

/// Debian makes a server and starts it with the package, unless this says otherwise.
const NO_SERVER: (&str, &str) =
    ("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\nstart_conf = 'manual'\n");

/// The directory with the programs of a server; as root on Debian they are installed if there are none.
pub(crate) fn programs() -> Result<Fetched<PathBuf>> {
    let named = std::env::var_os(PROGRAMS_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    if let Some(found) = server::programs(named.clone()) {
        return Ok(Fetched::Ready(found));
    }
    if let Some(named) = named {
        bail!("{PROGRAMS_VARIABLE} is {}, which has no initdb, postgres and pg_ctl", named.display());
    }
    if !may_install() {
        let reason = format!(
            "no PostgreSQL server is installed; install one, or name its programs in {PROGRAMS_VARIABLE}"
        );
        return Ok(Fetched::Unreachable(reason));
    }
    if !install_without_a_server()? {
        return Ok(Fetched::Unreachable("apt-get could not install postgresql".to_owned()));
    }
    match server::programs(None) {
        Some(found) => Ok(Fetched::Ready(found)),
        None => bail!("apt-get installed postgresql, and its programs are not in /usr/lib/postgresql"),
    }
}

fn install_without_a_server() -> Result<bool> {
    let (path, text) = (Path::new(NO_SERVER.0), NO_SERVER.1);
    if !path.exists() {
        let directory = path.parent().context("it has a directory")?;
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(install("postgresql"))
}
