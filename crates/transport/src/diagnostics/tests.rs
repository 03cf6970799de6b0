use super::*;

fn bounded(lines: usize, line_bytes: usize) -> Diagnostics {
    Diagnostics::new(DiagnosticLimits { lines, line_bytes })
}

fn head(text: &[u8], line_bytes: usize) -> (Vec<u8>, bool) {
    let kept = KeptLine::new(1, Junk::UnknownId, text, line_bytes);
    (kept.head.to_vec(), kept.cut)
}

#[test]
fn w3_every_reason_is_counted_apart() {
    let reasons = [
        Junk::NotRpc(NotRpc::NotUtf8 { valid_up_to: 0 }),
        Junk::NotRpc(NotRpc::NotJson { message: "m".into(), column: 1 }),
        Junk::NotRpc(NotRpc::NotRpc { why: "w" }),
        Junk::TooLarge { bytes: 1 },
        Junk::Unterminated { bytes: 1 },
        Junk::UnknownId,
        Junk::Unversioned,
    ];
    let mut diagnostics = Diagnostics::default();
    for (n, why) in reasons.into_iter().enumerate() {
        for _ in 0..=n {
            diagnostics.note(1, why.clone(), b"");
        }
    }
    let counts = diagnostics.counts();
    let expected = JunkCounts {
        not_utf8: 1,
        not_json: 2,
        not_rpc: 3,
        too_large: 4,
        unterminated: 5,
        unknown_id: 6,
        unversioned: 7,
    };
    assert_eq!(counts, expected);
    assert_eq!(counts.total(), 28);
}

#[test]
fn w3_the_last_lines_are_kept_and_counting_goes_on() {
    let mut diagnostics = bounded(2, 3);
    for line in 1..=5 {
        diagnostics.note(line, Junk::UnknownId, format!("{line}abc").as_bytes());
    }
    let kept: Vec<_> = diagnostics.last_lines().map(|kept| (kept.line, &*kept.head, kept.cut)).collect();
    assert_eq!(kept, [(4, &b"4ab"[..], true), (5, &b"5ab"[..], true)]);
    assert_eq!(diagnostics.counts().total(), 5);

    let mut counts_only = bounded(0, 3);
    counts_only.note(1, Junk::UnknownId, b"x");
    assert_eq!((counts_only.last_lines().len(), counts_only.counts().total()), (0, 1));
}

#[test]
fn w3_the_default_keeps_at_most_64_kib() {
    let limits = DiagnosticLimits::default();
    assert_eq!(limits, DiagnosticLimits { lines: 32, line_bytes: 2048 });
    let shared = SharedDiagnostics::new(limits);
    for line in 0..100 {
        shared.note(line, Junk::UnknownId, &vec![b'x'; 1 << 20]);
    }
    let kept: usize = shared.snapshot().last_lines().map(|kept| kept.head.len()).sum();
    assert_eq!(kept, 64 * 1024);
    assert_eq!(shared.snapshot().limits(), limits);
}

#[test]
fn w3_a_line_is_cut_between_characters_where_it_is_text() {
    assert_eq!(head(b"abc", 3), (b"abc".to_vec(), false));
    assert_eq!(head(b"abc", 4), (b"abc".to_vec(), false));
    assert_eq!(head(b"abc", 2), (b"ab".to_vec(), true));
    assert_eq!(head(b"abc", 0), (b"".to_vec(), true));
    let smile = "ab\u{1f600}c".as_bytes();
    for (limit, len) in [(2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (7, 7)] {
        assert_eq!(head(smile, limit), (smile[..len].to_vec(), len < 7), "{limit}");
    }
    assert_eq!(head(&[0x80; 10], 5), (vec![0x80; 5], true));
    assert_eq!(head(&[0x80; 10], 2), (vec![0x80; 2], true));
}

#[test]
fn w3_a_line_that_was_cut_before_it_came_here_says_so() {
    let cut = |why: Junk, text: &[u8]| KeptLine::new(1, why, text, 3).cut;
    assert!(cut(Junk::TooLarge { bytes: 9 }, b""));
    assert!(!cut(Junk::Unterminated { bytes: 3 }, b"abc"));
    assert!(cut(Junk::Unterminated { bytes: 4 }, b"abcd"));
    assert!(cut(Junk::Unterminated { bytes: 9 }, b""));
}

#[test]
fn w11_a_line_is_shown_without_control_characters_in_one_line() {
    let text = "\u{1b}[2J\u{7}\u{9b}31m\r\u{2028}\u{202e}é\"\u{0}".as_bytes();
    let shown = KeptLine::new(7, Junk::UnknownId, &[text, b"\xff"].concat(), 100).to_string();
    assert_eq!(
        shown,
        "line 7: the line answers a request that nobody waits for: \
         \"\\u{1b}[2J\\u{7}\\u{9b}31m\\r\\u{2028}\\u{202e}é\\\"\\0\u{fffd}\""
    );
}

#[test]
fn w3_diagnostics_say_in_one_line_how_much_and_what_came_last() {
    let mut diagnostics = bounded(1, 4);
    assert_eq!(diagnostics.to_string(), "no line set aside");
    diagnostics.note(3, Junk::TooLarge { bytes: 20 }, b"");
    assert_eq!(
        diagnostics.to_string(),
        "1 line set aside; line 3: the line has 20 bytes, more than the limit, and was skipped"
    );
    diagnostics.note(4, Junk::Unterminated { bytes: 5 }, b"abcde");
    assert_eq!(
        diagnostics.to_string(),
        "2 lines set aside; line 4: the stream ended inside the line, after 5 bytes: \"abcd\"…"
    );
}

#[test]
fn w3_shared_diagnostics_survive_a_panic_of_who_held_them() {
    let shared = SharedDiagnostics::default();
    let clone = shared.clone();
    let outcome = std::thread::spawn(move || {
        let _guard = clone.lock();
        panic!("on purpose");
    })
    .join();
    assert!(outcome.is_err());
    shared.note(1, Junk::UnknownId, b"x");
    assert_eq!(shared.snapshot().counts().unknown_id, 1);
}

#[test]
fn w3_shared_diagnostics_count_blank_lines_apart_from_junk() {
    let shared = SharedDiagnostics::default();
    shared.note_blank();
    shared.note_blank();
    shared.note(3, Junk::UnknownId, b"x");
    let seen = shared.snapshot();
    assert_eq!((seen.blank_lines(), seen.counts().total(), seen.last_lines().len()), (2, 1, 1));
}
