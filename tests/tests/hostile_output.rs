//! What programs print and are given, in any amount and shape: no error, no hang, and within bounds of memory (W11).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use offspring_tests::World;

/// The memory of the program may not grow beyond this, in KiB.
const MOST_KIB: u64 = 64 << 10;
const KEPT_BYTES: usize = 16 << 20;

const POOL: &str = r#"
entry: yes
agents:
  yes: {type: command, command: [sh, -c, 'cat >/dev/null; yes | head -c 2147483648']}
  line: {type: command, command: [sh, -c, 'cat >/dev/null; head -c 100000000 /dev/zero | tr "\0" a']}
  nul: {type: command, command: [sh, -c, 'cat >/dev/null; head -c 30000000 /dev/zero']}
  bad: {type: command, command: [sh, -c, 'cat >/dev/null; head -c 30000000 /dev/zero | tr "\0" "\377"']}
  loud: {type: command, command: [sh, -c, 'cat >/dev/null; head -c 100000000 /dev/zero | tr "\0" e >&2; echo fine']}
  early: {type: command, command: [sh, -c, 'head -c 10000000 /dev/zero | tr "\0" b; wc -c']}
  never: {type: command, command: [sh, -c, 'head -c 10000000 /dev/zero | tr "\0" c']}
  counts: {type: command, command: [wc, -c]}
  reads: {type: command, prompt: file, command: [sh, -c, 'wc -c < "$1"', sh]}
  cut: {type: command, command: [sh, -c, 'cat >/dev/null; printf "a\342"; sleep 0.3; printf "\202\254b\377"']}
  short: {type: command, command: [sh, -c, 'cat >/dev/null; seq 1 9999'], limits: {max_output_bytes: 100}}
  tells: {type: command, command: [sh, -c, 'cat >/dev/null; yes "$KEY" | head -c 3000000'], environment: {KEY: {from: KEY}}, limits: {max_output_bytes: 1000}}
teams:
  chain: {mode: sequential, members: [short, last]}
"#;

struct Ran {
    stdout: Vec<u8>,
    peak_kib: u64,
}

/// The most that was resident, less what is mapped from the program's own file: the system shares that and drops it when
/// it needs room, and of a program with all its debug sections it is a third of the limit.
fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    kib("VmHWM:")?.checked_sub(kib("RssFile:")?)
}

/// Runs a node on a prompt from stdin; its answer is read only when all of it is there.
fn run(world: &World, node: &str, prompt: &[u8]) -> Ran {
    let mut command: Command = world.run_command(node, "-", &["--quiet"]);
    command
        .env("KEY", "hunter2-secret-word")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let mut stdin = child.stdin.take().unwrap();
    let prompt = prompt.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&prompt));
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    // The peak of the program, and of the guards below it.
    let watching = std::thread::spawn(move || {
        let mut peak = 0;
        while !over.load(Ordering::Relaxed) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let guards = children.split_whitespace().filter_map(|pid| pid.parse().ok());
            peak = std::iter::once(pid).chain(guards).filter_map(peak_of).fold(peak, u64::max);
            // poll: /proc
            std::thread::sleep(Duration::from_millis(5));
        }
        peak
    });
    let mut stdout = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let status = child.wait().unwrap();
    done.store(true, Ordering::Relaxed);
    let _ = feeding.join().unwrap();
    assert!(status.success(), "{node}: {status}: {stderr}");
    Ran { stdout, peak_kib: watching.join().unwrap() }
}

/// The world, what was printed, and how many bytes the row says were left out.
fn ran(node: &str, prompt: &[u8]) -> (World, Ran, u64) {
    let world = World::new();
    world.pool(&POOL.replace("teams:", "  last: {type: command, command: [cat]}\nteams:"));
    let ran = run(&world, node, prompt);
    assert!(ran.peak_kib > 0 && ran.peak_kib < MOST_KIB, "{node}: a peak of {} KiB", ran.peak_kib);
    let left_out = world.tree("latest")[0]["left_out_bytes"].as_u64().unwrap();
    (world, ran, left_out)
}

fn note(left_out: u64) -> String {
    format!("\n[offspring: {left_out} bytes left out]\n")
}

