//! `offspring prune`: old trees go by the criterion that is given, and nothing goes without one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::fs;

use offspring_tests::{Finished, Running, World};
use rusqlite::Connection;
use serde_json::{Value, json};

const POOL: &str = "
entry: says
agents:
  says: {type: command, command: [sh, -c, 'cat; offspring task much x >/dev/null']}
  much: {type: command, command: [sh, -c, 'head -c 200000 /dev/zero | tr \"\\0\" x']}
  sleeps: {type: command, command: [sh, -c, 'exec sleep @SLEEP@']}
";
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// A world with so many trees, oldest first.
fn world(trees: usize) -> (World, Vec<String>) {
    let world = World::new();
    world.pool(POOL);
    let roots = (0..trees).map(|number| {
        world.run("says", &format!("prompt {number}"), &["--quiet"]).with(0);
        roots(&world)[0].clone()
    });
    let roots = roots.collect();
    (world, roots)
}

/// The roots that are stored, newest first.
fn roots(world: &World) -> Vec<String> {
    let listed = world.json(&["ls", "--json"]);
    listed.as_array().unwrap().iter().map(|root| root["id"].as_str().unwrap().to_owned()).collect()
}

/// Makes a tree so many days older.
fn age(world: &World, root: &str, days: i64) {
    let store = Connection::open(world.db()).unwrap();
    let earlier = days * DAY_MS;
    let changed = store.execute(
        "UPDATE runs SET opened_at = opened_at - ?2, ended_at = ended_at - ?2 WHERE session IN \
         (SELECT key FROM sessions WHERE id = ?1)",
        (root, earlier),
    );
    assert_eq!(changed, Ok(1));
    store.execute("UPDATE sessions SET created_at = created_at - ?2 WHERE id = ?1", (root, earlier)).unwrap();
}

fn size(world: &World) -> u64 {
    fs::metadata(world.db()).unwrap().len()
}

