//! A year later: stores of every schema version, opened by the present program (`tests/fixtures/stores`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use offspring_sessions::store::sqlite::SCHEMA_VERSION;
use offspring_tests::{Finished, Running, World, offspring, processes::SignalName as Signal};
use rusqlite::Connection;
use serde_json::Value;

/// Keys of a session in `tree --json` that a store from before them does not have, and what is said for it
/// then. Every key that a version did print has to be printed as it was.
const NEW_KEYS: &[(&str, &str)] = &[("left_out_bytes", "0"), ("rerun_of", "null"), ("taken_from", "null")];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stores")
}

/// The store of a schema version, in a world of its own.
struct Old {
    world: World,
    version: u32,
}

impl Old {
    fn new(version: u32) -> Self {
        let world = World::new();
        let fixture = fixtures().join(format!("v{version}.db"));
        fs::copy(&fixture, world.db()).unwrap_or_else(|error| panic!("{}: {error}", fixture.display()));
        Self { world, version }
    }

    /// What `tree --json` said of each root when the store was made.
    fn trees(&self) -> Vec<Value> {
        let path = fixtures().join(format!("v{}.tree.json", self.version));
        let trees: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert!(trees.len() >= 5);
        trees
    }

    fn copy(&self) -> PathBuf {
        self.world.path(&format!("sessions.db.v{}-backup", self.version))
    }

    /// What it has on the disk, without what SQLite and owners put beside it.
    fn files(&self) -> BTreeSet<String> {
        let names = self.world.picture(&self.world.path("")).into_iter().map(|(path, _)| path);
        let names = names.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        names.filter(|name| name.starts_with("sessions.db") && !name.ends_with(".owners")).collect()
    }

    /// The store of the first version, grown by a log of some MiB, so that copying it takes a while.
    fn grown(template: &Path) -> Self {
        let world = World::new();
        fs::copy(template, world.db()).unwrap();
        Self { world, version: 1 }
    }
}

fn grow(db: &Path) {
    let conn = Connection::open(db).unwrap();
    conn.execute_batch(
        "WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
         INSERT INTO events (key, session, run, at, late, kind, data)
             SELECT 1 << 32 | (last_seq + n), 1, NULL, 1, 0, 'later', printf('\"%s\"', hex(randomblob(1000)))
             FROM n, trees WHERE trees.key = 1;
         UPDATE trees SET last_seq = last_seq + 2000 WHERE key = 1;",
    )
    .unwrap();
}