/// Slow on purpose: 2 GiB go through the program.
#[test]
fn w11_two_gibibytes_are_swallowed_and_head_and_tail_of_them_kept() {
    let (world, ran, left_out) = ran("yes", b"go");
    assert_eq!(left_out, (2 << 30) - KEPT_BYTES as u64);
    let text = String::from_utf8(ran.stdout).unwrap();
    let (head, tail) = text.split_once(&note(left_out)).unwrap();
    assert_eq!(head.len() + tail.len(), KEPT_BYTES);
    assert!(head.starts_with("y\ny\n") && tail.ends_with("y\ny\n"));
    let said = format!("({left_out} bytes of its output left out)");
    for look in ["tree", "show"] {
        assert!(world.offspring(&[look, "latest"]).with(0).stdout.contains(&said), "{look}");
    }
}

#[test]
fn w11_a_line_of_100_megabytes_is_cut_like_any_output() {
    let (_, ran, left_out) = ran("line", b"go");
    assert_eq!(left_out, 100_000_000 - KEPT_BYTES as u64);
    assert_eq!(ran.stdout.len(), KEPT_BYTES + note(left_out).len() + 1);
}

#[test]
fn w11_bytes_that_are_no_text_and_control_characters_take_no_more_memory() {
    let (_, nul, left_out) = ran("nul", b"go");
    assert_eq!(left_out, 30_000_000 - KEPT_BYTES as u64);
    assert!(nul.stdout.starts_with(&[0; 1000]), "a pipe loses nothing");
    let (_, bad, left_out) = ran("bad", b"go");
    assert!(left_out > 0);
    let text = String::from_utf8(bad.stdout).unwrap();
    let (head, tail) = text.split_once(&note(left_out)).unwrap();
    assert!(head.chars().all(|c| c == '\u{fffd}'));
    assert!(tail.trim_end().chars().all(|c| c == '\u{fffd}'));
}

#[test]
fn w11_a_character_that_a_read_cuts_is_whole_and_what_is_none_is_replaced() {
    let (_, ran, _) = ran("cut", b"go");
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "a€b\u{fffd}\n");
}

#[test]
fn w4_a_flood_on_stderr_without_a_newline_is_drained() {
    let (_, ran, left_out) = ran("loud", b"go");
    assert_eq!((ran.stdout.as_slice(), left_out), (b"fine\n".as_slice(), 0));
}

#[test]
fn w11_a_program_may_write_before_it_reads_and_need_not_read_at_all() {
    // More than a pipe holds.
    let prompt = "what?\n".repeat(170_000);
    let (_, early, _) = ran("early", prompt.as_bytes());
    let text = String::from_utf8(early.stdout).unwrap();
    assert_eq!(text.trim_end_matches('\n').len(), 10_000_000 + prompt.len().to_string().len());
    assert!(text.trim_end().ends_with(&prompt.len().to_string()));
    let (_, never, _) = ran("never", prompt.as_bytes());
    assert_eq!(never.stdout.len(), 10_000_001);
}

#[test]
fn w11_a_prompt_of_ten_megabytes_arrives_on_stdin_and_in_a_file() {
    let prompt = "\"quoted\" and wörds\n".repeat(530_000);
    assert!(prompt.len() > 10_000_000);
    for node in ["counts", "reads"] {
        let (_, ran, _) = ran(node, prompt.as_bytes());
        assert_eq!(String::from_utf8(ran.stdout).unwrap().trim(), prompt.len().to_string(), "{node}");
    }
}

#[test]
fn the_next_agent_reads_how_much_of_an_output_was_left_out() {
    let (world, ran, _) = ran("chain", b"go");
    let text = String::from_utf8(ran.stdout).unwrap();
    let left_out =
        world.tree("latest").iter().map(|row| row["left_out_bytes"].as_u64().unwrap()).max().unwrap();
    let (head, tail) = text.split_once(&note(left_out)).expect("the note");
    assert!(head.starts_with("1\n2\n3\n") && tail.ends_with("9998\n9999\n"), "{text}");
    assert!(head.len() + tail.len() <= 102, "{text}");
}

#[test]
fn w10_no_piece_of_a_secret_shows_at_the_cuts() {
    let (world, ran, left_out) = ran("tells", b"go");
    assert!(left_out > 0);
    let text = String::from_utf8(ran.stdout).unwrap();
    let rest = text.replace(&note(left_out), "").replace("[redacted]", "");
    assert!(!rest.contains("hunt") && !rest.contains("word") && !rest.contains("secret"), "{text}");
    assert!(!fs::read(world.db()).unwrap().windows(7).any(|bytes| bytes == b"hunter2"));
}
