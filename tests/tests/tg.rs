//! The test specifications TG-1 … TG-26 of RFC-0028 and the tests that its other implementation lacked,
//! through the public interface of a pool. `tests/TG.md` maps each to its test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "tg/delegation.rs"]
mod delegation;
#[path = "tg/extra.rs"]
mod extra;
#[path = "tg/sessions.rs"]
mod sessions;
#[path = "tg/table.rs"]
mod table;
#[path = "tg/world.rs"]
mod world;
