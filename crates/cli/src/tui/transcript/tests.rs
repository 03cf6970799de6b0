//! Made-up logs.

use offspring_protocol::{RawEvent, SessionId, Timestamp};
use offspring_sessions::store::LogRow;

use super::*;

fn delta(seq: u64, text: &str) -> LogRow {
    let data = serde_json::value::to_raw_value(&serde_json::json!({ "text": text })).unwrap();
    LogRow {
        seq,
        session: SessionId::new("ses_1").unwrap(),
        run: Some(RunId::new("run_1").unwrap()),
        at: Timestamp(0),
        late: false,
        event: RawEvent::new("text_delta", data),
    }
}

/// `line 1` … in deltas of which every third ends where a line does.
fn log(lines: u64) -> Vec<LogRow> {
    let piece = |line: u64| match line % 3 {
        1 => format!("line {line}\nli"),
        2 => format!("ne {line}\nline"),
        _ => format!(" {line}\n"),
    };
    (1..=lines).map(|line| delta(line, &piece(line))).collect()
}

/// Reads what is wanted until nothing is, as the window does.
fn read(transcript: &mut Transcript, log: &[LogRow], rows: usize) {
    for _ in 0..1_000 {
        match transcript.wanted(rows) {
            None => return,
            Some(Wanted::After(after)) => {
                let page: Vec<LogRow> =
                    log.iter().filter(|line| line.seq > after).take(PAGE_EVENTS).cloned().collect();
                transcript.append(&page);
            }
            Some(Wanted::Between(page, after, last)) => {
                let lines: Vec<LogRow> =
                    log.iter().filter(|line| line.seq > after && line.seq <= last).cloned().collect();
                transcript.prepend(page, &lines);
            }
        }
        assert!(transcript.pages.len() <= HELD + 1, "{} pages", transcript.pages.len());
    }
    panic!("it never has enough");
}

fn seen(transcript: &Transcript, rows: usize) -> Vec<String> {
    transcript.visible(rows).into_iter().map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn lines_are_wrapped_however_their_pieces_come() {
    let text = "日本語 and é 👩\u{200d}💻 emoji\r\n\n\tend\u{1b}[2J\nlast";
    for columns in [1, 2, 3, 5, 8, 80] {
        let mut whole = Transcript::new(columns, vec![0]);
        whole.append(&[delta(1, text)]);
        let mut pieces = Transcript::new(columns, vec![0]);
        let chars: Vec<LogRow> = text
            .replace('\r', "")
            .chars()
            .zip(1..)
            .map(|(c, seq)| delta(seq, c.encode_utf8(&mut [0; 4])))
            .collect();
        pieces.append(&chars);
        assert_eq!(seen(&whole, 100), seen(&pieces, 100), "in {columns}");
        for row in seen(&whole, 100) {
            let wide = crate::cells::width(&row);
            assert!(wide <= columns.max(2), "{row:?} in {columns}");
            assert!(!row.contains(char::is_control), "W11: {row:?}");
        }
        let mut again = Transcript::new(17, vec![0]);
        again.append(&[delta(1, text)]);
        again.resize(columns);
        assert_eq!(seen(&whole, 100), seen(&again, 100), "from 17 to {columns}");
    }
    let mut shown = Transcript::new(80, vec![0]);
    shown.append(&[delta(1, text)]);
    assert_eq!(seen(&shown, 9), ["日本語 and é 👩\u{200d}💻 emoji", "", "    end\u{fffd}[2J", "last"]);
}

#[test]
fn a_long_log_is_walked_from_end_to_beginning_and_back_with_few_pages_held() {
    let lines = 5_001;
    let log = log(lines);
    let starts: Vec<u64> = (0..=lines / 255).map(|page| page * 255).collect();
    let mut transcript = Transcript::new(40, starts);
    read(&mut transcript, &log, 10);
    assert_eq!(seen(&transcript, 10)[8..], ["line 5000", "line 5001"]);
    for first in (1..4_992).rev() {
        transcript.scroll(-1, 10);
        read(&mut transcript, &log, 10);
        assert_eq!(seen(&transcript, 1)[0], format!("line {first}"));
    }
    assert!(transcript.has_more(10));
    transcript.scroll(-1, 10);
    assert_eq!(seen(&transcript, 1)[0], "line 1");
    // A page at a time down again, to the end and no further.
    let mut first = 1;
    while transcript.has_more(10) {
        transcript.scroll(9, 10);
        read(&mut transcript, &log, 10);
        first = (first + 9).min(4_992);
        assert_eq!(seen(&transcript, 10)[0], format!("line {first}"));
    }
    assert_eq!(first, 4_992);
    transcript.go_to_beginning();
    read(&mut transcript, &log, 10);
    assert_eq!(seen(&transcript, 3), ["line 1", "line 2", "line 3"]);
    assert!(!transcript.go_to_end(), "its end is far");
    while transcript.has_more(10) {
        transcript.scroll(1_000, 10);
        read(&mut transcript, &log, 10);
    }
    transcript.scroll(-1, 10);
    assert!(transcript.go_to_end());
    assert_eq!(seen(&transcript, 10)[8..], ["line 5000", "line 5001"]);
}

#[test]
fn the_end_is_followed_until_somebody_looks_back() {
    let log = log(60);
    let mut transcript = Transcript::new(40, vec![0]);
    read(&mut transcript, &log[..30], 10);
    let last = |transcript: &mut Transcript, there: usize| {
        transcript.look_again();
        read(transcript, &log[..there], 10);
        seen(transcript, 10).pop().unwrap()
    };
    for there in [33, 36, 39, 42] {
        assert_eq!(last(&mut transcript, there), format!("line {there}"));
    }
    transcript.scroll(-5, 10);
    assert_eq!(last(&mut transcript, 45), "line 37", "what is read stays");
    transcript.scroll(100, 10);
    assert_eq!(last(&mut transcript, 48), "line 48");
}
