//! All tests of the client from outside, as one program: each one more would be linked anew after every change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[cfg(target_os = "linux")]
mod closing;
mod conformance;
mod fuzz;
mod holding;
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

/// One that is not named above would be compiled by nobody.
#[test]
fn every_file_beside_this_one_is_a_part_of_it() {
    let (named, beside) = (include_str!("main.rs"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    for file in std::fs::read_dir(beside).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|extension| extension == "rs") && name != "main" {
            assert!(named.contains(&format!("\nmod {name};")), "main.rs names no {name}");
        }
    }
}
