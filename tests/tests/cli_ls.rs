//! `offspring ls`: the roots, newest first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::World;

#[test]
fn roots_are_listed_newest_first_with_state_time_and_title() {
    let world = World::new();
    world.pool("agents:\n  a: {type: command, command: [sh, -c, 'offspring task b x']}\n  b: {type: command, command: [cat]}\n  bad: {type: command, command: [false]}\nentry: a\n");
    let done = world.offspring(&["ls"]).with(1);
    assert!(
        done.stderr.contains("no sessions yet") && done.stderr.contains("offspring run MANIFEST PROMPT"),
        "{done:?}"
    );
    assert!(!world.db().exists(), "looking makes nothing");

    world.run("a", "the first\nquestion", &["--quiet"]).with(0);
    world.run("bad", "second", &["--quiet"]).with(1);
    let lines = world.offspring(&["ls"]).with(0).stdout;
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "children are not listed: {lines:?}");
    assert!(lines[0].starts_with("✗ failed ") && lines[0].ends_with("bad  second"), "{lines:?}");
    assert!(lines[1].starts_with("✓ completed ") && lines[1].contains("a  the first"), "{lines:?}");

    let rows = world.json(&["ls", "--json"]);
    let row = &rows[1];
    assert_eq!((row["agent_name"].as_str(), row["run_state"].as_str()), (Some("a"), Some("completed")));
    assert_eq!(row["cwd"].as_str(), world.here().canonicalize().unwrap().to_str());
    assert!(row["duration_ms"].is_u64() && row["parent_id"].is_null());
    assert_eq!(world.json(&["ls", "-n", "1", "--json"]).as_array().unwrap().len(), 1);
    assert_eq!(world.offspring(&["ls", "--json", "extra"]).code, Some(2));
}
