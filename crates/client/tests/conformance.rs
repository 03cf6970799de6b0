//! Every script of the conformance kit against this client: through the program `offspring-fake-runtime`, whose path is
//! in `OFFSPRING_FAKE_RUNTIME`, or in this process where a script lasts longer than a test may.

use std::path::Path;
use std::time::Duration;

use offspring_client::dsh::InitializeParams;
use offspring_client::{
    ClientError, ExitKind, Gone, Harness, HarnessClient, Limits, Notification, RuntimeCommand, SessionId,
    Subscription, SubscriptionEnd, TurnEnd, TurnError, TurnResult,
};
use offspring_fake_runtime::{
    Expectations, ExpectedNotification, ExpectedTurn, PROMPT, Player, RequestOutcome, RuntimeEnd, Script,
    TurnEnd as ExpectedEnd, library,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a test waits for at most; far more than any of them takes.
const BOUND: Duration = Duration::from_secs(60);

/// Bounds that a test can wait for.
fn limits() -> Limits {
    Limits {
        request_within: Duration::from_secs(20),
        receipt_within: Duration::from_millis(300),
        shutdown_within: Duration::from_millis(300),
        end_of_input_within: Duration::from_millis(300),
        terminate_within: Duration::from_millis(300),
        ..Limits::default()
    }
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn params() -> InitializeParams {
    InitializeParams {
        cwd: "/".into(),
        provider: "p".into(),
        model: "m".into(),
        reasoning_effort: None,
        max_tokens: None,
    }
}

/// A script under way, and what is expected of it.
struct Play {
    name: &'static str,
    expected: Expectations,
    gates: tempfile::TempDir,
    client: HarnessClient,
    /// Of a play in this process.
    playing: Option<JoinHandle<offspring_fake_runtime::PlayEnd>>,
}

fn script(name: &str) -> (&'static str, Script) {
    let found = library::find(name).unwrap_or_else(|| panic!("no script {name}"));
    (found.name, found.parse().unwrap())
}

impl Play {
    /// Through the program.
    fn program(name: &str, limits: Limits) -> Self {
        let program = std::env::var_os("OFFSPRING_FAKE_RUNTIME")
            .expect("OFFSPRING_FAKE_RUNTIME names no program: run the tests through `cargo xtask test`");
        let (name, script) = script(name);
        let gates = tempfile::tempdir().unwrap();
        let command = RuntimeCommand::new(Path::new(&program))
            .args(["--at-most", "120", "--gates"])
            .arg(gates.path())
            .arg(name)
            .profile("sdk")
            .env("DEEPSEEK_API_KEY", "sk-of-nobody");
        let client =
            HarnessClient::builder().limits(limits).allow_inactive_plugins(true).start(&command).unwrap();
        Self { name, expected: script.expectations(), gates, client, playing: None }
    }

    /// In this process, with its clock.
    fn here(name: &str, limits: Limits) -> Self {
        let (name, script) = script(name);
        let expected = script.expectations();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let playing = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            Player::new(script).play(reader, writer).await
        });
        let (output, input) = tokio::io::split(ours);
        let client = HarnessClient::builder().limits(limits).connect(output, input);
        let gates = tempfile::tempdir().unwrap();
        Self { name, expected, gates, client, playing: Some(playing) }
    }

    /// The drive that the kit describes, and everything that it says about it.
    async fn conforms(self) {
        let name = self.name;
        tokio::time::timeout(BOUND * 1_000, self.drive()).await.unwrap_or_else(|_| panic!("{name} hangs"));
    }

    async fn drive(self) {
        let Self { name, expected, client, playing, gates } = self;
        let (rest, at_rest) = watch::channel(false);
        let watched = expected.subscriptions.iter().map(|subscription| id(&subscription.root));
        let watchers: Vec<_> =
            watched.map(|root| watch_subscription(client.subscribe(&root), at_rest.clone())).collect();

        let initialized = Harness::over(client.clone(), &params()).await;
        if let Some(("initialize", outcome)) = expected.requests.first().map(|(m, o)| (m.as_str(), o)) {
            let error = initialized.expect_err("it is said to fail");
            assert_eq!(outcome, &RequestOutcome::Gone, "{name}");
            explained(name, &expected, &error);
            return;
        }
        let harness = initialized.unwrap_or_else(|error| panic!("{name}: {error}"));
        let results = turns(&harness, &expected).await;
        let mut is_gone = false;
        for (result, turn) in results.iter().zip(&expected.turns) {
            is_gone |= turn.end == ExpectedEnd::Gone;
            check_turn(name, &expected, turn, result);
        }
        for (method, outcome) in &expected.requests {
            check_request(name, &expected, &client, method, outcome).await;
        }
        // Whatever a gate holds back comes now, too late.
        for gate in ["late-answer", "late-reply"] {
            std::fs::write(gates.path().join(gate), "").unwrap();
        }
        if !is_gone && name != "w07-it-reads-no-more" {
            // A clock that is paused waits for the whole script in no time.
            let within = if playing.is_some() { BOUND * 100 } else { BOUND };
            let rest = client.request("fake-runtime/rest", &json!({}), within).await;
            rest.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        rest.send(true).unwrap();
        for (watcher, subscription) in watchers.into_iter().zip(&expected.subscriptions) {
            let (seen, end) = watcher.await.unwrap();
            assert_seen(name, &subscription.root, &seen, &subscription.notifications);
            assert_eq!(matches!(end, Some(SubscriptionEnd::RuntimeGone { .. })), is_gone, "{name}: {end:?}");
        }
        let mut unmatched = Vec::new();
        while let Some(Ok(notification)) = client.try_next_unmatched() {
            unmatched.push(notification);
        }
        assert_seen(name, "unmatched", &unmatched, &expected.unmatched);
        for (session, path) in &expected.paths {
            let found: Vec<String> = client.path(session).iter().map(|id| id.as_str().to_owned()).collect();
            assert_eq!(&found, path, "{name}");
        }
        for (diagnostic, count) in &expected.diagnostics {
            assert_eq!(counted(&client, diagnostic), *count, "{name}: {diagnostic}");
        }
        let closed = client.close().await;
        if let (Some(exit), Some(end)) = (&closed.exit, expected.end) {
            assert_eq!(exit.status, kind(end), "{name}");
        }
        // W7: nothing that it started is left.
        assert!(closed.exit.is_none_or(|exit| exit.survivors.is_empty()), "{name}");
        if let Some(playing) = playing {
            playing.await.unwrap();
        }
    }
}

type Watched = JoinHandle<(Vec<Notification>, Option<SubscriptionEnd>)>;

/// Keeps what a subscription sees until the runtime has said all.
fn watch_subscription(mut subscription: Subscription, mut at_rest: watch::Receiver<bool>) -> Watched {
    tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            let next = tokio::select! {
                next = subscription.next() => next,
                _ = at_rest.wait_for(|rest| *rest) => break,
            };
            match next {
                Some(Ok(notification)) => seen.push(notification),
                Some(Err(end)) => return (seen, Some(end)),
                None => return (seen, None),
            }
        }
        // T9: what came before the answer is there.
        loop {
            match subscription.try_next() {
                Some(Ok(notification)) => seen.push(notification),
                Some(Err(end)) => return (seen, Some(end)),
                None => return (seen, None),
            }
        }
    })
}

