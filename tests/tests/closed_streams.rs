//! Whoever does not read ends nothing badly: a closed stdout, stderr or stdin, a disk that is full, for every command.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs::File,
    process::{Command, Output, Stdio},
};

use offspring_tests::{World, fake_runtime};

const POOL: &str = "
entry: ask
agents:
  ask: {type: command, command: [sh, -c, 'offspring task long x']}
  long: {type: command, command: [seq, '20000']}
  broken: {type: command, command: [sh, -c, 'echo no paper >&2; exit 3']}
  task: {type: command, command: [sh, -c, 'read -r line; $line']}
";

/// Every command that can be called from outside a run, with what it wants; `{}` is the directory of the world.
const COMMANDS: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["help", "run"],
    &["run", "{}/pool/pool.yaml", "x", "--quiet"],
    &["run", "{}/pool/pool.yaml", "x", "--json"],
    &["rerun", "latest", "--quiet"],
    &["ls"],
    &["ls", "--json"],
    &["tree"],
    &["tree", "--json"],
    &["tree", "--mermaid"],
    &["tree", "--dot"],
    &["show", "latest"],
    &["show", "latest", "--json"],
    &["watch", "latest"],
    &["watch", "latest", "--json"],
    &["search", "19999"],
    &["search", "19999", "--json"],
    &["cancel", "latest"],
    &["cancel", "latest", "--json"],
    &["export", "latest", "--format", "json"],
    &["export", "latest", "--format", "mermaid"],
    &["import", "{}/exported.json", "--json"],
    &["replay", "{trace}"],
    &["replay", "{trace}", "--json"],
    &["drive", "--runtime", "{fake} --trace {trace}", "--session", "root", "x", "--quiet"],
    &["drive", "--runtime", "{fake} --trace {trace}", "--session", "root", "x", "--json"],
    &["rm", "{root}"],
    &["prune", "--keep", "1000", "--dry-run"],
    &["init", "{}/new", "--json"],
    &["check", "{}/pool/pool.yaml"],
    &["check", "{}/pool/pool.yaml", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["schema", "manifest"],
    &["completions", "bash"],
    &["man"],
];
/// Inside a run only, or with a protocol on its stdout (`tests/serve` has what happens when nobody reads that).
const INSIDE: &[&str] = &["task", "serve"];

struct Closed {
    world: World,
    /// The root that was exported.
    id: String,
}

impl Closed {
    fn new() -> Self {
        let world = World::new();
        world.pool(POOL);
        world.run("ask", "x", &["--quiet"]).with(0);
        let exported = world.offspring(&["export", "latest", "--format", "json"]).with(0).stdout;
        world.write("exported.json", &exported);
        let id = world.tree("latest")[0]["id"].as_str().unwrap().to_owned();
        Self { world, id }
    }

