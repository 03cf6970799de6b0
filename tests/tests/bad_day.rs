//! A store that cannot grow in the middle of a run: a limit on the size of files, a file system that is full.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

use offspring_tests::{
    Finished, Running, World,
    kernel::{inside, unshared},
};
use serde_json::Value;

/// A root that says something, starts three that sleep and then one after another that print 200 KB.
const POOL: &str = "
entry: top
agents:
  top: {type: command, command: [sh, top.sh]}
  sleeps: {type: command, command: [sh, -c, 'echo s >> started; exec sleep @SLEEP@']}
  prints: {type: command, command: [sh, -c, 'echo p >> started; head -c 200000 /dev/zero | tr \"\\0\" x']}
";
const TOP: &str = "echo the answer so far
for i in 1 2 3; do offspring task --detach sleeps x >/dev/null; done
for i in $(seq 40); do offspring task prints x >/dev/null; done
echo the end
";
/// What fits of that: some of it.
const ROOM_KIB: u64 = 1_500;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world.write("pool/top.sh", TOP);
    world
}

/// The sessions that were announced: whose lines came, and whose start was told.
fn announced(stdout: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for line in stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        ids.insert(line["session"].as_str().unwrap().to_owned());
        if line["event"]["kind"] == "spawn_session_start" {
            ids.insert(line["event"]["data"]["child_session_id"].as_str().unwrap().to_owned());
        }
    }
    ids
}

/// What holds of every run whose store could not grow.
fn check(world: &World, done: &Finished, file: &str, started: &Path) -> BTreeSet<String> {
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    world.until_nothing_lives(Duration::from_secs(1));
    let why = done.stderr.lines().rev().find(|line| line.contains("no room for the store")).unwrap();
    assert!(why.contains(file) && why.contains("on its file system"), "{why}");
    assert!(!done.stderr.contains("SqliteFailure") && !done.stderr.contains("panicked"), "{}", done.stderr);

    let lines: Vec<&str> = done.stdout.lines().collect();
    let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(last["event"]["kind"], "answer", "the answer comes last");
    assert_eq!(last["event"]["data"]["text"], "the answer so far\n");
    assert!(last["event"]["data"]["error"].as_str().unwrap().contains("no room"));
    let ids = announced(&done.stdout);
    assert!(ids.len() > 5, "nothing was in the way: {ids:?}");
    // Of 44: nobody started after the store was full, and nobody whom the store does not know.
    let started = fs::read_to_string(started).unwrap().lines().count();
    assert!(started < ids.len() && ids.len() < 44, "{started} {ids:?}");
    ids
}

/// The sessions of a tree, as `tree --json` gives them; all of them have ended.
fn stored(tree: &str) -> BTreeSet<String> {
    let tree: Value = serde_json::from_str(tree).unwrap();
    let sessions = tree["sessions"].as_array().unwrap();
    assert!(sessions.iter().all(|session| session["state"] == "idle"), "{sessions:?}");
    assert_ne!(sessions[0]["outcome"], "completed");
    sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn l1_a_store_at_the_limit_of_file_sizes_ends_the_run_and_keeps_every_session_that_was_announced() {
    let world = world();
    let mut limited = Command::new("sh");
    // In units of 512 bytes.
    limited.args(["-c", &format!("ulimit -f {}; exec \"$@\"", 2 * ROOM_KIB), "sh"]);
    let run = inside(limited, &world.run_command("top", "x", &["--json"]));
    let done = Running::start(run).finish();
    let ids = check(&world, &done, &world.db().display().to_string(), &world.here().join("started"));
    assert!(done.stderr.contains("ulimit -f"), "{}", done.stderr);
    // Without the limit.
    assert_eq!(stored(&world.offspring(&["tree", "latest", "--json"]).with(0).stdout), ids);
    world.run("prints", "x", &["--quiet"]).with(0);
}

#[test]
fn l1_a_full_file_system_ends_the_run_and_with_room_again_every_announced_session_is_there() {
    let Some(unshared) = unshared("m") else { return };
    let world = world();
    let disk = world.path("disk");
    fs::create_dir(&disk).unwrap();
    let script = world.write(
        "script.sh",
        r#"
        mount -t tmpfs -o size=${ROOM}k none "$DISK" || exit 99
        "$@" --json > "$OUT/stdout" 2> "$OUT/stderr"
        echo $? > "$OUT/code"
        cp started "$OUT/started"
        head -1 "$OUT/stdout" | sed 's/.*"root":"\([^"]*\)".*/\1/' > "$OUT/root"
        "$OFFSPRING" --db "$DISK/sessions.db" run "$POOL" x --quiet > "$OUT/again" 2>&1
        echo $? >> "$OUT/code"
        mount -o remount,size=64m "$DISK" || exit 99
        "$OFFSPRING" --db "$DISK/sessions.db" tree "$(cat "$OUT/root")" --json > "$OUT/tree" || exit 98
        exec "$OFFSPRING" --db "$DISK/sessions.db" run "$POOL" x --node prints --quiet
        "#,
    );
    let mut run = world.bare();
    run.arg("--db").arg(disk.join("sessions.db")).arg("run").arg(world.path("pool/pool.yaml")).arg("x");
    let mut shell = Command::new("sh");
    shell.arg(script).arg(run.get_program()).args(run.get_args());
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(world.here());
    shell.env("DISK", &disk).env("OUT", world.path("tmp")).env("ROOM", ROOM_KIB.to_string());
    shell.env("OFFSPRING", run.get_program()).env("POOL", world.path("pool/pool.yaml"));
    let after = Running::start(inside(unshared, &shell)).finish().with(0);
    assert_eq!(after.stdout.trim_end().len(), 200_000, "with room it works again");

    let out = |name: &str| fs::read_to_string(world.path("tmp").join(name)).unwrap();
    assert_eq!(out("code"), "1\n1\n");
    let done = Finished { code: Some(1), signal: None, stdout: out("stdout"), stderr: out("stderr") };
    let started = world.path("tmp/started");
    let ids = check(&world, &done, &disk.join("sessions.db").display().to_string(), &started);
    assert!(done.stderr.contains("B free on its file system"), "{}", done.stderr);
    assert_eq!(stored(&out("tree")), ids);
    // The little that is left may hold the begin of another run; it ends in the same way.
    assert!(out("again").contains("no room for the store"), "{}", out("again"));
}
