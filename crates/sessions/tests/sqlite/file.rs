//! One process and its file.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use offspring_sessions::store::{
    Durability, OwnerState, SessionQuery, SessionStore, StoreError, Write,
    sqlite::{SCHEMA_VERSION, SqliteOptions, SqliteStore},
};
use rusqlite::Connection;

use crate::plant::{
    Planted, SPAWN_LINES, check_integrity, check_tree, child, id, impatient, line, log, open,
};

#[tokio::test]
async fn what_was_acknowledged_is_there_after_closing_dropping_and_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let first = open(&path);
    let planted = Planted::new(&first, "closed").await;
    planted.spawn("a", 1).await.unwrap();
    first.close().await.unwrap();
    drop(first);
    assert!(!path.with_extension("db-wal").exists(), "the last one to close leaves one file");
    let second = open(&path);
    let planted = Planted::new(&second, "dropped").await;
    for number in 0..10 {
        planted.spawn(&format!("b{number}"), 1 + number * SPAWN_LINES).await.unwrap();
    }
    drop(second);
    let third = open(&path);
    assert_eq!(check_tree(&third, &id("closed")).await, ["a"]);
    assert_eq!(check_tree(&third, &id("dropped")).await.len(), 10);
    drop(third);
    check_integrity(&path);
}

#[tokio::test]
async fn a_dropped_store_lets_go_of_its_lock_and_its_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let (first, second) = (open(&path), open(&path));
    let owner = first.owner();
    let changes = first.changes();
    assert_eq!(second.owner_state(owner.clone()).await.unwrap(), OwnerState::Alive);
    drop(first);
    assert_eq!(second.owner_state(owner.clone()).await.unwrap(), OwnerState::Dead);
    drop(changes);
    let left: Vec<_> =
        fs::read_dir(dir.path().join("store.db.owners")).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains(owner.as_str())));
}

#[tokio::test]
async fn the_directories_are_made_and_the_store_is_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("a/b/store.db");
    open(&path).close().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir.path()), 0o755);
    assert_eq!(mode(&dir.path().join("a")), 0o700);
    assert_eq!(mode(&dir.path().join("a/b")), 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    open(&path).close().await.unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_place_that_cannot_hold_a_store_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let places = [
        dir.path().to_owned(),
        file.join("store.db"),
        "/proc/store/store.db".into(),
        pipe,
        "/dev/null".into(),
    ];
    for path in places {
        let refused = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
        let StoreError::Unusable { .. } = refused else { panic!("{path:?}: {refused:?}") };
        let text = refused.to_string();
        assert!(text.contains("--db") && text.contains("OFFSPRING_DB"), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    let refused = SqliteStore::open(&path, SqliteOptions::default());
    assert!(matches!(refused, Err(StoreError::Unusable { .. })), "{refused:?}");
    let tables: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_file_that_a_newer_version_took_over_meanwhile_is_written_to_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path);
    let planted = Planted::new(&store, "root").await;
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    let refused = planted.write(vec![Write::Append(line(&planted.root.id, 1, "x"))]).await;
    let Err(StoreError::Newer { found, supported, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((found, supported), (SCHEMA_VERSION + 1, SCHEMA_VERSION));
    let events: i64 = newer.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(events, 0);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    open(&path).close().await.unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7_000).unwrap();
    let refused = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 7_000, .. }), "{refused:?}");
    assert!(refused.to_string().contains("--db"));
    let version: i64 =
        Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 7_000);
}

#[tokio::test]
async fn what_a_removed_store_left_behind_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path);
    Planted::new(&store, "old").await.spawn("a", 1).await.unwrap();
    let wal = fs::read(path.with_extension("db-wal")).unwrap();
    drop(store);
    fs::remove_file(&path).unwrap();
    fs::write(path.with_extension("db-wal"), wal).unwrap();
    let store = open(&path);
    assert!(store.sessions(SessionQuery::Roots { limit: 9 }).await.unwrap().is_empty());
    Planted::new(&store, "new").await;
    drop(store);
    check_integrity(&path);
}