    /// The command, on a store of its own where it would change it.
    fn command(&self, words: &[&str]) -> Command {
        let root = self.world.path("");
        let root = root.to_str().unwrap().trim_end_matches('/');
        let fill = |word: &&str| {
            word.replace("{}", root)
                .replace("{root}", &self.id)
                .replace("{trace}", concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/dsh/b_nested.jsonl"))
                .replace("{fake}", fake_runtime().to_str().unwrap())
        };
        let words: Vec<String> = words.iter().map(fill).collect();
        if words[0] == "init" {
            let _ = std::fs::remove_dir_all(&words[1]);
        }
        if matches!(words[0].as_str(), "import" | "rm") {
            let copy = self.world.path("copy.db");
            let _ = std::fs::remove_file(&copy);
            let on_copy = |words: &[String]| {
                let mut command = self.world.bare();
                command.arg("--db").arg(&copy).args(words);
                command
            };
            if words[0] == "rm" {
                let exported = self.world.path("exported.json").display().to_string();
                let import = on_copy(&["import".to_owned(), exported]).output().unwrap();
                assert!(import.status.success(), "{import:?}");
            }
            return on_copy(&words);
        }
        self.world.command(&words)
    }

    /// The same below a shell that closes or opens streams before it.
    fn redirected(&self, words: &[&str], redirection: &str) -> Output {
        let inner = self.command(words);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("\"$0\" \"$@\" {redirection}")]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.current_dir(inner.get_current_dir().unwrap()).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a run says at its end is no complaint.
fn is_quiet(words: &[&str], said: &str) -> bool {
    let ran = matches!(words[0], "run" | "rerun");
    if ran { said.contains("completed: 2 sessions") && !said.contains("error") } else { said.is_empty() }
}

#[test]
fn no_command_is_forgotten() {
    let world = World::new();
    let help = world.offspring(&["--help"]).with(0).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        let known = COMMANDS.iter().any(|words| words[0] == name) || INSIDE.contains(&name);
        assert!(known, "{name} prints something: what when nobody reads it?");
    }
}

#[test]
fn a_reader_that_went_away_before_the_first_line_ends_every_command_quietly() {
    let closed = Closed::new();
    for words in COMMANDS {
        let mut child = closed.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        assert!(is_quiet(words, &said(&output)), "{words:?}: {}", said(&output));
    }
}

#[test]
fn a_stream_that_is_closed_from_the_start_changes_nothing() {
    let closed = Closed::new();
    for words in COMMANDS {
        for redirection in [">&-", "2>&-", "<&-", ">&- 2>&- <&-"] {
            let output = closed.redirected(words, redirection);
            assert_eq!(output.status.code(), Some(0), "{words:?} {redirection}: {}", said(&output));
            assert!(!said(&output).contains("panicked"), "{words:?} {redirection}: {}", said(&output));
            let prints = !redirection.contains(">&- ") && redirection != ">&-";
            assert_eq!(!output.stdout.is_empty(), prints, "{words:?} {redirection}");
        }
    }
}

#[test]
fn a_disk_that_is_full_is_an_error_that_names_stdout() {
    let closed = Closed::new();
    for words in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = closed.command(words).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
        let error = said(&output).lines().last().unwrap_or_default().to_owned();
        assert_eq!(error, "error: stdout cannot be written: No space left on device", "{words:?}");
        // With nowhere to say it either, the code says it.
        let output = closed.redirected(words, ">/dev/full 2>/dev/full");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
    }
    // What was run is stored all the same.
    let roots = closed.world.json(&["ls", "--json", "-n", "100"]);
    assert!(roots.as_array().unwrap().iter().all(|root| root["run_state"] == "completed"), "{roots}");
    assert_eq!(roots.as_array().unwrap().len(), 1 + 2 * 3);
}

#[test]
fn head_ends_a_list_quietly_and_a_run_goes_on() {
    let closed = Closed::new();
    for (words, first) in [(&["ls"][..], "✓ completed "), (&["show", "latest"], "✓ ask completed ")] {
        let output = closed.redirected(words, "| head -n 1");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(first), "{output:?}");
        assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()), "{words:?}");
    }
    for (more, first) in [(&[][..], "1\n"), (&["--json"], "{\"seq\":1,")] {
        let words = [&["run", "{}/pool/pool.yaml", "x", "--quiet"], more].concat();
        let output = closed.redirected(&words, "| { head -n 1; }");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(first), "{output:?}");
        assert!(is_quiet(&words, &said(&output)), "{}", said(&output));
    }
    let roots = closed.world.json(&["ls", "--json"]);
    assert!(roots.as_array().unwrap().iter().all(|root| root["run_state"] == "completed"), "{roots}");
    assert_eq!(roots.as_array().unwrap().len(), 3);
}

#[test]
fn a_command_inside_a_run_does_as_well() {
    let closed = Closed::new();
    for (line, status) in [
        ("offspring task nodes >&-", "0"),
        ("offspring task long x >&- 2>&- <&-", "0"),
        ("offspring task long x | head -n 1", "1\n0"),
        ("offspring task long x >/dev/full", "error: stdout cannot be written: No space left on device\n1"),
        ("offspring task broken x 2>&-", "1"),
        ("offspring task nodes --json >/dev/full 2>&-", "1"),
    ] {
        let script = format!("exec 2>&1\n{line}\necho $?\n");
        closed.world.write("pool/inside.sh", &script);
        closed.world.write(
            "pool/inside.yaml",
            &format!("{POOL}  inside: {{type: command, command: [sh, inside.sh]}}\n"),
        );
        let pool = closed.world.path("pool/inside.yaml");
        let arguments = ["run", pool.to_str().unwrap(), "x", "--node", "inside", "--quiet"];
        let done = closed.world.offspring(&arguments).with(0);
        assert_eq!(done.stdout.trim_end(), status, "{line}");
    }
}
