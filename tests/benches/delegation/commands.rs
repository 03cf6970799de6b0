//! How much of a command's 20 ms goes to its record.

use std::{sync::Arc, time::Instant};

use offspring_agents::CommandFactory;
use offspring_delegation::RootOptions;
use offspring_pool::{Pool, Registry};
use offspring_process::GuardProgram;
use offspring_protocol::Outcome;
use offspring_sessions::{
    ManagerOptions, MemoryStore, Scope,
    store::sqlite::{SqliteOptions, SqliteStore},
};

use crate::{
    Failed, Setting,
    machine::cpu_time,
    node::manifest,
    report::{Goal, Report, at_most, count},
    store::Counted,
};

/// How long the command takes.
const COMMAND_MS: f64 = 20.0;
/// A root alone commits so often: its row, its start, its end.
const ROOT_COMMITS: u64 = 3;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    let (repetitions, members) = setting.size.pick((3, 10), (5, 100));
    report.title("commands of 20 ms one after another, with their guard, output and endpoint");
    let (mut share, mut by_cpu, mut more, mut commits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        let path = setting.file(&format!("commands-{repetition}.db"));
        let sqlite = Counted::new(SqliteStore::open(&path, SqliteOptions::default())?);
        let stored = run(setting, &sqlite, members).await?;
        let memory = run(setting, &Counted::new(MemoryStore::new()), members).await?;
        let members = count(members as u64);
        let in_flight = sqlite.in_flight().as_secs_f64() * 1_000.0 / members;
        share.push(in_flight / COMMAND_MS * 100.0);
        by_cpu.push((stored.cpu - memory.cpu) * 1_000.0 / members / COMMAND_MS * 100.0);
        more.push((stored.wall - memory.wall) * 1_000.0 / members);
        commits.push(count(sqlite.commits().saturating_sub(ROOT_COMMITS)) / members);
    }
    report.figure("persistence: commits in flight", &share, "% of 20 ms", Goal::AtMost(5.0));
    report.figure("persistence: CPU, SQLite less memory", &by_cpu, "% of 20 ms", Goal::AtMost(5.0));
    report.figure("wall per command, SQLite less memory", &more, "ms", Goal::None);
    report.figure("commits per command", &commits, "", Goal::AtMost(4.0));
    report.check("at most 4 commits per command", at_most(4.0, &commits));
    Ok(())
}

/// Seconds for so many commands; the CPU time is this process's alone.
struct Took {
    wall: f64,
    cpu: f64,
}

async fn run(setting: &Setting, store: &Counted, members: usize) -> Result<Took, Failed> {
    let names = vec!["nap"; members].join(", ");
    let manifest = manifest(&format!(
        "agents:\n  nap: {{type: command, command: [sh, -c, \"sleep 0.02; echo rested\"]}}\nteams:\n  \
         all: {{mode: sequential, members: [{names}]}}\nentry: all\n"
    ))?;
    let guard = GuardProgram::new(&setting.program).arg("__guard");
    let registry = Registry::default().with(CommandFactory::new(setting.program.clone(), Some(guard), None));
    let pool = Pool::open(&manifest, &registry, Arc::new(store.clone()), ManagerOptions::default()).await?;
    let mut heard = pool.manager().subscribe(Scope::All);
    let reader = tokio::spawn(async move { while let Ok(Some(_)) = heard.recv_many().await {} });
    let cwd = setting.directory.path().to_str().ok_or("the build directory is not UTF-8")?.to_owned();
    let (began, cpu) = (Instant::now(), cpu_time());
    let root =
        pool.run(None, "rest".into(), RootOptions { cwd: Some(cwd), ..RootOptions::default() }).await?;
    let session = root.session.id.clone();
    let result = root.result.await?;
    let wall = began.elapsed().as_secs_f64();
    let cpu = cpu_time().saturating_sub(cpu).as_secs_f64();
    let rows = pool.manager().subtree(&session).await?.len();
    pool.close().await?;
    reader.await?;
    if result.outcome != Outcome::Completed || rows != members + 1 {
        return Err(format!("{rows} rows for {members} commands, and the root ended as {result:?}").into());
    }
    Ok(Took { wall, cpu })
}
