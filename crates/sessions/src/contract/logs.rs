//! The log of a tree.

use std::sync::Arc;

use offspring_protocol::{RunState, Timestamp};

use super::{
    Fixture,
    plant::{Planted, event, id, line, log, run, run_id},
};
use crate::store::{EventQuery, LogRow, MAX_PAGE_BYTES, SessionStore, StoreError, Write};

pub(super) async fn l16_only_the_next_number_is_accepted(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let session = planted.root.id.clone();
    for (got, expected) in [(0, 1), (2, 1), (u64::MAX, 1)] {
        let refused = planted.write(vec![Write::Append(line(&session, got))]).await;
        let Err(StoreError::NotNext { root, expected: wanted, got: told }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((root, wanted, told), (session.clone(), expected, got));
    }
    let three = (1..=3).map(|seq| Write::Append(line(&session, seq))).collect();
    assert_eq!(planted.write(three).await.unwrap().last_seq, 3);
    for got in [1, 3, 5] {
        let refused = planted.write(vec![Write::Append(line(&session, got))]).await;
        assert!(matches!(refused, Err(StoreError::NotNext { expected: 4, .. })), "{refused:?}");
    }
    let gap = vec![Write::Append(line(&session, 4)), Write::Append(line(&session, 6))];
    assert!(matches!(planted.write(gap).await, Err(StoreError::NotNext { expected: 5, got: 6, .. })));
    assert_eq!(planted.log().await.len(), 3);
    // A child's line has the next number of the same tree.
    let child = planted.child(&planted.root, "child").await;
    assert!(planted.write(vec![Write::Append(line(&child.id, 1))]).await.is_err());
    assert_eq!(planted.write(vec![Write::Append(line(&child.id, 4))]).await.unwrap().last_seq, 4);
    assert_eq!(planted.write(Vec::new()).await.unwrap().last_seq, 4);
    assert_eq!(planted.tree().await.last_seq, 4);
}

pub(super) async fn l16_numbers_can_stay_without_a_line(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let session = planted.root.id.clone();
    let skip = |to| Write::Skip { root: session.clone(), to };
    let with_gap = vec![skip(2), Write::Append(line(&session, 3)), skip(9)];
    assert_eq!(planted.write(with_gap).await.unwrap().last_seq, 9);
    for to in [0, 3, 9] {
        let refused = planted.write(vec![skip(to)]).await;
        assert!(matches!(refused, Err(StoreError::NotNext { expected: 10, .. })), "{refused:?}");
    }
    // A batch that is refused moves nothing.
    let refused = planted.write(vec![skip(20), Write::Append(line(&session, 20))]).await;
    assert!(matches!(refused, Err(StoreError::NotNext { expected: 21, got: 20, .. })), "{refused:?}");
    assert_eq!(planted.tree().await.last_seq, 9);
    planted.append(line(&session, 10)).await;
    assert_eq!(planted.log().await, [line(&session, 3), line(&session, 10)]);
    let nobody = vec![Write::Skip { root: id("nobody"), to: 30 }];
    assert!(matches!(planted.write(nobody).await, Err(StoreError::Unknown { .. })));
}

pub(super) async fn a_page_ends_after_so_many_bytes_and_loses_nothing(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let text = "x".repeat(MAX_PAGE_BYTES / 2);
    let long = event("text_delta", &format!("{{\"text\":\"{text}\"}}"));
    for seq in 1..=5 {
        let line = LogRow { event: long.clone(), ..line(&planted.root.id, seq) };
        planted.append(line).await;
    }
    let query = |after| EventQuery { root: planted.root.id.clone(), session: None, after, limit: usize::MAX };
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = seqs(&fixture.store, query(after)).await;
        let Some(last) = page.last() else { break };
        after = *last;
        pages.push(page);
    }
    assert_eq!(pages, [vec![1, 2], vec![3, 4], vec![5]]);
    let last = fixture.store.events(query(4)).await.unwrap();
    assert!(last.iter().map(|line| &line.event).eq([&long]), "a long line is what it was");
}

pub(super) async fn l16_each_tree_counts_for_itself(fixture: Fixture) {
    let a = Planted::new(&fixture.store, "a").await;
    let b = Planted::new(&fixture.store, "b").await;
    for seq in 1..=3 {
        a.append(line(&a.root.id, seq)).await;
        b.append(line(&b.root.id, seq)).await;
    }
    for planted in [a, b] {
        let expected: Vec<LogRow> = (1..=3).map(|seq| line(&planted.root.id, seq)).collect();
        assert_eq!(planted.log().await, expected);
    }
}

async fn seqs(store: &Arc<dyn SessionStore>, query: EventQuery) -> Vec<u64> {
    store.events(query).await.unwrap().iter().map(|line| line.seq).collect()
}

