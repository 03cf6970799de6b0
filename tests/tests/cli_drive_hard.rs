//! `offspring drive` where it is hard: slow readers, terminals, secrets, second signals, `kill -9`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use offspring_tests::{
    Running, World,
    dsh::fixture,
    fake_runtime,
    processes::{self, Seen, SignalName as Signal},
    terminal::Terminal,
    until,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

/// `drive` of a runtime that is a shell script: it takes the prompt of the session `root`, does what `turn` says, is idle
/// and answers what is asked then, but for `session/wait`.
fn shell(world: &World, turn: &str, more: &[&str]) -> Command {
    let script = format!(
        r#"
answer() {{ id=${{1#*\"id\":}}; id=${{id%%[,\}}]*}}; printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$2"; }}
say() {{ printf '{{"jsonrpc":"2.0","method":"%s","params":%s}}\n' "$1" "$2"; }}
started() {{ say subagent.started "{{\"parentSessionId\":\"$1\",\"childSessionId\":\"$2\"}}"; }}
finished() {{ say subagent.finished "{{\"parentSessionId\":\"$1\",\"childSessionId\":\"$2\",\"agentId\":\"$2\",\"provider\":\"p\",\"status\":\"$3\",\"stopReason\":\"completed\"}}"; }}
text() {{ say session.event "{{\"sessionId\":\"$1\",\"event\":{{\"type\":\"assistant/message\",\"data\":{{\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"$2\"}}]}}}}}}}}"; }}
until_gate() {{ until [ -e "$GATE" ]; do sleep 0.02; done; }}
read -r line; answer "$line" '{{}}'
read -r line
say session.event '{{"sessionId":"root","event":{{"type":"agent/inbox/spliced","data":{{"inserted":[{{"id":"m1"}}]}}}}}}'
answer "$line" '{{"messageId":"m1"}}'
{turn}
say session.status '{{"sessionId":"root","status":"idle"}}'
while read -r line; do case $line in *'"session/wait"'*) ;; *'"shutdown"'*) answer "$line" '{{}}'; exit 0;; *) answer "$line" '{{}}';; esac; done
"#
    );
    let file = world.write("runtime.sh", &script);
    let runtime = format!("sh {}", file.display());
    let mut command = world.command(&["drive", "--session", "root", "--pass", "GATE", "--runtime", &runtime]);
    command.env("GATE", world.path("gate")).args(more);
    command
}

fn of_kit(world: &World, runtime: &str, more: &[&str]) -> Command {
    let runtime = format!("{} {runtime}", fake_runtime().display());
    let mut command = world.command(&["drive", "--session", "root", "--runtime", &runtime]);
    command.args(more);
    command
}

fn of_trace(world: &World, name: &str, more: &[&str]) -> Command {
    let runtime = format!("{} --trace {}", fake_runtime().display(), fixture(name).display());
    let mut command = world.command(&["drive", "--session", &prompted(name), "--runtime", &runtime]);
    command.args(more);
    command
}

/// How many bytes a process has read so far.
fn read_by(pid: u32) -> u64 {
    number(&format!("/proc/{pid}/io"), "rchar:")
}

fn number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Two hundred thousand lines, 60 MB, in one test: less would fit a queue.
#[test]
fn t11_a_slow_reader_of_stdout_gets_all_of_a_long_turn_and_memory_stays_flat() {
    const LINES: usize = 200_000;
    let world = World::new();
    let turn = format!(
        r#"pad=$(printf '%0200d' 7); yes "$(say session.event "{{\"sessionId\":\"root\",\"event\":{{\"type\":\"note\",\"data\":\"$pad\"}}}}")" | head -n {LINES}"#
    );
    let mut command = shell(&world, &turn, &["--json", "x"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (pid, mut stdout) = (child.id(), BufReader::new(child.stdout.take().unwrap()));
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    // Nobody reads on, and so it stops reading as well, long before the end.
    let mut before = (0, 0);
    until("a held up runtime", SOON, || {
        let now = read_by(pid);
        before = if now == before.0 { (now, before.1 + 1) } else { (now, 0) };
        (before.1 == 10).then_some(())
    });
    assert!(before.0 < 30 << 20, "{} bytes were read for nobody", before.0);
    let (mut lines, mut last) = (1, String::new());
    for line in stdout.lines() {
        last = line.unwrap();
        lines += 1;
        if lines == LINES {
            let peak = number(&format!("/proc/{pid}/status"), "VmHWM:");
            assert!((1..100 << 10).contains(&peak), "{peak} KiB");
        }
    }
    // The receipt, the idle and the result.
    assert_eq!(lines, LINES + 3);
    let result: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(result["result"]["notifications"], LINES + 2);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_is_heard_at_once_while_nobody_reads_stdout() {
    let world = World::new();
    let turn = r#"yes "$(text root abcdefghijklmnopqrstuvwxyz)""#;
    let mut command = shell(&world, turn, &["--json", "x"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    processes::send(child.id(), Signal::INT);
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    world.until_nothing_lives(SOON);
}

/// What stands on the screen, without sequences.
fn text(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            assert_eq!(rest.next(), Some('['), "only CSI sequences are ours: {shown:?}");
            let _ = rest.by_ref().find(|c| c.is_ascii_alphabetic());
        } else {
            text.push(c);
        }
    }
    text
}

#[test]
fn t3_a_terminal_has_a_live_tree_and_all_of_it_once_more_at_the_end() {
    let world = World::new();
    let turn = "started root kid; started kid grandkid; started root other; finished root other error; text kid 'at it'; \
                started grandkid root; started other grandkid; until_gate; finished other grandkid ok; finished root kid ok; \
                text root hello";
    let terminal = Terminal::start(&shell(&world, turn, &["x"]), 24, 80);
    terminal.until_screen("the live tree", |rows| {
        let shown = rows.join("\n");
        ["▶ root running ", "├─ ▶ kid running ", "at it", "└─ ✗ other failed ", "   └─ ▶ grandkid running "]
            .iter()
            .all(|part| shown.contains(part))
            .then_some(())
    });
    world.write("gate", "");
    let (code, shown) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    let shown = text(&shown);
    let (_, end) = shown.rsplit_once("✓ root completed ").expect("the tree at the end");
    for part in
        ["✓ kid completed ", "✗ other failed ", "✓ grandkid completed ", "hello\r\n", "no model turn: "]
    {
        assert!(end.contains(part), "{part}: {end}");
    }
}

#[test]
fn w11_nothing_that_a_runtime_says_steers_a_terminal() {
    let world = World::new();
    for more in [&["x"][..], &["--json", "x"], &["--quiet", "x"]] {
        let (code, shown) = Terminal::start(&of_kit(&world, "w11-control-sequences", more), 24, 100).finish();
        assert_eq!(code, Some(0), "{shown}");
        let shown = text(&shown);
        assert!(!shown.contains(['\u{7}', '\u{8}', '\u{9b}', '\u{202e}']), "{shown:?}");
    }
}

#[test]
fn ctrl_c_leaves_the_terminal_as_it_was_and_a_second_one_kills_at_once() {
    let world = World::new();
    // It obeys nobody: only SIGKILL ends it.
    let turn = "trap '' INT TERM HUP; started root kid; while :; do sleep 0.1; done";
    let mut terminal = Terminal::start(&shell(&world, turn, &["x"]), 24, 80);
    terminal.until_text("kid running");
    terminal.send(Signal::INT);
    terminal.until_text("once more kills it");
    let began = Instant::now();
    terminal.send(Signal::INT);
    assert_eq!(terminal.wait(), Some(130));
    // The first alone takes four seconds.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(terminal.cursor().visible, "the cursor is back: {:?}", terminal.shown());
    let _ = terminal.finish();
    world.until_nothing_lives(SOON);
}

#[test]
fn w10_no_spelling_of_a_secret_is_shown_and_ordinary_values_leave_the_wire_as_it_is() {
    let world = World::new();
    let file = world.path("wire.jsonl");
    let turn = r#"started root "kid-$MY_TOKEN"; finished root "kid-$MY_TOKEN" ok
printf '%s\n' '{"jsonrpc":"2.0","method":"note","params":{"sessionId":"root","a":8080,"method":"sess\u0069on.event 80808080","k":"h\u0075nter2-hunter2","n":"{\"k\":\"hunter2\\u002dhunter2\"}","u":"pa55wo"}}'
echo "$DEEPSEEK_BASE_URL" >&2; echo out hunter2-hunter2"#;
    let arguments = [
        "--trace",
        file.to_str().unwrap(),
        "--pass",
        "MY_TOKEN",
        "--pass",
        "PORT",
        "--pass",
        "WORD",
        "--pass",
        "LONG",
        "x",
    ];
    let mut command = shell(&world, turn, &arguments);
    command.env("MY_TOKEN", "hunter2-hunter2").env("PORT", "80808080").env("WORD", "method");
    command.env("LONG", "session.event").env("DEEPSEEK_BASE_URL", "http://me:pa55wo@localhost:1/");
    let done = Running::start(command).finish().with(0);
    assert!(done.stderr.contains("+ kid-[redacted] started by the session"), "{}", done.stderr);
    assert!(done.stderr.contains("- kid-[redacted] finished: ok"), "{}", done.stderr);
    let wire = std::fs::read_to_string(&file).unwrap();
    assert!(!wire.contains("hunter2") && !wire.contains("pa55wo") && !wire.contains("nter2"), "{wire}");
    let lines: Vec<Value> = wire.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let methods: Vec<&str> = lines.iter().filter_map(|line| line["msg"]["method"].as_str()).collect();
    for method in
        ["initialize", "session/prompt", "session.event", "session.status", "subagent.started", "note"]
    {
        assert!(methods.contains(&method), "{method}: {methods:?}");
    }
    let note = &lines.iter().find(|line| line["msg"]["method"] == "note").unwrap()["msg"]["params"];
    assert_eq!(note["a"], 8080);
    // A number and a short word are no secrets; a long value of an innocent name is one.
    assert_eq!(note["method"], "[redacted] 80808080");
    assert_eq!(
        (&note["k"], &note["n"], &note["u"]),
        (&"[redacted]".into(), &"[redacted]".into(), &"[redacted]".into())
    );
    // It is a trace as any other.
    world.offspring(&["replay", file.to_str().unwrap()]).with(0);
}

#[test]
fn a_model_turn_that_ended_as_error_says_why_however_quiet() {
    let world = World::new();
    let why = "error: the model turn ended as `error`: INVALID_REQUEST: bad request from the fake model";
    for more in [&["x"][..], &["--quiet", "x"], &["--json", "x"]] {
        let done = Running::start(of_trace(&world, "f_http400.jsonl", more)).finish().with(1);
        assert!(done.stderr.contains(why), "{more:?}: {}", done.stderr);
        if more[0] == "--json" {
            let result: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
            assert_eq!(result["result"]["finish_reason"], "error");
            assert_eq!(result["result"]["end"], "idle");
            assert!(result["result"]["error"].as_str().unwrap().starts_with("INVALID_REQUEST: "));
        }
    }
}

/// The session that a trace prompts first.
fn prompted(name: &str) -> String {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let prompt = lines.find(|line| line["msg"]["method"] == "session/prompt").unwrap();
    prompt["msg"]["params"]["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn json_has_a_last_object_also_when_the_turn_fails() {
    let world = World::new();
    let last = |command: Command| -> Value {
        let done = Running::start(command).finish().with(1);
        assert!(done.stderr.starts_with("error: "), "{}", done.stderr);
        let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(last["result"]["end"], "failed", "{last}");
        assert!(!last["result"]["error"].as_str().unwrap().is_empty(), "{last}");
        last
    };
    let died = last(shell(&world, "started root kid; exit 3", &["--json", "x"]));
    assert_eq!(died["result"]["tree"][0]["runs"][0]["status"], "interrupted");
    assert_eq!(
        (&died["result"]["session_id"], &died["result"]["notifications"]),
        (&"root".into(), &2.into())
    );
    // Before there was a turn at all.
    let mut none = world.command(&["drive", "--json", "--runtime", "sh -c 'exit 3'", "x"]);
    none.stdin(Stdio::null());
    assert_eq!(last(none)["result"]["session_id"], Value::Null);
}

#[test]
fn w8_a_timeout_bounds_a_tree_that_is_never_said_to_rest() {
    let world = World::new();
    let began = Instant::now();
    let done = Running::start(shell(&world, "", &["--tree", "--timeout", "1", "x"])).finish().with(1);
    assert!(done.stderr.contains("`session/wait` is not answered"), "{}", done.stderr);
    // One that talks on is not silent, and is over all the same.
    let turn = "started root kid; say session.status '{\"sessionId\":\"root\",\"status\":\"idle\"}'; while :; do text kid x; sleep 0.1; done";
    let done = Running::start(shell(&world, turn, &["--tree", "--timeout", "1", "x"])).finish().with(1);
    assert!(done.stderr.contains("not over after 1 s (--timeout); at work: kid"), "{}", done.stderr);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_stored_session_is_resumed_before_it_is_prompted() {
    let world = World::new();
    let file = world.path("wire.jsonl");
    let script = world.write("resume.script", "take session/resume root as r\nreply r {}\nprompt root\nmessage root \"again\"\nturn-end root\nstatus root idle\n");
    let runtime = script.display().to_string();
    let done =
        Running::start(of_kit(&world, &runtime, &["--resume", "--trace", file.to_str().unwrap(), "x"]));
    assert_eq!(done.finish().with(0).stdout, "again\n");
    let wire = std::fs::read_to_string(&file).unwrap();
    let sent: Vec<String> = wire
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["dir"] == "c2s")
        .map(|line| line["msg"]["method"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent[..3], ["initialize", "session/resume", "session/prompt"]);
    let refusal = "take session/resume root as r\nerror r -32603 \"session \\\"root\\\" not found\"\n";
    let script = world.write("refused.script", refusal).display().to_string();
    let done = Running::start(of_kit(&world, &script, &["--resume", "x"])).finish().with(1);
    assert!(done.stderr.contains("refused session/resume: session \"root\" not found"), "{}", done.stderr);
}

#[test]
fn what_is_passed_and_not_set_is_said() {
    let world = World::new();
    let done =
        Running::start(of_trace(&world, "b_nested.jsonl", &["--pass", "NO_SUCH_NAME", "-q", "x"])).finish();
    assert_eq!(
        done.with(0).stderr,
        "warning: --pass: NO_SUCH_NAME is not set here, so the runtime will have none\n"
    );
}

#[test]
fn w4_what_was_not_activated_is_an_error_unless_it_is_allowed() {
    let world = World::new();
    let script = "w04-not-all-was-activated";
    let done = Running::start(of_kit(&world, script, &["x"])).finish().with(1);
    assert!(done.stderr.contains("--allow-inactive-plugins"), "{}", done.stderr);
    let more = ["--allow-inactive-plugins", "--timeout", "5", "x"];
    let done = Running::start(of_kit(&world, script, &more)).finish();
    assert!(!done.stderr.contains("did not activate"), "{}", done.stderr);
}

/// Kills `drive` and its guard at once: stopped first, so that none can act on the death of the other.
fn kill_at_once(world: &World, drive: Running) {
    until("the runtime and its guard", SOON, || (world.processes().len() >= 3).then_some(()));
    let guards: Vec<Seen> = world.processes().into_iter().filter(Seen::is_guard).collect();
    assert_eq!(guards.len(), 1, "{guards:?}");
    let all = [guards[0].pid, drive.pid()];
    all.iter().for_each(|pid| processes::send(*pid, Signal::STOP));
    all.iter().for_each(|pid| processes::send(*pid, Signal::KILL));
    assert_eq!(drive.finish().signal, Some(9));
}

#[test]
fn l14_when_drive_and_its_guard_are_killed_at_once_a_runtime_reads_the_end_of_its_input_and_ends() {
    let world = World::new();
    // The turn never ends; the runtime reads on, as those of dsh do.
    let turn = "started root kid; while read -r line; do :; done; exit 0";
    kill_at_once(&world, Running::start(shell(&world, turn, &["--json", "x"])));
    world.until_nothing_lives(SOON);
}

#[test]
fn l14_what_does_not_read_its_input_is_named_by_doctor_after_drive_and_its_guard_were_killed() {
    let world = World::new();
    let mut drive = Running::start(shell(&world, "text root deaf; exec sleep 600", &["--json", "x"]));
    let _ = drive.until_json(|line| line["params"]["event"]["type"] == "assistant/message");
    let deaf = until("the deaf runtime", SOON, || {
        world.processes().iter().find(|seen| seen.is_sleeper()).map(|seen| seen.pid)
    });
    kill_at_once(&world, drive);
    let said = world.offspring(&["doctor"]).with(1).stdout;
    assert!(said.contains(&format!("{deaf} (sleep)")), "{said}");
    processes::send(deaf, Signal::KILL);
    world.until_nothing_lives(SOON);
}
