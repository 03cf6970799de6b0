use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// What a decoder says, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Frame(Vec<u8>),
    TooLarge(u64),
    Unterminated(u64, Vec<u8>),
}

fn seen(event: FrameEvent<'_>) -> Seen {
    match event {
        FrameEvent::Frame(frame) => Seen::Frame(frame.to_vec()),
        FrameEvent::FrameTooLarge { bytes } => Seen::TooLarge(bytes),
        FrameEvent::Unterminated { bytes, head } => Seen::Unterminated(bytes, head.to_vec()),
    }
}

/// Decodes pieces; checks on the way that the buffer stays within the limit (W2).
fn decode<'a>(decoder: &mut FrameDecoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Seen> {
    let mut all = Vec::new();
    for mut piece in pieces {
        while let Some(event) = decoder.decode(&mut piece) {
            all.push(seen(event));
        }
        assert!(piece.is_empty(), "bytes were left");
        assert!(decoder.buffer_capacity() <= decoder.limit_bytes);
    }
    all.extend(decoder.finish().map(seen));
    assert_eq!(decoder.finish(), None, "a finished decoder is as new");
    all
}

/// The rule itself: split at 0x0A, one CR before it ignored, the last piece unterminated unless empty.
fn model(bytes: &[u8], limit: usize) -> Vec<Seen> {
    let mut lines: Vec<_> = bytes.split(|&byte| byte == b'\n').collect();
    let last = lines.pop().unwrap();
    let mut all: Vec<_> =
        lines
            .into_iter()
            .map(|line| if line.last() == Some(&b'\r') { &line[..line.len() - 1] } else { line })
            .map(|line| {
                if line.len() > limit {
                    Seen::TooLarge(line.len() as u64)
                } else {
                    Seen::Frame(line.to_vec())
                }
            })
            .collect();
    if !last.is_empty() {
        let head = if last.len() > limit { Vec::new() } else { last.to_vec() };
        all.push(Seen::Unterminated(last.len() as u64, head));
    }
    all
}

/// Everything that some line reader somewhere took for the end of a line, and JSON around it.
const O21_CORPUS: &str = concat!(
    "{\"a\":\"x\u{2028}y\u{2029}z\u{85}\u{b}\u{c}\"}\r\n",
    "\n",
    "\r\n",
    "\r\r\n",
    "lone\rcr\n",
    "\rfirst\n",
    "a\r\rb\r\n",
    "\u{2028}\n\u{2029}\n\u{85}\n\u{b}\n\u{c}\n\u{1c}\u{1d}\u{1e}\n",
    "\u{1f600}\0\n",
    "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n",
    "cut\r",
);

#[test]
fn w1_o21_only_a_line_feed_ends_a_frame_wherever_the_bytes_are_split() {
    let bytes = O21_CORPUS.as_bytes();
    let expected = model(bytes, 1000);
    assert_eq!(expected[0], Seen::Frame("{\"a\":\"x\u{2028}y\u{2029}z\u{85}\u{b}\u{c}\"}".into()));
    assert_eq!(expected[3], Seen::Frame(b"\r".to_vec()));
    assert_eq!(expected.last(), Some(&Seen::Unterminated(4, b"cut\r".to_vec())));
    assert_eq!(expected.len(), 16);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(decode(&mut FrameDecoder::new(), pieces), expected, "split at {first} and {second}");
        }
    }
    assert_eq!(decode(&mut FrameDecoder::default(), bytes.chunks(1)), expected, "byte by byte");
}

#[test]
fn w1_an_unterminated_last_line_is_reported_and_not_given_out_as_a_frame() {
    let mut decoder = FrameDecoder::new();
    assert_eq!(decode(&mut decoder, [&b""[..]]), []);
    assert_eq!(decode(&mut decoder, [&b"{}\n"[..]]), [Seen::Frame(b"{}".to_vec())]);
    assert_eq!(decode(&mut decoder, [&b"{}"[..]]), [Seen::Unterminated(2, b"{}".to_vec())]);
    assert_eq!(decode(&mut decoder, [&b"\r"[..]]), [Seen::Unterminated(1, b"\r".to_vec())]);
    assert_eq!(decode(&mut decoder, [&b"next\n"[..]]), [Seen::Frame(b"next".to_vec())]);
}

#[test]
fn w1_a_frame_within_one_piece_is_not_copied() {
    let bytes = b"one\ntwo\r\n".to_vec();
    let mut decoder = FrameDecoder::new();
    let mut rest = &bytes[..];
    while let Some(FrameEvent::Frame(frame)) = decoder.decode(&mut rest) {
        assert!(bytes.as_ptr_range().contains(&frame.as_ptr()));
    }
    assert_eq!(decoder.buffer_capacity(), 0);
}