async fn turns(harness: &Harness, expected: &Expectations) -> Vec<Result<TurnResult, TurnError>> {
    let runs = expected.turns.iter().map(|turn| {
        let session = harness.session(id(&turn.session));
        async move { session.run(PROMPT).await }
    });
    let mut results = Vec::new();
    if expected.prompts_at_once {
        let runs: Vec<_> = runs.map(|run| Box::pin(tokio::task::unconstrained(run))).collect();
        results.extend(futures_util::future::join_all(runs).await);
    } else {
        for run in runs {
            results.push(run.await);
        }
    }
    results
}

fn check_turn(
    name: &str,
    expected: &Expectations,
    turn: &ExpectedTurn,
    result: &Result<TurnResult, TurnError>,
) {
    match (turn.end, result) {
        (ExpectedEnd::Idle, Ok(result)) => {
            assert_eq!(result.end, Some(TurnEnd::Idle), "{name}");
            assert_eq!(result.final_response, turn.final_response, "{name}");
            assert_eq!(result.finish_reason, turn.finish_reason, "{name}");
            assert_seen(name, "the turn", &result.notifications, &turn.notifications);
            // T12: events of the root itself, and all of them.
            let events: Vec<Value> =
                result.events.iter().map(|event| params_of(event)["event"].clone()).collect();
            assert_eq!(events, turn.events().cloned().collect::<Vec<_>>(), "{name}");
        }
        (ExpectedEnd::Gone, Err(error)) => {
            explained(name, expected, &error.reason);
            assert_eq!(error.partial.end, None, "{name}");
            // Every run that was open has an end (issue: interrupted).
            let is_open = |run: &offspring_client::ChildRun| matches!(run, offspring_client::ChildRun::Open);
            let children = error.partial.tree.children();
            assert!(!children.iter().flat_map(|child| &child.runs).any(is_open), "{name}: {children:?}");
        }
        (ExpectedEnd::NoReceipt, Err(error)) => assert!(
            matches!(error.reason, ClientError::MissingReceipt { .. } | ClientError::Timeout { .. }),
            "{name}: {error}"
        ),
        (end, result) => panic!("{name}: {end:?} was expected, and it was {result:?}"),
    }
}

