//! `offspring rm`: what is named is gone, to its last byte, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    collections::HashSet,
    fs,
    io::Write,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use offspring_tests::{Finished, Running, World, until};
use rusqlite::Connection;
use serde_json::Value;

const POOL: &str = "
entry: top
agents:
  top: {type: command, command: [sh, -c, 'offspring task says - --description asked']}
  says: {type: command, command: [cat]}
  fails: {type: command, command: [sh, -c, 'cat >&2; exit 3']}
  sleeps: {type: command, command: [sh, -c, 'exec sleep @SLEEP@']}
  parent: {type: command, command: [sh, -c, 'offspring task --detach sleeps x; exec offspring task sleeps x']}
";
/// As long as a marker may be cut and still be found.
const PIECE: usize = 8;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// A prompt of so many bytes in which every piece shows what it is of.
fn prompt(marker: &str, bytes: usize) -> String {
    marker.chars().cycle().take(bytes).collect()
}

/// Runs a node on a prompt of any length; gives the root.
fn ask(world: &World, node: &str, prompt: &str) -> String {
    let mut command = world.run_command(node, "-", &["--json", "--quiet"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let first: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    first["root"].as_str().unwrap().to_owned()
}

/// The store, its log and index, and whatever else is beside it.
fn files(world: &World) -> Vec<PathBuf> {
    let beside = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name.starts_with("sessions.db") && entry.path().is_file()).then(|| entry.path())
    };
    let mut files: Vec<PathBuf> =
        fs::read_dir(world.path("")).unwrap().flatten().filter_map(beside).collect();
    let owners = fs::read_dir(world.path("sessions.db.owners")).unwrap();
    files.extend(owners.flatten().map(|entry| entry.path()));
    files
}

/// Which pieces of these texts are in a file of the store.
fn found(world: &World, markers: &[&str]) -> HashSet<String> {
    let pieces: HashSet<&[u8]> = markers.iter().flat_map(|marker| marker.as_bytes().windows(PIECE)).collect();
    // Nearly every place is passed over by one look.
    let mut begins = vec![false; 1 << 16];
    let begin = |a: u8, b: u8| usize::from(a) << 8 | usize::from(b);
    pieces.iter().for_each(|piece| begins[begin(piece[0], piece[1])] = true);
    let mut found = HashSet::new();
    for file in files(world) {
        let bytes = fs::read(&file).unwrap();
        let mut at = 0;
        while at + PIECE <= bytes.len() {
            if begins[begin(bytes[at], bytes[at + 1])] && pieces.contains(&bytes[at..at + PIECE]) {
                found.insert(String::from_utf8_lossy(&bytes[at..at + PIECE]).into_owned());
            }
            at += 1;
        }
    }
    found
}

/// Everything the program says about a tree.
fn picture(world: &World, root: &str) -> Vec<Value> {
    let tree = world.tree(root);
    let shown = tree.iter().map(|session| world.json(&["show", session["id"].as_str().unwrap(), "--json"]));
    shown.chain(tree.iter().cloned()).collect()
}

