//! What only the store in a file must do: outlive its process, share its file, and say what is wrong with it.
#![cfg(all(feature = "sqlite", unix))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod damage;
mod file;
mod histories;
mod other_process;
mod plant;
mod processes;
