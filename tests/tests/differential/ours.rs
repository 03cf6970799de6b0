//! Our client, over a real process of the same player.

use std::path::Path;

use offspring_client::{
    ClientError, Harness, HarnessClient, Notification, RuntimeCommand, Subscription, SubscriptionEnd,
    TurnError, TurnResult, dsh::InitializeParams,
};
use offspring_protocol::SessionId;
use offspring_tests::streams::{NEXT, Operation, Stream};
use serde_json::value::RawValue;
use tokio::{
    runtime::Runtime,
    task::JoinHandle,
    time::{Duration, timeout},
};

use crate::{
    outcome::{self, Delivered, Failure, Outcome, Turn},
    sdk::player,
};

/// As in the driver of the SDK: what does not end is reported.
const BOUND: Duration = Duration::from_secs(20);

/// Plays a stream whose script is in this file.
pub(crate) fn play(runtime: &Runtime, stream: &Stream, script: &Path) -> Outcome {
    runtime.block_on(async {
        let command = RuntimeCommand::new(player()).arg(script);
        let params = InitializeParams {
            cwd: "/".into(),
            provider: "deepseek-official".into(),
            model: "deepseek-v4-flash".into(),
            reasoning_effort: None,
            max_tokens: None,
        };
        let harness = Harness::start(HarnessClient::builder(), &command, &params).await.unwrap();
        let mut playing = Playing { harness, watches: Vec::new(), runs: Vec::new(), requests: Vec::new() };
        let failed = playing.play(&stream.operations).await.err();
        let outcome = playing.outcome(failed).await;
        playing.harness.close().await;
        outcome
    })
}

enum Begun<T> {
    Going(JoinHandle<T>),
    Joined(T),
    Hung,
}

impl<T> Begun<T> {
    async fn join(&mut self) {
        if let Self::Going(task) = self {
            *self = match timeout(BOUND, task).await {
                Ok(done) => Self::Joined(done.unwrap()),
                Err(_) => Self::Hung,
            };
        }
    }
}

struct Watch {
    subscription: Option<Subscription>,
    seen: Vec<Delivered>,
}

impl Watch {
    fn take(&mut self) {
        let Some(mut subscription) = self.subscription.take() else { return };
        while let Some(next) = subscription.try_next() {
            match next {
                Ok(notification) => self.seen.push(delivered(&notification)),
                Err(SubscriptionEnd::RuntimeGone { .. }) => return,
                Err(end) => panic!("{end}"),
            }
        }
    }
}

type Answer = Result<Box<RawValue>, ClientError>;

struct Playing {
    harness: Harness,
    watches: Vec<Watch>,
    runs: Vec<(SessionId, Begun<Result<TurnResult, TurnError>>)>,
    requests: Vec<Begun<Answer>>,
}

impl Playing {
    async fn play(&mut self, operations: &[Operation]) -> Result<(), String> {
        for operation in operations {
            match operation {
                Operation::Watch { root } => {
                    let subscription = self.harness.client().subscribe(&SessionId::new(root).unwrap());
                    self.watches.push(Watch { subscription: Some(subscription), seen: Vec::new() });
                }
                Operation::Unwatch { watch } => self.watches[*watch].take(),
                Operation::Run { root } => {
                    let root = SessionId::new(root).unwrap();
                    let session = self.harness.session(root.clone());
                    let run = tokio::spawn(async move { session.run("go").await });
                    self.runs.push((root, Begun::Going(run)));
                }
                Operation::Request { method, params } => {
                    let client = self.harness.client().clone();
                    let method = method.clone();
                    let params: Option<Box<RawValue>> =
                        params.as_deref().map(|params| RawValue::from_string(params.to_owned()).unwrap());
                    self.requests.push(Begun::Going(tokio::spawn(async move {
                        client.request(&method, &params, BOUND).await
                    })));
                }
                Operation::Next => {
                    let empty = RawValue::from_string("{}".to_owned()).unwrap();
                    let answered = self.harness.client().request(NEXT, &empty, BOUND).await;
                    answered.map_err(|error| error.to_string())?;
                }
                Operation::JoinRun { run } => self.runs[*run].1.join().await,
                Operation::JoinRequest { request } => self.requests[*request].join().await,
            }
        }
        Ok(())
    }

    async fn outcome(&mut self, failed: Option<String>) -> Outcome {
        let mut outcome = Outcome { failed, ..Outcome::default() };
        for (root, run) in &mut self.runs {
            if outcome.failed.is_none() {
                run.join().await;
            }
            let result = match run {
                Begun::Joined(Ok(result)) => Ok(turn(result)),
                Begun::Joined(Err(error)) => Err(failure(&error.reason)),
                Begun::Going(_) | Begun::Hung => Err(Failure::Other("it did not end".to_owned())),
            };
            outcome.turns.push(Turn { root: root.as_str().to_owned(), result });
        }
        for watch in &mut self.watches {
            watch.take();
            outcome.watched.push(std::mem::take(&mut watch.seen));
        }
        while let Some(Ok(notification)) = self.harness.client().try_next_unmatched() {
            outcome.unmatched.push(delivered(&notification));
        }
        assert_eq!(self.harness.client().diagnostics().counts.unmatched_dropped, 0);
        for request in &mut self.requests {
            outcome.requests.push(match request {
                Begun::Joined(Ok(result)) => Ok(result.get().to_owned()),
                Begun::Joined(Err(error)) => Err(failure(error)),
                Begun::Going(_) | Begun::Hung => Err(Failure::Other("it did not end".to_owned())),
            });
        }
        outcome
    }
}

fn delivered(notification: &Notification) -> Delivered {
    let params = notification.params().map_or("{}", RawValue::get);
    Delivered { method: notification.method().to_owned(), params: params.to_owned() }
}

fn turn(result: &TurnResult) -> outcome::TurnResult {
    // The SDK gives the event itself, ours the notification that brought it.
    let event = |notification: &Notification| {
        #[derive(serde::Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            event: &'a RawValue,
        }
        let params = notification.params().unwrap();
        serde_json::from_str::<Params<'_>>(params.get()).unwrap().event.get().to_owned()
    };
    outcome::TurnResult {
        final_response: result.final_response.clone().unwrap_or_default(),
        finish_reason: result.finish_reason.clone(),
        events: result.events.iter().map(event).collect(),
        notifications: result.notifications.iter().map(delivered).collect(),
    }
}

fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::RuntimeGone(_) => Failure::Gone,
        ClientError::Refused { error, .. } => Failure::Refused(format!("{} {}", error.code, error.message)),
        ClientError::BadAnswer { .. } => Failure::Protocol,
        other => Failure::Other(other.to_string()),
    }
}