/// An error about a runtime that is gone says how it ended and quotes its stderr (W4).
fn explained(name: &str, expected: &Expectations, error: &ClientError) {
    let ClientError::RuntimeGone(gone) = error else { panic!("{name}: {error}") };
    let gone: &Gone = gone;
    if let Some(end) = expected.end {
        assert_eq!(gone.exit, Some(kind(end)), "{name}: {gone}");
    }
    let shown = error.to_string();
    for text in &expected.stderr {
        assert!(shown.contains(text), "{name}: {shown} does not quote {text}");
    }
    // W11
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{name}: {shown:?}");
}

fn kind(end: RuntimeEnd) -> ExitKind {
    match end {
        RuntimeEnd::Exit(code) => ExitKind::Code(code.into()),
        RuntimeEnd::Signal(offspring_fake_runtime::Signal::Kill) => ExitKind::Signal(9),
        RuntimeEnd::Signal(offspring_fake_runtime::Signal::Abort) => ExitKind::Signal(6),
    }
}

async fn check_request(
    name: &str,
    expected: &Expectations,
    client: &HarnessClient,
    method: &str,
    outcome: &RequestOutcome,
) {
    let within = if *outcome == RequestOutcome::Timeout { Duration::from_millis(300) } else { BOUND };
    let answered = client.request(method, &json!({"sessionId": "root"}), within).await;
    match (outcome, answered) {
        (RequestOutcome::Result(wanted), Ok(result)) => {
            assert_eq!(&serde_json::from_str::<Value>(result.get()).unwrap(), wanted, "{name}");
        }
        (RequestOutcome::Error { code, message }, Err(error)) => {
            let ClientError::Refused { error: refused, .. } = &error else { panic!("{name}: {error}") };
            assert_eq!(refused.code, *code, "{name}");
            assert_eq!(Some(&refused.message), message.as_ref().or(Some(&refused.message)), "{name}");
            // W11
            assert!(!error.to_string().contains(char::is_control), "{name}: {error:?}");
        }
        (RequestOutcome::Timeout, Err(error)) => {
            assert!(matches!(error, ClientError::Timeout { .. }), "{name}: {error}");
            let shown = error.to_string();
            assert!(shown.contains(method), "{name}: {shown}");
            for text in &expected.stderr {
                assert!(shown.contains(text), "{name}: {shown} does not quote {text}");
            }
        }
        (RequestOutcome::Gone, Err(error)) => explained(name, expected, &error),
        (outcome, answered) => panic!("{name}: {outcome:?} was expected, and it was {answered:?}"),
    }
}

