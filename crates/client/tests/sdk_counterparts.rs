//! What the Python SDK's own tests of its client show, shown of ours: through a real child process. `SDK-TESTS.md`
//! beside this file says which test is the counterpart of which.

use std::time::{Duration, Instant};

use crate::runtime::{gone, harness, params, quick, scripted, shell, soon};
use offspring_client::{
    ChildRun, ClientError, ExitKind, Harness, HarnessClient, Limits, Notification, RuntimeCommand, SessionId,
    Subscription, SubscriptionEnd, dsh::InitializeParams,
};
use serde_json::{Value, json};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn params_of(notification: &Notification) -> Value {
    serde_json::from_str(notification.params().unwrap().get()).unwrap()
}

fn methods<'a>(notifications: impl IntoIterator<Item = &'a Notification>) -> Vec<&'a str> {
    notifications.into_iter().map(Notification::method).collect()
}

async fn next(subscription: &mut Subscription) -> Notification {
    soon(subscription.next()).await.unwrap().unwrap()
}

/// Everything the runtime wrote before this has been routed (T9).
async fn round_trip(harness: &Harness) {
    soon(harness.client().working_directory(&id("any"))).await.unwrap();
}

#[tokio::test]
async fn a_turn_gives_the_answer_the_last_reason_and_every_event_whole() {
    let (_file, harness) = harness(
        r#"prompt main
           event main tool/result {"error":{"code":"AUTO_REVIEW_DENIED","reason":" a raw\nreason "}}
           event main tool/ptc-dispatch {"isError":true,"error":{"code":"AUTO_REVIEW_DENIED","reason":" another "}}
           message main "hello from runtime"
           turn-end main
           turn-end main max-tokens
           status main idle"#,
        Limits::default(),
    )
    .await;
    let result = soon(harness.session(id("main")).run("say hello")).await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("hello from runtime"));
    assert_eq!(result.finish_reason.as_deref(), Some("max-tokens"));
    assert_eq!(result.events.last().and_then(Notification::event_type), Some("turn/end"));
    let reasons: Vec<Value> = result
        .events
        .iter()
        .filter(|event| matches!(event.event_type(), Some("tool/result" | "tool/ptc-dispatch")))
        .map(|event| params_of(event)["event"]["data"]["error"]["reason"].clone())
        .collect();
    assert_eq!(reasons, [json!(" a raw\nreason "), json!(" another ")]);
    harness.close().await;
}

#[tokio::test]
async fn w10_the_runtime_gets_what_it_is_told_and_nothing_of_our_environment() {
    let (_file, command) = scripted(
        r#"take initialize as i
           event main seen {"key":"${env:DEEPSEEK_API_KEY}","home":"${env:DSH_HOME}","manifest":"${env:CARGO_MANIFEST_DIR}"}
           reply i {}"#,
    );
    let command = command.env("DEEPSEEK_API_KEY", "env-key").home("/explicit/home");
    let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let builder = HarnessClient::builder().on_frame({
        let sent = sent.clone();
        move |direction, frame| {
            if direction == offspring_client::Direction::Sent {
                sent.lock().unwrap().push(serde_json::from_slice::<Value>(frame).unwrap());
            }
        }
    });
    let told = InitializeParams {
        cwd: "/w".into(),
        provider: "deepseek-official".into(),
        model: "m".into(),
        reasoning_effort: Some("max".into()),
        max_tokens: Some(4096),
    };
    let harness = soon(Harness::start(builder, &command, &told)).await.unwrap();
    let seen = soon(harness.client().next_unmatched()).await.unwrap().unwrap();
    let data = params_of(&seen)["event"]["data"].clone();
    assert_eq!((&data["key"], &data["home"]), (&json!("env-key"), &json!("/explicit/home")));
    // The test itself has this variable; the runtime has not.
    assert_eq!(data["manifest"], json!(""), "{data}");
    let initialize = json!({"cwd": "/w", "provider": "deepseek-official", "model": "m", "reasoningEffort": "max", "maxTokens": 4096});
    assert_eq!(sent.lock().unwrap()[0]["params"], initialize);
    harness.close().await;
}

