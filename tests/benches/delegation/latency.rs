//! From the emission of a delta until a watcher has it, while four runs stream.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use offspring_delegation::RootOptions;
use offspring_pool::{Pool, Registry};
use offspring_sessions::{
    ManagerOptions, Scope, Subscription,
    store::sqlite::{SqliteOptions, SqliteStore},
};
use tokio::sync::{mpsc, watch};

use crate::{
    Failed, Setting,
    node::{InProcess, manifest},
    report::{Goal, Report, percentile},
};

/// Runs that stream at the same time.
const RUNS: usize = 4;

/// The time now, in a form that survives being merged with others.
pub(crate) fn stamp() -> String {
    format!("@{};", now())
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// A stamp and how old it was when it was seen, in milliseconds.
type Seen = (u128, f64);

/// What each of some watchers saw.
type Watched = Vec<Vec<Seen>>;

/// Every stamp in a line.
fn ages(line: &str) -> impl Iterator<Item = Seen> {
    let now = now();
    let stamps = line.split('@').skip(1).filter_map(|rest| rest.split_once(';')?.0.parse::<u128>().ok());
    #[expect(clippy::cast_precision_loss, reason = "an age in nanoseconds is far below 2^52")]
    stamps.map(move |then| (then, now.saturating_sub(then) as f64 / 1e6))
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    report.title("from a delta's emission until a watcher has it, four runs with a delta every 5 ms each");
    let repetitions = setting.size.pick(1, 5);
    let stamps: usize = setting.size.pick(60, 600);
    let (mut same, mut other) = (Percentiles::default(), Percentiles::default());
    for repetition in 0..repetitions {
        let (here, there) = stream(setting, stamps, repetition).await?;
        for (name, watchers) in [("in this process", &here), ("in another", &there)] {
            for seen in watchers {
                let once = seen.len() == stamps && seen.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let all = || format!("{} of {stamps} deltas {name}, or not in their order", seen.len());
                report.check("a watcher sees every delta once, in order", once.then_some(()).ok_or_else(all));
            }
        }
        same.add(here);
        other.add(there);
    }
    report.figure("same process, p50", &same.p50, "ms", Goal::None);
    report.figure("same process, p99", &same.p99, "ms", Goal::AtMost(25.0));
    report.figure("another process (`watch --json`), p50", &other.p50, "ms", Goal::None);
    report.figure("another process (`watch --json`), p99", &other.p99, "ms", Goal::AtMost(150.0));
    Ok(())
}

#[derive(Default)]
struct Percentiles {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Percentiles {
    fn add(&mut self, watchers: Watched) {
        let mut ages: Vec<f64> = watchers.into_iter().flatten().map(|(_, age)| age).collect();
        self.p50.push(percentile(&mut ages, 0.5));
        self.p99.push(percentile(&mut ages, 0.99));
    }
}

/// What each watcher in this process saw, and each in another.
async fn stream(setting: &Setting, stamps: usize, repetition: usize) -> Result<(Watched, Watched), Failed> {
    let path = setting.file(&format!("stream-{repetition}.db"));
    let (start, go) = watch::channel(false);
    let registry = Registry::default().with(InProcess { go });
    let manifest =
        manifest(&format!("agents:\n  stream: {{type: inprocess, stamped: {stamps}, every_ms: 5}}\n"))?;
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default())?);
    let pool = Pool::open(&manifest, &registry, store, ManagerOptions::default()).await?;
    let mut runs = Vec::new();
    let mut here = Vec::new();
    let mut there = Vec::new();
    // Each watcher says that it has seen something before the first stamp is made.
    let (ready, mut readied) = mpsc::channel(RUNS);
    for _ in 0..RUNS {
        let root = pool.run(None, "stream".into(), RootOptions::default()).await?;
        let id = root.session.id.clone();
        here.push(tokio::spawn(in_process(pool.manager().subscribe(Scope::Subtree(id.clone())))));
        let mut watcher = Command::new(&setting.program)
            .arg("--db")
            .arg(&path)
            .args(["watch", id.as_str(), "--json"])
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = watcher.stdout.take().ok_or("a watcher has no stdout")?;
        let ready = ready.clone();
        let reader = thread::spawn(move || from_pipe(lines, &ready));
        there.push((watcher, reader));
        runs.push(root);
    }
    for _ in 0..RUNS {
        readied.recv().await.ok_or("a watcher ended before the run")?;
    }
    start.send(true)?;
    for run in runs {
        run.result.await?;
    }
    let mut seen_there = Vec::new();
    for (mut watcher, reader) in there {
        // Ends by itself with the run.
        let (ages, watcher) = tokio::task::spawn_blocking(move || (reader.join(), watcher.wait())).await?;
        if !watcher?.success() {
            return Err("a watcher failed".into());
        }
        seen_there.push(ages.map_err(|_| "a reader failed")??);
    }
    pool.close().await?;
    let mut seen_here = Vec::new();
    for watcher in here {
        seen_here.push(watcher.await?);
    }
    Ok((seen_here, seen_there))
}

/// Until the bus is closed.
async fn in_process(mut heard: Subscription) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Ok(Some(envelopes)) = heard.recv_many().await {
        for envelope in envelopes {
            seen.extend(ages(envelope.event.data().get()));
        }
    }
    seen
}

/// Until the watcher ends.
fn from_pipe(lines: ChildStdout, ready: &mpsc::Sender<()>) -> Result<Vec<Seen>, std::io::Error> {
    let mut seen = Vec::new();
    let mut first = true;
    for line in BufReader::new(lines).lines() {
        seen.extend(ages(&line?));
        if std::mem::take(&mut first) {
            // The other side waits for as many as there are watchers.
            let _ = ready.try_send(());
        }
    }
    Ok(seen)
}