fn params_of(notification: &Notification) -> Value {
    notification.params().map(|raw| serde_json::from_str(raw.get()).unwrap()).unwrap_or_default()
}

fn assert_seen(name: &str, who: &str, seen: &[Notification], expected: &[ExpectedNotification]) {
    for (seen, expected) in seen.iter().zip(expected) {
        let line = expected.line;
        assert_eq!(seen.method(), expected.method, "{name}, {who}: line {line}");
        if !expected.is_sample {
            let wanted = expected.params.clone().unwrap_or_default();
            assert_eq!(params_of(seen), wanted, "{name}, {who}: line {line}");
        }
    }
    assert_eq!(seen.len(), expected.len(), "{name}, {who}: how many");
}

fn counted(client: &HarnessClient, name: &str) -> u64 {
    let diagnostics = client.diagnostics();
    let junk = diagnostics.junk.counts();
    match name {
        "blank" => diagnostics.junk.blank_lines(),
        "not-utf8" => junk.not_utf8,
        "not-json" => junk.not_json,
        "not-rpc" => junk.not_rpc,
        "too-large" => junk.too_large,
        "unterminated" => junk.unterminated,
        "unknown-id" => junk.unknown_id,
        "invalid-start" => diagnostics.counts.invalid_starts,
        other => panic!("no diagnostic is called {other}"),
    }
}

macro_rules! through_the_program {
    ($($test:ident $script:literal)*) => {
        $(#[tokio::test]
        async fn $test() {
            Play::program($script, limits()).conforms().await;
        })*
        const THROUGH_THE_PROGRAM: &[&str] = &[$($script),*];
    };
}

macro_rules! in_this_process {
    ($($test:ident $script:literal)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            Play::here($script, Limits::default()).conforms().await;
        })*
        const IN_THIS_PROCESS: &[&str] = &[$($script),*];
    };
}

