//! Readers and writers over real streams: what one side writes, whole and in order, the other reads.
#![allow(
    clippy::unwrap_used,
    reason = "everything here is test code; clippy knows only the #[test] functions"
)]

use std::{
    collections::VecDeque,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use offspring_protocol::rpc::{self, Id, OwnedMessage};
use offspring_transport::{
    DiagnosticLimits, FrameEvent, FrameReader, FrameWriter, Inbound, Junk, MessageReader, Pending, ReadError,
    SharedDiagnostics, WriteError,
};
use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex},
    sync::Mutex,
};

/// A stream that does, poll by poll, what it is told.
#[derive(Default)]
struct Scripted {
    steps: VecDeque<Step>,
    taken: Vec<u8>,
    flushes: usize,
    closed: bool,
}

enum Step {
    /// Reading: these bytes. Writing: takes as many.
    Bytes(&'static [u8]),
    Pending,
    Fail(io::ErrorKind),
}

impl Scripted {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.steps.pop_front() {
            Some(Step::Bytes(bytes)) => buffer.put_slice(bytes),
            Some(Step::Pending) => return Poll::Pending,
            Some(Step::Fail(kind)) => return Poll::Ready(Err(kind.into())),
            None => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = match self.steps.pop_front() {
            Some(Step::Bytes(some)) => some.len().min(bytes.len()),
            Some(Step::Pending) => return Poll::Pending,
            Some(Step::Fail(kind)) => return Poll::Ready(Err(kind.into())),
            None => bytes.len(),
        };
        self.taken.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

/// Polls once and drops the future.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn method(inbound: &Inbound) -> &str {
    match &inbound.message {
        OwnedMessage::Request { method, .. } | OwnedMessage::Notification { method, .. } => method,
        OwnedMessage::Response { .. } => "",
    }
}

fn notification(name: &str) -> String {
    rpc::notification(name, &()).unwrap() + "\n"
}

#[tokio::test]
async fn w1_o21_a_message_split_at_any_byte_comes_out_of_the_stream_as_it_went_in() {
    let odd = "\u{2028}\u{2029}\u{85}\u{b}\u{c}\r";
    // As a peer that escapes nothing would write it: the odd characters raw, where JSON allows them raw.
    let raw = "{\"jsonrpc\":\"2.0\",\"method\":\"a\u{2028}b\u{2029}c\u{85}d\",\"params\":[ \r 1]}\r\n";
    let bytes = [raw, &notification(odd)].concat();
    for cut in 0..=bytes.len() {
        let (ours, mut theirs) = duplex(4096);
        let mut reader = MessageReader::new(ours);
        theirs.write_all(&bytes.as_bytes()[..cut]).await.unwrap();
        let mut got = Vec::new();
        while let Poll::Ready(next) = poll_once(reader.next()) {
            got.push(next.unwrap().unwrap());
        }
        theirs.write_all(&bytes.as_bytes()[cut..]).await.unwrap();
        drop(theirs);
        while let Some(inbound) = reader.next().await.unwrap() {
            got.push(inbound);
        }
        let methods: Vec<_> = got.iter().map(method).collect();
        assert_eq!(methods, ["a\u{2028}b\u{2029}c\u{85}d", odd], "cut at {cut}");
        assert_eq!(reader.diagnostics().snapshot().counts().total(), 0);
    }
}

#[tokio::test]
async fn w2_o20_a_frame_over_the_limit_fails_only_itself_in_a_stream() {
    let (ours, theirs) = duplex(1000);
    let limit = 200_000;
    let frame = |size: usize| notification(&"x".repeat(size + 1 - notification("").len()));
    let writing = async move {
        let mut writer = FrameWriter::with_limit(theirs, limit + 2);
        for size in [limit, limit + 1, limit + 2, 100] {
            writer.send(frame(size).trim_end().as_bytes()).await.unwrap();
        }
    };
    let mut reader = MessageReader::with_limit(ours, limit);
    let reading = async {
        let mut arrived = Vec::new();
        while let Some(inbound) = reader.next().await.unwrap() {
            arrived.push((inbound.line, inbound.frame_bytes));
        }
        arrived
    };
    let ((), arrived) = tokio::join!(writing, reading);
    assert_eq!(arrived, [(1, limit), (4, 100)]);
    let diagnostics = reader.diagnostics().snapshot();
    let why: Vec<_> = diagnostics.last_lines().map(|kept| (kept.line, kept.why.clone())).collect();
    assert_eq!(
        why,
        [(2, Junk::TooLarge { bytes: limit as u64 + 1 }), (3, Junk::TooLarge { bytes: limit as u64 + 2 })]
    );
}

/// What O22 reports: a banner, a log line and an object without `jsonrpc` among the frames.
fn polluted() -> String {
    [
        "\u{1b}[32mWelcome to the runtime v0.2\u{1b}[0m\n",
        "2026-01-01T00:00:00Z INFO listening\n",
        r#"{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{}}}"#,
        "\n\n \t\r\n",
        "{\"level\":\"info\",\"msg\":\"ready\"}\n",
        &notification("first"),
        "{\"method\":\"second\"}\n",
        "\u{fffd}",
    ]
    .concat()
}

#[tokio::test]
async fn w3_o22_a_banner_among_the_frames_is_counted_and_kept_and_the_handshake_succeeds() {
    let polluted = [polluted().as_bytes(), b"\xff\n[]\n{\"jsonrpc\":\"2.0\",\"me"].concat();
    let mut reader = MessageReader::new(&polluted[..]);
    let answer = reader.next().await.unwrap().unwrap();
    assert!(matches!(answer.message, OwnedMessage::Response { id, outcome: Ok(_) } if id == Id::from(1)));
    assert_eq!((answer.line, answer.strict), (3, true));
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!((method(&first), first.line, first.strict), ("first", 7, true));
    let second = reader.next().await.unwrap().unwrap();
    assert_eq!((method(&second), second.line, second.strict), ("second", 8, false));
    assert_eq!(second.frame_bytes, r#"{"method":"second"}"#.len());
    assert!(reader.next().await.unwrap().is_none());
    assert!(reader.next().await.unwrap().is_none());

    let diagnostics = reader.diagnostics().snapshot();
    let counts = diagnostics.counts();
    assert_eq!((counts.not_json, counts.not_rpc, counts.not_utf8, counts.unterminated), (2, 2, 1, 1));
    assert_eq!(counts.total(), 6);
    assert_eq!((diagnostics.blank_lines(), diagnostics.tolerated_unversioned()), (2, 1));
    let kept: Vec<_> = diagnostics.last_lines().map(|kept| (kept.line, kept.head.to_vec())).collect();
    assert_eq!(kept[0], (1, b"\x1b[32mWelcome to the runtime v0.2\x1b[0m".to_vec()), "never repaired");
    assert_eq!(kept[1].1, b"2026-01-01T00:00:00Z INFO listening");
    assert_eq!(kept[2], (6, br#"{"level":"info","msg":"ready"}"#.to_vec()));
    assert_eq!(kept[3], (9, b"\xef\xbf\xbd\xff".to_vec()));
    assert_eq!(kept[5], (11, br#"{"jsonrpc":"2.0","me"#.to_vec()));
}

#[tokio::test]
async fn w3_o22_strict_reading_fails_with_the_line_quoted_and_can_go_on() {
    let polluted = polluted();
    let mut reader = MessageReader::new(polluted.as_bytes()).strict(true);
    let error = reader.next().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer broke the protocol on line 1: the line is not JSON: expected value at byte 1: \
         \"\\u{1b}[32mWelcome to the runtime v0.2\\u{1b}[0m\""
    );
    assert!(matches!(reader.next().await, Err(ReadError::NotStrict(_))));
    assert_eq!(reader.next().await.unwrap().unwrap().line, 3);
    assert!(matches!(reader.next().await, Err(ReadError::NotStrict(kept)) if kept.line == 6));
    assert_eq!(reader.next().await.unwrap().unwrap().line, 7);
    assert!(matches!(reader.next().await, Err(ReadError::NotStrict(kept)) if kept.why == Junk::Unversioned));
    assert!(matches!(
        reader.next().await,
        Err(ReadError::NotStrict(kept)) if kept.why == Junk::Unterminated { bytes: 3 }
    ));
    assert!(reader.next().await.unwrap().is_none());
    let diagnostics = reader.diagnostics().snapshot();
    assert_eq!((diagnostics.counts().total(), diagnostics.counts().unversioned), (5, 1));
    assert_eq!(diagnostics.tolerated_unversioned(), 0);
}

#[tokio::test]
async fn w3_diagnostics_can_be_shared_and_bounded_by_who_reads() {
    let shared = SharedDiagnostics::new(DiagnosticLimits { lines: 1, line_bytes: 2 });
    let mut reader = MessageReader::new(&b"one\ntwo\n"[..]).with_diagnostics(shared.clone());
    assert!(reader.next().await.unwrap().is_none());
    let snapshot = shared.snapshot();
    assert_eq!(snapshot.counts().not_json, 2);
    assert_eq!(
        snapshot.last_lines().map(|kept| (kept.line, &*kept.head)).collect::<Vec<_>>(),
        [(2, &b"tw"[..])]
    );
}

#[tokio::test]
async fn w5_an_answer_to_nobody_and_a_second_answer_are_diagnostics() {
    let bytes = [
        rpc::response(&Id::from(1), &"one").unwrap(),
        rpc::response(&Id::from(9), &"nobody").unwrap(),
        rpc::response(&Id::from(1), &"again").unwrap(),
        rpc::response(&Id::from(2), &"two").unwrap(),
        String::new(),
    ]
    .join("\n");
    let mut pending = Pending::with_limit(8);
    pending.insert(Id::from(1), "first").unwrap();
    pending.insert(Id::from(2), "second").unwrap();
    let mut reader = MessageReader::new(bytes.as_bytes());
    let mut answered = Vec::new();
    while let Some(inbound) = reader.next().await.unwrap() {
        let OwnedMessage::Response { id, outcome } = inbound.message else { panic!("no response") };
        match pending.take(&id) {
            Ok(waiter) => answered.push((waiter, outcome.unwrap().get().to_owned())),
            Err(unknown) => {
                reader.diagnostics().note(inbound.line, Junk::UnknownId, unknown.id.to_string().as_bytes());
            }
        }
    }
    assert_eq!(answered, [("first", "\"one\"".to_owned()), ("second", "\"two\"".to_owned())]);
    let diagnostics = reader.diagnostics().snapshot();
    assert_eq!(diagnostics.counts().unknown_id, 2);
    let kept: Vec<_> = diagnostics.last_lines().map(|kept| (kept.line, &*kept.head)).collect();
    assert_eq!(kept, [(2, &b"9"[..]), (3, &b"1"[..])]);
}

#[tokio::test]
async fn w1_a_read_that_is_dropped_or_interrupted_loses_nothing() {
    let steps = [
        Step::Bytes(b"on"),
        Step::Pending,
        Step::Bytes(b"e\ntwo\nth"),
        Step::Fail(io::ErrorKind::Interrupted),
        Step::Pending,
        Step::Bytes(b"ree\r"),
        Step::Pending,
        Step::Bytes(b"\n"),
    ];
    let mut reader = FrameReader::new(Scripted::new(steps));
    assert!(poll_once(reader.next()).is_pending());
    assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Frame(b"one")));
    assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Frame(b"two")));
    assert!(poll_once(reader.next()).is_pending());
    assert!(poll_once(reader.next()).is_pending());
    assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Frame(b"three")));
    assert_eq!(reader.next().await.unwrap(), None);
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test]
async fn w1_a_stream_that_fails_says_so_once_reports_the_open_line_and_ends() {
    let steps =
        [Step::Bytes(b"{}\n{\"op"), Step::Fail(io::ErrorKind::ConnectionReset), Step::Bytes(b"never read\n")];
    let mut reader = FrameReader::new(Scripted::new(steps));
    assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Frame(b"{}")));
    let ReadError::Io(error) = reader.next().await.unwrap_err() else { panic!("no I/O error") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(reader.next().await.unwrap(), Some(FrameEvent::Unterminated { bytes: 4, head: b"{\"op" }));
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test]
async fn w1_frames_that_would_not_be_read_back_are_refused_and_nothing_of_them_is_written() {
    let mut writer = FrameWriter::with_limit(Vec::new(), 5);
    assert!(matches!(writer.send(b"a\nb").await, Err(WriteError::LineEnd { at: 1 })));
    assert!(matches!(writer.send(b"a\n").await, Err(WriteError::LineEnd { at: 1 })));
    assert!(matches!(writer.send(b"ab\r").await, Err(WriteError::LineEnd { at: 2 })));
    let error = writer.send(b"123456").await.unwrap_err();
    assert_eq!(error.to_string(), "refused to write a frame of 6 bytes; the limit is 5");
    writer.send(b"12345").await.unwrap();
    writer.send(b"").await.unwrap();
    writer.send(b"a\rb").await.unwrap();
    assert_eq!(writer.get_ref(), b"12345\n\na\rb\n");
}

