//! `offspring export`: a tree for other programs, whole, harmless, and no larger in memory than a line of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Stdio,
    time::Duration,
};

use offspring_tests::{World, processes::SignalName as Signal, terminal::Terminal};
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
  bad: {type: command, command: [sh, -c, 'printf "why \033[31m\302\233 <&\" not\n" >&2; exit 7']}
teams:
  pair: {mode: parallel, members: [leaf, bad]}
"#;

fn ran() -> World {
    let world = World::new();
    world.pool(POOL);
    world.run("top", "the question", &["--quiet"]).with(0);
    world
}

fn document(world: &World, session: &str) -> Value {
    world.json(&["export", session])
}

#[test]
fn json_has_everything_that_show_and_tree_have() {
    let world = ran();
    let document = document(&world, "latest");
    assert_eq!(document["format"], "offspring-export");
    assert_eq!(document["version"], 1);
    assert_eq!(document["program_version"], env!("CARGO_PKG_VERSION"));
    let tree = world.tree("latest");
    assert_eq!(document["root"], tree[0]["id"]);
    assert_eq!(document["origin"]["prompt"], "the question");
    assert_eq!(document["origin"]["node"], "top");
    assert!(document["origin"]["manifest"].as_str().unwrap().contains("name: desk"));
    let (sessions, events) =
        (document["sessions"].as_array().unwrap(), document["events"].as_array().unwrap());
    assert_eq!((sessions.len(), document["counts"]["sessions"].as_u64()), (5, Some(5)));
    assert_eq!(document["counts"]["events"], events.len());
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    for (session, row) in sessions.iter().zip(&tree) {
        assert_eq!(session["session"]["id"], row["id"]);
        let shown = world.json(&["show", row["id"].as_str().unwrap(), "--json"]);
        assert_eq!((&session["session"], &session["runs"]), (&shown["session"], &shown["runs"]));
        let own = events.iter().filter(|event| event["session"] == row["id"]);
        let own: Vec<Value> = own
            .map(|event| {
                let said = serde_json::json!({ "kind": event["kind"], "data": event["data"] });
                let late = event.get("late").cloned().unwrap_or(Value::Bool(false));
                serde_json::json!({ "seq": event["seq"], "at": event["at"], "run": event["run"], "late": late, "event": said })
            })
            .collect();
        assert_eq!(&Value::Array(own), &shown["transcript"], "{row}");
    }
}

#[test]
fn a_session_below_the_root_is_exported_with_what_is_below_it() {
    let world = ran();
    let tree = world.tree("latest");
    let mid = tree.iter().find(|row| row["agent_name"] == "mid").unwrap()["id"].as_str().unwrap();
    let document = document(&world, mid);
    assert_eq!((document["top"].as_str(), &document["root"]), (Some(mid), &tree[0]["id"]));
    let names: Vec<&str> = document["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["session"]["agent_name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["mid", "leaf"]);
    assert_eq!(document["origin"], Value::Null, "what the whole tree was asked is not part of it");
    let text = world.offspring(&["export", mid]).with(0).stdout;
    assert!(!text.contains("the question") && !text.contains("\"bad\""), "{text}");
    assert_eq!(document["counts"]["sessions"], 2);
}

