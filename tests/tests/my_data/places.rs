//! Where nothing can be kept, nothing runs: no agent begins, and no other place is taken instead.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use offspring_tests::{
    Finished, Running, World,
    kernel::{inside, not_checked, unshared},
    offspring,
};

const POOL: &str = "
entry: a
agents:
  a: {type: command, command: [sh, -c, 'touch \"$OFFSPRING_MANIFEST_DIR/began\"; cat']}
";
/// The user `nobody`.
const NOBODY: u32 = 65_534;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// The program without a store named.
fn run(world: &World) -> Command {
    let mut run = world.bare();
    run.arg("run").arg(world.path("pool/pool.yaml")).args(["x", "--quiet"]);
    run
}

/// A refusal: what, where and what to do, and nothing was begun or made.
fn refused(world: &World, run: Command, says: &str) -> Finished {
    let done = Running::start(run).finish().with(1);
    let said = &done.stderr;
    assert!(said.contains(says), "{says}: {said}");
    for way in ["--db", "OFFSPRING_DB", "memory:"] {
        assert!(said.contains(way), "no {way}: {said}");
    }
    assert!(said.lines().count() <= 6 && done.stdout.is_empty(), "{done:?}");
    assert!(!world.path("pool/began").exists(), "an agent began");
    for folder in ["here", "tmp", "home"] {
        assert_eq!(world.picture(&world.path(folder)), [], "{folder}");
    }
    done
}

/// Where nothing can be kept, `memory:` and a file that is named still work.
fn works_elsewhere(world: &World, change: impl Fn(&mut Command)) {
    for db in [PathBuf::from("memory:"), world.path("named.db")] {
        let mut command = world.bare();
        command.arg("--db").arg(&db).arg("run").arg(world.path("pool/pool.yaml")).args(["x", "--quiet"]);
        change(&mut command);
        Running::start(command).finish().with(0);
        assert!(world.path("pool/began").exists());
        fs::remove_file(world.path("pool/began")).unwrap();
    }
}

#[test]
fn without_home_and_state_directory_a_run_is_refused() {
    let world = world();
    for (home, state) in
        [(None, None), (Some(""), Some("")), (Some("home"), Some("state")), (None, Some("./state"))]
    {
        let change = |command: &mut Command| {
            for (name, value) in [("HOME", home), ("XDG_STATE_HOME", state)] {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
        };
        let mut command = run(&world);
        change(&mut command);
        refused(&world, command, "neither XDG_STATE_HOME nor HOME is set");
        let mut looking = world.bare();
        looking.arg("ls");
        change(&mut looking);
        refused(&world, looking, "neither XDG_STATE_HOME nor HOME is set");
        works_elsewhere(&world, change);
    }
}

#[test]
fn a_file_where_a_directory_should_be_is_refused() {
    let world = world();
    fs::remove_dir(world.path("state")).unwrap();
    fs::write(world.path("state"), "mine").unwrap();
    refused(&world, run(&world), "state is no directory");
    assert_eq!(fs::read(world.path("state")).unwrap(), b"mine");
    works_elsewhere(&world, |_| {});
}

#[test]
fn a_read_only_file_system_is_refused_with_a_store_in_it_and_without() {
    let Some(_) = unshared("m") else { return };
    for stored in [false, true] {
        let world = world();
        if stored {
            Running::start(run(&world)).finish().with(0);
            fs::remove_file(world.path("pool/began")).unwrap();
        }
        let state = world.path("state");
        let script = format!(
            "mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}' && exec \"$@\"",
            state.display()
        );
        let mut shell = unshared("m").unwrap();
        shell.args(["sh", "-c", &script, "sh"]);
        let before = world.picture(&state);
        refused(&world, inside(shell, &run(&world)), &state.display().to_string());
        assert_eq!(world.picture(&state), before);
    }
}

/// A world in which `nobody` may run the program; not as root it is for ourselves.
fn for_nobody(world: &World) -> Option<impl Fn(&Command) -> Command + use<>> {
    if !rustix::process::geteuid().is_root() {
        not_checked("what another user may do: this is not root");
        return None;
    }
    // Where the program was built may be closed to others.
    let program = world.path("offspring");
    fs::copy(offspring(), &program).unwrap();
    for open in ["", "pool", "here", "tmp", "home"] {
        fs::set_permissions(world.path(open), Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let tried = Command::new("setpriv")
        .args(&ids)
        .args(["--clear-groups", "--"])
        .arg(&program)
        .arg("--version")
        .output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        not_checked("what another user may do: `setpriv` cannot become one");
        return None;
    }
    Some(move |command: &Command| {
        let mut becoming = Command::new("setpriv");
        becoming.args(&ids).args(["--clear-groups", "--"]).arg(&program).args(command.get_args());
        becoming.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        becoming.current_dir(command.get_current_dir().unwrap());
        becoming
    })
}

#[test]
fn a_directory_that_may_not_be_written_to_is_refused() {
    let world = world();
    let state = world.path("state");
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(&state, Permissions::from_mode(0o500)).unwrap();
        refused(&world, run(&world), "Permission denied");
        return;
    }
    let Some(as_nobody) = for_nobody(&world) else { return };
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o500)).unwrap();
    refused(&world, as_nobody(&run(&world)), "Permission denied");
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    Running::start(as_nobody(&run(&world))).finish().with(0);
}

