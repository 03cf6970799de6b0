//! What programs that were killed left behind: private directories with their sockets, and agents.

use offspring_agents::home::Homes;
use offspring_process::{LeftOver, left_over};
use serde_json::{Value, json};

use super::{Finding, Level};
use crate::text::{counted, shell_word};

/// `program` is how it is called on the store.
pub(super) fn look(program: &str) -> (Value, Vec<Finding>) {
    let homes = Homes::look();
    let mut findings = vec![sockets(&homes)];
    if homes.place.is_none() {
        findings.push(Finding::problem(
            "sockets",
            "there is no directory for the agents' socket",
            "set TMPDIR to a directory you can write to, with a path of at most 80 bytes",
        ));
    }
    let left = left_over();
    findings.push(agents(left.as_deref(), program));
    let paths = |paths: &[std::path::PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    };
    let agents: Vec<Value> =
        left.iter().flatten().map(|left| json!({ "pid": left.pid, "name": left.name })).collect();
    let json = json!({
        "directory": homes.place.as_ref().map(|place| place.to_string_lossy()),
        "at_work": paths(&homes.living), "stale": paths(&homes.stale), "agents": agents,
    });
    (json, findings)
}

fn sockets(homes: &Homes) -> Finding {
    if homes.stale.is_empty() {
        let at_work = counted(homes.living.len(), "program is", "programs are");
        return Finding::ok("sockets", format!("{at_work} at work, none was left behind"));
    }
    let words: Vec<String> =
        homes.stale.iter().map(|path| shell_word(&path.to_string_lossy()).into_owned()).collect();
    Finding::problem(
        "sockets",
        format!(
            "left by {} that was killed: {}",
            counted(words.len(), "program", "programs"),
            words.join(" ")
        ),
        format!("rm -r {}\nor start a pool, which removes them", words.join(" ")),
    )
}

fn agents(left: Result<&[LeftOver], &std::io::Error>, program: &str) -> Finding {
    match left {
        Err(error) => Finding {
            level: Level::Note,
            ..Finding::ok("agents", format!("whether some were left behind cannot be told: {error}"))
        },
        Ok([]) => Finding::ok("agents", "none was left behind"),
        Ok(left) => {
            let pids: Vec<String> = left.iter().map(|left| left.pid.to_string()).collect();
            let shown: Vec<String> =
                left.iter().map(|left| format!("{} ({})", left.pid, left.name)).collect();
            Finding::problem(
                "agents",
                format!("still there although their program was killed: {}", shown.join(", ")),
                format!(
                    "{program} ls\nany that are still there then belong to another store: kill -9 {}",
                    pids.join(" ")
                ),
            )
        }
    }
}
