//! What a child keeps in memory while its tree is there.

use std::sync::Arc;

use offspring_sessions::{
    MemoryStore, SessionStore,
    store::sqlite::{SqliteOptions, SqliteStore},
};

use crate::{
    Failed, Setting,
    machine::resident_bytes,
    node::team,
    report::{Goal, Report, count},
    team::{Bench, MEMBERS},
};

/// Resident memory after many children less that after some, so that what a pool needs once does not count.
pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    report.title("memory of a team of 100, by resident memory (in Python: about 40 KiB per child)");
    let file = SqliteStore::open(setting.file("heap.db"), SqliteOptions::default())?;
    let stores: [(&str, Arc<dyn SessionStore>); 2] =
        [("SQLite", Arc::new(file)), ("memory", Arc::new(MemoryStore::new()))];
    for (name, store) in stores {
        let (first, then) = setting.size.pick((20, 30), (40, 200));
        let mut bench = Bench::open(&team(MEMBERS)?, store, MEMBERS).await?;
        bench.runs(first, report).await?;
        let Some(before) = resident_bytes() else {
            report.note("this system does not say how much memory a process holds");
            return Ok(());
        };
        bench.runs(then, report).await?;
        let after = resident_bytes().unwrap_or(before);
        let per_child = count(after.saturating_sub(before)) / count((then * MEMBERS) as u64);
        report.figure(&format!("heap per child, {name}"), &[per_child], "bytes", Goal::AtMost(4_096.0));
        bench.pool.close().await?;
    }
    Ok(())
}
