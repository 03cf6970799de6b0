//! What the first mistakes look like: each message whole, in `snapshots/`. `INSTA_UPDATE=always` writes them anew.
//!
//! Of each also: at most six lines, no name of a type, nothing of what was knowable before is stored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Stdio},
};

use offspring_tests::{World, offspring, running::Finished};

const POOL: &str = "\
name: desk
entry: ask
agents:
  ask: {type: command, command: [cat]}
  echo: {type: command, command: [cat]}
  broken: {type: command, command: [sh, -c, 'echo no paper >&2; exit 3']}
  by-argument: {type: command, prompt: argument, command: [printf, '%s']}
  asks-broken: {type: command, command: [sh, -c, 'offspring task broken x']}
  asks-too-much: {type: command, command: [sh, -c, 'head -c 200000 /dev/zero | tr \"\\0\" x | offspring task by-argument -']}
  forgives: {type: command, command: [sh, -c, 'offspring task broken x || echo never mind']}
  killed: {type: command, command: [sh, -c, 'echo going down >&2; kill -KILL $$']}
  no-such-command: {type: command, command: [sh, -c, 'exec 2>/dev/null; ofspring task echo x']}
  slow: {type: command, command: [sh, -c, 'echo waiting for the lock >&2; sleep 60'], limits: {max_wall_ms: 300}}
  starts-a-pool: {type: command, command: [sh, -c, 'offspring run \"$OFFSPRING_MANIFEST_DIR/pool.yaml\" x']}
";

/// A command line with a mistake in a world of its own, where `here` holds the manifests.
struct Mistake {
    world: World,
    stdin: Vec<u8>,
}

impl Mistake {
    fn new() -> Self {
        let world = World::new();
        world.write("here/pool.yaml", POOL);
        Self { world, stdin: Vec::new() }
    }

    /// With another file in `here`.
    fn with(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        fs::write(self.world.here().join(name), text).unwrap();
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.bare();
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.finish(self.command(arguments))
    }

    fn finish(&self, mut command: Command) -> Finished {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = self.stdin.clone();
        let feeding = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        let _ = feeding.join();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Finished {
            code: output.status.code(),
            signal: None,
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The message of a mistake that is known before anything is made; nothing is.
    #[track_caller]
    fn says(&self, snapshot: &str, arguments: &[&str]) {
        let done = self.run(arguments);
        self.is_said(snapshot, arguments, &done);
        for folder in ["state", "home", "tmp"] {
            assert_eq!(self.world.picture(&self.world.path(folder)), [], "{folder}: {arguments:?}");
        }
    }

    #[track_caller]
    fn is_said(&self, snapshot: &str, arguments: &[&str], done: &Finished) {
        let message = &done.stderr;
        assert!((1..=6).contains(&message.lines().count()), "{message}");
        for name in ["Err(", "Error {", "Some(", "Os {", "os error", "NotFound", "::", "panicked"] {
            assert!(!message.contains(name), "{name} in {message}");
        }
        assert_eq!(done.stdout, "", "{done:?}");
        let code = done.code.unwrap_or(-1);
        let shown: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        let text = format!("$ offspring {}\n{message}[exit status {code}]", shown.join(" "));
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(snapshot, self.masked(&text));
        });
    }

    /// The block at the end of a run that was stored.
    #[track_caller]
    fn ends_with(&self, snapshot: &str, arguments: &[&str]) -> Finished {
        let mut done = self.run(arguments);
        done.stdout.clear();
        let before = |line: &&str| {
            let line = line.trim_start();
            line.starts_with(['▶', '✓', '✗', '⊘', '!'])
        };
        let block: Vec<&str> = done.stderr.lines().skip_while(before).collect();
        done.stderr = block.join("\n") + "\n";
        self.is_said(snapshot, arguments, &done);
        done
    }

