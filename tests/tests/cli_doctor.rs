//! `offspring doctor`: each thing that can be wrong is made and found, and what it says to do mends it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs::{self, File, OpenOptions, Permissions},
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use offspring_tests::{
    Running, World,
    processes::{SignalName as Signal, send},
    until,
};
use serde_json::Value;

const POOL: &str = "agents:
  echo: {type: command, command: [cat]}
  slow: {type: command, command: [sh, -c, 'echo begun; exec sleep @SLEEP@']}
entry: echo
";
const TOOLS: [&str; 4] = ["git", "awk", "sh", "sort"];

/// What is wrong in a world, by what was looked at.
struct Found {
    json: Value,
    text: String,
}

/// Other tests of this machine kill programs too; what they leave for a moment is not ours.
fn is_ours(world: &World, json: &Value) -> bool {
    let ours = world.processes();
    let left = json["left"]["agents"].as_array().unwrap();
    left.iter().any(|left| ours.iter().any(|seen| left["pid"] == seen.pid))
}

fn doctor(world: &World, change: impl Fn(&mut Command)) -> Found {
    let run = |more: &[&str]| {
        let mut command = world.command(&["doctor"]);
        command.args(more);
        change(&mut command);
        Running::start(command).finish()
    };
    let done = run(&["--json"]);
    let json: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    let problems =
        json["findings"].as_array().unwrap().iter().filter(|one| one["level"] == "problem").count();
    assert_eq!(done.code, Some(i32::from(problems > 0)), "{done:?}");
    assert_eq!(
        (&json["problems"], &json["healthy"]),
        (&problems.into(), &(problems == 0).into()),
        "{done:?}"
    );
    let said = run(&[]);
    assert!(said.stderr.is_empty() && matches!(said.code, Some(0 | 1)), "{said:?}");
    Found { json, text: said.stdout }
}

impl Found {
    /// What was found of this level: what was looked at, what was found, what to do.
    fn of(&self, world: &World, level: &str) -> Vec<(&str, &str, &str)> {
        let findings = self.json["findings"].as_array().unwrap().iter();
        findings
            .filter(|one| one["level"] == level)
            .filter(|one| one["what"] != "agents" || is_ours(world, &self.json))
            .map(|one| {
                let word = |name: &str| one[name].as_str().unwrap_or_default();
                (word("what"), word("found"), word("todo"))
            })
            .collect()
    }

    /// The only problem.
    #[track_caller]
    fn problem(&self, world: &World, what: &str) -> (String, String) {
        let problems = self.of(world, "problem");
        let [(found_what, found, todo)] = problems[..] else { panic!("{problems:?}") };
        assert_eq!(found_what, what, "{found}");
        assert!(!found.is_empty() && !todo.is_empty() && !found.contains("::"), "{problems:?}");
        // People read the same.
        assert!(
            self.text.lines().any(|line| line.starts_with("FAIL  ") && line.contains(found)),
            "{}",
            self.text
        );
        assert!(todo.lines().all(|line| self.text.contains(&format!("-> {line}"))), "{}", self.text);
        (found.to_owned(), todo.to_owned())
    }
}

fn as_it_is(_: &mut Command) {}

