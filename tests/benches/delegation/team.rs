//! A team of 100 nodes in this process: what a child costs in CPU, in wall time, in commits and in the file.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use offspring_delegation::RootOptions;
use offspring_pool::{Manifest, Pool, Registry};
use offspring_protocol::Outcome;
use offspring_sessions::{
    ManagerOptions, MemoryStore, Scope, SessionStore,
    store::sqlite::{SqliteOptions, SqliteStore},
};

use crate::{
    Failed, Setting,
    announced::Listener,
    floor,
    machine::cpu_time,
    node::{InProcess, team},
    report::{Goal, Report, at_most, count},
    store::Counted,
};

/// Members of the team.
pub(crate) const MEMBERS: usize = 100;
/// Roots before those that are measured: the first ones meet cold caches and fresh memory.
const WARM_UP: usize = 1;

/// Runs the entry of a pool again and again, and checks each tree.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    listener: Listener,
    children: usize,
}

/// What some runs took, without the checks after each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    cpu: Duration,
}

impl Bench {
    /// A pool of this manifest whose tree has so many children.
    pub(crate) async fn open(
        manifest: &Manifest,
        store: Arc<dyn SessionStore>,
        children: usize,
    ) -> Result<Self, Failed> {
        let registry = Registry::default().with(InProcess::new());
        let pool = Pool::open(manifest, &registry, store, ManagerOptions::default()).await?;
        let listener = Listener::new(pool.manager().subscribe(Scope::All));
        Ok(Self { pool, listener, children })
    }

    /// Runs so many roots, one after another. What the store says is compared after each.
    pub(crate) async fn runs(&mut self, roots: usize, report: &mut Report) -> Result<Took, Failed> {
        let mut took = Took::default();
        for _ in 0..roots {
            let (began, cpu) = (Instant::now(), cpu_time());
            let root =
                self.pool.run(None, "What would you fix first?".into(), RootOptions::default()).await?;
            let result = root.result.await?;
            let announced = self.listener.next().await?;
            took.wall += began.elapsed();
            took.cpu += cpu_time().saturating_sub(cpu);
            if result.outcome != Outcome::Completed {
                return Err(format!("a root ended as {result:?}").into());
            }
            report.check(
                "what was announced is stored",
                announced.check(self.pool.manager(), self.children).await,
            );
        }
        Ok(took)
    }
}

/// Children per second.
fn rate(roots: usize, took: Duration) -> f64 {
    count((roots * MEMBERS) as u64) / took.as_secs_f64()
}

pub(crate) async fn in_memory(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    let (repetitions, roots) = setting.size.pick((1, 10), (9, 100));
    report.title("a team of 100 in memory (the same RFC in Python: about 196 children per CPU-second)");
    let (mut by_cpu, mut by_wall) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let mut bench = Bench::open(&team(MEMBERS)?, Arc::new(MemoryStore::new()), MEMBERS).await?;
        bench.runs(WARM_UP, report).await?;
        let took = bench.runs(roots, report).await?;
        by_cpu.push(rate(roots, took.cpu));
        by_wall.push(rate(roots, took.wall));
        bench.pool.close().await?;
    }
    report.figure("memory: children per CPU-second", &by_cpu, "/s", Goal::AtLeast(20_000.0));
    report.figure("memory: children per second", &by_wall, "/s", Goal::None);
    Ok(())
}

pub(crate) async fn in_sqlite(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    let (repetitions, roots, roots_apart) = setting.size.pick((1, 10, 2), (9, 50, 5));
    report.title("a team of 100 in SQLite");
    let (mut grouped, mut by_cpu, mut apart, mut floors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut bytes, mut commits, mut commits_apart) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        // Turn by turn, so that other load on the machine meets all of them.
        let path = setting.file(&format!("grouped-{repetition}.db"));
        let store = Counted::new(SqliteStore::open(&path, SqliteOptions::default())?);
        let took = run(&store, roots, report).await?;
        grouped.push(rate(roots, took.wall));
        by_cpu.push(rate(roots, took.cpu));
        let all = roots + WARM_UP;
        let children = count((all * MEMBERS) as u64);
        commits.push(count(store.commits()) / children);
        bytes.push(count(file_bytes(&path)) / children);
        let floor =
            floor::replay(&path, &setting.file(&format!("floor-{repetition}.db")), store.commits(), report)?;
        floors.push(rate(all, floor));

        let path = setting.file(&format!("apart-{repetition}.db"));
        let options = SqliteOptions { max_group: 1, ..SqliteOptions::default() };
        let store = Counted::apart(SqliteStore::open(&path, options)?);
        apart.push(rate(roots_apart, run(&store, roots_apart, report).await?.wall));
        commits_apart.push(count(store.commits()) / count(((roots_apart + WARM_UP) * MEMBERS) as u64));
    }
    let ratio = |of: &[f64], to: &[f64]| of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>();
    report.figure("SQLite, grouped: children per second", &grouped, "/s", Goal::AtLeast(10_000.0));
    report.figure("SQLite, grouped: children per CPU-second", &by_cpu, "/s", Goal::None);
    report.figure("SQLite, each step committed alone", &apart, "/s", Goal::None);
    report.figure("grouped / alone", &ratio(&grouped, &apart), "times", Goal::None);
    report.figure("floor: the same rows by bare rusqlite", &floors, "/s", Goal::None);
    report.figure("grouped / floor", &ratio(&grouped, &floors), "times", Goal::None);
    report.figure("commits per child of a team", &commits, "", Goal::AtMost(4.0));
    report.check("at most 4 commits per child of a team", at_most(4.0, &commits));
    report.figure("commits per child, each step alone", &commits_apart, "", Goal::None);
    report.figure("file per child", &bytes, "bytes", Goal::AtMost(4_096.0));
    Ok(())
}

async fn run(store: &Counted, roots: usize, report: &mut Report) -> Result<Took, Failed> {
    let mut bench = Bench::open(&team(MEMBERS)?, Arc::new(store.clone()), MEMBERS).await?;
    bench.runs(WARM_UP, report).await?;
    let took = bench.runs(roots, report).await?;
    bench.pool.close().await?;
    Ok(took)
}

/// The file and its log.
fn file_bytes(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    length(path) + length(&path.with_extension("db-wal"))
}
