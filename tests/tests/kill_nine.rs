//! `kill -9` of the main job at 50 moments: what was announced is there, nothing stays open, nothing is left.
//!
//! The main job itself, `examples/survey.yaml`, on a small repository. There it is over in half a second, most of
//! which is its beginning; so its `sort` (the one on PATH) is one that talks for a second before it sorts. All
//! agents, all delegation and all writing are the survey's own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use offspring_tests::{Running, World, processes::SignalName as Signal};
use serde_json::Value;

const MOMENTS: usize = 50;
/// At so many of them two or more runs have to be open.
const ENOUGH: usize = 40;
/// Runs that are tried for one moment: the last moments are so late that some runs are over before.
const ATTEMPTS: usize = 10;
/// Runs that are killed at the same time: most of a run is waiting.
const WORKERS: usize = 4;
const SLOW_SORT: &str = "#!/bin/sh
i=0
while [ $i -lt 18 ]; do echo \"about to sort, $i\" >&2; sleep 0.05; i=$((i+1)); done
PATH=$REAL_PATH exec sort \"$@\"
";

/// A store of its own with a repository beside it.
struct Job {
    world: World,
    path: OsString,
}

impl Job {
    fn new() -> Self {
        let world = World::new();
        for (name, lines) in [("main.c", 1_200), ("part/one.c", 300), ("part/two.py", 40)] {
            let text: String =
                (0..lines).map(|n| format!("value_{n} = {n}; // TODO later, FIXME now\n")).collect();
            world.write(&format!("here/{name}"), &text);
        }
        world.write("here/package.json", "{\"dependencies\": {\"left-pad\": \"*\"}}\n");
        let git = "git init -q -b main && git add -A && git -c user.name=Ada -c user.email=ada@example.org commit -q -m begin";
        let status = Command::new("sh").args(["-c", git]).current_dir(world.here()).status().unwrap();
        assert!(status.success());
        let real = std::env::var_os("PATH").unwrap();
        let quoted = format!("'{}'", real.to_str().unwrap());
        let sort = world.write("tools/sort", &SLOW_SORT.replace("$REAL_PATH", &quoted));
        std::fs::set_permissions(sort, std::fs::Permissions::from_mode(0o755)).unwrap();
        let tools = std::iter::once(world.path("tools")).chain(std::env::split_paths(&real));
        let path = std::env::join_paths(tools).unwrap();
        Self { world, path }
    }

    fn start(&self) -> Running {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/survey.yaml");
        let mut command = self.world.command(&["run"]);
        command.arg(manifest).args(["What would you fix first in this repository?", "--json", "--quiet"]);
        command.env("PATH", &self.path);
        Running::start(command)
    }

    fn length(&self) -> Duration {
        let started = Instant::now();
        let done = self.start().finish().with(0);
        let length = started.elapsed();
        assert!(done.stdout.lines().count() > 50, "{done:?}");
        length
    }

    /// Kills a run at a moment and looks at what is left; gives how many of its runs were open, or how long it took
    /// when it was over before.
    fn kill_at(&self, moment: Duration) -> Result<u32, Duration> {
        let started = Instant::now();
        let mut run = self.start();
        while started.elapsed() < moment {
            if run.has_ended() {
                let _ = run.finish().with(0);
                return Err(started.elapsed());
            }
            // moment: kills are spread over the length of a run
            std::thread::sleep(Duration::from_millis(5).min(moment.saturating_sub(started.elapsed())));
        }
        run.send(Signal::KILL);
        let done = run.finish();
        // Its end may have been on its way.
        assert!(
            done.signal == Some(9) && done.stderr.is_empty() || done.code == Some(0),
            "{moment:?}: {done:?}"
        );

        // As it was left, before any command of ours touches it.
        let open = if self.world.db().exists() { look_into(&self.world.db()) } else { 0 };
        let whole = done.stdout.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let announced: Vec<&str> =
            whole.lines().filter(|line| !line.contains("\"kind\":\"answer\"")).collect();
        let Some(first) = announced.first() else {
            self.world.until_nothing_lives(Duration::from_secs(5));
            return Ok(open);
        };
        let root = value(first)["root"].as_str().unwrap().to_owned();

        // After one command nothing is open.
        let listed = self.world.offspring(&["ls", "-n", "1000", "--json"]).with(0).stdout;
        assert!(listed.contains(&root), "{moment:?}: {root} is not in {listed}");
        assert_eq!(look_into(&self.world.db()), 0, "{moment:?}: a run stays open");

        // Every announced session is there with its parent.
        let tree = self.world.tree(&root);
        let parents: HashMap<&str, &Value> =
            tree.iter().map(|session| (session["id"].as_str().unwrap(), &session["parent_id"])).collect();
        for line in &announced {
            let line = value(line);
            if line["event"]["kind"] == "spawn_session_start" {
                let spawn = &line["event"]["data"];
                let child = spawn["child_session_id"].as_str().unwrap();
                assert_eq!(parents.get(child), Some(&&spawn["parent_session_id"]), "{moment:?}: {line}");
            }
            assert!(parents.contains_key(line["session"].as_str().unwrap()), "{moment:?}: {line}");
        }
        for session in &tree {
            assert_eq!(session["state"], "idle", "{moment:?}: {session}");
        }
        // No number that was shown is gone or used for something else (L16).
        let log = self.world.offspring(&["watch", &root, "--json"]).with(0).stdout;
        let log: Vec<&str> = log.lines().collect();
        assert_eq!(log[..announced.len().min(log.len())], announced, "{moment:?}");

        self.world.until_nothing_lives(Duration::from_secs(5));
        Ok(open)
    }
}

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))
}

