//! What a client made of a stream, and where two outcomes differ.

use offspring_tests::streams::canonical::same;

/// A notification as it was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) method: String,
    /// JSON.
    pub(crate) params: String,
}

/// How an operation failed, by what both clients mean by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The runtime is gone.
    Gone,
    /// The runtime refused, with these words.
    Refused(String),
    /// The runtime broke the protocol, so that there is no result.
    Protocol,
    /// Something else, which is never expected.
    Other(String),
}

/// A turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) root: String,
    pub(crate) result: Result<TurnResult, Failure>,
}

#[derive(Debug, Clone)]
pub(crate) struct TurnResult {
    pub(crate) final_response: String,
    pub(crate) finish_reason: Option<String>,
    /// JSON.
    pub(crate) events: Vec<String>,
    pub(crate) notifications: Vec<Delivered>,
}

/// Everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Why the stream could not be played to its end.
    pub(crate) failed: Option<String>,
    pub(crate) turns: Vec<Turn>,
    /// What each subscription got.
    pub(crate) watched: Vec<Vec<Delivered>>,
    /// What matched no subscription.
    pub(crate) unmatched: Vec<Delivered>,
    pub(crate) requests: Vec<Result<String, Failure>>,
}

impl Outcome {
    /// Without the notifications whose params hold this text.
    pub(crate) fn without(mut self, mark: &str) -> Self {
        let keep = |one: &Delivered| !one.params.contains(mark);
        for turn in &mut self.turns {
            if let Ok(result) = &mut turn.result {
                result.notifications.retain(keep);
                result.events.retain(|event| !event.contains(mark));
            }
        }
        for seen in &mut self.watched {
            seen.retain(keep);
        }
        self.unmatched.retain(keep);
        self
    }
}

/// The first place where two outcomes differ, with both sides.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) place: String,
    pub(crate) sdk: String,
    pub(crate) ours: String,
}

/// Compares everything, in an order that shows the cause before its consequences.
pub(crate) fn difference(sdk: &Outcome, ours: &Outcome) -> Option<Difference> {
    let compare = |place: String, sdk: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug, equal: bool| {
        (!equal).then(|| Difference { place, sdk: shortened(sdk), ours: shortened(ours) })
    };
    if let Some(found) = compare("playing".to_owned(), &sdk.failed, &ours.failed, sdk.failed == ours.failed) {
        return Some(found);
    }
    let equal = sdk.turns.len() == ours.turns.len();
    if let Some(found) = compare("turns".to_owned(), &sdk.turns.len(), &ours.turns.len(), equal) {
        return Some(found);
    }
    for (number, (sdk, ours)) in sdk.turns.iter().zip(&ours.turns).enumerate() {
        let of = format!("turn {number} of {:?}", sdk.root);
        let (sdk, ours) = match (&sdk.result, &ours.result) {
            (Ok(sdk), Ok(ours)) => (sdk, ours),
            (Err(sdk), Err(ours)) if sdk == ours => continue,
            (sdk, ours) => {
                let end = |result: &Result<TurnResult, Failure>| result.as_ref().err().cloned();
                return compare(format!("{of}: how it ended"), &end(sdk), &end(ours), false);
            }
        };
        let found = notifications(&format!("{of}: notifications"), &sdk.notifications, &ours.notifications)
            .or_else(|| texts(&format!("{of}: events"), &sdk.events, &ours.events))
            .or_else(|| {
                let equal = sdk.final_response == ours.final_response;
                compare(format!("{of}: final response"), &sdk.final_response, &ours.final_response, equal)
            })
            .or_else(|| {
                let equal = sdk.finish_reason == ours.finish_reason;
                compare(format!("{of}: finish reason"), &sdk.finish_reason, &ours.finish_reason, equal)
            });
        if found.is_some() {
            return found;
        }
    }
    for (number, (sdk, ours)) in sdk.watched.iter().zip(&ours.watched).enumerate() {
        if let Some(found) = notifications(&format!("subscription {number}"), sdk, ours) {
            return Some(found);
        }
    }
    for (number, (sdk, ours)) in sdk.requests.iter().zip(&ours.requests).enumerate() {
        let equal = match (sdk, ours) {
            (Ok(sdk), Ok(ours)) => same(sdk, ours),
            (sdk, ours) => sdk == ours,
        };
        if let Some(found) = compare(format!("request {number}"), sdk, ours, equal) {
            return Some(found);
        }
    }
    notifications("the queue of what matched nothing", &sdk.unmatched, &ours.unmatched)
}

fn notifications(of: &str, sdk: &[Delivered], ours: &[Delivered]) -> Option<Difference> {
    let equal =
        |sdk: &Delivered, ours: &Delivered| sdk.method == ours.method && same(&sdk.params, &ours.params);
    first(of, sdk, ours, equal, |one| format!("{} {}", one.method, one.params))
}

fn texts(of: &str, sdk: &[String], ours: &[String]) -> Option<Difference> {
    first(of, sdk, ours, |sdk, ours| same(sdk, ours), Clone::clone)
}

fn first<T>(
    of: &str,
    sdk: &[T],
    ours: &[T],
    equal: impl Fn(&T, &T) -> bool,
    shown: impl Fn(&T) -> String,
) -> Option<Difference> {
    let length = sdk.len().max(ours.len());
    let place = (0..length).find(|place| match (sdk.get(*place), ours.get(*place)) {
        (Some(sdk), Some(ours)) => !equal(sdk, ours),
        _ => true,
    })?;
    let side = |list: &[T]| list.get(place).map_or_else(|| "nothing more".to_owned(), &shown);
    let place = format!("{of}, number {place} of {} (SDK) and {} (ours)", sdk.len(), ours.len());
    Some(Difference { place, sdk: shortened(&side(sdk)), ours: shortened(&side(ours)) })
}

fn shortened(shown: &dyn std::fmt::Debug) -> String {
    let text = format!("{shown:?}");
    match text.char_indices().nth(700) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
