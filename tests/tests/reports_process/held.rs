//! A store that somebody holds, or that was cut off (O24): through the public API of `pool` in processes of their
//! own, and through the program.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, Node, Prompt, RootOptions, Subagent, TaskRequest};
use offspring_pool::{Pool, PromptError};
use offspring_protocol::{NodeName, Outcome, RunState, SessionId};
use offspring_sessions::{
    Answer, ManagerOptions, Refused, RunContext, RunError, SessionManager, SessionStore, StoreError,
    store::{
        SessionQuery,
        sqlite::{SqliteOptions, SqliteStore},
    },
};
use offspring_tests::World;
use rusqlite::Connection;

/// Set in the processes that make children.
const DB: &str = "OFFSPRING_TEST_HELD_DB";
const PROCESSES: usize = 9;
const SPAWNS: usize = 200;
const HELD: Duration = Duration::from_secs(8);

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn pool(db: &Path, options: SqliteOptions) -> Pool {
    let store: Arc<dyn SessionStore> = Arc::new(SqliteStore::open(db, options).unwrap());
    Pool::new(SessionManager::new(store, ManagerOptions::default()))
}

/// Answers what it is asked.
struct Echo(NodeName);

impl Agent for Echo {
    fn name(&self) -> &NodeName {
        &self.0
    }
    fn run(self: Arc<Self>, prompt: Prompt, _: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move { Ok(prompt.text.as_ref().into()) })
    }
}

/// Asks `echo` again and again, one after another.
struct Many {
    name: NodeName,
    delegator: offspring_delegation::Delegator,
}

impl Agent for Many {
    fn name(&self) -> &NodeName {
        &self.name
    }
    fn run(self: Arc<Self>, _: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            let cx = Arc::new(cx);
            say(cx.session().id.as_str());
            tokio::task::spawn_blocking(hear).await.unwrap();
            for number in 0..SPAWNS {
                let request = TaskRequest::new(name("echo"), number.to_string());
                let asked = Subagent::new(&self.delegator).task(&cx, request).await;
                let result = asked.map_err(|refused| RunError::failed("refused", refused.to_string()))?;
                if result.output != number.to_string() {
                    return Err(RunError::failed("mixed up", format!("{number}: {result:?}")));
                }
            }
            Ok("all".into())
        })
    }
}

fn say(word: &str) {
    // The runner's own lines do not begin like this.
    std::io::stdout().write_all(format!("\n@{word}\n").as_bytes()).unwrap();
}

fn hear() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

#[test]
fn makes_many_children_when_another_test_asks_for_them() {
    let Some(db) = std::env::var_os(DB) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let pool = pool(Path::new(&db), SqliteOptions::default());
        pool.add(Node::agent(Echo(name("echo"))));
        pool.add(Node::agent(Many { name: name("many"), delegator: pool.delegator().clone() }));
        let run = pool.run(Some(&name("many")), "x".into(), RootOptions::default()).await.unwrap();
        let result = run.result.await.unwrap();
        assert_eq!((result.outcome, result.error), (Outcome::Completed, None));
        pool.close().await.unwrap();
    });
}

/// One of the nine.
fn spawner(db: &Path) -> (Child, std::io::Lines<BufReader<std::process::ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["held::makes_many_children_when_another_test_asks_for_them", "--exact", "--nocapture"])
        .env(DB, db)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[test]
fn o24_nine_processes_of_200_spawns_lose_none_while_one_holds_the_store_for_8_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("sessions.db");
    let mut all: Vec<_> = (0..PROCESSES).map(|_| spawner(&db)).collect();
    let roots: Vec<SessionId> = all
        .iter_mut()
        .map(|(_, lines)| {
            let root = lines.find_map(|line| line.unwrap().strip_prefix('@').map(str::to_owned));
            SessionId::new(root.expect("it says its root")).unwrap()
        })
        .collect();
    let holder = Connection::open(&db).unwrap();
    holder.busy_timeout(Duration::from_secs(30)).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (child, _) in &mut all {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let (held, mut ended) = (Instant::now(), 0);
    while held.elapsed() < HELD {
        ended += all.iter_mut().filter_map(|(child, _)| child.try_wait().unwrap()).count();
        // moment: the report is about a lock that is held for 8 s
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(ended, 0, "nobody can have ended while nobody could write");
    holder.execute_batch("COMMIT").unwrap();
    for (mut child, lines) in all {
        // What it says until its end, so that it never waits for a reader.
        let said: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(child.wait().unwrap().success(), "{said:?}");
    }
    let check: String = holder.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let store = SqliteStore::open(&db, SqliteOptions::default()).unwrap();
    let completed = Some(RunState::Ended(Outcome::Completed));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for root in roots {
            let rows = store.sessions(SessionQuery::Subtree(root)).await.unwrap();
            assert_eq!(rows.len(), 1 + SPAWNS);
            assert!(rows.iter().all(|row| row.run_state() == completed));
        }
        store.close().await.unwrap();
    });
}

#[tokio::test]
async fn o24_a_store_that_stays_held_is_busy_and_a_run_is_refused_before_it_exists() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("sessions.db");
    let bound = Duration::from_millis(300);
    let pool = pool(&db, SqliteOptions { busy_timeout: bound, ..SqliteOptions::default() });
    pool.add(Node::agent(Echo(name("echo"))));
    let holder = Connection::open(&db).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asked = Instant::now();
    let refused = pool.run(Some(&name("echo")), "x".into(), RootOptions::default()).await.unwrap_err();
    assert!(matches!(refused, PromptError::Refused(Refused::Store(StoreError::Busy { .. }))), "{refused}");
    assert!(asked.elapsed() >= bound && asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    holder.execute_batch("COMMIT").unwrap();
    assert!(pool.manager().roots(9).await.unwrap().is_empty());
    let run = pool.run(Some(&name("echo")), "x".into(), RootOptions::default()).await.unwrap();
    assert_eq!(run.result.await.unwrap().answer, "x", "it goes on when the store is free");
    pool.close().await.unwrap();
}

#[test]
fn o24_a_truncated_store_is_damaged_for_every_command_and_never_an_empty_tree() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [cat]}}\n");
    world.run("a", "x", &["--quiet"]).with(0);
    let whole = fs::read(world.db()).unwrap();
    assert_eq!(world.tree("latest").len(), 1);
    for length in [0, 1, 100, 4_096, whole.len() / 2, whole.len() - 1] {
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(world.path(&format!("sessions.db{suffix}")));
        }
        fs::write(world.db(), &whole[..length]).unwrap();
        for command in [&["ls"][..], &["ls", "--json"], &["tree", "latest"], &["show", "latest"]] {
            let done = world.offspring(command).with(1);
            assert!(done.stderr.contains("is damaged"), "{length} {command:?}: {done:?}");
            assert_eq!(done.stdout, "", "{length} {command:?}");
        }
        let done = world.run("a", "x", &["--quiet"]).with(1);
        assert!(done.stderr.contains("is damaged") && done.stdout.is_empty(), "{length}: {done:?}");
        assert_eq!(fs::read(world.db()).unwrap(), &whole[..length], "nothing is made of it");
    }
}
