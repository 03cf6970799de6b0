//! The process of one measurement: `--child everything|memory-everything|memory-nothing SCRIPT ROOTS`.

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
    time::Instant,
};

use offspring_client::{Harness, HarnessClient, Keep, RuntimeCommand, TurnResult, dsh::InitializeParams};
use offspring_protocol::SessionId;
use offspring_tests::streams::{
    bench::{Checksum, root},
    json::quoted,
};
use offspring_transport::{FrameDecoder, FrameEvent};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::{
    Failed, machine,
    measured::{Measured, Run},
};

/// The program that plays scripts.
pub(crate) const PLAYER: &str = env!("CARGO_BIN_EXE_stream-player");

pub(crate) fn run(words: &[String]) -> Result<(), Failed> {
    let [what, script, roots] = words else { return Err("--child needs three words".into()) };
    let roots = roots.parse()?;
    let floor_cpu_seconds = if what == "everything" { floor(script, roots)? } else { 0.0 };
    let keep = if what == "memory-nothing" { Keep::Nothing } else { Keep::Everything };
    // The same runtime as the program's.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut measured = runtime.block_on(turns(script, roots, keep, what == "everything"))?;
    measured.floor_cpu_seconds = floor_cpu_seconds;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// The least that any client has to do: read the pipe, find the lines, scan each once. CPU seconds.
fn floor(script: &str, roots: usize) -> Result<f64, Failed> {
    let mut player = Command::new(PLAYER).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut input, mut output) =
        (player.stdin.take().ok_or("no stdin")?, player.stdout.take().ok_or("no stdout")?);
    for number in 0..roots {
        let id = quoted(&root(number, roots));
        writeln!(input, r#"{{"id":{number},"method":"session/prompt","params":{{"sessionId":{id}}}}}"#)?;
    }
    let before = machine::cpu_time();
    let mut decoder = FrameDecoder::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut idle = 0;
    let mut lines: u64 = 0;
    while idle < roots {
        let read = output.read(&mut buffer)?;
        if read == 0 {
            return Err(format!("the player ended after {lines} lines").into());
        }
        let mut bytes = &buffer[..read];
        while let Some(event) = decoder.decode(&mut bytes) {
            let FrameEvent::Frame(frame) = event else { continue };
            serde_json::from_slice::<IgnoredAny>(frame)?;
            lines += 1;
            // The end of each root; only looked for where it can be.
            if frame.len() < 120 && frame.ends_with(br#""status":"idle"}}"#) && is_root(frame) {
                idle += 1;
            }
        }
    }
    let used = machine::cpu_time().saturating_sub(before);
    drop(input);
    player.wait()?;
    Ok(used.as_secs_f64())
}

fn is_root(frame: &[u8]) -> bool {
    let text = std::str::from_utf8(frame).unwrap_or_default();
    let id = text.split(r#""sessionId":""#).nth(1).and_then(|rest| rest.split('"').next());
    id.is_some_and(|id| id.starts_with("bench-root") && !id.contains('/'))
}

async fn turns(script: &str, roots: usize, keep: Keep, sum_up: bool) -> Result<Measured, Failed> {
    let params = InitializeParams {
        cwd: "/".into(),
        provider: "deepseek-official".into(),
        model: "deepseek-v4-flash".into(),
        reasoning_effort: None,
        max_tokens: None,
    };
    let command = RuntimeCommand::new(PLAYER).arg(script);
    let harness = Harness::start(HarnessClient::builder(), &command, &params).await?;
    let (cpu, began) = (machine::cpu_time(), Instant::now());
    let mut running = Vec::new();
    for number in 0..roots {
        let session = harness.session(SessionId::new(root(number, roots))?);
        running.push(tokio::spawn(async move { session.turn("go").keep(keep).run().await }));
    }
    let mut results = Vec::new();
    for run in running {
        results.push(run.await??);
    }
    let wall_seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = machine::cpu_time().saturating_sub(cpu).as_secs_f64();
    let peak_bytes = peak_bytes();
    let runs = results.iter().map(|result| given(result, sum_up)).collect();
    harness.close().await;
    Ok(Measured { cpu_seconds, wall_seconds, peak_bytes, runs, floor_cpu_seconds: 0.0 })
}

fn given(result: &TurnResult, sum_up: bool) -> Run {
    let mut checksum = Checksum::default();
    for one in result.notifications.iter().filter(|_| sum_up) {
        checksum.add(one.method(), one.session_id(), one.params().map_or("{}", RawValue::get));
    }
    Run {
        final_response: result.final_response.clone().unwrap_or_default(),
        finish_reason: result.finish_reason.clone(),
        notifications: result.notifications.len(),
        checksum: checksum.finish(),
    }
}

/// The most this process has held so far; 0 where the system does not say.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
