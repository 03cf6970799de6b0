//! `cargo xtask bench client [--smoke]`: what a notification costs a client.
//!
//! A deterministic stream (`offspring_tests::streams::bench`) comes through a real pipe from a process that writes as
//! fast as the pipe takes it. Each measurement is a process of its own. A ratio between two clients is printed only when
//! both gave the same final response, finish reason, number of notifications and checksum; where they do not, the
//! benchmark fails. Times never fail it: each is printed with its goal. `docs/benchmarks.md` says how to read them.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]

#[path = "client/child.rs"]
mod child;
#[path = "delegation/machine.rs"]
#[expect(dead_code, reason = "shared with the other benchmark")]
mod machine;
#[path = "client/measured.rs"]
mod measured;
#[path = "delegation/report.rs"]
#[expect(dead_code, reason = "shared with the other benchmark")]
mod report;
#[path = "client/stream.rs"]
mod stream;

use std::{path::PathBuf, process::ExitCode};

use measured::{Measured, ours, sdk, typescript};
use offspring_tests::streams::bench::Mix;
use report::{Goal, Report};
use stream::Made;

/// Anything that went wrong, with its words.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Enough to check what can be counted.
    Smoke,
    /// Enough to trust the times.
    Full,
}

impl Size {
    const fn pick<T: Copy>(self, smoke: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Full => full,
        }
    }
}

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    smoke: bool,
    /// Only measurements whose name begins so.
    only: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--child") => child::run(&words[1..]).map(|()| ExitCode::SUCCESS),
        _ => parse(&words).and_then(|asked| measure(&asked)).map(Report::finish),
    };
    done.unwrap_or_else(|failed| {
        println!("FAILED: {failed}");
        ExitCode::FAILURE
    })
}

fn parse(words: &[String]) -> Result<Asked, Failed> {
    let mut asked = Asked::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--smoke" => asked.smoke = true,
            "--only" => {
                asked.only = Some(words.next().ok_or("--only needs the name of a measurement")?.clone());
            }
            // What cargo tells every benchmark.
            "--bench" => {}
            other => return Err(format!("`{other}` is not known: --smoke, --only NAME").into()),
        }
    }
    Ok(asked)
}

