//! The scripted model as a program, as somebody uses it by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use offspring_tests::Running;
use serde_json::json;

fn post(address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn prompt(text: &str) -> String {
    json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": text }] }).to_string()
}

#[test]
fn it_says_where_it_is_and_answers_as_the_prompt_says() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-model"));
    command.args(["--port", "0"]).stdin(Stdio::null());
    let mut model = Running::start(command);
    let url = model.line().unwrap();
    let address = url.strip_prefix("http://").unwrap();

    let held_back = post(address, "/v1/messages", &prompt("GATE g\nSAY so"));
    let refused = answer(post(address, "/v1/messages", &prompt("HTTP 429 RETRY_AFTER 3 slow down")));
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("retry-after: 3\r\n"), "{refused}");
    assert!(refused.contains("slow down"), "{refused}");
    assert!(answer(post(address, "/gate/g", "")).starts_with("HTTP/1.1 204 "));
    let said = answer(held_back);
    assert!(
        said.starts_with("HTTP/1.1 200 ") && said.contains("content-type: text/event-stream\r\n"),
        "{said}"
    );
    assert!(said.contains("\"text\":\"so\"") && said.contains("event: message_stop\n"), "{said}");
    assert!(answer(post(address, "/v1/nothing", "{}")).starts_with("HTTP/1.1 404 "));
    let dropped = answer(post(address, "/v1/messages", &prompt("DROP")));
    assert!(
        dropped.contains("an answer that breaks") && !dropped.contains("content_block_stop"),
        "{dropped}"
    );

    // Its port is taken now, and a wrong flag is told.
    let port = address.rsplit(':').next().unwrap();
    let taken = Command::new(env!("CARGO_BIN_EXE_fake-model")).args(["--port", port]).output().unwrap();
    assert_eq!(taken.status.code(), Some(1));
    let wrong = Command::new(env!("CARGO_BIN_EXE_fake-model")).arg("--prot").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
