//! Where sessions are kept, how big that is, and whether it is well.

use std::{path::PathBuf, time::Duration};

use offspring_sessions::{
    StoreError,
    store::{
        postgres::{self, PostgresAddress, PostgresLook},
        sqlite::{FileLook, StoreLook, look as look_at},
    },
};
use serde_json::{Value, json};

use super::{Finding, Level};
use crate::{
    failure::Failure,
    store::Place,
    text::{bytes, counted, shell_word},
    variables,
};

/// Beyond this one is told what could go.
const MUCH: u64 = 1 << 30;
/// Less room than this is said.
const LITTLE: u64 = 256 << 20;
/// So long is checked, unless all is to be.
const CHECKED: Duration = Duration::from_secs(15);

/// `program` is how it is called on this store.
pub(super) async fn look(
    place: Result<Place, Failure>,
    is_named: bool,
    full: bool,
    program: &str,
) -> (Value, Vec<Finding>) {
    let chosen_by = if is_named {
        "--db"
    } else if std::env::var_os(variables::DB).is_some_and(|db| !db.is_empty()) {
        variables::DB
    } else if std::env::var_os(variables::DB_FILE).is_some_and(|file| !file.is_empty()) {
        variables::DB_FILE
    } else {
        "default"
    };
    let path = match place {
        Ok(Place::Memory) => {
            let found = Finding { level: Level::Note, ..Finding::ok("store", "memory: nothing is kept") };
            return (json!({ "chosen_by": chosen_by, "path": null }), vec![found]);
        }
        Ok(Place::Database(address)) => return database(&address, chosen_by).await,
        Ok(Place::File(path)) => path,
        Err(failure) => {
            let said = failure.to_string();
            let (found, todo) = said.split_once('\n').unwrap_or((&said, "name a file with --db"));
            return (Value::Null, vec![Finding::problem("store", found, todo)]);
        }
    };
    let bound = if full { Duration::MAX } else { CHECKED };
    let file = path.clone();
    let looked = tokio::task::spawn_blocking(move || look_at(&file, bound)).await;
    let place = json!({ "chosen_by": chosen_by, "path": path.to_string_lossy() });
    match looked {
        Ok(Ok(look)) => (as_json(place, &look), findings(&path, chosen_by, &look, program)),
        Ok(Err(error)) => (place, vec![refused(&path, &error)]),
        Err(error) => (place, vec![Finding::problem("store", error.to_string(), "look again")]),
    }
}

/// A database: what is there, and that nothing of it can be read on the way.
async fn database(address: &PostgresAddress, chosen_by: &str) -> (Value, Vec<Finding>) {
    let server = address.to_string();
    let mut place = json!({ "chosen_by": chosen_by, "path": null, "server": server });
    let look = match postgres::look(address).await {
        Ok(look) => look,
        Err(error) => {
            let todo = "name another database or a file with --db or OFFSPRING_DB";
            return (place, vec![Finding::problem("store", error.to_string(), todo)]);
        }
    };
    let PostgresLook { server: version, is_verified, round_trip, schema, newest_schema, .. } = &look;
    place["server_version"] = version.as_str().into();
    place["is_verified"] = (*is_verified).into();
    place["round_trip_us"] = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX).into();
    place["exists"] = schema.is_some().into();
    place["schema"] = (*schema).into();
    place["newest_schema"] = (*newest_schema).into();
    place["roots"] = look.roots.into();
    place["sessions"] = look.sessions.into();
    place["bytes"] = look.bytes.into();
    place["open_by"] = look.open_by.into();
    let where_ = format!("{server} ({chosen_by}), PostgreSQL {version}");
    let count = |number: u64, one, more| counted(usize::try_from(number).unwrap_or(usize::MAX), one, more);
    let mut findings = vec![match schema {
        None => {
            let found = format!("{where_}: nothing is kept yet");
            Finding { level: Level::Note, ..Finding::ok("store", found) }
        }
        Some(schema) => Finding::ok(
            "store",
            format!(
                "{where_}: {}, {}, schema {schema}",
                count(look.roots, "tree", "trees"),
                count(look.sessions, "session", "sessions")
            ),
        ),
    }];
    findings.push(Finding::ok("size", bytes(look.bytes)));
    if look.open_by > 0 {
        findings.push(Finding::ok("in use", format!("by {}", count(look.open_by, "program", "programs"))));
    }
    if !is_verified && !address.is_local() {
        let found = "prompts and answers go over the network as they are".to_owned();
        let todo = "leave sslmode=disable out of the address";
        findings.push(Finding::new("access", Level::Warning, found, todo));
    }
    (place, findings)
}

