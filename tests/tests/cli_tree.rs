//! `offspring tree`: states, durations and depth of a tree, for people and for other programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::World;

const POOL: &str = r#"
entry: top
agents:
  top: {type: command, command: [sh, -c, 'offspring task pair x; offspring task mid y']}
  mid: {type: command, command: [sh, -c, 'offspring task leaf z']}
  leaf: {type: command, command: [cat]}
  bad: {type: command, command: [sh, -c, 'echo "why <&\" not" >&2; exit 7']}
teams:
  pair: {mode: parallel, members: [leaf, bad]}
"#;

fn ran() -> World {
    let world = World::new();
    world.pool(POOL);
    world.run("top", "x", &["--quiet"]).with(0);
    world
}

#[test]
fn a_tree_has_every_session_with_its_state_and_depth() {
    let world = ran();
    let text = world.offspring(&["tree"]).with(0).stdout;
    let names: Vec<String> = text
        .lines()
        .map(|line| {
            let (line, id) = line.rsplit_once("  ").unwrap();
            assert!(id.starts_with("ses_"), "{line}");
            let mut words = line.trim_start_matches(['│', '├', '└', '─', ' ']).split(' ');
            words.by_ref().take(3).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(names[0], "✓ top completed");
    assert_eq!(names[3..], ["✓ mid completed", "✓ leaf completed"]);
    let mut pair = names[1..3].to_vec();
    pair.sort();
    assert_eq!(pair, ["✓ leaf completed", "✗ bad failed"]);
    assert!(text.contains("bad exited with status 7: why <&\" not"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("   └─ ✓ leaf completed "), "{text}");

    let json = world.json(&["tree", "latest", "--json"]);
    assert_eq!(json["depth"], 2);
    let sessions = json["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 5);
    for session in sessions {
        let parent = sessions.iter().find(|other| other["id"] == session["parent_id"]);
        assert_eq!(session["depth"], parent.map_or(0, |parent| parent["depth"].as_u64().unwrap() + 1));
        assert_eq!(session["root_id"], json["root"]);
        assert!(session["duration_ms"].is_u64() && session["state"] == "idle", "{session}");
    }
}

#[test]
fn a_session_is_named_by_id_prefix_or_latest() {
    let world = ran();
    let sessions = world.tree("latest");
    let id = |index: usize| sessions[index]["id"].as_str().unwrap();
    let mid = sessions.iter().find(|session| session["agent_name"] == "mid").unwrap()["id"].as_str().unwrap();
    let below = world.tree(mid);
    assert_eq!(below.len(), 2, "a tree may be shown from any session on");
    // The tail of an id is random: it tells two of one run apart.
    let unique = |prefix: &&str| {
        sessions.iter().filter(|other| other["id"].as_str().unwrap().starts_with(prefix)).count() == 1
    };
    let prefix = (5..mid.len()).map(|len| &mid[..len]).find(unique).unwrap();
    assert_eq!(world.tree(prefix)[0]["id"], mid);
    assert_eq!(world.tree(prefix.strip_prefix("ses_").unwrap())[0]["id"], mid);
    let done = world.offspring(&["tree", "ses_"]).with(2);
    assert!(done.stderr.contains("beginning of 5 ids") && done.stderr.contains(id(0)), "{}", done.stderr);
    let done = world.offspring(&["tree", "nothing\u{1b}[31m"]).with(2);
    assert!(
        done.stderr.contains("no session `nothing") && !done.stderr.contains('\u{1b}'),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("offspring ls"), "{}", done.stderr);
}

#[test]
fn other_programs_get_mermaid_and_dot() {
    let world = ran();
    let mermaid = world.offspring(&["tree", "--mermaid"]).with(0).stdout;
    assert!(mermaid.starts_with("flowchart TD\n  s0[\"top: completed\"]\n"), "{mermaid}");
    assert_eq!(mermaid.lines().filter(|line| line.contains("-->")).count(), 4);
    let dot = world.offspring(&["tree", "--dot"]).with(0).stdout;
    assert!(dot.starts_with("digraph sessions {\n") && dot.ends_with("}\n"), "{dot}");
    assert_eq!(dot.lines().filter(|line| line.contains("->")).count(), 4);
    assert_eq!(world.offspring(&["tree", "--dot", "--json"]).code, Some(2));
}