#[tokio::test(flavor = "multi_thread")]
async fn o24_a_held_file_is_waited_for_up_to_the_bound_and_then_busy() {
    let bound = Duration::from_millis(300);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = impatient(&path, bound);
    let planted = Planted::new(&store, "root").await;
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let started = Instant::now();
    let writes = (1..=3).map(|seq| planted.write(vec![Write::Append(line(&planted.root.id, seq, "x"))]));
    for refused in join_all(writes).await {
        let Err(StoreError::Busy { waited, .. }) = refused else { panic!("{refused:?}") };
        assert!(waited >= bound);
    }
    let took = started.elapsed();
    assert!(took >= bound && took < Duration::from_secs(10), "{took:?}");
    // Readers do not wait for writers.
    assert!(log(&store, &planted.root.id).await.is_empty());
    holder.execute_batch("ROLLBACK").unwrap();
    planted.write(vec![Write::Append(line(&planted.root.id, 1, "x"))]).await.unwrap();
    assert_eq!(log(&store, &planted.root.id).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_what_does_not_fit_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let options = SqliteOptions { max_bytes: Some(1 << 20), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let (big, small) = (Planted::new(&store, "big").await, Planted::new(&store, "small").await);
    let too_big = Write::Append(line(&big.root.id, 1, &"x".repeat(2 << 20)));
    let fits = Write::Append(line(&small.root.id, 1, "y"));
    let (refused, done) = tokio::join!(big.write(vec![too_big]), small.write(vec![fits]));
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    assert_eq!(done.unwrap().last_seq, 1);
    assert!(log(&store, &big.root.id).await.is_empty());
    big.write(vec![Write::Append(line(&big.root.id, 1, "z"))]).await.unwrap();
    drop(store);
    check_integrity(&path);
}

#[tokio::test]
async fn nothing_of_what_was_deleted_stays_in_the_files() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path);
    let planted = Planted::new(&store, "root").await;
    let mut seq = 0;
    // Long and short, between rows that stay, so that pages are split, moved and overflow.
    for number in 0..300 {
        let name = format!("{}{number}", if number % 3 == 0 { SECRET } else { "kept" });
        let data = child(&planted.root, &name);
        let text = if number % 3 == 0 { SECRET.repeat(1 + number * 2) } else { "kept ".repeat(1 + number) };
        seq += 1;
        let session = data.id.clone();
        let writes = vec![Write::Session(Arc::new(data)), Write::Append(line(&session, seq, &text))];
        planted.write(writes).await.unwrap();
    }
    let holds = || {
        let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let holds = |path: &Path| {
            path.is_file()
                && fs::read(path).unwrap().windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
        };
        files.filter(|path| holds(path)).collect::<Vec<_>>()
    };
    assert!(!holds().is_empty());
    for number in (0..300).step_by(3) {
        planted.write(vec![Write::Delete(id(&format!("{SECRET}{number}")))]).await.unwrap();
    }
    assert_eq!(holds(), Vec::<std::path::PathBuf>::new(), "while the store is open");
    store.close().await.unwrap();
    assert_eq!(holds(), Vec::<std::path::PathBuf>::new(), "after it was closed");
    assert_eq!(log(&open(&path), &planted.root.id).await.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_one_and_commits_for_a_power_cut_store_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions { max_group: 1, ..SqliteOptions::default() }).unwrap();
    let planted = Planted::new(&store, "root").await;
    let commits = (1..=20).map(|seq| {
        let mut batch = planted.batch(vec![Write::Append(line(&planted.root.id, seq, "x"))]);
        batch.durability = if seq % 2 == 0 { Durability::Power } else { Durability::Process };
        store.commit(batch)
    });
    for (seq, done) in (1..).zip(join_all(commits).await) {
        assert_eq!(done.unwrap().last_seq, seq);
    }
}
