//! The wire over WebSocket: the rules of a byte stream, and the one place where it differs.

use std::time::Duration;

use crate::peer::{finished, idle, message, receipt, running, started};
use futures_util::{SinkExt, StreamExt};
use offspring_client::{
    ClientError, GoneHow, Harness, HarnessClient, Limits, SessionId, SubscriptionEnd, TurnEnd,
    dsh::InitializeParams,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it did not come")
}

/// A runtime behind a socket.
struct Server {
    socket: WebSocketStream<TcpStream>,
    authorization: Option<String>,
}

impl Server {
    async fn connected(limits: Limits, token: Option<&str>) -> (Self, HarnessClient) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let accepting = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut authorization = None;
            #[allow(clippy::result_large_err, reason = "the library's own signature")]
            let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
                let header = request.headers().get("authorization");
                authorization = header.map(|value| value.to_str().unwrap().to_owned());
                Ok(response)
            };
            let socket = accept_hdr_async(stream, look).await.unwrap();
            Self { socket, authorization }
        });
        let client =
            soon(HarnessClient::builder().limits(limits).connect_websocket(&url, token)).await.unwrap();
        (soon(accepting).await.unwrap(), client)
    }

    async fn harness(limits: Limits) -> (Self, Harness) {
        let (mut server, client) = Self::connected(limits, None).await;
        let params = InitializeParams {
            cwd: "/".into(),
            provider: "p".into(),
            model: "m".into(),
            reasoning_effort: None,
            max_tokens: None,
        };
        let starting = tokio::spawn(async move { Harness::over(client, &params).await.unwrap() });
        server.answer("initialize", json!({})).await;
        (server, soon(starting).await.unwrap())
    }

    async fn heard(&mut self) -> Message {
        soon(self.socket.next()).await.unwrap().unwrap()
    }

    /// The next request, which has to be this one.
    async fn request(&mut self, method: &str) -> Value {
        let Message::Text(text) = self.heard().await else { panic!("no text") };
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(message["method"], method);
        message["id"].clone()
    }

    async fn answer(&mut self, method: &str, result: Value) {
        let id = self.request(method).await;
        self.say(&[json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()]).await;
    }

    async fn begin(&mut self) {
        let id = self.request("session/prompt").await;
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"messageId": "m"}});
        self.say(&[receipt("r", "m"), running("r"), answer.to_string()]).await;
    }

    /// All of it in one write.
    async fn say(&mut self, lines: &[String]) {
        for line in lines {
            self.socket.feed(Message::text(line.as_str())).await.unwrap();
        }
        self.socket.flush().await.unwrap();
    }

    async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }
}

