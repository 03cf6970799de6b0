//! How a server ends: end of stdin, signals, a client that is gone.

use std::time::Duration;

use offspring_tests::{
    World,
    processes::SignalName as Signal,
    serve::{Client, POOL, prompts_of},
};

/// A client of a tree at work with a prompt that waits.
fn busy(world: &World) -> (Client, [String; 2]) {
    let mut client = Client::of_node(world, "boss");
    let messages = [client.prompt("s", "runs"), client.prompt("s", "waits")];
    world.until_sleepers(1);
    (client, messages)
}

fn ended_well(world: &World, messages: [String; 2]) {
    world.until_nothing_lives(Duration::from_secs(5));
    let [runs, waits] = messages;
    let ends = [(runs, "cancelled".to_owned()), (waits, "dropped: closing".to_owned())];
    assert_eq!(prompts_of(world, "s"), ends);
    let log = world.offspring(&["watch", "s", "--json"]).with(0).stdout;
    let idle: Vec<bool> = log
        .lines()
        .filter(|line| line.contains("\"state\":\"idle\""))
        .map(|line| line.contains("\"depth\":1"))
        .collect();
    assert_eq!(idle, [true, false], "children first");
}

#[test]
fn l14_the_end_of_stdin_cancels_what_runs_and_is_a_good_end() {
    let world = World::new();
    let (client, messages) = busy(&world);
    let done = client.end().with(0);
    assert!(done.stderr.is_empty(), "{}", done.stderr);
    ended_well(&world, messages);
}

#[test]
fn l14_a_signal_cancels_what_runs_and_says_so_by_its_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let world = World::new();
        let (mut client, messages) = busy(&world);
        client.process().send(signal);
        // Its stdin stays open all the time.
        client.read_to_end();
        let done = client.finish().with(code);
        assert!(done.stderr.is_empty(), "{}", done.stderr);
        ended_well(&world, messages);
    }
}

#[test]
fn w7_what_does_not_want_to_end_is_killed_at_the_second_signal() {
    let world = World::new();
    let mut client = Client::of_node(&world, "stubborn");
    client.prompt("s", "x");
    world.until_sleepers(1);
    client.process().close_stdin();
    // Its stdout ends when it has understood.
    client.read_to_end();
    // The agent has its 8 s of grace, unless somebody insists.
    client.process().send(Signal::TERM);
    let in_time = client.process().ends_within(Duration::from_secs(4));
    assert!(in_time, "the first signal after the end of stdin is the second request");
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn a_client_that_does_not_read_any_more_ends_the_server_and_leaves_nothing() {
    let world = World::new();
    world.pool(POOL);
    let mut command = world.command(&["serve", "--stdio"]);
    command.arg(world.path("pool/pool.yaml"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut server = command.spawn().unwrap();
    drop(server.stdout.take());
    let mut stdin = server.stdin.take().unwrap();
    let initialize = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"cwd": world.here(), "provider": "offspring", "model": "slow"}});
    let _ = std::io::Write::write_all(&mut stdin, format!("{initialize}\n").as_bytes());
    let code = offspring_tests::until("its end", Duration::from_secs(20), || server.try_wait().unwrap());
    assert_eq!(code.code(), Some(0));
    world.until_nothing_lives(Duration::from_secs(5));
}
