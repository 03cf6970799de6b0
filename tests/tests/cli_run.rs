//! `offspring run`: what it prints where, how it ends, what it refuses before anything exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use offspring_tests::{Running, World};
use serde_json::Value;

const POOL: &str = "
name: desk
entry: ask
agents:
  echo: {type: command, command: [cat]}
  broken: {type: command, command: [sh, -c, 'echo no paper >&2; exit 3']}
  ask: {type: command, command: [sh, -c, 'echo asking >&2; offspring task echo \"$(cat)\"; offspring task broken x || :']}
  fails: {type: command, command: [sh, -c, 'offspring task broken x']}
";

#[test]
fn stdout_has_the_answer_only_and_stderr_plain_lines_and_one_line_at_the_end() {
    let world = World::new();
    world.pool(POOL);
    let done = world.run("ask", "one\ntwo", &[]).with(0);
    assert_eq!(done.stdout, "one\ntwo\n");
    let lines: Vec<&str> = done.stderr.lines().collect();
    let (last, lines) = lines.split_last().unwrap();
    assert!(
        lines.iter().any(|line| line.starts_with("✓ ask completed ") && line.ends_with("no paper")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("  ✗ broken failed ") && line.contains("no paper")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    // Sessions, depth, failures, wall time, where it is stored, how to look at it.
    assert!(last.starts_with("completed: 3 sessions, depth 1, 1 failed, "), "{last}");
    assert!(last.contains(&format!("stored in {}", world.db().display())), "{last}");
    let (_, look) = last.split_once("look at it with: ").unwrap();
    let shown = Command::new("sh").args(["-c", look]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("✓ ask completed "), "{look}: {shown:?}");
}

#[test]
fn with_json_stdout_has_only_envelopes_numbered_without_gap_and_the_answer_is_last() {
    let world = World::new();
    world.pool(POOL);
    let done = world.run("ask", "hello", &["--json"]).with(0);
    let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (answer, events) = lines.split_last().unwrap();
    for (index, line) in events.iter().enumerate() {
        assert_eq!(line["seq"], index as u64 + 1);
    }
    for line in &lines {
        let path = line["path"].as_array().unwrap();
        assert_eq!(path.first(), Some(&line["root"]));
        assert_eq!(path.last(), Some(&line["session"]));
        assert_eq!(line["depth"], path.len() as u64 - 1);
        assert!(
            line["at"].is_u64() && line["agent"].is_string() && line["event"]["data"].is_object(),
            "{line}"
        );
    }
    assert_eq!(answer["event"]["kind"], "answer");
    assert_eq!(answer["event"]["data"]["text"], "hello");
    assert_eq!(answer["event"]["data"]["outcome"], "completed");
    assert!(events.iter().all(|line| line["event"]["kind"] != "answer"));
}

#[test]
fn the_exit_code_is_1_when_the_root_fails() {
    let world = World::new();
    world.pool(POOL);
    let done = world.run("fails", "x", &[]).with(1);
    assert_eq!(done.stdout, "");
    assert!(
        done.stderr
            .contains("failed: fails exited with status 1: error: broken exited with status 3: no paper"),
        "{done:?}"
    );
    assert!(
        done.stderr.lines().last().unwrap().starts_with("failed: 2 sessions, depth 1, 2 failed, "),
        "{done:?}"
    );
    // What there is of an answer stays where it is read by programs.
    let done = world.run("fails", "x", &["--json", "--quiet"]).with(1);
    let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"]["data"]["outcome"], "failed");
    assert!(done.stderr.lines().count() <= 6, "{done:?}");
}

#[test]
fn what_can_be_known_before_is_said_with_code_2_and_nothing_is_made() {
    let world = World::new();
    world.pool(POOL);
    let manifest = |text: &str| world.write("pool/wrong.yaml", text).display().to_string();
    let good = world.path("pool/pool.yaml").display().to_string();
    let missing = manifest("agents: {a: {type: command, command: [no-such-program]}}");
    let cases: Vec<(Vec<String>, &[&str])> = vec![
        (vec!["none.yaml".into(), "x".into()], &["there is no manifest none.yaml"]),
        (vec![missing, "x".into()], &["wrong.yaml:1:", "`no-such-program` is not on PATH"]),
        (
            vec![good.clone(), "x".into(), "--node".into(), "ecko".into()],
            &["no node `ecko`", "did you mean `echo`"],
        ),
        (vec![good.clone(), "x".into(), "--dir".into(), "nowhere".into()], &["--dir nowhere"]),
        (vec![good.clone(), "x".into(), "--dir".into(), good.clone()], &["not a directory"]),
        (vec![good.clone(), " ".into()], &["the prompt is empty"]),
        (vec![good.clone()], &["there is no prompt", "PROMPT"]),
        (vec![good, "x".into(), "--jsn".into()], &["--jsn", "--json"]),
    ];
    for (arguments, said) in cases {
        let mut command = world.bare();
        command.arg("run").args(&arguments);
        let done = Running::start(command).finish().with(2);
        assert_eq!(done.stdout, "", "{arguments:?}");
        for text in said {
            assert!(done.stderr.contains(text), "{arguments:?}: {} lacks {text}", done.stderr);
        }
        assert!(!done.stderr.contains("Error {") && !done.stderr.contains("::"), "{}", done.stderr);
    }
    let many = world.write("pool/wrong.yaml", "agents:\n  a: {type: comand, command: [cat]}\nentyr: a\n");
    let mut command = world.bare();
    command.arg("run").arg(&many).arg("x");
    let done = Running::start(command).finish().with(2);
    assert!(done.stderr.contains("wrong.yaml:3:1") && done.stderr.contains("`entry`"), "{}", done.stderr);
    for folder in ["state", "tmp", "here", "home"] {
        assert_eq!(world.picture(&world.path(folder)), [], "{folder}");
    }
}

#[test]
fn a_run_inside_a_session_is_refused_and_a_new_root_can_be_insisted_on() {
    let world = World::new();
    let pool = world.pool(
        "agents:\n  inner: {type: command, command: [cat]}\n  outer: {type: command, command: [sh, -c, 'cat >/dev/null; offspring run \"$OFFSPRING_MANIFEST_DIR/pool.yaml\" hello --node inner --quiet $MORE'], environment: {MORE: {from: MORE}}}\nentry: outer\n",
    );
    let done = world.run("outer", "x", &[]).with(1);
    assert!(
        done.stderr.contains("this is inside a session: `offspring task NODE PROMPT`"),
        "{}",
        done.stderr
    );
    assert_eq!(world.json(&["ls", "--json"]).as_array().unwrap().len(), 1);

    let mut command = world.command(&["run"]);
    command.arg(pool).arg("x").env("MORE", "--new-root");
    let done = Running::start(command).finish().with(0);
    assert_eq!(done.stdout, "hello\n");
    let roots = world.json(&["ls", "--json"]);
    let newest: Vec<&str> =
        roots.as_array().unwrap().iter().map(|root| root["agent_name"].as_str().unwrap()).collect();
    assert_eq!(newest, ["inner", "outer", "outer"]);
}

#[test]
fn paths_of_a_manifest_start_at_its_directory_and_the_current_one_is_neither_read_nor_written() {
    let world = World::new();
    let tool = world.write("pool/bin/tool.sh", "#!/bin/sh\necho \"tool in $(pwd) with $(cat \"$1\")\"\n");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    world.write("pool/data/fact.txt", "the pool's fact");
    world.pool(
        "agents:\n  a: {type: command, command: [./bin/tool.sh, data/fact.txt]}\nstorage: {type: sqlite, path: kept/sessions.db}\n",
    );
    // Decoys where the program is called.
    world.write("cwd/bin/tool.sh", "#!/bin/sh\necho decoy\n");
    world.write("cwd/data/fact.txt", "decoy");
    for name in ["pool.yaml", "offspring.yaml", ".offspring.yaml", ".env", "sessions.db", "offspring"] {
        world.write(&format!("cwd/{name}"), "decoy");
    }
    let before = (world.picture(&world.path("cwd")), world.picture(&world.here()));
    let mut command = world.bare();
    command.current_dir(world.path("cwd")).args([
        "run",
        "../pool/pool.yaml",
        "x",
        "--dir",
        "../here",
        "--quiet",
    ]);
    let done = Running::start(command).finish().with(0);
    assert_eq!(
        done.stdout,
        format!("tool in {} with the pool's fact\n", world.here().canonicalize().unwrap().display())
    );
    assert!(world.path("pool/kept/sessions.db").is_file(), "{}", done.stderr);
    assert_eq!((world.picture(&world.path("cwd")), world.picture(&world.here())), before);
    assert_eq!(world.picture(&world.path("tmp")), [], "private directories go with the program");
}

#[test]
fn w10_the_environment_is_what_the_manifest_lists_and_a_small_set() {
    let world = World::new();
    let pool = world.pool("agents: {a: {type: command, command: [env], environment: {GREETING: hi, KEY: {from: MY_KEY}, UNSET: {from: NOT_THERE}}}}");
    let mut command = world.command(&["run"]);
    command.arg(pool).arg("x").env("MY_KEY", "s3cret-value").env("OTHER_SECRET", "leak").env("LC_TIME", "C");
    let done = Running::start(command).finish().with(0);
    let mut names: Vec<&str> = done.stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let expected = [
        "GREETING",
        "HOME",
        "KEY",
        "LC_TIME",
        "OFFSPRING_BIN",
        "OFFSPRING_DB",
        "OFFSPRING_MANIFEST_DIR",
        "OFFSPRING_RUN",
        "OFFSPRING_SCRATCH",
        "OFFSPRING_SESSION",
        "OFFSPRING_SOCKET",
        "OFFSPRING_TOKEN",
        "PATH",
        "TMPDIR",
    ];
    assert_eq!(names, expected);
    assert!(
        done.stdout.contains("GREETING=hi\n") && done.stdout.contains("KEY=[redacted]\n"),
        "{}",
        done.stdout
    );
}

#[test]
fn w10_a_secret_reaches_no_output_log_error_or_store_also_when_it_is_written_in_two_pieces() {
    let world = World::new();
    let script = "
printf 'first %s\\n' \"$KEY\"
printf '%.7s' \"$KEY\"; sleep 0.2; printf '%s\\n' \"${KEY#???????}\"
offspring task child \"$(printf '%s' \"$KEY\" | rev)\" || :
printf 'stderr %.9s' \"$KEY\" >&2; sleep 0.4; printf '%s\\n' \"${KEY#?????????}\" >&2; sleep 0.3
echo \"the last word: $KEY\" >&2
exit 1
";
    world.write("pool/leaky.sh", script);
    let pool = world.pool(
        "agents:\n  a: {type: command, command: [sh, leaky.sh], environment: {KEY: {from: MY_KEY}}}\n  child: {type: command, command: [sh, -c, 'rev; sleep 0.1']}\nentry: a\n",
    );
    let secret = "hunter2-correct-horse";
    let mut command = world.command(&["run"]);
    command.arg(pool).args(["x", "--json"]).env("MY_KEY", secret).env("OFFSPRING_LOG", "trace");
    let done = Running::start(command).finish().with(1);
    let shown = format!("{}{}", done.stdout, done.stderr);
    assert!(shown.contains("first [redacted]") && shown.contains("the last word: [redacted]"), "{shown}");
    let tree = world.tree("latest");
    let mut all = shown;
    for session in &tree {
        all.push_str(&world.offspring(&["show", session["id"].as_str().unwrap(), "--json"]).stdout);
    }
    for entry in fs::read_dir(world.path("")).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        all.push_str(&String::from_utf8_lossy(&fs::read(entry.path()).unwrap()));
    }
    // Not whole, and no piece that says much of it.
    for piece in [secret, "hunter2", "correct-horse"] {
        assert!(
            !all.contains(piece),
            "{piece} in {}",
            &all[all.find(piece).unwrap().saturating_sub(300)..][..600]
        );
    }
}

#[test]
fn a_prompt_may_be_long_and_one_that_is_too_long_is_refused() {
    let world = World::new();
    let pool = world.pool(
        "agents:\n  count: {type: command, command: [wc, -c]}\n  file: {type: command, prompt: file, command: [sh, -c, 'wc -c <\"$OFFSPRING_PROMPT_FILE\"; cmp \"$1\" \"$OFFSPRING_PROMPT_FILE\"', sh]}\n  argument: {type: command, prompt: argument, command: [sh, -c, 'printf %s \"$1\" | wc -c', sh]}\n  passes: {type: command, command: [sh, -c, 'offspring task count -']}\n  doubles: {type: command, command: [sh, -c, 'p=$(cat); { printf %s \"$p\"; printf %s \"$p\"; } | offspring task count -']}\nlimits: {max_prompt_bytes: 6000000}\nentry: count\n",
    );
    let ask = |node: &str, prompt: &[u8]| {
        let mut command = world.command(&["run"]);
        command.arg(&pool).args(["-", "--quiet", "--node", node]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(prompt);
        let output = child.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let long = vec![b'x'; 5_000_000];
    for node in ["count", "file", "passes"] {
        let (code, answer, said) = ask(node, &long);
        assert_eq!((code, answer.as_str()), (Some(0), "5000000"), "{node}: {said}");
    }
    assert_eq!(ask("argument", &long[..131_071]).1, "131071");
    let (code, _, said) = ask("argument", &long[..131_072]);
    assert_eq!(code, Some(2));
    assert!(said.contains("use `prompt: stdin` or `prompt: file` for this agent"), "{said}");
    let (code, _, said) = ask("doubles", &long);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("the prompt has 10000000 bytes and the limit is 6000000 (limits.max_prompt_bytes)"),
        "{said}"
    );
    assert_eq!(ask("count", &vec![b'x'; 6_000_001]).0, Some(2));
    let (code, _, said) = ask("count", b"\xff\xfe");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("not UTF-8"), "{said}");
}

#[test]
fn a_reader_that_goes_away_ends_nothing_and_nothing_panics() {
    let world = World::new();
    world.pool("agents: {a: {type: command, command: [sh, -c, 'i=0; while [ $i -lt 3000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done']}}");
    for more in [&["--json"][..], &[]] {
        let mut command = world.run_command("a", "x", more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = child.wait_with_output().unwrap();
        let said = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
        assert_eq!(said.0, Some(0), "{}", said.1);
        assert!(!said.1.contains("panicked") && said.1.contains("completed: 1 session"), "{}", said.1);
    }
    let mut command = world.run_command("a", "x", &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.ends_with(b"line 2999\n"));
    assert_eq!(world.json(&["ls", "--json"]).as_array().unwrap().len(), 3);
    // A disk that is full is an error of its own.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = world.run_command("a", "x", &["--quiet"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = "error: stdout cannot be written: No space left";
    assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{output:?}");
}

#[test]
fn w11_what_an_agent_prints_does_not_steer_the_terminal_and_a_pipe_loses_nothing() {
    let world = World::new();
    world.pool(r#"agents: {a: {type: command, command: [sh, -c, 'printf "\033[31mred\007\n"; printf "\033]0;title\007 err\n" >&2; exit 0']}}"#);
    let done = world.run("a", "x", &[]).with(0);
    assert_eq!(done.stdout, "\u{1b}[31mred\u{7}\n");
    assert!(!done.stderr.contains(['\u{1b}', '\u{7}']), "{:?}", done.stderr);
    let shown = world.offspring(&["show", "latest"]).with(0).stdout;
    assert!(shown.contains("[31mred") && !shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    let watched = world.offspring(&["watch", "latest"]).with(0).stdout;
    assert!(!watched.contains(['\u{1b}', '\u{7}']), "{watched:?}");
}

#[test]
fn the_store_is_the_one_that_is_named_else_the_users_own() {
    let world = World::new();
    let pool = world.pool("agents: {a: {type: command, command: [cat]}}");
    let run = |change: &dyn Fn(&mut Command)| {
        let mut command = world.bare();
        command.arg("run").arg(&pool).arg("x");
        change(&mut command);
        Running::start(command).finish().with(0).stderr
    };
    let stored = |said: &str, path: &str| {
        let path = world.path(path);
        assert!(said.contains(&format!("stored in {}", path.display())), "{said}");
        assert!(path.is_file(), "{}", path.display());
    };
    let user = run(&|_| {});
    stored(&user, "state/offspring/sessions.db");
    assert!(!user.contains("--db"), "the user's own store needs no naming: {user}");
    stored(
        &run(&|command| {
            command.env_remove("XDG_STATE_HOME");
        }),
        "home/.local/state/offspring/sessions.db",
    );
    stored(
        &run(&|command| {
            command.env("OFFSPRING_DB", world.path("a b.db"));
        }),
        "a b.db",
    );
    stored(
        &run(&|command| {
            command
                .env("OFFSPRING_DB", world.path("not.db"))
                .arg("--db")
                .arg(world.path("new/deep/named.db"));
        }),
        "new/deep/named.db",
    );
    assert!(!world.path("not.db").exists());
    let memory = run(&|command| {
        command.args(["--db", "memory:"]).env("XDG_STATE_HOME", world.path("untouched"));
    });
    assert!(memory.contains("memory") && !memory.contains("look at it"), "{memory}");
    assert!(!world.path("untouched").exists());
    // In the modes of a private thing.
    let mode = fs::metadata(world.path("state/offspring")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn a_store_that_was_taken_away_is_not_said_to_hold_the_run() {
    let world = World::new();
    world.pool("agents: {vandal: {type: command, command: [sh, -c, 'rm \"$OFFSPRING_DB\"; echo gone']}}");
    let done = world.run("vandal", "x", &[]).with(0);
    assert_eq!(done.stdout, "gone\n");
    let last = done.stderr.lines().last().unwrap();
    assert!(
        last.ends_with("sessions.db, which was removed or replaced meanwhile: nothing of this run is kept"),
        "{last}"
    );
}

#[test]
fn a_store_of_a_newer_program_or_of_something_else_is_refused_and_left_alone() {
    let world = World::new();
    let pool = world.pool("agents: {a: {type: command, command: [cat]}}");
    world.run("a", "x", &["--quiet"]).with(0);
    let newer = rusqlite::Connection::open(world.db()).unwrap();
    let version: i64 = newer.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    newer.pragma_update(None, "user_version", version + 1).unwrap();
    drop(newer);
    for arguments in [&["ls"][..], &["run", pool.to_str().unwrap(), "x"]] {
        let done = world.offspring(arguments).with(1);
        assert!(done.stderr.contains("newer"), "{}", done.stderr);
        assert!(done.stderr.contains(world.db().to_str().unwrap()), "{}", done.stderr);
    }
    let other =
        world.write("other.db", "this is a diary, and no database at all, and long enough to be none\n");
    let mut command = world.bare();
    command.arg("--db").arg(&other).arg("run").arg(&pool).arg("x");
    let done = Running::start(command).finish().with(1);
    assert!(done.stderr.contains("other.db"), "{}", done.stderr);
    assert!(fs::read_to_string(other).unwrap().starts_with("this is a diary"));
}

#[test]
fn a_pool_without_an_entry_runs_the_node_that_is_named() {
    let world = World::new();
    world.pool("agents:\n  a: {type: command, command: [cat]}\n  b: {type: command, command: [cat]}\n");
    assert_eq!(world.run("b", "hello", &["--quiet"]).with(0).stdout, "hello\n");
    let path = world.path("pool/pool.yaml");
    let done = world.offspring(&["run", path.to_str().unwrap(), "x"]).with(2);
    assert!(done.stderr.contains("add --node NAME; there are: a, b"), "{done:?}");
    let checked = world.offspring(&["check", path.to_str().unwrap()]).with(0);
    assert!(checked.stdout.contains("entry     none"), "{checked:?}");
}

#[test]
fn a_duration_is_the_same_in_the_summary_the_tree_and_the_list() {
    let world = World::new();
    world.pool("agents:\n  a: {type: command, command: [sh, -c, 'sleep 0.2']}\n");
    let done = world.run("a", "x", &["--quiet"]).with(0);
    let ms = world.tree("latest")[0]["duration_ms"].as_u64().unwrap();
    assert!((200..1_000).contains(&ms), "{ms}");
    let shown = format!("{ms} ms");
    assert!(done.stderr.contains(&format!(", {shown}, stored in")), "{shown} is not in {}", done.stderr);
    for command in ["tree", "ls"] {
        let text = world.offspring(&[command]).with(0).stdout;
        assert!(text.contains(&shown), "{shown} is not in {text}");
    }
}
