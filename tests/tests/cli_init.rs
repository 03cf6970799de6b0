//! `offspring init`: a first pool that runs as it is, and nothing of the user's is overwritten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    process::{Command, Stdio},
};

use offspring_tests::{Running, World, offspring};
use serde_json::Value;

fn init(world: &World, arguments: &[&str]) -> Running {
    let mut command = world.bare();
    command.arg("init").args(arguments);
    Running::start(command)
}

/// What a person types: a line for a shell, where `offspring` is on PATH.
fn typed(world: &World, line: &str) -> std::process::Output {
    let bin = world.path("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(offspring(), bin.join("offspring")).unwrap();
    }
    let bare = world.bare();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(world.here()).env_clear().stdin(Stdio::null());
    for (name, value) in bare.get_envs() {
        shell.env(name, value.unwrap());
    }
    let path = std::env::var_os("PATH").unwrap();
    let path = std::iter::once(bin).chain(std::env::split_paths(&path));
    shell.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap()
}

#[test]
fn what_it_writes_runs_as_it_is_with_the_commands_it_names() {
    let world = World::new();
    let done = init(&world, &["a dir/it's new"]).finish().with(0);
    assert_eq!(done.stderr, "");
    let (wrote, next) = done.stdout.split_once("next:\n").unwrap();
    let wrote: Vec<&str> = wrote.lines().map(|line| line.strip_prefix("wrote ").unwrap()).collect();
    assert_eq!(wrote.len(), world.picture(&world.path("here/a dir/it's new")).len(), "{wrote:?}");
    assert!(wrote.iter().all(|name| world.here().join(name).is_file()), "{wrote:?}");

    // As they stand there, from here, in a shell.
    let next: Vec<&str> = next.lines().map(str::trim).collect();
    let [check, run] = next[..] else { panic!("{next:?}") };
    let checked = typed(&world, check);
    assert!(checked.status.success(), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("nothing is wrong"), "{checked:?}");
    let ran = typed(&world, run);
    assert!(ran.status.success(), "{ran:?}");
    let answer = String::from_utf8_lossy(&ran.stdout);
    assert!(answer.contains("### words (completed)\n6\n"), "{answer}");
    assert!(answer.contains("### frequent (completed)\nbe: 2\nto: 2\nnot: 1\n"), "{answer}");

    // Several sessions, two levels, a team.
    let tree = typed(&world, "offspring tree latest --json");
    let tree: Value = serde_json::from_slice(&tree.stdout).unwrap();
    let sessions = tree["sessions"].as_array().unwrap();
    let one = |name: &str| sessions.iter().find(|one| one["agent_name"] == name).unwrap();
    assert_eq!((tree["depth"].as_u64(), sessions.len()), (Some(2), 4));
    // The members of a team are one task of whoever asked it.
    assert_eq!(one("words")["task"], one("frequent")["task"]);
    assert_eq!(one("words")["parent_id"], one("lead")["id"]);
    assert_eq!(one("order")["parent_id"], one("frequent")["id"]);
}

#[test]
fn no_file_is_overwritten_and_none_is_written_beside_one_that_is_in_the_way() {
    let world = World::new();
    world.write("here/frequent.sh", "mine\n");
    std::os::unix::fs::symlink("nowhere", world.path("here/pool.yaml")).unwrap();
    let before = world.picture(&world.here());
    let done = init(&world, &[]).finish().with(2);
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains("in the way: ./pool.yaml, ./frequent.sh"), "{}", done.stderr);
    assert!(
        done.stderr.contains("offspring init DIR") && done.stderr.lines().count() <= 6,
        "{}",
        done.stderr
    );
    assert_eq!(world.picture(&world.here()), before);
    assert_eq!(fs::read_to_string(world.path("here/frequent.sh")).unwrap(), "mine\n");

    // There is no flag that would.
    let done = init(&world, &["--force"]).finish().with(2);
    assert!(done.stderr.contains("--force"), "{}", done.stderr);
    // A file where the directory should be.
    let done = init(&world, &["frequent.sh/below"]).finish().with(1);
    assert!(done.stderr.contains("frequent.sh/below: "), "{}", done.stderr);
    assert!(!done.stderr.contains("os error 17"), "{}", done.stderr);

    init(&world, &["twice"]).finish().with(0);
    init(&world, &["twice"]).finish().with(2);
}

