//! L14: whatever a program starts and however it hides, it is gone when `wait` or `stop` returns.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod world;

use std::time::{Duration, Instant};

use offspring_process::{ExitKind, Ladder, Process, ProcessSpec, Stdin, StdinPipe, resolve_program, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{both, guarded, kill_9, living, shell, sleepers, token, until, until_sleepers};

/// Ways to leave a sleeper behind, and how many there are then. `@` is the token.
const HIDING: [(&str, usize); 6] = [
    ("sleep @ &", 1),
    ("setsid sleep @ &", 1),
    ("env -i /usr/bin/setsid sleep @ &", 1),
    ("(setsid sh -c 'sleep @ & (setsid sleep @ &) &' &) &", 2),
    ("(env -i /usr/bin/setsid sh -c '(env -i /usr/bin/setsid sleep @ &) & exit 0' &) &", 1),
    ("nohup sh -c 'trap \"\" TERM HUP INT; setsid sleep @' >/dev/null 2>&1 &", 1),
];

/// Starts a script that waits for a line first: a program without a guard is marked a moment after its start.
async fn start_holding_stdin(spec: ProcessSpec) -> (Process, StdinPipe) {
    let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
    let mut stdin = process.take_stdin().unwrap();
    stdin.write_all(b"go\n").await.unwrap();
    (process, stdin)
}

async fn start(spec: ProcessSpec) -> Process {
    start_holding_stdin(spec).await.0
}

#[tokio::test]
async fn l14_cancel_leaves_no_process_however_it_was_hidden() {
    for (hiding, count) in HIDING {
        let token = token();
        let script = format!("read go\n {hiding}\n sleep @").replace('@', &token);
        for (how, spec) in both(&script) {
            let process = start(spec).await;
            until_sleepers(&token, count + 1);
            let exit = process.stop(Ladder::terminate().terminate_within(Duration::from_millis(500))).await;
            assert_eq!(living(&token), [], "{how}: {hiding}");
            assert!(matches!(exit.status, ExitKind::Signal(15 | 9)), "{how}: {hiding}: {exit:?}");
            assert_eq!(exit.survivors, []);
        }
    }
}

#[tokio::test]
async fn l14_the_normal_end_leaves_no_process_and_keeps_the_exit_code() {
    for (hiding, count) in HIDING {
        let token = token();
        // The program ends when its stdin does: after the test has seen what it is to leave behind.
        let script = format!("read go\n {hiding}\n read end; exit 3");
        let script = script.replace('@', &token);
        for (how, spec) in both(&script) {
            let (process, stdin) = start_holding_stdin(spec).await;
            until_sleepers(&token, count);
            drop(stdin);
            assert_eq!(process.wait().await.status, ExitKind::Code(3), "{how}: {hiding}");
            assert_eq!(living(&token), [], "{how}: {hiding}");
        }
    }
}

#[tokio::test]
async fn l14_a_program_that_ignores_every_polite_signal_is_killed() {
    let token = token();
    let script = format!("trap '' TERM INT HUP QUIT; while :; do sleep {token}; done");
    for (how, spec) in both(&script) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 1);
        let exit = process.stop(Ladder::terminate().terminate_within(Duration::from_millis(200))).await;
        assert_eq!(exit.status, ExitKind::Signal(9), "{how}");
        assert_eq!(living(&token), [], "{how}");
    }
}

#[tokio::test]
async fn l14_a_loop_that_forks_is_outrun() {
    let token = token();
    let script =
        format!("trap '' TERM; n=0; while [ $n -lt 3000 ]; do sleep {token} & n=$((n+1)); done; wait");
    for (how, spec) in both(&script) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 30);
        let exit = process.stop(Ladder::at_once()).await;
        assert_eq!(exit.status, ExitKind::Signal(9), "{how}");
        assert_eq!(living(&token), [], "{how}");
    }
}

#[tokio::test]
async fn l14_what_has_lost_every_mark_and_its_parent_is_found_by_its_group() {
    let token = token();
    let lost = "env -i /usr/bin/prlimit --rttime=unlimited sleep @";
    let script = format!("read go\n ({lost} &)\n sleep @").replace('@', &token);
    let process = start(shell(&script)).await;
    until_sleepers(&token, 2);
    process.stop(Ladder::terminate()).await;
    assert_eq!(living(&token), []);
}

#[tokio::test]
async fn l14_a_stopped_program_ends_too() {
    let token = token();
    for (how, spec) in both(&format!("setsid sleep {token} & kill -STOP $$; sleep {token}")) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 1);
        process.stop(Ladder::terminate()).await;
        assert_eq!(living(&token), [], "{how}");
    }
}

