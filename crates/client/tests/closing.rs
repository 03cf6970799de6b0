//! The end of a runtime in all its forms: closed, dropped, killed at every place, deaf, mute, half dead.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::runtime::{self, gone, harness, params, quick, scripted, shell, soon};
use offspring_client::{
    ChildRun, ClientError, ExitKind, GoneHow, Harness, HarnessClient, Limits, SessionId, SubscriptionEnd,
};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Our children, zombies included.
fn children() -> Vec<String> {
    let of_thread = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let lists = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| of_thread(task.unwrap()));
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

async fn nothing_is_left(descriptors_before: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (children, descriptors) = (children(), descriptors());
        if children.is_empty() && descriptors <= descriptors_before {
            return;
        }
        assert!(Instant::now() < deadline, "{children:?}, {descriptors} of {descriptors_before} descriptors");
        tokio::time::sleep(Duration::from_millis(5)).await; // poll: the process table
    }
}

/// A thousand in one test, because what leaks a little is only seen in many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_thousand_starts_and_ends_leave_no_process_no_descriptor_and_no_memory() {
    const CYCLES: usize = 1_000;
    const AT_ONCE: usize = 8;
    let command = shell(
        r#"while read -r line; do case $line in *'"session/prompt"'*) exit 3;; esac; answer "$line" '{}'; case $line in *'"shutdown"'*) exit 0;; esac; done"#,
    );
    let cycle = |number: usize| {
        let command = command.clone();
        async move {
            let harness = Harness::start(HarnessClient::builder(), &command, &params()).await.unwrap();
            match number % 4 {
                // It is closed.
                0 | 1 => assert!(harness.close().await.exit.unwrap().is_success()),
                // It is let go.
                2 => drop(harness),
                // It dies in a turn.
                _ => {
                    let error = harness.session(id("r")).run("die").await.unwrap_err();
                    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
                    assert_eq!(gone.exit, Some(ExitKind::Code(3)));
                }
            }
        }
    };
    let run = async |cycles: std::ops::Range<usize>| {
        let mut at_once = tokio::task::JoinSet::new();
        for number in cycles {
            if at_once.len() == AT_ONCE {
                soon(at_once.join_next()).await.unwrap().unwrap();
            }
            at_once.spawn(cycle(number));
        }
        while let Some(done) = soon(at_once.join_next()).await {
            done.unwrap();
        }
    };
    let descriptors_before = descriptors() + 8;
    run(0..200).await;
    nothing_is_left(descriptors_before).await;
    let (descriptors_warm, resident) = (descriptors(), resident_kib());
    run(200..CYCLES).await;
    nothing_is_left(descriptors_warm).await;
    let grown = resident_kib().saturating_sub(resident);
    assert!(grown < 4 * 1024, "{grown} KiB more after {} cycles", CYCLES - 200);
}

#[tokio::test]
async fn w7_a_grandchild_that_holds_the_pipe_hangs_neither_a_turn_nor_the_close_and_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    // One in the group, one that left it; both hold stdout and stderr.
    let command = shell(
        r#"read -r line; answer "$line" '{}'; sleep 300 & echo $! > "$PIDS"; setsid sleep 301 & echo $! >> "$PIDS"
           read -r line; exit 5"#,
    )
    .env("PIDS", &pids);
    let harness =
        soon(Harness::start(HarnessClient::builder().limits(quick()), &command, &params())).await.unwrap();
    let began = Instant::now();
    let error = soon(harness.session(id("r")).run("x")).await.unwrap_err();
    assert!(
        matches!(&error.reason, ClientError::RuntimeGone(gone) if gone.exit == Some(ExitKind::Code(5))),
        "{error}"
    );
    soon(harness.close()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let text = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(text.lines().count(), 2);
    for pid in text.lines() {
        gone(pid.parse().unwrap()).await;
    }
}

#[tokio::test]
async fn w7_a_runtime_that_closes_its_output_and_lives_is_gone_for_its_callers_and_ended_by_the_close() {
    let (_file, harness) = harness(
        "on stdin-end ignore\non sigterm ignore\nprompt root\nstarted root child\nclose-stdout\nwait-for notification never\n",
        quick(),
    )
    .await;
    let pid = harness.client().process().unwrap().pid();
    let mut subscription = harness.session(id("root")).subscribe();
    let error = soon(harness.session(id("root")).run("x")).await.unwrap_err();
    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
    assert_eq!((gone.exit, &gone.how), (None, &GoneHow::EndOfOutput));
    assert!(error.to_string().contains("did not end with it"), "{error}");
    let mut last = None;
    while let Some(one) = soon(subscription.next()).await {
        last = Some(one);
    }
    let Some(Err(SubscriptionEnd::RuntimeGone { interrupted, .. })) = last else { panic!("{last:?}") };
    assert_eq!(interrupted, [id("child"), id("root")]);
    // Whoever calls now is told at once.
    let began = Instant::now();
    assert!(matches!(harness.client().wait(&id("root")).await, Err(ClientError::RuntimeGone(_))));
    assert!(began.elapsed() < Duration::from_secs(1));
    let closed = soon(harness.close()).await;
    assert_eq!(closed.exit.unwrap().status, ExitKind::Signal(9));
    runtime::gone(pid).await;
}

