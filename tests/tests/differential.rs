//! The same streams to the Python SDK 0.2.1rc2 and to our client: what both make of them is equal, or differs in a way
//! that is wanted and written down (`offspring_tests::streams::wanted`).
//!
//! `cargo nextest run -p offspring-tests --test differential`, with a python that has the SDK in
//! `OFFSPRING_DSH_PYTHON`. `OFFSPRING_STREAM=SEED` plays one stream and prints where it differs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "differential/ours.rs"]
mod ours;
#[path = "differential/outcome.rs"]
mod outcome;
#[path = "differential/sdk.rs"]
mod sdk;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use offspring_tests::streams::{
    Features, Step, Stream, generate, trace,
    wanted::{MARK, Wanted},
};
use outcome::{Difference, Outcome, difference};
use sdk::Sdk;
use tokio::runtime::Runtime;

/// The seeds of the random streams.
const SEEDS: std::ops::Range<u64> = 0..1000;
/// How many of them must hold each of what they are there for.
const AT_LEAST: usize = 200;
/// How many plays of both sides a smaller stream may take to be found.
const SHRINKING_PLAYS: usize = 300;

/// The python that can import the SDK; `None` where it could not be fetched, which is counted.
fn python(test: &str) -> Option<PathBuf> {
    offspring_tests::dsh::peer("OFFSPRING_DSH_PYTHON", test)
}

/// Both clients, and where the scripts of their streams are put.
struct Both {
    sdk: Sdk,
    runtime: Runtime,
    directory: tempfile::TempDir,
    /// Of the SDK: turns that have a result, and what they and the subscriptions got.
    results: usize,
    notifications: usize,
}

impl Both {
    fn new(python: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            sdk: Sdk::start(python),
            runtime,
            directory: tempfile::tempdir().unwrap(),
            results: 0,
            notifications: 0,
        }
    }

    fn sdk(&mut self, stream: &Stream) -> Outcome {
        let script = self.script("sdk", stream);
        self.sdk.play(stream, &script)
    }

    fn ours(&self, stream: &Stream) -> Outcome {
        ours::play(&self.runtime, stream, &self.script("ours", stream))
    }

    fn script(&self, name: &str, stream: &Stream) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, stream.script()).unwrap();
        path
    }

    /// Where the two differ without wanting to.
    fn difference(&mut self, stream: &Stream) -> Option<Difference> {
        let sdk = self.sdk(&stream.without_wanted());
        let results = sdk.turns.iter().filter_map(|turn| turn.result.as_ref().ok());
        for result in results {
            self.results += 1;
            self.notifications += result.notifications.len();
        }
        self.notifications += sdk.watched.iter().map(Vec::len).sum::<usize>();
        difference(&sdk, &self.ours(stream).without(MARK))
    }

    /// As [`difference`](Self::difference), with a smaller stream that shows it too.
    fn report(&mut self, stream: &Stream) -> Option<String> {
        let first = self.difference(stream)?;
        let mut smaller = stream.clone();
        let mut plays = 0;
        let mut size = smaller.frames().div_ceil(2);
        while size > 0 && plays < SHRINKING_PLAYS {
            let mut from = 0;
            let mut removed = false;
            while from < smaller.frames() && plays < SHRINKING_PLAYS {
                let tried =
                    smaller.without(&|place, frame| !frame.needed && (from..from + size).contains(&place));
                plays += 1;
                if tried.frames() < smaller.frames() && self.difference(&tried).is_some() {
                    smaller = tried;
                    removed = true;
                } else {
                    from += size;
                }
            }
            if size > 1 || !removed {
                size /= 2;
            }
        }
        let last = self.difference(&smaller).unwrap_or_else(|| first.clone());
        let mut report = format!(
            "{}: {}\n  SDK:  {}\n  ours: {}\nthe smallest of {plays} attempts has {} lines: {}\n  SDK:  {}\n  ours: {}\n",
            stream.name,
            first.place,
            first.sdk,
            first.ours,
            smaller.frames(),
            last.place,
            last.sdk,
            last.ours
        );
        writeln!(report, "{:?}", smaller.operations).unwrap();
        let script = String::from_utf8_lossy(&smaller.script()).into_owned();
        for line in script.lines().take(60) {
            writeln!(report, "  {}", line.chars().take(400).collect::<String>()).unwrap();
        }
        Some(report)
    }
}