fn as_json(mut place: Value, look: &StoreLook) -> Value {
    let of = |ending: &str| {
        let found = look.beside.iter().find(|(path, _)| path.to_string_lossy().ends_with(ending));
        found.map_or(0, |(_, bytes)| *bytes)
    };
    let copies: Vec<Value> =
        copies(look).map(|(path, bytes)| json!({ "path": path.to_string_lossy(), "bytes": bytes })).collect();
    place["bytes"] = look.bytes().into();
    place["wal_bytes"] = of("-wal").into();
    place["shm_bytes"] = of("-shm").into();
    place["copies"] = copies.into();
    place["free_bytes"] = look.free_bytes.into();
    place["open_by"] = look.open_by.into();
    place["exists"] = look.file.is_some().into();
    if let Some(FileLook { bytes, schema, newest_schema, roots, sessions, is_checked }) = &look.file {
        place["file_bytes"] = (*bytes).into();
        place["schema"] = (*schema).into();
        place["newest_schema"] = (*newest_schema).into();
        place["roots"] = (*roots).into();
        place["sessions"] = (*sessions).into();
        place["is_checked"] = (*is_checked).into();
    }
    place
}

/// What beside the store is neither its log nor its index.
fn copies(look: &StoreLook) -> impl Iterator<Item = &(PathBuf, u64)> {
    let working = ["-wal", "-shm", "-journal"];
    look.beside.iter().filter(move |(path, _)| {
        let path = path.to_string_lossy();
        !working.iter().any(|ending| path.ends_with(ending))
    })
}

fn findings(path: &std::path::Path, chosen_by: &str, look: &StoreLook, program: &str) -> Vec<Finding> {
    let place = format!("{} ({chosen_by})", path.display());
    let mut findings = Vec::new();
    match &look.file {
        None => {
            let found = format!("{place}: nothing is kept yet, and it can be made");
            findings.push(Finding { level: Level::Note, ..Finding::ok("store", found) });
        }
        Some(FileLook { schema, newest_schema, roots, sessions, is_checked, .. }) => {
            let count =
                |number: u64, one, more| counted(usize::try_from(number).unwrap_or(usize::MAX), one, more);
            let held =
                format!("{}, {}", count(*roots, "tree", "trees"), count(*sessions, "session", "sessions"));
            findings.push(Finding::ok("store", format!("{place}: {held}, schema {schema}")));
            if schema < newest_schema {
                let found = format!("schema {schema} is older than this program's {newest_schema}");
                let todo =
                    "the next command that opens the store brings it up to date, and keeps a copy beside it";
                findings.push(Finding::new("schema", Level::Note, found, todo));
            }
            if !is_checked {
                let found = format!("checked for {} s and not to its end", CHECKED.as_secs());
                findings.push(Finding::new("check", Level::Note, found, format!("{program} doctor --full")));
            }
        }
    }
    findings.push(size(look, program));
    if look.open_by > 0 {
        findings.push(Finding::ok("in use", format!("by {}", counted(look.open_by, "program", "programs"))));
    }
    if !look.open_to_others.is_empty() {
        let words: Vec<String> =
            look.open_to_others.iter().map(|path| shell_word(&path.to_string_lossy()).into_owned()).collect();
        let found = "other users can read prompts and answers".to_owned();
        let todo = format!("chmod -R go= {}", words.join(" "));
        findings.push(Finding::new("access", Level::Warning, found, todo));
    }
    findings
}

fn size(look: &StoreLook, program: &str) -> Finding {
    let all = look.bytes();
    let copies: u64 = copies(look).map(|(_, bytes)| bytes).sum();
    let free = look.free_bytes.map(|free| format!(", {} free", bytes(free))).unwrap_or_default();
    let of_copies = if copies == 0 { String::new() } else { format!(" ({} in copies)", bytes(copies)) };
    let found = format!("{}{of_copies}{free}", bytes(all));
    if all > MUCH {
        let mut todo = format!("see what could go: {program} prune --to-size 1GiB --dry-run");
        for (path, _) in self::copies(look) {
            todo.push_str(&format!(
                "\na copy that nothing needs any more: rm {}",
                shell_word(&path.to_string_lossy())
            ));
        }
        return Finding::new("size", Level::Warning, found, todo);
    }
    if look.free_bytes.is_some_and(|free| free < LITTLE) {
        let todo = "make room: a run whose store cannot grow is stopped";
        return Finding::new("size", Level::Warning, found, todo);
    }
    Finding::ok("size", found)
}

/// A store that no command could use, or none of this version.
fn refused(path: &std::path::Path, error: &StoreError) -> Finding {
    let word = shell_word(&path.to_string_lossy()).into_owned();
    let todo = match error {
        StoreError::Corrupt { .. } => {
            format!(
                "move it away and start a new one: mv {word} {word}.damaged\nor name another file with --db or OFFSPRING_DB"
            )
        }
        StoreError::Newer { .. } => {
            "use the newer program for it, or name another file with --db or OFFSPRING_DB".to_owned()
        }
        StoreError::Busy { .. } => "look again when the other program has ended".to_owned(),
        _ => "name another file with --db or OFFSPRING_DB, or keep nothing with --db memory:".to_owned(),
    };
    Finding::problem("store", error.to_string(), todo)
}
