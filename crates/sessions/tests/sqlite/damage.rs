//! Files that are not what we wrote.

use std::{fs, path::Path};

use offspring_sessions::store::{
    EventQuery, SessionQuery, SessionStore, StoreError, TreeQuery, Write,
    sqlite::{SqliteOptions, SqliteStore},
};

use crate::plant::{Planted, SPAWN_LINES, check_integrity, check_tree, id, line, log, open, root};

/// A store of some pages, closed; gives its bytes.
async fn written(path: &Path) -> Vec<u8> {
    let store = open(path);
    let planted = Planted::new(&store, "root").await;
    for number in 0..60 {
        planted.spawn(&format!("child {number}"), 1 + number * SPAWN_LINES).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    fs::read(path).unwrap()
}

#[tokio::test]
async fn o24_a_truncated_file_is_corrupt_and_never_an_empty_tree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let whole = written(&path).await;
    let lengths = [0, 1, 15, 16, 17, 99, 100, 511, 512, 513, 4_095];
    let pages = (1..whole.len() / 4_096).map(|page| page * 4_096);
    for length in
        lengths.into_iter().chain(pages.flat_map(|at| [at - 1, at, at + 1])).chain([whole.len() - 1])
    {
        fs::write(&path, &whole[..length]).unwrap();
        let opened = SqliteStore::open(&path, SqliteOptions::default());
        let Err(StoreError::Corrupt { store, .. }) = opened else { panic!("{length} bytes: {opened:?}") };
        assert_eq!(store, path.display().to_string());
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(check_tree(&open(&path), &id("root")).await.len(), 60);
}

#[tokio::test]
async fn something_else_under_the_name_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    for bytes in ["agents:\n  - name: x\n".repeat(500).into_bytes(), vec![0; 8_192], vec![0xFF; 5_000]] {
        fs::write(&path, &bytes).unwrap();
        let opened = SqliteStore::open(&path, SqliteOptions::default());
        assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{opened:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_damaged_page_is_corrupt_or_untouched_by_the_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let whole = written(&path).await;
    let mut found = 0;
    for page in 1..whole.len() / 4_096 {
        let mut bytes = whole.clone();
        bytes[page * 4_096..(page + 1) * 4_096].fill(0xA5);
        fs::write(&path, &bytes).unwrap();
        let store = match SqliteStore::open(&path, SqliteOptions::default()) {
            Ok(store) => store,
            Err(error) => panic!("page {page}: {error:?}"),
        };
        let query = EventQuery { root: id("root"), session: None, after: 0, limit: usize::MAX };
        let events = store.events(query).await.map(|lines| lines.len());
        let sessions = store.sessions(SessionQuery::Subtree(id("root"))).await.map(|rows| rows.len());
        let sessions_are_whole = matches!(sessions, Ok(61));
        let events_are_whole = matches!(events, Ok(180));
        assert!(
            events_are_whole || matches!(events, Err(StoreError::Corrupt { .. })),
            "page {page}: {events:?}"
        );
        assert!(
            sessions_are_whole || matches!(sessions, Err(StoreError::Corrupt { .. })),
            "page {page}: {sessions:?}"
        );
        found += usize::from(!(sessions_are_whole && events_are_whole));
        // Its log must not be replayed into the next file of that name.
        drop(store);
        for suffix in ["db-wal", "db-shm"] {
            let _ = fs::remove_file(path.with_extension(suffix));
        }
    }
    assert!(found > 3, "only {found} damaged pages were seen");
}

/// SQLite's log, cut off at every place in its last transactions, as a kill in the middle of a write leaves it.
#[tokio::test]
async fn o25_a_log_cut_off_anywhere_gives_all_whole_records_and_loses_no_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let (db, wal);
    {
        let store = open(&path);
        let planted = Planted::new(&store, "root").await;
        for number in 0..10 {
            planted.spawn(&format!("child {number}"), 1 + number * SPAWN_LINES).await.unwrap();
        }
        // While it is open: everything since it was made stands in the log only.
        db = fs::read(&path).unwrap();
        wal = fs::read(path.with_extension("db-wal")).unwrap();
    }
    let copy = dir.path().join("copy.db");
    let mut seen = std::collections::BTreeSet::new();
    // Every byte of the last frame's header and around its borders, and a prime step through the rest.
    let frame = 24 + 4_096;
    let last = wal.len() - frame;
    let cuts = (wal.len() - 12 * frame..wal.len())
        .step_by(997)
        .chain(last - 30..last + 30)
        .chain(wal.len() - 30..=wal.len());
    for cut in cuts {
        for suffix in ["db-wal", "db-shm"] {
            let _ = fs::remove_file(copy.with_extension(suffix));
        }
        fs::write(&copy, &db).unwrap();
        fs::write(copy.with_extension("db-wal"), &wal[..cut]).unwrap();
        let store = open(&copy);
        let names = check_tree(&store, &id("root")).await;
        assert!((0..names.len()).all(|number| names[number] == format!("child {number}")), "{names:?}");
        seen.insert(names.len());
        // The next owner takes the tree over and goes on.
        let tree = store.trees(TreeQuery::Root(id("root"))).await.unwrap().remove(0);
        let fence = store.claim(id("root"), tree.fence.epoch).await.unwrap();
        let planted = Planted { store: &store, fence, root: root("root") };
        for step in 1..=3 {
            let next = line(&planted.root.id, tree.last_seq + step, "new");
            planted.write(vec![Write::Append(next)]).await.unwrap();
        }
        drop(store);
        let store = open(&copy);
        assert_eq!(log(&store, &id("root")).await.len() as u64, tree.last_seq + 3, "cut at {cut}");
        drop(store);
        check_integrity(&copy);
    }
    assert!(seen.len() > 1 && seen.contains(&10), "the cuts hit no transaction: {seen:?}");
}
