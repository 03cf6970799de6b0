//! What only the store in a file must do: outlive its process, share its file, and say what is wrong with it.
#![cfg(all(feature = "sqlite", unix))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../parts/any_history.rs"]
mod any_history;
mod damage;
mod file;
mod histories;
#[path = "../parts/other_process.rs"]
mod other_process;
mod plant;
#[path = "../parts/planted.rs"]
mod planted;
mod processes;