#[tokio::test]
async fn whoever_looks_on_has_seen_the_whole_turn_when_it_returns() {
    let (_file, harness) =
        harness("prompt main\nstarted main child\nstatus main idle\n", Limits::default()).await;
    let (sender, seen) = std::sync::mpsc::channel();
    let turn = harness.session(id("main")).turn("spawn a helper");
    let result =
        soon(turn.on_notification(move |one| sender.send(one.clone()).unwrap()).run()).await.unwrap();
    let seen: Vec<Notification> = seen.try_iter().collect();
    assert_eq!(methods(&seen), methods(&result.notifications));
    assert_eq!(&methods(&seen)[methods(&seen).len() - 2..], ["subagent.started", "session.status"]);
    assert_eq!(result.finish_reason, None);
    harness.close().await;
}

#[tokio::test]
async fn a_turn_end_without_a_reason_says_nothing_and_ends_nothing() {
    // The Python SDK gives up the turn; here the runtime's word is kept as it is, and the turn goes on.
    let (_file, harness) = harness(
        "prompt main\nevent main turn/end {\"reason\":{}}\nevent main turn/end {\"reason\":7}\nstatus main idle\n",
        Limits::default(),
    )
    .await;
    let result = soon(harness.session(id("main")).run("x")).await.unwrap();
    assert_eq!((result.finish_reason, result.events.last().unwrap().event_type()), (None, Some("turn/end")));
    harness.close().await;
}

#[tokio::test]
async fn a_relative_directory_of_the_process_is_resolved_here() {
    let below = tempfile::tempdir_in(".").unwrap();
    let name = below.path().file_name().unwrap().to_owned();
    let wanted = std::fs::canonicalize(below.path()).unwrap();
    let command = shell(
        r#"read -r line; printf '{"jsonrpc":"2.0","method":"where","params":{"cwd":"%s"}}\n' "$(pwd -P)"; answer "$line" '{}'; read -r line; answer "$line" '{}'"#,
    )
    .cwd(name);
    let harness = soon(Harness::start(HarnessClient::builder(), &command, &params())).await.unwrap();
    let seen = soon(harness.client().next_unmatched()).await.unwrap().unwrap();
    assert_eq!(params_of(&seen)["cwd"], json!(wanted.display().to_string()));
    harness.close().await;
}

#[tokio::test]
async fn t6_t12_two_levels_are_in_the_turn_and_only_the_root_is_its_answer() {
    let (_file, harness) = harness(
        r#"prompt main
           started main child
           event child assistant/message {"content":[{"type":"text","text":"child response"}]}
           started child grandchild
           message grandchild "grandchild response"
           finished child grandchild
           finished main child
           message main "root response"
           message child "a child speaks last"
           status main idle"#,
        Limits::default(),
    )
    .await;
    let result = soon(harness.session(id("main")).run("delegate")).await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("root response"));
    assert!(result.events.iter().all(|event| event.session_id() == Some("main")));
    let tail = methods(&result.notifications);
    let tree = [
        "subagent.started",
        "session.event",
        "subagent.started",
        "session.event",
        "subagent.finished",
        "subagent.finished",
        "session.event",
        "session.event",
        "session.status",
    ];
    assert_eq!(&tail[tail.len() - tree.len()..], tree);
    let children: Vec<(&str, &str)> =
        result.tree.children().iter().map(|child| (child.parent.as_str(), child.session.as_str())).collect();
    assert_eq!(children, [("main", "child"), ("child", "grandchild")]);
    assert!(result.tree.children().iter().all(|child| matches!(child.runs[..], [ChildRun::Finished(_)])));
    // T10: nothing of the tree is left on the global queue.
    assert!(harness.client().try_next_unmatched().is_none());
    assert_eq!(harness.client().diagnostics().counts.unmatched_dropped, 0);
    harness.close().await;
}