/// Opens a store as SQLite itself does, checks it, and counts the runs that have not ended.
fn look_into(db: &Path) -> u32 {
    let store = rusqlite::Connection::open(db).unwrap();
    store.busy_timeout(Duration::from_secs(10)).unwrap();
    let check: String = store.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    // A program that was killed while it made the file has left none of its tables, or all of them.
    let tables: u32 = store
        .query_row("SELECT count(*) FROM sqlite_master WHERE name = 'runs'", [], |row| row.get(0))
        .unwrap();
    if tables == 0 {
        return 0;
    }
    store.query_row("SELECT count(*) FROM runs WHERE ended_at IS NULL", [], |row| row.get(0)).unwrap()
}

/// Numbers without pattern: splitmix64.
fn random(seed: u64, index: u64) -> f64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap()) / f64::from(u32::MAX)
}

#[test]
fn l1_l13_l14_l16_kill_9_at_fifty_moments_of_the_main_job_loses_nothing_and_leaves_nothing() {
    let seed = match std::env::var("KILL_NINE_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos()),
    };
    let jobs: Vec<Job> = (0..WORKERS).map(|_| Job::new()).collect();
    // Measured as they are run later: so many at once.
    let length: Duration = std::thread::scope(|scope| {
        let measuring: Vec<_> = jobs.iter().map(|job| scope.spawn(|| job.length())).collect();
        measuring.into_iter().map(|length| length.join().unwrap()).min().unwrap()
    });
    println!("seed {seed} (KILL_NINE_SEED={seed} repeats it), the main job takes {length:?}");

    let (next, open) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // A run that is over before its moment says that the measure was too long: then it is that run's length.
    let length = Mutex::new(length);
    std::thread::scope(|scope| {
        for job in &jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= MOMENTS {
                        return;
                    }
                    // One in each fiftieth of the length.
                    let part = (f64::from(u32::try_from(index).unwrap()) + random(seed, index as u64))
                        / MOMENTS as f64;
                    let runs = (0..ATTEMPTS).find_map(|_| {
                        let moment = length.lock().unwrap().mul_f64(part);
                        let killed = job.kill_at(moment);
                        if let Err(took) = killed {
                            let mut length = length.lock().unwrap();
                            *length = took.min(*length);
                        }
                        killed.ok()
                    });
                    let runs =
                        runs.unwrap_or_else(|| panic!("seed {seed}: no run lived until moment {index}"));
                    open.lock().unwrap().push((index, runs));
                }
            });
        }
    });
    println!("the main job took {:?} in the end", length.into_inner().unwrap());
    let mut open = open.into_inner().unwrap();
    open.sort_unstable();
    let counts: Vec<u32> = open.iter().map(|(_, runs)| *runs).collect();
    let enough = counts.iter().filter(|runs| **runs >= 2).count();
    println!("open runs at the moments: {counts:?}; two or more at {enough} of {MOMENTS}");
    assert_eq!(counts.len(), MOMENTS);
    assert!(enough >= ENOUGH, "seed {seed}: two or more runs were open at {enough} moments only: {counts:?}");
}
