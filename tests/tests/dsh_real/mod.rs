//! Our client on the real runtime.

use offspring_client::{
    Environment, Harness, HarnessClient, Notification, RuntimeCommand, SessionId, dsh::InitializeParams,
};
use offspring_tests::dsh::RealRuntime;

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

pub(crate) fn command(real: &RealRuntime) -> RuntimeCommand {
    let environment = real.environment();
    let environment =
        environment.into_iter().fold(Environment::empty(), |all, (name, value)| all.set(name, value));
    RuntimeCommand::new(real.program()).args(real.arguments()).cwd(real.work()).environment(environment)
}

pub(crate) fn params(real: &RealRuntime) -> InitializeParams {
    InitializeParams {
        cwd: real.work().display().to_string(),
        provider: "deepseek-official".into(),
        model: "deepseek-v4-flash".into(),
        reasoning_effort: None,
        max_tokens: None,
    }
}

pub(crate) async fn started(real: &RealRuntime) -> Harness {
    Harness::start(HarnessClient::builder(), &command(real), &params(real)).await.unwrap()
}

/// Closed in good order, with nothing that nobody wanted left behind.
#[allow(dead_code, reason = "not each test file ends in good order")]
pub(crate) async fn ended(harness: Harness, real: &RealRuntime) {
    assert!(harness.client().try_next_unmatched().is_none(), "nothing of a tree is unmatched");
    assert_eq!(harness.client().diagnostics().junk.counts().total(), 0);
    let closed = harness.close().await;
    assert_eq!(closed.exit.unwrap().status, offspring_client::ExitKind::Code(0));
    assert_eq!(real.model().unknown(), Vec::<String>::new());
}

/// Whether it says that a session is idle.
#[allow(dead_code, reason = "not each test file waits for one")]
pub(crate) fn is_idle(notification: &Notification, session: &str) -> bool {
    notification.method() == "session.status"
        && notification.session_id() == Some(session)
        && notification.status() == Some("idle")
}