#[tokio::test]
async fn t6_what_another_session_says_is_in_no_turn_of_this_one() {
    let (_file, harness) = harness(
        r#"take session/prompt main as p
           message other "wrong session"
           status other idle
           receipt main p
           status main running
           reply p {"messageId":"${p.message}"}
           message other "wrong again"
           message main "right session"
           status main idle"#,
        Limits::default(),
    )
    .await;
    let result = soon(harness.session(id("main")).run("stay")).await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("right session"));
    assert!(result.notifications.iter().all(|one| one.session_id() == Some("main")));
    let mut others = 0;
    while let Some(other) = harness.client().try_next_unmatched() {
        assert_eq!(other.unwrap().session_id(), Some("other"));
        others += 1;
    }
    assert_eq!(others, 3);
    harness.close().await;
}

#[tokio::test]
async fn t13_a_second_turn_waits_for_its_own_idle_and_replays_nothing_of_the_first() {
    let (_file, harness) = harness(
        r#"prompt main
           message main "first"
           status main idle
           prompt main
           after 60ms
           message main "second"
           status main idle"#,
        Limits::default(),
    )
    .await;
    let session = harness.session(id("main"));
    let first = soon(session.run("first turn")).await.unwrap();
    let second = soon(session.run("second turn")).await.unwrap();
    assert_eq!(first.final_response.as_deref(), Some("first"));
    assert_eq!(second.final_response.as_deref(), Some("second"));
    assert_eq!(first.notifications.len(), second.notifications.len());
    assert!(first.notifications.last().unwrap().number() < second.notifications[0].number());
    harness.close().await;
}

