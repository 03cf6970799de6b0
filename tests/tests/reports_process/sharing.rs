//! Many programs on one store.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use offspring_tests::{
    Running, World,
    processes::{SignalName as Signal, is_stopped},
};
use rusqlite::Connection;

use crate::{gate, lines, log, open, states, until_tree};

fn integrity(db: &Path) -> String {
    let store = Connection::open(db).unwrap();
    store.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[test]
fn o24_nine_programs_on_one_store_lose_nothing_while_somebody_holds_it() {
    const PROGRAMS: usize = 9;
    const CHILDREN: usize = 10;
    let world = World::new();
    world.pool(&format!(
        "
entry: many
agents:
  many: {{type: command, command: [sh, -c, 'i=0; while [ $i -lt {CHILDREN} ]; do offspring task echo $i || exit 1; i=$((i+1)); done']}}
  echo: {{type: command, command: [cat]}}
"
    ));
    // Nine at once also make the store.
    let runs: Vec<Running> = (0..PROGRAMS)
        .map(|number| world.start("many", &format!("run {number}"), &["--json", "--quiet"]))
        .collect();
    let mut runs: Vec<Running> = runs;
    for run in &mut runs {
        run.until_json(|line| line["event"]["kind"] == "run_started");
    }
    let holder = Connection::open(world.db()).unwrap();
    holder.busy_timeout(Duration::from_secs(10)).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let held = Instant::now();
    // Nothing tells that nine programs wait; a while is what is asked for here.
    while held.elapsed() < Duration::from_secs(3) {
        assert!(runs.iter_mut().all(|run| !run.has_ended()), "a run ended while nobody could write");
        // moment: nothing tells that nine programs wait
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(holder);
    let mut roots = BTreeSet::new();
    for run in runs {
        let done = run.finish().with(0);
        assert!(!done.stderr.contains("lock") && !done.stderr.contains("busy"), "{}", done.stderr);
        let log = lines(&done.stdout);
        roots.insert(log[0]["root"].as_str().unwrap().to_owned());
    }
    assert_eq!(roots.len(), PROGRAMS);
    for root in &roots {
        let tree = world.tree(root);
        assert_eq!(tree.len(), CHILDREN + 1);
        assert!(states(&tree).iter().all(|state| *state == "completed"), "{tree:?}");
        let log = log(&world, root);
        assert!(log.iter().enumerate().all(|(index, line)| line["seq"] == index as u64 + 1));
    }
    assert_eq!(integrity(&world.db()), "ok");
}

#[test]
fn two_runs_at_once_in_one_directory_on_one_store_are_two_whole_trees() {
    let world = World::new();
    world.write("here/main.c", "int main; // FIXME: leaks\n");
    world.write("here/package.json", "{\"dependencies\": {\"left-pad\": \"*\"}}\n");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/survey.yaml");
    let before = world.picture(&world.here());
    let runs: Vec<Running> = (0..2)
        .map(|_| {
            let mut command = world.command(&["run"]);
            command.arg(&manifest).args(["What would you fix first?", "--quiet"]);
            Running::start(command)
        })
        .collect();
    let answers: Vec<String> = runs.into_iter().map(|run| run.finish().with(0).stdout).collect();
    assert!(answers[0].contains("FIXME") && answers[0] == answers[1], "{answers:?}");
    let roots = world.json(&["ls", "--json"]);
    let roots = roots.as_array().unwrap();
    assert_eq!(roots.len(), 2);
    let mut ids = BTreeSet::new();
    for root in roots {
        let tree = world.tree(root["id"].as_str().unwrap());
        assert_eq!(tree.len(), 15);
        assert!(states(&tree).iter().all(|state| *state == "completed"), "{tree:?}");
        ids.extend(tree.iter().map(|session| session["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(ids.len(), 30, "no session is in both");
    assert_eq!(world.picture(&world.here()), before);
}

#[cfg(target_os = "linux")]
#[test]
fn l13_a_run_that_lives_is_left_alone_also_while_it_is_stopped() {
    let world = World::new();
    world.pool(
        "
entry: top
agents:
  top: {type: command, command: [sh, -c, 'offspring task waits x']}
  waits: {type: command, command: [sh, -c, 'echo waiting; cat \"$OFFSPRING_MANIFEST_DIR/gate\"']}
  quick: {type: command, command: [echo, quick]}
",
    );
    let gate = gate(&world, "gate");
    let run = world.start("top", "x", &["--json", "--quiet"]);
    let tree = until_tree(&world, "both running", |tree| states(tree) == ["running", "running"]);
    let root = tree[0]["id"].as_str().unwrap().to_owned();
    let looks = || {
        for command in [&["ls"][..], &["tree", &root], &["show", &root]] {
            world.offspring(command).with(0);
        }
        assert_eq!(world.run("quick", "x", &["--quiet"]).with(0).stdout, "quick\n");
        assert_eq!(states(&world.tree(&root)), ["running", "running"]);
    };
    looks();
    run.send(Signal::STOP);
    offspring_tests::until("the stop", Duration::from_secs(5), || is_stopped(run.pid()).then_some(()));
    let mut watch = Running::start(world.command(&["watch", &root, "--json"]));
    watch.until_json(|line| line["event"]["kind"] == "text_delta");
    looks();
    assert!(!watch.has_ended(), "a watch waits with the run");
    run.send(Signal::CONT);
    looks();
    open(&gate);
    let done = lines(&run.finish().with(0).stdout);
    let (answer, log) = done.split_last().unwrap();
    assert_eq!(answer["event"]["data"]["text"], "waiting\nopen\n");
    assert_eq!(states(&world.tree(&root)), ["completed", "completed"]);
    assert_eq!(lines(&watch.finish().with(0).stdout), log);
}
