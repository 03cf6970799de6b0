//! Faults that users of like systems reported, each with a test for ours: through the public interface of a
//! pool, with agents in this process that emit the event in question.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "reports/attribution.rs"]
mod attribution;
#[path = "reports/limits.rs"]
mod limits;
#[path = "reports/restart.rs"]
mod restart;
#[path = "reports/torn_log.rs"]
mod torn_log;
#[path = "tg/world.rs"]
mod world;