fn typed(line: &str) {
    let done = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

fn with_a_session() -> World {
    let world = World::new();
    world.pool(POOL);
    world.run("echo", "hello", &["--quiet"]).with(0);
    world
}

#[test]
fn where_all_is_well_it_says_what_there_is_and_changes_nothing() {
    let world = with_a_session();
    let before = world.picture(&world.path(""));
    let found = doctor(&world, |command| _ = command.env("LC_ALL", "C.UTF-8"));
    assert_eq!(found.of(&world, "problem"), []);
    assert_eq!(found.of(&world, "warning"), []);
    assert_eq!(world.picture(&world.path("")), before);

    let ok = found.of(&world, "ok");
    let about = |what: &str| {
        ok.iter().find(|(found, ..)| *found == what).unwrap_or_else(|| panic!("{what}: {ok:?}")).1
    };
    assert!(about("program").starts_with(concat!("offspring ", env!("CARGO_PKG_VERSION"), ", /")), "{ok:?}");
    for tool in TOOLS {
        assert!(about(tool).contains(&format!("/{tool}")), "{ok:?}");
    }
    assert!(about("git").starts_with("git version "), "{ok:?}");
    assert_eq!(about("kernel"), "subreaper, pidfd, /proc");
    assert_eq!(about("locale"), "LC_ALL=C.UTF-8");
    assert!(about("store").contains("(--db): 1 tree, 1 session, schema "), "{ok:?}");
    assert!(about("size").contains(" free"), "{ok:?}");

    let store = &found.json["store"];
    assert_eq!(store["path"].as_str(), world.db().to_str());
    assert_eq!(store["file_bytes"], fs::metadata(world.db()).unwrap().len());
    assert_eq!((&store["wal_bytes"], &store["is_checked"]), (&0.into(), &true.into()));
    assert!(store["free_bytes"].as_u64().unwrap() > 0 && store["copies"].as_array().unwrap().is_empty());

    // Where there is nothing yet there is nothing wrong, and nothing is made.
    let empty = World::new();
    let found = doctor(&empty, |command| _ = command.env("OFFSPRING_DB", ""));
    assert_eq!(found.of(&empty, "problem"), []);
    assert!(found.of(&empty, "note").iter().any(|(_, found, _)| found.contains("nothing is kept yet")));
    for folder in ["home", "here", "state", "tmp"] {
        assert_eq!(empty.picture(&empty.path(folder)), [], "{folder}");
    }
    let mut command = empty.bare();
    command.args(["--db", "memory:", "doctor"]);
    let done = Running::start(command).finish();
    assert!(done.stdout.contains("memory: nothing is kept"), "{done:?}");
}

#[test]
fn a_program_that_is_not_there_or_does_not_work_is_found() {
    let world = World::new();
    let real = |name: &str| -> PathBuf {
        let path = std::env::var_os("PATH").unwrap();
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|found| found.is_file()).unwrap()
    };
    for missing in TOOLS {
        // All programs but one.
        let bin = world.path(&format!("without-{missing}"));
        fs::create_dir(&bin).unwrap();
        for tool in TOOLS.iter().filter(|tool| **tool != missing) {
            symlink(real(tool), bin.join(tool)).unwrap();
        }
        let (found, todo) = doctor(&world, |command| _ = command.env("PATH", &bin)).problem(&world, missing);
        assert!(found.contains(&format!("program {missing} not found (PATH is ")), "{found}");
        assert!(todo.starts_with(&format!("install {missing}, or put its directory on PATH")), "{todo}");
        if missing == "git" {
            // There, and broken.
            fs::write(bin.join("git"), "#!/bin/sh\necho no library >&2\nexit 3\n").unwrap();
            fs::set_permissions(bin.join("git"), Permissions::from_mode(0o755)).unwrap();
            let (found, _) = doctor(&world, |command| _ = command.env("PATH", &bin)).problem(&world, missing);
            assert!(found.ends_with("/git does not work: it ended with status 3: no library"), "{found}");
            fs::set_permissions(bin.join("git"), Permissions::from_mode(0o644)).unwrap();
            let (found, _) = doctor(&world, |command| _ = command.env("PATH", &bin)).problem(&world, missing);
            assert!(found.contains("is not executable"), "{found}");
        }
    }
}