    fn masked(&self, text: &str) -> String {
        let root = self.world.path("");
        let root = root.to_str().unwrap().trim_end_matches('/');
        let program = offspring().canonicalize().unwrap();
        let text = text.replace(root, "/world").replace(program.to_str().unwrap(), "offspring");
        let mut masked = String::new();
        for line in text.lines() {
            masked.push_str(&times_masked(&ids_masked(line)));
            masked.push('\n');
        }
        masked
    }
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{argument}'")
    }
}

/// Ids are never the same.
fn ids_masked(line: &str) -> String {
    let mut pieces = line.split("ses_");
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let id = piece.chars().take_while(char::is_ascii_alphanumeric).count();
        let is_id = id > 20;
        masked.push_str(if is_id { "ses_ID" } else { "ses_" });
        masked.push_str(&piece[if is_id { id } else { 0 }..]);
    }
    masked
}

/// `, 12 ms,` and `, 1.2 s,` are not either.
fn times_masked(line: &str) -> String {
    let is_time = |part: &&str| {
        part.strip_suffix(" ms").or(part.strip_suffix(" s")).is_some_and(|n| n.parse::<f64>().is_ok())
    };
    line.split(", ").map(|part| if is_time(&part) { "TIME" } else { part }).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_manifest_is_not_there() {
    let mistake = Mistake::new();
    mistake.says("no_manifest", &["run", "none.yaml", "x"]);
    mistake.says("no_manifest_misspelled", &["run", "pol.yaml", "x"]);
    mistake.says("no_manifest_and_no_other", &["run", "elsewhere/none.yaml", "x"]);
    mistake.says("manifest_is_a_directory", &["run", ".", "x"]);
    mistake.says("manifest_and_prompt_swapped", &["run", "Review the change", "pool.yaml"]);
    mistake.says("manifest_name_is_a_text", &["run", &"Review the change. ".repeat(20), "x"]);
    mistake.world.write("here/locked.yaml", POOL);
    let mode = fs::Permissions::from_mode(0o000);
    fs::set_permissions(mistake.world.here().join("locked.yaml"), mode).unwrap();
    // Root reads it all the same.
    if fs::read(mistake.world.here().join("locked.yaml")).is_err() {
        let done = mistake.run(&["run", "locked.yaml", "x"]).with(2);
        assert!(done.stderr.contains("locked.yaml: cannot be read: permission denied"), "{}", done.stderr);
    }
}

#[test]
fn the_manifest_has_an_error() {
    let agent = "agents:\n  a: {type: command, command: [cat]}\n";
    for (snapshot, text) in [
        ("yaml_tab", "agents:\n\ta: {type: command, command: [cat]}\n".to_owned()),
        ("yaml_bracket", "agents: {a: {type: command, command: [cat}}\n".to_owned()),
        ("yaml_unknown_key", "agentz:\n  a: {type: command, command: [cat]}\n".to_owned()),
        ("yaml_unknown_key_of_an_agent", "agents:\n  a: {type: command, comand: [cat]}\n".to_owned()),
        ("yaml_unknown_type", "agents:\n  a: {type: comand, command: [cat]}\n".to_owned()),
        ("yaml_type_missing", "agents:\n  a: {command: [cat]}\n".to_owned()),
        ("yaml_wrong_value", format!("{agent}limits: {{max_depth: many, max_wall_ms: -1}}\n")),
        ("yaml_nothing", String::new()),
        (
            "yaml_unknown_member",
            format!("{agent}entry: t\nteams:\n  t: {{mode: parallel, members: [a, aa]}}\n"),
        ),
        (
            "yaml_cycle_of_teams",
            format!(
                "{agent}entry: t\nteams:\n  t: {{mode: parallel, members: [u]}}\n  u: {{mode: sequential, members: [t]}}\n"
            ),
        ),
        (
            "yaml_no_entry",
            "agents:\n  a: {type: command, command: [cat]}\n  b: {type: command, command: [cat]}\n"
                .to_owned(),
        ),
        (
            "yaml_many_mistakes",
            format!("{agent}{}", (1..9).map(|n| format!("key{n}: 1\n")).collect::<String>()),
        ),
    ] {
        Mistake::new().with("bad.yaml", text).says(snapshot, &["run", "bad.yaml", "x"]);
    }
    Mistake::new().with("bad.yaml", b"agents:\n  \xff\n").says("yaml_no_text", &["run", "bad.yaml", "x"]);
}

#[test]
fn a_program_of_the_manifest_cannot_be_run() {
    let one = |program: &str| format!("agents:\n  a: {{type: command, command: [{program}]}}\n");
    for (snapshot, program) in [
        ("program_missing", "no-such-program"),
        ("program_beside_the_manifest", "script.sh"),
        ("program_path_missing", "./none.sh"),
        ("program_not_executable", "./script.sh"),
        ("program_is_a_directory", "./folder"),
    ] {
        let mistake = Mistake::new().with("bad.yaml", one(program)).with("script.sh", "echo hi\n");
        fs::create_dir(mistake.world.here().join("folder")).unwrap();
        mistake.says(snapshot, &["run", "bad.yaml", "x"]);
    }
}

#[test]
fn there_is_no_such_node() {
    let mistake = Mistake::new();
    mistake.says("node_misspelled", &["run", "pool.yaml", "x", "--node", "ehco"]);
    mistake.says("node_unknown", &["run", "pool.yaml", "x", "--node", "reviewer"]);
    mistake.says("node_empty", &["run", "pool.yaml", "x", "--node", ""]);
}

#[test]
fn the_prompt_is_missing_empty_or_not_text() {
    let mut mistake = Mistake::new().with("empty.txt", " \n").with("latin1.txt", b"caf\xe9\n");
    mistake.says("prompt_missing", &["run", "pool.yaml"]);
    mistake.says("prompt_empty", &["run", "pool.yaml", " "]);
    mistake.says("prompt_empty_stdin", &["run", "pool.yaml", "-"]);
    mistake.says("prompt_empty_file", &["run", "pool.yaml", "--prompt-file", "empty.txt"]);
    mistake.says("prompt_file_missing", &["run", "pool.yaml", "--prompt-file", "none.txt"]);
    mistake.says("prompt_file_is_a_directory", &["run", "pool.yaml", "--prompt-file", "."]);
    mistake.says("prompt_file_not_utf8", &["run", "pool.yaml", "--prompt-file", "latin1.txt"]);
    mistake.says("prompt_twice", &["run", "pool.yaml", "x", "--prompt-file", "empty.txt"]);
    mistake.says("prompt_without_quotes", &["run", "pool.yaml", "Review", "the", "change"]);
    mistake.stdin = b"a prompt \xff\n".to_vec();
    mistake.says("prompt_stdin_not_utf8", &["run", "pool.yaml", "-"]);
}

#[test]
fn a_runtime_or_its_trace_is_not_what_it_should_be() {
    let mut mistake =
        Mistake::new().with("notes.txt", "not a trace\n").with("silent.jsonl", "{\"dir\":\"mark\"}\n");
    mistake.says("drive_no_runtime", &["drive", "x"]);
    mistake.says("drive_runtime_missing", &["drive", "--runtime", "./no-such-runtime --profile sdk", "x"]);
    mistake.says("drive_runtime_without_quotes", &["drive", "--runtime", "cat", "-u", "x"]);
    mistake.says("drive_prompt_missing", &["drive", "--runtime", "cat"]);
    mistake.says("drive_resumes_nothing", &["drive", "--runtime", "cat", "--resume", "x"]);
    mistake.says("drive_passes_a_value", &["drive", "--runtime", "cat", "--pass", "KEY=value", "x"]);
    mistake.says("drive_patch_missing", &["drive", "--runtime", "cat", "--patch", "none.yml", "x"]);
    mistake.says("drive_trace_in_the_way", &["drive", "--runtime", "cat", "--trace", "notes.txt", "x"]);
    mistake.says("replay_missing", &["replay", "none.jsonl"]);
    mistake.says("replay_no_trace", &["replay", "notes.txt"]);
    mistake.says("replay_nothing_prompted", &["replay", "silent.jsonl"]);
    mistake.stdin.clear();
}

#[test]
fn the_prompt_is_too_long() {
    let mut mistake = Mistake::new()
        .with("small.yaml", "agents:\n  a: {type: command, command: [cat]}\nlimits: {max_prompt_bytes: 10}\n")
        .with("long.txt", "eleven byte");
    mistake.says("prompt_too_long", &["run", "small.yaml", "eleven byte"]);
    mistake.says("prompt_too_long_file", &["run", "small.yaml", "--prompt-file", "long.txt"]);
    mistake.stdin = vec![b'x'; 1 << 20];
    mistake.says("prompt_too_long_stdin", &["run", "small.yaml", "-"]);
    // 128 KiB, which the system does not take as an argument of the agent.
    mistake.stdin = vec![b'x'; 128 << 10];
    mistake.says("prompt_too_long_argument", &["run", "pool.yaml", "-", "--node", "by-argument"]);
    // One byte less is taken, by the system and by us.
    let longest = "x".repeat((128 << 10) - 1);
    let done = mistake.run(&["run", "pool.yaml", &longest, "--node", "by-argument"]).with(0);
    assert_eq!(done.stdout.trim_end().len(), longest.len());
}

#[test]
fn the_directory_is_missing_or_none() {
    let mistake = Mistake::new();
    mistake.says("dir_missing", &["run", "pool.yaml", "x", "--dir", "nowhere"]);
    mistake.says("dir_is_a_file", &["run", "pool.yaml", "x", "--dir", "pool.yaml"]);
    let mut command = mistake.command(&["run", "pool.yaml", "x", "--dir"]);
    let odd = mistake.world.path("o\u{1b}dd").into_os_string();
    let odd = [odd.as_bytes(), b"\xff"].concat();
    fs::create_dir(std::ffi::OsStr::from_bytes(&odd)).unwrap();
    command.arg(std::ffi::OsStr::from_bytes(&odd));
    let done = mistake.finish(command);
    mistake.is_said("dir_not_utf8", &["run", "pool.yaml", "x", "--dir", "ODD"], &done);
}

#[test]
fn there_is_nothing_to_look_at() {
    let mistake = Mistake::new();
    mistake.says("store_missing", &["ls"]);
    for command in [&["tree"][..], &["show", "latest"], &["watch"], &["cancel", "latest"]] {
        assert_eq!(mistake.run(command).with(1).stderr, mistake.run(&["ls"]).stderr, "{command:?}");
    }
    mistake.says("store_missing_named", &["--db", "none.db", "ls"]);
    mistake.says("store_memory", &["--db", "memory:", "ls"]);
    mistake.says("task_outside", &["task", "echo", "x"]);
}

#[test]
fn the_session_cannot_be_told() {
    let mistake = Mistake::new();
    for _ in 0..6 {
        mistake.run(&["run", "pool.yaml", "x", "--quiet"]).with(0);
    }
    let said = |snapshot: &str, arguments: &[&str]| {
        mistake.is_said(snapshot, arguments, &mistake.run(arguments));
    };
    said("id_unknown", &["show", "nope"]);
    said("id_misspelled", &["tree", "lastest"]);
    said("id_ambiguous", &["cancel", "ses_"]);
    said("id_empty", &["watch", ""]);
}

#[test]
fn the_store_cannot_be_used() {
    let mistake = Mistake::new()
        .with("diary.txt", "Dear diary, this is no database and it is long enough.\n".repeat(9));
    let home = mistake.world.picture(&mistake.world.here());
    mistake.says("store_is_no_database", &["--db", "diary.txt", "ls"]);
    mistake.says("store_is_a_directory", &["--db", ".", "ls"]);
    for db in ["diary.txt", "."] {
        let run = mistake.run(&["--db", db, "run", "pool.yaml", "x"]).with(1);
        assert_eq!(run.stderr, mistake.run(&["--db", db, "ls"]).stderr);
    }
    mistake.says("store_below_a_file", &["--db", "diary.txt/new.db", "run", "pool.yaml", "x"]);
    assert_eq!(
        mistake.world.picture(&mistake.world.here()),
        home,
        "nothing is left beside a stranger's file"
    );

    mistake.run(&["run", "pool.yaml", "x", "--quiet"]).with(0);
    let file = mistake.world.path("state/offspring/sessions.db");
    let newer = rusqlite::Connection::open(&file).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    drop(newer);
    mistake.is_said("store_is_newer", &["ls"], &mistake.run(&["ls"]));
}

#[test]
fn there_is_no_place_for_the_store() {
    let mistake = Mistake::new();
    let mut command = mistake.command(&["run", "pool.yaml", "x"]);
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let done = mistake.finish(command);
    mistake.is_said("store_without_home", &["run", "pool.yaml", "x"], &done);
}

#[test]
fn the_command_line_is_not_understood() {
    let mistake = Mistake::new();
    mistake.says("command_misspelled", &["rnu", "pool.yaml", "x"]);
    mistake.says("command_unknown", &["frobnicate"]);
    mistake.says("command_left_out", &["pool.yaml", "x"]);
    mistake.says("flag_misspelled", &["run", "pool.yaml", "x", "--jsn"]);
    mistake.says("flag_unknown", &["tree", "--frobnicate"]);
    mistake.says("arguments_missing", &["run"]);
    mistake.says("number_expected", &["ls", "-n", "many"]);
    mistake.says("prompt_begins_with_a_dash", &["run", "pool.yaml", "-x"]);
}

#[test]
fn an_agent_fails() {
    let mistake = Mistake::new();
    for (snapshot, node, code) in [
        ("agent_exits_3", "broken", 1),
        ("agent_exits_127", "no-such-command", 1),
        ("agent_is_killed", "killed", 1),
        ("agent_runs_too_long", "slow", 1),
        ("agent_below_fails", "asks-broken", 1),
        ("agent_below_is_asked_too_much", "asks-too-much", 1),
        ("agent_below_fails_and_is_forgiven", "forgives", 0),
        ("agent_starts_a_pool", "starts-a-pool", 1),
    ] {
        let arguments = ["run", "pool.yaml", "x", "--node", node];
        let done = mistake.ends_with(snapshot, &arguments);
        assert_eq!(done.code, Some(code), "{done:?}");
        // The command it names shows more.
        if let Some((_, command)) = done.stderr.split_once("what it said: ") {
            let line = command.lines().next().unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).envs(mistake.world.bare().get_envs().filter_map(|(k, v)| Some((k, v?))));
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
        }
    }
    let tree = mistake
        .run(&["run", "pool.yaml", "x", "--node", "asks-too-much", "--json", "--quiet"])
        .with(1)
        .stdout;
    let answer: serde_json::Value = serde_json::from_str(tree.lines().last().unwrap()).unwrap();
    assert_eq!(answer["event"]["data"]["first_failed"]["node"], "asks-too-much");
    assert_eq!(answer["event"]["data"]["first_failed"]["session"], answer["session"], "no child was made");
}

#[test]
fn the_failure_is_told_without_secrets_and_without_what_steers_a_terminal() {
    let mistake = Mistake::new().with(
        "leaky.yaml",
        "agents:\n  a: {type: command, command: [sh, -c, 'printf \"\\033[31mthe key is %s\\007 and \\033]0;title\" \"$KEY\" >&2; exit 9'], environment: {KEY: {from: MY_KEY}}}\n",
    );
    let mut command = mistake.command(&["run", "leaky.yaml", "x", "--quiet"]);
    command.env("MY_KEY", "correct-horse-battery");
    let done = mistake.finish(command).with(1);
    mistake.is_said("agent_says_a_secret", &["run", "leaky.yaml", "x", "--quiet"], &done);
    assert!(!done.stderr.contains(['\u{1b}', '\u{7}']) && !done.stderr.contains("correct-horse"));
}
