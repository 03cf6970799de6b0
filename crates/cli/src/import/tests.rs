//! What is exported and imported again is the same, whatever was in it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use offspring_protocol::{
    AgentType, External, NodeName, Origin, Outcome, RawEvent, RunRecord, RunState, SessionData, SessionId,
    SessionLimits, SourceType, Timestamp, Usage,
};
use offspring_sessions::{
    ManagerOptions, MemoryStore, SessionManager, SessionStore, TreeCopy,
    store::{EventQuery, LogRow, TreeQuery},
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::{document::Rows, source::Source, write};
use crate::export::json_of;

/// One session of a tree that is made up: whose child it is, its texts, its runs.
#[derive(Debug, Clone)]
struct Made {
    below: usize,
    words: Vec<String>,
    numbers: Vec<u64>,
    runs: Vec<(u8, bool)>,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        Just("</script>\u{1b}[31m\u{202e}\u{2028}\u{0}\"\\".to_owned()),
        Just(String::new()),
    ]
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let runs = prop::collection::vec((0..6_u8, any::<bool>()), 0..3);
    let one =
        (any::<usize>(), prop::collection::vec(text(), 6), prop::collection::vec(any::<u64>(), 4), runs);
    let one = one.prop_map(|(below, words, numbers, runs)| Made { below, words, numbers, runs });
    prop::collection::vec(one, 1..5)
}

/// Lines: the session, the gap before it, its kind, its data.
fn lines() -> impl Strategy<Value = Vec<(usize, u64, u8, String, bool)>> {
    let data = prop_oneof![
        text().prop_map(|text| serde_json::json!({ "text": text }).to_string()),
        Just("{ \"b\" : 1.0e3,\n\t\"a\":[ ] , \"a\":\"\\u00e9\\/\" }".to_owned()),
        Just("null".to_owned()),
        any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
    ];
    prop::collection::vec((any::<usize>(), 0..3_u64, 0..4_u8, data, any::<bool>()), 0..12)
}

fn tree(made: &[Made], name: u64) -> TreeCopy {
    let id = |place: usize| SessionId::new(format!("ses_{name}_{place}")).unwrap();
    let mut depths: Vec<u32> = Vec::new();
    let mut sessions = Vec::new();
    for (place, made) in made.iter().enumerate() {
        let parent = (place > 0).then(|| made.below % place);
        let depth = parent.map_or(0, |parent| depths[parent] + 1);
        depths.push(depth);
        let word = |n: usize| Some(made.words[n].clone()).filter(|word| !word.is_empty());
        let small = |n: usize| u32::try_from(made.numbers[n] % 1_000).ok();
        let at = |n: usize| Timestamp(made.numbers[n].cast_signed());
        let data = SessionData {
            id: id(place),
            parent_id: parent.map(id),
            root_id: id(0),
            depth,
            project_id: word(0).map(|word| word.try_into().unwrap()),
            cwd: word(1),
            agent_name: NodeName::new(word(2).unwrap_or("n".into()).replace('\0', "0")).unwrap(),
            agent_type: AgentType::from(made.words[3].as_str()),
            source_type: word(4).map(|word| SourceType::from(word.as_str())),
            pool_id: word(5).map(|word| word.try_into().unwrap()),
            task: word(0).map(|word| word.try_into().unwrap()),
            title: word(1),
            model: word(2),
            settings: word(3)
                .map(|word| RawValue::from_string(format!("[ {} ]", serde_json::json!(word))).unwrap()),
            limits: SessionLimits {
                max_depth: small(0),
                max_wall_ms: Some(made.numbers[1] >> 1),
                ..SessionLimits::UNBOUNDED
            },
            external: word(4).map(|word| External { peer: word.clone().try_into().unwrap(), id: word }),
            created_at: at(0),
            last_active_at: at(1),
            metadata: BTreeMap::from([(made.words[5].clone(), made.words[0].clone())]),
            version: "1".to_owned(),
        };
        let runs = made.runs.iter().enumerate().map(|(n, (state, with_error))| RunRecord {
            id: format!("run_{name}_{place}_{n}").parse().unwrap(),
            session_id: id(place),
            ordinal: u32::try_from(n).unwrap() + 1,
            state: match state {
                0 | 1 => RunState::Ended(Outcome::Completed),
                2 => RunState::Ended(Outcome::Failed),
                3 => RunState::Ended(Outcome::Cancelled),
                _ => RunState::Ended(Outcome::Interrupted),
            },
            error: with_error.then(|| made.words[1].clone()),
            usage: Usage {
                input_tokens: made.numbers[0] >> 1,
                output_tokens: made.numbers[1] >> 1,
                cached_tokens: 1,
                cost_micro_usd: with_error.then_some(made.numbers[2] >> 1),
                messages: 3,
            },
            process: word(2),
            opened_at: at(2),
            ended_at: Some(at(3)),
            left_out_bytes: made.numbers[3] >> 1,
        });
        let runs = runs.collect();
        sessions.push((data, runs));
    }
    let origin = (!made[0].words[4].is_empty()).then(|| Origin {
        manifest: "agents: {a: {type: command, command: [cat]}}\nentry: a\n".to_owned(),
        manifest_path: Some(made[0].words[4].clone()),
        node: NodeName::new("a").unwrap(),
        prompt: made[0].words[5].clone(),
        cwd: Some(made[0].words[0].clone()),
        program_version: "0.0.1".to_owned(),
        rerun_of: Some(id(99)),
    });
    TreeCopy { origin, sessions, last_seq: 0 }
}