#[test]
fn a_file_is_there_whole_or_not_at_all() {
    let world = ran();
    let to_stdout = world.offspring(&["export"]).with(0).stdout;
    let file = world.path("out/tree.json");
    let written = |more: &[&str]| {
        world.offspring(&[&["export", "latest", "-o", file.to_str().unwrap()], more].concat())
    };
    // Its directory is not there.
    let done = written(&[]).with(1);
    assert!(done.stderr.contains("tree.json cannot be written"), "{}", done.stderr);
    std::fs::create_dir(world.path("out")).unwrap();
    let done = written(&[]).with(0);
    assert!(done.stdout.is_empty() && done.stderr.contains("tree.json"), "{done:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), to_stdout);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // What exists is kept, unless it is said otherwise.
    std::fs::write(&file, "mine").unwrap();
    let done = written(&[]).with(2);
    assert!(done.stderr.contains("exists") && done.stderr.contains("--force"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    written(&["--force"]).with(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), to_stdout);
    // A link stays one, and what it names gets the text.
    let link = world.path("link.json");
    symlink(&file, &link).unwrap();
    std::fs::write(&file, "mine").unwrap();
    world.offspring(&["export", "--force", "-o", link.to_str().unwrap()]).with(0);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), to_stdout);
    // A device is written to and not replaced.
    world.offspring(&["export", "--force", "-o", "/dev/null"]).with(0);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let done = world.offspring(&["export", "-o", world.path("out").to_str().unwrap()]).with(2);
    assert!(done.stderr.contains("is a directory"), "{}", done.stderr);
    let left: Vec<_> =
        std::fs::read_dir(world.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tree.json"], "nothing half-written is left");
    assert_eq!(world.offspring(&["export", "ses_none"]).code, Some(2));
    assert_eq!(world.offspring(&["export", "--format", "pdf"]).code, Some(2));
}

#[test]
fn a_stdout_that_is_closed_ends_it_quietly() {
    let world = ran();
    let mut command = world.command(&["export"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.is_empty(), "{said}");
}

#[test]
fn w11_a_terminal_gets_no_control_character_and_a_pipe_loses_none() {
    let world = ran();
    let piped = world.offspring(&["export"]).with(0).stdout;
    assert!(piped.contains('\u{9b}') && piped.contains("\\u001b[31m"), "it is in the data as it came");
    for format in ["json", "otlp", "mermaid", "dot"] {
        let terminal = Terminal::start(&world.command(&["export", "--format", format]), 40, 300);
        let (code, shown) = terminal.finish();
        assert_eq!(code, Some(0), "{shown}");
        let steering = |c: &char| c.is_control() && !"\r\n".contains(*c);
        assert_eq!(shown.chars().find(steering), None, "{format}: {shown}");
    }
}

const HOSTILE: [&str; 6] = [
    "quote\" --> x[\"y",
    "two\nlines\r\nof it",
    "<script>alert(1)</script>",
    "back\\slash\\",
    "semi;colon %% #35; ]] )) }}",
    "\u{202e}reversed\u{1b}[31m",
];

#[test]
fn no_name_gets_out_of_its_label() {
    let world = World::new();
    let plant = Plant::new(&world.db());
    let root = plant.root("root", "x");
    for name in HOSTILE {
        let child = plant.child(&root, name, "y");
        plant.answers(child, "z");
    }
    plant.answers(root, "done");
    plant.close();
    let mermaid = world.offspring(&["export", "--format", "mermaid"]).with(0).stdout;
    assert_eq!(mermaid, world.offspring(&["tree", "--mermaid"]).with(0).stdout);
    let mut lines = mermaid.lines();
    assert_eq!(lines.next(), Some("flowchart TD"));
    for place in 0..=HOSTILE.len() {
        let line = lines.next().unwrap();
        let label =
            line.strip_prefix(&format!("  s{place}[\"")).and_then(|line| line.strip_suffix("\"]")).unwrap();
        // Mermaid's own way to write a character by its number.
        let rest =
            label.split('#').skip(1).all(|after| after.split_once(';').unwrap().0.parse::<u32>().is_ok());
        let free = label.chars().all(|c| c.is_alphanumeric() || " :_-#;".contains(c));
        assert!(rest && free, "{label}");
    }
    let edges: Vec<&str> = lines.collect();
    assert_eq!(
        edges,
        ["  s0 --> s1", "  s0 --> s2", "  s0 --> s3", "  s0 --> s4", "  s0 --> s5", "  s0 --> s6"]
    );

    let dot = world.offspring(&["export", "--format", "dot"]).with(0).stdout;
    assert_eq!(dot, world.offspring(&["tree", "--dot"]).with(0).stdout);
    let mut lines = dot.lines().skip(2);
    for place in 0..=HOSTILE.len() {
        let line = lines.next().unwrap();
        let label = line
            .strip_prefix(&format!("  s{place} [label=\""))
            .and_then(|line| line.strip_suffix("\"];"))
            .unwrap();
        let mut rest = label.chars();
        while let Some(c) = rest.next() {
            // A quote or a backslash stands behind a backslash, and nothing else does.
            assert!(c != '"' && (c != '\\' || matches!(rest.next(), Some('"' | '\\'))), "{label}");
        }
    }
    assert_eq!(lines.clone().filter(|line| line.contains("->")).count(), HOSTILE.len());
    assert_eq!(lines.last(), Some("}"));
}

/// The fixture's own version of the program, which is no part of what is compared.
fn at_this_version(fixture: &str) -> String {
    let version = |version: &str| format!("\"service.version\",\"value\":{{\"stringValue\":\"{version}\"");
    let scope = |version: &str| format!("\"name\":\"offspring\",\"version\":\"{version}\"");
    let now = env!("CARGO_PKG_VERSION");
    fixture.replace(&version("0.1.0"), &version(now)).replace(&scope("0.1.0"), &scope(now))
}

#[test]
fn spans_of_a_tree_are_those_that_the_published_types_of_otlp_read() {
    // `tests/downstream/otlp` reads this file with the types that OpenTelemetry publishes.
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/exports");
    let world = World::new();
    world.offspring(&["import", fixtures.join("1.json").to_str().unwrap()]).with(0);
    let written = world.offspring(&["export", "--format", "otlp"]).with(0).stdout;
    let fixture = std::fs::read_to_string(fixtures.join("1.otlp.json")).unwrap();
    assert_eq!(written, at_this_version(&fixture));
    assert!(!written.contains("What would you fix") && !written.contains("mits in 2 hours"), "{written}");
}

#[test]
fn spans_follow_the_tree_also_while_it_runs() {
    let world = World::new();
    world.pool(&POOL.replace("[cat]", "[sh, -c, 'sleep @SLEEP@']"));
    let running = world.start("mid", "x", &["--quiet"]);
    world.until_sleepers(1);
    let document = world.json(&["export", "--format", "otlp"]);
    running.send(Signal::INT);
    assert_eq!(running.finish().code, Some(130));
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let hex = |value: &Value, digits: usize| {
        let text = value.as_str().unwrap();
        assert!(
            text.len() == digits && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)),
            "{text}"
        );
        text.to_owned()
    };
    assert_eq!(spans.len(), 2);
    assert_eq!(hex(&spans[1]["parentSpanId"], 16), hex(&spans[0]["spanId"], 16));
    assert_eq!(hex(&spans[1]["traceId"], 32), hex(&spans[0]["traceId"], 32));
    assert!(spans[0].get("parentSpanId").is_none());
    for span in spans {
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("endTimeUnixNano") >= nanos("startTimeUnixNano"));
        assert_eq!(span["status"], serde_json::json!({ "code": 0 }));
    }
    // The same run is the same span in every export; of a part of a tree too.
    let leaf = world.tree("latest")[1]["id"].as_str().unwrap().to_owned();
    let again = world.json(&["export", &leaf, "--format", "otlp"]);
    let again = &again["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!((&again["spanId"], &again["traceId"]), (&spans[1]["spanId"], &spans[1]["traceId"]));
    assert_eq!(again["status"]["code"], 2);
    world.until_nothing_lives(Duration::from_secs(10));
}

/// Bytes of memory the process has had at most.
#[cfg(target_os = "linux")]
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

#[test]
#[cfg(target_os = "linux")]
fn a_tree_larger_than_memory_is_exported_in_little() {
    let world = World::new();
    let plant = Plant::new(&world.db());
    let root = plant.root("root", "x");
    let answer = "many words of an answer ".repeat((1 << 20) / 24);
    // 80 messages of 1 MiB, all of them one after another in the log.
    let children: Vec<_> = (0..80).map(|n| plant.child(&root, &format!("child{n}"), "y")).collect();
    for child in children {
        plant.answers(child, &answer);
    }
    plant.answers(root, "done");
    plant.close();
    let mut child = world.command(&["export"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut bytes, mut most) = (0, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = stdout.read(&mut buffer).unwrap();
        most = peak(child.id()).unwrap_or(0).max(most);
        bytes += read;
        if read == 0 {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    assert!(bytes > 79 << 20, "{bytes}");
    assert!(most > 0 && most < 56 << 20, "{} MiB", most >> 20);
}
