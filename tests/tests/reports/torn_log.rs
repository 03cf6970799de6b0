//! A log whose last record is torn, and two who write to one session (O25).
//!
//! The last transaction of SQLite's log is the record. It is there as a whole or not at all, so that a reader sees no
//! half of it; that something was torn is told by the run which it would have ended: it was interrupted.

use std::{collections::BTreeSet, path::Path};

use offspring_delegation::RootOptions;
use offspring_pool::PromptError;
use offspring_protocol::{Outcome, RunState, SessionId};
use offspring_sessions::{
    Refused, Scope,
    store::{EventQuery, LogRow},
};

use crate::world::*;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Where each frame of a log begins, and whether a transaction ends with it.
fn frames(wal: &[u8]) -> Vec<(usize, bool)> {
    let number = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let frame = FRAME_HEADER + number(8) as usize;
    (HEADER..wal.len()).step_by(frame).map(|at| (at, number(at + 4) != 0)).collect()
}

async fn log_of(house: &House, root: &SessionId) -> Vec<LogRow> {
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: 1_000 };
    house.manager().events(query).await.unwrap()
}

fn put(path: &Path, db: &[u8], wal: &[u8]) {
    let _ = std::fs::remove_file(path.with_extension("db-shm"));
    std::fs::write(path, db).unwrap();
    std::fs::write(path.with_extension("db-wal"), wal).unwrap();
}

#[tokio::test]
async fn o25_a_log_that_is_torn_at_any_byte_of_its_last_record_keeps_all_before_it_and_all_that_comes() {
    const LAST_WORDS: &str = "the-last-words-that-were-said";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let house = House::open(sqlite(&path)).await;
    let run = house.pool.run(Some(&name("coder")), LAST_WORDS.into(), RootOptions::default()).await.unwrap();
    let root = run.session.id.clone();
    bounded(run.result).await.unwrap();
    let whole = log_of(&house, &root).await;
    // While it is open: what was written stands in the log.
    let db = std::fs::read(&path).unwrap();
    let wal = std::fs::read(path.with_extension("db-wal")).unwrap();
    house.log().await;

    let frames = frames(&wal);
    let last = frames.iter().rposition(|(_, ends)| *ends).unwrap();
    let first = frames[..last].iter().rposition(|(_, ends)| *ends).unwrap() + 1;
    let (begins, ends) = (frames[first].0, frames.get(last + 1).map_or(wal.len(), |(at, _)| *at));
    // Every byte of the record's text and of each frame's header; of the rest of the pages some.
    let mut cuts: BTreeSet<usize> = (begins..ends).step_by(499).collect();
    for (at, _) in &frames[first..=last] {
        cuts.extend(*at..*at + FRAME_HEADER + 1);
    }
    let words = wal[begins..ends].windows(LAST_WORDS.len()).position(|found| found == LAST_WORDS.as_bytes());
    let words = begins + words.expect("the record is in its last transaction");
    cuts.extend(words - 40..words + LAST_WORDS.len() + 40);
    cuts.extend(ends - 30..=ends);

    let mut kept = BTreeSet::new();
    for cut in cuts {
        let copy = directory.path().join(format!("copy-{cut}.db"));
        put(&copy, &db, &wal[..cut]);
        let house = House::open(sqlite(&copy)).await;
        let torn = cut < ends;
        let recovered = house.pool.recovered().interrupted.len();
        assert_eq!(recovered, usize::from(torn), "one torn record is told once, cut at {cut}");
        let lines = log_of(&house, &root).await;
        // All whole records, as they were, and then what was found.
        let same = whole.iter().zip(&lines).take_while(|(was, is)| was == is).count();
        kept.insert(same);
        assert!(if torn { same < whole.len() } else { lines == whole }, "cut at {cut}");
        assert!(
            lines[same..].iter().all(|line| ["run_error", "status_changed"].contains(&line.event.kind()))
        );
        // What comes is lost as little.
        let again = house.pool.prompt(&root, "again".into()).await.unwrap();
        assert_eq!(bounded(again.result).await.unwrap().answer, "coder(again)", "cut at {cut}");
        let before = lines.len();
        let lines = log_of(&house, &root).await;
        house.log().await;
        let house = House::open(sqlite(&copy)).await;
        assert_eq!(log_of(&house, &root).await, lines, "cut at {cut}");
        assert!(lines.len() > before + 2 && (1..).zip(&lines).all(|(seq, line)| line.seq == seq));
        let states: Vec<_> = house.manager().store().runs(root.clone()).await.unwrap();
        let states: Vec<_> = states.iter().map(|run| run.state).collect();
        let first = if torn { Outcome::Interrupted } else { Outcome::Completed };
        assert_eq!(states, [first, Outcome::Completed].map(RunState::Ended), "cut at {cut}");
        house.log().await;
        std::fs::remove_file(&copy).unwrap();
    }
    assert_eq!(kept.len(), 2, "all but the last record, or all: {kept:?}");
}

#[tokio::test]
async fn o25_of_two_writers_on_one_session_the_second_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let first = House::open(sqlite(&path)).await;
    let stage = Stage::new();
    let mut heard = first.manager().subscribe(Scope::All);
    let run = first.start(plays("coder", &stage), "x").await;
    begun(&mut heard, 1).await;
    let root = run.session.id.clone();
    let second = House::open(sqlite(&path)).await;
    let before = log_of(&first, &root).await;
    let refused = second.pool.prompt(&root, "me too".into()).await.unwrap_err();
    assert!(matches!(&refused, PromptError::Refused(Refused::Foreign { id }) if *id == root), "{refused}");
    let new = offspring_sessions::NewChild::new(name("a"), offspring_protocol::AgentType::Native);
    let refused = second.manager().create_child(&root, new).await.unwrap_err();
    assert!(matches!(refused, Refused::Foreign { .. }), "{refused}");
    assert_eq!(log_of(&second, &root).await, before, "nothing was written");
    stage.let_go(1);
    assert_eq!(bounded(run.result).await.unwrap().outcome, Outcome::Completed);
    second.log().await;
    first.log().await;
}