#[test]
fn a_place_that_cannot_be_written_to_is_found() {
    let world = World::new();
    let file = world.write("file", "");
    let json = |change: &dyn Fn(&mut Command)| {
        let mut command = world.bare();
        command.args(["doctor", "--json"]);
        change(&mut command);
        let done = Running::start(command).finish().with(1);
        let json: Value = serde_json::from_str(&done.stdout).unwrap();
        Found { json, text: String::new() }
    };
    let only = |found: &Found| -> String {
        let problems = found.of(&world, "problem");
        let [(what, found, todo)] = problems[..] else { panic!("{problems:?}") };
        assert_eq!(what, "store");
        assert!(todo.contains("--db"), "{todo}");
        found.to_owned()
    };
    let found = json(&|command| _ = command.env_remove("HOME").env_remove("XDG_STATE_HOME"));
    assert!(only(&found).contains("there is no place for sessions"));
    // A file where a directory would have to be, under whichever name the place is given.
    let found = json(&|command| _ = command.env("XDG_STATE_HOME", &file));
    assert!(only(&found).contains(&format!("{}", file.display())));
    let found = json(&|command| _ = command.env("OFFSPRING_DB", file.join("below/sessions.db")));
    assert!(only(&found).contains("writing to") || only(&found).contains("looking at"));
    let found = json(&|command| _ = command.env("OFFSPRING_DB", world.path("state")));
    assert!(only(&found).contains("it is no file"));
    if rustix::process::geteuid().is_root() {
        return;
    }
    // Whoever may do anything is not kept from writing by this.
    fs::set_permissions(world.path("state"), Permissions::from_mode(0o500)).unwrap();
    let found = json(&|_| {});
    fs::set_permissions(world.path("state"), Permissions::from_mode(0o700)).unwrap();
    assert!(only(&found).contains("failed: Permission denied"));
}

#[test]
fn a_damaged_a_foreign_and_a_newer_store_are_found_and_left_as_they_are() {
    let world = with_a_session();
    let whole = fs::read(world.db()).unwrap();
    let damaged = |change: &dyn Fn(&File)| -> (String, String) {
        fs::write(world.db(), &whole).unwrap();
        change(&OpenOptions::new().read(true).write(true).open(world.db()).unwrap());
        let before = fs::read(world.db()).unwrap();
        let found = doctor(&world, as_it_is).problem(&world, "store");
        assert_eq!(fs::read(world.db()).unwrap(), before);
        found
    };
    let (found, todo) = damaged(&|file| {
        // Every page but the first, with the list of tables.
        let rest = vec![0xa5; whole.len() - 4096];
        file.write_all_at(&rest, 4096).unwrap();
    });
    assert!(found.contains("is damaged: "), "{found}");
    let (first, _) = todo.split_once('\n').unwrap();
    let (_, mv) = first.split_once(": ").unwrap();
    let (found, _) = damaged(&|file| file.set_len(whole.len() as u64 / 2).unwrap());
    assert!(found.contains("is damaged: "), "{found}");
    let (found, _) = damaged(&|file| file.set_len(0).unwrap());
    assert!(found.contains("remove it to start a new one"), "{found}");
    let (found, _) = damaged(&|file| file.write_all_at(b"no database", 0).unwrap());
    assert!(found.contains("is not a database"), "{found}");

    fs::write(world.db(), &whole).unwrap();
    rusqlite::Connection::open(world.db()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let (found, todo) = doctor(&world, as_it_is).problem(&world, "store");
    assert!(found.contains("written by a newer version (schema 99,"), "{found}");
    assert!(todo.contains("use the newer program"), "{todo}");

    // What it says to do about a damaged one.
    typed(mv);
    assert_eq!(doctor(&world, as_it_is).of(&world, "problem"), []);
    assert!(world.path("sessions.db.damaged").is_file());
}

#[test]
fn a_socket_of_a_program_that_was_killed_is_found() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("slow", "x", &["--json", "--quiet"]);
    world.until_sleepers(1);
    let found = doctor(&world, as_it_is);
    assert_eq!(found.of(&world, "problem"), []);
    assert_eq!(found.json["left"]["at_work"].as_array().unwrap().len(), 1);
    assert_eq!(found.json["store"]["open_by"], 1);
    assert!(found.json["store"]["sessions"] == 1, "a store that is in use is read too: {}", found.json);

    run.send(Signal::KILL);
    let _ = run.finish();
    world.until_nothing_lives(Duration::from_secs(10));
    let before = world.picture(&world.path("tmp"));
    let (found, todo) = doctor(&world, as_it_is).problem(&world, "sockets");
    assert!(found.starts_with("left by 1 program that was killed: "), "{found}");
    assert_eq!(world.picture(&world.path("tmp")), before);
    typed(todo.lines().next().unwrap());
    assert_eq!(doctor(&world, as_it_is).of(&world, "problem"), []);
    assert_eq!(world.picture(&world.path("tmp")), []);
}

