//! A runtime in this process that says what a test tells it to, line by line.
#![allow(dead_code, reason = "not every test file uses all of it")]

use offspring_client::{Harness, HarnessClient, Limits, dsh::InitializeParams};
use offspring_protocol::rpc::{Id, OwnedMessage};
use offspring_transport::MessageReader;
use serde_json::json;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};

pub(crate) struct Peer {
    reader: MessageReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
    /// A harness that is initialised, and its runtime.
    pub(crate) async fn new(limits: Limits) -> (Self, Harness) {
        let (mut peer, client) = Self::connected(HarnessClient::builder().limits(limits));
        let params = InitializeParams {
            cwd: "/".into(),
            provider: "p".into(),
            model: "m".into(),
            reasoning_effort: None,
            max_tokens: None,
        };
        let starting = tokio::spawn(async move { Harness::over(client, &params).await.unwrap() });
        let initialize = peer.request("initialize").await;
        peer.answer(&initialize, r#"{"serverInfo":{"name":"peer","version":"1"}}"#).await;
        (peer, starting.await.unwrap())
    }

    /// A client that has said nothing yet, and its runtime.
    pub(crate) fn connected(builder: offspring_client::ClientBuilder) -> (Self, HarnessClient) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (output, input) = split(ours);
        let client = builder.connect(output, input);
        let (reader, writer) = split(theirs);
        (Self { reader: MessageReader::new(reader), writer }, client)
    }

    /// The next request, which has to be this one.
    pub(crate) async fn request(&mut self, wanted: &str) -> Id {
        self.asked(wanted).await.0
    }

    /// The next request, which has to be this one, and its params.
    pub(crate) async fn asked(&mut self, wanted: &str) -> (Id, String) {
        match self.reader.next().await.unwrap().expect("the client closed").message {
            OwnedMessage::Request { id, method, params } if method == wanted => {
                (id, params.map(|params| params.get().to_owned()).unwrap_or_default())
            }
            other => panic!("{other:?} instead of {wanted}"),
        }
    }

    /// The next message, whatever it is.
    pub(crate) async fn heard(&mut self) -> OwnedMessage {
        self.reader.next().await.unwrap().expect("the client closed").message
    }

    pub(crate) async fn answer(&mut self, id: &Id, result: &str) {
        self.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes()).await;
    }

    pub(crate) async fn refuse(&mut self, id: &Id, message: &str) {
        let error = json!({"code": -32603, "message": message});
        self.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n").as_bytes()).await;
    }

    /// All of it in one write.
    pub(crate) async fn say(&mut self, lines: &[String]) {
        let all: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        self.raw(all.as_bytes()).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.unwrap();
    }

    /// Takes a prompt as the real runtime does: receipt, running, and then the answer.
    pub(crate) async fn begin(&mut self, session: &str, message: &str) {
        let prompt = self.request("session/prompt").await;
        self.say(&[receipt(session, message), running(session)]).await;
        self.answer(&prompt, &json!({ "messageId": message }).to_string()).await;
    }

    /// Everything said so far has been routed when this returns (T9).
    pub(crate) async fn round_trip(&mut self, harness: &Harness) {
        let client = harness.client().clone();
        let asking = tokio::spawn(async move {
            client.request("ask", &(), std::time::Duration::from_secs(10)).await.unwrap();
        });
        let ask = self.request("ask").await;
        self.answer(&ask, "1").await;
        asking.await.unwrap();
    }
}

pub(crate) fn event(session: &str, kind: &str, data: &serde_json::Value) -> String {
    json!({"jsonrpc": "2.0", "method": "session.event", "params": {"sessionId": session, "event": {"type": kind, "data": data}}})
        .to_string()
}

pub(crate) fn receipt(session: &str, message: &str) -> String {
    event(session, "agent/inbox/spliced", &json!({"inserted": [{"id": message, "role": "user"}]}))
}

pub(crate) fn message(session: &str, text: &str) -> String {
    event(session, "assistant/message", &json!({"message": {"content": [{"type": "text", "text": text}]}}))
}

pub(crate) fn turn_end(session: &str, kind: &str) -> String {
    event(session, "turn/end", &json!({"reason": {"kind": kind}}))
}

pub(crate) fn running(session: &str) -> String {
    status(session, "running")
}

pub(crate) fn idle(session: &str) -> String {
    status(session, "idle")
}

fn status(session: &str, status: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "session.status", "params": {"sessionId": session, "status": status}})
        .to_string()
}

pub(crate) fn started(parent: &str, child: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "subagent.started", "params": {"parentSessionId": parent, "childSessionId": child}})
        .to_string()
}

pub(crate) fn finished(parent: &str, child: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "subagent.finished", "params": {"provider": "spawn", "agentId": child,
        "parentSessionId": parent, "childSessionId": child, "status": "ok", "stopReason": "completed"}})
    .to_string()
}
