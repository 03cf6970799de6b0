//! Two processes that ask for one child id on one SQLite file (O6 b), through the public API of `pool`.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, Node, Prompt, RootOptions};
use offspring_pool::Pool;
use offspring_protocol::{AgentType, NodeName, SessionId};
use offspring_sessions::{
    Answer, ManagerOptions, NewChild, Refused, RunContext, RunError, SessionManager, SessionStore,
    StoreError,
    store::sqlite::{SqliteOptions, SqliteStore},
};

/// Set in the processes that make the child.
const DB: &str = "OFFSPRING_TEST_DB";

fn store(path: &Path) -> Arc<dyn SessionStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

fn say(word: &str) {
    // The runner's own lines do not begin like this.
    std::io::stdout().write_all(format!("\n@{word}\n").as_bytes()).unwrap();
}

fn hear() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

/// Asks for the child `x` when it is told to, and says what came of it.
struct Asks(NodeName);

impl Agent for Asks {
    fn name(&self) -> &NodeName {
        &self.0
    }

    fn run(self: Arc<Self>, _: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            say(cx.manager().store().owner().as_str());
            tokio::task::spawn_blocking(hear).await.unwrap();
            let id = Some(SessionId::new("x").unwrap());
            let new = NewChild { id, ..NewChild::new(self.0.clone(), AgentType::Native) };
            match cx.create_child(new).await {
                Ok(child) => {
                    say("made");
                    child.start("x").await?.end.finish(Ok("won".into())).await?;
                }
                Err(Refused::Store(StoreError::Taken { id, owner })) => say(&format!("taken {id} {owner}")),
                Err(refused) => say(&format!("wrong {refused}")),
            }
            // Lives on: a dead owner is another case.
            tokio::task::spawn_blocking(hear).await.unwrap();
            Ok("".into())
        })
    }
}

#[test]
fn makes_the_child_when_another_test_asks_for_it() {
    let Some(db) = std::env::var_os(DB) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let pool = Pool::new(SessionManager::new(store(Path::new(&db)), ManagerOptions::default()));
        let name = NodeName::new("asks").unwrap();
        pool.add(Node::Agent(Arc::new(Asks(name.clone()))));
        let run = pool.run(Some(&name), "x".into(), RootOptions::default()).await.unwrap();
        run.result.await.unwrap();
        pool.close().await.unwrap();
    });
}

/// One of the two.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Other {
    fn start(db: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["one_id::makes_the_child_when_another_test_asks_for_it", "--exact", "--nocapture"])
            .env(DB, db)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn hear(&mut self) -> String {
        let line = self.lines.find_map(|line| line.unwrap().strip_prefix('@').map(str::to_owned));
        line.expect("it says something")
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

#[test]
fn o6_of_two_processes_that_ask_for_one_id_one_gets_it_and_the_other_is_told_who() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("sessions.db");
    let mut both = [Other::start(&db), Other::start(&db)];
    let owners = both.each_mut().map(Other::hear);
    assert_ne!(owners[0], owners[1]);
    both.iter_mut().for_each(Other::go);
    let said = both.each_mut().map(Other::hear);
    let winner =
        said.iter().position(|said| said == "made").unwrap_or_else(|| panic!("nobody got it: {said:?}"));
    assert_eq!(said[1 - winner], format!("taken x {}", owners[winner]));
    let read = || {
        let store = rusqlite::Connection::open(&db).unwrap();
        let row =
            "SELECT s.created_at, t.owner FROM sessions s JOIN trees t ON t.key = s.tree WHERE s.id = 'x'";
        let mut rows = store.prepare(row).unwrap();
        let rows = rows.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    let rows = read();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].1, owners[winner], "below the one who made it");
    both.iter_mut().for_each(Other::go);
    for Other { mut child, .. } in both {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(read(), rows, "nothing of the winner has changed");
}