#[test]
fn l14_agents_whose_program_and_guard_were_killed_are_found() {
    let world = World::new();
    world.pool(POOL);
    let run = world.start("slow", "x", &["--json", "--quiet"]);
    let sleeper = world.until_sleepers(1)[0].pid;
    let guards: Vec<u32> =
        world.processes().into_iter().filter(|seen| seen.is_guard()).map(|seen| seen.pid).collect();
    // Neither can do anything about the death of the other.
    for pid in guards.iter().copied().chain([run.pid()]) {
        send(pid, Signal::STOP);
    }
    for pid in guards.iter().copied().chain([run.pid()]) {
        send(pid, Signal::KILL);
    }
    let _ = run.finish();
    until("only the agent is left", Duration::from_secs(10), || {
        let left = world.processes();
        (left.len() == 1 && left[0].pid == sleeper).then_some(())
    });

    let found = doctor(&world, as_it_is);
    let problems = found.of(&world, "problem");
    let [("sockets", ..), ("agents", about, todo)] = problems[..] else { panic!("{problems:?}") };
    assert!(about.contains(&format!("{sleeper} (sleep)")), "{about}");
    assert_eq!(world.sleepers().len(), 1, "it changes nothing");

    typed(todo.lines().next().unwrap());
    world.until_nothing_lives(Duration::from_secs(10));
    assert!(!is_ours(&world, &doctor(&world, as_it_is).json));
}

#[test]
fn a_store_of_more_than_a_gibibyte_is_a_warning_and_so_is_one_that_others_can_read() {
    let world = with_a_session();
    let file = OpenOptions::new().write(true).open(world.db()).unwrap();
    // Room that is promised and not used: neither the disk nor the check has to do with it.
    file.set_len((1 << 30) + (1 << 20)).unwrap();
    let found = doctor(&world, as_it_is);
    let warnings = found.of(&world, "warning");
    let [("size", about, todo)] = warnings[..] else { panic!("{warnings:?}") };
    assert!(about.starts_with("1.0 GiB"), "{about}");
    assert!(
        todo.contains(&format!(" --db {} prune --to-size 1GiB --dry-run", world.db().display())),
        "{todo}"
    );
    assert_eq!(found.of(&world, "problem"), [], "a warning is no reason to fail");

    // The same in a copy beside it.
    file.set_len(fs::metadata(world.db()).unwrap().len().min(1 << 20)).unwrap();
    world.run("echo", "again", &["--quiet"]).with(0);
    let copy = File::create(world.path("sessions.db.v1")).unwrap();
    copy.set_len(2 << 30).unwrap();
    copy.set_permissions(Permissions::from_mode(0o644)).unwrap();
    let found = doctor(&world, as_it_is);
    let warnings = found.of(&world, "warning");
    let [("size", about, todo), ("access", _, access)] = warnings[..] else { panic!("{warnings:?}") };
    assert!(about.contains("(2.0 GiB in copies)"), "{about}");
    assert_eq!(found.json["store"]["copies"][0]["bytes"], 2_u64 << 30);
    typed(access);
    let (_, rm) = todo.split_once("needs any more: ").unwrap();
    typed(rm);
    assert_eq!(doctor(&world, as_it_is).of(&world, "warning"), []);
}

#[test]
fn w11_no_control_character_of_a_path_reaches_the_terminal() {
    let world = World::new();
    let mut command = world.bare();
    command.args(["--db", "a\u{1b}[31mb.db", "doctor"]);
    let done = Running::start(command).finish();
    assert!(!done.stdout.contains('\u{1b}') && done.stdout.contains("[31mb.db"), "{done:?}");
}