#[test]
fn the_directory_of_another_user_is_refused() {
    let world = world();
    let state = world.path("state");
    if rustix::process::geteuid().is_root() {
        // As `sudo` does, which leaves HOME as it was.
        chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        refused(&world, run(&world), &format!("{} belongs to user {NOBODY}", state.display()));
        assert_eq!(world.picture(&state), []);
        works_elsewhere(&world, |_| {});
    }
    // And the other way round.
    let Some(as_nobody) = for_nobody(&world) else { return };
    chown(&state, Some(0), Some(0)).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    refused(&world, as_nobody(&run(&world)), &format!("{} belongs to user 0", state.display()));
}

#[test]
fn a_directory_that_everybody_can_change_is_refused_and_a_sticky_one_of_ours_is_not() {
    let world = world();
    let state = world.path("state");
    fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    refused(&world, run(&world), "can be changed by everybody");
    works_elsewhere(&world, |_| {});
    for mode in [0o1777, 0o775] {
        fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
        Running::start(run(&world)).finish().with(0);
    }
}

#[test]
fn a_named_store_of_another_user_is_refused_even_to_root_and_stays_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        not_checked("stores of other users: this is not root");
        return;
    }
    let world = world();
    world.run("a", "x", &["--quiet"]).with(0);
    fs::remove_file(world.path("pool/began")).unwrap();
    let owners = world.path("sessions.db.owners");
    for (db, locks) in [(NOBODY, NOBODY), (0, NOBODY), (NOBODY, 0)] {
        chown(world.db(), Some(db), None).unwrap();
        chown(&owners, Some(locks), None).unwrap();
        let before = (fs::read(world.db()).unwrap(), world.picture(&owners));
        refused(&world, world.run_command("a", "x", &["--quiet"]), &format!("belongs to user {NOBODY}"));
        refused(&world, world.command(&["ls"]), &format!("belongs to user {NOBODY}"));
        assert_eq!((fs::read(world.db()).unwrap(), world.picture(&owners)), before);
    }
    chown(world.db(), Some(0), None).unwrap();
    chown(&owners, Some(0), None).unwrap();
    world.offspring(&["ls"]).with(0);
}

#[test]
fn a_link_where_the_locks_should_be_is_refused_and_a_store_that_is_a_link_is_not() {
    let world = world();
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, world.path("sessions.db.owners")).unwrap();
    refused(&world, world.run_command("a", "x", &["--quiet"]), "is a link");
    assert_eq!(world.picture(&elsewhere), []);

    fs::remove_file(world.path("sessions.db.owners")).unwrap();
    world.run("a", "x", &["--quiet"]).with(0);
    fs::rename(world.db(), elsewhere.join("moved.db")).unwrap();
    symlink(elsewhere.join("moved.db"), world.db()).unwrap();
    assert_eq!(world.tree("latest").len(), 1);
}

#[test]
fn nothing_is_left_in_the_directory_for_temporary_files_or_where_one_stands() {
    let world = world();
    let before = world.picture(&world.path(""));
    let kept = |path: &Path| path.starts_with(world.path("state")) || path.ends_with("pool/began");
    Running::start(run(&world)).finish().with(0);
    let after = world.picture(&world.path(""));
    let new: Vec<_> = after.iter().filter(|(path, _)| !before.iter().any(|(old, _)| old == path)).collect();
    assert!(new.iter().all(|(path, _)| kept(path)), "{new:?}");
    assert!(new.iter().any(|(path, _)| path.ends_with("state/offspring/sessions.db")), "{new:?}");
}
