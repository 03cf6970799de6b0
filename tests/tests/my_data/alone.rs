//! Nobody else can read it, whatever the umask.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use offspring_tests::{Running, World, kernel::inside};

const POOL: &str = "
entry: top
agents:
  top: {type: command, command: [sh, -c, 'offspring task reads x']}
  reads: {type: command, prompt: file, command: [sh, -c, 'exec sleep @SLEEP@']}
";

/// Everything below a folder with its permissions; links have none of their own.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut seen = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_symlink() {
                continue;
            }
            if found.is_dir() {
                open.push(path.clone());
            }
            seen.push((path, found.permissions().mode() & 0o7777));
        }
    }
    seen
}

/// Whether each is for its user alone.
fn all_private(seen: &[(PathBuf, u32)]) {
    for (path, mode) in seen {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, wanted, "{} has {mode:o}", path.display());
    }
}

fn has(seen: &[(PathBuf, u32)], what: &str) -> bool {
    seen.iter().any(|(path, _)| path.file_name().unwrap().to_string_lossy().contains(what))
}

#[test]
fn store_log_locks_sockets_and_directories_are_private_under_any_umask_during_a_run_and_after_it() {
    for umask in ["000", "022", "077", "777"] {
        let world = World::new();
        world.pool(POOL);
        // Deep, so that directories above it are made too.
        let state = world.path("state/deep/er");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
        let mut run = world.bare();
        run.arg("run").arg(world.path("pool/pool.yaml")).args(["x", "--quiet"]).env("XDG_STATE_HOME", &state);
        let run = Running::start(inside(shell, &run));
        world.until_sleepers(1);

        let kept = modes(&world.path("state"));
        all_private(&kept);
        for name in [
            "sessions.db",
            "sessions.db-wal",
            "sessions.db-shm",
            "sessions.db.owners",
            ".lock",
            ".turn",
            "offspring",
            "er",
        ] {
            assert!(has(&kept, name), "no {name} in {kept:?}");
        }
        let scratch = modes(&world.path("tmp"));
        all_private(&scratch);
        for name in ["offspring-", "lock", "bin", "run-", "prompt"] {
            assert!(has(&scratch, name), "no {name} in {scratch:?}");
        }
        let socket = |(path, _): &(PathBuf, u32)| fs::metadata(path).unwrap().file_type().is_socket();
        assert_eq!(scratch.iter().filter(|seen| socket(seen)).count(), 1, "{scratch:?}");

        let mut cancel = world.bare();
        cancel.args(["cancel", "latest"]).env("XDG_STATE_HOME", &state);
        Running::start(cancel).finish().with(0);
        run.finish().with(1);
        all_private(&modes(&world.path("state")));
    }
}

#[test]
fn a_store_that_was_copied_back_with_open_permissions_is_closed_again() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [cat]}}\n");
    world.run("a", "x", &["--quiet"]).with(0);
    let owners = world.path("sessions.db.owners");
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(&world.db(), 0o644);
    open(&owners, 0o755);
    world.offspring(&["ls"]).with(0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&world.db()), mode(&owners)), (0o600, 0o700));
}