#[tokio::test]
async fn w8_a_runtime_that_never_reads_lets_every_caller_go_at_its_bound() {
    let (_file, command) = scripted(
        "on sigterm ignore\ntake initialize as i\nreply i {}\nstop-reading\nstderr \"deaf\"\nwait-for notification never\n",
    );
    let limits = Limits { request_within: Duration::from_millis(600), ..quick() };
    let harness =
        soon(Harness::start(HarnessClient::builder().limits(limits), &command, &params())).await.unwrap();
    let pid = harness.client().process().unwrap().pid();
    let began = Instant::now();
    let large = harness.session(id("r"));
    let large = tokio::spawn(async move { large.run(&"x".repeat(10 << 20)).await.unwrap_err().reason });
    while harness.client().diagnostics().counts.open_requests == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await; // poll: the prompt is being written
    }
    let others: Vec<_> = (0..4)
        .map(|number| {
            let client = harness.client().clone();
            tokio::spawn(async move {
                match number {
                    0 => client.notify("note", &()).await.unwrap_err(),
                    1 => client.working_directory(&id("r")).await.unwrap_err(),
                    _ => client.resume(&id("r")).await.unwrap_err(),
                }
            })
        })
        .collect();
    let mut methods = vec![soon(large).await.unwrap()];
    for other in others {
        methods.push(soon(other).await.unwrap());
    }
    let methods: Vec<&str> = methods
        .iter()
        .map(|error| match error {
            ClientError::Timeout { method, .. } => method.as_str(),
            other => panic!("{other}"),
        })
        .collect();
    let wanted =
        ["session/prompt", "note", "session/working-directory/get", "session/resume", "session/resume"];
    assert_eq!(methods, wanted);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let began = Instant::now();
    let closed = soon(harness.close()).await;
    assert!(closed.exit.is_some() && began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    gone(pid).await;
}

#[tokio::test]
async fn w8_a_runtime_that_closes_its_input_is_a_typed_error_while_it_lives() {
    let (_file, harness) = harness(
        "wait-for notification go\nclose-stdin\nnotify closed\nwait-for notification never\n",
        quick(),
    )
    .await;
    let client = harness.client();
    client.notify("go", &()).await.unwrap();
    assert_eq!(soon(client.next_unmatched()).await.unwrap().unwrap().method(), "closed");
    let error = soon(client.working_directory(&id("r"))).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Write { method, .. } if method == "session/working-directory/get"),
        "{error}"
    );
    assert!(matches!(soon(client.notify("x", &())).await, Err(ClientError::Write { .. })));
    assert!(soon(harness.close()).await.exit.is_some());
}

#[tokio::test]
async fn t13_a_runtime_that_dies_between_the_answer_and_the_idle_is_an_error_with_what_there_was() {
    let (_file, harness) = harness(
        "prompt root\nmessage root \"half\"\nstarted root child\nstderr \"out of memory\"\nkill\n",
        Limits::default(),
    )
    .await;
    let error = soon(harness.session(id("root")).run("x")).await.unwrap_err();
    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error}") };
    assert_eq!(gone.exit, Some(ExitKind::Signal(9)));
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(error.partial.final_response.as_deref(), Some("half"));
    assert!(matches!(error.partial.tree.children()[0].runs[..], [ChildRun::Interrupted]));
}

#[tokio::test]
async fn dropping_the_last_client_ends_the_runtime_and_tells_who_still_listens() {
    let (_file, harness) = harness(
        "on stdin-end ignore\non sigterm ignore\nstatus root running\nwait-for notification never\n",
        Limits::default(),
    )
    .await;
    let client = harness.client().clone();
    let pid = client.process().unwrap().pid();
    let mut tree = client.subscribe(&id("root"));
    let mut filtered = client.subscribe_filtered(|_| false);
    let session = harness.session(id("root"));
    drop(harness);
    drop(client);
    // A session holds its client.
    assert!(runtime::lives(pid));
    drop(session);
    gone(pid).await;
    for subscription in [&mut tree, &mut filtered] {
        loop {
            match soon(subscription.next()).await {
                Some(Ok(_)) => {}
                Some(Err(SubscriptionEnd::RuntimeGone { gone, .. })) => {
                    break assert_eq!(gone.how, GoneHow::Closed);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn w7_a_close_ends_every_open_turn_as_closed() {
    let (_file, harness) = harness("prompt root\nstarted root child\n", quick()).await;
    let mut subscription = harness.session(id("root")).subscribe();
    let session = harness.session(id("root"));
    let turn = tokio::spawn(async move { session.run_tree("x").await });
    while soon(subscription.next()).await.unwrap().unwrap().method() != "subagent.started" {}
    soon(harness.close()).await;
    let error = soon(turn).await.unwrap().unwrap_err();
    assert!(
        matches!(&error.reason, ClientError::RuntimeGone(gone) if gone.how == GoneHow::Closed),
        "{error}"
    );
    assert!(matches!(error.partial.tree.children()[0].runs[..], [ChildRun::Interrupted]));
}

#[tokio::test]
async fn w7_nobody_is_asked_to_shut_down_whose_output_has_ended() {
    // It lives on until its input ends, and says nothing any more.
    let command =
        shell(r#"read -r line; answer "$line" '{}'; exec 1>&- 2>&-; while read -r line; do :; done; exit 6"#);
    let limits = Limits { shutdown_within: Duration::from_secs(60), ..Limits::default() };
    let harness =
        soon(Harness::start(HarnessClient::builder().limits(limits), &command, &params())).await.unwrap();
    let mut all = harness.client().subscribe(&id("r"));
    assert!(matches!(soon(all.next()).await, Some(Err(SubscriptionEnd::RuntimeGone { .. }))));
    let closed = soon(harness.close()).await;
    assert_eq!(closed.exit.unwrap().status, ExitKind::Code(6));
}
