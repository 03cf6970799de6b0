//! The endpoint over a pair of sockets.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, DelegatorOptions, Node, Prompt, RootOptions, SlotLimits};
use offspring_protocol::NodeName;
use offspring_sessions::{Answer, ManagerOptions, MemoryStore, RunError, SessionManager};
use serde_json::Value;

use super::*;

/// Works in its slot until its run is cancelled; hands its context out.
struct Works(NodeName, mpsc::Sender<Arc<RunContext>>);

impl Works {
    fn node(name: &str, seen: &mpsc::Sender<Arc<RunContext>>) -> Node {
        Node::agent(Self(NodeName::new(name).unwrap(), seen.clone()))
    }
}

impl Agent for Works {
    fn name(&self) -> &NodeName {
        &self.0
    }
    fn takes_slot(&self) -> bool {
        true
    }
    fn run(self: Arc<Self>, _: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            let cx = Arc::new(cx);
            self.1.send(Arc::clone(&cx)).await.unwrap();
            cx.stop_requested().cancelled().await;
            Ok("stopped".into())
        })
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it takes too long")
}

async fn slots_in_use(delegator: &Delegator, wanted: usize) {
    soon(async {
        while delegator.slots().active() != wanted {
            // poll: slots in use
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn l5_a_run_whose_client_was_killed_has_its_slot_again_and_who_half_closes_gets_its_answer() {
    let manager = SessionManager::new(Arc::new(MemoryStore::new()), ManagerOptions::default());
    let slots = SlotLimits { max_active: 8, ..SlotLimits::default() };
    let options = DelegatorOptions { slots, ..DelegatorOptions::default() };
    let delegator = Delegator::new(manager.clone(), options);
    let (seen, mut runs) = mpsc::channel(4);
    delegator.add(Works::node("child", &seen));
    let root = Works::node("root", &seen);
    let run = delegator.run_root(root, "x".into(), RootOptions::default()).await.unwrap();
    let root = soon(runs.recv()).await.unwrap();
    let inner = Arc::new(Inner { delegator: delegator.clone(), grants: Mutex::default() });
    let granted = Granted {
        run: root,
        workers: Vec::new(),
        max_prompt_bytes: 100,
        withdrawn: CancellationToken::new(),
    };
    lock(&inner.grants).insert("token".to_owned(), Arc::new(granted));
    let delegate = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"token\":\"token\"}}\n\
        {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"task/start\",\"params\":{\"node\":\"child\",\"prompt\":\"x\"}}\n";

    let (mut killed, theirs) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(theirs, Arc::clone(&inner)));
    let (hello, task) = delegate.split_once('\n').unwrap();
    killed.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(&mut killed).lines();
    assert!(soon(lines.next_line()).await.unwrap().unwrap().contains("session"));
    killed.write_all(task.as_bytes()).await.unwrap();
    let first = soon(runs.recv()).await.unwrap();
    // The root waits, its child works.
    slots_in_use(&delegator, 1).await;
    drop(killed);
    slots_in_use(&delegator, 2).await;
    soon(serving).await.unwrap();

    let (mut halved, theirs) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(theirs, inner));
    halved.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let (read, mut write) = halved.split();
    let mut lines = BufReader::new(read).lines();
    assert!(soon(lines.next_line()).await.unwrap().unwrap().contains("session"));
    write.write_all(task.as_bytes()).await.unwrap();
    write.shutdown().await.unwrap();
    let second = soon(runs.recv()).await.unwrap();
    slots_in_use(&delegator, 2).await;
    for child in [first, second] {
        soon(manager.cancel(&child.session().id, offspring_sessions::CancelScope::Subtree)).await.unwrap();
    }
    assert!(soon(lines.next_line()).await.unwrap().unwrap().contains("\"cancelled\""));
    soon(serving).await.unwrap();
    soon(manager.cancel(&run.session.id, offspring_sessions::CancelScope::Subtree)).await.unwrap();
    soon(run.result).await.unwrap();
    soon(manager.close()).await.unwrap();
}

#[tokio::test]
async fn w3_what_is_no_request_is_told_what_it_is() {
    let inner = Arc::new(Inner { delegator: Delegator::detached(), grants: Mutex::default() });
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"token\":\"x\"}}";
    let batch = format!("[{hello},{hello}]");
    let cases = [
        (batch.as_str(), -32600, "batches are not supported"),
        (" []", -32600, "batches are not supported"),
        ("[1", -32700, "not JSON"),
        ("garbage", -32700, "not JSON"),
        ("{\"id\":1}", -32600, "neither a method nor a result"),
        ("{\"id\":1,\"method\":\"hello\"}", -32600, "does not say \"jsonrpc\""),
    ];
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(theirs, inner));
    let (read, mut write) = ours.into_split();
    let mut lines = BufReader::new(read).lines();
    for (line, code, part) in cases {
        write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_str(&soon(lines.next_line()).await.unwrap().unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(part) && !message.contains("line 1 column"), "{line}: {message}");
    }
    drop(write);
    drop(lines);
    soon(serving).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn w8_who_connects_and_shows_no_token_is_sent_away_whatever_else_it_says() {
    let inner = Arc::new(Inner { delegator: Delegator::detached(), grants: Mutex::default() });
    for talk in [
        "",
        "garbage\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"token\":\"x\"}}\n",
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = tokio::spawn(serve(theirs, Arc::clone(&inner)));
        let (read, mut write) = ours.into_split();
        write.write_all(talk.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(read).lines();
        let connected = Instant::now();
        while let Some(line) = lines.next_line().await.unwrap() {
            assert!(line.contains("error"), "{line}");
        }
        assert!(connected.elapsed() >= HELLO_WITHIN, "{talk:?}");
        assert!(connected.elapsed() < 2 * HELLO_WITHIN, "{talk:?}");
        serving.await.unwrap();
    }
}
