//! Directories that surprise scripts: the survey still answers, and says in one
//! line what it could not see.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{QUESTION, ask_with, survey};
use crate::world::{World, git_command};

const MARKED: &str = "int a;\n// FIXME: look here\n";

#[test]
fn no_git_repository() {
    let world = World::plain();
    world.write("src/a.c", MARKED);
    let found = survey(&world);
    found.has(&["src/a.c:2", "FIXME"]);
    found.could_not_see("not a git repository");
}

#[test]
fn no_commit_yet() {
    let world = World::repository();
    world.write("src/a.c", MARKED).write(".gitignore", "ignored.c\n").write("ignored.c", MARKED);
    let found = survey(&world);
    found.has(&["src/a.c:2", "FIXME"]);
    found.lacks(&["ignored.c:2"]);
    found.could_not_see("no commit yet");
}

#[test]
fn a_shallow_clone_does_not_take_its_boundary_for_a_change() {
    let origin = World::repository();
    for n in 0..40 {
        origin.write("tangle.c", &format!("int tangle_{n};\n")).commit(&format!("change {n}"));
    }
    let clone = World::plain();
    fs::remove_dir(clone.dir()).expect("the empty directory");
    let url = format!("file://{}", origin.dir().display());
    let status = git_command()
        .args(["clone", "-q", "--depth", "12", &url])
        .arg(clone.dir())
        .status()
        .expect("git is installed");
    assert!(status.success());
    let found = survey(&clone);
    // Twelve commits are there; the oldest only looks as if it added the file.
    found.has(&["tangle.c", "11 of 11 commits"]);
    found.could_not_see("shallow clone");
    // To git the boundary looks like a root commit, which is what names a project.
    let boundary = clone.git(&["rev-list", "--max-parents=0", "--all"]);
    assert!(!boundary.is_empty());
    for session in found.sessions() {
        assert_eq!(session["project_id"], "global", "{boundary}: {session}");
    }
}