through_the_program! {
    t12_a_child_s_turn_inside_the_root_s "o03-a-childs-turn-inside-the-roots"
    t13_a_finish_after_the_turn "o07-a-finish-after-the-turn"
    t13_a_turn_end_that_is_no_end "o08-a-turn-end-that-is-no-end"
    t1_ids_are_bytes "t01-ids-are-bytes"
    t2_an_invalid_start_leaves_no_edge "t02-an-invalid-start-leaves-no-edge"
    t3_the_last_valid_start_counts "t03-the-last-valid-start-counts"
    t4_a_late_finish_goes_to_its_old_parent "t04-a-late-finish-goes-to-its-old-parent"
    t5_starts_and_finishes_reach_the_child_itself "t05-starts-and-finishes-reach-the-child-itself"
    t6_everything_else_goes_up "t06-everything-else-goes-up"
    t7_a_cycle_comes_to_an_end "t07-a-cycle-comes-to-an-end"
    t8_a_new_process_knows_nobody "t08-a-new-process-knows-nobody"
    t8_edges_outlive_turns "t08-edges-outlive-turns"
    t9_notifications_stay_before_the_reply_behind_them "t09-notifications-stay-before-the-reply-behind-them"
    t10_what_matches_nobody_is_not_lost "t10-what-matches-nobody-is-not-lost"
    t12_a_child_s_text_is_never_the_answer "t12-a-childs-text-is-never-the-answer"
    t13_a_turn_begins_with_its_receipt "t13-a-turn-begins-with-its-receipt"
    t13_no_receipt "t13-no-receipt"
    t13_the_reply_comes_after_the_whole_turn "t13-the-reply-comes-after-the-whole-turn"
    t13_w4_the_runtime_dies_in_a_turn "t13-the-runtime-dies-in-a-turn"
    t13_two_prompts_one_idle "t13-two-prompts-one-idle"
    t14_the_path_is_known_to_who_comes_late "t14-the-path-is-known-to-who-comes-late"
    t15_a_deep_tree "t15-a-deep-tree"
    w1_many_frames_in_one_read "w01-many-frames-in-one-read"
    w1_one_byte_at_a_time "w01-one-byte-at-a-time"
    w1_only_a_line_feed_ends_a_frame "w01-only-a-line-feed-ends-a-frame"
    w2_a_line_without_an_end "w02-a-line-without-an-end"
    w3_a_banner_and_other_junk "w03-a-banner-and-other-junk"
    w3_the_stream_ends_inside_a_line "w03-the-stream-ends-inside-a-line"
    w4_it_dies_before_the_first_reply "w04-it-dies-before-the-first-reply"
    w4_not_all_was_activated "w04-not-all-was-activated"
    w4_stderr_is_read_before_the_first_reply "w04-stderr-is-read-before-the-first-reply"
    w4_the_end_is_explained "w04-the-end-is-explained"
    w5_answers_that_nobody_waits_for "w05-answers-that-nobody-waits-for"
    w6_an_unknown_request_is_answered "w06-an-unknown-request-is-answered"
    w7_a_grandchild_holds_the_pipe "w07-a-grandchild-holds-the-pipe"
    w7_it_closes_stdout_and_lives "w07-it-closes-stdout-and-lives"
    w7_it_ends_only_by_sigkill "w07-it-ends-only-by-sigkill"
    w7_it_reads_no_more "w07-it-reads-no-more"
    w7_it_says_yes_and_stays "w07-it-says-yes-and-stays"
    w8_an_answer_that_never_comes "w08-an-answer-that-never-comes"
    w9_only_frames_go_there "w09-only-frames-go-there"
    w10_what_the_runtime_gets_to_see "w10-what-the-runtime-gets-to-see"
    w11_control_sequences "w11-control-sequences"
}

in_this_process! {
    t13_a_child_ten_minutes_after_the_root_s_idle "end-child-ten-minutes-after-root-idle"
    t6_a_grandchild_starts_after_its_parent_s_finish "end-grandchild-starts-after-its-parents-finish"
    t2_a_start_beside_the_last_finish "end-start-beside-the-last-finish"
    t13_a_finish_that_never_comes "end-a-finish-that-never-comes"
    t8_a_runtime_without_session_wait "end-a-runtime-without-session-wait"
    t12_the_settlement_wakes_the_root "end-the-settlement-wakes-the-root"
}

/// Those with a test of their own below.
const BY_HAND: &[&str] = &[
    "t11-who-stalls-harms-nobody",
    "w02-a-frame-over-the-limit-fails-alone",
    "w08-a-prompt-that-is-not-answered",
];

#[test]
fn every_script_of_the_kit_is_played_here() {
    let mut played = [THROUGH_THE_PROGRAM, IN_THIS_PROCESS, BY_HAND].concat();
    played.sort_unstable();
    let all: Vec<&str> = library::SCRIPTS.iter().map(|script| script.name).collect();
    assert_eq!(played, all);
}

#[tokio::test]
async fn t11_who_stalls_harms_nobody() {
    // Everybody reads, and has room for it.
    let roomy = Limits { queue_items: 100_000, queue_bytes: 64 << 20, ..limits() };
    Play::program("t11-who-stalls-harms-nobody", roomy).conforms().await;

    // `a` does not read.
    let play = Play::program("t11-who-stalls-harms-nobody", limits());
    let mut stalled = play.client.subscribe(&id("a"));
    let harness = Harness::over(play.client.clone(), &params()).await.unwrap();
    let result = harness.session(id("root")).run(PROMPT).await.unwrap();
    assert_seen(play.name, "the turn", &result.notifications, &play.expected.turns[0].notifications);
    let meant = play.expected.subscription("a").unwrap();
    let mut seen = Vec::new();
    let missed = loop {
        match stalled.try_next() {
            Some(Ok(notification)) => seen.push(notification),
            Some(Err(SubscriptionEnd::Lagged { missed })) => break missed,
            other => panic!("{other:?}"),
        }
    };
    assert_seen(play.name, "a", &seen, &meant[..seen.len()]);
    assert_eq!((seen.len(), seen.len() as u64 + missed), (8_192, meant.len() as u64));
    assert!(stalled.try_next().is_none());
    play.client.close().await;
}