#[tokio::test]
async fn t13_a_turn_goes_over_a_socket_as_over_a_pipe() {
    let (mut server, harness) = Server::harness(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    server.begin().await;
    let wait = server.request("session/wait").await;
    server.say(&[started("r", "c"), message("c", "the child's"), message("r", "mine")]).await;
    server.send(Message::Ping(vec![1].into())).await;
    server.say(&[finished("r", "c"), idle("r")]).await;
    server.say(&[json!({"jsonrpc": "2.0", "id": wait, "result": {}}).to_string()]).await;
    let result = soon(turn).await.unwrap().unwrap();
    assert_eq!((result.final_response.as_deref(), result.end), (Some("mine"), Some(TurnEnd::TreeAtRest)));
    assert_eq!(result.notifications.len(), 7);
}

#[tokio::test]
async fn w3_junk_is_counted_and_a_message_of_several_lines_is_one_line_of_a_recording() {
    let (mut server, client) = Server::connected(Limits::default(), None).await;
    server
        .say(&["hello".into(), "[1]".into(), String::new(), "{\"method\":\"a\"}\n{\"method\":\"b\"}".into()])
        .await;
    server.send(Message::Binary(vec![0xff, 0xfe].into())).await;
    server.send(Message::Binary(b"{\"method\":\"binary\"}".to_vec().into())).await;
    server.say(&["{\n  \"method\": \"pretty\",\r\n  \"params\": {\"sessionId\": \"s\"}\n}\n".into()]).await;
    let binary = soon(client.next_unmatched()).await.unwrap().unwrap();
    assert_eq!(binary.method(), "binary");
    let pretty = soon(client.next_unmatched()).await.unwrap().unwrap();
    assert_eq!((pretty.method(), pretty.session_id()), ("pretty", Some("s")));
    assert!(!pretty.frame().contains('\n') && !serde_json::to_string(&pretty).unwrap().contains('\n'));
    let junk = client.diagnostics().junk;
    assert_eq!((junk.counts().not_json, junk.counts().not_rpc, junk.counts().not_utf8), (2, 1, 1));
    assert!(client.gone().is_none());
}

#[tokio::test]
async fn w2_a_message_over_the_limit_fails_alone_and_one_far_over_it_ends_the_connection() {
    let limits = Limits { frame_bytes: 1_000, ..Limits::default() };
    let (mut server, harness) = Server::harness(limits).await;
    let client = harness.client().clone();
    let of_size = |bytes: usize| {
        let empty = message("r", "").len();
        message("r", &"x".repeat(bytes - empty))
    };
    let mut subscription = client.subscribe(&id("r"));
    server.say(&[of_size(1_000), of_size(1_001), of_size(3_999), message("r", "after")]).await;
    let first = soon(subscription.next()).await.unwrap().unwrap();
    assert_eq!(first.frame().len(), 1_000);
    let after = soon(subscription.next()).await.unwrap().unwrap();
    assert!(after.frame().contains("after"));
    assert_eq!(client.diagnostics().junk.counts().too_large, 2);
    // Every message is a line, those that were skipped as well.
    assert_eq!(after.number() - first.number(), 3);

    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    server.begin().await;
    server.say(&[of_size(4_100)]).await;
    let error = soon(turn).await.unwrap().unwrap_err();
    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
    assert!(matches!(&gone.how, GoneHow::ReadFailed(reason) if !reason.is_empty()), "{error}");
    loop {
        match soon(subscription.next()).await {
            Some(Ok(_)) => {}
            Some(Err(SubscriptionEnd::RuntimeGone { interrupted, .. })) => {
                break assert_eq!(interrupted, [id("r")]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn w7_a_close_asks_for_the_shutdown_and_then_closes_the_socket() {
    let (mut server, harness) = Server::harness(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run("go").await });
    server.begin().await;
    let closing = tokio::spawn({
        let harness = harness.clone();
        async move { harness.close().await }
    });
    server.answer("shutdown", json!({})).await;
    assert!(matches!(server.heard().await, Message::Close(_)));
    while soon(server.socket.next()).await.is_some_and(|one| one.is_ok()) {}
    assert!(soon(closing).await.unwrap().exit.is_none());
    let error = soon(turn).await.unwrap().unwrap_err();
    assert!(
        matches!(&error.reason, ClientError::RuntimeGone(gone) if gone.how == GoneHow::Closed),
        "{error}"
    );
    soon(harness.close()).await;
}

#[tokio::test]
async fn w8_a_server_that_hangs_up_politely_or_not_is_a_typed_end() {
    for polite in [true, false] {
        let (mut server, harness) = Server::harness(Limits::default()).await;
        let session = harness.session(id("r"));
        let turn = tokio::spawn(async move { session.run("go").await });
        server.begin().await;
        if polite {
            server.send(Message::Close(None)).await;
        } else {
            drop(server);
        }
        let error = soon(turn).await.unwrap().unwrap_err();
        let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
        assert_eq!(gone.how == GoneHow::EndOfOutput, polite, "{error}");
        let began = std::time::Instant::now();
        soon(harness.close()).await;
        assert!(began.elapsed() < Duration::from_secs(3));
    }
}

#[tokio::test]
async fn w10_the_token_goes_as_a_bearer_and_into_no_error() {
    let (server, _client) = Server::connected(Limits::default(), Some("s3cret")).await;
    assert_eq!(server.authorization.as_deref(), Some("Bearer s3cret"));
    let (server, _client) = Server::connected(Limits::default(), None).await;
    assert_eq!(server.authorization, None);
    // Nobody listens there, and a token that no header can hold.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    for token in ["s3cret", "s3cret\n"] {
        let connecting = HarnessClient::builder().connect_websocket(&url, Some(token));
        let error = soon(connecting).await.unwrap_err();
        assert!(
            matches!(error, ClientError::Connect { .. }) && !error.to_string().contains("s3cret"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn w8_a_server_that_never_shakes_hands_is_an_error_at_the_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let limits = Limits { initialize_within: Duration::from_millis(200), ..Limits::default() };
    let error =
        soon(HarnessClient::builder().limits(limits).connect_websocket(&url, None)).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn t9_a_start_in_the_same_write_as_the_last_finish_keeps_the_tree_open() {
    let (mut server, harness) = Server::harness(Limits::default()).await;
    let session = harness.session(id("r"));
    let turn = tokio::spawn(async move { session.run_tree("go").await });
    server.begin().await;
    let wait = server.request("session/wait").await;
    let unknown =
        json!({"code": -32603, "message": "unknown DeepSeek Harness SDK runtime method: session/wait"});
    server
        .say(&[
            json!({"jsonrpc": "2.0", "id": wait, "error": unknown}).to_string(),
            started("r", "c"),
            idle("r"),
        ])
        .await;
    // Its answer is behind the lines above.
    let asking = tokio::spawn({
        let client = harness.client().clone();
        async move { client.request("ask", &(), Duration::from_secs(10)).await }
    });
    server.answer("ask", json!(1)).await;
    soon(asking).await.unwrap().unwrap();
    let asking = tokio::spawn({
        let client = harness.client().clone();
        async move { client.request("ask", &(), Duration::from_secs(10)).await }
    });
    let ask = server.request("ask").await;
    server
        .say(&[
            finished("r", "c"),
            started("r", "d"),
            json!({"jsonrpc": "2.0", "id": ask, "result": 1}).to_string(),
        ])
        .await;
    soon(asking).await.unwrap().unwrap();
    assert!(!turn.is_finished());
    server.say(&[finished("r", "d")]).await;
    assert_eq!(soon(turn).await.unwrap().unwrap().tree.children().len(), 2);
}
