//! `--as-program`, and what cannot be served.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use offspring_tests::{Running, World, serve::POOL};

#[test]
fn it_writes_a_program_that_takes_what_clients_give_every_runtime() {
    let world = World::new();
    let pool = world.pool(POOL);
    // A name that a shell would take apart.
    let program = world.path("it's a runtime");
    let mut command = world.command(&["serve", "--stdio"]);
    command.arg(&pool).arg("--as-program").arg(&program);
    let done = Running::start(command).finish().with(0);
    assert_eq!(done.stderr, format!("wrote {}\n", program.display()));
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o755, 0o755);

    let bare = world.bare();
    let mut command = std::process::Command::new(&program);
    command.args(["--profile", "sdk", "--patch", "a.yml", "--patch", "b.yml"]).env_clear();
    command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::piped());
    // Started from anywhere.
    command.current_dir("/");
    let mut running = Running::start(command);
    running.tell(r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#);
    running.until_json(|answer| answer["id"] == 1);
    let done = running.finish().with(0);
    let said = "ignored: --profile sdk --patch a.yml --patch b.yml (the manifest says what runs)\n";
    assert_eq!(done.stderr, said);
    assert!(world.db().exists(), "the store that was named when it was written");
}

#[test]
fn what_cannot_be_written_or_served_is_said() {
    let world = World::new();
    let pool = world.pool(POOL);
    let there = world.write("there", "mine");
    let mut command = world.command(&["serve", "--stdio"]);
    command.arg(&pool).arg("--as-program").arg(&there);
    let done = Running::start(command).finish().with(2);
    assert!(done.stderr.contains("there"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");

    let done = world.offspring(&["serve", "--stdio", "no-such.yaml"]).with(2);
    assert!(done.stdout.is_empty() && done.stderr.contains("no-such.yaml"), "{done:?}");
    world.write("pool/bad.yaml", "agents: 5");
    let bad = world.path("pool/bad.yaml");
    let done = world.offspring(&["serve", "--stdio", bad.to_str().unwrap()]).with(2);
    assert!(done.stdout.is_empty(), "W9: {done:?}");
}