#[tokio::test]
async fn l14_a_guard_that_is_told_to_kill_gives_no_grace() {
    let token = token();
    let spec =
        guarded(&format!("trap '' TERM; sleep {token} & sleep {token}")).grace(Duration::from_secs(600));
    let process = spawn(&spec).unwrap();
    until_sleepers(&token, 2);
    // Told by nobody who would do it himself.
    let quit = std::process::Command::new("kill").args(["-QUIT", &process.pid().to_string()]).status();
    assert!(quit.unwrap().success());
    let exit = tokio::time::timeout(Duration::from_secs(20), process.wait()).await;
    assert_eq!(exit.unwrap().status, ExitKind::Signal(9));
    assert_eq!(living(&token), []);
}

#[tokio::test]
async fn l14_a_guard_that_cannot_act_is_replaced_by_the_host() {
    let token = token();
    let process = spawn(&guarded(&format!("env -i /usr/bin/setsid sleep {token} & sleep {token}"))).unwrap();
    until_sleepers(&token, 2);
    let stop = std::process::Command::new("kill").args(["-STOP", &process.pid().to_string()]).status();
    assert!(stop.unwrap().success());
    process.stop(Ladder::at_once()).await;
    assert_eq!(living(&token), []);
}

#[tokio::test]
async fn l14_kill_9_of_the_guard_is_seen_and_cleaned_up_by_the_host() {
    for (hiding, count) in HIDING {
        let token = token();
        let script = format!("read go\n {hiding}\n sleep @").replace('@', &token);
        let process = start(guarded(&script)).await;
        until_sleepers(&token, count + 1);
        kill_9(&[process.pid()]);
        let exit = process.wait().await;
        assert_eq!(exit.status, ExitKind::Signal(9), "{hiding}");
        assert_eq!(living(&token), [], "{hiding}");
    }
}

#[tokio::test]
async fn l14_the_host_takes_no_status_of_children_that_are_not_its_own_runs() {
    let mut stranger = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
    let stranger_is_zombie = || world::is_dead(stranger.id()).then_some(());
    until("the end of a stranger", Duration::from_secs(5), stranger_is_zombie);
    let token = token();
    let process = spawn(&guarded(&format!("setsid sleep {token} & sleep {token}"))).unwrap();
    until_sleepers(&token, 2);
    kill_9(&[process.pid()]);
    process.wait().await;
    assert_eq!(stranger.wait().unwrap().code(), Some(7));
}

#[tokio::test]
async fn l14_dropping_a_process_ends_everything() {
    let token = token();
    for (how, spec) in both(&format!("env -i /usr/bin/setsid sleep {token} & trap '' TERM; sleep {token}")) {
        let process = spawn(&spec).unwrap();
        until_sleepers(&token, 2);
        let pid = process.pid();
        drop(process);
        let gone = || async {
            living(&token).is_empty() && !std::path::Path::new("/proc").join(pid.to_string()).exists()
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while !gone().await {
            assert!(Instant::now() < deadline, "{how}: {:?}", living(&token));
            // poll: /proc
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn l14_a_process_that_is_dropped_where_nothing_runs_any_more_is_ended_all_the_same() {
    let token = token();
    for (how, spec) in both(&format!("sleep {token} & trap '' TERM; sleep {token}")) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let process = runtime.block_on(async { spawn(&spec).unwrap() });
        until_sleepers(&token, 2);
        let pid = process.pid();
        drop(process);
        until(how, Duration::from_secs(5), || world::is_dead(pid).then_some(()));
        drop(runtime);
        until(how, Duration::from_secs(5), || living(&token).is_empty().then_some(()));
    }
}

#[test]
fn l14_a_runtime_that_shuts_down_ends_everything() {
    let token = token();
    for (how, spec) in both(&format!("env -i /usr/bin/setsid sleep {token} & trap '' TERM; sleep {token}")) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let process = runtime.block_on(async { spawn(&spec).unwrap() });
        until_sleepers(&token, 2);
        drop(runtime);
        until(how, Duration::from_secs(5), || {
            let reaped = !std::path::Path::new("/proc").join(process.pid().to_string()).exists();
            (living(&token).is_empty() && reaped).then_some(())
        });
        // The end is known, and no success.
        assert_eq!(process.exit().unwrap().status, ExitKind::Unknown, "{how}");
    }
}

#[tokio::test]
async fn l14_exit_codes_and_signals_pass_through() {
    for (script, status) in [
        ("exit 0", ExitKind::Code(0)),
        ("exit 3", ExitKind::Code(3)),
        ("exit 255", ExitKind::Code(255)),
        ("exit 125", ExitKind::Code(125)),
        ("kill -TERM $$", ExitKind::Signal(15)),
        ("kill -KILL $$", ExitKind::Signal(9)),
        ("kill -SEGV $$", ExitKind::Signal(11)),
        ("kill -USR1 $$", ExitKind::Signal(10)),
    ] {
        for (how, spec) in both(script) {
            let exit = spawn(&spec).unwrap().wait().await;
            assert_eq!(exit.status, status, "{how}: {script}");
            assert_eq!(exit.is_success(), script == "exit 0", "{how}: {script}");
        }
    }
}

#[tokio::test]
async fn l14_what_the_guard_cannot_execute_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "echo hello\n").unwrap();
    for (program, code) in [(dir.path().join("none"), 127), (text, 126), (dir.path().to_owned(), 126)] {
        let spec = ProcessSpec::new(&program, "/");
        let spec = spec.guard(offspring_process::GuardProgram::new(world::GUARD));
        let exit = spawn(&spec).unwrap().wait().await;
        assert_eq!(exit.status, ExitKind::Code(code), "{}", program.display());
        let said = exit.stderr_tail.text();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(program.to_str().unwrap()), "{said}");
    }
}