fn version_of(db: &Path) -> u32 {
    Connection::open(db).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

fn number(db: &Path, sql: &str) -> i64 {
    Connection::open(db).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Whether what is printed now says all that was printed then, in the same words.
fn compare(then: &Value, now: &Value) {
    for key in ["root", "depth"] {
        assert_eq!(then[key], now[key]);
    }
    let sessions = |tree: &Value| tree["sessions"].as_array().unwrap().clone();
    let (before, after) = (sessions(then), sessions(now));
    assert_eq!(before.len(), after.len());
    for (then, now) in before.iter().zip(&after) {
        let (then, mut now) = (then.as_object().unwrap(), now.as_object().unwrap().clone());
        for (key, value) in then {
            assert_eq!(now.remove(key).as_ref(), Some(value), "{key} of {}", then["id"]);
        }
        for (key, value) in now {
            let expected = NEW_KEYS.iter().find(|(known, _)| **known == key);
            let Some((_, expected)) = expected else { panic!("`{key}` is new: name it in NEW_KEYS") };
            assert_eq!(value.to_string(), *expected, "{key} of {}", then["id"]);
        }
    }
}

#[test]
fn every_schema_version_has_left_a_store() {
    for version in 1..=SCHEMA_VERSION {
        for name in [format!("v{version}.db"), format!("v{version}.tree.json")] {
            let path = fixtures().join(&name);
            assert!(
                path.is_file(),
                "there is no {name}: tests/fixtures/stores/README.md says how to make it"
            );
        }
        assert_eq!(version_of(&Old::new(version).world.db()), version);
    }
}

#[test]
fn a_store_of_any_version_shows_the_same_trees() {
    for version in 1..=SCHEMA_VERSION {
        let old = Old::new(version);
        let trees = old.trees();
        let first = old.world.offspring(&["ls", "--json"]).with(0);
        let listed: Vec<Value> = serde_json::from_str(&first.stdout).unwrap();
        let roots: Vec<&Value> = listed.iter().map(|root| &root["id"]).collect();
        assert_eq!(roots, trees.iter().map(|tree| &tree["root"]).collect::<Vec<_>>());
        for then in &trees {
            let root = then["root"].as_str().unwrap();
            compare(then, &old.world.json(&["tree", root, "--json"]));
            for form in ["--mermaid", "--dot"] {
                old.world.offspring(&["tree", root, form]).with(0);
            }
            let text = old.world.offspring(&["tree", root]).with(0).stdout;
            assert_eq!(text.lines().count(), then["sessions"].as_array().unwrap().len());
        }
        // What the upgrade did is said once, and not of a store that was ours.
        let (copy, is_old) = (old.copy(), version < SCHEMA_VERSION);
        let said = first.stderr.contains(copy.to_str().unwrap());
        assert_eq!((said, copy.exists()), (is_old, is_old), "{}", first.stderr);
        let again = old.world.offspring(&["ls"]).with(0);
        assert_eq!(again.stderr, "");
        if is_old {
            assert_eq!(first.stderr.lines().count(), 1, "{}", first.stderr);
            assert_eq!(version_of(&copy), version);
            assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}

#[test]
fn sessions_of_any_version_are_shown_and_followed() {
    for version in 1..=SCHEMA_VERSION {
        let old = Old::new(version);
        for then in old.trees() {
            let root = then["root"].as_str().unwrap();
            let mut prompts = 0;
            for session in then["sessions"].as_array().unwrap() {
                let id = session["id"].as_str().unwrap();
                old.world.offspring(&["show", id]).with(0);
                let shown = old.world.json(&["show", id, "--json"]);
                assert_eq!(shown["session"]["id"], session["id"]);
                assert_eq!(shown["runs"].as_array().unwrap().last().unwrap()["state"], session["run_state"]);
                let transcript = shown["transcript"].as_array().unwrap();
                prompts += transcript.iter().filter(|line| line["event"]["kind"] == "run_started").count();
            }
            assert!(prompts >= 1);
            // A tree at rest: all of its history, then the end.
            let watched = old.world.offspring(&["watch", root, "--json"]).with(0);
            let seqs: Vec<u64> = watched
                .stdout
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
                .collect();
            let last = number(
                &old.world.db(),
                &format!("SELECT last_seq FROM trees JOIN sessions USING (key) WHERE id = '{root}'"),
            );
            assert_eq!(seqs, (1..=last.unsigned_abs()).collect::<Vec<_>>());
        }
    }
}

/// A new run goes into an old store, which is older by then.
#[test]
fn a_pool_runs_on_a_store_of_the_first_version() {
    let old = Old::new(1);
    old.world.pool("agents:\n  a: {type: command, command: [cat]}\nentry: a\n");
    let done = old.world.run("a", "hello", &["--quiet"]).with(0);
    assert_eq!(done.stdout.trim_end(), "hello");
    assert_eq!(done.stderr.lines().filter(|line| line.contains("-backup")).count(), 1, "{}", done.stderr);
    let roots = old.world.json(&["ls", "--json"]);
    assert_eq!(roots.as_array().unwrap().len(), old.trees().len() + 1);
    assert_eq!(roots[0]["outcome"], "completed");
    // The copy is a store of its own, for whoever goes back to the version that wrote it.
    assert_eq!(version_of(&old.copy()), 1);
    let mut of_copy = old.world.bare();
    of_copy.arg("--db").arg(old.copy()).args(["ls", "--json"]);
    let of_copy: Value = serde_json::from_str(&Running::start(of_copy).finish().with(0).stdout).unwrap();
    assert_eq!(of_copy.as_array().unwrap().len(), old.trees().len());
}

/// The lock that an owner of a tree holds while it lives, taken in its stead.
fn hold_owner(old: &Old) -> (File, String) {
    let conn = Connection::open(old.world.db()).unwrap();
    let sql = "SELECT owner, id FROM trees JOIN sessions USING (key) WHERE open_runs > 0";
    let (owner, root): (String, String) =
        conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let owners = old.world.path("sessions.db.owners");
    fs::create_dir_all(&owners).unwrap();
    let lock = File::create(owners.join(format!("{owner}.lock"))).unwrap();
    lock.lock().unwrap();
    (lock, root)
}

#[test]
fn a_store_in_which_an_older_program_works_is_not_changed_under_it() {
    let old = Old::new(1);
    old.world.pool("agents:\n  a: {type: command, command: [cat]}\nentry: a\n");
    let (lock, root) = hold_owner(&old);
    let bytes = fs::read(old.world.db()).unwrap();
    let run = old.world.run_command("a", "hello", &[]);
    for command in [old.world.command(&["ls"]), old.world.command(&["tree", &root]), run] {
        let refused = Running::start(command).finish().with(1);
        assert_eq!(refused.stdout, "");
        assert!(refused.stderr.starts_with("error: the store "), "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("offspring cancel {root}")), "{}", refused.stderr);
        assert!(refused.stderr.lines().count() <= 6);
        assert_eq!(fs::read(old.world.db()).unwrap(), bytes);
        assert!(!old.copy().exists());
    }
    drop(lock);
    assert!(old.world.offspring(&["ls"]).with(0).stderr.contains("-backup"));
}

#[test]
fn without_room_for_the_copy_the_store_stays_as_it_is() {
    let old = Old::new(1);
    grow(&old.world.db());
    let bytes = fs::read(old.world.db()).unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""]).arg(offspring());
    limited.arg("--db").arg(old.world.db()).arg("ls").env_clear().env("HOME", old.world.path("home"));
    let refused = Running::start(limited).finish().with(1);
    assert!(refused.stderr.contains(old.world.db().to_str().unwrap()), "{}", refused.stderr);
    assert!(refused.stderr.contains("no room") && refused.stderr.contains("a copy"), "{}", refused.stderr);
    assert_eq!(fs::read(old.world.db()).unwrap(), bytes);
    assert_eq!(old.files(), BTreeSet::from(["sessions.db".to_owned()]));
    assert!(old.world.offspring(&["ls"]).with(0).stderr.contains("-backup"));
}

#[test]
fn every_command_refuses_a_store_of_a_later_version_and_leaves_it_alone() {
    let old = Old::new(SCHEMA_VERSION);
    let later = Connection::open(old.world.db()).unwrap();
    later.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    drop(later);
    let bytes = fs::read(old.world.db()).unwrap();
    for command in [&["ls"][..], &["tree"], &["show"], &["watch", "latest"], &["cancel", "latest"]] {
        let refused = old.world.offspring(command).with(1);
        assert!(refused.stderr.contains("newer"), "{command:?}: {}", refused.stderr);
        assert_eq!(fs::read(old.world.db()).unwrap(), bytes, "{command:?}");
    }
    assert_eq!(old.files(), BTreeSet::from(["sessions.db".to_owned()]));
}

/// What `kill -9` left: one version whole, which opens and has lost nothing.
fn check_after_kill(old: &Old, events: i64) -> u32 {
    let db = old.world.db();
    let version = version_of(&db);
    assert!([1, SCHEMA_VERSION].contains(&version));
    let whole = |db: &Path| {
        let checked: String =
            Connection::open(db).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok", "{}", db.display());
        assert!(number(db, "SELECT count(*) FROM events") >= events, "{}", db.display());
    };
    whole(&db);
    // No half of a copy has the name of one.
    if old.copy().exists() {
        assert_eq!(version_of(&old.copy()), 1);
        whole(&old.copy());
    }
    // The newest, whose runs are open in the file, and the oldest, which is large.
    let trees = old.trees();
    for then in [&trees[0], &trees[trees.len() - 1]] {
        compare(then, &old.world.json(&["tree", then["root"].as_str().unwrap(), "--json"]));
    }
    assert_eq!(version_of(&db), SCHEMA_VERSION);
    whole(&old.copy());
    let files = old.files();
    let copies = files.iter().filter(|name| name.contains("backup")).count();
    assert_eq!(copies, 1, "an attempt that was killed leaves no second copy: {files:?}");
    version
}

#[test]
fn killed_at_many_moments_of_an_upgrade_a_store_is_old_or_new_and_whole() {
    const MOMENTS: u32 = 24;
    /// Tried at the same time: much of it is waiting for the disk.
    const WORKERS: u32 = 3;
    let measured = Old::new(1);
    grow(&measured.world.db());
    let template = measured.world.path("template");
    fs::copy(measured.world.db(), &template).unwrap();
    let started = Instant::now();
    measured.world.offspring(&["ls"]).with(0);
    let whole = started.elapsed();
    let events = number(&measured.copy(), "SELECT count(*) FROM events");
    let worker = |first: u32| {
        let mut versions = Vec::new();
        for moment in (first..MOMENTS).step_by(WORKERS as usize) {
            let old = Old::grown(&template);
            let running = Running::start(old.world.command(&["ls"]));
            // moment: when it is killed is what is tried
            std::thread::sleep(whole * moment / MOMENTS);
            running.send(Signal::KILL);
            let Finished { signal, .. } = running.finish();
            let version = check_after_kill(&old, events);
            if signal == Some(9) {
                versions.push(version);
            }
        }
        versions
    };
    let versions: Vec<u32> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|first| {
                scope.spawn({
                    let worker = &worker;
                    move || worker(first)
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(versions.len() > MOMENTS as usize / 2, "most of them were over before: {versions:?}");
    assert!(versions.contains(&1));
}
