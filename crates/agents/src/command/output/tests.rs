use proptest::prelude::*;

use super::*;

const NOTE: &str = "\n[offspring: ";

fn withheld(secrets: &[&str]) -> Withheld {
    let withheld = Withheld::default();
    secrets.iter().for_each(|secret| withheld.add(secret));
    withheld
}

/// The whole text, and what was left out.
fn read_in(limit: usize, withheld: &Withheld, pieces: &[&[u8]]) -> (String, u64) {
    let mut output = Output::in_blocks(limit, withheld, 4);
    let mut streamed = String::new();
    for piece in pieces {
        streamed.push_str(output.push(piece));
    }
    let mut rest = output.finish();
    while let Some(piece) = rest.next() {
        streamed.push_str(&piece);
    }
    let left_out = rest.left_out();
    assert_eq!(streamed, rest.into_text());
    (streamed, left_out)
}

/// The head and the tail, without the note between them.
fn around(text: &str, left_out: u64) -> (&str, &str) {
    let note = format!("{NOTE}{left_out} bytes left out]\n");
    text.split_once(&note).unwrap_or_else(|| panic!("no note of {left_out} bytes in {text:?}"))
}

fn cut(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for cut in cuts {
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces.push(rest.to_vec());
    pieces
}

fn slices(pieces: &[Vec<u8>]) -> Vec<&[u8]> {
    pieces.iter().map(Vec::as_slice).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn w11_any_cut_gives_the_same_text(bytes: Vec<u8>, cuts in prop::collection::vec(0_usize..64, 0..8)) {
        let pieces = cut(&bytes, &cuts);
        let (text, left_out) = read_in(1 << 20, &Withheld::default(), &slices(&pieces));
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        prop_assert_eq!(left_out, 0);
    }

    #[test]
    fn w11_of_any_output_the_head_and_the_tail_are_kept_whole_and_the_rest_is_counted(
        text in "[a-d€𝄞]{0,80}",
        limit in 0_usize..60,
        cuts in prop::collection::vec(0_usize..30, 0..12),
    ) {
        let pieces = cut(text.as_bytes(), &cuts);
        let (shown, left_out) = read_in(limit, &Withheld::default(), &slices(&pieces));
        if left_out == 0 {
            prop_assert_eq!(&shown, &text);
            prop_assert!(text.len() <= limit + 3);
        } else {
            prop_assert!(text.len() > limit);
            let (head, tail) = around(&shown, left_out);
            prop_assert!(text.starts_with(head) && text.ends_with(tail), "{} of {}", shown, text);
            prop_assert_eq!(head.len() + tail.len() + usize::try_from(left_out).unwrap(), text.len());
            // A character is not cut: up to three bytes of each half, and one more of the head, may be missing or more.
            prop_assert!(head.len() <= limit - limit / 2 + 3 && head.len() + 3 >= limit - limit / 2, "{}", head);
            prop_assert!(tail.len() <= limit / 2 + 3 && tail.len() + 6 >= limit / 2, "{}", tail);
        }
    }

    #[test]
    fn w10_no_secret_shows_however_the_output_is_cut(
        words in prop::collection::vec(prop_oneof!["[ab€]{0,4}", Just("xyzzy-€-1".to_owned()), Just("q-secret".to_owned())], 0..20),
        limit in 0_usize..80,
        cuts in prop::collection::vec(0_usize..30, 0..12),
    ) {
        let secrets = ["xyzzy-€-1", "q-secret"];
        let withheld = withheld(&secrets);
        let text = words.concat();
        let pieces = cut(text.as_bytes(), &cuts);
        let (shown, left_out) = read_in(limit, &withheld, &slices(&pieces));
        let full = secrets.iter().fold(text.clone(), |text, secret| text.replace(secret, "[redacted]"));
        if left_out == 0 {
            prop_assert_eq!(&shown, &full);
        } else {
            let (head, tail) = around(&shown, left_out);
            prop_assert!(full.ends_with(tail), "{} of {}", shown, full);
            prop_assert!(full.starts_with(head), "{} of {}", shown, full);
        }
    }
}

#[test]
fn a_character_cut_by_a_read_is_whole() {
    let read = |pieces: &[&[u8]]| read_in(100, &Withheld::default(), pieces).0;
    assert_eq!(read(&[b"a\xe2", b"\x82", b"\xac!"]), "a€!");
    assert_eq!(read(&[b"\xe2\x82"]), "\u{fffd}");
}

#[test]
fn what_is_between_head_and_tail_is_left_out_and_counted() {
    let read = |text: &str| read_in(6, &Withheld::default(), &[text.as_bytes()]);
    assert_eq!(read("abcdef"), ("abcdef".to_owned(), 0));
    assert_eq!(read("abcdefg"), ("abc\n[offspring: 1 bytes left out]\nefg".to_owned(), 1));
    // Bytes that are no UTF-8 take three where they took one.
    let bad = read_in(6, &Withheld::default(), &[b"a\xff\xff\xff\xff\xffz"]);
    assert_eq!(bad, ("a\u{fffd}\n[offspring: 12 bytes left out]\nz".to_owned(), 12));
}

#[test]
fn memory_holds_no_more_than_the_limit_and_a_block_of_a_long_output() {
    let limit = 4 * BLOCK_BYTES;
    let mut output = Output::new(limit, &Withheld::default());
    for size in [1000, 100 * BLOCK_BYTES - 1000] {
        output.push(&vec![b'x'; size]);
        let held: usize = output.tail.blocks.iter().map(Vec::capacity).sum();
        assert!(output.kept.len() + held <= limit + 2 * BLOCK_BYTES, "{held}");
    }
    let rest = output.finish();
    assert_eq!(rest.left_out(), 96 * BLOCK_BYTES as u64);
}