#[tokio::test]
async fn t10_an_unknown_notification_is_delivered_raw_beside_the_answer() {
    let (_file, harness) = harness(
        r#"take session/prompt main as p
           notify llm/request {"requestId":"req-1","sessionId":"main","n":1.50}
           reply p {"messageId":"message-1"}"#,
        Limits::default(),
    )
    .await;
    let message = soon(harness.client().prompt(&id("main"), Vec::new())).await.unwrap();
    assert_eq!(message.as_str(), "message-1");
    // T9: it came before the answer, so it is there.
    let raw = harness.client().try_next_unmatched().unwrap().unwrap();
    assert_eq!((raw.method(), raw.session_id()), ("llm/request", Some("main")));
    assert_eq!(raw.params().unwrap().get(), r#"{"requestId":"req-1","sessionId":"main","n":1.50}"#);
    harness.close().await;
}

#[tokio::test]
async fn t10_what_matches_no_subscription_is_on_the_global_queue_and_nowhere_else() {
    let (_file, harness) =
        harness("wait-for notification go\nmessage other \"x\"\nmessage main \"y\"\n", Limits::default())
            .await;
    let mut main = harness.client().subscribe(&id("main"));
    harness.client().notify("go", &()).await.unwrap();
    assert_eq!(next(&mut main).await.session_id(), Some("main"));
    assert_eq!(harness.client().try_next_unmatched().unwrap().unwrap().session_id(), Some("other"));
    assert!(harness.client().try_next_unmatched().is_none() && main.try_next().is_none());
    harness.close().await;
}

#[tokio::test]
async fn t8_ancestry_outlives_a_subscription_and_a_turn() {
    let (_file, harness) = harness(
        r#"wait-for notification one
           event main subagent/catalog {"childId":"unreadable","mode":"unknown"}
           started main child
           wait-for notification two
           started child grandchild
           message grandchild "late"
           prompt main
           message grandchild "later still"
           status main idle"#,
        Limits::default(),
    )
    .await;
    let client = harness.client();
    let mut first = client.subscribe(&id("main"));
    client.notify("one", &()).await.unwrap();
    assert_eq!(next(&mut first).await.event_type(), Some("subagent/catalog"));
    assert_eq!(next(&mut first).await.child_session_id(), Some("child"));
    drop(first);
    let mut second = client.subscribe(&id("main"));
    client.notify("two", &()).await.unwrap();
    assert_eq!(next(&mut second).await.child_session_id(), Some("grandchild"));
    assert_eq!(next(&mut second).await.session_id(), Some("grandchild"));
    drop(second);
    let result = soon(harness.session(id("main")).run("go")).await.unwrap();
    assert!(result.notifications.iter().any(|one| one.session_id() == Some("grandchild")));
    assert_eq!(result.final_response, None);
    assert_eq!(client.path("grandchild"), [id("main"), id("child"), id("grandchild")]);
    assert!(client.try_next_unmatched().is_none());
    harness.close().await;
}

#[tokio::test]
async fn t3_t4_a_reused_child_belongs_to_its_new_parent_whatever_the_old_run_says_later() {
    let (_file, harness) = harness(
        r#"wait-for notification go
           started old reused
           started new reused
           finished old reused
           message reused "whose?"
           finished new reused
           message reused "still""#,
        Limits::default(),
    )
    .await;
    let client = harness.client();
    let (mut old, mut new) = (client.subscribe(&id("old")), client.subscribe(&id("new")));
    client.notify("go", &()).await.unwrap();
    round_trip(&harness).await;
    let drain = |subscription: &mut Subscription| {
        let mut seen = Vec::new();
        while let Some(one) = subscription.try_next() {
            seen.push(one.unwrap().method().to_owned());
        }
        seen
    };
    // The round trip waits for the script's answers, not for its lines: the last line of `new` is waited for.
    let mut of_new = Vec::new();
    while of_new.len() < 4 {
        of_new.push(next(&mut new).await.method().to_owned());
    }
    assert_eq!(of_new, ["subagent.started", "session.event", "subagent.finished", "session.event"]);
    assert_eq!(drain(&mut old), ["subagent.started", "subagent.finished"]);
    assert!(client.try_next_unmatched().is_none());
    harness.close().await;
}

#[tokio::test]
async fn t11_a_filter_that_panics_ends_its_own_subscription_only() {
    let (_file, harness) = harness(
        r#"wait-for notification emit-first
           notify tick {"source":1}
           prompt main
           status main idle
           wait-for notification emit-second
           notify tick {"source":2}"#,
        Limits::default(),
    )
    .await;
    let client = harness.client();
    let mut broken = client.subscribe_filtered(|_| panic!("a bad filter"));
    let mut healthy = client.subscribe_filtered(|one| one.method() == "tick");
    client.notify("emit-first", &()).await.unwrap();
    assert!(matches!(soon(broken.next()).await, Some(Err(SubscriptionEnd::FilterFailed))));
    assert!(soon(broken.next()).await.is_none());
    assert_eq!(params_of(&next(&mut healthy).await)["source"], json!(1));
    assert!(client.try_next_unmatched().is_none());
    soon(harness.session(id("main")).run("the reader still works")).await.unwrap();
    client.notify("emit-second", &()).await.unwrap();
    assert_eq!(params_of(&next(&mut healthy).await)["source"], json!(2));
    harness.close().await;
}

#[tokio::test]
async fn an_answer_to_a_prompt_that_is_none_is_an_error() {
    for answer in [r#"{"accepted":false}"#, "{\"messageId\":\"\"}", "null", "[]", "{\"messageId\":5}"] {
        let script = format!("take session/prompt main as p\nreply p {answer}\n");
        let (_file, harness) = harness(&script, Limits::default()).await;
        let error = soon(harness.session(id("main")).run("x")).await.unwrap_err();
        assert!(
            matches!(&error.reason, ClientError::BadAnswer { method, .. } if method == "session/prompt"),
            "{answer}: {error}"
        );
        assert_eq!(harness.client().diagnostics().counts.subscriptions, 0);
        harness.close().await;
    }
}

#[tokio::test]
async fn w6_a_request_of_the_runtime_reaches_its_handler_and_the_answer_reaches_the_runtime() {
    let (_file, command) = scripted(
        r#"take initialize as i
           reply i {}
           ask llm.request {"requestId":"req-1"} as a
           wait-for answer a result {"content":[1]}
           notify response/seen {"ok":true}"#,
    );
    let builder = HarnessClient::builder().on_request(|request| async move {
        assert_eq!(request.params().unwrap().get(), r#"{"requestId":"req-1"}"#);
        request.respond(&json!({"content": [1]})).await.unwrap();
    });
    let harness = soon(Harness::start(builder, &command, &params())).await.unwrap();
    let seen = soon(harness.client().next_unmatched()).await.unwrap().unwrap();
    assert_eq!(seen.method(), "response/seen");
    harness.close().await;
}

#[tokio::test]
async fn w3_lines_that_are_no_message_are_set_aside() {
    let (_file, command) = scripted(
        "bytes \"node warning: experimental loader\\n\"\ntake initialize as i\nbytes \"\\xff\\xfe\\n[1]\\n\"\nreply i {\"serverInfo\":{\"name\":\"fake-dsh\"}}\n",
    );
    let harness = soon(Harness::start(HarnessClient::builder(), &command, &params())).await.unwrap();
    assert_eq!(harness.server_info().unwrap().name.as_deref(), Some("fake-dsh"));
    let junk = harness.client().diagnostics().junk;
    assert_eq!((junk.counts().total(), junk.counts().not_json, junk.counts().not_utf8), (3, 1, 1));
    harness.close().await;
}

#[tokio::test]
async fn w8_an_initialize_without_an_answer_is_an_error_with_its_method_and_the_end_of_stderr() {
    let (_file, command) =
        scripted("stderr \"bridge is still starting\"\ntake initialize as i\ngate never within 2m\n");
    let limits = Limits { initialize_within: Duration::from_millis(400), ..quick() };
    let client = HarnessClient::builder().limits(limits).start(&command).unwrap();
    let pid = client.process().unwrap().pid();
    let began = Instant::now();
    let error = soon(client.initialize(&params())).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(matches!(&error, ClientError::Timeout { method, .. } if method == "initialize"), "{error}");
    assert!(error.to_string().contains("bridge is still starting"), "{error}");
    // W7: a failed handshake reaps what it started.
    gone(pid).await;
}

#[tokio::test]
async fn w7_closing_is_bounded_where_nothing_is_answered_and_every_signal_but_one_is_ignored() {
    let (_file, harness) = harness(
        "on shutdown ignore\non stdin-end ignore\non sigterm ignore\nwait-for notification never\n",
        quick(),
    )
    .await;
    let pid = harness.client().process().unwrap().pid();
    let began = Instant::now();
    let closed = soon(harness.close()).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(closed.exit.unwrap().status, ExitKind::Signal(9));
    gone(pid).await;
}

#[tokio::test]
async fn w7_a_runtime_may_finish_its_work_after_its_answer_to_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("quiesced");
    let command = shell(
        r#"while read -r line; do answer "$line" '{}'; case $line in *shutdown*) break;; esac; done
           sleep 0.1; printf quiesced > "$MARKER""#,
    )
    .env("MARKER", &marker);
    let harness = soon(Harness::start(HarnessClient::builder(), &command, &params())).await.unwrap();
    let closed = soon(harness.close()).await;
    assert_eq!(closed.exit.unwrap().status, ExitKind::Code(0));
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "quiesced");
}

