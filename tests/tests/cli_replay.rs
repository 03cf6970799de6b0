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

#[test]
fn a_last_line_that_was_cut_off_is_said_and_the_rest_is_replayed() {
    let world = World::new();
    let whole = std::fs::read_to_string(fixture("b_nested.jsonl")).unwrap();
    let last = whole.trim_end().rfind('\n').unwrap();
    let cut = world.write("cut.jsonl", &whole[..last + 40]);
    let number = whole[..last].lines().count() + 1;
    let done = world.offspring(&["replay", cut.to_str().unwrap()]).with(0);
    assert!(done.stderr.contains(&format!("line {number}, the last, was cut off")), "{}", done.stderr);
    assert!(done.stdout.starts_with("root  "), "{}", done.stdout);
    assert_eq!(json(&world, &[cut.to_str().unwrap()])["cut_line"], number);
    // With a line feed behind it nobody was cut off: it is no trace.
    let broken = world.write("broken.jsonl", &format!("{}\n", &whole[..last + 40]));
    world.offspring(&["replay", broken.to_str().unwrap()]).with(2);
}

#[test]
fn a_chain_of_thousands_is_shown_in_lines_of_bounded_length() {
    let world = World::new();
    let mut trace = String::from(
        "{\"dir\":\"c2s\",\"msg\":{\"id\":1,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"s0\",\"contentBlocks\":[]}}}\n",
    );
    for at in 0..3_000 {
        trace.push_str(&format!(
            "{{\"dir\":\"s2c\",\"msg\":{{\"method\":\"subagent.started\",\"params\":{{\"parentSessionId\":\"s{at}\",\"childSessionId\":\"s{}\"}}}}}}\n",
            at + 1
        ));
    }
    let file = world.write("chain.jsonl", &trace);
    let done = world.offspring(&["replay", file.to_str().unwrap()]).with(0);
    assert!(done.stdout.lines().all(|line| line.len() < 150));
    assert!(done.stdout.contains("[3000] s3000  0 events  open"), "the depth is told by a number");
    let last = json(&world, &[file.to_str().unwrap()])["tree"][3_000].clone();
    assert_eq!((&last["depth"], &last["parent"]), (&3_000.into(), &"s2999".into()));
}

#[test]
fn t13_a_prompt_that_was_refused_is_not_the_root_of_a_replay() {
    let world = World::new();
    let prompt = |id: u32, session: &str| {
        format!(
            "{{\"dir\":\"c2s\",\"msg\":{{\"id\":{id},\"method\":\"session/prompt\",\"params\":{{\"sessionId\":\"{session}\",\"contentBlocks\":[]}}}}}}\n"
        )
    };
    let refusal = "{\"dir\":\"s2c\",\"msg\":{\"id\":1,\"error\":{\"code\":-32603,\"message\":\"no\"}}}\n";
    let file = world.write("refused.jsonl", &[&prompt(1, "no"), refusal, &prompt(2, "yes")].concat());
    assert_eq!(json(&world, &[file.to_str().unwrap()])["session"], "yes");
    let none = world.write("none.jsonl", &[&prompt(1, "no"), refusal].concat());
    let done = world.offspring(&["replay", none.to_str().unwrap()]).with(2);
    assert!(done.stderr.contains("each prompt was refused"), "{}", done.stderr);
}

#[test]
fn w3_junk_is_shown_with_its_line_and_its_beginning() {
    let world = World::new();
    let mut trace = String::from(
        "{\"dir\":\"mark\"}\n{\"dir\":\"c2s\",\"msg\":{\"id\":1,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"r\",\"contentBlocks\":[]}}}\n\
         {\"dir\":\"s2c\",\"msg\":{\"id\":1,\"result\":{}}}\n",
    );
    for number in 0..12 {
        trace.push_str(&format!(
            "{{\"dir\":\"s2c\",\"raw\":\"banner {number} {}\\u001b[2J\"}}\n",
            "x".repeat(200)
        ));
    }
    let file = world.write("junk.jsonl", &trace);
    let done = world.offspring(&["replay", file.to_str().unwrap()]).with(0);
    let shown: Vec<&str> = done.stdout.lines().skip(1).collect();
    assert!(shown[0].ends_with("12 lines of junk"), "{shown:?}");
    assert_eq!(shown[1], "  and 2 lines before these:");
    assert!(shown[2].starts_with("  line 6: ") && shown[2].contains("banner 2 xxx"), "{shown:?}");
    assert_eq!(shown.len(), 12);
    assert!(shown.iter().all(|line| line.len() < 250), "{shown:?}");
    let report = json(&world, &[file.to_str().unwrap()]);
    assert_eq!((&report["junk"], &report["junk_lines"][9]["line"]), (&12.into(), &15.into()));
    assert!(report["junk_lines"][9]["excerpt"].as_str().unwrap().ends_with("xx…"));
}
