//! Stores of the first version, brought to the present one by processes that are killed, refused or many.

use std::{
    fs::{self, File},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rusqlite::Connection;

use super::Step;
use crate::store::{
    StoreError,
    sqlite::{SqliteOptions, SqliteStore, schema},
};

const STORE: &str = "UPGRADE_TEST_DB";
const KILL_AT: &str = "UPGRADE_TEST_KILL_AT";
const STEPS: [Step; 7] = [
    Step::Locked,
    Step::CopyBegun,
    Step::CopyWritten,
    Step::CopySynced,
    Step::CopyNamed,
    Step::Changed,
    Step::Committed,
];

/// As `kill -9` at this step, where the test asks for it.
pub(super) fn reached(step: Step) {
    if std::env::var(KILL_AT).is_ok_and(|at| at == format!("{step:?}")) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// A store of the first version with two trees, one of them at work; its owner's lock is free.
struct Old {
    dir: tempfile::TempDir,
}

impl Old {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let old = Self { dir };
        fs::create_dir(old.owners()).unwrap();
        let conn = Connection::open(old.path()).unwrap();
        schema::make_first_version(&conn);
        conn.execute_batch(
            "INSERT INTO sessions (key, id, tree, parent, depth, agent_name, agent_type, created_at, last_active_at, version)
                 VALUES (1, 'a', NULL, NULL, 0, 'n', 'command', 1, 1, '1'), (2, 'b', 1, 1, 1, 'n', 'command', 2, 2, '1'),
                 (3, 'c', NULL, NULL, 0, 'n', 'command', 3, 3, '1');
             INSERT INTO trees (key, owner, epoch, last_seq, open_runs) VALUES (1, 'own_1', 1, 0, 0), (3, 'own_2', 1, 400, 1);
             INSERT INTO runs (session, n, id, ordinal, state, input_tokens, output_tokens, cached_tokens, messages, opened_at)
                 VALUES (1, 1, 'r1', 1, 2, 0, 0, 0, 0, 1), (3, 1, 'r2', 1, 1, 0, 0, 0, 0, 3);
             WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 400)
             INSERT INTO events (key, session, run, at, late, kind, data)
                 SELECT 3 * 4294967296 + n, 3, 1, n, 0, 3, printf('{\"text\":\"%s\"}', hex(randomblob(200))) FROM n;",
        )
        .unwrap();
        let _: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        old
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s.db")
    }

    fn owners(&self) -> PathBuf {
        self.dir.path().join("s.db.owners")
    }

    fn child(&self) -> Command {
        self.in_shell("")
    }

    /// This test program in the part of a program that opens the store, after these words of a shell.
    fn in_shell(&self, words: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{words} exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "store::sqlite::upgrade::tests::plays_its_part", "--nocapture", "--quiet"]);
        command.env(STORE, self.path());
        command
    }

    /// What it says of the store it opens.
    fn open(&self) -> String {
        said(&self.child().output().unwrap())
    }

    /// Every copy beside the store.
    fn copies(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut copies: Vec<PathBuf> =
            names.filter(|path| path.to_string_lossy().contains("backup")).collect();
        copies.sort();
        copies
    }
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().find_map(|line| Some(line.split_once("> ")?.1.to_owned()));
    said.unwrap_or_else(|| panic!("it said nothing: {output:?}"))
}

/// The version of a store and all that the first version kept, read without a program of ours.
fn content(path: &Path) -> (u32, Vec<String>) {
    let conn = Connection::open(path).unwrap();
    let whole: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok", "{}", path.display());
    let mut rows = Vec::new();
    for sql in [
        "SELECT quote(key) || quote(id) || quote(parent) || quote(tree) || quote(created_at) FROM sessions ORDER BY key",
        "SELECT quote(key) || quote(owner) || quote(last_seq) || quote(open_runs) FROM trees ORDER BY key",
        "SELECT quote(session) || quote(n) || quote(id) || quote(state) FROM runs ORDER BY session, n",
        "SELECT quote(key) || quote(session) || quote(run) || quote(kind) || quote(data) FROM events ORDER BY key",
    ] {
        let mut statement = conn.prepare(sql).unwrap();
        let found = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.extend(found.map(Result::unwrap));
    }
    (conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap(), rows)
}