#[test]
fn w2_o20_a_frame_of_the_limit_is_delivered_and_one_byte_more_fails_only_itself() {
    for limit in [0, 1, 7, 64] {
        let at = [vec![b'x'; limit], b"\n".to_vec()].concat();
        let at_crlf = [vec![b'x'; limit], b"\r\n".to_vec()].concat();
        let over = [vec![b'x'; limit + 1], b"\r\n".to_vec()].concat();
        let over_by_cr = [vec![b'x'; limit], b"\r\r\n".to_vec()].concat();
        let bytes = [&at[..], &over, &at_crlf, &over_by_cr, &at].concat();
        let frame = Seen::Frame(vec![b'x'; limit]);
        let too_large = Seen::TooLarge(limit as u64 + 1);
        let expected = [frame.clone(), too_large.clone(), frame.clone(), too_large, frame];
        for size in 1..=bytes.len() {
            let mut decoder = FrameDecoder::with_limit(limit);
            assert_eq!(decode(&mut decoder, bytes.chunks(size)), expected, "limit {limit}, pieces of {size}");
        }
    }
}

#[test]
fn w2_o20_large_frames_up_to_the_default_limit_arrive_and_a_later_one_too() {
    const MIB: usize = 1024 * 1024;
    assert_eq!(DEFAULT_FRAME_LIMIT_BYTES, 16 * MIB);
    let mut decoder = FrameDecoder::new();
    let piece = vec![b'x'; 64 * 1024];
    for (size, fits) in [(MIB, true), (16 * MIB, true), (16 * MIB + 1, false), (64 * MIB, false), (1, true)] {
        let mut missing = size;
        while missing > 0 {
            let mut part = &piece[..missing.min(piece.len())];
            missing -= part.len();
            assert_eq!(decoder.decode(&mut part), None);
            assert!(decoder.buffer_capacity() <= DEFAULT_FRAME_LIMIT_BYTES);
        }
        match decoder.decode(&mut &b"\r\n"[..]) {
            Some(FrameEvent::Frame(frame)) if fits => assert_eq!(frame.len(), size),
            Some(FrameEvent::FrameTooLarge { bytes }) if !fits => assert_eq!(bytes, size as u64),
            other => panic!("{size}: {:?}", other.map(|event| std::mem::discriminant(&event))),
        }
        assert_eq!(decoder.decode(&mut &b""[..]), None);
        assert!(decoder.buffer_capacity() <= KEPT_CAPACITY_BYTES, "{size}: the buffer is given back");
    }
}

#[test]
fn w2_o20_a_gibibyte_without_an_end_is_counted_and_never_buffered() {
    let limit = 1024 * 1024;
    let mut decoder = FrameDecoder::with_limit(limit);
    let piece = vec![b'x'; 1024 * 1024];
    for sent in 1..=1024 {
        assert_eq!(decoder.decode(&mut &piece[..]), None);
        let bound = if sent == 1 { limit } else { 0 };
        assert!(decoder.buffer_capacity() <= bound, "{sent} MiB: {}", decoder.buffer_capacity());
    }
    let mut rest = &b"\n{}\n"[..];
    assert_eq!(decoder.decode(&mut rest), Some(FrameEvent::FrameTooLarge { bytes: 1 << 30 }));
    assert_eq!(decoder.decode(&mut rest), Some(FrameEvent::Frame(b"{}")));
    assert_eq!(decoder.decode(&mut &piece[..]), None);
    assert_eq!(decoder.decode(&mut &piece[..]), None);
    assert_eq!(decoder.finish(), Some(FrameEvent::Unterminated { bytes: 2 << 20, head: b"" }));
}

#[test]
fn w2_the_buffer_grows_in_few_steps() {
    let limit = 1024 * 1024;
    let mut decoder = FrameDecoder::with_limit(limit);
    let mut capacities = std::collections::BTreeSet::new();
    for bytes in 1..=limit {
        assert_eq!(decoder.decode(&mut &b"x"[..]), None);
        capacities.insert(decoder.buffer_capacity());
        assert!(decoder.buffer_capacity() < 2 * bytes, "it grows only when the line does not fit");
    }
    // Doubling: 1, 2, 4 … 2^20.
    assert!(capacities.len() <= 21, "{}", capacities.len());
    assert_eq!(decoder.buffer_capacity(), limit);
}

#[test]
fn w2_a_small_buffer_is_kept_for_the_next_frame() {
    let mut decoder = FrameDecoder::new();
    for size in [1000, KEPT_CAPACITY_BYTES] {
        assert_eq!(decoder.decode(&mut &vec![b'x'; size][..]), None);
        assert!(decoder.decode(&mut &b"\n"[..]).is_some());
        assert_eq!(decoder.decode(&mut &b""[..]), None);
        assert_eq!(decoder.buffer_capacity(), size);
    }
}

/// Bytes in which line ends are frequent.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(b'\n'), 3 => Just(b'\r'), 6 => Just(b'x'), 2 => any::<u8>()], 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn w1_any_split_of_the_bytes_gives_the_same_frames(
        bytes in wire(), cuts in vec(any::<Index>(), 0..12), limit in 0usize..20,
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
        prop_assert_eq!(decode(&mut FrameDecoder::with_limit(limit), pieces), model(&bytes, limit));
    }

    #[test]
    fn w2_random_bytes_never_panic_and_never_buffer_beyond_the_limit(
        pieces in vec(vec(any::<u8>(), 0..400), 0..20), limit in 0usize..300,
    ) {
        let whole = pieces.concat();
        let seen = decode(&mut FrameDecoder::with_limit(limit), pieces.iter().map(Vec::as_slice));
        prop_assert_eq!(seen, model(&whole, limit));
    }
}
