//! Our client on the real runtime: how a runtime ends, and how a session goes on in the next one.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use offspring_client::{
    ChildRun, ClientError, ExitKind, GoneHow, Harness, HarnessClient, PeerError, TurnEnd, TurnError,
};
use offspring_tests::{
    dsh::{Profile, RealRuntime},
    processes::{self, SignalName},
    until,
};

mod dsh_real;
use dsh_real::{command, ended, id, params, started};

/// Whatever is left of a world's processes, none within the bound.
fn nothing_is_left(real: &RealRuntime) {
    let home = real.home().display().to_string();
    until("the runtime's end", Duration::from_secs(10), || {
        processes::living(&[&home]).is_empty().then_some(())
    });
}

/// The run of each child that was open is interrupted, and the turn has no end.
fn is_interrupted(error: &TurnError, children: usize) {
    assert_eq!(error.partial.end, None);
    assert_eq!(error.partial.tree.children().len(), children);
    for child in error.partial.tree.children() {
        assert!(matches!(child.runs.as_slice(), [ChildRun::Interrupted]), "{child:?}");
    }
}

#[tokio::test]
async fn a_session_goes_on_in_the_next_runtime_after_a_clean_end() {
    let Some(real) = RealRuntime::for_test("a_session_goes_on_in_the_next_runtime_after_a_clean_end") else {
        return;
    };
    let harness = started(&real).await;
    let sub = real.work().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let session = harness.session(id("saved"));
    session.run_tree("DELEGATE 1").await.unwrap();
    // Its directory goes on with it. A change of it is told without a turn.
    let changes = session.subscribe();
    assert_eq!(session.working_directory().await.unwrap(), real.work().display().to_string());
    let missing = session.set_working_directory("nowhere").await.unwrap_err();
    assert_eq!(missing.peer_error(), Some(PeerError::BadDirectory), "{missing}");
    session.set_working_directory("sub").await.unwrap();
    drop(changes);
    ended(harness, &real).await;

    let harness = started(&real).await;
    let refused = harness.session(id("saved")).run("SAY what").await.unwrap_err();
    assert_eq!(refused.reason.peer_error(), Some(PeerError::SessionExists), "{refused}");
    let session = harness.resume(id("saved")).await.unwrap();
    assert_eq!(session.working_directory().await.unwrap(), sub.display().to_string());
    let twice = harness.client().resume(&id("saved")).await.unwrap_err();
    assert_eq!(twice.peer_error(), Some(PeerError::SessionInUse), "{twice}");
    let result = session.run("SAY again").await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("again"));
    ended(harness, &real).await;
    nothing_is_left(&real);
}

#[tokio::test]
async fn w4_a_killed_runtime_interrupts_its_turns_and_the_session_goes_on_in_the_next() {
    let Some(real) =
        RealRuntime::for_test("w4_a_killed_runtime_interrupts_its_turns_and_the_session_goes_on_in_the_next")
    else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("saved"));
    let pid = harness.client().process().unwrap().pid();
    let kill = async {
        real.model().arrived("never", 1).await;
        processes::send(pid, SignalName::KILL);
    };
    let (result, ()) = tokio::join!(session.run_tree("DELEGATE 2 GATE never"), kill);
    let error = result.unwrap_err();
    let ClientError::RuntimeGone(gone) = &error.reason else { panic!("{error:?}") };
    assert_eq!(gone.how, GoneHow::EndOfOutput);
    assert_eq!(gone.exit, Some(ExitKind::Signal(9)));
    is_interrupted(&error, 2);
    harness.close().await;
    nothing_is_left(&real);

    let harness = started(&real).await;
    let session = harness.resume(id("saved")).await.unwrap();
    let result = session.run_tree("SAY again").await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("again"));
    assert_eq!(result.end, Some(TurnEnd::TreeAtRest));
    ended(harness, &real).await;
}

#[tokio::test]
async fn a_shutdown_amid_work_is_no_success_of_any_turn() {
    let Some(real) = RealRuntime::for_test("a_shutdown_amid_work_is_no_success_of_any_turn") else { return };
    let harness = started(&real).await;
    let (tree, plain) = (harness.session(id("tree")), harness.session(id("plain")));
    let close = async {
        real.model().arrived("leaf", 1).await;
        real.model().arrived("root", 1).await;
        harness.close().await
    };
    let both = tokio::join!(tree.run_tree("DELEGATE 1 GATE leaf"), plain.run("GATE root\nSAY never"), close);
    let (of_tree, of_plain, closed) = both;
    assert_eq!(closed.exit.unwrap().status, ExitKind::Code(0));
    is_interrupted(&of_tree.unwrap_err(), 1);
    is_interrupted(&of_plain.unwrap_err(), 0);
    nothing_is_left(&real);
}

#[tokio::test]
async fn w7_the_last_client_that_is_dropped_takes_a_busy_runtime_with_it() {
    let Some(real) = RealRuntime::for_test("w7_the_last_client_that_is_dropped_takes_a_busy_runtime_with_it")
    else {
        return;
    };
    let harness = started(&real).await;
    let session = harness.session(id("root"));
    session.run("DELEGATE 1 GATE leaf").await.unwrap();
    real.model().arrived("leaf", 1).await;
    drop((harness, session));
    // The system has no event for the end of a process that we no longer hold, so another thread looks.
    tokio::task::spawn_blocking(move || nothing_is_left(&real)).await.unwrap();
}

#[test]
fn the_end_of_its_stdin_ends_a_busy_runtime() {
    let Some(real) = RealRuntime::for_test("the_end_of_its_stdin_ends_a_busy_runtime") else { return };
    let mut wire = real.start();
    wire.initialize();
    wire.prompt("p", "root", "DELEGATE 1 GATE leaf");
    real.model().wait_at("leaf", 1);
    wire.end().with(0);
    nothing_is_left(&real);
}

#[tokio::test]
async fn a_patch_that_does_not_activate_is_an_error_that_quotes_it() {
    let Some(real) = RealRuntime::for_test("a_patch_that_does_not_activate_is_an_error_that_quotes_it")
    else {
        return;
    };
    let patch = real.work().join("wrong.patch.yml");
    std::fs::write(&patch, "- insert:\n    - id: subagent\n      name: '@deepseek-ai/dsh-no-such-plugin'\n")
        .unwrap();
    let real = real.with(Profile { name: "sdk-minimal", patches: vec![patch] });
    let failed = Harness::start(HarnessClient::builder(), &command(&real), &params(&real)).await.unwrap_err();
    let ClientError::NotActivated { said } = &failed else { panic!("{failed:?}") };
    assert!(said.contains("did not activate") && said.contains("dsh-no-such-plugin"), "{said}");
    nothing_is_left(&real);
    // Whoever knows better may have it so.
    let builder = HarnessClient::builder().allow_inactive_plugins(true);
    let harness = Harness::start(builder, &command(&real), &params(&real)).await.unwrap();
    assert_eq!(
        harness.session(id("root")).run("SAY so").await.unwrap().final_response.as_deref(),
        Some("so")
    );
    ended(harness, &real).await;

    // One that is not there at all ends the runtime before it says anything.
    let real = real.with(Profile { name: "sdk-minimal", patches: vec!["no-such-file.patch.yml".into()] });
    let failed = Harness::start(HarnessClient::builder(), &command(&real), &params(&real)).await.unwrap_err();
    let ClientError::RuntimeGone(gone) = &failed else { panic!("{failed:?}") };
    assert_eq!(gone.exit, Some(ExitKind::Code(1)));
    assert!(failed.to_string().contains("no-such-file.patch.yml"), "{failed}");
}
