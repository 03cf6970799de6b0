//! Random histories against naive models that do the obvious thing with maps and whole walks.
#![allow(clippy::unwrap_used, reason = "a test says by panicking what went wrong")]

mod lifecycle;
mod rollup;
mod router;
mod session_tree;
mod turn;

use offspring_protocol::SessionId;
use proptest::test_runner::Config;

/// At least 256 histories for every property.
fn cases() -> Config {
    Config { failure_persistence: None, ..Config::with_cases(512) }
}

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}