pub(super) async fn events_are_read_from_a_cursor_with_a_limit_and_for_a_session(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let other = Planted::new(&fixture.store, "other").await;
    other.append(line(&other.root.id, 1)).await;
    let child = planted.child(&planted.root, "child").await;
    for seq in 1..=10 {
        let session = if seq % 2 == 0 { &child.id } else { &planted.root.id };
        planted.append(line(session, seq)).await;
    }
    let store = &fixture.store;
    let all = EventQuery { root: planted.root.id.clone(), session: None, after: 0, limit: usize::MAX };
    assert_eq!(seqs(store, all.clone()).await, (1..=10).collect::<Vec<u64>>());
    assert_eq!(seqs(store, EventQuery { after: 7, ..all.clone() }).await, [8, 9, 10]);
    assert_eq!(seqs(store, EventQuery { after: 2, limit: 3, ..all.clone() }).await, [3, 4, 5]);
    assert_eq!(seqs(store, EventQuery { limit: 0, ..all.clone() }).await, [0_u64; 0]);
    for after in [10, 11, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(seqs(store, EventQuery { after, ..all.clone() }).await, [0_u64; 0]);
    }
    let one = EventQuery { session: Some(child.id.clone()), ..all.clone() };
    assert_eq!(seqs(store, EventQuery { after: 4, limit: 2, ..one.clone() }).await, [6, 8]);
    assert_eq!(seqs(store, EventQuery { session: Some(id("nobody")), ..all.clone() }).await, [0_u64; 0]);
    // A session of another tree, and a session that is no root.
    assert_eq!(
        seqs(store, EventQuery { session: Some(other.root.id.clone()), ..all.clone() }).await,
        [0_u64; 0]
    );
    assert_eq!(seqs(store, EventQuery { root: child.id, ..all }).await, [0_u64; 0]);
}

pub(super) async fn events_keep_every_field(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let child = planted.child(&planted.root, "child").await;
    planted.run(run(&child.id, "stored", RunState::Running)).await;
    let mut expected = Vec::new();
    // A run that is stored, one that is not (yet), and none.
    for (seq, run) in (1..).zip([Some("stored"), Some("7"), None, Some("later")]) {
        let at = Timestamp(if seq % 2 == 0 { i64::MIN } else { i64::MAX });
        let event = event("message_complete", "{\"message_id\":\"m\",\"text\":\"\\u0000\"}");
        expected.push(LogRow {
            seq,
            session: child.id.clone(),
            run: run.map(run_id),
            at,
            late: seq == 3,
            event,
        });
    }
    planted.write(expected.iter().cloned().map(Write::Append).collect()).await.unwrap();
    planted.run(run(&child.id, "later", RunState::Running)).await;
    assert_eq!(planted.log().await, expected);
}

pub(super) async fn unknown_kinds_and_their_data_survive_byte_for_byte(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let odd = [
        ("later_kind", "{ \"b\" : 1.0e+2,\"a\":\"\\u00e9\\/é\\ud83d\\ude00\" , \"a\":1 }"),
        ("", "null"),
        ("1", "[1, 2,\n3]"),
        ("Text_Delta", "\"\u{2028}\u{7f}\""),
        ("text_delta", "{\"text\":\"x\", \"unknown\" : true}"),
        ("custom", "{\"name\":\"n\",\"data\":[ ]}"),
        ("with space", "123456789012345678901234567890.10"),
    ];
    for (seq, (kind, data)) in (1..).zip(odd) {
        planted.append(LogRow { event: event(kind, data), ..line(&planted.root.id, seq) }).await;
    }
    for (line, (kind, data)) in planted.log().await.iter().zip(odd) {
        assert_eq!((line.event.kind(), line.event.data().get()), (kind, data));
    }
    for kind in offspring_protocol::Event::KINDS {
        let seq = planted.tree().await.last_seq + 1;
        planted.append(LogRow { event: event(kind, "{}"), ..line(&planted.root.id, seq) }).await;
        assert_eq!(planted.log().await.last().unwrap().event.kind(), *kind);
    }
    // Far beyond a page of any database.
    let big = format!("\"{}\"", "0123456789é".repeat(100_000));
    let seq = planted.tree().await.last_seq + 1;
    planted.append(LogRow { event: event("custom", &big), ..line(&planted.root.id, seq) }).await;
    assert_eq!(planted.log().await.last().unwrap().event.data().get(), big);
}

pub(super) async fn l12_late_events_stay_marked(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    for seq in 1..=4 {
        planted.append(LogRow { late: seq % 2 == 0, ..line(&planted.root.id, seq) }).await;
    }
    let late: Vec<bool> = planted.log().await.iter().map(|line| line.late).collect();
    assert_eq!(late, [false, true, false, true]);
}

pub(super) async fn l18_a_reader_with_a_cursor_misses_nothing_and_sees_nothing_twice(fixture: Fixture) {
    const LINES: u64 = 300;
    let planted = Planted::new(&fixture.store, "root").await;
    let root = planted.root.id.clone();
    let reader: Arc<dyn SessionStore> = fixture.other.as_ref().unwrap_or(&fixture.store).clone();
    let following = async {
        let mut changes = reader.changes();
        let mut seen = Vec::new();
        let mut after = 0;
        while after < LINES {
            let query = EventQuery { root: root.clone(), session: None, after, limit: 7 };
            let found = reader.events(query).await.unwrap();
            if let Some(last) = found.last() {
                after = last.seq;
                seen.extend(found);
            } else {
                let changed =
                    tokio::time::timeout(std::time::Duration::from_secs(20), changes.changed()).await;
                changed.unwrap().unwrap();
            }
        }
        seen
    };
    let writing = async {
        for seq in 1..=LINES {
            planted.append(line(&root, seq)).await;
            tokio::task::yield_now().await;
        }
    };
    let (seen, ()) = futures_util::future::join(following, writing).await;
    assert_eq!(seen, log(&fixture.store, &root).await);
    assert_eq!(seen.len() as u64, LINES);
}
