//! `offspring import`: what was exported is the same tree elsewhere, all of it or nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use offspring_tests::{Finished, Running, World, processes::SignalName as Signal, until};
use rusqlite::OpenFlags;
use serde_json::Value;

#[path = "looking/plant.rs"]
mod plant;
use plant::Plant;

const POOL: &str = r#"
name: desk
entry: top
agents:
  top: {type: command, command: [sh, -c, 'offspring task pair x; offspring task mid y']}
  mid: {type: command, command: [sh, -c, 'offspring task leaf z']}
  leaf: {type: command, command: [cat]}
  bad: {type: command, command: [sh, -c, 'printf "\001\033[31m\377\302\233 </script>\n" >&2; printf "\342\200\250 half"; exit 7']}
teams:
  pair: {mode: parallel, members: [leaf, bad]}
"#;

struct Two {
    world: World,
    document: String,
}

/// A store with a tree, and its export.
fn exported(pool: &str, node: &str) -> Two {
    let world = World::new();
    world.pool(pool);
    world.run(node, "the question", &["--quiet"]).with(0);
    let document = world.offspring(&["export"]).with(0).stdout;
    world.write("tree.json", &document);
    Two { world, document }
}

impl Two {
    /// On the other store.
    fn other(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.bare();
        command.arg("--db").arg(self.world.path("other/store.db")).args(arguments);
        command
    }

    fn there(&self, arguments: &[&str]) -> Finished {
        Running::start(self.other(arguments)).finish()
    }

    fn import(&self, name: &str) -> Finished {
        self.there(&["import", self.world.path(name).to_str().unwrap()])
    }

    fn imports(&self, document: &str) -> Finished {
        self.world.write("changed.json", document);
        self.import("changed.json")
    }
}

fn ls(two: &Two) -> Vec<Value> {
    let listed = two.there(&["ls", "--json"]);
    if listed.code == Some(1) {
        return Vec::new();
    }
    serde_json::from_str(&listed.stdout).unwrap()
}

#[test]
fn the_same_tree_is_there() {
    let two = exported(POOL, "top");
    let done = two.import("tree.json").with(0);
    assert!(done.stdout.contains(": imported, 5 sessions, ") && done.stderr.is_empty(), "{done:?}");
    let here = |arguments: &[&str]| two.world.offspring(arguments).with(0).stdout;
    let there = |arguments: &[&str]| two.there(arguments).with(0).stdout;
    for arguments in [&["tree", "--json"][..], &["ls", "--json"], &["tree"], &["export"]] {
        assert_eq!(there(arguments), here(arguments), "{arguments:?}");
    }
    for session in two.world.tree("latest") {
        let id = session["id"].as_str().unwrap();
        for arguments in [&["show", id, "--json"][..], &["show", id]] {
            assert_eq!(there(arguments), here(arguments));
        }
    }
    assert_eq!(there(&["export"]), two.document);
    // A second time its ids are taken, and nothing changes.
    let done = two.import("tree.json").with(1);
    assert!(done.stderr.contains("is in this store already; nothing was changed"), "{}", done.stderr);
    assert!(done.stderr.lines().count() <= 6, "{}", done.stderr);
    assert_eq!(there(&["export"]), two.document);
}

#[test]
fn an_export_of_each_version_of_the_format_is_read() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/exports");
    let two = Two { world: World::new(), document: String::new() };
    let fixture = fixtures.join("1.json");
    two.there(&["import", fixture.to_str().unwrap()]).with(0);
    // Written by the present program it differs in the program's version, until there is a later format.
    let version = |version: &str| format!("\"version\":1,\"program_version\":\"{version}\",\"top\"");
    let now = version(env!("CARGO_PKG_VERSION"));
    let written = std::fs::read_to_string(fixture).unwrap().replace(&version("0.1.0"), &now);
    assert_eq!(two.there(&["export"]).with(0).stdout, written);
}