#[tokio::test]
async fn l14_a_grandchild_that_holds_the_pipes_holds_nobody_up() {
    let token = token();
    for (how, spec) in both(&format!("setsid sleep {token} & read end; echo done; echo gone >&2")) {
        let mut process = spawn(&spec.stdin(Stdin::Pipe)).unwrap();
        until_sleepers(&token, 1);
        drop(process.take_stdin());
        let mut stdout = process.take_stdout().unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stdout.read_to_string(&mut answer)).await;
        assert_eq!(read.unwrap().unwrap(), 5, "{how}");
        let exit = process.wait().await;
        assert_eq!((exit.status, exit.stderr_tail.text().as_str()), (ExitKind::Code(0), "gone\n"), "{how}");
        assert_eq!(sleepers(&token), [], "{how}");
    }
}

#[tokio::test]
async fn l14_the_program_has_a_session_and_a_group_apart_from_the_terminal() {
    let mut process = spawn(&guarded("cut -d ' ' -f 5,6 /proc/self/stat")).unwrap();
    let (guard, mut stdout, mut text) = (process.pid(), process.take_stdout().unwrap(), String::new());
    stdout.read_to_string(&mut text).await.unwrap();
    let [group, session] = [0, 1].map(|at| text.split_whitespace().nth(at).unwrap().parse::<u32>().unwrap());
    assert_eq!(session, guard);
    assert_ne!(group, guard);
    assert!(process.wait().await.is_success());
}

#[tokio::test]
async fn w10_nothing_but_the_listed_environment_reaches_the_program() {
    let here = std::env::current_dir().unwrap();
    let path = world::environment();
    let env = resolve_program("env".as_ref(), &here, path.get("PATH")).unwrap();
    for guard in [None, Some(offspring_process::GuardProgram::new(world::GUARD))] {
        let listed = offspring_process::Environment::empty().set("ONE", "1").set("TWO", "a b");
        let mut spec = ProcessSpec::new(&env, "/").environment(listed);
        if let Some(guard) = guard {
            spec = spec.guard(guard);
        }
        let mut process = spawn(&spec).unwrap();
        let (mut stdout, mut text) = (process.take_stdout().unwrap(), String::new());
        stdout.read_to_string(&mut text).await.unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let marker = format!("OFFSPRING_RUN={}", process.marker());
        assert_eq!(lines, [marker.as_str(), "ONE=1", "TWO=a b"]);
        process.wait().await;
    }
}

#[tokio::test]
async fn w10_a_start_that_fails_shows_no_value_and_starts_nothing() {
    let bad = shell("true").environment(world::environment().set("API_KEY", "hunter2\0secret"));
    let error = spawn(&bad).unwrap_err();
    let text = format!("{error} {error:?} {bad:?}");
    assert!(text.contains("API_KEY") && !text.contains("hunter2"), "{text}");
    let error = spawn(&ProcessSpec::new("sh", "/")).unwrap_err();
    assert!(error.to_string().contains("absolute"), "{error}");
    let error = spawn(&ProcessSpec::new("/bin/sh", "/no/such/place")).unwrap_err();
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

#[tokio::test]
async fn l14_a_program_that_hops_from_process_to_process_is_caught() {
    // Each shell starts the next one and ends: there is never anything old enough to be waited for.
    let token = token();
    let script = format!(
        "hop() {{ n=$((n+1)); if [ $n -lt 900 ]; then hop & else exec sleep {token}; fi; }}; hop; echo on; read end"
    );
    let mut process = spawn(&guarded(&script).stdin(Stdin::Pipe)).unwrap();
    let mut on = [0; 3];
    process.take_stdout().unwrap().read_exact(&mut on).await.unwrap();
    let exit = process.stop(Ladder::at_once()).await;
    assert_eq!(exit.survivors, []);
    assert_eq!(living(&token), []);
}
