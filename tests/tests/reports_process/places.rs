//! Where children work, and how a tree is cancelled from outside.

use std::{
    fs,
    time::{Duration, Instant},
};

use offspring_tests::{Running, World};

use crate::{lines, of_kind};

#[test]
fn o23_started_in_the_root_directory_a_child_works_where_its_parent_does() {
    let world = World::new();
    fs::create_dir_all(world.here().join("inner")).unwrap();
    let pool = world.pool(
        "
entry: parent
agents:
  parent: {type: command, command: [sh, -c, 'pwd; cd /tmp; offspring task child x; offspring task child x --cwd inner; offspring task child x --cwd missing || echo refused']}
  child: {type: command, command: [pwd]}
",
    );
    let here = world.here().canonicalize().unwrap();
    let mut command = world.command(&["run"]);
    command.current_dir("/").arg(pool).args(["x", "--quiet", "--dir"]).arg(&here);
    let done = Running::start(command).finish().with(0);
    let here = here.display();
    // The real directories of the real processes.
    let said: Vec<&str> = done.stdout.lines().filter(|line| line.starts_with('/')).collect();
    assert_eq!(said, [format!("{here}"), format!("{here}"), format!("{here}/inner")], "{done:?}");
    assert!(done.stdout.ends_with("refused\n"), "{done:?}");
    let tree = world.tree("latest");
    let stored: Vec<&str> = tree.iter().map(|session| session["cwd"].as_str().unwrap()).collect();
    assert_eq!(stored, said, "and no session for the directory that is missing");
}

#[test]
fn o23_a_child_with_its_own_directory_is_told_nothing_of_its_parents() {
    let world = World::new();
    fs::create_dir_all(world.here().join("secret-place/inner")).unwrap();
    world.pool(
        "
entry: parent
agents:
  parent: {type: command, command: [sh, -c, 'offspring task child x --cwd inner']}
  child: {type: command, command: [sh, -c, 'env | grep -v ^PWD=; echo end']}
",
    );
    let mut command = world.run_command("parent", "x", &["--quiet", "--dir"]);
    command.arg(world.here().join("secret-place"));
    let done = Running::start(command).finish().with(0);
    assert!(!done.stdout.contains("secret-place") && done.stdout.ends_with("end\n"), "{done:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn o18_within_two_seconds_of_a_cancel_three_levels_are_cancelled_leaf_first_and_once_each() {
    let world = World::new();
    world.pool(
        "
entry: r
agents:
  r: {type: command, command: [sh, -c, 'offspring task a x']}
  a: {type: command, command: [sh, -c, 'offspring task b x; echo and on it went']}
  b: {type: command, command: [sh, -c, 'sleep @SLEEP@; echo success']}
",
    );
    let run = world.start("r", "x", &["--json", "--quiet"]);
    world.until_sleepers(1);
    let asked = Instant::now();
    world.offspring(&["cancel", "latest"]).with(0);
    let took = asked.elapsed();
    assert_eq!(world.sleepers(), [], "the command's group is gone");
    let tree = world.tree("latest");
    assert_eq!(crate::states(&tree), ["cancelled", "cancelled", "cancelled"]);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let log = lines(&run.finish().with(1).stdout);
    let ends: Vec<&str> = of_kind(&log, "status_changed")
        .into_iter()
        .filter(|line| line["event"]["data"]["state"] == "idle")
        .map(|line| line["agent"].as_str().unwrap())
        .collect();
    assert_eq!(ends, ["b", "a", "r"]);
    let finished: Vec<&str> =
        of_kind(&log, "stream_complete").into_iter().map(|line| line["agent"].as_str().unwrap()).collect();
    assert_eq!(finished, ["b", "a", "r"]);
    assert!(
        !log.iter().any(|line| line.to_string().contains("went") || line.to_string().contains("success"))
    );
}
