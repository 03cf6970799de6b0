//! Fuzz targets: frames, the classification of messages, and the routing of a whole wire. Each begins with a corpus of
//! `tests/corpus`, changes it at random and compares what comes out with something simpler.
//!
//! A run of the tests is bounded and the same each time. `OFFSPRING_FUZZ_SECONDS=60` lets each target go on for that
//! long from a seed of its own; what fails is written below the system's directory for temporary files and named.

use crate::naive;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use offspring_protocol::{
    dsh::Frame,
    rpc::{Message, NotRpc},
};
use offspring_transport::{FrameDecoder, FrameEvent};
use serde_json::Value;

const SECONDS_VARIABLE: &str = "OFFSPRING_FUZZ_SECONDS";

/// Pieces that mean something in one of the targets.
const WORDS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\r",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\u0000",
    b"\\ud83d",
    b":",
    b",",
    b"null",
    b"1e400",
    b"-0",
    b"\"id\":1",
    b"\"id\":null,",
    b"\"method\":\"session.event\",",
    b"\"jsonrpc\":\"2.0\",",
    b"\"params\":{",
    b"\"sessionId\":\"r\",",
    b"\"parentSessionId\":\"r\",",
    b"\"childSessionId\":\"c\",",
    b"\"event\":{\"type\":\"x\"},",
    b"\"status\":\"idle\",",
    b"\"result\":{},",
    b"\"error\":{\"code\":1,\"message\":\"\"},",
];

/// A small generator: the same numbers from the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap() % bound.max(1)
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = format!("{}/../../tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "the corpus of {name} has {} files", files.len());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// One to six changes of an input.
fn changed(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = u8::try_from(random.below(256)).unwrap(),
            2 => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.iter().copied());
            }
            3 => {
                let end = (at + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            4 => {
                let end = (at + random.below(32)).min(input.len());
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.truncate(at),
        }
        input.truncate(4_096);
    }
    input
}

/// Runs a target over its corpus and what becomes of it.
fn fuzz(name: &str, rounds: usize, target: impl Fn(&[u8], &mut Random)) {
    let corpus = corpus(name);
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = if until.is_some() { since_epoch.as_secs() | 1 } else { 0x9e37_79b9_7f4a_7c15 };
    let mut random = Random(seed);
    let run = |input: &[u8], random: &mut Random| {
        if catch_unwind(AssertUnwindSafe(|| target(input, random))).is_err() {
            let file = std::env::temp_dir().join(format!("offspring-fuzz-{name}-{seed}"));
            std::fs::write(&file, input).unwrap();
            panic!("{name}: {} fails; it is in {}", input.escape_ascii(), file.display());
        }
    };
    for input in &corpus {
        run(input, &mut random);
    }
    let mut done = 0;
    while until.map_or(done < rounds, |until| Instant::now() < until) {
        let input = changed(&mut random, &corpus);
        run(&input, &mut random);
        done += 1;
    }
}

/// What came of a stretch of bytes, owned.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Frame(Vec<u8>),
    TooLarge(u64),
    Unterminated(u64),
}

fn seen(event: FrameEvent<'_>) -> Seen {
    match event {
        FrameEvent::Frame(frame) => Seen::Frame(frame.to_vec()),
        FrameEvent::FrameTooLarge { bytes } => Seen::TooLarge(bytes),
        FrameEvent::Unterminated { bytes, .. } => Seen::Unterminated(bytes),
    }
}

#[test]
fn w1_w2_fuzz_any_split_of_any_bytes_gives_the_same_frames() {
    const LIMIT: usize = 100;
    fuzz("frames", 30_000, |bytes, random| {
        let mut expected: Vec<Seen> = Vec::new();
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let large = line.len() > LIMIT;
            expected.push(if large { Seen::TooLarge(line.len() as u64) } else { Seen::Frame(line.to_vec()) });
        }
        if !last.is_empty() {
            expected.push(Seen::Unterminated(last.len() as u64));
        }
        let mut decoder = FrameDecoder::with_limit(LIMIT);
        let mut got = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at(1 + random.below(rest.len().min(40)));
            rest = after;
            while let Some(event) = decoder.decode(&mut piece) {
                got.push(seen(event));
            }
            assert!(decoder.buffer_capacity() <= LIMIT);
        }
        got.extend(decoder.finish().map(seen));
        assert_eq!(got, expected);
    });
}

#[test]
fn w3_fuzz_a_frame_is_read_as_a_whole_parser_reads_it() {
    fuzz("messages", 60_000, |bytes, _| {
        let careful = Message::classify(bytes);
        let read = Frame::read(bytes);
        let parsed = serde_json::from_slice::<Value>(bytes);
        match read {
            Ok(Frame::Notification(head)) => {
                assert!(matches!(careful.unwrap().message, Message::Notification { .. }));
                // A value knows less than a reader that leaves numbers and the insides of strings alone.
                let Ok(value) = parsed else { return };
                assert_eq!(value["method"].as_str(), Some(&*head.method));
                assert!(value.get("id").is_none());
                let params = &value["params"];
                let found = [
                    (&head.session, &params["sessionId"]),
                    (&head.parent, &params["parentSessionId"]),
                    (&head.child, &params["childSessionId"]),
                    (&head.status, &params["status"]),
                    (&head.event_type, &params["event"]["type"]),
                ];
                for (found, wanted) in found {
                    assert_eq!(found.as_deref(), wanted.as_str());
                }
            }
            Ok(Frame::Other(incoming)) => {
                assert_eq!(format!("{:?}", incoming.message), format!("{:?}", careful.unwrap().message));
            }
            Err(why) => {
                assert_eq!(why, careful.unwrap_err());
                match why {
                    NotRpc::NotJson { .. } => assert!(parsed.is_err()),
                    NotRpc::NotUtf8 { .. } => assert!(std::str::from_utf8(bytes).is_err()),
                    _ => {}
                }
            }
        }
    });
}

#[test]
fn t2_t6_t10_fuzz_a_wire_is_routed_as_a_naive_model_routes_it() {
    fuzz("wires", 200, |bytes, _| {
        naive::play(&naive::Step::read(bytes));
    });
}
