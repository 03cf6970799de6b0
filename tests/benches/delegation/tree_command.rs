//! `offspring tree` of 10,000 sessions, from the start of the program to its last byte.

use std::{process::Command, sync::Arc, time::Instant};

use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};

use crate::{
    Failed, Setting,
    node::team_of_teams,
    report::{Goal, Report},
    team::Bench,
};

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    report.title("`offspring tree ID --json` of 10,000 sessions in a file, by the wall clock");
    let (teams, members) = (99, 100);
    let sessions = 1 + teams * (members + 1);
    let path = setting.file("tree.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default())?);
    let mut bench = Bench::open(&team_of_teams(teams, members)?, store, sessions - 1).await?;
    bench.runs(1, report).await?;
    bench.pool.close().await?;
    let mut times = Vec::new();
    for _ in 0..setting.size.pick(2, 15) {
        let began = Instant::now();
        let output = Command::new(&setting.program)
            .arg("--db")
            .arg(&path)
            .args(["tree", "latest", "--json"])
            .output()?;
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let tree: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let printed = tree["sessions"].as_array().map_or(0, Vec::len);
        let all = if printed == sessions { Ok(()) } else { Err(format!("{printed} of {sessions}")) };
        report.check("`tree` prints every session", all);
    }
    report.figure(&format!("`tree` of {sessions} sessions"), &times, "ms", Goal::AtMost(200.0));
    Ok(())
}