fn measure(asked: &Asked) -> Result<Report, Failed> {
    let size = if asked.smoke { Size::Smoke } else { Size::Full };
    let wanted = |name: &str| asked.only.as_deref().is_none_or(|only| name.starts_with(only));
    machine::print("client", size);
    let directory = tempfile::Builder::new().prefix("bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let python = std::env::var_os("OFFSPRING_DSH_PYTHON").map(PathBuf::from);
    let mut report = Report::default();
    let lines = size.pick(10_000, 200_000);
    let small = stream::make(directory.path(), "small", Mix::Small, lines, 1)?;
    if wanted("small") {
        one_run(&mut report, size, &small, python.as_ref())?;
    }
    if wanted("real") {
        let real = stream::make(directory.path(), "real", Mix::Real, lines / 4, 1)?;
        one_run(&mut report, size, &real, python.as_ref())?;
    }
    if wanted("memory") {
        let shorter = stream::make(directory.path(), "shorter", Mix::Small, lines / 4, 1)?;
        memory(&mut report, size, &small, &shorter)?;
    }
    if wanted("runs") {
        let several = [16, 256]
            .map(|roots| stream::make(directory.path(), &format!("roots-{roots}"), Mix::Small, lines, roots));
        for made in several {
            concurrent(&mut report, size, &small, &made?, python.as_ref())?;
        }
    }
    Ok(report)
}

/// What one turn over the whole stream costs: the floor, ours, the Python SDK.
fn one_run(report: &mut Report, size: Size, made: &Made, python: Option<&PathBuf>) -> Result<(), Failed> {
    report.title(&made.title());
    let ours = repeated(size, || ours(made, "everything"))?;
    check(report, made, &ours)?;
    let floor: Vec<f64> = ours.iter().map(|one| one.per_notification(one.floor_cpu_seconds)).collect();
    report.figure("floor: read, split, one scan: CPU", &floor, "µs", Goal::None);
    let cpu: Vec<f64> = ours.iter().map(Measured::cpu).collect();
    report.figure("ours: CPU per notification", &cpu, "µs", Goal::None);
    let against: Vec<f64> = cpu.iter().zip(&floor).map(|(cpu, floor)| cpu / floor).collect();
    report.figure("ours / floor", &against, "times", Goal::AtMost(2.0));
    let wall: Vec<f64> = ours.iter().map(Measured::per_second).collect();
    report.figure("ours: notifications per second", &wall, "/s", Goal::None);
    // What of it is the memory of what is kept, most of it the kernel's.
    let nothing = repeated(size, || measured::ours(made, "memory-nothing"))?;
    let nothing: Vec<f64> = nothing.iter().map(|one| one.cpu_seconds * 1e6 / made.lines as f64).collect();
    report.figure("ours, nothing kept: CPU per notification", &nothing, "µs", Goal::None);
    let Some(python) = python else {
        report.note("the Python SDK is not there (OFFSPRING_DSH_PYTHON): no ratio");
        return Ok(());
    };
    let sdk = repeated(size, || sdk(python, made))?;
    let sdk_cpu: Vec<f64> = sdk.iter().map(Measured::cpu).collect();
    report.figure("Python SDK 0.2.1rc2: CPU per notification", &sdk_cpu, "µs", Goal::None);
    let wall: Vec<f64> = sdk.iter().map(Measured::per_second).collect();
    report.figure("Python SDK: notifications per second", &wall, "/s", Goal::None);
    if alike(report, &ours, &sdk) {
        let ratio: Vec<f64> = sdk_cpu.iter().zip(&cpu).map(|(sdk, ours)| sdk / ours).collect();
        report.figure("Python SDK / ours, by CPU", &ratio, "times", Goal::AtLeast(25.0));
        let peaks = |of: &[Measured]| -> Vec<f64> { of.iter().map(|one| one.peak_of(made)).collect() };
        report.figure("Python SDK: peak memory / bytes on the wire", &peaks(&sdk), "times", Goal::None);
    }
    let Some(module) = std::env::var_os("OFFSPRING_DSH_TYPESCRIPT").map(PathBuf::from) else {
        report.note("no bundle of the TypeScript SDK (OFFSPRING_DSH_TYPESCRIPT): no figure of it");
        return Ok(());
    };
    let typescript = repeated(size, || typescript(&module, made))?;
    let typescript_cpu: Vec<f64> = typescript.iter().map(Measured::cpu).collect();
    report.figure("TypeScript SDK: CPU per notification", &typescript_cpu, "µs", Goal::None);
    if alike(report, &ours, &typescript) {
        let ratio: Vec<f64> = typescript_cpu.iter().zip(&cpu).map(|(other, ours)| other / ours).collect();
        report.figure("TypeScript SDK / ours, by CPU", &ratio, "times", Goal::None);
    }
    Ok(())
}

/// The peak of a turn that keeps everything and of one that keeps nothing.
fn memory(report: &mut Report, size: Size, made: &Made, shorter: &Made) -> Result<(), Failed> {
    report.title("memory of one turn, by the peak of resident memory of the whole process");
    let kept = repeated(size, || ours(made, "memory-everything"))?;
    let peaks: Vec<f64> = kept.iter().map(|one| one.peak_of(made)).collect();
    report.figure("everything kept: peak / bytes on the wire", &peaks, "times", Goal::AtMost(2.0));
    let mebibytes = |of: &[Measured]| -> Vec<f64> {
        of.iter().map(|one| one.peak_bytes as f64 / f64::from(1 << 20)).collect()
    };
    report.figure("everything kept: peak", &mebibytes(&kept), "MiB", Goal::None);
    let nothing = repeated(size, || ours(made, "memory-nothing"))?;
    let quarter = repeated(size, || ours(shorter, "memory-nothing"))?;
    report.figure("nothing kept: peak", &mebibytes(&nothing), "MiB", Goal::None);
    let growth: Vec<f64> = nothing
        .iter()
        .zip(&quarter)
        .map(|(all, quarter)| all.peak_bytes as f64 / quarter.peak_bytes as f64)
        .collect();
    report.figure("nothing kept: peak / that of a quarter", &growth, "times", Goal::AtMost(1.1));
    Ok(())
}

/// Many turns at once on one client, against one.
fn concurrent(
    report: &mut Report,
    size: Size,
    one: &Made,
    made: &Made,
    python: Option<&PathBuf>,
) -> Result<(), Failed> {
    report.title(&made.title());
    // In turns, so that a machine that gets busy meets both alike.
    let mut against = Vec::new();
    let (mut alone, mut cpu, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.pick(1, 5) {
        let single = ours(one, "everything")?;
        let several = ours(made, "everything")?;
        against.push(several.cpu() / single.cpu());
        alone.push(single.cpu());
        cpu.push(several.cpu());
        many.push(several);
    }
    check(report, made, &many)?;
    report.figure("one run: CPU per notification", &alone, "µs", Goal::None);
    report.figure("these runs: CPU per notification", &cpu, "µs", Goal::None);
    report.figure("these runs / one run", &against, "times", Goal::AtMost(1.3));
    // Every subscription is asked about every notification there: minutes with more runs than this.
    if let (Some(python), true) = (python, made.roots <= 16) {
        let sdk = [sdk(python, made)?];
        let sdk_cpu: Vec<f64> = sdk.iter().map(Measured::cpu).collect();
        report.figure("Python SDK: CPU per notification", &sdk_cpu, "µs", Goal::None);
        if alike(report, &many, &sdk) {
            report.figure("Python SDK / ours, by CPU", &[sdk_cpu[0] / cpu[0]], "times", Goal::None);
        }
    }
    Ok(())
}

fn repeated(size: Size, run: impl Fn() -> Result<Measured, Failed>) -> Result<Vec<Measured>, Failed> {
    (0..size.pick(1, 5)).map(|_| run()).collect()
}

/// Every notification of the stream is in one turn, and each repetition gave the same.
fn check(report: &mut Report, made: &Made, ours: &[Measured]) -> Result<(), Failed> {
    let first = ours.first().ok_or("nothing was measured")?;
    let delivered: usize = first.runs.iter().map(|run| run.notifications).sum();
    let whole = if delivered == made.lines {
        Ok(())
    } else {
        Err(format!("{delivered} notifications of {} lines", made.lines))
    };
    report.check("every line of the stream is in a turn", whole);
    let same = ours.iter().all(|other| other.runs == first.runs);
    report.check("each repetition gives the same", if same { Ok(()) } else { Err("they differ".to_owned()) });
    Ok(())
}

/// Whether both clients gave the same; only then may they be compared.
fn alike(report: &mut Report, ours: &[Measured], sdk: &[Measured]) -> bool {
    let (Some(ours), Some(sdk)) = (ours.first(), sdk.first()) else { return false };
    let differ = ours.runs.iter().zip(&sdk.runs).find(|(ours, sdk)| ours != sdk);
    let same = match differ {
        None if ours.runs.len() == sdk.runs.len() => Ok(()),
        None => Err(format!("{} runs and {} of the other client", ours.runs.len(), sdk.runs.len())),
        Some((ours, sdk)) => Err(format!("{ours:?} and of the other client {sdk:?}")),
    };
    let alike = same.is_ok();
    report.check("both clients give the same", same);
    alike
}