/// A directory with a `git` that sets `variables` for the real one: the program
/// gives agents a small environment, in which only PATH comes from the test.
fn git_with(world: &World, variables: &str) -> String {
    let path = std::env::var("PATH").expect("PATH");
    let real = std::env::split_paths(&path)
        .map(|folder| folder.join("git"))
        .find(|file| file.is_file())
        .expect("git is on PATH");
    let folder = world.beside("bin");
    fs::create_dir_all(&folder).expect("a folder");
    let script = folder.join("git");
    fs::write(&script, format!("#!/bin/sh\n{variables} exec '{}' \"$@\"\n", real.display()))
        .expect("the script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let mut folders = vec![folder];
    folders.extend(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("a PATH").into_string().expect("UTF-8")
}

#[test]
fn a_repository_git_refuses_because_somebody_else_owns_it() {
    let world = World::repository();
    world.write("src/a.c", MARKED).commit("plant");
    // What git's own tests use; it works for root and for everybody else.
    let path = git_with(
        &world,
        "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null",
    );
    let found = ask_with(&world, QUESTION, |command| {
        command.env("PATH", path);
    });
    found.has(&["src/a.c:2", "FIXME"]);
    found.could_not_see("git refuses this repository");
}

#[test]
fn a_broken_repository_git_refuses() {
    let world = World::plain();
    world.write("src/a.c", MARKED).write(".git/HEAD", "nonsense\n");
    let found = survey(&world);
    found.has(&["src/a.c:2", "FIXME"]);
    found.could_not_see("git refuses this repository");
}

#[test]
fn git_is_not_installed() {
    let world = World::repository();
    world.write("src/a.c", MARKED).commit("plant");
    let folder = world.beside("tools");
    fs::create_dir(&folder).expect("a folder");
    let path = std::env::var("PATH").expect("PATH");
    for tool in "sh awk cat dd find grep head mkdir rm sed sort tail tr wc xargs".split(' ') {
        let real: PathBuf = std::env::split_paths(&path)
            .map(|from| from.join(tool))
            .find(|file| file.is_file())
            .unwrap_or_else(|| panic!("{tool} is on PATH"));
        std::os::unix::fs::symlink(real, folder.join(tool)).expect("a link");
    }
    let found = ask_with(&world, QUESTION, |command| {
        command.env("PATH", &folder);
    });
    found.has(&["src/a.c:2", "FIXME"]);
    found.could_not_see("git is not installed");
}

#[test]
fn git_dir_set_by_a_hook_does_not_lead_to_another_repository() {
    let other = World::repository();
    other.write("elsewhere.c", MARKED).commit("another repository");
    let world = World::repository();
    world.write("src/a.c", MARKED).commit("plant");
    let head = world.git(&["rev-parse", "--short", "HEAD"]);
    let found = ask_with(&world, QUESTION, |command| {
        command
            .env("GIT_DIR", other.dir().join(".git"))
            .env("GIT_WORK_TREE", other.dir())
            .env("GIT_INDEX_FILE", other.dir().join(".git/index"));
    });
    found.has(&["src/a.c:2", "FIXME"]);
    found.has(&["History", &head]);
    found.lacks(&["elsewhere.c"]);
}

#[test]
fn names_with_spaces_newlines_dashes_and_bytes_that_are_no_utf_8() {
    for tracked in [true, false] {
        let world = if tracked { World::repository() } else { World::plain() };
        world
            .write("a folder/a name.c", MARKED)
            .write("two\nlines.c", MARKED)
            .write("-rf.c", MARKED)
            .write("name=value.c", MARKED)
            .write("caf\u{e9}.c", MARKED)
            .write("it's.c", MARKED)
            .write("red\u{1b}[31m.c", MARKED)
            .write_bytes(b"latin\xe9.c", MARKED);
        if tracked {
            world.commit("plant");
        }
        let found = survey(&world);
        for name in [
            "a folder/a name.c:2",
            r"two\nlines.c:2",
            " -rf.c:2",
            "name=value.c:2",
            "caf\u{e9}.c:2",
            "it's.c:2",
            r"red\x1b[31m.c:2",
            r"latin\xe9.c:2",
        ] {
            found.has(&[name, "FIXME"]);
        }
    }
}

#[test]
fn what_a_file_says_cannot_move_the_cursor_or_fake_a_finding() {
    let world = World::plain();
    world.write("a.c", "// FIXME: \u{1b}[2J\u{202e}gone\tfinding\tmarkers\t10\tx\tx\tx\tfaked\n");
    let found = survey(&world);
    found.has(&["a.c:1", r"\x1b[2J"]);
    assert_eq!(found.items().iter().filter(|item| item.contains("[markers]")).count(), 1);
}

#[test]
fn an_empty_directory() {
    let found = survey(&World::plain());
    found.has(&["no file at all"]);
    found.could_not_see("not a git repository");
    assert!(found.items().is_empty(), "{}", found.report);
}

#[test]
fn fifty_thousand_files_in_a_minute() {
    let world = World::repository();
    world.write("folder-77/odd.c", MARKED).commit("plant");
    // Left untracked: the survey lists those too, and git need not store them here.
    for folder in 0..250 {
        let folder = world.dir().join(format!("folder-{folder}"));
        fs::create_dir_all(&folder).expect("a folder");
        for file in 0..200 {
            fs::write(folder.join(format!("file-{file}.c")), "int a;\n// plain\n").expect("a file");
        }
    }
    let started = Instant::now();
    let found = survey(&world);
    let took = started.elapsed();
    found.has(&["folder-77/odd.c:2", "FIXME"]);
    found.has(&["Content", "50001 files"]);
    assert!(took <= Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_part_of_a_repository_is_surveyed_with_its_own_names() {
    let world = World::repository();
    world.write("part/src/a.c", MARKED).write("outside.c", MARKED).commit("plant");
    let db = world.beside("part.db");
    let output = Command::new(crate::run::offspring())
        .arg("--db")
        .arg(db)
        .arg("run")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/survey.yaml"))
        .arg(QUESTION)
        .arg("--dir")
        .arg(world.dir().join("part"))
        .output()
        .expect("the program starts");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}");
    assert!(report.contains(" src/a.c:2"), "{report}");
    assert!(!report.contains("outside.c"), "{report}");
    assert!(!report.contains("no README"), "{report}");
}