fn deleted(done: &Finished) -> Vec<String> {
    let lines = done.stdout.lines().filter_map(|line| line.strip_prefix("deleted "));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn trees_that_ended_longer_ago_go_and_a_dry_run_says_so_and_deletes_nothing() {
    let (world, ids) = world(3);
    age(&world, &ids[0], 40);
    age(&world, &ids[1], 20);
    let large = size(&world);

    let dry = world.offspring(&["prune", "--older-than", "30d", "--dry-run"]).with(0);
    assert!(dry.stdout.starts_with(&format!("would delete {}  ", ids[0])), "{}", dry.stdout);
    assert!(dry.stdout.contains("says  2 sessions  about 1"), "{}", dry.stdout);
    assert!(
        dry.stdout.ends_with("; nothing was deleted\n") && dry.stdout.lines().count() == 2,
        "{}",
        dry.stdout
    );
    assert_eq!((roots(&world).len(), size(&world)), (3, large));

    let done = world.offspring(&["prune", "--older-than", "30d"]).with(0);
    assert_eq!(deleted(&done), [ids[0].clone()]);
    assert!(
        done.stdout.contains("2 sessions deleted; the store went from ")
            && done.stdout.contains(" given back\n"),
        "{done:?}"
    );
    assert_eq!(roots(&world), [ids[2].clone(), ids[1].clone()]);
    assert!(size(&world) < large - 200_000, "{large} {}", size(&world));

    let none = world.offspring(&["prune", "--older-than", "30d"]).with(0);
    assert!(none.stdout.starts_with("0 sessions deleted") && none.stdout.lines().count() == 1, "{none:?}");
    let done = world.offspring(&["prune", "--older-than", "0s"]).with(0);
    assert_eq!(deleted(&done), ids[1..]);
}

#[test]
fn all_but_the_newest_go_and_json_says_what_went() {
    let (world, ids) = world(4);
    let dry = world.json(&["prune", "--keep", "3", "--dry-run", "--json"]);
    assert_eq!((&dry["dry_run"], &dry["deleted"][0]["id"]), (&json!(true), &json!(ids[0])));
    let done = world.json(&["prune", "--keep", "1", "--json"]);
    let gone: Vec<&Value> = done["deleted"].as_array().unwrap().iter().map(|tree| &tree["id"]).collect();
    assert_eq!(gone, [&json!(ids[0]), &json!(ids[1]), &json!(ids[2])], "oldest first");
    assert_eq!((&done["sessions"], &done["in_use"]), (&json!(6), &json!([])));
    let first = &done["deleted"][0];
    assert_eq!((&first["sessions"], &first["agent_name"]), (&json!(2), &json!("says")));
    assert!(first["bytes"].as_u64().unwrap() > 200_000, "{first}");
    assert!(done["store_bytes_after"].as_u64().unwrap() < done["store_bytes_before"].as_u64().unwrap());
    assert_eq!(roots(&world), [ids[3].clone()]);
    world.offspring(&["prune", "--keep", "9"]).with(0);
    assert_eq!(roots(&world).len(), 1);
}

#[test]
fn the_oldest_go_until_the_store_is_as_small_as_was_asked() {
    let (world, ids) = world(4);
    // About 270 kB each.
    let target = 700_000;
    let dry = world.json(&["prune", "--to-size", "700kB", "--dry-run", "--json"]);
    let done = world.offspring(&["prune", "--to-size", "700kB"]).with(0);
    assert!(size(&world) <= target, "{}", size(&world));
    let left = roots(&world);
    assert!(!left.is_empty() && left.len() < 4, "{left:?}");
    assert_eq!(deleted(&done), ids[..4 - left.len()], "the oldest, and no more of them than it takes");
    let would: Vec<&Value> = dry["deleted"].as_array().unwrap().iter().map(|tree| &tree["id"]).collect();
    assert!(would.len().abs_diff(4 - left.len()) <= 1, "{would:?}");

    world.offspring(&["prune", "--to-size", "700kB"]).with(0);
    assert_eq!(roots(&world), left, "it is small enough");
    // What cannot be is said.
    let refused = world.offspring(&["prune", "--to-size", "1kB"]).with(1);
    assert!(refused.stderr.contains("more than 1000 B: no tree is left"), "{refused:?}");
    assert!(roots(&world).is_empty());
}

#[test]
fn what_runs_is_kept_and_said_whatever_its_age() {
    let (world, ids) = world(1);
    let run = world.start("sleeps", "x", &["--quiet"]);
    world.until_sleepers(1);
    let running = roots(&world)[0].clone();
    age(&world, &running, 400);
    let dry = world.offspring(&["prune", "--older-than", "1y", "--dry-run"]).with(0);
    assert!(dry.stdout.contains(&format!("would keep   {running}  in use\n")), "{dry:?}");
    for criterion in [["--older-than", "0s"], ["--keep", "0"]] {
        let done = world.offspring(&["prune", criterion[0], criterion[1]]).with(0);
        assert!(done.stdout.contains(&format!("kept    {running}  in use\n")), "{done:?}");
        assert_eq!(roots(&world), std::slice::from_ref(&running));
    }
    let done = world.offspring(&["prune", "--to-size", "1kB", "--json"]).with(1);
    assert!(done.stderr.contains("1 tree is in use and kept"), "{done:?}");
    let said: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(said["in_use"], json!([running]));
    assert!(!roots(&world).contains(&ids[0]));
    world.offspring(&["cancel", &running]).with(0);
    run.finish().with(1);
    world.offspring(&["prune", "--keep", "0"]).with(0);
    assert!(roots(&world).is_empty());
}

#[test]
fn without_a_criterion_or_with_a_wrong_one_nothing_is_deleted() {
    let (world, ids) = world(1);
    for arguments in [
        &["prune"][..],
        &["prune", "--dry-run"],
        &["prune", "--keep", "0", "--older-than", "0s"],
        &["prune", "--keep", "-1"],
        &["prune", "--older-than", "30"],
        &["prune", "--older-than", "-30d"],
        &["prune", "--to-size", "much"],
        &["prune", "--keep", "0", "--copies", "--dry-run"],
    ] {
        let refused = world.offspring(arguments).with(2);
        assert_eq!(refused.stdout, "", "{arguments:?}");
        assert!(refused.stderr.lines().count() <= 6, "{}", refused.stderr);
    }
    assert_eq!(roots(&world), ids);
    let mut bare = world.bare();
    bare.args(["prune", "--keep", "0"]);
    let refused = Running::start(bare).finish().with(1);
    assert!(refused.stderr.contains("no sessions yet"), "{refused:?}");
    assert!(!world.path("state/offspring").exists(), "nothing is made to be pruned");
}