#[tokio::test]
async fn w7_a_refused_initialize_reaps_the_runtime_and_says_what_it_said() {
    let (_file, command) = scripted(
        "take initialize as i\nstderr \"initialize diagnostic\"\nerror i -32000 \"bad initialize\" {\"more\":1}\n",
    );
    let client = HarnessClient::start(&command).unwrap();
    let pid = client.process().unwrap().pid();
    let error = soon(client.initialize(&params())).await.unwrap_err();
    let ClientError::Refused { error: said, .. } = &error else { panic!("{error}") };
    assert_eq!((said.code, said.message.as_str()), (-32000, "bad initialize"));
    assert_eq!(said.data.as_ref().unwrap().get(), "{\"more\":1}");
    assert!(client.diagnostics().runtime.stderr_tail.text().contains("initialize diagnostic"));
    gone(pid).await;
}

#[tokio::test]
async fn w7_closing_twice_at_once_and_again_is_harmless_and_gives_the_same() {
    let (_file, harness) = harness("", Limits::default()).await;
    let (first, second) = soon(async { tokio::join!(harness.close(), harness.close()) }).await;
    let third = soon(harness.close()).await;
    assert_eq!(first.exit.as_ref().unwrap().status, ExitKind::Code(0));
    assert!(first.exit == second.exit && second.exit == third.exit);
    // Before anything was said.
    let (_file, command) = scripted("");
    let client = HarnessClient::start(&command).unwrap();
    let pid = client.process().unwrap().pid();
    soon(client.close()).await;
    soon(client.close()).await;
    gone(pid).await;
}