#[tokio::test]
async fn w1_a_write_that_is_dropped_half_way_never_cuts_a_frame() {
    let steps = [Step::Bytes(b"123"), Step::Pending, Step::Fail(io::ErrorKind::Interrupted), Step::Pending];
    let mut writer = FrameWriter::new(Scripted::new(steps));
    assert!(poll_once(writer.send(b"first frame")).is_pending());
    assert_eq!((&writer.get_ref().taken[..], writer.queued_bytes()), (&b"fir"[..], 9));
    assert!(poll_once(writer.flush()).is_pending());
    writer.send(b"second").await.unwrap();
    assert_eq!(writer.get_ref().taken, b"first frame\nsecond\n");
    assert_eq!((writer.queued_bytes(), writer.get_ref().flushes), (0, 1));
}

#[tokio::test]
async fn w1_a_feed_dropped_behind_a_full_queue_has_not_queued_its_frame() {
    const HIGH: usize = 64 * 1024;
    let mut writer = FrameWriter::new(Scripted::new([Step::Pending, Step::Pending]));
    // One byte below the mark, then one frame that goes over it: neither touches the stream.
    writer.feed(&vec![b'x'; HIGH - 2]).await.unwrap();
    assert_eq!(writer.queued_bytes(), HIGH - 1);
    writer.feed(b"").await.unwrap();
    assert_eq!((writer.queued_bytes(), writer.get_ref().taken.len()), (HIGH, 0));
    assert!(poll_once(writer.feed(b"late")).is_pending());
    assert_eq!(writer.queued_bytes(), HIGH);
    assert!(poll_once(writer.feed(b"late")).is_pending());
    writer.feed(b"late").await.unwrap();
    assert_eq!((writer.queued_bytes(), writer.get_ref().taken.len()), (5, HIGH));
    assert_eq!(writer.get_ref().flushes, 0);
    writer.shutdown().await.unwrap();
    assert!(writer.get_ref().taken.ends_with(b"x\n\nlate\n"));
    assert_eq!((writer.get_ref().flushes, writer.get_ref().closed), (1, true));
}