#[tokio::test]
async fn w2_a_frame_over_the_limit_fails_alone() {
    // A queue that can hold a frame of just the limit.
    let roomy = Limits { queue_bytes: 64 << 20, ..limits() };
    Play::program("w02-a-frame-over-the-limit-fails-alone", roomy).conforms().await;
}

#[tokio::test]
async fn w8_a_prompt_that_is_not_answered() {
    let hasty = Limits { request_within: Duration::from_millis(300), ..limits() };
    Play::program("w08-a-prompt-that-is-not-answered", hasty).conforms().await;
}

/// The same scripts, their whole trees waited for.
async fn tree(name: &str) -> (Expectations, Result<TurnResult, TurnError>, Duration) {
    let play = Play::here(name, Limits::default());
    let harness = Harness::over(play.client.clone(), &params()).await.unwrap();
    let began = tokio::time::Instant::now();
    let result = harness.session(id("root")).run_tree(PROMPT).await;
    let took = began.elapsed();
    play.client.close().await;
    (play.expected, result, took)
}

#[tokio::test(start_paused = true)]
async fn t13_no_quiet_interval_decides_the_end_of_a_tree() {
    for (name, seconds, children, answer) in [
        ("end-child-ten-minutes-after-root-idle", 600, 1, "started it"),
        ("end-grandchild-starts-after-its-parents-finish", 30, 2, "started it"),
        ("end-start-beside-the-last-finish", 60, 3, "all done"),
        ("end-a-runtime-without-session-wait", 2, 1, "started it"),
        ("end-the-settlement-wakes-the-root", 0, 2, "all"),
    ] {
        let (expected, result, took) = tree(name).await;
        let result = result.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(result.end, Some(TurnEnd::TreeAtRest), "{name}");
        assert_eq!(took.as_secs(), seconds, "{name}");
        assert_eq!(result.final_response.as_deref(), Some(answer), "{name}");
        assert_eq!(result.tree.children().len(), children, "{name}");
        assert_eq!(result.tree.unfinished().count(), 0, "{name}");
        assert_seen(name, "the turn", &result.notifications, expected.subscription("root").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn w8_a_finish_that_never_comes_names_who_is_open() {
    let (expected, result, took) = tree("end-a-finish-that-never-comes").await;
    let error = result.unwrap_err();
    let ClientError::TreeOpen { open, .. } = &error.reason else { panic!("{error}") };
    let mut open: Vec<String> = open.iter().map(|session| session.as_str().to_owned()).collect();
    open.sort_unstable();
    assert_eq!(expected.open, [("root".to_owned(), open)]);
    // From what was heard last, which came after the root's idle.
    assert_eq!(took, Limits::default().tree_silence);
}

#[tokio::test]
async fn w4_what_did_not_activate_is_an_error_unless_it_is_allowed() {
    let program = std::env::var_os("OFFSPRING_FAKE_RUNTIME").expect("run through `cargo xtask test`");
    let command = RuntimeCommand::new(program).arg("w04-not-all-was-activated");
    let client = HarnessClient::builder().limits(limits()).start(&command).unwrap();
    let error = match Harness::over(client.clone(), &params()).await {
        Err(error) => error,
        // The line can come after the first answer; it is said with the next call.
        Ok(harness) => harness.session(id("root")).run(PROMPT).await.unwrap_err().reason,
    };
    let ClientError::NotActivated { said } = &error else { panic!("{error}") };
    assert!(said.contains("maxDepth"), "{said}");
    client.close().await;
}