fn log(copy: &mut TreeCopy, lines: &[(usize, u64, u8, String, bool)]) -> Vec<LogRow> {
    let mut seq = 0;
    let mut log = Vec::new();
    for (whose, gap, kind, data, late) in lines {
        seq += 1 + gap;
        let (session, runs) = &copy.sessions[whose % copy.sessions.len()];
        let kind = ["text_delta", "custom", "a later kind", "usage"][usize::from(*kind)];
        log.push(LogRow {
            seq,
            session: session.id.clone(),
            run: if *late {
                Some("run_unknown".parse().unwrap())
            } else {
                runs.first().map(|run| run.id.clone())
            },
            at: Timestamp(i64::try_from(seq).unwrap() - 7),
            late: *late,
            event: RawEvent::new(kind, RawValue::from_string(data.clone()).unwrap()),
        });
    }
    copy.last_seq = seq + 2;
    log
}

fn manager(store: Arc<dyn SessionStore>) -> SessionManager {
    SessionManager::new(store, ManagerOptions::default())
}

async fn everything(manager: &SessionManager, root: &SessionId) -> String {
    let rows = manager.subtree(root).await.unwrap();
    let mut runs = Vec::new();
    for row in &rows {
        runs.push(manager.store().runs(row.data.id.clone()).await.unwrap());
    }
    let query = EventQuery { root: root.clone(), session: None, after: 0, limit: usize::MAX };
    let log = manager.events(query).await.unwrap();
    let last = manager.store().trees(TreeQuery::Root(root.clone())).await.unwrap()[0].last_seq;
    format!("{rows:?} {runs:?} {log:?} {last} {:?}", manager.store().origin(root.clone()).await.unwrap())
}

/// Exports a tree; the file has it too.
async fn exported(manager: &SessionManager, root: &SessionId, path: &Path) -> Vec<u8> {
    let text = json_of(manager, root).await;
    std::fs::write(path, &text).unwrap();
    text.into_bytes()
}

#[test]
fn what_is_imported_is_what_was_exported() {
    static NAME: AtomicU64 = AtomicU64::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let _inside = runtime.enter();
    let from = manager(Arc::new(MemoryStore::new()));
    let to = manager(Arc::new(MemoryStore::new()));
    let path = dir.path().join("tree.json");
    proptest!(ProptestConfig::with_cases(256), |(made in made(), lines in lines())| {
        let mut copy = tree(&made, NAME.fetch_add(1, Ordering::Relaxed));
        let log = log(&mut copy, &lines);
        let root = copy.sessions[0].0.id.clone();
        runtime.block_on(async {
            let mut import = from.import(copy).await.unwrap();
            // A tree in which nothing ran is written in one piece all the same.
            import.append(log).await.unwrap();
            import.finish().await.unwrap();
            let first = exported(&from, &root, &path).await;
            let source = Source::open(&path, None).unwrap();
            let rows = Rows::read(&source).unwrap();
            write(&to, rows, &source).await.unwrap();
            prop_assert_eq!(everything(&to, &root).await, everything(&from, &root).await);
            prop_assert_eq!(exported(&to, &root, &path).await, first);
            Ok(())
        })?;
    });
}

#[test]
fn a_document_that_is_cut_or_changed_is_refused() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let _inside = runtime.enter();
    let from = manager(Arc::new(MemoryStore::new()));
    let path = dir.path().join("tree.json");
    let made = Made { below: 0, words: vec!["a".to_owned(); 6], numbers: vec![1; 4], runs: vec![(0, false)] };
    let mut copy = tree(&[made.clone(), made], 1_000_000);
    let lines = [(0, 0, 0, "{\"text\":\"x\"}".to_owned(), false), (1, 2, 1, "null".to_owned(), true)];
    let log = log(&mut copy, &lines);
    let root = copy.sessions[0].0.id.clone();
    let document = runtime.block_on(async {
        let mut import = from.import(copy).await.unwrap();
        import.append(log).await.unwrap();
        import.finish().await.unwrap();
        exported(&from, &root, &path).await
    });
    let whole = document.trim_ascii_end().len();
    for cut in (0..whole).step_by(11) {
        std::fs::write(&path, &document[..cut]).unwrap();
        let failure = Rows::read(&Source::open(&path, None).unwrap()).unwrap_err();
        let failure = format!("{failure:?}");
        assert!(failure.contains("nothing was changed"), "cut at {cut}: {failure}");
        assert!(failure.contains("ends in the middle"), "cut at {cut}: {failure}");
    }
    // No byte that is changed makes it panic, and no control character is let into a message.
    for place in (0..document.len()).step_by(11) {
        let mut changed = document.clone();
        changed[place] = b'\x1b';
        std::fs::write(&path, &changed).unwrap();
        let source = Source::open(&path, None).unwrap();
        let failure = Rows::read(&source).err().or_else(|| super::document::events(&source, |_| true).err());
        assert!(failure.is_some(), "changed at {place}");
    }
}