#[tokio::test]
async fn w4_a_runtime_that_crashes_is_an_error_with_its_exit_and_the_end_of_its_stderr() {
    let (_file, command) = scripted("stderr \"fatal bridge exploded\"\nexit 42\n");
    let client = HarnessClient::start(&command).unwrap();
    let error = soon(client.initialize(&params())).await.unwrap_err();
    let ClientError::RuntimeGone(gone) = &error else { panic!("{error}") };
    assert_eq!(gone.exit, Some(ExitKind::Code(42)));
    let text = error.to_string();
    assert!(text.contains("fatal bridge exploded") && text.contains("code 42"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_are_whole_lines() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen.jsonl");
    let command = shell(
        r#"while read -r line; do printf '%s\n' "$line" >> "$SEEN"; case $line in *'"id"'*) answer "$line" '{}';; esac
           case $line in *'"shutdown"'*) exit 0;; esac; done"#,
    )
    .env("SEEN", &seen);
    let harness = soon(Harness::start(HarnessClient::builder(), &command, &params())).await.unwrap();
    let mut writing = Vec::new();
    for index in 0..50_u64 {
        let client = harness.client().clone();
        writing.push(tokio::spawn(async move {
            // Some of them larger than a pipe takes at once.
            let filler = "x".repeat(if index % 10 == 0 { 8_000 } else { 10 });
            let notice = json!({"index": index, "filler": filler});
            client.notify(&format!("notice-{index}"), &notice).await.unwrap();
            client.request("ask", &notice, Duration::from_secs(20)).await.unwrap();
        }));
    }
    for one in writing {
        soon(one).await.unwrap();
    }
    soon(harness.close()).await;
    let text = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut indices: Vec<u64> = lines.iter().filter_map(|line| line["params"]["index"].as_u64()).collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..50).flat_map(|index| [index, index]).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_profile_the_patches_and_the_home_are_what_the_runtime_is_started_with() {
    let command = RuntimeCommand::new("sh")
        .args(["-c", r#"printf '{"method":"argv","params":{"argv":"%s","home":"%s"}}\n' "$*" "$DSH_HOME"; read -r line"#, "sh"])
        .profile("sdk")
        .patch("one.yml")
        .patch("two.yml")
        .env("DSH_HOME", "/ambient")
        .home("/explicit");
    let client = HarnessClient::start(&command).unwrap();
    let argv = soon(client.next_unmatched()).await.unwrap().unwrap();
    let wanted = json!({"argv": "--profile sdk --patch one.yml --patch two.yml", "home": "/explicit"});
    assert_eq!(params_of(&argv), wanted);
    soon(client.close()).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_before_any_process() {
    let error = HarnessClient::start(&RuntimeCommand::new("no-such-runtime-anywhere")).unwrap_err();
    assert!(matches!(error, ClientError::Program(_)), "{error}");
    assert!(error.to_string().contains("no-such-runtime-anywhere"), "{error}");
}
