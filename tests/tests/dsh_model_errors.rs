//! Our client on the real runtime: what goes wrong at the model is the turn's end, not the client's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_client::{ChildRun, TurnEnd, TurnResult, dsh::FinishedStatus};
use offspring_tests::dsh::RealRuntime;

mod dsh_real;
use dsh_real::{ended, id, started};

/// The data of the turn's last `turn/end`.
fn last_end(result: &TurnResult) -> serde_json::Value {
    let last = result.events.iter().rfind(|event| event.event_type() == Some("turn/end")).unwrap();
    serde_json::from_str(last.event_data().unwrap().get()).unwrap()
}

fn count(result: &TurnResult, kind: &str) -> usize {
    result.events.iter().filter(|event| event.event_type() == Some(kind)).count()
}

#[tokio::test]
async fn errors_of_the_model_end_the_turn_with_their_code() {
    let Some(real) = RealRuntime::for_test("errors_of_the_model_end_the_turn_with_their_code") else {
        return;
    };
    let harness = started(&real).await;
    for (session, prompt, code) in [
        ("refused", "HTTP 400 not like this", "INVALID_REQUEST"),
        ("unended", "NODONE", "STREAM_CLOSED"),
        ("garbage", "GARBAGE", "MALFORMED_RESPONSE"),
    ] {
        let result = harness.session(id(session)).run(prompt).await.unwrap();
        assert_eq!(result.finish_reason.as_deref(), Some("error"), "{prompt}");
        assert_eq!(result.end, Some(TurnEnd::Idle), "{prompt}");
        assert_eq!(last_end(&result)["reason"]["error"]["code"], code, "{prompt}");
        // The session is as good as before.
        let result = harness.session(id(session)).run("SAY better").await.unwrap();
        assert_eq!(result.final_response.as_deref(), Some("better"), "{prompt}");
    }
    let cut = harness.session(id("cut")).run("FINISH length").await.unwrap();
    assert_eq!(cut.finish_reason.as_deref(), Some("max-tokens"));

    let late = harness.session(id("late")).run("HTTP 429 x1 RETRY_AFTER 1 slow down\nSAY now").await.unwrap();
    assert_eq!(late.final_response.as_deref(), Some("now"));
    assert_eq!(late.finish_reason.as_deref(), Some("completed"));
    assert_eq!(count(&late, "llm/retry"), 1);
    // A connection that is lost amid an answer is tried again, and nothing of the lost one is in the answer.
    let dropped = harness.session(id("dropped")).run("DROP x1\nSAY whole").await.unwrap();
    assert_eq!(dropped.final_response.as_deref(), Some("whole"));
    assert_eq!(count(&dropped, "llm/retry"), 1);
    assert_eq!(count(&dropped, "assistant/attempt"), 1);
    ended(harness, &real).await;
}

/// The runtime tries five times, which takes it 16 seconds: this is the one test that waits for all of it.
#[tokio::test]
async fn a_server_that_stays_broken_is_tried_again_and_then_the_turn_ends() {
    let Some(real) =
        RealRuntime::for_test("a_server_that_stays_broken_is_tried_again_and_then_the_turn_ends")
    else {
        return;
    };
    let harness = started(&real).await;
    let result = harness.session(id("root")).run("HTTP 500 boom").await.unwrap();
    assert_eq!(result.finish_reason.as_deref(), Some("error"));
    assert_eq!(last_end(&result)["reason"]["error"]["status"], 500);
    assert_eq!(count(&result, "llm/retry"), 5);
    assert_eq!(real.model().asked().len(), 6);
    ended(harness, &real).await;
}

#[tokio::test]
async fn a_child_that_fails_is_told_as_that_and_its_root_goes_on() {
    let Some(real) = RealRuntime::for_test("a_child_that_fails_is_told_as_that_and_its_root_goes_on") else {
        return;
    };
    let harness = started(&real).await;
    let prompt = r#"TOOL subagent {"description":"bad","prompt":"HTTP 400 broken"}"#;
    let result = harness.session(id("root")).run_tree(prompt).await.unwrap();
    assert_eq!(result.end, Some(TurnEnd::TreeAtRest));
    assert_eq!(result.finish_reason.as_deref(), Some("completed"));
    let [child] = result.tree.children() else { panic!("{:?}", result.tree) };
    let [run @ ChildRun::Finished(finished)] = child.runs.as_slice() else { panic!("{child:?}") };
    assert!(!run.is_ok());
    assert_eq!(finished.status, Some(FinishedStatus::Error));
    assert_eq!(finished.stop_reason.as_deref(), Some("error"));
    // What a child says or fails to say is none of the root's answer (O3).
    assert_eq!(result.final_response.as_deref(), Some("noted"));
    ended(harness, &real).await;
}
