//! Drives a runtime from outside of the workspace: a turn, its tree, and what it was built from.
#![cfg(test)]

use std::time::Duration;

use offspring_client::{Harness, HarnessClient, Limits, SessionId, TurnEnd, dsh::InitializeParams};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, split};

/// A runtime of a few lines: whatever it is asked, it answers; a prompt starts a child that finishes.
async fn runtime(stream: tokio::io::DuplexStream) {
    let (reader, mut writer) = split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let id = line
            .split("\"id\":")
            .nth(1)
            .and_then(|rest| rest.split(&[',', '}'][..]).next())
            .unwrap_or("0")
            .to_owned();
        let event = |session: &str, body: &str| {
            format!(
                "{{\"method\":\"session.event\",\"params\":{{\"sessionId\":\"{session}\",\"event\":{body}}}}}\n"
            )
        };
        let status = |session: &str, status: &str| {
            format!(
                "{{\"method\":\"session.status\",\"params\":{{\"sessionId\":\"{session}\",\"status\":\"{status}\"}}}}\n"
            )
        };
        let answer = |result: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        let say = if line.contains("session/prompt") {
            [
                event("r", r#"{"type":"agent/inbox/spliced","data":{"inserted":[{"id":"m"}]}}"#),
                status("r", "running"),
                answer(r#"{"messageId":"m"}"#),
                "{\"method\":\"subagent.started\",\"params\":{\"parentSessionId\":\"r\",\"childSessionId\":\"c\"}}\n".into(),
                event("c", r#"{"type":"assistant/message","data":{"message":{"content":[{"type":"text","text":"no"}]}}}"#),
                "{\"method\":\"subagent.finished\",\"params\":{\"parentSessionId\":\"r\",\"childSessionId\":\"c\",\"status\":\"ok\"}}\n".into(),
                event("r", r#"{"type":"assistant/message","data":{"message":{"content":[{"type":"text","text":"yes"}]}}}"#),
                status("r", "idle"),
            ]
            .concat()
        } else {
            answer("{}")
        };
        if writer.write_all(say.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_stranger_drives_a_runtime_and_sees_its_whole_tree() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(runtime(theirs));
    let (output, input) = split(ours);
    let limits = Limits { request_within: Duration::from_secs(10), ..Limits::default() };
    let client = HarnessClient::builder().limits(limits).connect(output, input);
    let params = InitializeParams {
        cwd: "/".into(),
        provider: "p".into(),
        model: "m".into(),
        reasoning_effort: None,
        max_tokens: None,
    };
    let harness = Harness::over(client, &params).await.unwrap();
    let result = harness.session(SessionId::new("r").unwrap()).run_tree("go").await.unwrap();
    assert_eq!((result.final_response.as_deref(), result.end), (Some("yes"), Some(TurnEnd::TreeAtRest)));
    assert_eq!(result.tree.children().len(), 1);
    assert!(result.tree.children()[0].runs[0].is_ok());
    harness.close().await;
}

#[test]
fn no_store_no_server_and_no_command_line_is_built_for_it() {
    let lock = include_str!("../Cargo.lock");
    for package in [
        "rusqlite",
        "offspring-sessions",
        "offspring-delegation",
        "offspring-agents",
        "clap",
        "axum",
        "hyper",
    ] {
        assert!(!lock.contains(&format!("name = \"{package}\"\n")), "{package}");
    }
}
