//! A schema for one test, on the server that the tests are given.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;

use offspring_sessions::store::postgres::PostgresAddress;

const URL: &str = "OFFSPRING_POSTGRES_URL";

/// The URL of the server; `None` when there is none to be had, and then the test is counted.
pub(crate) fn server(test: &str) -> Option<String> {
    if let Ok(url) = std::env::var(URL) {
        return Some(url);
    }
    let skipped = std::env::var("OFFSPRING_SKIP_PEERS").unwrap_or_default();
    assert!(
        skipped.split(',').any(|peer| peer == "postgres"),
        "{URL} is not set: run `cargo xtask test`, or name a server whose schemas may be made and left"
    );
    let file = std::env::var_os("OFFSPRING_SKIPPED_FILE").unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    // In one write: other tests append at the same time.
    file.write_all(format!("postgres {test}\n").as_bytes()).unwrap();
    None
}

/// A schema of its own, that nobody has made yet.
pub(crate) fn fresh(url: &str) -> PostgresAddress {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes).unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}schema=t_{:016x}", u64::from_ne_bytes(bytes)).parse().unwrap()
}
