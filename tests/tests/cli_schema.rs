//! `offspring schema manifest`: what an editor needs to help with a manifest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{Running, World};

#[test]
fn the_schema_names_the_keys_of_a_manifest_and_of_commands_and_needs_no_store() {
    let world = World::new();
    let mut command = world.bare();
    command.args(["schema", "manifest"]).env_remove("HOME").env_remove("XDG_STATE_HOME");
    let done = Running::start(command).finish().with(0);
    let schema: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    for key in ["name", "entry", "agents", "teams", "workers", "limits", "storage"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    for key in ["\"command\"", "\"prompt\"", "\"on_exit\"", "\"stop_grace_ms\"", "\"environment\""] {
        assert!(done.stdout.contains(key), "{key}");
    }
    let done = world.offspring(&["schema", "nonsense"]).with(2);
    assert!(done.stderr.contains("manifest"), "{}", done.stderr);
}