#[test]
fn the_random_streams_hold_what_they_are_there_for() {
    let streams: Vec<Features> = SEEDS.map(|seed| generate::stream(seed).features).collect();
    let with = |of: fn(&Features) -> u32| streams.iter().filter(|features| of(features) > 0).count();
    for (name, count) in [
        ("a reused id", with(|features| features.reused_ids)),
        ("a late finish", with(|features| features.late_finishes)),
        ("a cycle", with(|features| features.on_a_cycle)),
        ("a foreign session", with(|features| features.foreign)),
        ("three live subscriptions", with(|features| features.under_three_subscriptions)),
        ("words of a descendant in an open turn", with(|features| features.last_words_of_a_descendant)),
    ] {
        println!("{name}: {count} streams");
        assert!(count >= AT_LEAST, "{name}: {count} streams");
    }
    for (seed, features) in SEEDS.zip(&streams) {
        assert!((50..=2000).contains(&features.frames), "seed {seed}: {} lines", features.frames);
    }
}

#[test]
fn t4_t12_random_streams_come_out_of_both_clients_alike() {
    let Some(python) = python("t4_t12_random_streams_come_out_of_both_clients_alike") else { return };
    let seeds: Vec<u64> = match std::env::var("OFFSPRING_STREAM") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => SEEDS.collect(),
    };
    let all = seeds.len() == 1000;
    // Two at a time: while the SDK works on one, ours works on the other.
    let left = Mutex::new(seeds.into_iter());
    let (reports, counts) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::<Wanted, usize>::new()));
    let compared = Mutex::new((0, 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut both = Both::new(&python);
                while let Some(seed) = { left.lock().unwrap().next() } {
                    let stream = generate::stream(seed);
                    for wanted in stream.wanted() {
                        *counts.lock().unwrap().entry(wanted).or_default() += 1;
                    }
                    if let Some(report) = both.report(&stream) {
                        reports.lock().unwrap().push(report);
                        if reports.lock().unwrap().len() >= 3 {
                            break;
                        }
                    }
                }
                let mut compared = compared.lock().unwrap();
                *compared = (compared.0 + both.results, compared.1 + both.notifications);
            });
        }
    });
    for (wanted, lines) in counts.into_inner().unwrap() {
        println!("wanted: {wanted:?} ({}), {lines} lines: {}", wanted.rule(), wanted.reason());
    }
    let (results, notifications) = compared.into_inner().unwrap();
    println!("{results} turns with a result and {notifications} notifications were compared");
    let reports = reports.into_inner().unwrap();
    assert!(reports.is_empty(), "{} streams differ:\n{}", reports.len(), reports.join("\n"));
    assert!(!all || (results >= 2000 && notifications >= 200_000), "too little was compared");
}

#[test]
fn recorded_traces_come_out_of_both_clients_alike() {
    let Some(python) = python("recorded_traces_come_out_of_both_clients_alike") else { return };
    let mut both = Both::new(&python);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/dsh");
    let mut traces: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    traces.sort();
    assert!(traces.len() >= 30, "{} traces", traces.len());
    let mut turns = 0;
    for path in &traces {
        let stream = trace::stream(path);
        if let Some(report) = both.report(&stream) {
            panic!("{report}");
        }
        turns += both.ours(&stream).turns.iter().filter(|turn| turn.result.is_ok()).count();
    }
    assert!(turns >= 30, "only {turns} turns have a result");
}

#[test]
fn each_wanted_difference_has_a_stream_that_shows_it() {
    let Some(python) = python("each_wanted_difference_has_a_stream_that_shows_it") else { return };
    let mut both = Both::new(&python);
    for wanted in Wanted::ALL {
        let stream = wanted.minimal();
        let sdk = both.sdk(&stream);
        let ours = both.ours(&stream);
        assert!(difference(&sdk, &ours).is_some(), "{wanted:?}: both do the same");
        assert!(ours.turns.iter().all(|turn| turn.result.is_ok()), "{wanted:?}: {ours:?}");
        if let Some(found) = both.difference(&stream) {
            panic!("{wanted:?} is not all that differs: {found:?}");
        }
        // A stream in which the line does nothing for either would prove nothing.
        assert!(stream.steps.iter().any(|step| matches!(step, Step::Frame(frame) if !frame.needed)));
    }
}
