//! `offspring show`: a session's row and transcript.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::World;

#[test]
fn row_and_transcript_of_a_session_are_shown() {
    let world = World::new();
    world.pool("name: desk\nagents:\n  a: {type: command, command: [sh, -c, 'echo before; offspring task b \"for b\" --description \"to see\"; echo after']}\n  b: {type: command, command: [sh, -c, 'echo half; echo gone wrong >&2; exit 4']}\nentry: a\n");
    world.run("a", "the question", &["--quiet"]).with(0);
    let text = world.offspring(&["show"]).with(0).stdout;
    let here = world.here().canonicalize().unwrap();
    for part in [
        "✓ a completed ",
        "  depth     0\n",
        "  pool      desk\n",
        &format!("  directory {}\n", here.display()),
        "> the question\n",
        "+ b (agent) ses_",
        "to see\n",
        // What there was of the failed child's answer is the caller's.
        "before\nhalf\nafter\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let tree = world.tree("latest");
    let child = tree[1]["id"].as_str().unwrap();
    let shown = world.json(&["show", child, "--json"]);
    assert_eq!(shown["session"]["parent_id"], tree[0]["id"]);
    assert_eq!(shown["runs"].as_array().unwrap().len(), 1);
    let transcript = shown["transcript"].as_array().unwrap();
    let kinds: Vec<&str> = transcript.iter().map(|line| line["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "run_started");
    assert!(kinds.contains(&"text_delta") && kinds.contains(&"run_error"), "{kinds:?}");
    let order: Vec<u64> = transcript.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(order.is_sorted());
    let text = world.offspring(&["show", child]).with(0).stdout;
    for part in
        ["✗ b failed", "> for b\n", "half\n", "2> gone wrong\n", "✗ b exited with status 4: gone wrong\n"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(world.offspring(&["show", "ses_none"]).code, Some(2));
}
