//! What a manifest means once it is read.
#![expect(clippy::panic, reason = "helpers of tests fail a test by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use offspring_pool::manifest::{
    EnvironmentValue, Limits, Located, MAX_MANIFEST_BYTES, Manifest, Problem, Storage, TeamMode,
};
use offspring_protocol::SessionLimits;
use proptest::prelude::*;
use serde::Deserialize;

fn read(text: &str) -> Manifest {
    Manifest::from_str(text, Path::new("/pools/survey.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

const WHOLE: &str = "\
name: a survey
description: What is in a repository
entry: coordinator
agents:
  coordinator:
    type: command
    description: asks the others
    command: [sh, coordinator.sh, 10, 1.10, true]
    prompt: stdin
    workers: [history, {type: team, name: all}]
    environment: {LEVEL: 3, VERSION: 1.10, EMPTY: '', TOKEN: {from: MY_TOKEN}}
    limits: {max_depth: 3, max_wall_ms: 60_000, max_output_bytes: 10}
  history: &program
    type: command
    command: ./history.sh
  sizes:
    <<: *program
    command: ./sizes.sh
teams:
  all:
    mode: parallel
    members: [history, sizes, {name: history}]
    shared_prompt: |
      Be short.
  report: {mode: sequential, members: [all, sizes], require_all: false}
  nobody: {mode: parallel, members: []}
workers: [{name: sizes, type: agent}]
limits: {max_depth: 5, max_active: 2, max_output_bytes: 1024}
storage: {path: state/survey.db}
";

#[derive(Debug, Deserialize)]
struct Program {
    command: Located<Vec<String>>,
    #[serde(default)]
    prompt: Option<Channel>,
    #[serde(default)]
    stop_grace_ms: Option<u64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Channel {
    Stdin,
    Argument,
}

#[test]
fn a_whole_manifest_says_what_is_written() {
    let manifest = read(WHOLE);
    assert_eq!(manifest.name().as_str(), "a survey");
    assert_eq!(manifest.description(), Some("What is in a repository"));
    assert_eq!(manifest.entry().unwrap().as_str(), "coordinator");
    let names: Vec<&str> = manifest.node_names().map(|name| name.as_str()).collect();
    assert_eq!(names, ["coordinator", "history", "sizes", "all", "report", "nobody"]);

    let coordinator = manifest.agent("coordinator").unwrap();
    assert_eq!(coordinator.kind, "command");
    let workers: Vec<&str> = coordinator.workers.iter().map(|worker| worker.node.as_str()).collect();
    assert_eq!(workers, ["history", "all"]);
    let text = |text: &str| EnvironmentValue::Text(text.to_owned());
    let expected = [
        ("LEVEL".to_owned(), text("3")),
        ("VERSION".to_owned(), text("1.10")),
        ("EMPTY".to_owned(), text("")),
        ("TOKEN".to_owned(), EnvironmentValue::From("MY_TOKEN".to_owned())),
    ];
    assert_eq!(coordinator.environment, expected);

    let all = manifest.team("all").unwrap();
    let members: Vec<&str> = all.members.iter().map(|member| member.as_str()).collect();
    assert_eq!((all.mode, members), (TeamMode::Parallel, vec!["history", "sizes", "history"]));
    assert_eq!(all.shared_prompt.as_deref(), Some("Be short.\n"));
    assert!(all.require_all);
    assert!(!manifest.team("report").unwrap().require_all);
    assert_eq!(manifest.workers().iter().map(|worker| worker.node.as_str()).collect::<Vec<_>>(), ["sizes"]);
}

#[test]
fn l11_a_team_may_have_no_member_and_the_same_one_twice() {
    let manifest = read(WHOLE);
    assert_eq!(manifest.team("nobody").unwrap().members, []);
    assert_eq!(manifest.team("all").unwrap().members.iter().filter(|m| m.as_str() == "history").count(), 2);
}

#[test]
fn l5_limits_that_are_left_out_have_their_defaults() {
    let manifest = read("agents: {a: {type: command}}");
    assert_eq!(*manifest.limits(), Limits::default());
    assert!(manifest.limits().max_active >= 4);
    assert_eq!(manifest.limits().session, SessionLimits::default());
    let manifest = read(WHOLE);
    let session = SessionLimits { max_depth: Some(5), ..SessionLimits::default() };
    let expected = Limits { session, max_active: 2, max_output_bytes: 1024, ..Limits::default() };
    assert_eq!(*manifest.limits(), expected);
}

#[test]
fn a_limit_in_force_says_whether_the_manifest_gives_it() {
    let text = "agents: {a: {type: x}}\nlimits: {max_depth: 10, max_wall_ms: 5, max_queued: ~}";
    let manifest = Manifest::from_str(text, Path::new("pool.yaml")).unwrap();
    let given: Vec<_> = manifest
        .limits_in_force()
        .filter(|limit| limit.is_given)
        .map(|limit| (limit.key, limit.value))
        .collect();
    assert_eq!(given, [("max_depth", Some(10)), ("max_wall_ms", Some(5))]);
    let all: Vec<_> = manifest.limits_in_force().map(|limit| (limit.key, limit.value)).collect();
    assert_eq!(all, manifest.limits().values());
}

#[test]
fn l17_an_agent_narrows_the_limits_of_its_pool_and_never_widens_them() {
    let manifest = read(WHOLE);
    let limits = &manifest.agent("coordinator").unwrap().limits;
    let expected =
        SessionLimits { max_depth: Some(3), max_wall_ms: Some(60_000), ..SessionLimits::UNBOUNDED };
    assert_eq!(*limits, expected);
    let narrowed: Vec<_> = manifest.agent("coordinator").unwrap().narrowed().collect();
    assert_eq!(narrowed, [("max_depth", 3), ("max_wall_ms", 60_000), ("max_output_bytes", 10)]);
    for (pool, agent) in [(5, 6), (2, 3)] {
        let text = format!(
            "agents: {{a: {{type: x, limits: {{max_descendants: {agent}}}}}}}\nlimits: {{max_descendants: {pool}}}"
        );
        let error = Manifest::from_str(&text, Path::new("p.yaml")).unwrap_err().to_string();
        assert!(
            error.contains(&format!("`max_descendants` is {agent}, and the pool allows {pool}")),
            "{error}"
        );
    }
}

#[test]
fn paths_resolve_against_the_directory_of_the_manifest() {
    let manifest = read(WHOLE);
    assert_eq!(manifest.dir(), Path::new("/pools"));
    assert_eq!(manifest.resolve("./a/b.sh"), PathBuf::from("/pools/a/b.sh"));
    assert_eq!(manifest.resolve("/bin/sh"), PathBuf::from("/bin/sh"));
    assert_eq!(manifest.agents()[0].settings.resolve("x"), PathBuf::from("/pools/x"));
    assert_eq!(manifest.storage(), Some(&Storage::Sqlite { path: Some("/pools/state/survey.db".into()) }));
    let storage = |text| read(&format!("agents: {{a: {{type: x}}}}\nstorage: {text}")).storage().cloned();
    assert_eq!(storage("{type: memory}"), Some(Storage::Memory));
    assert_eq!(storage("{type: sqlite}"), Some(Storage::Sqlite { path: None }));
    assert_eq!(read("agents: {a: {type: x}}").storage(), None);
}

#[test]
fn a_pool_of_several_nodes_may_name_no_entry() {
    let manifest = read("agents: {a: {type: command}, b: {type: command}}\n");
    assert_eq!(manifest.entry(), None);
}

#[test]
fn the_only_node_is_the_entry_and_the_file_names_the_pool() {
    let manifest = read("agents: {alone: {type: command}}");
    assert_eq!(manifest.entry().unwrap().as_str(), "alone");
    assert_eq!(manifest.name().as_str(), "survey");
}

#[test]
fn settings_of_a_node_type_are_read_with_the_same_errors() {
    let manifest = read(WHOLE);
    let program: Program = manifest.agent("coordinator").unwrap().settings.parse().unwrap();
    assert_eq!(program.command.value, ["sh", "coordinator.sh", "10", "1.10", "true"]);
    assert_eq!((program.command.place.line, program.command.place.column), (8, 14));
    assert_eq!(program.prompt, Some(Channel::Stdin));
    assert_eq!(program.stop_grace_ms, None);

    let text = "\
agents:
  a:
    type: command
    commnd: [sh]
  b:
    type: command
    command: [sh, [x]]
    prompt: stdni
    stop_grace_ms: 5s
    enviroment: {}
";
    let manifest = Manifest::from_str(&format!("{text}entry: a\n"), Path::new("p.yaml")).unwrap();
    let error = |name| manifest.agent(name).unwrap().settings.parse::<Program>().unwrap_err().to_string();
    assert_eq!(error("a"), "p.yaml:4:5: unknown key `commnd`; did you mean `command`?");
    assert_eq!(
        error("b"),
        "p.yaml:7:19: `agents.b.command[1]`: expected text, found a list\n\
         p.yaml:8:13: `agents.b.prompt`: `stdni` is none of its values; did you mean `stdin`?\n\
         p.yaml:9:20: `agents.b.stop_grace_ms`: expected a whole number of milliseconds, found text\n\
         p.yaml:10:5: unknown key `enviroment`; did you mean `environment`?"
    );
}

#[test]
fn a_node_type_that_needs_a_key_says_so() {
    let manifest = read("agents: {a: {type: command}}");
    let error = manifest.agents()[0].settings.parse::<Program>().unwrap_err();
    assert_eq!(error.to_string(), "/pools/survey.yaml:1:13: `agents.a.command` is missing");
}

#[test]
fn a_node_type_can_say_what_only_it_can_check() {
    let manifest = read("agents:\n  a:\n    type: command\n    command: [rm]\n");
    let settings = &manifest.agents()[0].settings;
    let problem =
        Problem::at(settings.place_of("command"), "nobody wants that").suggest("say something else");
    let error = settings.error(vec![problem]);
    assert_eq!(error.to_string(), "/pools/survey.yaml:4:5: nobody wants that; say something else");
}

#[test]
fn an_unknown_node_type_lists_the_known_ones() {
    let manifest = read("agents: {a: {type: comand}, b: {type: wizard}}\nentry: a");
    let error = manifest.check_kinds(&["command", "dsh"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/pools/survey.yaml:1:20: unknown node type `comand`; did you mean `command`?\n\
         /pools/survey.yaml:1:39: unknown node type `wizard`; this program has: `command`, `dsh`"
    );
    assert_eq!(manifest.check_kinds(&["comand", "wizard"]), Ok(()));
}

#[test]
fn a_file_is_loaded_with_its_directory_and_a_bad_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let manifest = Manifest::load(file("my.pool.yaml", b"agents: {a: {type: command}}")).unwrap();
    assert_eq!((manifest.dir(), manifest.name().as_str()), (dir.path(), "my.pool"));

    let error = |path: &Path| {
        let error = Manifest::load(path).unwrap_err();
        assert_eq!(error.path(), path);
        error.to_string().replace(&path.display().to_string(), "FILE")
    };
    assert_eq!(error(&dir.path().join("none.yaml")), "FILE: cannot be read: no such file or directory");
    assert_eq!(error(dir.path()), "FILE: is a directory; name the manifest in it");
    assert_eq!(
        error(&file("latin.yaml", b"a: 1\nb: caf\xe9")),
        "FILE:2:7: this byte is no UTF-8; save the file as UTF-8"
    );
    let long = vec![b'#'; usize::try_from(MAX_MANIFEST_BYTES).unwrap() + 1];
    assert!(error(&file("long.yaml", &long)).starts_with("FILE: is longer than 1048576 bytes"));
}

#[test]
fn a_hostile_document_is_refused_quickly() {
    let deep = format!("agents: {}", "[".repeat(100_000));
    let flow = format!("agents: {}{}", "{a: ".repeat(500), "}".repeat(500));
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(", ")));
    }
    let mut chain = String::from("a0: &a0 [x]\n");
    for level in 1..1_000 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    for text in [deep, flow, bomb, chain] {
        let error = Manifest::from_str(&text, Path::new("p.yaml")).unwrap_err();
        assert!(error.to_string().lines().count() <= 6, "{error}");
    }
}

/// Pieces that manifests are made of, so that random texts get past the parser.
const PIECES: &[&str] = &[
    "agents",
    "teams",
    "a",
    "b",
    "t",
    ": ",
    ":\n",
    "\n",
    "  ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "type: command",
    "mode: parallel",
    "members: ",
    "workers: ",
    "limits: ",
    "max_depth: ",
    "0",
    "1",
    "-3",
    "1e999",
    ".nan",
    "true",
    "null",
    "~",
    "\"",
    "'",
    "|\n",
    "&a ",
    "*a",
    "<<: ",
    "---\n",
    "# ",
    "\t",
    "!!int ",
    "é",
    "\u{0}",
    "storage: ",
    "entry: ",
    "environment: ",
    "from: ",
    "?",
    " ",
    "99999999999999999999999999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_gives_a_manifest_or_problems_with_places(text in ".{0,200}") {
        judge(&text)?;
    }

    #[test]
    fn any_pieces_of_manifests_give_a_manifest_or_problems_with_places(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40),
    ) {
        judge(&pieces.concat())?;
    }

    #[test]
    fn a_changed_manifest_gives_a_manifest_or_problems_with_places(
        at in 0..WHOLE.len(), cut in 0..30_usize, piece in proptest::sample::select(PIECES),
    ) {
        let end = (at + cut).min(WHOLE.len());
        judge(&format!("{}{piece}{}", &WHOLE[..at], &WHOLE[end..]))?;
    }
}

fn judge(text: &str) -> Result<(), TestCaseError> {
    match Manifest::from_str(text, Path::new("p.yaml")) {
        Ok(manifest) => {
            prop_assert!(!manifest.agents().is_empty());
            prop_assert!(
                manifest.entry().is_none_or(|entry| manifest.node_names().any(|name| name == entry))
            );
            for agent in manifest.agents() {
                let _ = agent.settings.parse::<Program>();
            }
        }
        Err(error) => {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(error.to_string().lines().count() <= 6);
            let lines = text.split(['\n', '\r']).count() + 1;
            for problem in error.problems() {
                prop_assert!(
                    problem.line >= 1 && problem.line as usize <= lines && problem.column >= 1,
                    "{problem:?}"
                );
                prop_assert!(!problem.to_string().chars().any(char::is_control), "{problem:?}");
            }
        }
    }
    Ok(())
}
