//! `offspring replay`: what a recorded wire says, through the program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{World, dsh::fixture};
use serde_json::Value;

fn json(world: &World, words: &[&str]) -> Value {
    let mut all = vec!["replay", "--json"];
    all.extend(words);
    serde_json::from_str(&world.offspring(&all).with(0).stdout).unwrap()
}

#[test]
fn t6_a_recorded_tree_is_shown_with_its_runs() {
    let world = World::new();
    let trace = fixture("b_nested.jsonl");
    let done = world.offspring(&["replay", trace.to_str().unwrap()]).with(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("root  ") && lines[0].ends_with("completed"), "{lines:?}");
    assert!(lines[1].starts_with("  7c5b2141") && lines[2].starts_with("    d9f88081"), "{lines:?}");
    assert_eq!(lines[3], "91 notifications of the tree, 0 of others, 0 lines of junk");

    let again = json(&world, &[fixture("d2_followup.jsonl").to_str().unwrap()]);
    // L12: a child that was started twice has two runs.
    assert_eq!(again["tree"][1]["runs"], serde_json::json!(["completed", "completed"]));
}

#[test]
fn t10_what_belongs_to_another_root_is_counted_apart() {
    let world = World::new();
    let trace = fixture("e_two_roots.jsonl");
    let first = json(&world, &[trace.to_str().unwrap()]);
    let roots: Vec<String> = std::fs::read_to_string(&trace)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["dir"] == "c2s" && line["msg"]["method"] == "session/prompt")
        .map(|line| line["msg"]["params"]["sessionId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(first["session"], roots[0]);
    let other = json(&world, &[trace.to_str().unwrap(), "--session", &roots[1]]);
    let count = |report: &Value, key: &str| report[key].as_u64().unwrap();
    assert!(count(&first, "outside") >= count(&other, "notifications") && count(&other, "notifications") > 0);
    assert_eq!(
        count(&first, "notifications") + count(&first, "outside"),
        count(&other, "notifications") + count(&other, "outside")
    );
}

#[test]
fn w3_what_is_no_message_is_counted_and_what_is_no_trace_is_refused() {
    let world = World::new();
    let odd = world.write(
        "odd.jsonl",
        "{\"dir\":\"mark\",\"mark\":\"spawn\"}\n\
         {\"dir\":\"c2s\",\"msg\":{\"id\":1,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"r\",\"contentBlocks\":[]}}}\n\
         {\"dir\":\"s2c\",\"raw\":\"a banner\"}\n\
         {\"dir\":\"s2c\",\"msg\":{\"method\":\"session.status\",\"params\":{\"sessionId\":\"r\",\"status\":\"idle\"}}}\n",
    );
    let report = json(&world, &[odd.to_str().unwrap()]);
    assert_eq!((&report["junk"], &report["notifications"]), (&1.into(), &1.into()));

    let bad = world.write("bad.jsonl", "{\"dir\":\"s2c\"}\nnot json\n");
    let done = world.offspring(&["replay", bad.to_str().unwrap()]).with(2);
    assert!(done.stderr.contains("bad.jsonl, line 2"), "{}", done.stderr);
    let none = world.write("none.jsonl", "");
    assert!(
        world
            .offspring(&["replay", none.to_str().unwrap()])
            .with(2)
            .stderr
            .contains("no session is prompted")
    );
    assert!(
        world.offspring(&["replay", world.path("").to_str().unwrap()]).with(2).stderr.contains("no file")
    );
    assert!(world.offspring(&["replay", "missing.jsonl"]).with(2).stderr.contains("no such file"));
}
