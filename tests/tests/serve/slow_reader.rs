//! A client that does not read for a while.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    time::Duration,
};

use offspring_tests::{
    World,
    serve::{POOL, prompt_params},
    until,
};
use serde_json::{Value, json};

/// Lines of the agent, and how many bytes each has.
const LINES: usize = 50_000;
const WIDTH: usize = 200;

#[test]
fn t11_a_client_that_does_not_read_costs_no_memory_and_misses_nothing() {
    let world = World::new();
    let many = format!(
        "  many: {{type: command, command: [awk, 'BEGIN {{ for (i = 1; i <= {LINES}; i++) printf \"%0{}d\\n\", i }}']}}\n",
        WIDTH - 1
    );
    world.pool(&format!("{POOL}{many}"));
    let mut command = world.command(&["serve", "--stdio"]);
    command.arg(world.path("pool/pool.yaml")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let calls = [
        ("initialize", json!({"cwd": world.here(), "provider": "offspring", "model": "many"})),
        ("session/prompt", prompt_params("s", "go")),
        ("tree/subscribe", json!({"sessionId": "s"})),
    ];
    for (id, (method, params)) in calls.iter().enumerate() {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    // Not a byte is read until its run is over, as another process sees it.
    until("the end of the run", Duration::from_secs(50), || {
        let listed = world.offspring(&["ls", "--json"]);
        listed.stdout.contains("\"outcome\":\"completed\"").then_some(())
    });
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // The run itself holds its answer of 10 MB, once or twice.
    assert!(peak < 128 << 10, "{peak} KiB");

    let mut seq = 0;
    let mut text = String::new();
    let mut answer = None;
    let mut rested = (false, false);
    for line in BufReader::new(server.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let params = &line["params"];
        if line["method"] == "tree.event" {
            let envelope = &params["envelope"];
            seq += 1;
            assert_eq!(envelope["seq"], seq);
            let event = &envelope["event"];
            if event["kind"] == "text_delta" {
                text.push_str(event["data"]["text"].as_str().unwrap());
            }
            rested.0 |= event["data"]["state"] == "idle";
        } else if params["event"]["type"] == "assistant/message" {
            let said = params["event"]["data"]["message"]["content"][0]["text"].as_str().unwrap();
            answer = Some(said.to_owned());
        } else {
            rested.1 |= params["status"] == "idle";
        }
        if rested == (true, true) {
            break;
        }
    }
    assert_eq!(text.len(), LINES * WIDTH, "every byte came");
    assert!(text.lines().enumerate().all(|(at, line)| line.parse::<usize>() == Ok(at + 1)));
    // A message of this length is cut on the wire of the runtimes, and says so.
    let answer = answer.unwrap();
    assert!(answer.len() < (4 << 20) + 200 && answer.contains(&format!("[cut: {} bytes;", LINES * WIDTH)));
    drop(stdin);
    assert!(until("its end", Duration::from_secs(20), || server.try_wait().unwrap()).success());
}
