//! All tests of the client from outside, as one program: each one more would be linked anew after every change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[cfg(target_os = "linux")]
mod closing;
mod conformance;
mod fuzz;
mod hostile;
mod killed;
#[path = "model.rs"]
mod model;
#[path = "model/mod.rs"]
mod naive;
mod peer;
#[cfg(target_os = "linux")]
mod reports;
#[cfg(target_os = "linux")]
mod runtime;
#[cfg(target_os = "linux")]
mod sdk_counterparts;
mod turns;
mod websocket;
