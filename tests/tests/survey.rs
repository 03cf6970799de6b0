//! The main job on real input: `offspring run examples/survey.yaml` finds what is
//! there, with evidence, and says what it could not see.
//!
//! Through the real binary, whose path is in `OFFSPRING_BIN`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "survey/awkward.rs"]
mod awkward;
#[path = "survey/planted.rs"]
mod planted;
#[path = "survey/run.rs"]
mod run;
#[path = "survey/world.rs"]
mod world;
