//! What is kept of a user is that user's alone, in the place that was named or nowhere, and never leaves the machine.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "my_data/alone.rs"]
mod alone;
#[path = "my_data/no_network.rs"]
mod no_network;
#[path = "my_data/places.rs"]
mod places;