#[test]
fn no_byte_of_what_was_deleted_is_left_in_the_file_its_log_or_its_index_while_another_run_goes_on() {
    let world = world();
    // Also its files stay open, and its log.
    let running = world.start("sleeps", "x", &["--quiet"]);
    world.until_sleepers(1);
    let sizes = [24, 3_000, 5_000, 100_000, 300_000];
    let markers = [
        "Zq7Kx9VbW2mN4pR8tY1uL5sD",
        "hG3jF6dS0aPoI9uYtR4eW7qQ",
        "mN8bV5cX2zL1kJ7hG4fD0sAp",
        "rT6yU3iO9pQ2wE5aS8dF1gHj",
        "xC4vB7nM0lK3jH6gF9dS2aZq",
    ];
    let mut kept = Vec::new();
    let mut deleted = Vec::new();
    for (marker, bytes) in markers.iter().zip(sizes) {
        kept.push(ask(&world, "top", &prompt("what stays is still there ", bytes)));
        deleted.push(ask(&world, "top", &prompt(marker, bytes)));
        deleted.push(ask(&world, "fails", &prompt(marker, bytes)));
    }
    let before: Vec<_> = kept.iter().map(|root| picture(&world, root)).collect();
    let there = found(&world, &markers);
    for marker in markers {
        assert!(there.contains(&marker[3..3 + PIECE]), "{marker} is not where it was looked for");
    }
    let size = || fs::metadata(world.db()).unwrap().len();
    let large = size();

    let names: Vec<&str> = ["rm"].into_iter().chain(deleted.iter().map(String::as_str)).collect();
    let done = world.offspring(&names).with(0);
    assert_eq!(found(&world, &markers), HashSet::new());
    assert!(size() < large - 2_000_000, "{large} {}", size());
    for root in &deleted {
        assert!(done.stdout.contains(&format!("deleted {root}  ")), "{}", done.stdout);
        world.offspring(&["show", root]).with(2);
    }
    assert!(
        done.stdout.lines().last().unwrap().starts_with("15 sessions deleted; the store went from "),
        "{done:?}"
    );
    let after: Vec<_> = kept.iter().map(|root| picture(&world, root)).collect();
    assert_eq!(before, after);

    let roots = world.json(&["ls", "--json"]);
    let sleeping = roots.as_array().unwrap().iter().find(|root| root["agent_name"] == "sleeps").unwrap();
    world.offspring(&["cancel", sleeping["id"].as_str().unwrap()]).with(0);
    running.finish().with(1);
    let check: String = Connection::open(world.db())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn what_runs_is_refused_and_then_nothing_is_deleted_at_all() {
    let world = world();
    let done = ask(&world, "top", "x");
    let run = world.start("parent", "x", &["--quiet"]);
    world.until_sleepers(2);
    let root = world.json(&["ls", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let child = world.tree(&root)[1]["id"].as_str().unwrap().to_owned();
    for named in [[done.as_str(), &root], [&done, &child]] {
        let refused = world.offspring(&["rm", named[0], named[1]]).with(1);
        assert!(
            refused.stderr.contains("is running") && refused.stderr.contains("offspring cancel"),
            "{refused:?}"
        );
        assert_eq!(refused.stdout, "");
        assert_eq!(world.tree(&done).len(), 2);
        assert_eq!(world.tree(&root).len(), 3);
    }
    world.offspring(&["cancel", &root]).with(0);
    run.finish().with(1);
    let gone = world.offspring(&["rm", &root, &child, &done, "--json"]).with(0);
    let gone: Value = serde_json::from_str(&gone.stdout).unwrap();
    assert_eq!((&gone["sessions"], gone["deleted"].as_array().unwrap().len()), (&5.into(), 2), "{gone}");
    assert!(gone["store_bytes_after"].as_u64() < gone["store_bytes_before"].as_u64());
    assert_eq!(gone["not_given_back"], Value::Null);
    assert_eq!(world.json(&["ls", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn only_what_is_named_is_deleted() {
    let world = world();
    let root = ask(&world, "top", "x");
    let other = ask(&world, "top", "y");
    let all = |world: &World| world.json(&["ls", "--json"]).as_array().unwrap().len();
    for (named, code, says) in [
        (&["rm"][..], 2, "required"),
        (&["rm", "latest"], 2, other.as_str()),
        (&["rm", "ses_nobody"], 2, "no session `ses_nobody`"),
        (&["rm", "ses_"], 2, "is the beginning of 4 ids"),
        (&["rm", root.as_str(), "ses_nobody"], 2, "no session `ses_nobody`"),
    ] {
        let refused = world.offspring(named).with(code);
        assert!(refused.stderr.contains(says) && refused.stderr.lines().count() <= 6, "{refused:?}");
        assert_eq!(all(&world), 2);
    }
    // A child, and everything below it; its parent stays and still tells of it.
    let child = world.tree(&root)[1]["id"].as_str().unwrap().to_owned();
    let done = world.offspring(&["rm", &child]).with(0);
    assert!(done.stdout.contains(&child) && done.stderr.contains("log of its parent"), "{done:?}");
    assert_eq!(world.tree(&root).len(), 1);
    assert_eq!(world.tree(&other).len(), 2);
    // By the beginning of an id that only it has.
    let short = &root[..root.len() - 3];
    world.offspring(&["rm", short]).with(0);
    assert_eq!(all(&world), 1);
}

#[test]
fn a_reader_in_the_way_is_said_and_what_is_left_goes_once_it_has_ended() {
    let world = world();
    let marker = "wQ8eR5tY2uI0oP7aS4dF1gHj";
    let root = ask(&world, "top", &prompt(marker, 50_000));
    ask(&world, "top", "stays");
    let reader = Connection::open(world.db()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let rows = || -> i64 { reader.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0)).unwrap() };
    assert_eq!(rows(), 4);
    let asked = Instant::now();
    let done = world.offspring(&["rm", &root]).with(1);
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert!(
        done.stdout.contains("2 sessions deleted") && done.stderr.contains("another program is reading"),
        "{done:?}"
    );
    assert!(
        done.stderr.contains("offspring prune --reclaim") && done.stderr.lines().count() <= 6,
        "{done:?}"
    );
    assert_eq!(rows(), 4, "what it reads stays one state");
    assert!(!found(&world, &[marker]).is_empty());
    drop(reader);
    world.offspring(&["show", &root]).with(2);
    world.offspring(&["prune", "--reclaim"]).with(0);
    assert_eq!(found(&world, &[marker]), HashSet::new());
    assert_eq!(world.json(&["ls", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_copy_from_before_an_update_is_named_and_deleted_when_that_is_asked_for() {
    let world = world();
    let (first, second) = (ask(&world, "top", "x"), ask(&world, "top", "y"));
    let copy = world.path("sessions.db.v1-backup");
    fs::copy(world.db(), &copy).unwrap();
    let strangers = ["sessions.db.v1-backups", "sessions.db.very-backup", "other.db.v1-backup"];
    strangers.iter().for_each(|name| fs::write(world.path(name), "").unwrap());
    let says = |done: &Finished| {
        done.stderr.contains("sessions.db.v1-backup is a copy") && done.stderr.contains("--copies")
    };
    let done = world.offspring(&["rm", &first]).with(0);
    assert!(says(&done) && copy.exists(), "{done:?}");
    let done = world.offspring(&["rm", &second, "--copies"]).with(0);
    assert!(!says(&done) && done.stdout.contains("sessions.db.v1-backup\n") && !copy.exists(), "{done:?}");
    assert!(strangers.iter().all(|name| world.path(name).exists()));
}

#[test]
fn nobody_reads_and_nothing_is_said_in_vain() {
    let world = world();
    let root = ask(&world, "top", "x");
    let mut command = world.command(&["rm", &root]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    let status = command.stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    until("the end of the session", Duration::from_secs(5), || {
        (world.offspring(&["show", &root]).code == Some(2)).then_some(())
    });
    // Without any store there is nothing to delete.
    let mut bare = world.bare();
    bare.args(["rm", "ses_x"]);
    let refused = Running::start(bare).finish().with(1);
    assert!(refused.stderr.contains("no sessions yet"), "{refused:?}");
}
