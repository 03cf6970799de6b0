//! The same streams to the Python SDK 0.2.1rc2 and to our client: what both make of them is equal, or differs in a way
//! that is wanted and written down (`offspring_tests::streams::wanted`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "differential/outcome.rs"]
mod outcome;
#[path = "differential/sdk.rs"]
mod sdk;

use std::{io::Write, path::PathBuf};

use offspring_tests::streams::{Features, generate};
use sdk::Sdk;

const SEEDS: std::ops::Range<u64> = 0..1000;

/// The python that can import the SDK; `None` where it could not be fetched, which is counted.
fn python(test: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("OFFSPRING_DSH_PYTHON") {
        return Some(named.into());
    }
    let skipped = std::env::var("OFFSPRING_SKIP_PEERS").unwrap_or_default();
    assert!(
        skipped.split(',').any(|peer| peer == "dsh"),
        "run `cargo xtask test`, or name a python in OFFSPRING_DSH_PYTHON"
    );
    let file = std::env::var_os("OFFSPRING_SKIPPED_FILE").expect("where skips are counted");
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    writeln!(file, "dsh {test}").unwrap();
    None
}

#[test]
fn the_random_streams_hold_what_they_have_to() {
    let streams: Vec<Features> = SEEDS.map(|seed| generate::stream(seed).features).collect();
    let with = |of: fn(&Features) -> u32| streams.iter().filter(|features| of(features) > 0).count();
    println!("frames {}", streams.iter().map(|features| features.frames).sum::<u32>());
    for (name, count) in [
        ("a reused id", with(|features| features.reused_ids)),
        ("a late finish", with(|features| features.late_finishes)),
        ("a cycle", with(|features| features.on_a_cycle)),
        ("a foreign session", with(|features| features.foreign)),
        ("three live subscriptions", with(|features| features.under_three_subscriptions)),
        ("last words of a descendant", with(|features| features.last_words_of_a_descendant)),
    ] {
        println!("{name}: {count}");
        assert!(count >= 200, "{name}: {count}");
    }
    println!("wild: {}", with(|features| features.wild));
    for (seed, features) in SEEDS.zip(&streams) {
        assert!((50..=2000).contains(&features.frames), "seed {seed}: {}", features.frames);
    }
}

#[test]
fn sdk_alone() {
    let Some(python) = python("sdk_alone") else { return };
    let mut sdk = Sdk::start(&python);
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    let (mut turns, mut ok, mut delivered) = (0, 0, 0);
    let began = std::time::Instant::now();
    for seed in SEEDS {
        let stream = generate::stream(seed).without_wanted();
        std::fs::write(&script, stream.script()).unwrap();
        let outcome = sdk.play(&stream, &script);
        if let Some(failed) = &outcome.failed {
            println!("{seed}: {failed}");
        }
        for turn in &outcome.turns {
            turns += 1;
            match &turn.result {
                Ok(result) => {
                    ok += 1;
                    delivered += result.notifications.len();
                }
                Err(failure) => println!("{seed}: {failure:?}"),
            }
        }
    }
    println!("{turns} turns, {ok} good, {delivered} delivered, {:?}", began.elapsed());
}