#[test]
fn it_is_read_from_stdin_too() {
    let two = exported(POOL, "mid");
    let mut child =
        two.other(&["import", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(two.document.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success());
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said["sessions"], 2);
    assert_eq!(said["root"], two.world.tree("latest")[0]["id"]);
    assert_eq!(said["interrupted"], 0);
    assert_eq!(two.there(&["export"]).with(0).stdout, two.document);
}

#[test]
fn what_is_no_whole_export_is_refused_and_nothing_is_made() {
    let two = exported(POOL, "mid");
    let document = &two.document;
    let with = |from: &str, to: &str| {
        assert!(document.contains(from), "{from} is not in {document}");
        document.replacen(from, to, 1)
    };
    let child = two.world.tree("latest")[1]["id"].as_str().unwrap().to_owned();
    let part = two.world.offspring(&["export", &child]).with(0).stdout;
    let without_a_line = {
        let mut lines: Vec<&str> = document.lines().collect();
        lines.remove(8);
        lines.join("\n")
    };
    let cases: &[(String, &str)] = &[
        (String::new(), "ends in the middle, at line 1"),
        ("not json".to_owned(), "line 1, byte 2: expected ident"),
        ("[1, 2]".to_owned(), "an export of a tree is expected here, not sequence"),
        ("{}".to_owned(), "this is no export"),
        (document[..document.len() / 2].to_owned(), "ends in the middle, at line "),
        (format!("{document}x"), "trailing characters"),
        (with("offspring-export", "something-else"), "its format is `something-else`"),
        (with("\"version\":1", "\"version\":2"), "version 2 of the format, and this program reads up to 1"),
        (with("\"version\":1", "\"version\":\"1\""), "a whole number is expected here, not string \"1\""),
        (with("\"seq\":3", "\"seq\":-3"), "a whole number is expected here, not integer `-3`"),
        (with("\"seq\":3", "\"seq\":2"), "line 2 of its log comes after line 2"),
        (with("\"seq\":3,", ""), "`seq` is missing here"),
        (with("\"kind\":", "\"kinds\":"), "unknown field `kinds`"),
        (with("\"last_seq\":", "\"later\":1,\"last_seq\":"), "an export has no `later`"),
        (with("\"depth\":1", "\"depth\":4"), "has depth 4, and stands at 1"),
        (with("\"state\":\"completed\"", "\"state\":\"finished\""), "unknown run state `finished`"),
        (without_a_line, "it says that it has 2 sessions"),
        (part, "only a whole tree can be imported"),
    ];
    for (changed, part) in cases {
        let done = two.imports(changed).with(1);
        assert!(done.stderr.contains(part), "{part:?} is not in {}", done.stderr);
        assert!(done.stderr.contains("nothing was changed"), "{}", done.stderr);
        assert!(done.stderr.lines().count() <= 6 && done.stdout.is_empty(), "{done:?}");
        assert_eq!(ls(&two), [] as [Value; 0], "{part}");
    }
    // Order means nothing in JSON, and neither does space.
    let reordered: Value = serde_json::from_str(document).unwrap();
    two.imports(&serde_json::to_string_pretty(&reordered).unwrap()).with(0);
    assert_eq!(ls(&two).len(), 1);
    let done = two.there(&["import", "/nowhere.json"]).with(2);
    assert!(done.stderr.contains("/nowhere.json cannot be read"), "{}", done.stderr);
    assert_eq!(two.there(&["import", "."]).code, Some(2));
    let memory = ["--db", "memory:", "import", "tree.json"];
    assert_eq!(
        Running::start({
            let mut command = two.world.bare();
            command.args(memory);
            command
        })
        .finish()
        .code,
        Some(2)
    );
}

#[test]
fn l13_what_was_running_is_interrupted_there_and_goes_on_here() {
    let world = World::new();
    world.pool("entry: top\nagents:\n  top: {type: command, command: [sh, -c, 'offspring task slow x']}\n  slow: {type: command, command: [sh, -c, 'echo half; sleep @SLEEP@']}\n");
    let running = world.start("top", "x", &["--quiet"]);
    world.until_sleepers(1);
    let document = world.offspring(&["export"]).with(0).stdout;
    world.write("tree.json", &document);
    let two = Two { world, document };
    let done = two.import("tree.json").with(0);
    assert!(done.stdout.contains("2 open runs interrupted"), "{}", done.stdout);
    let tree: Value = serde_json::from_str(&two.there(&["tree", "--json"]).with(0).stdout).unwrap();
    for session in tree["sessions"].as_array().unwrap() {
        assert_eq!(session["outcome"], "interrupted", "{session}");
    }
    // The agent works for the tree this is a copy of.
    assert_eq!(two.world.sleepers().len(), 1);
    running.send(Signal::INT);
    assert_eq!(running.finish().code, Some(130));
    two.world.until_nothing_lives(Duration::from_secs(10));
}

#[test]
fn w10_a_manifest_that_gives_values_to_variables_stays_here() {
    let pool = "agents:\n  a: {type: command, command: [cat], environment: {KEY: hunter-two}}\nentry: a\n";
    let world = World::new();
    world.pool(pool);
    world.run("a", "x", &["--quiet"]).with(0);
    let done = world.offspring(&["export"]).with(0);
    assert!(!done.stdout.contains("hunter-two") && done.stderr.contains("--with-manifest"), "{done:?}");
    let whole = world.offspring(&["export", "--with-manifest"]).with(0);
    assert!(whole.stdout.contains("hunter-two") && whole.stderr.is_empty(), "{whole:?}");
    world.write("tree.json", &done.stdout);
    let two = Two { world, document: done.stdout };
    two.import("tree.json").with(0);
    assert_eq!(two.there(&["export"]).with(0).stdout, two.document);
}

fn large(db: &Path) {
    let plant = Plant::new(db);
    let root = plant.root("root", "x");
    let answer = "many words of an answer ".repeat((512 << 10) / 24);
    for n in 0..24 {
        let child = plant.child(&root, &format!("child{n}"), "y");
        plant.answers(child, &answer);
    }
    plant.answers(root, "done");
    plant.close();
}

#[test]
fn after_kill_nine_nothing_of_it_is_there() {
    let world = World::new();
    large(&world.db());
    world.offspring(&["export", "-o", world.path("tree.json").to_str().unwrap()]).with(0);
    let two = Two { world, document: String::new() };
    let file = two.world.path("tree.json");
    let import = Running::start(two.other(&["import", file.to_str().unwrap()]));
    let lines = || {
        let db = two.world.path("other/store.db");
        let db = rusqlite::Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        db.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0)).ok()
    };
    until("the first lines of it", Duration::from_secs(30), || lines().filter(|lines| *lines > 0));
    import.send(Signal::STOP);
    // Half of it is there, and is seen as a tree that is not at rest.
    let seen = ls(&two);
    assert_eq!(seen[0]["run_state"], "pending", "it was over before it could be stopped");
    import.send(Signal::KILL);
    assert_eq!(import.finish().signal, Some(9));
    assert_eq!(ls(&two), [] as [Value; 0]);
    assert_eq!(lines(), Some(0));
    two.import("tree.json").with(0);
    let both = [two.world.offspring(&["export"]), two.there(&["export"])];
    assert!(both[0].clone().with(0).stdout == both[1].clone().with(0).stdout);
}