/// Nothing in the process that runs the tests; opens the store in those it starts.
#[test]
fn plays_its_part() {
    let Ok(path) = std::env::var(STORE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let said = match SqliteStore::open(path, SqliteOptions::default()) {
        Ok(store) => match store.upgraded() {
            Some(upgraded) => {
                format!("upgraded {} {} {}", upgraded.from, upgraded.to, upgraded.copy.display())
            }
            None => "as it was".to_owned(),
        },
        Err(StoreError::InUse { root, .. }) => format!("in use {root}"),
        Err(StoreError::Full { store, .. }) if store.contains("a copy is kept") => {
            "no room for a copy".to_owned()
        }
        Err(error) => format!("error: {error}"),
    };
    println!("> {said}");
}

#[test]
fn killed_at_any_step_it_is_of_one_version_whole_and_the_next_start_goes_on() {
    for step in STEPS {
        let old = Old::new();
        let (version, before) = content(&old.path());
        assert_eq!(version, 1);
        let killed = old.child().env(KILL_AT, format!("{step:?}")).output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{step:?} was not reached: {killed:?}");
        let is_over = step == Step::Committed;
        let found = content(&old.path());
        assert_eq!(found, (if is_over { schema::VERSION } else { 1 }, before.clone()), "{step:?}");
        // What has the name of a copy is one.
        let named = matches!(step, Step::CopyNamed | Step::Changed | Step::Committed);
        assert_eq!(old.copies().len(), usize::from(named), "{step:?}");
        let copy = old.path().with_file_name("s.db.v1-backup");
        let expected = match is_over {
            true => "as it was".to_owned(),
            false => format!("upgraded 1 {} {}", schema::VERSION, copy.display()),
        };
        assert_eq!(old.open(), expected, "{step:?}");
        assert_eq!(content(&old.path()), (schema::VERSION, before.clone()), "{step:?}");
        // One copy, also when the killed attempt had made one: it is the same.
        assert_eq!(old.copies(), std::slice::from_ref(&copy), "{step:?}");
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(content(&copy), (1, before), "{step:?}");
        let left: Vec<_> =
            fs::read_dir(old.owners()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("copy")), "{step:?}: {left:?}");
    }
}

#[test]
fn a_copy_that_is_there_is_never_written_to() {
    let old = Old::new();
    let copy = old.path().with_file_name("s.db.v1-backup");
    let killed = old.child().env(KILL_AT, "CopyNamed").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    let first = fs::read(&copy).unwrap();
    // The version it was made by goes on meanwhile.
    Connection::open(old.path()).unwrap().execute("DELETE FROM events WHERE key % 2 = 0", []).unwrap();
    let (_, before) = content(&old.path());
    let second = old.path().with_file_name("s.db.v1-backup-2");
    assert_eq!(old.open(), format!("upgraded 1 {} {}", schema::VERSION, second.display()));
    assert_eq!(fs::read(&copy).unwrap(), first);
    assert_eq!(content(&second), (1, before));
}

#[test]
fn a_store_in_which_an_owner_works_is_left_alone_until_it_ends() {
    let old = Old::new();
    let lock = File::create(old.owners().join("own_2.lock")).unwrap();
    lock.lock().unwrap();
    let (before, bytes) = (content(&old.path()), fs::read(old.path()).unwrap());
    assert_eq!(old.open(), "in use c");
    assert_eq!(content(&old.path()), before);
    assert_eq!(fs::read(old.path()).unwrap(), bytes);
    assert!(old.copies().is_empty());
    // Its owner has the store open, but nothing in it is at work.
    let idle = File::create(old.owners().join("own_1.lock")).unwrap();
    idle.lock().unwrap();
    drop(lock);
    assert!(old.open().starts_with("upgraded 1 "));
}

#[test]
fn without_room_for_the_copy_nothing_changes() {
    let old = Old::new();
    let before = content(&old.path());
    // Files may grow to 64 KiB, what SQLite shares between programs has 32. The signal is not for us.
    let output = old.in_shell("trap '' XFSZ; ulimit -f 128;").output().unwrap();
    assert_eq!(said(&output), "no room for a copy");
    assert_eq!(content(&old.path()), before);
    assert!(old.copies().is_empty());
    assert!(!old.owners().join(".copy").exists(), "half of a copy takes room that is needed");
    assert!(old.open().starts_with("upgraded 1 "));
}

#[test]
fn without_room_for_the_change_the_copy_goes_too() {
    let old = Old::new();
    let before = content(&old.path());
    let options = SqliteOptions { max_bytes: Some(4_096), ..SqliteOptions::default() };
    for _ in 0..2 {
        let full = SqliteStore::open(old.path(), options);
        assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
        assert_eq!(content(&old.path()), before);
        assert!(old.copies().is_empty());
    }
    assert!(old.open().starts_with("upgraded 1 "));
}

#[test]
fn many_that_open_it_at_once_upgrade_it_once() {
    let old = Old::new();
    let (_, before) = content(&old.path());
    let start = |_| {
        let mut command = old.child();
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(start).collect();
    let mut said: Vec<String> =
        children.into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect();
    said.sort();
    assert!(
        said[5].starts_with("upgraded 1 ") && said[..5].iter().all(|said| said == "as it was"),
        "{said:?}"
    );
    assert_eq!(old.copies().len(), 1);
    assert_eq!(content(&old.path()), (schema::VERSION, before));
}

#[test]
fn a_damaged_store_is_not_copied_and_not_changed() {
    let old = Old::new();
    // In the middle of the log, far from what opening reads.
    let mut bytes = fs::read(old.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8_192].fill(0xA5);
    fs::write(old.path(), &bytes).unwrap();
    let said = old.open();
    assert!(said.starts_with("error: ") && said.contains("is damaged"), "{said}");
    assert!(old.copies().is_empty());
    assert_eq!(fs::read(old.path()).unwrap(), bytes);
}