#[tokio::test]
async fn w1_after_a_failed_write_nothing_more_is_written() {
    for (step, kind) in [
        (Step::Fail(io::ErrorKind::BrokenPipe), io::ErrorKind::BrokenPipe),
        (Step::Bytes(b""), io::ErrorKind::WriteZero),
    ] {
        let mut writer = FrameWriter::new(Scripted::new([Step::Bytes(b"ab"), step]));
        let WriteError::Io(error) = writer.send(b"abcd").await.unwrap_err() else { panic!("no I/O error") };
        assert_eq!(error.kind(), kind);
        assert!(matches!(writer.send(b"next").await, Err(WriteError::Broken)));
        assert!(matches!(writer.feed(b"next").await, Err(WriteError::Broken)));
        assert!(matches!(writer.flush().await, Err(WriteError::Broken)));
        assert!(matches!(writer.shutdown().await, Err(WriteError::Broken)));
        assert_eq!((&writer.get_ref().taken[..], writer.get_ref().closed), (&b"ab"[..], false));
    }
}

#[tokio::test]
async fn w1_frames_of_concurrent_callers_never_mix() {
    let (ours, theirs) = duplex(7);
    let writer = Arc::new(Mutex::new(FrameWriter::new(theirs)));
    let callers: Vec<_> = (0..8u8)
        .map(|caller| {
            let writer = Arc::clone(&writer);
            tokio::spawn(async move {
                for _ in 0..20 {
                    writer.lock().await.send(&[b'a' + caller; 50]).await.unwrap();
                }
            })
        })
        .collect();
    drop(writer);
    let mut reader = FrameReader::new(ours);
    let mut seen = [0; 8];
    while let Some(event) = reader.next().await.unwrap() {
        let FrameEvent::Frame(frame) = event else { panic!("{event:?}") };
        assert!(frame.len() == 50 && frame.iter().all(|byte| *byte == frame[0]), "{frame:?}");
        seen[usize::from(frame[0] - b'a')] += 1;
    }
    assert_eq!(seen, [20; 8]);
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn w1_shutdown_ends_the_peers_stream_and_leaves_the_other_direction_open() {
    let (ours, theirs) = duplex(64);
    let (reading, writing) = tokio::io::split(ours);
    let mut writer = FrameWriter::new(writing);
    writer.feed(b"last").await.unwrap();
    writer.shutdown().await.unwrap();
    let (mut their_reading, mut their_writing) = tokio::io::split(theirs);
    let mut all = Vec::new();
    their_reading.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last\n");
    their_writing.write_all(b"still here\n").await.unwrap();
    assert_eq!(FrameReader::new(reading).next().await.unwrap(), Some(FrameEvent::Frame(b"still here")));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn w1_every_frame_that_is_accepted_is_read_back_the_same(
        frames in vec(vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..40), 0..12), pipe in 1usize..50,
    ) {
        block_on(async {
            let (ours, theirs) = duplex(pipe);
            let mut writer = FrameWriter::with_limit(theirs, 30);
            let sending = async {
                let mut accepted = Vec::new();
                for frame in &frames {
                    let fits = frame.len() <= 30 && !frame.contains(&b'\n') && frame.last() != Some(&b'\r');
                    assert_eq!(writer.send(frame).await.is_ok(), fits);
                    if fits {
                        accepted.push(frame.clone());
                    }
                }
                writer.shutdown().await.unwrap();
                accepted
            };
            let reading = async {
                let mut reader = FrameReader::with_limit(ours, 30);
                let mut read = Vec::new();
                while let Some(FrameEvent::Frame(frame)) = reader.next().await.unwrap() {
                    read.push(frame.to_vec());
                }
                read
            };
            let (accepted, read) = tokio::join!(sending, reading);
            assert_eq!(accepted, read);
        });
    }

    #[test]
    fn w3_random_bytes_never_stop_the_reader_and_the_message_after_them_arrives(
        junk in vec(any::<u8>(), 0..600), limit in 60usize..200,
    ) {
        block_on(async {
            let bytes = [&junk[..], b"\n", notification("after").as_bytes()].concat();
            let mut reader = MessageReader::with_limit(&bytes[..], limit);
            let mut methods = Vec::new();
            while let Some(inbound) = reader.next().await.unwrap() {
                methods.push(method(&inbound).to_owned());
            }
            assert_eq!(methods, ["after"]);
            let diagnostics = reader.diagnostics().snapshot();
            let lines = junk.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            assert_eq!(diagnostics.counts().total() + diagnostics.blank_lines(), lines);
        });
    }

    #[test]
    fn w3_mangled_messages_are_messages_or_junk_and_never_a_panic(
        cut in any::<prop::sample::Index>(), byte in any::<u8>(), which in 0usize..3,
    ) {
        let whole = [
            rpc::request(&Id::from("\u{e9}\""), "m\\", &["a", "\u{1f600}"]).unwrap(),
            rpc::error_response(&Id::from(1), &rpc::ErrorObject::method_not_found("x")).unwrap(),
            rpc::response(&Id::from(u64::MAX), &[1.5, -2e300]).unwrap(),
        ];
        let mut bytes = whole[which].clone().into_bytes();
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        if let Ok(incoming) = rpc::Message::classify(&bytes) {
            let _owned = incoming.message.into_owned();
        }
        let _cut = rpc::Message::classify(&bytes[..at]).is_err();
    }
}