#[test]
fn the_commands_it_names_work_for_any_name_of_a_directory() {
    let world = World::new();
    for (dir, manifest) in
        [(".", "pool.yaml"), ("-x", "./-x/pool.yaml"), ("a;b", "'a;b/pool.yaml'"), ("ü b", "'ü b/pool.yaml'")]
    {
        let done = init(&world, &["--json", "--", dir]).finish().with(0);
        let said: Value = serde_json::from_str(&done.stdout).unwrap();
        let check = said["next"][0].as_str().unwrap();
        assert!(check.ends_with(&format!(" check {manifest}")), "{check}");
        let checked = typed(&world, check);
        assert!(checked.status.success(), "{checked:?}");
    }
    // The store that was named is the one that is used.
    let mut command = world.command(&["init", "again", "--json"]);
    command.current_dir(world.here());
    let said: Value = serde_json::from_str(&Running::start(command).finish().with(0).stdout).unwrap();
    let db = format!(" --db {} run again/pool.yaml ", world.db().display());
    assert!(said["next"][1].as_str().unwrap().contains(&db), "{said}");
}

/// The manifest with every `#` taken away that stands in front of a key.
fn uncommented(text: &str) -> String {
    let line = |line: &str| {
        let behind = line.trim_start().strip_prefix('#')?;
        // One space begins a sentence; a key below another one has its two.
        let is_key = !behind.is_empty() && (!behind.starts_with(' ') || behind.starts_with("  "));
        is_key.then(|| line.replacen('#', "", 1))
    };
    text.lines().map(|text| line(text).unwrap_or_else(|| text.to_owned()) + "\n").collect()
}

#[test]
fn every_key_stands_in_its_comments_and_is_right_when_the_comment_is_taken_away() {
    let world = World::new();
    init(&world, &[]).finish().with(0);
    let text = fs::read_to_string(world.path("here/pool.yaml")).unwrap();
    let plain = uncommented(&text);
    world.write("here/pool.yaml", &plain);
    // What the example of a runtime names.
    world.write("here/more.patch.yml", "");
    fs::create_dir(world.path("bin")).unwrap();
    std::os::unix::fs::symlink(offspring(), world.path("bin/dsh")).unwrap();
    let mut check = world.command(&["check", "pool.yaml", "--json"]);
    let path = std::env::var_os("PATH").unwrap();
    let path = std::iter::once(world.path("bin")).chain(std::env::split_paths(&path));
    check.env("PATH", std::env::join_paths(path).unwrap());
    let checked = Running::start(check).finish().with(0);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();

    let page = Command::new(offspring()).arg("__reference").output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    let (_, keys) = page.split_once("## Manifest").unwrap();
    let (keys, limits) = keys.split_once("## Limits").unwrap();
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
    };
    let mut missing = Vec::new();
    for row in rows(keys) {
        let name = row[1].rsplit(['.', ')']).next().unwrap();
        if !plain.contains(&format!("{name}: ")) && !plain.contains(&format!("{name}:\n")) {
            missing.push(row[1].clone());
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "not in crates/cli/src/init/pool.yaml");
    // The defaults it shows are the defaults.
    let mut shown = 0;
    for row in rows(limits.split_once("These are fixed").unwrap().0) {
        let limit = &checked["limits"][&row[1]];
        assert_eq!(limit["default"], false, "crates/cli/src/init/pool.yaml does not show {}", row[1]);
        if let Ok(default) = row[2].parse::<u64>() {
            assert_eq!(limit["value"], default, "{}", row[1]);
            shown += 1;
        }
    }
    assert!(shown >= 5, "{limits}");
    assert_eq!(checked["teams"].as_array().unwrap().len(), 2);
}
