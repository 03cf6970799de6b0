//! A runtime that dies at every place of a recorded wire: an error of the right type, each time, and no run left open.

use std::time::Duration;

use offspring_client::dsh::InitializeParams;
use offspring_client::{
    ChildRun, ClientError, ExitKind, Harness, HarnessClient, Limits, RuntimeCommand, SessionId, TurnEnd,
    TurnResult,
};
use offspring_fake_runtime::{Player, Script};

/// Within this an error is there, though the runtime says nothing more.
const BOUND: Duration = Duration::from_secs(10);

fn path(name: &str) -> String {
    format!("{}/../../tests/fixtures/dsh/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

fn trace(name: &str) -> Script {
    Script::from_trace(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
}

fn params() -> InitializeParams {
    InitializeParams {
        cwd: "/".into(),
        provider: "deepseek-official".into(),
        model: "deepseek-v4-flash".into(),
        reasoning_effort: None,
        max_tokens: None,
    }
}

fn root(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

async fn run_tree(client: &HarnessClient, session: &str) -> Result<TurnResult, Failed> {
    let run = async {
        let harness = match Harness::over(client.clone(), &params()).await {
            Ok(harness) => harness,
            Err(reason) => return Err(Failed { reason, partial: None }),
        };
        let ran = harness.session(root(session)).run_tree("go").await;
        ran.map_err(|error| Failed { reason: error.reason, partial: Some(error.partial) })
    };
    tokio::time::timeout(BOUND, run).await.expect("an error within the bound")
}

/// What became of a turn whose runtime was killed: whether it had ended well before.
fn check(result: Result<TurnResult, Failed>, place: &str) -> bool {
    match result {
        Ok(result) => {
            assert_eq!(result.end, Some(TurnEnd::TreeAtRest), "{place}");
            assert_eq!(result.tree.unfinished().count(), 0, "{place}");
            true
        }
        Err(Failed { reason, partial }) => {
            assert!(matches!(reason, ClientError::RuntimeGone(_)), "{place}: {reason}");
            if let Some(partial) = partial {
                assert_eq!(partial.end, None, "{place}");
                let open = partial.tree.children().iter().flat_map(|child| &child.runs);
                assert!(!open.clone().any(|run| matches!(run, ChildRun::Open)), "{place}");
            }
            false
        }
    }
}

struct Failed {
    reason: ClientError,
    partial: Option<Box<TurnResult>>,
}

/// What one play came to: whether the turn ended well.
async fn play(player: Player, session: &str, place: &str) -> bool {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let playing = tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(theirs);
        player.play(reader, writer).await
    });
    let (output, input) = tokio::io::split(ours);
    let client = HarnessClient::builder().connect(output, input);
    let ended_well = check(run_tree(&client, session).await, place);
    client.close().await;
    playing.await.unwrap();
    ended_well
}

#[tokio::test(start_paused = true)]
async fn w4_a_runtime_killed_after_any_frame_of_a_trace_is_told_as_gone() {
    // The frames of the first turn, the answer to `initialize` and that to `session/wait` included.
    for (name, session, frames) in
        [("b_nested", "root", 94), ("f_child_error", "root", 57), ("a_single", "s1", 22)]
    {
        let script = trace(name);
        let mut ended_well = Vec::new();
        for frame in 0..=frames {
            let player = Player::new(script.clone()).kill_after_frames(frame);
            ended_well.push(play(player, session, &format!("{name}, after frame {frame}")).await);
        }
        // Only with the last of them the tree is known to be at rest.
        let first = ended_well.iter().position(|well| *well);
        assert_eq!(first, Some(ended_well.len() - 1), "{name}: {ended_well:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn w3_a_runtime_killed_inside_a_frame_is_told_as_gone() {
    let script = trace("b_nested");
    // 7,919 is a prime: the places are spread over frames of all lengths.
    for bytes in (1..44_000).step_by(7_919 / 23) {
        let player = Player::new(script.clone()).cut_after_bytes(bytes);
        play(player, "root", &format!("after byte {bytes}")).await;
    }
}

#[tokio::test]
async fn w4_a_process_killed_after_any_frame_of_a_trace_is_reaped_and_its_signal_told() {
    let program = std::env::var_os("OFFSPRING_FAKE_RUNTIME").expect("run through `cargo xtask test`");
    for frame in 0..21 {
        let command = RuntimeCommand::new(&program)
            .args(["--trace", &path("a_single"), "--kill-after-frames"])
            .arg(frame.to_string());
        let client = HarnessClient::builder().limits(Limits::default()).start(&command).unwrap();
        let result = run_tree(&client, "s1").await;
        let place = format!("after frame {frame}");
        if let Err(Failed { reason: ClientError::RuntimeGone(gone), .. }) = &result {
            assert_eq!(gone.exit, Some(ExitKind::Signal(9)), "{place}");
        }
        assert!(!check(result, &place), "{place}: it ended well");
        let exit = client.close().await.exit.unwrap();
        assert_eq!((exit.status, exit.survivors.len()), (ExitKind::Signal(9), 0), "{place}");
    }
}
